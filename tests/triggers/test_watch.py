"""The watch's own part: when it emits an event, that it never dies, and what it says where another journal is first."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_steward.airflow_versions import stats
from kafka_steward.errors import ClusterUnreachable, WrongJournal
from kafka_steward.execution.watch.failure_detector import DetectionResult
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from kafka_steward.settings import Settings
from kafka_steward.triggers import checks, cluster_watch
from kafka_steward.triggers.reporting import WatchReporter
from kafka_steward.triggers.watch import WatchTrigger
from tests.airflow_home import Connect
from tests.cli.calling import run
from tests.eventually import eventually
from tests.memory_mailbox import MemoryMailbox
from tests.simulator import Simulator


def verdict(*due: int, failed: Sequence[int] = (), sentence: str = "All live.") -> DetectionResult:
    return DetectionResult(
        due=due, failed=tuple(failed) or due, waiting={}, handled=(), cleared=(),
        down=tuple(failed) or due, outage=False,
        sentence=sentence, now_ms=1_000,
    )  # fmt: skip


class End(BaseException):
    """The script is over."""


class Scripted(WatchTrigger):
    """Looks through a script; a wait costs no time."""

    def __init__(self, script: Sequence[DetectionResult | BaseException]) -> None:
        super().__init__("kafka")
        self.script = [*script, End()]
        self.waits: list[float] = []
        detection = self._watch._detection
        detection.checks, self._watch._loops = [self._watch.failures], [detection]
        detection._worker = self  # type: ignore[assignment]  # stands in for the thread: asks only the script
        detection.wait = self.wait  # type: ignore[method-assign]
        self._watch._watch_documents = self._watch_documents  # type: ignore[method-assign]

    async def call_without_session(self, _: Any) -> None:
        pass

    async def submit(self, _: Any) -> list[Any]:
        look = self.script.pop(0)
        if isinstance(look, BaseException):
            raise look
        event = {"brokers": list(look.due), "at_ms": look.now_ms} if look.due else None
        return [(self._watch.failures, (event, look, 2.0))]

    def close(self) -> None:
        """Nothing was opened."""

    async def _watch_documents(self) -> None:
        await asyncio.Event().wait()

    async def wait(self, seconds: float) -> None:
        self.waits.append(seconds)


def events_of(script: Sequence[DetectionResult | BaseException]) -> tuple[list[Any], Scripted]:
    trigger, events = Scripted(script), []

    async def listen() -> None:
        async for event in trigger.run():
            events.append(event.payload)  # noqa: PERF401 - what was emitted before the end is kept

    with pytest.raises(End):
        asyncio.run(listen())
    return events, trigger


def test_it_emits_an_event_only_when_a_failure_is_due() -> None:
    events, trigger = events_of([verdict(), verdict(failed=[3]), verdict(3), verdict(failed=[3]), verdict(3, 4)])
    assert events == [{"brokers": [3], "at_ms": 1_000}, {"brokers": [3, 4], "at_ms": 1_000}]
    assert trigger.waits == [2.0] * 5


def test_a_grace_period_that_runs_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    events_of([replace(verdict(sentence=f"{left} s left."), waiting={3: 9_000}, now_ms=left) for left in (3, 2, 1)])
    logged = capsys.readouterr().out
    assert [left for left in (3, 2, 1) if f"{left} s left." in logged] == [3]


@pytest.mark.parametrize("error", [ClusterUnreachable("Nobody answers."), ZeroDivisionError("a defect of ours")])
def test_an_error_is_logged_once_and_backs_off(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    events, trigger = events_of([*[error] * 8, verdict(3)])
    assert events == [{"brokers": [3], "at_ms": 1_000}]
    assert trigger.waits == [2, 4, 8, 16, 32, 60, 60, 60, 2.0]
    logged = capsys.readouterr().out
    assert logged.count(f"The watch of kafka cannot check for failed brokers, and tries again: {error}") == 1
    assert logged.count("The watch of kafka works again.") == 1


def test_errors_raise_a_gauge_and_success_lowers_it(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, int]] = []
    monkeypatch.setattr(stats, "gauge", lambda name, value, **_: told.append((name, value)))
    events_of([ClusterUnreachable("x"), ClusterUnreachable("x"), verdict(failed=[3])])
    assert [each for each in told if each[0] != "kafka_steward.watch.age"] == [
        ("kafka_steward.watch.failing", 1),
        ("kafka_steward.watch.failing", 2),
        ("kafka_steward.watch.failing", 0),
        ("kafka_steward.watch.failed_brokers", 1),
        ("kafka_steward.watch.failed_log_dirs", 0),
        ("kafka_steward.watch.due_brokers", 1),
    ]


def test_the_age_of_a_look_grows_while_it_hangs_and_while_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, int] = {}
    monkeypatch.setattr(stats, "gauge", lambda name, value, **_: told.update({name: value}))
    seconds = 0.0
    reporter = WatchReporter("kafka", lambda *_: None, failing="documents_failing", what="look", clock=lambda: seconds)
    for seconds in (7.9, 100.0):
        reporter.report_age()
        assert told["kafka_steward.watch.documents_age"] == int(seconds)
    reporter.report_error(ClusterUnreachable("x"))
    reporter.report_age()
    assert told["kafka_steward.watch.documents_age"] == 100
    reporter.record_success()
    reporter.report_age()
    assert told["kafka_steward.watch.documents_age"] == 0


def test_a_watch_whose_polls_all_hang_still_reports_their_age(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, int] = {}
    monkeypatch.setattr(stats, "gauge", lambda name, value, **_: told.update({name: value}))
    monkeypatch.setattr(cluster_watch, "_AGES_REPORTED_EVERY_S", 0.01)
    hanging = threading.Event()
    monkeypatch.setattr(StewardHook, "open", lambda _: hanging.wait(60))
    trigger = WatchTrigger("kafka", event="broker-joined")
    gauges = {f"kafka_steward.watch.{part}age" for part in ("", "documents_", "joined_brokers_")}

    async def listen() -> None:
        async for _ in trigger.run():
            raise AssertionError("nothing is emitted")

    def assert_reported() -> None:
        assert gauges <= told.keys()

    async def until_reported() -> None:
        running = asyncio.create_task(listen())
        try:
            await asyncio.to_thread(eventually, assert_reported, every=0.05)
        finally:
            running.cancel()
            await trigger.cleanup()
            hanging.set()

    asyncio.run(until_reported())


def test_failed_log_directories_are_counted_with_those_that_nobody_names(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, int] = {}
    monkeypatch.setattr(stats, "gauge", lambda name, value, **_: told.update({name: value}))
    events_of([replace(verdict(), disks={1: ("/a", "/b"), 4: ()})])
    assert told["kafka_steward.watch.failed_log_dirs"] == 3


@pytest.mark.parametrize(
    ("told", "interval_s"),
    [
        ({1: {"broker.session.timeout.ms": "9000"}}, 2.0),
        ({1: {"broker.session.timeout.ms": "9000", "zookeeper.session.timeout.ms": "6000"}}, 1.5),
        ({}, 2.0),
    ],
)
def test_it_looks_four_times_per_session_timeout(told: dict[int, dict[str, str]], interval_s: float) -> None:
    cluster = SimpleNamespace(live_brokers=lambda: {2: None, 1: None}, broker_configs=lambda *_: told)
    opened = SimpleNamespace(cluster=cluster, settings=Settings.of({"watch_interval": 2}))
    assert checks._poll_interval_s(opened) == interval_s  # type: ignore[arg-type]  # as far as it is read


ZOOKEEPER = "zk1:2181/kafka"
LOOKS = ("failing", "documents_failing", "health_failing", "joined_brokers_failing", "empty_brokers_failing")


class SharedMailbox(MemoryMailbox):
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
    mailbox = SharedMailbox(lambda: simulator.now_ms)
    monkeypatch.setattr("kafka_steward.journal.zookeeper.mailbox.ZkMailbox", lambda *_: mailbox)
    monkeypatch.setattr(StewardHook, "cluster", lambda _: simulator)
    monkeypatch.setattr(
        "kafka_steward.triggers.documents.ZooKeeperWatcher", lambda *_: SimpleNamespace(close=lambda: None)
    )
    monkeypatch.setattr("kafka_steward.triggers.reporting._BACK_OFF_S", 0.05)
    told: dict[str, int] = {}
    monkeypatch.setattr(
        stats, "gauge", lambda name, value, **_: told.update({name.removeprefix("kafka_steward.watch."): value})
    )
    return Hosts(simulator, connect, tmp_path, told)


def watched(event: str, until: Callable[[], object]) -> list[object]:
    """What a watch rang until this became true."""
    trigger, events = WatchTrigger("kafka_test", event=event), []

    async def listen() -> None:
        async for emitted in trigger.run():
            events.append(emitted.payload)  # noqa: PERF401 - what was emitted before the end is kept

    async def listened() -> None:
        listening = asyncio.create_task(listen())
        try:
            await asyncio.to_thread(eventually, until, every=0.05)
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
            await trigger.cleanup()

    asyncio.run(listened())
    return events


def test_a_watch_that_came_second_says_so_at_level_error_and_by_its_gauges(
    hosts: Hosts, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts.be("worker")
    with StewardHook("kafka_test").open() as opened:
        assert opened.access.zookeeper == ZooKeeperOptions(ZOOKEEPER)
    hosts.be("triggerer")
    hosts.simulator.kill(3)

    def refused() -> None:
        assert all(hosts.told.get(name, 0) > 0 for name in LOOKS), hosts.told

    assert watched("broker-failed", refused) == []
    logged = [line for line in capsys.readouterr().out.splitlines() if "[error " in line]
    assert len(logged) == len(LOOKS)
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

    def recovered() -> None:
        if hosts.told.get("failing", 0) > 0:
            hosts.be("worker")
        assert hosts.told.get("failing") == 0, hosts.told

    watched("request", recovered)
    assert "The watch of kafka_test works again." in capsys.readouterr().out


def test_an_error_that_persists_is_logged_again_every_hour() -> None:
    said: list[str] = []
    cried: list[str] = []
    now_s = [0.0]
    reporter = WatchReporter(
        "kafka",
        lambda words, *more: said.append(words % more),
        failing="failing",
        what="look",
        log_error=lambda words, *more: cried.append(words % more),
        clock=lambda: now_s[0],
    )
    for now_s[0] in (5_000.0, 8_599.0, 8_600.0, 8_601.0):
        reporter.report_error(WrongJournal("Another one."))
    assert cried == ["The watch of kafka cannot look, and tries again: Another one."] * 2
    reporter.record_success()
    assert said == ["The watch of kafka works again."]
    reporter.log_once("All live.", about=1)
    reporter.report_error(WrongJournal("Another one."))
    assert len(cried) == 3
