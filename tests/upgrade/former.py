"""The version before this one: built from the history of this repository, into an environment of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafka_steward.cache import locked_cache

__all__ = ["COMMIT", "ROOT", "VERSION", "Former", "extract", "install"]

#: The last state of the source that calls itself by this version: see docs/versions.md.
VERSION, COMMIT = "0.1.0", "ad3ea479244679741d8b98abcd5a2a294ca83f75"
ROOT = Path(__file__).parents[2]
_OURS = ("airflow_provider_kafka_steward", "kafka_steward")


@dataclass(frozen=True)
class Former:
    """An environment with a former version, and with the packages of this one's beside it."""

    bin: Path

    @property
    def airflow(self) -> Path:
        return self.bin / "airflow"

    def run(self, *arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run its Python; standard error is part of the output."""
        ours = ("AIRFLOW", "PYTHON", "VIRTUAL_ENV")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        return subprocess.run(
            [str(self.bin / "python"), *arguments],
            cwd=cwd,
            env={**clean, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=300,
        )


def install(folder: Path, commit: str = COMMIT) -> Former:
    """Install the version of a commit into an environment in `folder`; skip the test where the commit is unknown."""
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True, timeout=120)
    (site,) = environment.glob("lib/python*/site-packages")
    with zipfile.ZipFile(_find_or_build_wheel(commit)) as wheel:
        wheel.extractall(site)
    # Everything but this version, whose metadata Airflow would find as well.
    for package in Path(sysconfig.get_path("purelib")).iterdir():
        if not package.name.startswith(_OURS) and not package.name.startswith("__editable__"):
            target = site / package.name
            if not target.exists() and package.suffix != ".pth":
                target.symlink_to(package)
    program = environment / "bin" / "airflow"
    program.write_text(f"#!{environment}/bin/python\nfrom airflow.__main__ import main\n\nmain()\n")
    program.chmod(0o755)
    return Former(environment / "bin")


def extract(folder: Path, commit: str = COMMIT) -> None:
    """Write the source of a commit into `folder`; skip the test where the commit is unknown."""
    known = subprocess.run(
        ["git", "cat-file", "-e", f"{commit}^{{commit}}"], cwd=ROOT, capture_output=True, check=False
    )
    if known.returncode:
        pytest.skip(f"The source of version {VERSION} is not here: this is no clone, or it lacks the commit {commit}.")
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True, timeout=120)
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["tar", "-x"], cwd=folder, input=archive.stdout, check=True, timeout=120)


def _find_or_build_wheel(commit: str) -> Path:
    """Return the wheel of a commit, from the cache if it was built before."""
    with locked_cache("former") as cache:
        kept = cache / "former" / commit
        if not kept.exists():
            partial = kept.with_name(f"{commit}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            extract(partial / "source", commit)
            command = [sys.executable, "-m", "build", "--quiet", "--wheel", "--no-isolation", "--outdir", str(partial)]
            subprocess.run(command, cwd=partial / "source", check=True, capture_output=True, timeout=900)
            shutil.rmtree(partial / "source")
            partial.rename(kept)
        (wheel,) = kept.glob("*.whl")
        return wheel
