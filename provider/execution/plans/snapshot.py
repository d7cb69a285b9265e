"""Export of the cluster's state to a snapshot folder, which the planner reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from kafka_steward.assignment import Move, TopicPartition, name_brokers
from kafka_steward.cluster.state import BrokerLogDirs, Partition, Snapshot
from kafka_steward.execution.cluster_queries import min_isr_by_topic, refuse_hidden_topics
from kafka_steward.execution.demotions import Demotions
from kafka_steward.execution.moves.preflight import IncomingReplica, compute_rooms
from kafka_steward.execution.moves.staging import stage_reached
from kafka_steward.execution.moves.states import filter_unsettled
from kafka_steward.execution.plans.report import refuse_invalid_drain
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.execution.tiered import read_copied_shares
from kafka_steward.journal.observed import PartitionRate
from kafka_steward.journal.store import Journal
from kafka_steward.planning.files.formats import SNAPSHOT_BROKERS, SNAPSHOT_PARTITIONS, write_snapshot
from kafka_steward.service_topics import SERVICE_TOPICS


def take_snapshot(
    cluster: ClusterPort,
    uri: str,
    *,
    failed: Collection[int],
    now_ms: int,
    draining: Collection[int] = (),
    targets: Mapping[TopicPartition, int] | None = None,
    begun: Mapping[TopicPartition, Move] | None = None,
    failed_disks_of: Collection[int] = (),
    capacities: Mapping[int, float] | None = None,
    service_topics: Sequence[str] = SERVICE_TOPICS,
    racks: Mapping[int, str] | None = None,
    rates: Mapping[TopicPartition, PartitionRate] | None = None,
    min_free: float = 0.0,
    demotions: Demotions | None = None,
) -> str:
    """Write the current state of the cluster to the folder `uri`; return the digest.

    `failed` are the brokers to heal, as determined by the detector. Those of them that are live count as live; of those
    in `failed_disks_of`, the replicas in failed log directories are to be replaced. `targets` are the intended
    replication factors of partitions that have another one (KIP-409). `draining` are live brokers that are to be
    emptied. `begun` are moves that other plans have started and not ended: a partition at rest between two of their
    stages counts as moving, so that no plan is made with the replicas of both sides. `capacities` are those of brokers
    that are to hold more or less than others, which have 1. A broker that hosts nothing but `service_topics` is new.
    `racks` are the last known ones: those of dead brokers, which Kafka forgets with ZooKeeper, are taken from there.
    `rates` are what producers bring into partitions. `min_free` is the fraction of each log directory's volume that
    must stay free. `demotions` are those in effect.
    Raises ClusterError; RequestError for brokers that cannot be drained, or for all of them, and for topics that the
    brokers host and Kafka does not let us describe; PlanError when the workspace cannot be written.
    """
    snapshot = cluster.snapshot()
    refuse_invalid_drain(snapshot, draining)
    log_dirs = cluster.log_dirs(sorted(snapshot.live))
    refuse_hidden_topics(cluster, snapshot, log_dirs)
    min_isr = min_isr_by_topic(cluster, {name.topic for name in snapshot.partitions})
    shares = read_copied_shares(cluster, snapshot)
    numbers = _directory_numbers(log_dirs)
    partitions = [
        _partition_row(partition, snapshot.live, log_dirs, min_isr, shares)
        | {"log_dirs": _directories_of(partition, numbers)}
        | _target_columns(partition, targets or {}, begun or {})
        | {"order_before": demotions.order_before(partition) if demotions else None}
        | _rate_column(partition, (rates or {}).get(name))
        for name, partition in sorted(snapshot.partitions.items())
    ]
    disks = {broker: _disk_columns(broker, of, snapshot, log_dirs, min_free) for broker, of in log_dirs.items()}
    states = _broker_states(snapshot, failed, draining, service_topics)
    rack_of = {**(racks or {}), **{broker.id: broker.rack for broker in snapshot.brokers.values()}}
    demoted = demotions.brokers if demotions else frozenset()
    if failed_disks_of:
        partitions = [row | {"offline": _offline_replicas(row, snapshot, failed_disks_of)} for row in partitions]
    return write_snapshot(
        uri,
        cluster_id=snapshot.cluster_id,
        taken_ms=now_ms,
        brokers=pa.Table.from_pylist(_broker_rows(rack_of, disks, states, capacities or {}, demoted), SNAPSHOT_BROKERS),
        partitions=pa.Table.from_pylist(partitions, SNAPSHOT_PARTITIONS),
    )


def started_moves(journal: Journal) -> dict[TopicPartition, Move]:
    """Return the moves that unfinished plans have started and not ended. Raises JournalError."""
    plans = [journal.plans.rows(record.digest) for record in journal.plans.unfinished()]
    return {row.topic_partition: row.move for rows in plans for row in filter_unsettled(rows) if row.attempt}


def unknown_racks_message(snapshot: Snapshot, failed: Collection[int], racks: Mapping[int, str]) -> str:
    """Return a message that names the failed brokers whose racks neither Kafka nor `racks` knows; else empty. Pure."""
    unknown = sorted(set(failed) - snapshot.brokers.keys() - racks.keys())
    if not unknown or not any(broker.rack for broker in snapshot.brokers.values()):
        return ""
    what, it = ("rack of {} is", "it") if len(unknown) == 1 else ("racks of {} are", "them")
    return (
        f"The {what.format(name_brokers(unknown))} not known: Kafka has forgotten {it}, and no watch has observed {it}."
        " Whether all brokers of a rack are down cannot be told."
    )


def _broker_rows(
    racks: Mapping[int, str | None],
    disks: Mapping[int, Mapping[str, Any]],
    states: Mapping[int, str],
    capacities: Mapping[int, float],
    demoted: Collection[int],
) -> list[dict[str, Any]]:
    """Return a row for each broker in `states`."""
    return [
        {
            "broker": broker,
            "rack": racks.get(broker),
            "state": state,
            "capacity": capacities.get(broker, 1.0) if capacities else None,
            "demoted": broker in demoted or None,
            **disks.get(broker, {}),
        }
        for broker, state in states.items()
    ]


def _disk_columns(
    broker: int, dirs: BrokerLogDirs, snapshot: Snapshot, log_dirs: Mapping[int, BrokerLogDirs], min_free: float
) -> dict[str, Any]:
    """Return the columns of a broker about its log directories; one that takes no replicas has no room.

    Their room is not known before Kafka 3.3. The replicas that a broker is receiving take theirs.
    """
    flags = {"cordoned": dirs.cordoned or None, "disk_failed": bool(dirs.failed_paths) or None}
    arriving = [
        IncomingReplica(name, max(0, size - dirs.replica_bytes.get(name, 0)))
        for name, partition in sorted(snapshot.reassigning.items())
        if broker in partition.adding and (size := _partition_size(partition, log_dirs)) is not None
    ]
    rooms = compute_rooms({broker: dirs}, min_free=min_free, arriving={broker: arriving}).get(broker)
    if rooms is None:
        return flags
    taking = [directory for directory in dirs.directories if directory.takes_replicas]
    closed = len(dirs.directories) - len(taking)
    total = [directory.total_bytes or 0 for directory in taking]
    used = [(directory.total_bytes or 0) - (directory.usable_bytes or 0) for directory in taking]
    room = [max(of.free_bytes, 0) for of in rooms]
    return {**flags, "room": room + [0] * closed, "disk_total": total, "disk_used": used}


def _directory_numbers(log_dirs: Mapping[int, BrokerLogDirs]) -> dict[int, dict[TopicPartition, int]]:
    """Return, for each broker with several log directories, which of those that take replicas each replica is in."""
    return {
        broker: {
            name: number
            for number, directory in enumerate(each for each in dirs.directories if each.takes_replicas)
            for name in directory.replica_bytes
        }
        for broker, dirs in log_dirs.items()
        if len(dirs.directories) > 1
    }


def _directories_of(partition: Partition, numbers: Mapping[int, Mapping[TopicPartition, int]]) -> list[int] | None:
    if numbers.keys().isdisjoint(partition.replicas):
        return None
    return [
        numbers[broker].get(partition.topic_partition, -1) if broker in numbers else 0 for broker in partition.replicas
    ]


def _broker_states(
    snapshot: Snapshot, failed: Collection[int], draining: Collection[int], service_topics: Sequence[str]
) -> dict[int, str]:
    """Return the state of each broker that is live or has replicas, sorted by broker."""
    hosting = snapshot.hosting_besides(service_topics)
    states = {broker: "live" if broker in hosting else "new" for broker in snapshot.live}
    dead = snapshot.hosting_brokers - snapshot.live
    states |= {broker: "failed" if broker in failed else "down" for broker in dead}
    return dict(sorted({**states, **dict.fromkeys(draining, "draining")}.items()))


def _target_columns(
    partition: Partition, targets: Mapping[TopicPartition, int], begun: Mapping[TopicPartition, Move]
) -> dict[str, Any]:
    """Return the columns that differ for a partition with another target.

    At rest between two stages of a move, it has the columns that it will have once the next stage has started.
    """
    move = begun.get(partition.topic_partition)
    if move is not None and not partition.adding and stage_reached(move, partition.replicas):
        adding = [broker for broker in partition.replicas if broker in move.adding]
        return {"adding": adding, "target_rf": len(move.before)}
    target = targets.get(partition.topic_partition)
    return {} if target is None else {"target_rf": target}


def _rate_column(partition: Partition, rate: PartitionRate | None) -> dict[str, Any]:
    """Return the column of a known rate, unless it is that of a topic of this name that was deleted."""
    return {"bytes_per_s": rate.bytes_per_s} if rate is not None and rate.topic_id == partition.topic_id else {}


def _partition_row(
    partition: Partition,
    live: Collection[int],
    log_dirs: Mapping[int, BrokerLogDirs],
    min_isr: Mapping[str, int],
    shares: Mapping[TopicPartition, float],
) -> dict[str, Any]:
    size = _partition_size(partition, log_dirs)
    return {
        "topic": partition.topic,
        "topic_id": partition.topic_id,
        "partition": partition.partition,
        "replicas": list(partition.replicas),
        # Without a leader, those that may lead without a loss are as good as in sync.
        "isr": sorted(partition.isr | (partition.eligible if partition.leader is None else frozenset())),
        "leader": -1 if partition.leader is None else partition.leader,
        "adding": list(partition.adding) or None,
        "removing": list(partition.removing) or None,
        "target_rf": len(set(partition.replicas) - set(partition.adding)),
        "min_isr": min_isr.get(partition.topic),
        "bytes": None if size is None else round(size * shares.get(partition.topic_partition, 1)),
        # Of a broker that is live, the directory of a replica may have failed.
        "all_offline": None if frozenset(live).intersection(partition.replicas) - partition.offline else True,
    }


def _offline_replicas(row: Mapping[str, Any], snapshot: Snapshot, brokers: Collection[int]) -> list[int] | None:
    """Return the offline replicas of a partition on those of `brokers` that are live; None if there are none."""
    partition = snapshot.partitions[TopicPartition(row["topic"], row["partition"])]
    return sorted(partition.offline & snapshot.live & frozenset(brokers) & frozenset(partition.replicas)) or None


def _partition_size(partition: Partition, log_dirs: Mapping[int, BrokerLogDirs]) -> int | None:
    """Return the size on the leader; without one, the largest that a replica reports."""
    facts = {
        broker: log_dirs[broker].replica_bytes[partition.topic_partition]
        for broker in partition.replicas
        if broker in log_dirs and partition.topic_partition in log_dirs[broker].replica_bytes
    }
    if partition.leader in facts:
        return facts[partition.leader]
    return max(facts.values(), default=None)
