"""Progress of the replica copies: bytes copied, transfer rate, stalled partitions. Pure: the time is a parameter."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.cluster.state import LogDir

__all__ = ["TransferRate", "arrived_bytes", "copied_bytes", "counted_bytes", "eta_s", "stalled"]

#: The weight of the newest interval in the smoothed rate: about the last five polls count.
_NEWEST = 0.3


@dataclass(frozen=True)
class TransferRate:
    """The state observed up to `at_ms`: bytes copied, the time each partition last grew, smoothed bytes per second."""

    at_ms: int
    done_bytes: int
    arrived: Mapping[TopicPartition, int] = field(default_factory=dict)
    grew_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    bytes_per_s: float | None = None

    def update(self, at_ms: int, done_bytes: int, arrived: Mapping[TopicPartition, int]) -> TransferRate:
        """Return the track after another poll. A partition that was not tracked before counts as grown now."""
        grew = {
            partition: self.grew_ms[partition]
            if partition in self.arrived and copied <= self.arrived[partition]
            else at_ms
            for partition, copied in arrived.items()
        }
        return TransferRate(at_ms, done_bytes, dict(arrived), grew, self._rate(at_ms, done_bytes))

    def _rate(self, at_ms: int, done_bytes: int) -> float | None:
        if at_ms <= self.at_ms:
            return self.bytes_per_s
        newest = max(0, done_bytes - self.done_bytes) * 1000 / (at_ms - self.at_ms)
        return newest if self.bytes_per_s is None else _NEWEST * newest + (1 - _NEWEST) * self.bytes_per_s


def copied_bytes(move: Move) -> int:
    """Return the bytes that the whole move copies: the partition size once per receiving broker; 0 if it is unknown."""
    return (move.size_bytes or 0) * len(move.adding)


def arrived_bytes(flying: Iterable[Move], log_dirs: Mapping[int, LogDir]) -> dict[TopicPartition, int]:
    """Return the bytes copied to the receiving brokers, by partition.

    This exceeds the planned size if producers keep writing.
    """
    return {move.topic_partition: _received(move, log_dirs) for move in flying}


def counted_bytes(flying: Iterable[Move], arrived: Mapping[TopicPartition, int]) -> int:
    """Return the copied bytes that count for the plan's progress: for each move at most the planned bytes."""
    return sum(min(copied_bytes(move), arrived.get(move.topic_partition, 0)) for move in flying)


def _received(move: Move, log_dirs: Mapping[int, LogDir]) -> int:
    dirs = (log_dirs[broker] for broker in move.adding if broker in log_dirs)
    return sum(each.replica_bytes.get(move.topic_partition, 0) for each in dirs)


def eta_s(left_bytes: int, bytes_per_s: float | None) -> float | None:
    """Return the seconds until `left_bytes` are copied; None while the rate is unknown or 0."""
    if left_bytes <= 0:
        return 0.0
    return left_bytes / bytes_per_s if bytes_per_s else None


def stalled(track: TransferRate, flying: Collection[TopicPartition], *, after_s: float) -> tuple[TopicPartition, ...]:
    """Return the partitions in flight that have not grown for `after_s` seconds, sorted."""
    limit_ms = track.at_ms - after_s * 1000
    return tuple(sorted(partition for partition in flying if track.grew_ms.get(partition, track.at_ms) <= limit_ms))
