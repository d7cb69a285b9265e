"""What README.md shows of the demo."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tests.install.typed_page import missing_lines

README = Path(__file__).parents[2] / "README.md"
#: Two lines of what the demo prints: the first, and the last.
_TITLE = "Kafka Steward: "
_LAST = "healed broker="


def shown_lines() -> tuple[str, ...]:
    """The lines that the README shows, in their order, without those in parentheses, which stand for tables."""
    (block,) = re.findall(rf"^```\n({_TITLE}.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    return tuple(line for line in block.splitlines() if not re.fullmatch(r" *\(.*\)", line))


def assert_as_the_readme_shows(printed: Sequence[str]) -> None:
    """Assert that the demo healed, and printed the README's lines in their order.

    Words with a digit may differ: times, addresses, ids, and how the cluster was laid out. In the last line, only the
    seconds may.
    """
    shown = shown_lines()
    assert missing_lines("\n".join(printed), shown) == []
    actual, expected = _facts(printed[-1]), _facts(shown[-1])
    assert {**actual, "seconds": ""} == {**expected, "seconds": ""}
    assert (actual["replicas_moved"], actual["under_replicated"]) == (actual["lower_bound"], "0")


def _facts(line: str) -> dict[str, str]:
    assert line.startswith(_LAST)
    return dict(word.split("=") for word in line.split()[1:])
