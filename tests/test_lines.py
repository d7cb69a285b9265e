"""The budgets of lines, which `make check` holds."""

from __future__ import annotations

from tests.lines import count_code, find_faults, measure

MODULE = '''"""What it is.

It has a second paragraph.
"""

import os  # for its name

TEXT = """two
lines"""


def f() -> None:
    """Do nothing."""
    # Why it does nothing.
    return (
        None
    )
'''


def test_only_lines_with_code_are_counted() -> None:
    assert count_code(MODULE) == 7
    assert count_code("") == 0


def test_a_budget_is_named_that_is_missing_exceeded_too_high_or_not_used() -> None:
    assert find_faults({"a": 102, "b": 90}, {"a": 100, "b": 100}) == []
    lines, budgets = {"a": 103, "b": 89, "c": 5}, {"a": 100, "b": 100, "d": 1}
    assert find_faults(lines, budgets) == [
        "c has no budget of lines in pyproject.toml.",
        "d has a budget of lines in pyproject.toml, and no module.",
        "a has 103 lines, and a budget of 100: shorten it, or raise the budget.",
        "b has only 89 lines, and a budget of 100: lower the budget.",
    ]


def test_every_module_of_the_product_is_in_a_package() -> None:
    sizes = measure()
    assert {"provider", "provider/journal", "operators", "dags", "sensors"} <= sizes.keys()
    assert all(0 < size.code < size.lines for size in sizes.values())
