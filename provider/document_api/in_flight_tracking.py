"""Keeps KIP-236's in-flight records equal to the reassignments in flight, external ones included.

Our plans write the records of their moves and delete them. The watch does so for every other reassignment: those that
began through the Admin API, and those that Kafka took from `/admin/reassign_partitions`. It also restores a record of
ours that was deleted externally. Topics that we may not describe are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.errors import DocumentError
from kafka_steward.execution.moves.in_flight import (
    delete_in_flight,
    list_in_flight,
    record_external_in_flight,
    record_in_flight,
    update_external_in_flight,
)
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.journal import paths
from kafka_steward.journal.kip_documents import InFlight, Request
from kafka_steward.journal.mailbox import read_one
from kafka_steward.journal.records import MoveState, PlanRecord
from kafka_steward.journal.store import Journal


def sweep_external_records(cluster: ClusterPort, journal: Journal) -> None:
    """Delete the records that no plan owns and whose reassignment is not in flight any more.

    A reassignment that `/admin/reassign_partitions` names may not have started yet: its record stays. So do all records
    while a cancel signal is being executed, which needs their originals. Raises ClusterError, JournalError.
    """
    recorded = [name for name, document in list_in_flight(journal.mailbox).items() if document.plan is None]
    if not recorded or read_one(journal.mailbox, paths.CANCEL_IN_PROGRESS) is not None:
        return
    named = _legacy_partitions(journal)
    snapshot = cluster.snapshot(sorted({name.topic for name in recorded}))
    ended = [name for name in recorded if name not in named and name not in snapshot.reassigning]
    delete_in_flight(journal.mailbox, None, [name for name in ended if name.topic not in snapshot.hidden])


def record_unrecorded(cluster: ClusterPort, journal: Journal, plans: Sequence[PlanRecord]) -> None:
    """Record each reassignment in flight that has no record, or whose record names another target.

    `plans` are the unfinished plans: what one of them has in flight gets the record that the plan would write.
    Raises ClusterError, JournalError.
    """
    listed = cluster.reassignments()
    recorded = list_in_flight(journal.mailbox)
    changed = [name for name, partition in listed.items() if _differs(recorded.get(name), partition.target)]
    if not changed:
        return
    snapshot = cluster.snapshot(sorted({name.topic for name in changed}))
    ours = _submitted_moves(journal, plans) if any(name not in recorded for name in changed) else {}
    for name in changed:
        partition = snapshot.partitions.get(name)
        if partition is None or not partition.reassigning:
            continue  # hidden, deleted, or complete by now
        if name in recorded:
            update_external_in_flight(journal.mailbox, name, partition.target)
        elif name in ours:
            plan, move = ours[name]
            record_in_flight(journal.mailbox, plan, [move])
        else:
            record_external_in_flight(
                journal.mailbox, name, InFlight(partition.original, partition.target, top=len(partition.original))
            )


def _differs(recorded: InFlight | None, target: tuple[int, ...]) -> bool:
    """Return whether there is no record, or one that no plan owns and that names another target."""
    return recorded is None or (recorded.plan is None and recorded.replicas != target)


def _submitted_moves(journal: Journal, plans: Sequence[PlanRecord]) -> Mapping[TopicPartition, tuple[str, Move]]:
    rows = ((plan.digest, row) for plan in plans for row in journal.plans.existing_rows(plan.digest))
    return {row.topic_partition: (digest, row.move) for digest, row in rows if row.state is MoveState.SUBMITTED}


def _legacy_partitions(journal: Journal) -> frozenset[TopicPartition]:
    node = read_one(journal.mailbox, paths.REASSIGN_PARTITIONS)
    try:
        return frozenset(
            entry.topic_partition for entry in (() if node is None else Request.from_node(node).partitions)
        )
    except DocumentError:
        return frozenset()  # Kafka's own reader cannot read it either
