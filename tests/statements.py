"""`make statements`: show for each statement of the KIPs that its tests fail without the code that keeps it.

`tests/kips/<name>.toml` has an entry for each statement, in at most a dozen words of our own:

    [[statement]]
    id = "236-09"
    says = "While /admin/reassign_cancel is there, reassignments are disabled."
    kept_by = "kafka_steward.execution.moves.preflight.CHECKS"    # a function, or a constant, by its dotted name
    tests = ["tests/protocol/test_signal.py::test_nothing_starts_while_it_is_off_and_everything_once_it_is_on"]
    noticed_by = ["..."]    # tests that fail without it; if they are not named, `tests`

A statement that Kafka itself keeps, or that is not kept on purpose, has `otherwise`, a reason, instead of `kept_by`; it
may have tests. `python -m tests.statements` replaces what keeps a statement by a function that does nothing, or by an
empty value, runs the tests, and expects a failure. `--write` writes docs/kips.md.

As a plugin of pytest (`-p tests.statements`), this module replaces what the environment variable names.
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["KIPS", "PAGE", "Statement", "read_statements", "render_page", "resolve"]

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

What five documents ask for, in words of our own, and the module that keeps each statement, or the reason why Kafka
Steward does not. (Draft): only an earlier draft of the KIP says so. `make statements` takes what keeps a statement
away, one at a time, and shows that the tests that [tests/kips](../tests/kips) names fail then.
"""
#: The folders of the packages that are not below provider/.
_FOLDERS = frozenset({"dags", "operators", "sensors"})
#: The dotted name that pytest is to replace.
_REPLACED = "KAFKA_STEWARD_WITHOUT"
#: pytest's exit code when tests ran and some of them failed.
_FAILED = 1
_LIMIT_S = 900


@dataclass(frozen=True)
class Statement:
    """A statement of a KIP, what keeps it, the tests that hold it, and those that fail without what keeps it.

    Without `kept_by`, `otherwise` says why.
    """

    id: str
    says: str
    tests: Sequence[str] = ()
    kept_by: str | None = None
    noticed_by: Sequence[str] = ()
    otherwise: str | None = None


def read_statements(name: str) -> list[Statement]:
    """Read the statements of tests/kips/`name`.toml."""
    return [
        Statement(**entry) for entry in tomllib.loads((_ROOT / "tests/kips" / f"{name}.toml").read_text())["statement"]
    ]


def render_page() -> str:
    """Return docs/kips.md."""
    links = _labels({path for name in KIPS for each in read_statements(name) if (path := _source(each))})
    targets = sorted(f"[{label}]: ../{path}" for path, label in links.items())
    tables = (line for name in KIPS for line in _table(name, links))
    return "\n".join([_HEAD, *tables, *targets, ""])


def _table(name: str, links: Mapping[str, str]) -> Iterator[str]:
    yield from (f"## {KIPS[name]}", "", "| | statement | kept by |", "|---|---|---|")
    for statement in read_statements(name):
        source = _source(statement)
        yield f"|{statement.id}|{statement.says}|{f'[{links[source]}]' if source else statement.otherwise}|"
    yield ""


def _source(statement: Statement) -> str | None:
    """Return the path of the module with what keeps the statement; None if nothing of ours does."""
    if statement.kept_by is None:
        return None
    owner, _ = resolve(statement.kept_by)
    _, *names = (owner.__module__ if inspect.isclass(owner) else owner.__name__).split(".")
    return "/".join([*([] if names[0] in _FOLDERS else ["provider"]), *names]) + ".py"


def _labels(paths: set[str]) -> dict[str, str]:
    """Return by path the name of the module, with its folder where modules share the name."""
    names = Counter(Path(path).stem for path in paths)
    return {path: stem if names[stem := Path(path).stem] == 1 else f"{Path(path).parent.name}/{stem}" for path in paths}


def resolve(dotted: str) -> tuple[Any, str]:
    """Return the module or class that has what `dotted` names, and the name. Raises LookupError without it."""
    names = dotted.split(".")
    for length in range(len(names) - 1, 0, -1):
        try:
            owner: Any = import_module(".".join(names[:length]))
        except ModuleNotFoundError:
            continue
        for name in names[length:-1]:
            owner = getattr(owner, name, None)
        if owner is not None and names[-1] in vars(owner):
            return owner, names[-1]
        break
    raise LookupError(f"There is no {dotted}.")


def idle_value(value: Any) -> Any:
    """Return what replaces a function or constant: a function that does nothing, or an empty value of the same kind."""
    if isinstance(value, property | cached_property):
        return property(lambda _self: None)
    if isinstance(value, staticmethod | classmethod):
        return type(value)(lambda *_args, **_kwargs: None)
    if inspect.iscoroutinefunction(value):

        async def nothing(*_args: Any, **_kwargs: Any) -> None:
            """Do nothing."""

        return nothing
    if callable(value):
        return lambda *_args, **_kwargs: None
    if isinstance(value, re.Pattern):
        return re.compile(r"(?!)")
    empty = type(value)()
    return empty if empty != value else not value


def pytest_load_initial_conftests() -> None:
    """Replace what is named, before a test module imports it."""
    if dotted := os.environ.get(_REPLACED):
        owner, name = resolve(dotted)
        kept, idle = vars(owner)[name], idle_value(vars(owner)[name])
        setattr(owner, name, idle)
        # A package imports names of its modules before they can be replaced there.
        for module in [each for path, each in sys.modules.items() if path.startswith("kafka_steward.")]:
            for known in [known for known, value in vars(module).items() if value is kept]:
                setattr(module, known, idle)


def main() -> str | None:
    """Try the statements, or write the page; return why the run fails, None if it does not."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("ids", nargs="*", help="these statements alone, such as 236-09, or a whole KIP, such as 236")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="write docs/kips.md, and try nothing")
    options = parser.parse_args()
    if options.write:
        PAGE.write_text(render_page())
        return None
    chosen = [
        statement
        for name in KIPS
        for statement in read_statements(name)
        if statement.kept_by and (not options.ids or statement.id in options.ids or name in options.ids)
    ]
    with ThreadPoolExecutor(options.processes) as pool:
        faults = [fault for fault in pool.map(_try_without, chosen) if fault]
    print("\n".join([*faults, f"{len(chosen)} statements tried, {len(faults)} whose tests do not fail without it."]))
    return "Some statements of tests/kips are not held by their tests." if faults else None


def _try_without(statement: Statement) -> str | None:
    """Run the tests without what keeps the statement; return the fault if they do not fail."""
    code = _run_tests(statement.kept_by or "", statement.noticed_by or statement.tests)
    fault = None
    if code != _FAILED:
        why = "the tests pass" if code == 0 else f"pytest ended with {code}, so that no test has judged it,"
        fault = f"{statement.id}: {why} without {statement.kept_by}"
    print(fault or f"{statement.id}: noticed", flush=True)
    return fault


def _run_tests(replaced: str, tests: Sequence[str]) -> int:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "tests.statements"]
    try:
        return subprocess.run(
            [*command, "--every-case", *tests],
            cwd=_ROOT,
            env={**os.environ, _REPLACED: replaced},
            timeout=_LIMIT_S,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        ).returncode
    except subprocess.TimeoutExpired:
        return _FAILED


if __name__ == "__main__":
    sys.exit(main())
