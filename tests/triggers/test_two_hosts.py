"""A triggerer that has another database than the worker beside one ZooKeeper, and came second: its watch is refused.

No run fails then, because nothing rings. So the watch has to be loud by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.observability import stats

from kafka_steward.errors import WrongJournal
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from kafka_steward.triggers.reporting import WatchReporter
from kafka_steward.triggers.watch import EVENTS, WatchTrigger
from tests.airflow_home import Connect
from tests.cli.calling import run
from tests.eventually import eventually
from tests.memory_tree import MemoryTree
from tests.simulator import Simulator

ZOOKEEPER = "zk1:2181/kafka"
LOOKS = {
    "broker-failed": ("failing", "documents_failing", "health_failing"),
    "broker-joined": ("failing", "documents_failing", "joined_brokers_failing"),
    "broker-new": ("failing", "documents_failing", "empty_brokers_failing"),
    "request": ("failing", "documents_failing"),
}


class SharedTree(MemoryTree):
    """The one ZooKeeper that both hosts reach."""

    def require_cluster(self, cluster_id: str) -> None:
        """It keeps this cluster."""

    def revoke_open_access(self) -> None:
        """Nobody else can reach it."""

    def close(self) -> None:
        """Other connections go on."""


@dataclass
class Hosts:
    """A cluster, and two hosts with a database each beside its ZooKeeper; `told` are the gauges of a watch."""

    simulator: Simulator
    connect: Connect
    folder: Path
    told: dict[str, int]

    def rows_of(self, host: str) -> str:
        return f"sqlite:///{self.folder}/{host}.db"

    def be(self, host: str, **settings: Any) -> None:
        """Have the connection of this host from here on."""
        self.connect(extra={"zookeeper": ZOOKEEPER, "journal": self.rows_of(host), **settings})


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch, connect: Connect, tmp_path: Path) -> Hosts:
    simulator = Simulator.of("1a 2b 3c", "orders: 123", mode="zookeeper")
    simulator.close = lambda: None  # type: ignore[attr-defined]
    tree = SharedTree(lambda: simulator.now_ms)
    monkeypatch.setattr("kafka_steward.journal.zookeeper.tree.ZkTree", lambda _: tree)
    monkeypatch.setattr(StewardHook, "cluster", lambda _: simulator)
    monkeypatch.setattr(
        "kafka_steward.triggers.documents.ZooKeeperWatcher", lambda *_: SimpleNamespace(close=lambda: None)
    )
    told: dict[str, int] = {}
    monkeypatch.setattr(
        stats, "gauge", lambda name, value, **_: told.update({name.removeprefix("kafka_steward.watch."): value})
    )
    return Hosts(simulator, connect, tmp_path, told)


def watched(rings: str, until: Callable[[], object]) -> list[object]:
    """What a watch rang until this became true."""
    trigger, rung = WatchTrigger("kafka_test", event=rings), []

    async def listen() -> None:
        async for event in trigger.run():
            rung.append(event.payload)  # noqa: PERF401 - what was rung before the end is kept

    async def listened() -> None:
        listening = asyncio.create_task(listen())
        try:
            await asyncio.to_thread(eventually, until, every=0.05)
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
            await trigger.cleanup()

    asyncio.run(listened())
    return rung


@pytest.mark.parametrize("rings", LOOKS)
def test_a_watch_that_came_second_says_so_at_level_error_and_by_its_gauges(
    rings: str, hosts: Hosts, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rings in EVENTS
    hosts.be("worker")
    with StewardHook("kafka_test").open() as opened:
        assert opened.access.zookeeper == ZooKeeperOptions(ZOOKEEPER)
    hosts.be("triggerer")
    hosts.simulator.kill(3)

    def refused() -> None:
        assert all(hosts.told.get(name, 0) > 0 for name in LOOKS[rings]), hosts.told

    assert watched(rings, refused) == []
    logged = [line for line in capsys.readouterr().out.splitlines() if "[error " in line]
    assert len(logged) == len(LOOKS[rings])
    for line in logged:
        assert "The watch of kafka_test cannot " in line
        assert "belong to a journal whose rows are at" in line
        assert all(hosts.rows_of(host) in line for host in ("worker", "triggerer"))
        assert "set the setting journal to the one database that all hosts of this Airflow share" in line

    # The worker goes on with its own, and `status` says there that nobody looks.
    hosts.be("worker")
    assert run("status", "--cluster", "kafka_test") == 0
    assert "watched: never; no watch has polled this journal" in capsys.readouterr().out


def test_it_works_again_when_both_have_one_journal(hosts: Hosts, capsys: pytest.CaptureFixture[str]) -> None:
    hosts.be("worker")
    with StewardHook("kafka_test").open():
        hosts.be("triggerer")

    def mended() -> None:
        if hosts.told.get("failing", 0) > 0:
            hosts.be("worker")
        assert hosts.told.get("failing") == 0, hosts.told

    watched("request", mended)
    assert "The watch of kafka_test works again." in capsys.readouterr().out


def test_an_error_that_persists_is_logged_again_every_hour() -> None:
    said: list[str] = []
    cried: list[str] = []
    now_s = [0.0]
    teller = WatchReporter(
        "kafka",
        lambda words, *more: said.append(words % more),
        failing="failing",
        what="look",
        log_error=lambda words, *more: cried.append(words % more),
        clock=lambda: now_s[0],
    )
    for now_s[0] in (5_000.0, 8_599.0, 8_600.0, 8_601.0):
        teller.report_error(WrongJournal("Another one."))
    assert cried == ["The watch of kafka cannot look, and tries again: Another one."] * 2
    teller.record_success()
    assert said == ["The watch of kafka works again."]
    teller.log_once("All live.", about=1)
    teller.report_error(WrongJournal("Another one."))
    assert len(cried) == 3
