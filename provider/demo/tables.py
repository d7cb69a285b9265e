"""What the demo's tables say, as plain rows of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_steward.cluster.state import Snapshot

__all__ = ["BROKER_COLUMNS", "broker_rows", "cluster_rows", "under_replicated"]

BROKER_COLUMNS = ("broker", "rack", "replicas before", "replicas after", "leaders before", "leaders after", "now")


def broker_rows(before: Snapshot, after: Snapshot) -> list[tuple[str, ...]]:
    """A row per broker that was there before: what it held and led, then and now."""
    counts = [_replicas(before), _replicas(after), _leaders(before), _leaders(after)]
    return [
        (
            str(broker.id),
            broker.rack or "-",
            *(str(count.get(broker.id, 0)) for count in counts),
            "live" if broker.id in after.live else "dead",
        )
        for broker in sorted(before.brokers.values(), key=lambda broker: broker.id)
    ]


def cluster_rows(moments: Sequence[tuple[str, Snapshot]]) -> list[tuple[str, ...]]:
    """One row per moment: its name, under-replicated and offline partitions, racks that the narrowest one spans."""
    return [
        (name, str(under_replicated(snapshot)), str(_offline(snapshot)), str(_narrowest(snapshot)))
        for name, snapshot in moments
    ]


def under_replicated(snapshot: Snapshot) -> int:
    """How many partitions have fewer in-sync replicas than assigned ones."""
    return sum(partition.under_replicated for partition in snapshot.partitions.values())


def _replicas(snapshot: Snapshot) -> Mapping[int, int]:
    return _tally([broker for partition in snapshot.partitions.values() for broker in partition.replicas])


def _leaders(snapshot: Snapshot) -> Mapping[int, int]:
    return _tally([partition.leader for partition in snapshot.partitions.values() if partition.leader is not None])


def _tally(brokers: Sequence[int]) -> Mapping[int, int]:
    return {broker: brokers.count(broker) for broker in set(brokers)}


def _offline(snapshot: Snapshot) -> int:
    return sum(partition.leader is None for partition in snapshot.partitions.values())


def _narrowest(snapshot: Snapshot) -> int:
    racks = {broker.id: broker.rack for broker in snapshot.brokers.values()}
    spans = [len({racks.get(broker) for broker in partition.replicas}) for partition in snapshot.partitions.values()]
    return min(spans, default=0)
