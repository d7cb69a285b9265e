"""tests/kips and docs/kips.md: each statement has tests that exist, and names what keeps it."""

from __future__ import annotations

import ast
import re
from functools import cache, cached_property
from pathlib import Path

import pytest

from tests.sources import ROOT, parsed
from tests.statements import KIPS, PAGE, idle_value, read_statements, render_page, resolve

pytestmark = pytest.mark.project

STATEMENTS = [each for name in KIPS for each in read_statements(name)]


def test_the_page_is_what_the_entries_say() -> None:
    assert PAGE.read_text() == render_page(), "write it with: python -m tests.statements --write"


def test_each_id_is_there_once_and_below_its_kip() -> None:
    ids = [each.id for each in STATEMENTS]
    assert len(set(ids)) == len(ids)
    assert [each.id for name in KIPS for each in read_statements(name) if not each.id.startswith(f"{name}-")] == []


def test_each_statement_is_held_by_tests_that_exist_or_says_why_not() -> None:
    for statement in STATEMENTS:
        assert (statement.kept_by is None) == (statement.otherwise is not None), statement.id
        assert statement.tests or statement.otherwise, statement.id
        assert max(len(text.split()) for text in (statement.says, statement.otherwise or "")) <= 12, statement.id
        assert [test for test in [*statement.tests, *statement.noticed_by] if not exists(test)] == [], statement.id
        if statement.kept_by:
            owner, name = resolve(statement.kept_by)
            assert idle_value(vars(owner)[name]) != vars(owner)[name], statement.id


@pytest.mark.parametrize(
    "dotted",
    ["kafka_steward.execution.gone.f", "kafka_steward.errors.Gone", "kafka_steward.settings.Settings.gone", "x"],
)
def test_what_does_not_exist_keeps_nothing(dotted: str) -> None:
    with pytest.raises(LookupError, match=f"There is no {dotted}"):
        resolve(dotted)


def test_what_replaces_a_value_is_empty_and_of_its_kind() -> None:
    assert [idle_value(value) for value in (8, True, (1,), {"a": 1}, "x", 0)] == [0, False, (), {}, "", True]
    assert not idle_value(re.compile(".")).search("anything")
    assert idle_value(len)([1]) is None

    class Owner:
        @cached_property
        def held(self) -> int:
            return 1

        @staticmethod
        def made() -> int:
            return 1

    for name in ("held", "made"):
        setattr(Owner, name, idle_value(vars(Owner)[name]))
    assert [Owner().held, Owner.made()] == [None, None]


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
    body = parsed(path).body
    functions = {each.name for each in body if isinstance(each, ast.FunctionDef)}
    targets = [target for each in body if isinstance(each, ast.Assign) for target in each.targets]
    return frozenset(functions | {target.id for target in targets if isinstance(target, ast.Name)})
