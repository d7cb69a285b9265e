"""Looks at the load of a simulated cluster: what is asked, how often, and what the journal keeps."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import KafkaRefused
from kafka_steward.execution.load.look import BytesIn, LoadWatch, known_rates, load_measures
from kafka_steward.execution.plans.snapshot import take_snapshot
from kafka_steward.execution.watch.observation import ObservedCluster
from kafka_steward.journal.sql.database import open_database
from kafka_steward.journal.sql.watch_reports import WatchReports
from kafka_steward.planning.files.formats import read_snapshot
from tests.simulated_plan import memory_journal
from tests.simulator import Simulator

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Watched:
    """A cluster into which 100 bytes a second come for t-0, and 20 for t-1; and what looks at it."""

    def __init__(self, folder: Path) -> None:
        self.simulator = Simulator.of("1a 2b 3c", "t: 123 23", mode="kraft")
        self.journal = memory_journal(self.simulator)
        self.database = open_database(f"sqlite:///{folder}/journal.db", self.simulator.cluster_id, "here")
        self.reports = self.journal.watch_reports = WatchReports(self.database)
        self.now_s = 0.0
        self.asked: list[str] = []
        self.stalled = 0
        self.watch = self.another()

    def another(self) -> LoadWatch:
        return LoadWatch(self.journal, lambda: self.now_s)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.simulator, name)

    def log_ends(
        self, held: Mapping[int, Collection[TopicPartition]], *, timeout_s: float
    ) -> dict[tuple[TopicPartition, int], int]:
        assert timeout_s
        self.asked.append("ends")
        return self.simulator.log_ends({broker: held[broker] for broker in held if broker != self.stalled})

    def local_starts(
        self, held: Mapping[int, Collection[TopicPartition]], *, timeout_s: float
    ) -> dict[tuple[TopicPartition, int], int]:
        assert timeout_s
        self.asked.append("starts")
        return self.simulator.local_starts(held)

    def log_sizes(self, held: Mapping[int, Collection[TopicPartition]]) -> dict[tuple[TopicPartition, int], int]:
        self.asked.append("sizes")
        return self.simulator.log_sizes(held)

    def look(self, *, sized: bool = False) -> None:
        cluster: Any = self
        self.watch.look(cluster, self.journal, self.simulator.snapshot(), self.log_dirs([1, 2, 3]) if sized else None)

    def run(self, minutes: int) -> None:
        for minute in range(minutes):
            self.now_s += 60
            self.simulator.now_ms += 60_000
            for name, per_s in ((T0, 100), (T1, 20)):
                for broker in self.simulator.topics[name].held if name in self.simulator.topics else ():
                    self.simulator.topics[name].held[broker] += 60 * per_s
            self.look(sized=minute % 10 == 0)

    def kept(self) -> dict[tuple[str, int], int | None]:
        return {(rate.topic, rate.partition): rate.bytes_per_s for rate in self.reports.rates()}


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    watched = Watched(tmp_path)
    yield watched
    watched.database.close()


def test_a_broker_has_the_bytes_of_what_it_leads_and_of_what_it_follows(watched: Watched) -> None:
    watched.run(2)
    assert watched.watch.brokers == {1: BytesIn(100, 0), 2: BytesIn(20, 100), 3: BytesIn(0, 120)}
    measures = load_measures(watched.watch.brokers)
    assert (measures["leader_bytes_in_per_sec.1"], measures["follower_bytes_in_per_sec.3"]) == (100, 120)


def test_between_the_looks_that_ask_for_everything_each_broker_is_asked_for_its_ends_alone(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.run(10)
    assert watched.asked == ["starts", *["ends"] * 10]
    monkeypatch.setattr(watched.simulator, "topic_configs", lambda *_: {"t": {"cleanup.policy": "compact,delete"}})
    watched.run(3)
    assert watched.asked[11:] == ["starts", *["ends", "sizes"] * 3], "and for the sizes of compacted topics"
    assert watched.watch.brokers[1].as_leader == 100


def test_a_broker_that_does_not_answer_costs_the_interval_of_its_own_partitions(watched: Watched) -> None:
    watched.run(2)
    watched.stalled = 1
    watched.run(3)
    assert watched.watch.brokers[2].as_leader == 20
    assert watched.watch.brokers[1].as_leader == 100, "as it was"
    watched.stalled = 0
    watched.run(1)
    assert watched.watch.brokers[1].as_leader == 100


def test_without_the_right_to_read_settings_rates_are_known_all_the_same(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise KafkaRefused(29, "no", "Kafka refused it.")

    monkeypatch.setattr(watched.simulator, "topic_configs", refuse)
    watched.run(12)
    assert watched.watch.brokers[1].as_leader == pytest.approx(100)


def test_rates_are_kept_every_ten_minutes_and_those_of_topics_that_are_gone_are_deleted(watched: Watched) -> None:
    watched.run(9)
    assert watched.kept() == {}
    watched.run(1)
    assert watched.kept() == {("t", 0): 100, ("t", 1): 20}
    del watched.simulator.topics[T0], watched.simulator.topics[T1]
    watched.simulator.create("u", [(1, 2)])
    watched.run(9)
    assert watched.kept() == {("t", 0): 100, ("t", 1): 20}
    watched.run(1)
    assert watched.kept() == {("u", 0): 0}


def test_a_row_that_does_not_change_is_written_once_an_hour(watched: Watched) -> None:
    watched.run(50)
    first = {rate.at_ms for rate in watched.reports.rates()}
    watched.run(20)
    assert {rate.at_ms for rate in watched.reports.rates()} == first
    watched.run(60)
    assert {rate.at_ms for rate in watched.reports.rates()} != first


def test_another_watch_goes_on_with_what_was_kept(watched: Watched) -> None:
    watched.run(90)
    peaks = {rate.partition: rate.peak_bytes_per_s for rate in watched.reports.rates()}
    watched.watch = watched.another()
    watched.run(1)
    assert watched.watch.brokers[1].as_leader == 100, "before it has measured itself"
    watched.run(20)
    assert {rate.partition: rate.peak_bytes_per_s for rate in watched.reports.rates()} == peaks == {0: 100, 1: 20}
    assert watched.watch.is_of(watched.journal)
    watched.now_s += 3600
    assert not watched.watch.is_of(watched.journal), "another watch may have measured meanwhile"


def test_a_snapshot_for_a_plan_has_the_rates_of_the_last_hour(watched: Watched, tmp_path: Path) -> None:
    def rates() -> list[float | None]:
        where, simulator = f"{tmp_path}/{watched.simulator.now_ms}-{len(watched.simulator.topics)}", watched.simulator
        take_snapshot(simulator, where, failed=(), now_ms=1, rates=known_rates(watched.journal))
        return list(read_snapshot(where).partitions["bytes_per_s"].to_pylist())

    assert rates() == [None, None], "nothing was measured"
    watched.run(10)
    assert rates() == [100.0, 20.0]
    watched.simulator.create("u", [(1, 2)])
    assert rates() == [100.0, 20.0, None], "a topic is new"
    watched.simulator.now_ms += 7_200_000
    assert rates() == [None, None, None], "nobody has looked for two hours"
    watched.journal.watch_reports = None
    assert known_rates(watched.journal) == {}, "no journal keeps rates"


def test_the_rate_of_a_topic_that_was_created_again_is_not_known(watched: Watched, tmp_path: Path) -> None:
    watched.run(10)
    for name in (T0, T1):
        del watched.simulator.topics[name]
    watched.simulator.create("t", [(1, 2)])
    take_snapshot(watched.simulator, str(tmp_path), failed=(), now_ms=1, rates=known_rates(watched.journal))
    assert read_snapshot(str(tmp_path)).partitions["bytes_per_s"].to_pylist() == [None]


def test_before_the_second_look_nothing_is_known_of_a_broker(watched: Watched) -> None:
    watched.run(1)
    assert load_measures(watched.watch.brokers) == {}


def test_a_large_cluster_is_looked_at_less_often(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_steward.execution.load.look.PARTITIONS_PER_S", 0.01)  # 2 partitions: 200 s
    watched.run(41)
    assert watched.asked == ["starts", *["ends"] * 11, "starts", "ends"], (
        "two at once, one each 200 s, starts each 2000 s"
    )


def test_what_a_poll_reads_of_the_disks_is_read_once(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    observed, looks = ObservedCluster(watched.simulator), list[int]()
    monkeypatch.setattr(watched.simulator, "log_dirs", lambda _: looks.append(1))
    for brokers in ([1, 2], (2, 1), [1]):
        observed.log_dirs(brokers)
    assert len(looks) == 2
