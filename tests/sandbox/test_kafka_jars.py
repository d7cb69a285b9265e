"""Kafka's jars and Java: pinned, verified, brought once, and a sentence for each way in which that can fail."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_steward.cache import cache_folder
from kafka_steward.errors import SandboxFailed
from kafka_steward.sandbox import artifacts
from kafka_steward.sandbox.artifacts import (
    KAFKA_KRAFT,
    KAFKA_ZOOKEEPER,
    Java,
    LockedJar,
    find_java,
    find_or_install_java,
    kafka_jars,
    private_java,
    read_lock,
)
from tests.sandbox.kafka_lock import lock_text
from tests.sandbox.maven_mirror import Fault, Mirror, run_mirror

VERSIONS = (KAFKA_KRAFT, KAFKA_ZOOKEEPER)
#: Nothing listens there.
NOWHERE = "http://127.0.0.1:9/"
FETCH = f"""
import sys
from kafka_steward.sandbox.artifacts import kafka_jars
print(len(kafka_jars("{KAFKA_KRAFT}")), "jars", "with" if "jgo" in sys.modules else "without", "jgo")
"""

pytestmark = pytest.mark.process


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    """The one repository that is asked: it has the jars of one version."""
    kafka_jars(KAFKA_KRAFT)
    with run_mirror(cache_folder() / "maven") as running:
        monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", running.address)
        monkeypatch.setattr(artifacts, "_PAUSES_S", (0.0, 0.0))
        yield running


@pytest.fixture
def empty_cache(mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the jars in a cache that has none; it does not exist."""
    monkeypatch.setenv("KAFKA_STEWARD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "maven"


@pytest.fixture
def full_cache(mirror: Mirror, empty_cache: Path) -> Path:
    """The folder of the jars in a cache that has those of one version, ours to spoil."""
    for jar in read_lock(KAFKA_KRAFT):
        (empty_cache / jar.path).parent.mkdir(parents=True)
        shutil.copy(mirror.folder / jar.path, empty_cache / jar.path)
    return empty_cache


def locked(artifact: str) -> LockedJar:
    (found,) = (jar for jar in read_lock(KAFKA_KRAFT) if jar.artifact == artifact)
    return found


def failure() -> str:
    """What a person reads, in one line, when the jars cannot be had."""
    with pytest.raises(SandboxFailed) as caught:
        kafka_jars(KAFKA_KRAFT)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def jars_in(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_lock_names_every_jar_once_with_its_version(version: str) -> None:
    lock = read_lock(version)
    names = [str(jar) for jar in lock]
    assert {f"org.apache.kafka:kafka_2.13:{version}", f"org.apache.kafka:kafka-tools:{version}"} <= set(names)
    assert "org.scala-lang:scala-library:2.13.18" in names
    assert names == sorted(names)
    assert len({(jar.group, jar.artifact) for jar in lock}) == len(lock)
    assert all(re.fullmatch(r"[0-9a-f]{64}", jar.sha256) for jar in lock)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_a_lock_is_what_its_command_makes_from_the_dependencies(version: str) -> None:
    lock = lock_text(version).splitlines()
    assert lock == [f"{jar.sha256}  {jar}" for jar in read_lock(version)]


def test_a_version_that_is_not_pinned_is_one_sentence() -> None:
    pinned = r"3\.9\.2, 4\.1\.2, 4\.2\.1, 4\.3\.1"
    with pytest.raises(SandboxFailed, match=rf"^Kafka 9\.9\.9 is not pinned here; there are {pinned}\.$"):
        kafka_jars("9.9.9")


@pytest.mark.ci
def test_a_jar_comes_from_maven_central(full_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEFAULT_ARTIFACT_REPOSITORY")
    small = full_cache / locked("jspecify").path
    small.unlink()
    assert small in kafka_jars(KAFKA_KRAFT)
    assert small.stat().st_size > 0


def test_a_mirror_fills_an_empty_cache(mirror: Mirror, empty_cache: Path) -> None:
    jars = kafka_jars(KAFKA_KRAFT)
    assert jars == [empty_cache / jar.path for jar in read_lock(KAFKA_KRAFT)]
    assert jars_in(empty_cache) == {jar.name for jar in jars}
    assert sorted(mirror.requested) == sorted(str(jar.relative_to(empty_cache)) for jar in jars)
    assert {path.name for path in empty_cache.parent.iterdir()} == {"maven", "maven.flock"}


def test_a_full_cache_needs_no_network_and_no_jgo(mirror: Mirror, full_cache: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FETCH], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "47 jars without jgo\n"
    assert mirror.requested == []


def test_only_the_jars_that_a_cache_lacks_are_downloaded(mirror: Mirror, full_cache: Path) -> None:
    lacking = [locked(artifact).path for artifact in ("kafka-clients", "jspecify")]
    for path in lacking:
        (full_cache / path).unlink()
    assert {full_cache / path for path in lacking} <= set(kafka_jars(KAFKA_KRAFT))
    assert sorted(mirror.requested) == [str(path) for path in lacking]


def test_what_an_interrupted_download_left_is_not_taken_for_the_jar(mirror: Mirror, full_cache: Path) -> None:
    jar = locked("jspecify")
    (full_cache / jar.path).unlink()
    partial = full_cache.with_name("maven.partial") / jar.path
    partial.parent.mkdir(parents=True)
    partial.write_bytes((mirror.folder / jar.path).read_bytes()[:100])
    assert full_cache / jar.path in kafka_jars(KAFKA_KRAFT)
    assert mirror.requested == [str(jar.path)]


def test_a_jar_that_differs_is_named_and_removed_and_downloaded_by_the_next_run(
    mirror: Mirror, full_cache: Path
) -> None:
    jar = locked("kafka-clients")
    spoilt = full_cache / jar.path
    spoilt.write_bytes(spoilt.read_bytes() + b"!")
    sentence = failure()
    assert sentence.startswith(f"{spoilt.name} in {spoilt.parent} has the SHA-256 ")
    assert f"not {jar.sha256} as pinned: it was removed; run again" in sentence
    assert not spoilt.exists()
    assert mirror.requested == []
    assert spoilt in kafka_jars(KAFKA_KRAFT)
    assert mirror.requested == [str(jar.path)]


def test_jars_that_differ_in_the_repository_do_not_get_into_the_cache(
    mirror: Mirror, empty_cache: Path, tmp_path: Path
) -> None:
    mirror.folder = shutil.copytree(mirror.folder, tmp_path / "changed")
    changed = read_lock(KAFKA_KRAFT)[:5]
    for jar in changed:
        (mirror.folder / jar.path).write_bytes(b"not that jar")
    sentence = failure()
    assert sentence.startswith(f"{changed[0].path.name} in ")
    assert f"not {changed[0].sha256} as pinned: it was removed; run again" in sentence
    assert not {jar.path.name for jar in changed} & jars_in(empty_cache)


@pytest.mark.parametrize("fault", list(Fault))
def test_a_download_that_fails_is_tried_three_times(mirror: Mirror, full_cache: Path, fault: Fault) -> None:
    jar = locked("jspecify")
    (full_cache / jar.path).unlink()
    mirror.faults[str(jar.path)] = [fault, fault, fault]
    assert failure().startswith(f"{jar} could not be downloaded from the repository that DEFAULT_ARTIFACT_REPOSITORY")
    assert mirror.requested == [str(jar.path)] * 3
    mirror.faults[str(jar.path)] = [fault, fault]
    assert full_cache / jar.path in kafka_jars(KAFKA_KRAFT)


def test_a_jar_that_the_mirror_lacks_is_one_sentence_without_its_password(
    mirror: Mirror, full_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", mirror.address.replace("//", "//me:secret@"))
    mirror.folder = tmp_path / "nothing"
    (full_cache / locked("jspecify").path).unlink()
    assert failure() == (
        "org.jspecify:jspecify:1.0.0 could not be downloaded from the repository that DEFAULT_ARTIFACT_REPOSITORY "
        "names (it did not answer with the jar): check the network, or name a Maven mirror in the environment "
        "variable DEFAULT_ARTIFACT_REPOSITORY."
    )


@pytest.mark.parametrize("address", [NOWHERE, "no address"])
def test_a_repository_that_cannot_be_reached_is_one_sentence(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", address)
    sentence = failure()
    assert sentence.startswith(f"{read_lock(KAFKA_KRAFT)[0]} could not be downloaded from the repository that ")
    assert sentence.endswith(
        "): check the network, or name a Maven mirror in the environment variable DEFAULT_ARTIFACT_REPOSITORY."
    )
    assert jars_in(empty_cache) == set()


def test_without_jgo_it_is_said_what_to_install(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jgo.maven", None)
    assert failure() == (
        f"Kafka's jars cannot be downloaded, because the package jgo is missing: run `{sys.executable} -m pip install "
        "'airflow-provider-kafka-steward[sandbox]'`."
    )


def test_two_processes_at_once_download_once(mirror: Mirror, empty_cache: Path) -> None:
    both = [subprocess.Popen([sys.executable, "-c", FETCH], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    printed = sorted(process.communicate(timeout=300)[0] for process in both)
    assert printed == ["47 jars with jgo\n", "47 jars without jgo\n"]
    assert sorted(mirror.requested) == sorted(str(jar.path) for jar in read_lock(KAFKA_KRAFT))


OLD = """#!/bin/sh
echo "    java.home = /opt/old" >&2
echo "    java.specification.version = {version}" >&2
"""
SPARK = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print(spark.range(1000).selectExpr("sum(id)").first()[0], spark._jvm.java.lang.System.getProperty("java.home"))
"""


@pytest.fixture
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java; the folder that is its whole PATH."""
    path = tmp_path / "bin"
    path.mkdir()
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return path


def pretend(folder: Path, version: str) -> None:
    (folder / "java").write_text(OLD.format(version=version))
    (folder / "java").chmod(0o755)


def test_no_java_is_none(no_java: Path) -> None:
    assert find_java() is None


@pytest.mark.parametrize("version", ["1.8", "11", "16"])
def test_an_old_java_is_not_taken(no_java: Path, version: str) -> None:
    pretend(no_java, version)
    assert find_java() is None


@pytest.mark.parametrize("version", ["17", "21"])
def test_a_new_one_is_taken_from_the_path(no_java: Path, version: str) -> None:
    pretend(no_java, version)
    assert find_java() == Java(Path("/opt/old"), int(version))


def test_java_home_comes_first_and_is_passed_over_when_it_is_old(
    no_java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    monkeypatch.setenv("JAVA_HOME", str(home))
    pretend(no_java, "21")
    pretend(home / "bin", "25")
    assert find_java() == Java(Path("/opt/old"), 25)
    pretend(home / "bin", "11")
    assert find_java() == Java(Path("/opt/old"), 21)


def test_a_java_that_does_not_run_is_no_java(no_java: Path) -> None:
    (no_java / "java").write_text("#!/bin/sh\nexit 1\n")
    (no_java / "java").chmod(0o755)
    assert find_java() is None


def test_without_java_a_private_one_is_brought(no_java: Path) -> None:
    found = find_or_install_java()
    assert found.home.is_relative_to(cache_folder())
    assert found.version >= 17
    said = subprocess.run(
        [found.executable, "-version"], capture_output=True, text=True, timeout=300, check=True
    ).stderr
    assert f'"{found.version}.' in said


@pytest.mark.spark
@pytest.mark.slow
def test_spark_runs_on_the_private_java(monkeypatch: pytest.MonkeyPatch) -> None:
    private = private_java()
    monkeypatch.setenv("JAVA_HOME", str(private.home))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    done = subprocess.run([sys.executable, "-c", SPARK], capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    total, home = done.stdout.split()
    assert total == "499500"
    assert Path(home).is_relative_to(private.home.parent)


def test_what_to_install_is_said_when_pip_brings_none(
    no_java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_STEWARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(SandboxFailed) as caught:
        find_or_install_java()
    assert "\n" not in str(caught.value)
    assert "no Java 17 or newer is in JAVA_HOME or on the PATH; install one" in str(caught.value)
