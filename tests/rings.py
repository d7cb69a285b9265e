"""A pytest plugin: which tests run where, and that those of the quick ring really need nothing.

- `make quick`: what has none of the marks below: no process, no server, no socket.
- `make test`: also `process`, `kraft`, `zookeeper`, `airflow` and `spark`.
- `.ci/run`: also `ci`.
- `make slow`: only `slow`.

In `make quick` (`--quick`), a test that connects, listens or starts a process fails, and says which mark it needs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

__all__ = ["NEEDY", "tried"]

#: A test with one of these marks is not in the quick ring.
NEEDY = ("process", "kraft", "zookeeper", "airflow", "spark", "ci", "slow")

_EVENTS = frozenset({"socket.connect", "socket.bind", "subprocess.Popen"})
#: What the running test has done that a test of the quick ring may not do; None while anything is allowed.
_seen: list[str] | None = None
_quick = False


def tried(cases: int) -> int:
    """Return how many of so many random cases this ring tries: the quick one a third, the others all."""
    return -(-cases // 3) if _quick else cases


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="the tests that need no process, no server and no socket")


def pytest_configure(config: pytest.Config) -> None:
    global _quick  # noqa: PLW0603 - test modules ask while they are imported
    _quick = config.getoption("--quick")
    if _quick:
        config.option.markexpr = " and ".join(f"not {mark}" for mark in NEEDY)
        sys.addaudithook(_watch)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    global _seen  # noqa: PLW0603 - an audit hook has no other state, and cannot be removed
    _seen = []
    try:
        return (yield)
    finally:
        _seen = None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    result = yield
    if _seen:
        done = list(dict.fromkeys(_seen))
        _seen.clear()
        pytest.fail(f"{item.nodeid} is not marked `process`, but: {'; '.join(done)}", pytrace=False)
    return result


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _seen is not None and event in _EVENTS:
        _seen.append(f"{event} {str(arguments[1])[:200]}")
