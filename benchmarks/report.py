"""Tables in docs/benchmarks.md: each stands between two marks, and is replaced by what was measured last."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

__all__ = ["table", "write_between"]

_REPORT = Path(__file__).parent.parent / "docs" / "benchmarks.md"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def write_between(name: str, text: str, report: Path = _REPORT) -> None:
    """Put `text` between `<!-- name -->` and `<!-- /name -->`. Raises ValueError where the marks are missing."""
    before, _, rest = report.read_text().partition(f"<!-- {name} -->")
    _, mark, after = rest.partition(f"<!-- /{name} -->")
    if not mark:
        raise ValueError(f"{report} has no marks for {name}; add <!-- {name} --> and <!-- /{name} -->.")
    report.write_text(f"{before}<!-- {name} -->\n\n{text}\n\n{mark}{after}")
