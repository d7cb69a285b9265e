"""The archive for executors: what is in it, whom it fits, and that executors without our code plan the same with it."""

from __future__ import annotations

import ast
import json
import os
import re
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyspark
import pytest

import kafka_steward
from kafka_steward.errors import PlanError, PlanningFailed, SettingError
from kafka_steward.planning.files.formats import read_plan
from kafka_steward.planning.spark import installed as installed_spark
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
from kafka_steward.planning.spark.installed import (
    QUICK_JAVA,
    find_spark,
    local_java_options,
    prefer_code_of_jars,
    record_class_archive,
)
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
        "given_targets.py",
        "planning",
        "rack_rule.py",
        "service_topics.py",
        "value_parsing.py",
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
        (replace(GOOD, python="3.10"), "not fit Spark's executor on node-1: it is made for Python 3.11, not 3.10;"),
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
    with pytest.raises(SettingError, match=r"executor on node-2 does not share /mnt/w .*\(reading: no"):
        judge_reports([GOOD, replace(other, unread="reading: no")], FACTS, "/mnt/w")


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
        ({"python": "2.7"}, r"The archive /a is made for Python 2.7, and the driver runs Python 3.*; make it again"),
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


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Spark whose spark-submit writes what Java would, beside a Java; the cache is empty."""
    monkeypatch.setenv("KAFKA_STEWARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    script(tmp_path / "java/bin/java", "")
    (tmp_path / "spark/jars").mkdir(parents=True)
    (tmp_path / "spark/jars/spark-core_2.13-4.3.0.jar").write_text("classes")
    return tmp_path / "spark"


FOUR = cluster("1a 2b 3c 4a! 5b 6c", "t: 124 234 345 456")
#: Plans in a session of this machine, and prints the digest and the archive that its JVM has mapped.
MAPPED = """
import sys
from pathlib import Path
from types import SimpleNamespace
from pyspark import SparkContext
from kafka_steward.planning.spark.pipeline import run
from kafka_steward.planning.spark.session import planning_session
with planning_session() as spark:
    digest = run(spark, sys.argv[1], sys.argv[2], "heal")["digest"]
    java = SparkContext._jvm.java.lang.ProcessHandle.current().pid()
    print(digest, *{line.split()[-1] for line in Path(f"/proc/{java}/maps").read_text().splitlines()
                    if "spark-classes" in line})
