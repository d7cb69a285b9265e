"""Export of the cluster's state to a snapshot folder, which the planner reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.cluster.state import LogDir, Partition, Snapshot
from kafka_steward.execution.moves import unsettled
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.execution.replication_status import refuse_wrong_drain
from kafka_steward.execution.staging import stage_reached
from kafka_steward.execution.visibility import refuse_hidden
from kafka_steward.journal.store import Journal
from kafka_steward.planning.files.formats import SNAPSHOT_BROKERS, SNAPSHOT_PARTITIONS, write_snapshot

_MIN_ISR = "min.insync.replicas"


def take_snapshot(
    cluster: ClusterPort,
    uri: str,
    *,
    failed: Collection[int],
    now_ms: int,
    draining: Collection[int] = (),
    targets: Mapping[TopicPartition, int] | None = None,
    begun: Mapping[TopicPartition, Move] | None = None,
    heal_failed_disks: bool = False,
) -> str:
    """Write the current state of the cluster to the folder `uri`; return the digest.

    `failed` are the brokers to heal, as determined by the detector. Those of them that are live count as live; with
    `heal_failed_disks`, their replicas in failed log directories are to be replaced. `targets` are the intended
    replication factors of partitions that have another one (KIP-409). `draining` are live brokers that are to be
    emptied. `begun` are moves that other plans have begun and not ended: a partition at rest between two of their
    stages counts as moving, so that no plan is made with the replicas of both sides. Raises ClusterError; RequestError
    for brokers that cannot be drained, or for all of them, and for topics that the brokers host and Kafka does not let
    us describe; PlanError when the workspace cannot be written.
    """
    snapshot = cluster.snapshot()
    refuse_wrong_drain(snapshot, draining)
    log_dirs = cluster.log_dirs(sorted(snapshot.live))
    topics = sorted({name.topic for name in snapshot.partitions})
    refuse_hidden(cluster, snapshot, log_dirs)
    settings = cluster.topic_configs(topics, [_MIN_ISR]) if topics else {}
    min_isr = {topic: int(of[_MIN_ISR]) for topic, of in settings.items() if _MIN_ISR in of}
    partitions = [_moving(row, begun or {}) for row in partition_rows(snapshot, log_dirs, min_isr, targets or {})]
    if heal_failed_disks:
        partitions = [row | {"offline": _lost(row, snapshot, failed)} for row in partitions]
    return write_snapshot(
        uri,
        cluster_id=snapshot.cluster_id,
        taken_ms=now_ms,
        brokers=pa.Table.from_pylist(broker_rows(snapshot, log_dirs, failed, draining), SNAPSHOT_BROKERS),
        partitions=pa.Table.from_pylist(partitions, SNAPSHOT_PARTITIONS),
    )


def begun_moves(journal: Journal) -> dict[TopicPartition, Move]:
    """Return the moves that unfinished plans have begun and not ended. Raises JournalError."""
    plans = [journal.plans.rows(record.digest) for record in journal.plans.unfinished()]
    return {row.topic_partition: row.move for rows in plans for row in unsettled(rows) if row.attempt}


def broker_rows(
    snapshot: Snapshot, log_dirs: Mapping[int, LogDir], failed: Collection[int], draining: Collection[int] = ()
) -> list[dict[str, Any]]:
    """Return a row for each broker that is live or has replicas."""
    known = sorted(snapshot.live | snapshot.hosting)
    racks = {broker.id: broker.rack for broker in snapshot.brokers.values()}
    usable = {broker: dirs.usable_bytes for broker, dirs in log_dirs.items()}
    return [
        {
            "broker": broker,
            "rack": racks.get(broker),
            "state": "draining" if broker in draining else _state(broker, snapshot, failed),
            "capacity": None,
            "usable_bytes": usable.get(broker),
            "cordoned": True if broker in log_dirs and log_dirs[broker].cordoned else None,
        }
        for broker in known
    ]


def _state(broker: int, snapshot: Snapshot, failed: Collection[int]) -> str:
    if broker in snapshot.live:
        return "live" if broker in snapshot.hosting else "new"
    # A dead broker that has not failed yet gets no new replicas and keeps its own: a heal treats that as draining.
    return "failed" if broker in failed else "draining"


def partition_rows(
    snapshot: Snapshot,
    log_dirs: Mapping[int, LogDir],
    min_isr: Mapping[str, int],
    targets: Mapping[TopicPartition, int],
) -> list[dict[str, Any]]:
    """Return a row for each partition, in order."""
    rows = {name: _partition_row(snapshot.partitions[name], log_dirs, min_isr) for name in sorted(snapshot.partitions)}
    return [row | ({"target_rf": targets[name]} if name in targets else {}) for name, row in rows.items()]


def _moving(row: dict[str, Any], begun: Mapping[TopicPartition, Move]) -> dict[str, Any]:
    """Return the row of a partition; at rest between two stages, as if the next stage had begun already."""
    move = begun.get(TopicPartition(row["topic"], row["partition"]))
    if move is None or row["adding"] or not stage_reached(move, row["replicas"]):
        return row
    return row | {
        "adding": [broker for broker in row["replicas"] if broker in move.adding],
        "target_rf": len(move.before),
    }


def _partition_row(partition: Partition, log_dirs: Mapping[int, LogDir], min_isr: Mapping[str, int]) -> dict[str, Any]:
    return {
        "topic": partition.topic,
        "topic_id": partition.topic_id,
        "partition": partition.partition,
        "replicas": list(partition.replicas),
        "isr": sorted(partition.isr),
        "leader": -1 if partition.leader is None else partition.leader,
        "adding": list(partition.adding) or None,
        "removing": list(partition.removing) or None,
        "target_rf": len(set(partition.replicas) - set(partition.adding)),
        "min_isr": min_isr.get(partition.topic),
        "bytes": _size(partition, log_dirs),
    }


def _lost(row: Mapping[str, Any], snapshot: Snapshot, failed: Collection[int]) -> list[int] | None:
    """Return the offline replicas of a partition on the live brokers of `failed`; None if there are none."""
    partition = snapshot.partitions[TopicPartition(row["topic"], row["partition"])]
    return sorted(partition.offline & snapshot.live & frozenset(failed) & frozenset(partition.replicas)) or None


def _size(partition: Partition, log_dirs: Mapping[int, LogDir]) -> int | None:
    """Return the size on the leader; without one, the largest that a replica reports."""
    facts = {
        broker: log_dirs[broker].replica_bytes[partition.topic_partition]
        for broker in partition.replicas
        if broker in log_dirs and partition.topic_partition in log_dirs[broker].replica_bytes
    }
    if partition.leader in facts:
        return facts[partition.leader]
    return max(facts.values(), default=None)
