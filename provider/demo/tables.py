"""The contents of the demo's tables, as plain rows of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from itertools import groupby

from kafka_steward.cluster.state import Snapshot
from kafka_steward.journal.audit import AuditRecord, StoredAuditRecord

__all__ = ["BROKER_COLUMNS", "TRAIL_COLUMNS", "broker_rows", "cluster_rows", "trail_rows", "under_replicated"]

TRAIL_COLUMNS = ("UTC", "action", "what", "outcome", "why", "who")
BROKER_COLUMNS = ("broker", "rack", "replicas before", "replicas after", "leaders before", "leaders after", "now")


def broker_rows(before: Snapshot, after: Snapshot) -> list[tuple[str, ...]]:
    """Return a row for each broker of `before`: its replicas and leaders, before and after."""
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
    """Return one row per snapshot: its name, under-replicated and offline partitions, racks of the narrowest one."""
    return [
        (name, str(under_replicated(snapshot)), str(_offline(snapshot)), str(_narrowest(snapshot)))
        for name, snapshot in moments
    ]


def trail_rows(trail: Sequence[StoredAuditRecord]) -> list[tuple[str, ...]]:
    """Return the audit trail in its order; consecutive rows of one operation are merged into one line."""
    together = groupby(trail, key=lambda row: (row.entry.action, row.outcome, row.entry.who, row.entry.broker is None))
    return [_trail_row(list(rows)) for _, rows in together]


def under_replicated(snapshot: Snapshot) -> int:
    """Return the number of partitions that have fewer in-sync replicas than assigned ones."""
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


def _trail_row(rows: Sequence[StoredAuditRecord]) -> tuple[str, ...]:
    first = rows[0]
    when = datetime.fromtimestamp(first.when_ms / 1000, tz=timezone.utc)
    others = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    return (
        when.strftime("%H:%M:%S"),
        first.entry.action.value,
        _what(first.entry) + others,
        first.outcome.value,
        first.entry.reason,
        str(first.entry.who),
    )


def _what(entry: AuditRecord) -> str:
    if entry.topic is not None:
        change = f" {_text(entry.before)} → {_text(entry.after)}" if isinstance(entry.after, list) else ""
        return f"{entry.topic}-{entry.partition}{change}"
    return f"broker {entry.broker}" if entry.broker is not None else "the plan" if entry.plan else "the cluster"


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
