"""The archive for executors has every module of ours that a module in it imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kafka_steward.planning.spark.archive import _archive_members


def modules() -> dict[str, str]:
    """Name and source of each of our modules in the archive."""
    files = {
        name: file for name, file in _archive_members() if name.startswith("kafka_steward/") and name.endswith(".py")
    }
    names = {name: name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in files}
    return {names[name]: file.read_text() for name, file in files.items()}


def imported(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kafka_steward"):
            yield str(node.module)
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name.startswith("kafka_steward"))


def test_each_import_of_an_archived_module_is_archived_too() -> None:
    found = modules()
    wanted = {(module, each) for module, source in found.items() for each in imported(source)}
    assert ("kafka_steward.planning.spark.archive", "kafka_steward.errors") in wanted
    assert {(module, each) for module, each in wanted if each not in found} == set()
