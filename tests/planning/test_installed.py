"""The packages pyspark and pyspark-client in one folder: what is used, what cannot be, and what is said then."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pyspark
import pytest

from kafka_steward.errors import PlanningFailed
from kafka_steward.planning.spark import installed as installed_spark
from kafka_steward.planning.spark.installed import find_spark, prefer_code_of_jars

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
