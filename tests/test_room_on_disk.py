"""Tests and benchmarks on real brokers move replicas however full the disk is on which they run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ON_REAL_BROKERS = [
    path
    for folder in ("tests", "benchmarks")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path != Path(__file__) and "sandbox" in (text := path.read_text()) and "kafka_steward.settings import" in text
]


def settings_given(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line of each call of `Settings` or `Settings.of` that gives any settings, and the call."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call) or ast.unparse(node.func) not in {"Settings", "Settings.of"}:
            continue
        if node.args or node.keywords:
            yield node.lineno, ast.unparse(node)


@pytest.mark.parametrize("path", ON_REAL_BROKERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_settings_for_real_brokers_require_no_room(path: Path) -> None:
    assert [f"line {line}: {call}" for line, call in settings_given(path.read_text()) if "min_free" not in call] == []
