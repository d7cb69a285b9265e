"""Fixtures for tests on real Kafka: `pytest_plugins = ["kafka_steward.sandbox.pytest_plugin"]` in a conftest.

::

    def test_orders_survive(sandbox, topic):
        sandbox.create_topics(topic, partitions=6)
        sandbox.kill(2)
        ...

`sandbox` is one cluster for the whole session. Each test that uses it runs once per mode, marked `kraft` or
`zookeeper` (so `-m kraft` excludes the other). `kraft_sandbox` and `zookeeper_sandbox` are the same for tests that
apply to one mode only. `--kafka VERSION` gives the sandbox in KRaft mode another Kafka. `neglected` is a cluster as
years leave it (`kafka_steward.sandbox.neglected`), one for each module and mode, which nothing restores: the tests of
a module find it as the one before them left it. Tests are reordered, so that one cluster runs at a time and each is
started once. After each test, brokers that it killed or paused are restored, and topics whose names begin with its
`topic` are deleted.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from typing import Literal

import pytest

from kafka_steward.sandbox.cluster import Sandbox, start
from kafka_steward.sandbox.modes import MODES
from kafka_steward.sandbox.neglected import Neglected, start_neglected

__all__ = ["kraft_sandbox", "neglected", "sandbox", "topic", "zookeeper_sandbox"]

_BROKERS = 4
_RACKS = 3
#: The fixtures with a cluster in each mode.
_SCOPES: dict[str, Literal["session", "module"]] = {"sandbox": "session", "neglected": "module"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the version of Kafka."""
    parser.addoption("--kafka", metavar="VERSION", help="the Kafka of the sandbox in KRaft mode, such as 4.1.2")


def pytest_configure(config: pytest.Config) -> None:
    """Register the modes' marks."""
    for mode in MODES:
        config.addinivalue_line("markers", f"{mode}: runs on a real Kafka cluster in {mode} mode")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that uses the sandbox once per requested mode."""
    for fixture, scope in _SCOPES.items():
        if fixture in metafunc.fixturenames:
            only = [mode for mode in MODES if f"{mode}_sandbox" in metafunc.fixturenames]
            modes = [pytest.param(mode, marks=getattr(pytest.mark, mode)) for mode in only or MODES]
            metafunc.parametrize(fixture, modes, indirect=True, scope=scope)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort by mode: first the tests without a sandbox, then all of one mode, then all of the other."""
    order = list(MODES)
    items.sort(key=lambda item: order.index(mode) + 1 if (mode := _sandbox_mode(item)) else 0)


@pytest.fixture(scope="session")
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """Yield a cluster of 4 brokers in 3 racks, in each mode in turn."""
    version = request.config.getoption("--kafka") if request.param == "kraft" else None
    with start(request.param, brokers=_BROKERS, racks=_RACKS, version=version) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def neglected(request: pytest.FixtureRequest) -> Iterator[Neglected]:
    """Yield a neglected cluster of 9 brokers, 2 of them dead for good, in each mode in turn."""
    with start_neglected(request.param) as cluster:
        yield cluster


@pytest.fixture
def kraft_sandbox(sandbox: Sandbox) -> Sandbox:
    """Return the sandbox, for a test that runs in KRaft mode only."""
    return sandbox


@pytest.fixture
def zookeeper_sandbox(sandbox: Sandbox) -> Sandbox:
    """Return the sandbox, for a test that runs with ZooKeeper only."""
    return sandbox


@pytest.fixture(autouse=True)
def _restore_sandbox(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "sandbox" in request.fixturenames:
        cluster: Sandbox = request.getfixturevalue("sandbox")
        cluster.restore()
        cluster.wait_replicated(within_s=180)
        cluster.forget_config_changes()


@pytest.fixture
def topic(request: pytest.FixtureRequest, sandbox: Sandbox) -> Iterator[str]:
    """Yield an unused topic name; topics whose names begin with it are deleted after the test."""
    slug = re.sub(r"[^a-z0-9]+", "-", request.node.originalname.removeprefix("test_").lower())[:40].strip("-")
    name = f"{slug}-{secrets.token_hex(3)}"
    yield name
    sandbox.restore()
    sandbox.delete_topics(name)


def _sandbox_mode(item: pytest.Item) -> str | None:
    callspec = getattr(item, "callspec", None)
    given = [callspec.params[name] for name in _SCOPES if name in callspec.params] if callspec else []
    return next((mode for mode in given if mode in MODES), None)
