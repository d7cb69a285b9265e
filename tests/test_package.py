"""The package as a whole: what the wheel holds, what may import what, what the pure parts must not touch."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.toml import read_toml

ROOT = Path(__file__).parent.parent
#: The folder of the package that has the distribution's name.
ALIAS = Path("provider/alias")
FOLDERS = {"provider": "kafka_steward"} | {name: f"kafka_steward/{name}" for name in ("operators", "sensors", "dags")}
#: Modules whose names DAG authors, tests of others and other providers import; packages list theirs in `__init__`.
PUBLIC = {
    *(path for name in ("operators", "sensors", "dags", ALIAS) for path in (ROOT / name).glob("*.py")),
    *(ROOT / "provider" / f"{name}.py" for name in ("assignment", "errors", "settings")),
    ROOT / "provider" / "hooks" / "steward.py",
    ROOT / "provider" / "notifications" / "steward.py",
    ROOT / "provider" / "sandbox" / "pytest_plugin.py",
}
#: Modules that say of themselves that they are pure, and what a contract of import-linter holds to it.
SAID = [
    path
    for path in sorted((ROOT / "provider" / "execution").glob("*.py"))
    if re.search(
        r"\. Pure( \(KIP-[0-9, ]+\))?\.$", (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n")[0]
    )
]
#: What decides gets time, ids and chance as parameters, so that each decision can be replayed.
PURE = [
    *sorted((ROOT / "provider" / "planning").rglob("*.py")),
    ROOT / "provider" / "cluster" / "health.py",
    ROOT / "provider" / "cluster" / "config_freshness.py",
    ROOT / "provider" / "cluster" / "metadata_freshness.py",
    ROOT / "provider" / "document_api" / "request_rules.py",
    *SAID,
]
SHIPPED = {".py", ".lock", ".typed", ".mako", ".ini", ".json", ".sql", ".yaml"}


def sources() -> list[Path]:
    return sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


@pytest.mark.process
def test_importing_the_package_alone_imports_neither_airflow_nor_kafka() -> None:
    script = (
        "import sys, kafka_steward; print(sorted({'airflow', 'kafka', 'pyspark', 'sqlalchemy'} & set(sys.modules)))"
    )
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300)
    assert printed.stdout.strip() == "[]"


def test_each_module_that_says_that_it_is_pure_is_held_to_it() -> None:
    contracts = read_toml(ROOT / "pyproject.toml")["tool"]["importlinter"]["contracts"]
    held = next(each["source_modules"] for each in contracts if each["name"] == "pure modules do nothing")
    assert held == [f"kafka_steward.execution.{path.stem}" for path in SAID]


@pytest.mark.parametrize("path", PURE, ids=lambda path: str(path.relative_to(ROOT)))
def test_decisions_read_no_clock_and_throw_no_dice(path: Path) -> None:
    imported = {name.split(".")[0] for node in ast.walk(ast.parse(path.read_text())) for name in _imported_names(node)}
    assert not imported & {"time", "datetime", "random", "uuid", "secrets"}


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_what_others_may_import_is_listed_and_nothing_else_is(path: Path) -> None:
    tree = ast.parse(path.read_text())
    exported = next((node.value for node in tree.body if isinstance(node, ast.Assign) and _assigns_all(node)), None)
    names = [] if exported is None else ast.literal_eval(exported)
    assert len(names) == len(set(names))
    assert not [name for name in names if name.startswith("_") and name != "__version__"]
    if path.name != "__init__.py":
        assert bool(names) == (path in PUBLIC)


def _imported_names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    return []


def _assigns_all(node: ast.Assign) -> bool:
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)
