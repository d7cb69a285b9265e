"""Reads what preflight must know, from the cluster and from what was announced in the journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from kafka_steward.cluster.state import LogDir, Snapshot
from kafka_steward.execution.bouncing import bounces
from kafka_steward.execution.decisions.moves import OPEN
from kafka_steward.execution.decisions.outlook import Outlook, room_bytes, strained
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.execution.switch import why_off
from kafka_steward.journal.moves import MoveRow, MoveState
from kafka_steward.journal.open import Journal
from kafka_steward.journal.tree import Tree

__all__ = ["bouncing_brokers", "look_out"]

_MIN_ISR = "min.insync.replicas"


def look_out(
    cluster: ClusterPort,
    journal: Journal,
    rows: Sequence[MoveRow],
    snapshot: Snapshot,
    log_dirs: Mapping[int, LogDir],
    *,
    auto_generated: bool,
    min_free: float,
) -> Outlook:
    """The outlook for the moves of `rows`. May raise ClusterError, JournalError."""
    min_isr = _min_isr(cluster, rows, snapshot)
    incoming = _incoming([row for row in rows if row.state is MoveState.SUBMITTED], log_dirs)
    return Outlook(
        snapshot,
        auto_generated=auto_generated,
        disabled=why_off(journal.tree),
        bouncing=bouncing_brokers(journal.tree),
        min_isr=min_isr,
        room_bytes=room_bytes(log_dirs, min_free=min_free, incoming=incoming),
        strained=strained(snapshot, (row.topic_partition for row in rows), min_isr),
    )


def bouncing_brokers(tree: Tree) -> frozenset[int]:
    """Brokers that announced a shutdown (KIP-46), as long as the announcement holds."""
    now_ms = tree.now_ms()
    return frozenset(broker for broker, bounce in bounces(tree).items() if bounce.holds(now_ms))


def _min_isr(cluster: ClusterPort, rows: Sequence[MoveRow], snapshot: Snapshot) -> dict[str, int]:
    """min.insync.replicas of the topics that wait, and of those that miss a replica."""
    topics = {row.move.topic for row in rows if row.state in OPEN}
    topics |= {name.topic for name, each in snapshot.partitions.items() if len(each.isr) < len(each.replicas)}
    values = cluster.topic_configs(sorted(topics), [_MIN_ISR])
    return {topic: int(of[_MIN_ISR]) for topic, of in values.items() if _MIN_ISR in of}


def _incoming(flying: Sequence[MoveRow], log_dirs: Mapping[int, LogDir]) -> Mapping[int, int]:
    """Bytes that are on their way to each broker and not there yet."""
    left: Counter[int] = Counter()
    for row in flying:
        for broker in row.move.adding & log_dirs.keys():
            there = log_dirs[broker].replica_bytes.get(row.topic_partition, 0)
            left[broker] += max(0, (row.move.size_bytes or 0) - there)
    return left
