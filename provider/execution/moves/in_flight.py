"""KIP-236's `/admin/reassignments/<topic>/<partition>`: the moves in flight and their originals, for the rollback.

A node's created id identifies the reassignment for its whole lifetime. When the target changes, the node is changed and
not re-created, so that a differing modified id indicates the change.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from kafka_steward.assignment import Assignment, Move, TopicPartition
from kafka_steward.errors import DocumentError
from kafka_steward.journal import paths
from kafka_steward.journal.kip_documents import InFlight
from kafka_steward.journal.mailbox import Mailbox, Node, put_one, read_one
from kafka_steward.journal.records import IN_FLIGHT
from kafka_steward.journal.store import Journal


def record_in_flight(mailbox: Mailbox, plan: str, moves: Sequence[Move]) -> None:
    """Record moves that are about to be submitted. The records of a crashed step are written again."""
    wanted = {
        move.topic_partition: InFlight(move.before, move.after, top=len(move.before), plan=plan) for move in moves
    }
    documents = {paths.reassignment(partition): record.to_json() for partition, record in wanted.items()}
    # In one request, which shows what exists already: nearly always nothing.
    created = mailbox.put(documents)
    there = [partition for partition in wanted if paths.reassignment(partition) not in created]
    for partition, (node, known) in zip(there, _read_records(mailbox, there), strict=True):
        kept = known is not None and known.plan == plan
        record = replace(wanted[partition], legacy=known.legacy) if kept and known else wanted[partition]
        _write_record(mailbox, partition, node, record.to_json())


def retarget_in_flight(mailbox: Mailbox, source: str, partition: TopicPartition, target: Assignment) -> None:
    """Assign an in-flight reassignment to the request at `source`, which asks for another target.

    It belongs to that request until a plan takes it over.
    """
    node, known = _read_record(mailbox, partition)
    if node is not None and known is not None and known.plan != source:
        _write_record(mailbox, partition, node, replace(known, replicas=target, plan=source).to_json())


def flag_in_flight_legacy(mailbox: Mailbox, plan: str) -> None:
    """Mark everything that a plan has in flight as submitted through the legacy znode."""
    for entry in IN_FLIGHT.list_valid(mailbox):
        if entry.document.plan == plan and not entry.document.legacy:
            flagged = replace(entry.document, legacy=True)
            _write_record(mailbox, TopicPartition(*entry.key), entry.node, flagged.to_json())


def record_external_in_flight(mailbox: Mailbox, partition: TopicPartition, document: InFlight) -> None:
    """Record an external reassignment in flight, unless the partition has a record already."""
    if read_one(mailbox, paths.reassignment(partition)) is None:
        _write_record(mailbox, partition, None, document.to_json())


def update_external_in_flight(mailbox: Mailbox, partition: TopicPartition, target: Assignment) -> None:
    """Change the target in the record of an external reassignment; its originals are those of the first one."""
    node, known = _read_record(mailbox, partition)
    if node is not None and known is not None and known.plan is None:
        _write_record(mailbox, partition, node, replace(known, replicas=target).to_json())


def is_unknown_plan(journal: Journal, plan: str) -> bool:
    """Return whether `plan`, which a record names, is a plan that the journal does not know, and no request."""
    return paths.is_digest(plan) and journal.plans.get(plan) is None


def disown_in_flight(mailbox: Mailbox, plan: str, partitions: Collection[TopicPartition]) -> None:
    """Make those records of a plan external that are of these partitions; their originals stay recorded.

    That is for a plan that the journal does not know, because an older copy of its database was restored.
    """
    for entry in IN_FLIGHT.list_valid(mailbox):
        partition = TopicPartition(*entry.key)
        if entry.document.plan == plan and partition in partitions:
            _write_record(mailbox, partition, entry.node, replace(entry.document, plan=None).to_json())


def delete_in_flight(mailbox: Mailbox, plan: str | None, partitions: Sequence[TopicPartition]) -> None:
    """Delete the records of these partitions if they belong to `plan`; None stands for records without a plan.

    Missing records are ignored, and so are those that are changed externally in between.
    """
    records = _read_records(mailbox, partitions)
    mine = [node for node, known in records if node is not None and known is not None and known.plan == plan]
    mailbox.delete(mine)


def list_in_flight(mailbox: Mailbox) -> dict[TopicPartition, InFlight]:
    """Return all in-flight records by partition; unreadable records are left out."""
    return {TopicPartition(*entry.key): entry.document for entry in IN_FLIGHT.list_valid(mailbox)}


def read_owners(mailbox: Mailbox, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, str | None]:
    """Return the plan that each of these partitions' records names; a partition without a record is left out."""
    records = zip(partitions, _read_records(mailbox, partitions), strict=True)
    return {partition: known.plan for partition, (_, known) in records if known is not None}


def list_in_flight_plans(mailbox: Mailbox) -> dict[TopicPartition, str | None]:
    """Return every partition with an in-flight record and the plan that wrote it; None for external reassignments."""
    return {partition: document.plan for partition, document in list_in_flight(mailbox).items()}


def _read_record(mailbox: Mailbox, partition: TopicPartition) -> tuple[Node | None, InFlight | None]:
    return _read_records(mailbox, [partition])[0]


def _read_records(mailbox: Mailbox, partitions: Sequence[TopicPartition]) -> list[tuple[Node | None, InFlight | None]]:
    nodes = mailbox.read([paths.reassignment(partition) for partition in partitions]) if partitions else []
    return [(node, _parse_record(node)) for node in nodes]


def _parse_record(node: Node | None) -> InFlight | None:
    try:
        return None if node is None else InFlight.from_node(node)
    except DocumentError:
        return None  # the watch quarantines it


def _write_record(mailbox: Mailbox, partition: TopicPartition, node: Node | None, text: str) -> None:
    if node is None or node.data != text:
        # A conflict with a concurrent write is left to the next step.
        put_one(mailbox, paths.reassignment(partition), text, node)
