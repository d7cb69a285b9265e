"""How long the tutorial takes: `python -m benchmarks.tutorial` types docs/start/first-heal.md as its test does.

What is typed, the minutes of it by step, and the size of the environment. Nobody looks at the page meanwhile. `--write`
puts the table into docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.report import table, write_between
from tests.install.environments import ROOT, newcomer
from tests.install.typed_page import TypedBlock, TypedPage, type_page

__all__ = ["megabytes", "rows"]

PAGE = ROOT / "docs" / "start" / "first-heal.md"
#: The name that step 1 gives the environment.
_ENVIRONMENT = "steward"
_WITHIN_S = 3600.0
_HEAD = ("step", "blocks typed", "minutes")


def rows(typed: TypedPage) -> list[list[str]]:
    """Return a row for each step of the page, and one for all."""
    steps: dict[str, list[TypedBlock]] = {}
    for each in typed.blocks:
        steps.setdefault(each.block.step, []).append(each)
    return [_row(name, blocks) for name, blocks in (*steps.items(), ("in all", [*typed.blocks]))]


def _row(name: str, blocks: list[TypedBlock]) -> list[str]:
    return [name, str(len(blocks)), f"{sum(each.seconds for each in blocks) / 60:.1f}"]


def megabytes(folder: Path) -> float:
    """Return the sizes of all files below a folder, links not followed."""
    found = (path.lstat() for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(each.st_size for each in found) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tutorial", description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the sum into docs/benchmarks.md")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        typed = type_page(PAGE, folder, newcomer(folder), within_s=_WITHIN_S)
        size = megabytes(folder / _ENVIRONMENT)
    made = rows(typed)
    print(table(_HEAD, made))
    _, blocks, minutes = made[-1]
    text = (
        f"It takes {minutes} minutes to run its {blocks} blocks; the environment of the first step has {size:,.0f} MB."
    )
    print(text)
    if given.write:
        write_between("tutorial", text)


if __name__ == "__main__":
    main()
