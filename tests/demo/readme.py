"""What README.md shows of the demo."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
#: Two lines of what the demo prints: the first, and the last.
_TITLE = "Kafka Steward: "
_LAST = "healed broker="


def assert_as_the_readme_shows(printed: Sequence[str]) -> None:
    """Assert that the demo healed, and printed the README's lines; only the seconds may differ."""
    shown = README.read_text().splitlines()
    title = next(line for line in shown if line.startswith(_TITLE))
    actual, expected = _facts(printed[-1]), _facts(next(line for line in shown if line.startswith(_LAST)))
    assert title in printed
    assert {**actual, "seconds": ""} == {**expected, "seconds": ""}
    assert (actual["replicas_moved"], actual["under_replicated"]) == (actual["lower_bound"], "0")


def _facts(line: str) -> dict[str, str]:
    return dict(word.split("=") for word in line.split()[1:])
