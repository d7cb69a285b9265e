"""Inputs of preflight, read from the cluster and from the announcements in the journal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import BrokerLogDirs, Partition, Snapshot
from kafka_steward.execution.moves import OPEN
from kafka_steward.execution.ports import ClusterContext, ClusterPort
from kafka_steward.execution.preflight import (
    IncomingReplica,
    PreflightInputs,
    compute_rooms,
    find_out_of_sync_elsewhere,
    find_under_min_isr_elsewhere,
)
from kafka_steward.execution.publishing import is_approved
from kafka_steward.execution.readiness import announced_restarts, disabled_reason
from kafka_steward.journal.locks import Fence
from kafka_steward.journal.records import MoveRow, MoveState, PlanRecord
from kafka_steward.journal.tree import Tree

_MIN_ISR = "min.insync.replicas"
#: Topics whose settings are read between two checks of the step lock.
_TOPICS = 1000


def load_preflight_inputs(
    context: ClusterContext,
    record: PlanRecord,
    rows: Sequence[MoveRow],
    snapshot: Snapshot,
    log_dirs: Mapping[int, BrokerLogDirs],
    *,
    fence: Fence,
) -> PreflightInputs:
    """Return the preflight inputs for `rows`, the moves of a plan. May raise ClusterError, JournalError, LockLost."""
    cluster, journal = context.cluster, context.journal
    min_isr = _fetch_min_isr(cluster, rows, snapshot, fence)
    in_flight = [row for row in rows if row.state is MoveState.SUBMITTED]
    waiting = [row for row in rows if row.state in OPEN]
    beside = _other_arrivals(in_flight, snapshot, log_dirs.keys())
    copied = [row.topic_partition for row in (*in_flight, *waiting) if row.move.adding]
    sizes = _fetch_partition_sizes(cluster, [*copied, *beside], snapshot, log_dirs)
    receiving = frozenset(broker for row in waiting for broker in row.move.adding)
    unapproved = record.needs_approval and not is_approved(journal, record.digest)
    arriving = _incoming_replicas(in_flight, beside, log_dirs, sizes)
    return PreflightInputs(
        snapshot,
        auto_generated=record.auto_generated,
        disabled="" if record.even_if_disabled else disabled_reason(journal.tree),
        unapproved=record.digest[:12] if unapproved else "",
        bouncing=restarting_brokers(journal.tree, fence.now_ms),
        min_isr=min_isr,
        sizes=sizes,
        rooms=compute_rooms(log_dirs, min_free=context.settings.min_free, arriving=arriving),
        silent=(receiving & snapshot.live) - log_dirs.keys(),
        cordoned=frozenset(broker for broker, dirs in log_dirs.items() if dirs.cordoned),
        under_min_isr_elsewhere=find_under_min_isr_elsewhere(snapshot, (row.topic_partition for row in rows), min_isr),
        out_of_sync_elsewhere=find_out_of_sync_elsewhere(snapshot, (row.topic_partition for row in rows)),
        left_bytes=_left_bytes(arriving),
    )


def restarting_brokers(tree: Tree, now_ms: int) -> frozenset[int]:
    """Return the brokers that announced a shutdown (KIP-46), as long as the announcement applies."""
    return frozenset(broker for broker, bounce in announced_restarts(tree).items() if bounce.is_in_effect(now_ms))


def _fetch_min_isr(cluster: ClusterPort, rows: Sequence[MoveRow], snapshot: Snapshot, fence: Fence) -> dict[str, int]:
    """Return min.insync.replicas, by topic.

    The topics are those with moves that may still begin, and those with a replica out of the ISR.
    """
    topics = {row.move.topic for row in rows if row.state in OPEN} - snapshot.hidden
    topics |= {name.topic for name, each in snapshot.partitions.items() if len(each.isr) < len(each.replicas)}
    asked = sorted(topics)
    found: dict[str, int] = {}
    for start in range(0, len(asked), _TOPICS):
        # Reading a hundred thousand topics takes longer than the lifetime of the step lock: the check renews it.
        fence.check()
        values = cluster.topic_configs(asked[start : start + _TOPICS], [_MIN_ISR])
        found |= {topic: int(of[_MIN_ISR]) for topic, of in values.items() if _MIN_ISR in of}
    return found


def _fetch_partition_sizes(
    cluster: ClusterPort, copied: Iterable[TopicPartition], snapshot: Snapshot, log_dirs: Mapping[int, BrokerLogDirs]
) -> dict[TopicPartition, int]:
    """Return the sizes of the partitions whose data is copied, as reported by their leaders.

    A partition whose leader does not report the size is left out.
    """
    led: dict[int, list[TopicPartition]] = {}
    for name in copied:
        partition = snapshot.partitions.get(name)
        if partition is not None and partition.leader is not None:
            led.setdefault(partition.leader, []).append(name)
    told = cluster.log_sizes({leader: names for leader, names in led.items() if leader not in log_dirs})
    known = {
        name: log_dirs[leader].replica_bytes[name]
        for leader, names in led.items()
        if leader in log_dirs
        for name in names
        if name in log_dirs[leader].replica_bytes
    }
    return known | {name: size for (name, _), size in told.items()}


def _other_arrivals(
    in_flight: Sequence[MoveRow], snapshot: Snapshot, brokers: Collection[int]
) -> dict[TopicPartition, Partition]:
    """Return the partitions with a replica in transfer to `brokers` that other plans or other tools have submitted."""
    own = {row.topic_partition for row in in_flight}
    return {
        name: partition
        for name, partition in snapshot.reassigning.items()
        if name not in own and not set(brokers).isdisjoint(partition.adding)
    }


def _left_bytes(arriving: Mapping[int, Sequence[IncomingReplica]]) -> dict[TopicPartition, int]:
    """Return the most bytes that each partition has yet to copy to one broker."""
    found: dict[TopicPartition, int] = {}
    for several in arriving.values():
        for each in several:
            found[each.partition] = max(each.left_bytes, found.get(each.partition, 0))
    return found


def _incoming_replicas(
    in_flight: Sequence[MoveRow],
    beside: Mapping[TopicPartition, Partition],
    log_dirs: Mapping[int, BrokerLogDirs],
    sizes: Mapping[TopicPartition, int],
) -> dict[int, list[IncomingReplica]]:
    """Return the replicas in transfer to each broker, with the bytes that have not arrived yet.

    If the leader does not report the size, the size at planning is used. If that was unknown too, the largest known
    size is used.
    """
    largest = max(sizes.values(), default=0)
    transfers = [
        *((row.topic_partition, row.move.adding, row.move.size_bytes) for row in in_flight),
        *((name, frozenset(partition.adding), None) for name, partition in beside.items()),
    ]
    found: dict[int, list[IncomingReplica]] = {}
    for name, adding, planned in transfers:
        size = sizes.get(name, largest if planned is None else planned)
        for broker in sorted(adding & log_dirs.keys()):
            left_bytes = max(0, size - log_dirs[broker].replica_bytes.get(name, 0))
            found.setdefault(broker, []).append(IncomingReplica(name, left_bytes))
    return found
