"""Tables in docs/benchmarks.md: each stands between two marks, and has what was measured last."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

__all__ = ["merge_between", "merged", "table", "write_between"]

_REPORT = Path(__file__).parent.parent / "docs" / "benchmarks.md"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def write_between(name: str, text: str, report: Path = _REPORT) -> None:
    """Put `text` between `<!-- name -->` and `<!-- /name -->`. Raises ValueError where the marks are missing."""
    before, _, after = _split_at_marks(name, report)
    report.write_text(f"{before}<!-- {name} -->\n\n{text}\n\n<!-- /{name} -->{after}")


def merge_between(
    name: str, head: Sequence[str], rows: Sequence[Sequence[str]], *, keys: int, report: Path = _REPORT
) -> None:
    """Put `rows` into the table between the marks: what was measured in other runs stays, as `merged` says.

    Raises ValueError where the marks are missing.
    """
    _, text, _ = _split_at_marks(name, report)
    write_between(name, table(head, merged(text, head, rows, keys=keys)), report)


def merged(text: str, head: Sequence[str], rows: Sequence[Sequence[str]], *, keys: int) -> list[Sequence[str]]:
    """Return the rows of the table in `text`, of which those with the first `keys` cells of a new row are replaced.

    A new row without such a one comes after the last of its first cell. The rows of a table with another head are left
    out: they were measured in another way.
    """
    lines = [line.strip("| \n").split(" | ") for line in text.splitlines() if line.startswith("|")]
    found: list[Sequence[str]] = [*lines[2:]] if lines and lines[0] == list(head) else []
    for row in rows:
        same = [place for place, each in enumerate(found) if list(each[:keys]) == list(row[:keys])]
        if same:
            found[same[0]] = row
        else:
            last = [place for place, each in enumerate(found) if each[0] == row[0]]
            found.insert(last[-1] + 1 if last else len(found), row)
    return found


def _split_at_marks(name: str, report: Path) -> tuple[str, str, str]:
    before, _, rest = report.read_text().partition(f"<!-- {name} -->")
    text, mark, after = rest.partition(f"<!-- /{name} -->")
    if not mark:
        raise ValueError(f"{report} has no marks for {name}; add <!-- {name} --> and <!-- /{name} -->.")
    return before, text, after
