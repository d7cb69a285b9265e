"""tests/kips and docs/kips.md: each statement has tests that exist, and a removal that fits the code as it is."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.statements import KIPS, PAGE, Statement, read_statements, render_page

ROOT = Path(__file__).parents[1]
STATEMENTS = [each for name in KIPS for each in read_statements(name)]


def test_the_page_is_what_the_entries_say() -> None:
    assert PAGE.read_text() == render_page(), "write it with: python -m tests.statements --write"


def test_each_id_is_there_once_and_below_its_kip() -> None:
    ids = [each.id for each in STATEMENTS]
    assert len(set(ids)) == len(ids)
    assert [each.id for name in KIPS for each in read_statements(name) if not each.id.startswith(f"{name}-")] == []


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda each: each.id)
def test_a_statement_is_held_by_tests_that_exist_or_says_why_not(statement: Statement) -> None:
    assert (statement.without is None) == (statement.otherwise is not None)
    assert statement.tests or statement.otherwise
    noticed_by = statement.without.noticed_by if statement.without else []
    assert [test for test in [*statement.tests, *noticed_by] if not exists(test)] == []


@pytest.mark.parametrize("statement", [each for each in STATEMENTS if each.without], ids=lambda each: each.id)
def test_what_is_removed_stands_in_the_code_once(statement: Statement) -> None:
    assert statement.without is not None
    text = (ROOT / statement.without.file).read_text()
    assert text.count(statement.without.old) == 1
    assert statement.without.new != statement.without.old


@pytest.mark.parametrize(
    "test", ["tests/test_statements.py", "tests/test_statements.py::test_", "tests/gone.py::test_it", "test_it"]
)
def test_what_is_no_whole_name_of_a_test_is_none(test: str) -> None:
    assert not exists(test)


def exists(test: str) -> bool:
    """Return whether there is a test `tests/folder/test_file.py::test_name`; brackets name a case of it."""
    file, _, name = test.partition("::")
    return name.partition("[")[0] in names_in(ROOT / file)


@cache
def names_in(path: Path) -> frozenset[str]:
    """Return the functions and the assigned names of a module; a state machine's test case is assigned."""
    if not path.exists():
        return frozenset()
    body = ast.parse(path.read_text()).body
    functions = {each.name for each in body if isinstance(each, ast.FunctionDef)}
    targets = [target for each in body if isinstance(each, ast.Assign) for target in each.targets]
    return frozenset(functions | {target.id for target in targets if isinstance(target, ast.Name)})
