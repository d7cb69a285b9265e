"""docs/faults.md names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAMED = set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs" / "faults.md").read_text()))


@pytest.mark.parametrize(("path", "name"), sorted(NAMED))
def test_each_test_of_the_page_exists(path: str, name: str) -> None:
    tree = ast.parse((ROOT / path).read_text())
    assert name in {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)}