"""


def script(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


#: Takes the name of the archive from Java's options.
RECORDS = """
file=$(echo "$*" | sed 's/.*ArchiveClassesAtExit=\\([^ ]*\\).*/\\1/')
echo run >> "$0.runs"
echo all > "$file"
"""


def test_without_an_archive_java_gets_its_usual_options(home: Path) -> None:
    assert local_java_options(home) == QUICK_JAVA


@pytest.mark.process
def test_an_archive_is_recorded_once_and_used_from_then_on(home: Path) -> None:
    script(home / "bin/spark-submit", RECORDS)
    archive = record_class_archive(home)
    assert record_class_archive(home) == archive
    assert (home / "bin/spark-submit.runs").read_text() == "run\n"
    assert local_java_options(home) == f"{QUICK_JAVA} -XX:SharedArchiveFile={archive} -Xlog:disable"
    assert list(archive.parent.iterdir()) == [archive]


@pytest.mark.process
def test_another_spark_or_another_java_has_another_archive(home: Path) -> None:
    script(home / "bin/spark-submit", RECORDS)
    record_class_archive(home)
    (home / "jars/spark-sql_2.13-4.3.0.jar").write_text("more")
    assert local_java_options(home) == QUICK_JAVA


@pytest.mark.process
@pytest.mark.parametrize("which", ["archive", "folder"])
def test_an_archive_that_others_may_write_is_not_used(home: Path, which: str) -> None:
    script(home / "bin/spark-submit", RECORDS)
    archive = record_class_archive(home)
    (archive if which == "archive" else archive.parent).chmod(0o777)
    assert local_java_options(home) == QUICK_JAVA


@pytest.mark.process
def test_the_folder_of_a_groups_cache_is_ones_own(home: Path) -> None:
    script(home / "bin/spark-submit", RECORDS)
    cache = home.parent / "cache"
    cache.mkdir()
    cache.chmod(0o775)
    assert str(record_class_archive(home)) in local_java_options(home)


@pytest.mark.process
def test_what_stopped_java_is_said_and_nothing_is_left_behind(home: Path) -> None:
    script(home / "bin/spark-submit", "echo 'Error: no space left' >&2; exit 1")
    with pytest.raises(PlanningFailed, match=r"Java wrote no archive of Spark's classes: Error: no space left"):
        record_class_archive(home)
    assert local_java_options(home) == QUICK_JAVA
    assert list((home.parent / "cache/spark-classes").iterdir()) == []


@pytest.mark.spark
@pytest.mark.slow
def test_the_plan_of_a_job_that_starts_from_a_real_archive_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_STEWARD_CACHE", str(tmp_path / "cache"))
    archive = record_class_archive(find_spark())
    snapshot = written(FOUR, tmp_path / "snapshot")
    command = [sys.executable, "-c", MAPPED, snapshot, str(tmp_path / "plan")]
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK_")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    digest, mapped = done.stdout.split()[-2:]
    assert mapped == str(archive)
    assert digest == planned(FOUR, "heal").digest


def test_a_missing_java_is_named(home: Path) -> None:
    (home.parent / "java/bin/java").unlink()
    assert local_java_options(home) == QUICK_JAVA
    with pytest.raises(PlanningFailed, match="install Java 17 or newer"):
        record_class_archive(home)


def test_a_cache_that_cannot_be_written_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home.parent / "file").write_text("")
    monkeypatch.setenv("KAFKA_STEWARD_CACHE", str(home.parent / "file" / "cache"))
    with pytest.raises(PlanningFailed, match=r"The cache \S+/file/cache/\S+ cannot be written: Not a directory"):
        record_class_archive(home)


ARCHIVES = ("pyspark.zip", "py4j-0.10.9.9-src.zip")


def installed(
    home: Path, monkeypatch: pytest.MonkeyPatch, *, jars: str | None, code: str | None, archives: tuple[str, ...] = ()
) -> Path:
    """A folder as pip leaves it."""
    if jars is not None:
        (home / "jars").mkdir(parents=True)
        (home / "jars" / f"spark-core_2.13-{jars}.jar").touch()
    if code is not None:
        (home / "version.py").write_text(f"__version__: str = {code!r}\n")
    (home / "python" / "lib").mkdir(parents=True)
    for name in archives:
        (home / "python" / "lib" / name).touch()
    monkeypatch.setenv("SPARK_HOME", str(home))
    return home


@pytest.mark.parametrize("code", ["4.3.0", None])
def test_what_fits_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str | None) -> None:
    home = installed(tmp_path, monkeypatch, jars="4.3.0", code=code, archives=ARCHIVES)
    before = list(sys.path)
    assert find_spark() == home
    prefer_code_of_jars()
    assert sys.path == before


def test_the_code_of_the_jars_comes_before_the_clients(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = installed(tmp_path, monkeypatch, jars="4.3.0", code="4.2.0", archives=ARCHIVES)
    monkeypatch.setenv("SPARK_HOME", "")
    monkeypatch.setattr(installed_spark, "_package_folder", lambda: str(home))
    monkeypatch.setattr(sys, "path", ["here"])
    prefer_code_of_jars()
    assert sys.path == [*(str(home / "python" / "lib" / name) for name in ARCHIVES), "here"]
    assert os.environ["SPARK_HOME"] == str(home)


@pytest.mark.parametrize("archives", [(), ARCHIVES[:1]])
def test_code_of_another_version_alone_is_one_sentence_with_one_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, archives: tuple[str, ...]
) -> None:
    installed(tmp_path, monkeypatch, jars="4.3.0", code="4.2.0", archives=archives)
    with pytest.raises(PlanningFailed) as raised:
        find_spark()
    assert re.fullmatch(
        rf"Spark cannot be used: in {tmp_path} the jars are of version 4\.3\.0 and the Python code is of version "
        r"4\.2\.0, because the package pyspark-client was installed over pyspark\. Run `.* -m pip install "
        r"--force-reinstall --no-deps pyspark==[\d.]+` on the worker\.",
        str(raised.value),
    )


def test_a_spark_that_is_too_old_is_named_with_its_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed(tmp_path, monkeypatch, jars="3.5.6", code=None, archives=ARCHIVES)
    with pytest.raises(
        PlanningFailed, match=r"has Spark 3\.5\.6, and plans need Spark 4\. Unset SPARK_HOME, or let it"
    ):
        find_spark()


def test_an_installed_spark_that_is_too_old_is_replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed(tmp_path, monkeypatch, jars="3.5.6", code=None, archives=ARCHIVES)
    monkeypatch.delenv("SPARK_HOME")
    old = [SimpleNamespace(name=name, version="3.5.6") for name in ("pyspark", "pyspark-client")]
    monkeypatch.setattr("kafka_steward.planning.spark.installed.metadata.distributions", lambda: old)
    monkeypatch.setattr("kafka_steward.planning.spark.installed._package_folder", lambda: str(tmp_path))
    with pytest.raises(
        PlanningFailed, match=r"plans need Spark 4\. Run `.* -m pip install 'pyspark>=4,<5'` on the worker"
    ):
        find_spark()


def test_no_jars_is_one_sentence_with_one_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed(tmp_path, monkeypatch, jars=None, code="4.2.0")
    with pytest.raises(
        PlanningFailed, match=r"^Spark is missing: .* has no jars, .*`.* pyspark==[\d.]+` on the worker"
    ):
        find_spark()


def test_this_installation_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    home = find_spark()
    assert home == Path(pyspark.__file__).parent
    assert sorted(path.name for path in (home / "python" / "lib").glob("*.zip")) == sorted(ARCHIVES)
