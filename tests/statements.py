"""`make statements`: show for each statement of the KIPs that its tests fail without the code that keeps it.

`tests/kips/<name>.toml` has an entry for each statement, in words of our own:

    [[statement]]
    id = "236-09"
    says = "While /admin/reassign_cancel is there, reassignments are disabled."
    tests = ["tests/protocol/test_switch.py::test_nothing_starts_while_it_is_off_and_everything_once_it_is_on"]
    [statement.without]
    file = "provider/execution/switch.py"
    old = "..."            # stands in the file once
    new = "..."            # the same without what keeps the statement
    noticed_by = ["..."]   # tests that fail then; without it, `tests`

A statement that Kafka itself keeps, or that is not kept on purpose, has `otherwise`, a reason, instead of `without`; it
may have tests. `python -m tests.statements` makes each change in a copy of the repository, runs the tests, and expects
a failure. `--write` writes docs/kips.md.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from tests.mutants import copy_repository, installed_path
from tests.toml import read_toml

__all__ = ["KIPS", "PAGE", "Removal", "Statement", "read_statements", "render_page"]

_ROOT = Path(__file__).parents[1]
PAGE = _ROOT / "docs/kips.md"
#: The seeds in the order of the page: file below tests/kips, heading.
KIPS = {
    "46": "KIP-46: self-healing",
    "236": "KIP-236: interruptible partition reassignment",
    "352": "KIP-352: under-replicated partitions while partitions are reassigned",
    "409": "KIP-409: topics with fewer live brokers than replicas",
    "19048": "KAFKA-19048: minimal-movement replica balancing",
}
_HEAD = """# The KIPs, statement by statement

<!-- Written by `python -m tests.statements --write`, from tests/kips. -->

Kafka Steward keeps what five documents ask for. Each of their statements stands here in words of our own, with the
tests that hold it. `make statements` removes the code that keeps a statement, one at a time, and shows that its tests
fail then. *Otherwise* is what Kafka itself keeps, or what is not kept, and why.
"""
#: pytest's exit code when tests ran and some of them failed.
_FAILED = 1
_LIMIT_S = 900


@dataclass(frozen=True)
class Removal:
    """The removal of what keeps a statement: `old` in `file` becomes `new`, and the tests `noticed_by` fail."""

    file: str
    old: str
    new: str
    noticed_by: Sequence[str]


@dataclass(frozen=True)
class Statement:
    """A statement of a KIP, the tests that hold it, and the removal that shows so, or why there is none."""

    id: str
    says: str
    tests: Sequence[str]
    without: Removal | None
    otherwise: str | None

    @classmethod
    def parse(cls, entry: dict[str, Any]) -> Statement:
        tests = entry.get("tests", [])
        without = entry.get("without")
        removal = Removal(**{"noticed_by": tests, **without}) if without else None
        return cls(entry["id"], entry["says"], tests, removal, entry.get("otherwise"))


def read_statements(name: str) -> list[Statement]:
    """Read the statements of tests/kips/`name`.toml."""
    return [Statement.parse(entry) for entry in read_toml(_ROOT / "tests/kips" / f"{name}.toml")["statement"]]


def render_page() -> str:
    """Return docs/kips.md."""
    return "\n".join([_HEAD, *(line for name in KIPS for line in _table(name))])


def _table(name: str) -> Iterator[str]:
    yield from (f"## {KIPS[name]}", "", "| | statement | held by |", "|---|---|---|")
    for each in read_statements(name):
        tests = "; ".join(f"`{_short(test)}`" for test in each.tests)
        otherwise = f"*Otherwise*: {each.otherwise}" if each.otherwise else ""
        yield f"| {each.id} | {each.says} | {' '.join(filter(None, (otherwise, tests)))} |"
    yield ""


def _short(test: str) -> str:
    return test.removeprefix("tests/")


def main() -> str | None:
    """Try the removals, or write the page; return why the run fails, None if it does not."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("ids", nargs="*", help="these statements alone, such as 236-09, or a whole KIP, such as 236")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="write docs/kips.md, and try nothing")
    options = parser.parse_args()
    if options.write:
        PAGE.write_text(render_page())
        return None
    chosen = [
        (each, each.without)
        for name in KIPS
        for each in read_statements(name)
        if each.without and (not options.ids or each.id in options.ids or name in options.ids)
    ]
    outcomes = _tried(chosen, options.processes)
    faults = [f"{each.id}: {fault}" for (each, _), fault in zip(chosen, outcomes, strict=True) if fault]
    print("\n".join([*faults, f"{len(chosen)} statements tried, {len(faults)} whose tests do not fail without it."]))
    return "Some statements of tests/kips are not held by their tests." if faults else None


def _tried(chosen: Sequence[tuple[Statement, Removal]], processes: int) -> list[str | None]:
    """Return for each statement what is wrong with its removal, None for one that its tests notice."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(processes) as pool:
        places: SimpleQueue[Path] = SimpleQueue()
        for number in range(processes):
            copy_repository(Path(folder) / str(number))
            places.put(Path(folder) / str(number))

        def attempt(pair: tuple[Statement, Removal]) -> str | None:
            place = places.get()
            try:
                fault = _outcome(place, pair[1])
            finally:
                places.put(place)
            print(f"{pair[0].id}: {fault or 'noticed'}", flush=True)
            return fault

        return list(pool.map(attempt, chosen))


def _outcome(place: Path, removal: Removal) -> str | None:
    """Return what is wrong with a removal, made in the copy at `place`: None if its tests notice it."""
    file = place / installed_path(Path(removal.file))
    text = file.read_text()
    if text.count(removal.old) != 1:
        return f"{removal.file} holds what is removed {text.count(removal.old)} times"
    file.write_text(text.replace(removal.old, removal.new))
    try:
        code = _run_tests(place, removal.noticed_by)
    finally:
        file.write_text(text)
    if code == _FAILED:
        return None
    return "the tests pass without it" if code == 0 else f"pytest ended with {code}, so no test has judged it"


def _run_tests(place: Path, tests: Sequence[str]) -> int:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--every-case", *tests]
    env = {**os.environ, "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        return subprocess.run(
            command,
            cwd=place,
            env=env,
            timeout=_LIMIT_S,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        ).returncode
    except subprocess.TimeoutExpired:
        return _FAILED


if __name__ == "__main__":
    sys.exit(main())
