"""Kafka's jars: pinned, verified, fetched once, and a sentence for each way in which that can fail."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_steward.errors import SandboxFailed
from kafka_steward.sandbox import artifacts
from kafka_steward.sandbox.artifacts import (
    KAFKA_KRAFT,
    KAFKA_ZOOKEEPER,
    Java,
    cache_folder,
    find_or_install_java,
    kafka_jars,
    read_lock,
)

VERSIONS = (KAFKA_KRAFT, KAFKA_ZOOKEEPER)
#: Prints one line for each time that Spark's resolver is run.
FETCH = """
from kafka_steward.sandbox import artifacts
resolve = artifacts.resolve_jars
artifacts.resolve_jars = lambda *given, **named: (print("resolving", flush=True), resolve(*given, **named))[1]
print(len(artifacts.kafka_jars(artifacts.KAFKA_KRAFT, artifacts.find_or_install_java())), "jars")
"""

pytestmark = pytest.mark.process


@pytest.fixture(scope="session")
def runtime() -> Java:
    return find_or_install_java()


@pytest.fixture
def copied_cache(runtime: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with the jars of one version in it, ours to spoil."""
    kafka_jars(KAFKA_ZOOKEEPER, runtime)
    folder = f"kafka-{KAFKA_ZOOKEEPER}"
    shutil.copytree(cache_folder() / folder, tmp_path / folder)
    monkeypatch.setenv("KAFKA_STEWARD_CACHE", str(tmp_path))
    return tmp_path / folder


@pytest.mark.parametrize("version", VERSIONS)
def test_a_lock_names_every_jar_once_with_its_version(version: str) -> None:
    lock = read_lock(version)
    assert f"org.apache.kafka_kafka_2.13-{version}.jar" in lock
    assert f"org.apache.kafka_kafka-tools-{version}.jar" in lock
    assert "scala-library-2.13.18.jar" in lock
    assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in lock.values())
    assert all(re.fullmatch(r"[\w.-]+-[\w.-]+\.jar", name) for name in lock)


def test_a_second_run_fetches_nothing(copied_cache: Path, runtime: Java, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "resolve_jars", _must_not_be_called)
    assert {jar.name for jar in kafka_jars(KAFKA_ZOOKEEPER, runtime)} == set(read_lock(KAFKA_ZOOKEEPER))


def test_a_jar_that_differs_is_named_and_removed(copied_cache: Path, runtime: Java) -> None:
    spoilt = copied_cache / f"org.apache.kafka_kafka-clients-{KAFKA_ZOOKEEPER}.jar"
    spoilt.write_bytes(spoilt.read_bytes() + b"!")
    with pytest.raises(SandboxFailed) as caught:
        kafka_jars(KAFKA_ZOOKEEPER, runtime)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.startswith(f"{spoilt.name} in {copied_cache} has the SHA-256 ")
    assert read_lock(KAFKA_ZOOKEEPER)[spoilt.name] in sentence
    assert not spoilt.exists()


def test_another_pyspark_is_named_when_its_scala_library_is_another_one(copied_cache: Path) -> None:
    (copied_cache / "scala-library-2.13.18.jar").rename(copied_cache / "scala-library-2.13.99.jar")
    with pytest.raises(
        SandboxFailed, match=r"PySpark brought scala-library-2\.13\.99\.jar; install the PySpark version"
    ):
        artifacts.verify_jars(copied_cache, read_lock(KAFKA_ZOOKEEPER))


def test_a_version_that_is_not_pinned_is_one_sentence(runtime: Java) -> None:
    with pytest.raises(SandboxFailed, match=r"^Kafka 9\.9\.9 is not pinned here; there are 3\.9\.2 and 4\.3\.1\.$"):
        kafka_jars("9.9.9", runtime)


@pytest.mark.ci
def test_two_processes_at_once_fetch_once(tmp_path: Path) -> None:
    environment = {**os.environ, "KAFKA_STEWARD_CACHE": str(tmp_path)}
    both = [
        subprocess.Popen([sys.executable, "-c", FETCH], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    printed = sorted(process.communicate(timeout=300)[0] for process in both)
    assert printed == ["47 jars\n", "resolving\n47 jars\n"]
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == [f"kafka-{KAFKA_KRAFT}"]


def test_a_resolver_that_reaches_nothing_is_one_sentence(
    runtime: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_STEWARD_CACHE", str(tmp_path))
    # Nothing listens there, and no user's own repository is looked at.
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", "http://127.0.0.1:9/")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Duser.home={tmp_path}")
    with pytest.raises(SandboxFailed) as caught:
        kafka_jars(KAFKA_KRAFT, runtime)
    assert "\n" not in str(caught.value)
    assert "check the network, or name a Maven mirror" in str(caught.value)
    assert (tmp_path / f"kafka-{KAFKA_KRAFT}.ivy" / "resolver.log").stat().st_size > 0


def _must_not_be_called(*given: object, **named: object) -> None:
    raise AssertionError("the resolver was run")
