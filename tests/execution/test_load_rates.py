"""Bytes in of partitions, by offsets and sizes: what is counted, and what is in doubt and is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.execution.load.rates import LoadMeter, Look, Size
from kafka_steward.journal.observed import PartitionRate

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
HOUR_S, DAY_S = 3600, 86_400
#: A Monday at 00:00.
BEGAN_S = 19_723 * DAY_S


@dataclass
class Cluster:
    """What looks find, minute by minute."""

    meter: LoadMeter = field(default_factory=LoadMeter)
    now_s: float = BEGAN_S
    clock_s: float = 0.0
    ids: dict[TopicPartition, str | None] = field(default_factory=lambda: {T0: "a"})
    compacted: frozenset[str] = frozenset()

    def look(
        self,
        ends: Mapping[TopicPartition, int],
        sizes: Mapping[TopicPartition, Size] | None = None,
        after_s: float = 60,
    ) -> None:
        self.now_s += after_s
        self.clock_s += after_s
        at_ms = int(self.now_s * 1000)
        self.meter.observe(Look(at_ms, self.clock_s, self.ids, ends, sizes or {}, self.compacted))

    def run(self, hours: float, per_s: int, record: int = 100) -> None:
        """Produce for hours, `per_s` records a second into t-0."""
        end = 10_000_000
        self.look({T0: end}, {T0: Size(1, end * record, end, 0)})
        for _ in range(round(hours * 60)):
            end += 60 * per_s
            self.look({T0: end})

    @property
    def rate(self) -> int | None:
        """Bytes per second into t-0."""
        bytes_per_s = self.meter.bytes_in().get(T0)
        return None if bytes_per_s is None else round(bytes_per_s)

    @property
    def kept(self) -> PartitionRate:
        return next(rate for rate in self.meter.rates() if rate.partition == 0)


def test_two_looks_make_a_rate_of_records_and_their_bytes() -> None:
    cluster = Cluster()
    cluster.look({T0: 1000}, {T0: Size(1, 50_000, 1000, 500)})
    assert cluster.rate is None
    cluster.look({T0: 1600})
    assert cluster.rate == 1000, "600 records of 100 bytes in a minute"


def test_records_that_become_larger_count_by_the_growth_of_the_log() -> None:
    cluster = Cluster()
    cluster.look({T0: 1000}, {T0: Size(1, 100_000, 1000, 0)})
    cluster.look({T0: 1600}, {T0: Size(1, 100_000 + 600 * 1000, 1600, 0)})
    assert cluster.rate == 10_000


def test_of_a_log_that_retention_made_shorter_the_mean_of_its_records_counts() -> None:
    cluster = Cluster()
    cluster.look({T0: 1000}, {T0: Size(1, 100_000, 1000, 0)})
    cluster.look({T0: 1600}, {T0: Size(1, 120_000, 1600, 1000)})
    assert cluster.rate == 2000, "600 records of 200 bytes, although the log grew by 20,000 only"


def test_a_log_that_retention_emptied_keeps_the_bytes_of_its_records() -> None:
    cluster = Cluster()
    cluster.look({T0: 1000}, {T0: Size(1, 100_000, 1000, 0)})
    cluster.look({T0: 1000}, {T0: Size(1, 0, 1000, 1000)})
    cluster.look({T0: 1600})
    assert cluster.rate == 500


def test_a_compacted_log_counts_by_its_growth_between_compactions() -> None:
    cluster = Cluster(compacted=frozenset({"t"}))
    end, size = 1_000_000, 5_000  # nearly all records are gone
    cluster.look({T0: end}, {T0: Size(1, size, end, 0)})
    for minute in range(9):
        end, size = end + 600, (size + 60_000 if minute % 3 else 5_000)
        cluster.look({T0: end}, {T0: Size(1, size, end, 0)})
    assert cluster.rate == 1000
    assert cluster.meter.wants_size({T0: end + 1}, {"t"}) == [T0], "each look asks for its size"
    assert cluster.meter.wants_size({T0: end}, {"t"}) == [], "but not while nothing comes"


def test_another_leader_has_another_size_and_no_growth() -> None:
    cluster = Cluster(compacted=frozenset({"t"}))
    cluster.look({T0: 1000}, {T0: Size(1, 1_000, 1000, 0)})
    cluster.look({T0: 1600}, {T0: Size(2, 99_999_000, 1600, 0)})
    assert cluster.rate is None
    cluster.look({T0: 2200}, {T0: Size(2, 99_999_000 + 60_000, 2200, 0)})
    assert cluster.rate == 1000


def test_a_partition_without_a_size_counts_as_the_mean_of_its_topic_and_is_asked_for() -> None:
    cluster = Cluster(ids={T0: "a", T1: "a", U0: "b"})
    cluster.look({T0: 0, T1: 1000, U0: 0}, {T1: Size(1, 100_000, 1000, 0)})
    assert cluster.meter.wants_size({T0: 600, T1: 1600, U0: 600}, ()) == [T0, U0]
    cluster.look({T0: 600, T1: 1600, U0: 600})
    assert {name: round(rate) for name, rate in cluster.meter.bytes_in().items()} == {T0: 1000, T1: 1000}
    cluster.look({T0: 600, T1: 1600, U0: 1200}, {U0: Size(1, 1_000, 1200)})
    cluster.look({T0: 600, T1: 1600, U0: 1800}, {U0: Size(1, 61_000, 1800)})
    assert round(cluster.meter.bytes_in()[U0]) == 1000, "its growth, although its start is unknown"


def test_an_idle_partition_has_a_rate_of_zero_and_of_one_without_an_answer_nothing_new_is_known() -> None:
    cluster = Cluster(ids={T0: "a", T1: "a"})
    cluster.look({T0: 0, T1: 1000}, {T1: Size(1, 100_000, 1000, 0)})
    cluster.look({T0: 0})
    assert cluster.meter.bytes_in() == {T0: 0}
    cluster.look({T0: 0, T1: 2200})
    assert round(cluster.meter.bytes_in()[T1]) == 1000, "of both minutes"


@pytest.mark.parametrize(
    "ends",
    [
        pytest.param((1000, 400, 1000), id="offsets that go back"),
        pytest.param((1000, 2**62, 2**62 + 600), id="offsets that jump"),
    ],
)
def test_offsets_that_cannot_be_count_as_not_measured(ends: tuple[int, int, int]) -> None:
    cluster = Cluster()
    cluster.look({T0: ends[0]}, {T0: Size(1, 100_000, 1000, 0)})
    cluster.look({T0: ends[1]})
    assert cluster.rate is None
    cluster.look({T0: ends[2]})
    assert cluster.rate == 1000


@pytest.mark.parametrize(
    "size", [Size(1, -1, 1000, 0), Size(1, 2**60, 1000, 0), Size(1, 5, 1000, 1000), Size(1, 5, 1000, 9999)]
)
def test_sizes_that_cannot_be_are_no_sizes(size: Size) -> None:
    cluster = Cluster()
    cluster.look({T0: 1000}, {T0: size})
    cluster.look({T0: 1600})
    assert cluster.rate is None


@pytest.mark.parametrize("jump_s", [-DAY_S, -30, 30, 40 * DAY_S])
def test_a_clock_that_jumps_between_two_looks_costs_the_interval_between_them(jump_s: float) -> None:
    cluster = Cluster()
    cluster.look({T0: 1000}, {T0: Size(1, 100_000, 1000, 0)})
    cluster.now_s += jump_s
    cluster.look({T0: 1_000_000})
    assert cluster.rate is None
    cluster.look({T0: 1_000_600})
    assert cluster.rate == 1000


def test_a_leader_that_did_not_answer_while_the_clock_jumped_begins_anew() -> None:
    cluster = Cluster()
    cluster.look({T0: 1000}, {T0: Size(1, 100_000, 1000, 0)})
    cluster.now_s += HOUR_S / 2  # the machine slept
    cluster.look({})
    cluster.look({T0: 1_000_000})
    assert cluster.rate is None


def test_a_topic_that_was_deleted_and_created_anew_begins_anew() -> None:
    cluster = Cluster()
    cluster.run(hours=2, per_s=10)
    assert cluster.kept.peaks
    cluster.ids = {T0: "another"}
    cluster.look({T0: 99_000_000})
    assert (cluster.rate, list(cluster.meter.rates())) == (None, [])
    cluster.ids = {}
    cluster.look({})
    assert list(cluster.meter.rates()) == []


def test_the_rate_is_the_mean_of_an_hour_and_the_highest_hour_of_seven_days_is_kept() -> None:
    cluster = Cluster()
    cluster.run(hours=2, per_s=10)
    cluster.run(hours=0.5, per_s=0)
    assert cluster.rate == pytest.approx(500, rel=0.05), "half of the hour"
    cluster.run(hours=2, per_s=1)
    assert (cluster.rate, cluster.kept.peak_bytes_per_s) == (100, 1000)
    cluster.run(hours=5 * 24, per_s=1)
    assert cluster.kept.peak_bytes_per_s == 1000
    cluster.run(hours=2 * 24, per_s=1)
    assert cluster.kept.peak_bytes_per_s == 100
    assert len(cluster.kept.peaks) == 7


def test_a_partition_that_nobody_could_measure_for_an_hour_has_no_rate() -> None:
    cluster = Cluster()
    cluster.run(hours=2, per_s=10)
    for _ in range(120):
        cluster.look({})
    assert (cluster.rate, cluster.kept.bytes_per_s, cluster.kept.peak_bytes_per_s) == (None, None, 1000)


def test_a_few_minutes_are_no_highest_hour() -> None:
    cluster = Cluster(now_s=BEGAN_S + HOUR_S - 300)
    cluster.run(hours=0.05, per_s=1000)
    cluster.run(hours=1.5, per_s=1)
    assert [peak for _, peak in cluster.kept.peaks] == [100]


def test_another_process_goes_on_with_what_was_kept_unless_it_is_old() -> None:
    cluster = Cluster()
    cluster.run(hours=2, per_s=10)
    kept = cluster.kept
    assert (kept.bytes_per_s, kept.peak_bytes_per_s) == (1000, 1000)
    now_ms = kept.at_ms + 600_000
    assert {round(rate) for rate in LoadMeter([kept], now_ms).bytes_in().values()} == {1000}
    assert LoadMeter([kept], kept.at_ms + 3 * HOUR_S * 1000).bytes_in() == {}
    assert LoadMeter([kept], kept.at_ms - 1).bytes_in() == {}, "it was written by a clock that ran ahead"
    other = Cluster(LoadMeter([replace(kept, peaks=((0, 9), (99_999, 9), *kept.peaks))], now_ms), now_s=cluster.now_s)
    other.look({T0: 5})
    assert other.kept.peaks == kept.peaks, "those of other days are gone"
