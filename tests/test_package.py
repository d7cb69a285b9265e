"""The package as a whole: what importing it loads, what the pure parts must not touch, what others may import."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kafka_steward import provider_info
from tests.sources import ROOT, nodes, parsed

pytestmark = pytest.mark.project

FOLDERS = {"provider": "kafka_steward"} | {name: f"kafka_steward/{name}" for name in ("operators", "sensors", "dags")}
#: Modules whose names DAG authors, tests of others and other providers import; packages list theirs in `__init__`.
PUBLIC = {
    *(path for name in ("operators", "sensors", "dags") for path in (ROOT / name).glob("*.py")),
    *(ROOT / "provider" / f"{name}.py" for name in ("assignment", "errors", "settings")),
    ROOT / "provider" / "hooks" / "steward.py",
    ROOT / "provider" / "notifications" / "steward.py",
    ROOT / "provider" / "sandbox" / "pytest_plugin.py",
}
#: The modules that a contract of import-linter holds to be pure.
HELD = next(
    contract["source_modules"]
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    if contract["name"] == "pure modules do nothing"
)
#: What decides gets time, ids and chance as parameters, so that each decision can be replayed.
PURE = [
    *sorted((ROOT / "provider" / "planning").rglob("*.py")),
    ROOT / "provider" / "cluster" / "health.py",
    ROOT / "provider" / "cluster" / "configs.py",
    ROOT / "provider" / "cluster" / "metadata_freshness.py",
    ROOT / "provider" / "document_api" / "partition_rules.py",
    *((ROOT / "provider").joinpath(*module.split(".")[1:]).with_suffix(".py") for module in HELD),
]


def sources() -> list[Path]:
    return sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


@pytest.mark.process
def test_importing_the_package_alone_imports_neither_airflow_nor_kafka() -> None:
    script = (
        "import sys, kafka_steward; print(sorted({'airflow', 'kafka', 'pyspark', 'sqlalchemy'} & set(sys.modules)))"
    )
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300)
    assert printed.stdout.strip() == "[]"


def test_decisions_read_no_clock_and_throw_no_dice() -> None:
    forbidden = {"time", "datetime", "random", "uuid", "secrets"}
    imported = {(path, name.split(".")[0]) for path in PURE for node in nodes(path) for name in _imported_names(node)}
    assert [(path, name) for path, name in imported if name in forbidden] == []


def test_what_others_may_import_is_listed_and_nothing_else_is() -> None:
    exported = {path: _exported_names(path) for path in sources()}
    for path, names in exported.items():
        assert len(names) == len(set(names)), path
        assert not [name for name in names if name.startswith("_") and name != "__version__"], path
    modules = {path for path in exported if path.name != "__init__.py"}
    assert {path for path in modules if exported[path]} == PUBLIC & modules


def _exported_names(path: Path) -> list[str]:
    assigned = (node.value for node in parsed(path).body if isinstance(node, ast.Assign) and _assigns_all(node))
    return next((list(ast.literal_eval(value)) for value in assigned), [])


def _imported_names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    return []


def _assigns_all(node: ast.Assign) -> bool:
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)


def test_an_airflow_that_the_requirements_do_not_admit_is_refused_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert f"apache-airflow>={provider_info.OLDEST_AIRFLOW},<4" in required
    for admitted in ("3.2.2", "3.10.0", "3.3.2rc1"):
        monkeypatch.setattr("kafka_steward.provider_info.metadata.version", {"apache-airflow": admitted}.__getitem__)
        provider_info.get_provider_info()
    for old in ("3.1.8", "2.11.2"):
        monkeypatch.setattr("kafka_steward.provider_info.metadata.version", {"apache-airflow": old}.__getitem__)
        with pytest.raises(RuntimeError, match=rf"needs Apache Airflow 3\.2\.2 or newer, and this is {old}: upgrade"):
            provider_info.get_provider_info()
