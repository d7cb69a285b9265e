"""A pytest plugin: which tests run where, and that those of `make quick` really need nothing.

- `make quick`: what has none of the marks below: no process, no server, no socket.
- `make test`: also `process`, `project`, `kraft`, `zookeeper`, `airflow` and `spark`.
- `.ci/run`: also `ci`.
- `make slow`: only `slow`, and the searches for new cases.

A test with `in_ci("kraft")` runs in that mode alone, and in the other one in `make slow`. Before CI, a twentieth of
the random cases and a part of the points of fault sweeps are tried; with `--every-case`, which CI gives, all are.

In `make quick` (`--quick`), a test that connects, listens or starts a process fails, and says which mark it needs.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import pytest

__all__ = ["NEEDY", "one_in", "tried"]

#: A test with one of these marks does not run in `make quick`.
NEEDY = ("process", "project", "kraft", "zookeeper", "airflow", "spark", "ci", "slow")

#: Where Linux keeps files in memory: a journal in SQLite waits for the disk at each commit. They need some ten MiB.
_MEMORY, _ROOM = "/dev/shm", 1 << 30  # noqa: S108 - pytest makes a folder there that only its user may read
_EVENTS = frozenset(
    {"socket.connect", "socket.bind", "socket.sendto", "subprocess.Popen", "os.fork", "os.system", "os.posix_spawn"}
)
#: What the running test has done that a test of `make quick` may not do; None while anything is allowed.
_seen: list[str] | None = None
#: Before CI, of so many random cases one is tried.
_FEW = 20
_every_case = False


def tried(cases: int, *, least: int = 0) -> int:
    """Return how many of so many random cases are tried: a twentieth, or all with `--every-case`.

    `least` is for what is judged by an average, which few cases do not have.
    """
    return cases if _every_case else max(-(-cases // _FEW), least)


def one_in(number: int) -> int:
    """Return the distance between two points of a fault sweep: `number`, or 1 with `--every-case`.

    It should share no factor with the number of kinds of faults: then each kind has its turn.
    """
    return 1 if _every_case else number


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="the tests that need no process, no server and no socket")
    parser.addoption("--every-case", action="store_true", help="all random cases, and all points of fault sweeps")


def pytest_configure(config: pytest.Config) -> None:
    global _every_case  # noqa: PLW0603 - test modules ask while they are imported
    _every_case = config.getoption("--every-case")
    config.addinivalue_line("markers", "in_ci(mode): in the other mode it is left to `make slow`")
    if config.getoption("--quick"):
        config.option.markexpr = " and ".join(f"not {mark}" for mark in NEEDY)
        if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM:
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", _MEMORY)
        # It binds a socket when it is first imported, to find out about IPv6: not in whichever test imports it first.
        importlib.import_module("urllib3.util.connection")
        sys.addaudithook(_watch)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is left to `make slow`, before pytest looks which marks are asked for."""
    for item in items:
        mark = item.get_closest_marker("in_ci")
        if mark and not item.get_closest_marker(mark.args[0]):
            item.add_marker(pytest.mark.slow)


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
        _seen.append(f"{event} {str(arguments[1:])[:200]}")
