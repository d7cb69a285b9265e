"""`make mutants` tries each change that a test could notice, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants import Mutant

ON_ONE_LINE = "both = list(zip(some, others, strict=True))"
AT_THE_END = """both = list(
    zip(
        some, others, strict=True
    )
)"""
ON_ITS_OWN_LINE = """both = list(
    zip(
        some,
        others,
        strict=True,
    )
)"""


def is_of_no_interest(before: str, after: str) -> bool:
    return Mutant("m", Path("a.py"), "f", before, after).is_of_no_interest


@pytest.mark.parametrize("before", [ON_ONE_LINE, AT_THE_END, ON_ITS_OWN_LINE])
@pytest.mark.parametrize("strict", ["strict=False", "strict=None", ""])
def test_whether_zip_compares_lengths_is_of_no_interest(before: str, strict: str) -> None:
    head, tail = before.split("strict=True")
    # mutmut writes the parenthesis behind a removed argument where the argument was.
    after = head + strict + (tail if strict else tail.lstrip(",\n "))
    assert after != before
    assert is_of_no_interest(before, after)


@pytest.mark.parametrize("before", [ON_ONE_LINE, AT_THE_END, ON_ITS_OWN_LINE])
@pytest.mark.parametrize(("old", "new"), [("some,", ""), ("some", "None"), ("others,", ""), ("others", "None")])
def test_what_zip_combines_is_of_interest(before: str, old: str, new: str) -> None:
    assert not is_of_no_interest(before, before.replace(old, new))


@pytest.mark.parametrize(
    ("before", "after", "no_interest"),
    [
        ('raise Error(f"Plan {digest} ended.")', 'raise Error(f"XXPlan {digest} ended.XX")', True),
        ('raise Error(f"Plan {digest} ended.")', "raise Error(None)", False),
        ('kind = "login"', 'kind = "XXloginXX"', False),
        ("least = min(ttl_ms, DEAD_MS)", "least = min(ttl_ms, )", False),
    ],
)
def test_only_the_words_of_a_sentence_are_of_no_interest(before: str, after: str, no_interest: bool) -> None:
    assert is_of_no_interest(before, after) == no_interest
