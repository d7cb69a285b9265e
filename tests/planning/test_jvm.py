"""The Spark of this machine: which of its code is used, and from which archive of its classes its JVM starts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from kafka_steward.errors import PlanningFailed
from kafka_steward.planning.spark import installed as installed_spark
from kafka_steward.planning.spark.installed import find_spark, prefer_code_of_jars
from kafka_steward.planning.spark.jvm import QUICK_JAVA, local_java_options, record_class_archive
from tests.builders import cluster, planned, written


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Spark whose spark-submit writes what Java would, beside a Java; the cache is empty."""
    monkeypatch.setenv("KAFKA_STEWARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    script(tmp_path / "java/bin/java", "")
    (tmp_path / "spark/jars").mkdir(parents=True)
    (tmp_path / "spark/jars/spark-core_2.13-4.3.0.jar").write_text("classes")
    return tmp_path / "spark"


SNAPSHOT = cluster("1a 2b 3c 4a! 5b 6c", "t: 124 234 345 456")
#: Plans in a session of this machine, and prints the digest and the archive that its JVM has mapped.
MAPPED = """
import sys
from pathlib import Path
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
    snapshot = written(SNAPSHOT, tmp_path / "snapshot")
    command = [sys.executable, "-c", MAPPED, snapshot, str(tmp_path / "plan")]
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK_")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    digest, mapped = done.stdout.split()[-2:]
    assert mapped == str(archive)
    assert digest == planned(SNAPSHOT, "heal").digest


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
