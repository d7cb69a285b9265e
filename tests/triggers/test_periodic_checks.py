"""The checks of the watch, each on a simulated cluster: those that emit events of brokers, and that of its health."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import sqlalchemy as sa

from kafka_steward.airflow_versions import stats
from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import ClusterUnreachable
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.watch.failure_detector import report_broker
from kafka_steward.hooks.session import ClusterSession
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.observed import BrokerReport
from kafka_steward.journal.records import PENDING_REPLICAS, PendingReplicas
from kafka_steward.journal.sql.database import open_database
from kafka_steward.journal.sql.watch_reports import HealthHistory, WatchReports
from kafka_steward.journal.store import open_journal
from kafka_steward.page_data.reader import JournalReader
from kafka_steward.page_data.reports import brokers
from kafka_steward.settings import Settings
from kafka_steward.triggers.base import ClusterWorker
from kafka_steward.triggers.checks import (
    OFF_S,
    BrokerFailureCheck,
    BrokerJoinCheck,
    Check,
    ClusterHealthCheck,
    EmptyBrokerCheck,
)
from kafka_steward.triggers.documents import DocumentCheck
from kafka_steward.triggers.loops import CheckLoop, ChecksFailed, EventQueues, WatchRole
from kafka_steward.triggers.reporting import emit_health
from tests.eventually import eventually
from tests.present import present
from tests.protocol.simulated_watch import document
from tests.simulated_plan import memory_journal
from tests.simulator import Simulator


def test_a_new_broker_is_an_event_and_logged_once() -> None:
    simulator = Simulator.of("1a 2b 3c", "t: 12")
    journal = {"id": "0a1b", "place": "postgresql://db/steward"}
    access = SimpleNamespace(conn_id="kafka")
    opened: Any = SimpleNamespace(
        cluster=simulator, journal=memory_journal(simulator), settings=Settings(), access=access, origin=journal
    )
    told: list[str] = []
    watch = EmptyBrokerCheck("kafka", lambda words, *more: told.append(words % more))
    silent = EmptyBrokerCheck("kafka", lambda *_: None)
    silent.listen_for(())
    assert silent.poll(opened)[0] is None, "it leaves the event to the other watch"
    event, found, pause_s = watch.poll(opened)
    watch.report(found)
    named = {"cluster_id": "simulated", "conn_id": "kafka", "journal": journal}
    assert (event, pause_s) == ({**named, "brokers": [3], "at_ms": simulator.now_ms}, 2.0)
    event, found, _ = watch.poll(opened)
    watch.report(found)
    assert event is None
    assert told == ["Broker 3 waits for an expand."], "the first look cannot tell when it joined"


def test_a_broker_that_is_down_for_the_grace_period_is_an_event_and_no_earlier() -> None:
    simulator = Simulator.of("1a 2b 3c", "t: 123")
    opened: Any = SimpleNamespace(
        cluster=simulator,
        journal=memory_journal(simulator),
        settings=Settings(heal_failure_interval=10, heal_retry_interval=60),
        access=SimpleNamespace(conn_id="kafka"),
        origin=None,
    )
    watch = BrokerFailureCheck("kafka", lambda *_: None)
    silent = BrokerFailureCheck("kafka", lambda *_: None)
    silent.listen_for(())
    simulator.kill(3)
    assert watch.poll(opened)[0] is None
    simulator.tick(10)
    silent.poll(opened)  # it leaves the event to the other watch
    event, found, pause_s = watch.poll(opened)
    named = {"cluster_id": "simulated", "conn_id": "kafka", "journal": None}
    assert (event, pause_s) == ({**named, "brokers": [3], "at_ms": simulator.now_ms}, 2.0)
    assert found.due == (3,)
    assert watch.poll(opened)[0] is None, "it was announced"
    simulator.tick(60)
    event, _, _ = watch.poll(opened)
    assert event is not None, "and is announced again, as no plan handles it"


def test_what_is_found_of_a_broker_that_was_reported_is_logged_once() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123", mode="zookeeper")
    journal = memory_journal(simulator)
    settings, access = Settings(heal_failure_interval=10), SimpleNamespace(conn_id="kafka")
    opened: Any = SimpleNamespace(cluster=simulator, journal=journal, settings=settings, access=access, origin=None)
    told: list[str] = []
    watch = BrokerFailureCheck("kafka", lambda words, *more: told.append(words % more))
    simulator.kill(3)
    for seconds in range(8):
        if seconds == 3:
            report_broker(ClusterContext(simulator, journal, settings, Actor()), 3)
        if seconds == 5:
            simulator.kill(4)  # it has nothing, and so nothing is said of it
        _, found, _ = watch.poll(opened)
        watch.report(found)
        simulator.tick()
    assert (len(told), len({*told})) == (2, 2), told


# health


class Measured:
    """A simulated cluster, a database that keeps its health and its brokers, and the check that polls it."""

    def __init__(self, folder: Path) -> None:
        self.simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231", bandwidth=10)
        self.cluster = self.simulator
        self.journal = memory_journal(self.simulator)
        self.database = open_database(f"sqlite:///{folder}/journal.db", self.simulator.cluster_id, "here")
        self.rows = self.journal.health = HealthHistory(self.database)
        self.journal.watch_reports = WatchReports(self.database)
        self.settings = Settings(health_interval=0.001)
        self.gauges: dict[str, tuple[float, Any]] = {}
        self.check = ClusterHealthCheck("kafka", lambda *_: None)

    def set_gauge(self, name: str, value: float, tags: Any = None) -> None:
        self.gauges[name] = (value, tags)

    def look(self) -> float:
        """Look once; returns the seconds until the next look."""
        opened: Any = self
        self.wait_for_a_row_of_its_own()
        event, _, pause_s = self.check.poll(opened)
        assert event is None
        return pause_s

    def wait_for_a_row_of_its_own(self) -> None:
        """Looks within one `health_interval`, which is a millisecond here, share a row."""

        def assert_later() -> None:
            assert time.time() * 1000 >= max((at_ms for at_ms, _ in self.rows.rows()), default=0) + 1

        eventually(assert_later, every=0.001)

    def kept(self) -> list[dict[str, float]]:
        return [measures for _, measures in self.rows.rows()]

    def reported(self) -> list[BrokerReport]:
        """The brokers as the page reads them, without the times."""
        found = brokers(JournalReader(self.database.engine), self.simulator.cluster_id)
        return [replace(each, at_ms=0, sized_ms=None) for each in found.rows]

    def close(self) -> None:
        """What the thread does with its connections: these last as long as the test."""


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Measured]:
    measured = Measured(tmp_path)
    monkeypatch.setattr(stats, "gauge", measured.set_gauge)
    monkeypatch.setattr(StewardHook, "open", lambda _: measured)
    yield measured
    measured.database.close()


def test_a_look_at_the_health_sets_a_gauge_for_each_measure_and_keeps_a_row(measured: Measured) -> None:
    measured.simulator.kill(3)
    assert measured.look() == 0.001
    (row,) = measured.kept()
    assert (row["under_replicated_partitions"], row["failed_brokers"], row["offline_partitions"]) == (2, 1, 0)
    assert {name: gauge for name, gauge in measured.gauges.items() if ".broker." not in name} == {
        f"kafka_steward.cluster.{name}": (value, {"conn_id": "kafka"}) for name, value in row.items()
    }


def test_a_look_at_the_health_reports_the_brokers_in_place_of_those_before(measured: Measured) -> None:
    measured.look()
    assert [each.broker for each in measured.reported() if each.live] == [1, 2, 3, 4]
    measured.simulator.kill(3)
    measured.look()
    assert [(each.broker, each.rack, each.live, each.replicas, each.leaders) for each in measured.reported()] == [
        (1, "a", True, 2, 1),
        (2, "b", True, 2, 1),
        (3, "c", False, 2, 0),
        (4, "a", True, 0, 0),
    ]
    assert [each.under_replicated for each in measured.reported()] == [1, 1, 0, 0]


def test_a_look_at_the_health_emits_an_event_for_a_full_disk_to_those_who_listen(measured: Measured) -> None:
    measured.settings = Settings(health_interval=0.001, disk_above=1e-9)
    opened: Any = measured
    opened.access, opened.origin = SimpleNamespace(conn_id="kafka"), {}
    assert measured.check.poll(opened)[0] is None, "nobody listens"
    measured.check.listen_for({"disk-full", "broker-failed"})
    event, report, _ = measured.check.poll(opened)
    assert event is not None
    assert measured.check.events_of(event)["disk-full"]["brokers"] == [1, 2, 3]
    measured.check.report(report)
    assert measured.check.poll(opened)[0] is None, "it was announced"


def test_a_gauge_of_a_broker_has_its_id_in_the_name_and_as_a_tag(monkeypatch: pytest.MonkeyPatch) -> None:
    emitted: list[tuple[str, float, dict[str, str]]] = []
    monkeypatch.setattr(stats, "gauge", lambda name, value, *, tags: emitted.append((name, value, tags)))
    emit_health("kafka", {"failed_brokers": 1, "reassigning_partitions": 2, "reassigning_partitions.4": 2})
    assert emitted == [
        ("kafka_steward.cluster.failed_brokers", 1, {"conn_id": "kafka"}),
        ("kafka_steward.cluster.reassigning_partitions", 2, {"conn_id": "kafka"}),
        ("kafka_steward.cluster.reassigning_partitions.4", 2, {"conn_id": "kafka"}),
        ("kafka_steward.broker.reassigning_partitions", 2, {"conn_id": "kafka", "broker": "4"}),
    ]


def test_each_look_measures_bytes_per_second_since_the_one_before(measured: Measured) -> None:
    measured.simulator.alter({TopicPartition("t", 0): (1, 2, 4)})
    name = "reassignment_bytes_in_per_sec.4"
    measured.look()
    assert f"kafka_steward.cluster.{name}" not in measured.gauges, "one look measures no rate"
    measured.simulator.tick(2)
    measured.look()
    assert measured.gauges[f"kafka_steward.cluster.{name}"][0] == 10
    measured.simulator.bandwidth = 5
    measured.simulator.tick()
    measured.look()
    assert measured.gauges[f"kafka_steward.cluster.{name}"][0] == 5
    assert [row.get(name) for row in measured.kept()] == [None, 10, 5]


def test_a_move_that_began_and_ended_between_two_looks_is_measured_by_the_second(measured: Measured) -> None:
    name, leading = "reassignment_bytes_in_per_sec.4", "under_replicated_partitions.2"
    measured.simulator.bandwidth = 100
    measured.look()
    measured.simulator.alter({TopicPartition("t", 0): (1, 2, 4)})
    measured.simulator.tick(2)
    measured.simulator.kill(3)
    measured.look()
    measured.simulator.tick()
    measured.look()
    assert [(row.get(name), row["reassigning_partitions"]) for row in measured.kept()] == [(None, 0), (50, 0), (0, 0)]
    assert [row[leading] for row in measured.kept()] == [0, 1, 1]


def test_rows_are_kept_for_as_many_days_and_as_often_as_the_settings_say(
    measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured.settings = Settings(health_interval=60, health_retention=0.5)
    kept: list[dict[str, int]] = []
    monkeypatch.setattr(measured.rows, "add_measures", lambda _, **how: kept.append(how))
    assert measured.look() == 60
    assert kept == [{"every_ms": 60_000, "retention_ms": 12 * 60 * 60 * 1000}]


def test_without_an_interval_the_health_is_not_looked_at(measured: Measured) -> None:
    measured.settings = Settings(health_interval=0)
    measured.simulator.reachable = False
    assert measured.look() == OFF_S
    assert (measured.gauges, measured.kept()) == ({}, [])


def test_a_journal_without_a_database_keeps_no_rows_and_the_gauges_are_set(measured: Measured) -> None:
    measured.journal.health = measured.journal.watch_reports = None
    measured.look()
    assert measured.gauges["kafka_steward.cluster.under_replicated_partitions"][0] == 0
    assert (measured.kept(), measured.reported()) == ([], [])


def test_the_check_goes_on_and_a_poll_that_fails_is_counted(
    measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing, reassigning = "kafka_steward.watch.health_failing", "kafka_steward.cluster.reassigning_partitions"
    pauses: list[tuple[float, float, float]] = []

    async def wait(seconds: float) -> None:
        pauses.append((seconds, measured.gauges[failing][0], measured.gauges.get(reassigning, (-1, None))[0]))
        measured.wait_for_a_row_of_its_own()
        measured.simulator.reachable = len(pauses) != 1
        if len(pauses) == 2:
            measured.simulator.alter({TopicPartition("t", 0): (1, 2, 4)})
        if len(pauses) == 3:
            raise asyncio.CancelledError

    loop = loop_of(measured.check)
    monkeypatch.setattr(loop, "wait", wait)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(loop.run())
    loop.close()
    # Seconds until the next look, looks that failed in a row, and what the last one that worked has measured.
    assert pauses == [(0.001, 0, 0), (2.0, 1, 0), (0.001, 0, 1)]
    assert len(measured.kept()) == 2


def test_a_cancel_that_comes_together_with_a_wake_ends_the_check() -> None:
    async def run() -> bool:
        loop = loop_of(EmptyBrokerCheck("kafka", lambda *_: None))
        waiting = asyncio.create_task(loop.wait(60))
        await asyncio.sleep(0.1)
        loop.wake()
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        return waiting.cancelled()

    assert asyncio.run(run())


Poll = Callable[[ClusterSession], object]


def loop_of(check: Check[Any]) -> CheckLoop:
    return CheckLoop(ClusterWorker("kafka", {}), [check], EventQueues(), WatchRole())


def documents() -> Poll:
    return loop_of(DocumentCheck("kafka", lambda *_: None, lambda: None)).poll


def poll_of(kind: type[Check[Any]]) -> Poll:
    return loop_of(kind("kafka", lambda *_: None)).poll


POLLS: dict[str, Callable[[], Poll]] = {
    "failures": lambda: poll_of(BrokerFailureCheck),
    "documents": documents,
    "health": lambda: poll_of(ClusterHealthCheck),
    "joined_brokers": lambda: poll_of(BrokerJoinCheck),
    "empty_brokers": lambda: poll_of(EmptyBrokerCheck),
}
each_poll = pytest.mark.parametrize("kind", POLLS)


@dataclass
class Watched:
    """A simulated cluster, and a journal in a file, opened on the host db-7 as a trigger opens them."""

    simulator: Simulator
    opened: ClusterSession
    file: Path

    def rows(self) -> list[dict[str, Any]]:
        return present(self.opened.journal.hosts).polls()

    def age(self, ms: int) -> None:
        engine = sa.create_engine(f"sqlite:///{self.file}")
        with engine.begin() as connection:
            connection.execute(sa.text("UPDATE steward_state SET at_ms = at_ms - :ms WHERE noun = 'polls'"), {"ms": ms})
        engine.dispose()


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    monkeypatch.setattr(stats, "gauge", lambda *_, **__: None)
    simulator, file = Simulator.of("1a 2b 3c", "t: 12"), tmp_path / "journal.db"
    access = SimpleNamespace(conn_id="kafka", zookeeper=None, settings=Settings())
    with open_journal(f"sqlite:///{file}", simulator.cluster_id, host="db-7") as journal:
        yield Watched(simulator, ClusterSession(cast("Any", access), cast("Any", simulator), journal), file)


@each_poll
def test_a_poll_that_succeeds_is_recorded_with_its_host_and_its_time(kind: str, watched: Watched) -> None:
    before_ms = watched.opened.journal.now_ms()
    POLLS[kind]()(watched.opened)
    (row,) = watched.rows()
    after_ms = watched.opened.journal.now_ms()
    assert (row["kind"], row["host"]) == (kind, "db-7")
    assert before_ms <= row["at_ms"] <= after_ms
    watched.age(5_000_000)
    (row,) = watched.rows()
    assert 5_000_000 <= row["age_ms"] <= 5_000_000 + watched.opened.journal.now_ms() - before_ms


@each_poll
def test_a_poll_that_fails_is_not_recorded(kind: str, watched: Watched) -> None:
    poll = POLLS[kind]()
    watched.simulator.reachable = False
    # Without these, the poll of the documents and the poll for joined brokers ask Kafka nothing.
    watched.opened.journal.rows(PENDING_REPLICAS).put(TopicPartition("t", 0), PendingReplicas((1, 2, -1)), None)
    watched.opened.journal.mailbox.append(paths.REQUEST_PREFIX, document(["t-0 23"]))
    with pytest.raises(ChecksFailed) as told:
        poll(watched.opened)
    assert isinstance(told.value.outcomes[0][1], ClusterUnreachable)
    assert watched.rows() == []
