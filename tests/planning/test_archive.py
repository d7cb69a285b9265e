"""The archive for executors: what is in it, whom it fits, and that executors without our code plan the same with it."""

from __future__ import annotations

import ast
import json
import os
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import kafka_steward
from kafka_steward.errors import PlanError, PlanningFailed, SettingError
from kafka_steward.planning.files.formats import read_plan
from kafka_steward.planning.spark import job
from kafka_steward.planning.spark.archive import (
    ArchiveFacts,
    _archive_members,
    archive_conf,
    check_archive,
    copy_archive,
    make_archive,
    read_archive_facts,
)
from kafka_steward.planning.spark.jvm import QUICK_JAVA
from kafka_steward.planning.spark.probe import Report, judge_reports
from tests.builders import cluster, planned, written
from tests.own_spark import SPARK, bare_python, standalone
from tests.planning.test_job import TOPICS

__all__ = ["bare_python", "standalone"]

SNAPSHOT = cluster("1a 2b 3c 4a! 5b 6c", *TOPICS)


def submitted(
    master: str, python: Path, snapshot: str, out: Path, conf: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    everything = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.executor.memory": "512m",
        "spark.task.maxFailures": "1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.pyspark.python": str(python),
        "spark.pyspark.driver.python": sys.executable,
        **conf,
    }
    command = [str(SPARK / "bin" / "spark-submit"), "--master", master]
    for name, value in everything.items():
        command += ["--conf", f"{name}={value}"]
    command += [job.__file__, "--snapshot", snapshot, "--out", str(out), "--operation", "heal"]
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK_")}
    env |= {"SPARK_LOCAL_IP": "127.0.0.1", "JAVA_TOOL_OPTIONS": QUICK_JAVA}
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=400, check=False)


@pytest.mark.spark
@pytest.mark.slow
def test_executors_without_our_code_need_the_archive_and_then_make_the_same_plan(
    tmp_path: Path, bare_python: Path, standalone: str
) -> None:
    snapshot = written(SNAPSHOT, tmp_path / "snapshot")
    without = submitted(standalone, bare_python, snapshot, tmp_path / "without", {})
    assert without.returncode == 1
    # spark-submit prints what its Python says, on either stream, to its own standard output.
    assert without.stdout.splitlines()[-1] == (
        f"Spark's executor on {socket.gethostname()} has no kafka_steward; make an archive with `airflow kafka-steward "
        "make-archive`, and name it as archive in the extra of the Spark connection."
    )
    archive = tmp_path / "archive.tar.gz"
    assert job.main(["--make-archive", str(archive)]) == 0
    done = submitted(standalone, bare_python, snapshot, tmp_path / "plan", archive_conf(archive.as_uri()))
    assert done.returncode == 0, done.stderr[-3000:]
    plan = read_plan(str(tmp_path / "plan"))
    assert plan == planned(SNAPSHOT)
    assert json.loads(done.stdout.splitlines()[-1]) == plan.proof


def test_the_archive_holds_what_planning_imports_and_no_airflow(tmp_path: Path) -> None:
    assert job.main(["--make-archive", str(tmp_path / "a.tar.gz")]) == 0
    with tarfile.open(tmp_path / "a.tar.gz") as archive:
        names = archive.getnames()
    ours = {name for name in names if name.startswith("kafka_steward/")}
    assert {"kafka_steward/__init__.py", "kafka_steward/planning/solver/sharded/plan.py"} <= ours
    assert {name.split("/")[1] for name in ours} == {
        "__init__.py",
        "assignment.py",
        "cache.py",
        "errors.py",
        "escaping.py",
        "planning",
    }


def modules() -> dict[str, str]:
    """Name and source of each of our modules in the archive."""
    files = {
        name: file for name, file in _archive_members() if name.startswith("kafka_steward/") and name.endswith(".py")
    }
    names = {name: name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in files}
    return {names[name]: file.read_text() for name, file in files.items()}


def imported(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kafka_steward"):
            yield str(node.module)
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name.startswith("kafka_steward"))


def test_each_import_of_an_archived_module_is_archived_too() -> None:
    found = modules()
    wanted = {(module, each) for module, source in found.items() for each in imported(source)}
    assert ("kafka_steward.planning.spark.archive", "kafka_steward.errors") in wanted
    assert {(module, each) for module, each in wanted if each not in found} == set()


FACTS = ArchiveFacts("3.11", "linux-x86_64-glibc", "0.1", "c0de")
GOOD = Report("node-1", "3.11", "linux-x86_64-glibc", version=kafka_steward.__version__)


def test_executors_that_have_everything_pass() -> None:
    judge_reports([GOOD, replace(GOOD, host="node-2")], FACTS, "/mnt/w")
    judge_reports([replace(GOOD, python="3.12")], None, "s3://bucket/w")


