"""Partitions and looks at a cluster from a few digits, for decisions that need no simulator."""

from __future__ import annotations

from kafka_steward.assignment import Assignment
from kafka_steward.cluster.state import Broker, Partition, Snapshot

__all__ = ["brokers", "look", "part"]


def brokers(digits: str) -> Assignment:
    """`brokers("123")`: single-digit brokers."""
    return tuple(map(int, digits))


def part(
    name: str,
    replicas: str,
    *,
    isr: str | None = None,
    adding: str = "",
    removing: str = "",
    topic_id: str | None = None,
) -> Partition:
    """`part("t-0", "1234", isr="123", adding="4")`; the first in sync leads."""
    topic, _, number = name.rpartition("-")
    in_sync = brokers(replicas if isr is None else isr)
    leader = in_sync[0] if in_sync else None
    moving = brokers(adding), brokers(removing)
    return Partition(topic, int(number), brokers(replicas), frozenset(in_sync), leader, topic_id, *moving)


def look(live: str, *partitions: Partition, fenced: str = "") -> Snapshot:
    """A cluster with these brokers and partitions."""
    listed = {each: Broker(each, "h", 9000, fenced=str(each) in fenced) for each in brokers(live + fenced)}
    return Snapshot("c", 0, listed, {each.topic_partition: each for each in partitions})
