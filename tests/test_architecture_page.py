"""docs/architecture.md names code that is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "architecture.md"
LINKS = re.findall(r"\[`(\w+)`\]\((\S+\.py)\)", PAGE.read_text())


@pytest.mark.parametrize(("name", "path"), LINKS)
def test_each_link_leads_to_what_it_names(name: str, path: str) -> None:
    tree = ast.parse((PAGE.parent / path).read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, kinds)}