@pytest.mark.parametrize(
    ("report", "sentence"),
    [
        (
            replace(GOOD, python="3.10"),
            "not fit Spark's executor on node-1: it is made for Python 3.11, not 3.10;",
        ),
        (
            replace(GOOD, python="3.10", platform="linux-aarch64-glibc"),
            "it is made for Python 3.11, not 3.10 and platform linux-x86_64-glibc, not linux-aarch64-glibc; make it",
        ),
    ],
)
def test_an_archive_for_another_python_or_platform_is_named(report: Report, sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        judge_reports([replace(GOOD, host="node-0"), report], FACTS, "s3://bucket/w")


def test_executors_that_lack_a_module_or_have_another_version_are_named() -> None:
    with pytest.raises(PlanningFailed, match="executor on node-1 has no pylmcf; make an archive with `airflow"):
        judge_reports([replace(GOOD, lacking=["pylmcf"])], FACTS, "s3://bucket/w")
    with pytest.raises(PlanningFailed, match=r"executor on node-1 has version 0.0.1 of kafka_steward, and the driver"):
        judge_reports([replace(GOOD, version="0.0.1")], None, "s3://bucket/w")


def test_one_executor_that_does_not_share_the_files_is_enough() -> None:
    other = replace(GOOD, host="node-2")
    for report in (replace(other, unread="reading: no"), replace(other, unwritten="writing: no")):
        with pytest.raises(SettingError, match=r"executor on node-2 does not share /mnt/w .*\((reading|writing): no"):
            judge_reports([GOOD, report], FACTS, "/mnt/w")
    with pytest.raises(SettingError, match=r"executor on node-2 does not share /mnt/w .*the driver does not see what"):
        judge_reports([GOOD, other], FACTS, "/mnt/w", unseen=[1])


def test_an_archive_says_what_it_is_made_for_and_is_read_from_any_store(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    facts = make_archive(str(path))
    assert facts == ArchiveFacts.of_this_machine() == read_archive_facts(str(path)) == read_archive_facts(path.as_uri())
    check_archive(str(path), facts)
    import fsspec

    fsspec.filesystem("memory").pipe_file("/archives/a.tar.gz", path.read_bytes())
    assert read_archive_facts("memory://archives/a.tar.gz") == facts
    (tmp_path / "copy").mkdir()
    assert copy_archive("memory://archives/a.tar.gz", tmp_path / "copy").read_bytes() == path.read_bytes()
    assert copy_archive(path.as_uri(), tmp_path / "copy") == copy_archive(str(path), tmp_path / "copy") == path


def test_an_archive_holds_what_the_solver_reads_of_itself_when_it_is_imported(tmp_path: Path) -> None:
    make_archive(str(tmp_path / "a.tar.gz"))
    with tarfile.open(tmp_path / "a.tar.gz") as archive:
        names = archive.getnames()
    assert [name for name in names if name.startswith("pylmcf-") and name.endswith(".dist-info/METADATA")]


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (
            {"python": "2.7"},
            r"The archive /a is made for Python 2.7, and the driver runs Python 3.*; make it again",
        ),
        ({"code": "0", "version": "0.0.1"}, r"The archive /a holds other code \(of version 0.0.1\) than is installed"),
    ],
)
def test_an_archive_that_does_not_fit_is_refused_before_anything_is_submitted(
    changed: dict[str, str], sentence: str
) -> None:
    with pytest.raises(SettingError, match=sentence):
        check_archive("/a", replace(ArchiveFacts.of_this_machine(), **changed))


def test_an_archive_that_is_missing_or_not_ours_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"cannot be read here \(No such file or directory\); make it with"):
        read_archive_facts(str(tmp_path / "missing.tar.gz"))
    with pytest.raises(SettingError, match=r"The archive nowhere://a.tar.gz cannot be read here: .*nowhere"):
        read_archive_facts("nowhere://a.tar.gz")
    text = tmp_path / "text.tar.gz"
    text.write_text("not an archive")
    former = tmp_path / "former.tar.gz"
    with tarfile.open(former, "w:gz") as archive:
        archive.add(text, "kafka_steward/errors.py")
    half = tmp_path / "half.tar.gz"
    (tmp_path / "facts").write_text(json.dumps({"python": "3.11"}))
    with tarfile.open(half, "w:gz") as archive:
        archive.add(tmp_path / "facts", "kafka_steward_archive.json")
    for path in (text, former, half):
        with pytest.raises(SettingError, match="is no archive of this version of Kafka Steward, which begins with"):
            read_archive_facts(str(path))
    with pytest.raises(PlanError, match="cannot be written: No such file"):
        make_archive(str(tmp_path / "missing" / "a.tar.gz"))
