"""docs/faults.md names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "faults.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in PAGE.splitlines() if "::test_" in line]


def test_each_fault_has_a_sentence_a_consequence_and_tests_that_exist() -> None:
    assert len(ROWS) == 36
    for fault, sentence, consequence, tests in ROWS:
        assert all((sentence, consequence)), fault
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", tests)
        assert named, fault
        for path, name in named:
            assert name in functions(ROOT / path), f"{path}::{name}"


def functions(path: Path) -> set[str]:
    return {each.name for each in ast.walk(ast.parse(path.read_text())) if isinstance(each, ast.FunctionDef)}
