"""How far the copying has come, how fast it goes, and whether it stands still. Pure: the time is a parameter."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.cluster.state import LogDir

__all__ = ["Track", "arrived_bytes", "copied_bytes", "counted_bytes", "eta_s", "stalled"]

#: How much the newest interval weighs in the rate: about the last five looks count.
_NEWEST = 0.3


@dataclass(frozen=True)
class Track:
    """What was seen up to `at_ms`: bytes that arrived, when each partition last grew, bytes per second (smoothed)."""

    at_ms: int
    done_bytes: int
    arrived: Mapping[TopicPartition, int] = field(default_factory=dict)
    grew_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    bytes_per_s: float | None = None

    def then(self, at_ms: int, done_bytes: int, arrived: Mapping[TopicPartition, int]) -> Track:
        """The track after another look. A partition that is new in it counts as grown now."""
        grew = {
            partition: self.grew_ms[partition]
            if partition in self.arrived and copied <= self.arrived[partition]
            else at_ms
            for partition, copied in arrived.items()
        }
        return Track(at_ms, done_bytes, dict(arrived), grew, self._rate(at_ms, done_bytes))

    def _rate(self, at_ms: int, done_bytes: int) -> float | None:
        if at_ms <= self.at_ms:
            return self.bytes_per_s
        newest = max(0, done_bytes - self.done_bytes) * 1000 / (at_ms - self.at_ms)
        return newest if self.bytes_per_s is None else _NEWEST * newest + (1 - _NEWEST) * self.bytes_per_s


def copied_bytes(move: Move) -> int:
    """Bytes that the whole move copies: the partition once for each broker that receives it; 0 where unknown."""
    return (move.size_bytes or 0) * len(move.adding)


def arrived_bytes(flying: Iterable[Move], log_dirs: Mapping[int, LogDir]) -> dict[TopicPartition, int]:
    """Bytes that have arrived on the receiving brokers, by partition: more than planned where producers write on."""
    return {move.topic_partition: _received(move, log_dirs) for move in flying}


def counted_bytes(flying: Iterable[Move], arrived: Mapping[TopicPartition, int]) -> int:
    """What of the bytes that arrived counts for the plan's progress: of each move no more than was planned."""
    return sum(min(copied_bytes(move), arrived.get(move.topic_partition, 0)) for move in flying)


def _received(move: Move, log_dirs: Mapping[int, LogDir]) -> int:
    dirs = (log_dirs[broker] for broker in move.adding if broker in log_dirs)
    return sum(each.replica_bytes.get(move.topic_partition, 0) for each in dirs)


def eta_s(left_bytes: int, bytes_per_s: float | None) -> float | None:
    """Seconds until `left_bytes` have arrived; None while the rate is unknown or 0."""
    if left_bytes <= 0:
        return 0.0
    return left_bytes / bytes_per_s if bytes_per_s else None


def stalled(track: Track, flying: Collection[TopicPartition], *, after_s: float) -> tuple[TopicPartition, ...]:
    """Partitions in flight that have not grown for `after_s` seconds, sorted."""
    limit_ms = track.at_ms - after_s * 1000
    return tuple(sorted(partition for partition in flying if track.grew_ms.get(partition, track.at_ms) <= limit_ms))
