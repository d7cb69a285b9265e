"""The wheel, installed into fresh environments as its users do, and what has to work in each of them."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka_steward.sandbox.artifacts import find_or_install_java
from kafka_steward.sandbox.cluster_layout import pick_ports

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).parent / "uv"
PACKAGE = "airflow-provider-kafka-steward"
_KINDS = ("operators", "sensors", "hooks", "triggers")


@dataclass(frozen=True)
class Environment:
    """A Python environment with the wheel in it. `bin` is its folder of programs."""

    bin: Path

    @property
    def python(self) -> Path:
        return self.bin / "python"

    def run(self, *command: object, cwd: Path, **variables: str) -> str:
        """Run a program with those of the environment before all others; return its standard output."""
        return run(*command, cwd=cwd, PATH=f"{self.bin}{os.pathsep}{os.environ['PATH']}", **variables)

    def version(self, package: str, cwd: Path) -> str:
        asked = f"from importlib.metadata import version; print(version({package!r}))"
        return self.run("python", "-c", asked, cwd=cwd).strip()


def clean_environment() -> dict[str, str]:
    """Return the variables of this process without those of Airflow, Python and Spark."""
    ours = ("AIRFLOW", "PYTHON", "VIRTUAL_ENV", "SPARK")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def run(*command: object, cwd: Path, **variables: str) -> str:
    """Run a command without the Airflow and Python variables of this process; return its standard output."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**clean_environment(), **variables},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    shown = " ".join(str(part) for part in command)[:300]
    assert done.returncode == 0, f"{shown} failed: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def build_wheel(folder: Path) -> Path:
    """Build the wheel that is released, from a copy: the work tree's build folder holds the development install."""
    copy = folder / "work-tree"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__"))
    run("make", "distributions", f"BIN={Path(sys.executable).parent}", cwd=copy)
    (wheel,) = (copy / "dist").glob("*.whl")
    return wheel


def newcomer(folder: Path) -> dict[str, str]:
    """Return the environment of somebody who has Python, Java, the wheel, and nothing else of ours.

    The port differs from the tutorial's, because another Airflow of this machine may have that one.
    """
    programs, home = folder / "programs", folder / "home"
    programs.mkdir()
    home.mkdir()
    # This very Python would be the one of our own environment.
    (programs / "python3").write_text(f'#!/bin/sh\nexec {sys._base_executable} "$@"\n')  # type: ignore[attr-defined]
    (programs / "python3").chmod(0o755)
    java = find_or_install_java().home
    (port,) = pick_ports(1)
    wheels = " ".join(filter(None, (os.environ.get("PIP_FIND_LINKS"), str(build_wheel(folder / "sources").parent))))
    return {
        **clean_environment(),
        "PATH": os.pathsep.join((str(programs), str(java / "bin"), _path_without_ours())),
        "JAVA_HOME": str(java),
        "PIP_FIND_LINKS": wheels,
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
    }


def _path_without_ours() -> str:
    ours = str(Path(sys.executable).parent)
    return os.pathsep.join(each for each in os.environ["PATH"].split(os.pathsep) if each != ours)


def find_pythons() -> dict[str, Path]:
    """Return each Python of this machine that the wheel is for, by its version, oldest first: at least this one."""
    ours = sys.version_info.minor
    found = {minor: [Path(sys.executable)] if minor == ours else [*_candidates(minor)] for minor in range(11, 15)}
    return {f"3.{minor}": candidates[0] for minor, candidates in found.items() if candidates}


def _candidates(minor: int) -> Iterator[Path]:
    """Yield the Python of that version on the PATH, and those that pyenv keeps beside it."""
    on_path = shutil.which(f"python3.{minor}")
    kept = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv").glob(f"versions/3.{minor}.*/bin/python")
    for candidate in (*([Path(on_path)] if on_path else []), *sorted(kept)):
        # Debian's lacks ensurepip unless another package is installed; a shim of pyenv may run nothing.
        works = subprocess.run([candidate, "-c", "import ensurepip, sqlite3, ssl"], capture_output=True, check=False)
        if works.returncode == 0:
            yield candidate


