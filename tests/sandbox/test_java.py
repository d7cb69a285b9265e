"""A machine's Java is found, an old one is not taken, and where there is none a private one comes from PyPI."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kafka_steward.cache import cache_folder
from kafka_steward.errors import SandboxFailed
from kafka_steward.sandbox.artifacts import Java, find_java, find_or_install_java, private_java

pytestmark = pytest.mark.process

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
