"""Bytes per second that producers bring into each partition: the records between two looks, times bytes per record.

Offsets count records. What a record has in bytes is known from the growth of the leader's log: the bytes that it grew
by, over the records that it grew by. A log that retention made shorter meanwhile has no growth: its size, over the
records from its local start to its end, is taken instead. A compacted log has fewer records than offsets, so only its
growth counts, and only while no compaction made it smaller: the median of the last few. A partition of which neither is
known counts as its topic's mean.

Of each partition the mean of the last hour is kept, and the highest hour of each of seven days. An interval of which
anything is in doubt counts as not measured, and the next one begins again: offsets that went back, a rate that no
network carries, a clock that jumped, a topic that was deleted and created again. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from kafka_steward.assignment import TopicPartition
from kafka_steward.journal.observed import PartitionRate

_HOUR_S, _HOUR_MS, _DAY_MS, _DAYS = 3600.0, 3_600_000, 86_400_000, 7
#: What two clocks may differ by between two looks, in seconds and as a share: one of them jumped, or the machine slept.
_JUMP_S, _JUMP_SHARE = 5.0, 0.1
#: The seconds that must have been measured of an hour for it to be a day's highest.
_HOUR_AT_LEAST_S = 1800.0
#: More bytes a second than one log takes, and more bytes than any record has: offsets or sizes lie.
_MOST_BYTES_PER_S, _MOST_RECORD = 1e10, 2.0**31
#: The growths whose median counts, of a log that is compacted or has an unknown start.
_GROWTHS = 7
#: The milliseconds after which the last known mean is none of the last hour.
_STALE_MS = 7_200_000


def is_fresh(rate: PartitionRate, now_ms: int) -> bool:
    """Return whether a rate that was kept is still one of the last hour."""
    return rate.bytes_per_s is not None and 0 <= now_ms - rate.at_ms < _STALE_MS


class Size(NamedTuple):
    """The bytes of a partition on its leader, when its log ended at `end`; `start` is the local start, if known."""

    leader: int
    bytes_: int
    end: int
    start: int | None = None


@dataclass(frozen=True)
class Look:
    """What one look has found. `at_ms` is by the journal's clock, `at_s` by one of this machine that is never set.

    `topic_ids` has all partitions that exist, `ends` the offsets of those whose leaders answered, `sizes` those that
    were asked for.
    """

    at_ms: int
    at_s: float
    topic_ids: Mapping[TopicPartition, str | None]
    ends: Mapping[TopicPartition, int]
    sizes: Mapping[TopicPartition, Size] = field(default_factory=dict)
    compacted: Collection[str] = frozenset()


@dataclass(slots=True)
class _Partition:
    """What is known of one partition: its last end and size, the bytes of its records, this hour, and before it."""

    topic_id: str | None
    end: int | None = None
    at_s: float = 0.0
    size: Size | None = None
    record_bytes: float | None = None
    growths: tuple[float, ...] = ()
    hour_bytes: float = 0.0
    hour_s: float = 0.0
    before_bytes_per_s: float | None = None
    peaks: tuple[tuple[int, int], ...] = ()

    @property
    def mean_bytes_per_s(self) -> float | None:
        """The mean of the last hour: this one as far as it is measured, and before that the mean of the one before."""
        if self.before_bytes_per_s is None or self.hour_s >= _HOUR_S:
            return self.hour_bytes / self.hour_s if self.hour_s else self.before_bytes_per_s
        return (self.hour_bytes + self.before_bytes_per_s * (_HOUR_S - self.hour_s)) / _HOUR_S

    def close_hour(self, day: int) -> None:
        """Begin another hour; the one that ends may be the highest of its day. One without a measure says nothing."""
        self.before_bytes_per_s = self.mean_bytes_per_s if self.hour_s else None
        if self.hour_s >= _HOUR_AT_LEAST_S:
            peaks = dict(self.peaks)
            peaks[day] = max(peaks.get(day, 0), round(self.hour_bytes / self.hour_s))
            self.peaks = tuple(sorted(peaks.items()))
        self.hour_bytes = self.hour_s = 0.0

    def take_size(self, size: Size, *, compacted: bool) -> None:
        """Learn the bytes of a record from a size and the one before it."""
        before, self.size = self.size, size
        same = before is not None and before.leader == size.leader
        growth = _per_record(size.bytes_ - before.bytes_, size.end - before.end) if before and same else None
        if compacted or size.start is None:
            self.growths = self.growths if growth is None else (*self.growths, growth)[-_GROWTHS:]
            self.record_bytes = median(self.growths) if self.growths else self.record_bytes
        elif growth is not None and before and before.start == size.start:
            self.record_bytes = growth
        else:
            self.record_bytes = _per_record(size.bytes_, size.end - size.start) or self.record_bytes


def _per_record(bytes_: int, records: int) -> float | None:
    if bytes_ <= 0 or records <= 0 or bytes_ / records > _MOST_RECORD:
        return None
    return bytes_ / records


class LoadMeter:
    """The rates of one cluster, look by look. `kept` are those of earlier processes, `now_ms` is the journal's time."""

    def __init__(self, kept: Iterable[PartitionRate] = (), now_ms: int = 0) -> None:
        self._partitions = {
            TopicPartition(rate.topic, rate.partition): _Partition(
                rate.topic_id,
                before_bytes_per_s=rate.bytes_per_s if is_fresh(rate, now_ms) else None,
                peaks=rate.peaks,
            )
            for rate in kept
        }
        self._last: Look | None = None

    @property
    def partitions(self) -> int:
        """The number of partitions at the last look."""
        return len(self._partitions)

    def wants_size(self, ends: Mapping[TopicPartition, int], compacted: Collection[str]) -> list[TopicPartition]:
        """Return the partitions whose sizes a look needs: with new records, and compacted or of unknown record size."""
        return [
            name
            for name, end in ends.items()
            if (known := self._partitions.get(name)) is not None
            and end != known.end
            and (known.record_bytes is None or name.topic in compacted)
        ]

    def observe(self, look: Look) -> None:
        """Count what came since the look before."""
        last, self._last = self._last, look
        known = self._partitions
        self._partitions = {
            name: partition
            if (partition := known.get(name)) and partition.topic_id == topic_id
            else _Partition(topic_id)
            for name, topic_id in look.topic_ids.items()
        }
        if last is not None and last.at_ms // _HOUR_MS != look.at_ms // _HOUR_MS:
            for partition in self._partitions.values():
                partition.close_hour(last.at_ms // _DAY_MS)
        records = self._take_offsets(look)
        if last is None or not _clocks_agree(last, look):
            for name in self._partitions.keys() - look.ends.keys():
                self._partitions[name].end = None
        else:
            self._count(records)

    def _take_offsets(self, look: Look) -> list[tuple[TopicPartition, int, float]]:
        """Take offsets and sizes; return the new records of each partition, and the seconds that they took."""
        records = []
        for name in look.ends.keys() & self._partitions.keys():
            partition, end = self._partitions[name], look.ends[name]
            if name in look.sizes:
                partition.take_size(look.sizes[name], compacted=name.topic in look.compacted)
            seconds = look.at_s - partition.at_s
            if partition.end is not None and end >= partition.end and 0 < seconds <= _HOUR_S:
                records.append((name, end - partition.end, seconds))
            partition.end, partition.at_s = end, look.at_s
        return records

    def _count(self, records: Iterable[tuple[TopicPartition, int, float]]) -> None:
        means = self._topic_means()
        for name, count, seconds in records:
            partition = self._partitions[name]
            each = (partition.record_bytes or means.get(name.topic)) if count else 0.0
            if each is not None and count * each / seconds < _MOST_BYTES_PER_S:
                partition.hour_bytes += count * each
                partition.hour_s += seconds

    def _topic_means(self) -> dict[str, float]:
        sizes = defaultdict[str, list[float]](list)
        for name, known in self._partitions.items():
            if known.record_bytes is not None:
                sizes[name.topic].append(known.record_bytes)
        return {topic: sum(each) / len(each) for topic, each in sizes.items()}

    def rates(self) -> Iterator[PartitionRate]:
        """Yield what is known at the last look of each partition of which anything is."""
        if self._last is None:
            return
        at_ms = self._last.at_ms
        today = at_ms // _DAY_MS
        for name, known in self._partitions.items():
            # A day that has not come yet is one of a clock that ran ahead.
            known.peaks = tuple(peak for peak in known.peaks if today - _DAYS < peak[0] <= today)
            mean = known.mean_bytes_per_s
            if mean is not None or known.peaks:
                bytes_per_s = None if mean is None else round(mean)
                yield PartitionRate(name.topic, name.partition, known.topic_id, bytes_per_s, known.peaks, at_ms)

    def bytes_in(self) -> dict[TopicPartition, float]:
        """Return the bytes per second that came into each partition in the last hour; unknown ones are left out."""
        return {name: mean for name, known in self._partitions.items() if (mean := known.mean_bytes_per_s) is not None}


def _clocks_agree(last: Look, look: Look) -> bool:
    seconds = look.at_s - last.at_s
    return abs((look.at_ms - last.at_ms) / 1000 - seconds) <= max(_JUMP_S, _JUMP_SHARE * seconds)
