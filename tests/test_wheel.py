"""The wheel, as a stranger installs it: into a fresh environment, beside Airflow."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kafka_steward.provider_info import get_provider_info

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
SOURCES = ("provider", "operators", "sensors", "dags")
PACKAGE = "airflow-provider-kafka-steward"
KINDS = ("operators", "sensors", "hooks", "triggers")

pytestmark = [pytest.mark.process, pytest.mark.ci, pytest.mark.apart]


def run(*command: object, cwd: Path, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PYTHON"))}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, f"{command[:4]} failed: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: the work tree's build folder holds the links of the development install."""
    folder = tmp_path_factory.mktemp("sources")
    for name in SOURCES:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder / "dist", cwd=folder)
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment with the pinned requirements and the wheel."""
    place = tmp_path_factory.mktemp("fresh")
    run(BIN / "uv", "venv", "--quiet", "--python", sys.executable, place / "venv", cwd=place)
    lines = (ROOT / "requirements.txt").read_text().splitlines(keepends=True)
    # As the Makefile does: pyspark-client ships the same package without the jars, so the full one goes in last.
    (place / "without.txt").write_text("".join(line for line in lines if not line.startswith("pyspark==")))
    python = place / "venv" / "bin" / "python"
    install = (BIN / "uv", "pip", "install", "--quiet", "--python", python, "--no-deps")
    run(*install, "--requirements", place / "without.txt", cwd=place)
    run(*install, "--requirements", ROOT / "requirements.txt", cwd=place)
    run(*install, wheel, cwd=place)
    return python.parent


def modules(info: dict[str, Any]) -> set[str]:
    return {module for kind in KINDS for entry in info[kind] for module in entry["python-modules"]}


def test_airflow_lists_all_that_it_brings(installed: Path, tmp_path: Path) -> None:
    home = {"AIRFLOW_HOME": str(tmp_path), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    shown = run(installed / "airflow", "providers", "get", PACKAGE, "--full", "-o", "json", cwd=tmp_path, **home)
    listed = json.loads(shown[shown.index("[") :])[0]
    assert set(listed) >= {*KINDS, "connection-types", "config", "cli"}
    assert listed["package-name"] == PACKAGE
    text = json.dumps(listed)
    for module in modules(get_provider_info()):
        assert module in text
    assert "kafka_steward.hooks.steward.StewardHook" in text
    run(installed / "python", "-c", "".join(f"import {name}\n" for name in modules(listed)), cwd=tmp_path, **home)


def test_what_is_installed_fits_together(installed: Path, tmp_path: Path) -> None:
    run(BIN / "uv", "pip", "check", "--python", installed / "python", cwd=tmp_path)


def test_the_wheel_holds_every_module_and_data_file(wheel: Path) -> None:
    import zipfile

    held = set(zipfile.ZipFile(wheel).namelist())
    for name in SOURCES:
        inside = Path("kafka_steward") if name == "provider" else Path("kafka_steward", name)
        for path in (ROOT / name).rglob("*"):
            if path.suffix in {".py", ".typed", ".lock"} and "__pycache__" not in path.parts:
                assert str(inside / path.relative_to(ROOT / name)) in held
