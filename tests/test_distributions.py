"""The sdist and the wheel: each complete, the same wherever and whenever they are built; and the SBOM of the wheel."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

import pytest
from packaging.metadata import Metadata
from packaging.requirements import Requirement

import kafka_steward
from kafka_steward.provider_info import get_provider_info

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RELEASE = f"airflow_provider_kafka_steward-{kafka_steward.__version__}"
SDIST, WHEEL, SBOM = f"{RELEASE}.tar.gz", f"{RELEASE}-py3-none-any.whl", f"{RELEASE}.cdx.json"
ALIAS = "airflow_provider_kafka_steward"
PACKAGES = {"provider": "kafka_steward"} | {name: f"kafka_steward/{name}" for name in ("operators", "sensors", "dags")}
#: What the sdist also holds, for the tests and the checks.
FURTHER = ("tests", "benchmarks", "docs")
FILES = (
    *("CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "MANIFEST.in", "Makefile", "NOTICE", "README.md", "SECURITY.md"),
    *("mkdocs.yml", "pyproject.toml", "requirements.txt"),
)

pytestmark = [pytest.mark.process, pytest.mark.ci]


def run_make(target: str, folder: Path, umask: int) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    command = ["make", target, f"BIN={BIN}"]
    done = subprocess.run(
        command, cwd=folder, umask=umask, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def files_below(folder: Path) -> set[str]:
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the work tree in which all was built, with leftovers of earlier builds and with modes of its own."""
    folder = tmp_path_factory.mktemp("copy") / "work-tree"
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__"))
    for path in folder.rglob("*.py"):
        path.chmod(0o600)
    leftovers = (
        "build/lib/kafka_steward/gone.py",
        "provider/__pycache__/gone.cpython-311.pyc",
        "airflow_provider_kafka_steward.egg-info/SOURCES.txt",
    )
    for name in leftovers:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("left-over.txt\n")
    (folder / "left-over.txt").write_text("of a file that is not tracked")
    run_make("distributions", folder, umask=0o077)
    run_make("sbom", folder, umask=0o077)
    return folder / "dist"


@pytest.fixture(scope="module")
def metadata(built: Path) -> Message:
    with zipfile.ZipFile(built / WHEEL) as wheel:
        return HeaderParser().parsestr(wheel.read(f"{RELEASE}.dist-info/METADATA").decode())


def test_the_sdist_holds_all_that_is_needed_to_build_and_test_and_nothing_else(built: Path) -> None:
    with tarfile.open(built / SDIST) as sdist:
        held = {member.name.removeprefix(f"{RELEASE}/") for member in sdist if member.isfile()}
    expected = {f"{folder}/{name}" for folder in (*PACKAGES, *FURTHER) for name in files_below(ROOT / folder)}
    assert held == expected | {*FILES, "PKG-INFO"}


def test_the_wheel_holds_the_packages_and_nothing_else(built: Path) -> None:
    held = zipfile.ZipFile(built / WHEEL).namelist()
    expected = {f"{inside}/{name}" for folder, inside in PACKAGES.items() for name in files_below(ROOT / folder)}
    expected = {name.replace("kafka_steward/alias/", f"{ALIAS}/", 1) for name in expected}
    assert {name for name in held if not name.startswith(f"{RELEASE}.dist-info/")} == expected


def test_both_are_the_same_when_they_are_built_from_the_sdist_elsewhere_and_later(built: Path, tmp_path: Path) -> None:
    with tarfile.open(built / SDIST) as sdist:
        sdist.extractall(tmp_path, filter="tar")
    run_make("distributions", tmp_path / RELEASE, umask=0o002)
    for name in (SDIST, WHEEL):
        again = tmp_path / RELEASE / "dist" / name
        assert sha256(again) == sha256(built / name), name


def test_the_metadata_is_valid_and_says_where_what_is(built: Path, metadata: Message) -> None:
    with zipfile.ZipFile(built / WHEEL) as wheel:
        Metadata.from_email(wheel.read(f"{RELEASE}.dist-info/METADATA"), validate=True)
        licences = {name: wheel.read(f"{RELEASE}.dist-info/licenses/{name}") for name in ("LICENSE", "NOTICE")}
    assert licences == {name: (ROOT / name).read_bytes() for name in licences}
    assert metadata["Version"] == kafka_steward.__version__
    assert metadata.get_all("License-File") == ["LICENSE", "NOTICE"]
    urls = dict(text.split(", ") for text in metadata.get_all("Project-URL", []))
    assert urls == PROJECT["urls"]
    assert get_provider_info()["integrations"][0]["external-doc-url"] == urls["Documentation"]


def test_the_changelog_begins_with_this_version() -> None:
    first = re.search(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first is not None
    assert first[1].split()[0] == kafka_steward.__version__


def test_the_classifiers_name_each_python_that_is_accepted(metadata: Message) -> None:
    named = re.findall(r"Python :: 3\.(\d+)", " ".join(metadata.get_all("Classifier", [])))
    low, high = min(map(int, named)), max(map(int, named))
    assert metadata["Requires-Python"] in {f">=3.{low},<3.{high + 1}", f"<3.{high + 1},>=3.{low}"}
    assert sorted(map(int, named)) == list(range(low, high + 1))


def test_the_sbom_names_what_the_wheel_requires_and_no_tool_of_ours(built: Path) -> None:
    bom = json.loads((built / SBOM).read_text())
    root = bom["metadata"]["component"]
    assert (root["name"], root["version"]) == (PROJECT["name"], kafka_steward.__version__)
    names = {_normalized(component["name"]) for component in bom["components"]}
    assert {_normalized(Requirement(text).name) for text in PROJECT["dependencies"]} <= names
    assert "psycopg" in names
    assert not names & {"pytest", "mypy", "ruff", "cyclonedx-bom", _normalized(PROJECT["name"])}
    assert str(ROOT) not in json.dumps(bom)
    assert str(built) not in json.dumps(bom)


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
