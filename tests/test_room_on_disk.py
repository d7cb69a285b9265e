"""Tests and benchmarks on real brokers move replicas however full the disk is on which they run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources import ROOT, nodes

pytestmark = pytest.mark.project


def settings_given(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line of each call of `Settings` or `Settings.of` that gives any settings, and the call."""
    for node in nodes(path):
        if not isinstance(node, ast.Call) or ast.unparse(node.func) not in {"Settings", "Settings.of"}:
            continue
        if node.args or node.keywords:
            yield node.lineno, ast.unparse(node)


def test_settings_for_real_brokers_require_no_room() -> None:
    paths = {path: path.read_text() for name in ("tests", "benchmarks") for path in sorted((ROOT / name).rglob("*.py"))}
    on_brokers = [
        path
        for path, text in paths.items()
        if path != Path(__file__) and "sandbox" in text and "kafka_steward.settings import" in text
    ]
    assert on_brokers
    given = [(path, line, call) for path in on_brokers for line, call in settings_given(path)]
    assert [each for each in given if "min_free" not in each[2]] == []