def uv_environment(place: Path, python: Path, wheel: Path, *options: object) -> Environment:
    """Install the wheel with uv, as a plain `uv pip install` does it but for the `options`."""
    run(UV, "venv", "--quiet", "--python", python, place / "venv", cwd=place)
    made = Environment(place / "venv" / "bin")
    run(UV, "pip", "install", "--quiet", "--python", made.python, *options, wheel, cwd=place)
    run(UV, "pip", "check", "--python", made.python, cwd=place)
    return made


def resolve(place: Path, *options: object) -> dict[str, str]:
    """Return the version of each package that uv chooses, without installing any.

    PySpark has no wheel, and uv would download 450 MB for each resolution: its metadata is given, as it is here.
    """
    config = place / "uv.toml"
    config.write_text("".join(_metadata_entry(name) for name in ("pyspark", "pyspark-client")))
    chosen = place / "chosen.txt"
    # uv would keep the versions of an earlier resolution.
    chosen.unlink(missing_ok=True)
    run(UV, "pip", "compile", "--quiet", "--config-file", config, "--output-file", chosen, *options, cwd=place)
    lines = (line for line in chosen.read_text().splitlines() if line[:1].isalpha())
    return dict(line.split(" ")[0].split("==") for line in lines if "==" in line)


def _metadata_entry(name: str) -> str:
    """Return a table for uv: what each version of a package requires, as the installed one says of itself."""
    metadata = importlib.metadata.metadata(name)
    requires = importlib.metadata.requires(name) or []
    extras = metadata.get_all("Provides-Extra") or []
    lines = [f"name = {json.dumps(name)}", f"requires-dist = {json.dumps(requires)}"]
    return "\n".join(["[[dependency-metadata]]", *lines, f"provides-extra = {json.dumps(extras)}", "", ""])


def requirements_of(wheel: Path) -> Sequence[str]:
    """Return what the wheel requires without any extra."""
    (metadata,) = importlib.metadata.distributions(name=PACKAGE, path=[str(wheel)])
    return [one for one in metadata.requires or () if "extra ==" not in one]


def assert_works(environment: Environment, cwd: Path) -> None:
    """Assert that Airflow lists all that the provider brings, and that the documentation's plan is made."""
    assert_airflow_lists(environment, cwd)
    follow_documentation(environment, cwd)


def assert_airflow_lists(environment: Environment, cwd: Path) -> None:
    home = {"AIRFLOW_HOME": str(cwd), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    shown = environment.run("airflow", "providers", "get", PACKAGE, "--full", "-o", "json", cwd=cwd, **home)
    listed = json.loads(shown[shown.index("[") :])[0]
    assert set(listed) >= {*_KINDS, "connection-types", "config", "cli"}
    assert listed["package-name"] == PACKAGE
    brought = modules(listed)
    assert {"kafka_steward.hooks.steward", "kafka_steward.operators.plan"} <= brought
    environment.run("python", "-c", "".join(f"import {name}\n" for name in sorted(brought)), cwd=cwd, **home)


def modules(info: dict[str, Any]) -> set[str]:
    return {module for kind in _KINDS for entry in info[kind] for module in entry["python-modules"]}


def follow_documentation(environment: Environment, cwd: Path) -> None:
    """Type what docs/planning.md types, and assert that it prints what the page shows."""
    page = (ROOT / "docs" / "planning.md").read_text()
    block = re.search(r"```console\n(.*?)```", page, re.DOTALL)
    assert block is not None
    for typed in re.split(r"^\$ ", block[1], flags=re.MULTILINE)[1:]:
        lines = typed.splitlines(keepends=True)
        ends = next(number for number, line in enumerate(lines, 1) if not line.endswith("\\\n"))
        command, shown = "".join(lines[:ends]), "".join(lines[ends:])
        if re.fullmatch(r"cat (current|brokers)\.json\n", command):
            (cwd / command.split()[1]).write_text(shown)
        # A terminal shows several names in a line.
        assert environment.run("bash", "-c", command, cwd=cwd).split() == shown.split(), command
