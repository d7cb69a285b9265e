"""KIP-236's `/admin/reassignments/<topic>/<partition>`: the moves in flight and their originals, for the rollback.

A node's created id identifies the reassignment for its whole lifetime. When the target changes, the node is changed and
not re-created, so that a differing modified id indicates the change.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from kafka_steward.assignment import Assignment, Move, TopicPartition
from kafka_steward.errors import DocumentError
from kafka_steward.journal import paths
from kafka_steward.journal.kip_documents import InFlight
from kafka_steward.journal.listing import ListedDocument
from kafka_steward.journal.mailbox import Mailbox, Node
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
    known = _read_records(mailbox, there)
    flagged = {
        partition: replace(wanted[partition], legacy=found.legacy)
        for partition, (_, found) in known.items()
        if found is not None and found.plan == plan
    }
    _write_records(mailbox, {partition: flagged.get(partition, wanted[partition]) for partition in there}, known)


def repair_in_flight(
    mailbox: Mailbox, moves: Mapping[str, Sequence[Move]], legacy: Collection[str] = (), *, seen: Collection[Node]
) -> list[Node]:
    """Write the records of submitted moves, by plan, as their plans do; `seen` are those that may say something else.

    The plans in `legacy` were requested through the legacy znode. Returns the repaired records as they were before.
    """
    wanted = {
        paths.reassignment(move.topic_partition): InFlight(
            move.before, move.after, top=len(move.before), plan=plan, legacy=plan in legacy
        ).to_json()
        for plan, of_plan in moves.items()
        for move in of_plan
    }
    differing = [node for node in seen if node.path in wanted and node.data != wanted[node.path]]
    written = mailbox.put({node.path: wanted[node.path] for node in differing}, differing)
    return [node for node in differing if node.path in written]


def retarget_in_flight(mailbox: Mailbox, source: str, targets: Mapping[TopicPartition, Assignment]) -> None:
    """Assign reassignments in flight to the request at `source`, which asks for other targets.

    They belong to that request until a plan takes them over.
    """
    known = _read_records(mailbox, list(targets))
    changed = {
        partition: replace(found, replicas=targets[partition], plan=source)
        for partition, (_, found) in known.items()
        if found is not None and found.plan != source
    }
    _write_records(mailbox, changed, known)


def flag_in_flight_legacy(mailbox: Mailbox, plan: str) -> None:
    """Mark everything that a plan has in flight as submitted through the legacy znode."""
    _write_entries(
        mailbox,
        [
            (entry, replace(entry.document, legacy=True))
            for entry in IN_FLIGHT.list_valid(mailbox)
            if entry.document.plan == plan and not entry.document.legacy
        ],
    )


def record_external_in_flight(mailbox: Mailbox, documents: Mapping[TopicPartition, InFlight]) -> None:
    """Record external reassignments in flight; a partition that has a record already keeps it."""
    mailbox.put({paths.reassignment(partition): document.to_json() for partition, document in documents.items()})


def update_external_in_flight(mailbox: Mailbox, targets: Mapping[TopicPartition, Assignment]) -> None:
    """Change the targets in the records of external reassignments; their originals are those of the first ones."""
    known = _read_records(mailbox, list(targets))
    changed = {
        partition: replace(found, replicas=targets[partition])
        for partition, (_, found) in known.items()
        if found is not None and found.plan is None
    }
    _write_records(mailbox, changed, known)


def is_unknown_plan(journal: Journal, plan: str) -> bool:
    """Return whether `plan`, which a record names, is a plan that the journal does not know, and no request."""
    return paths.is_digest(plan) and journal.plans.get(plan) is None


def disown_in_flight(mailbox: Mailbox, plan: str, partitions: Collection[TopicPartition]) -> None:
    """Make those records of a plan external that are of these partitions; their originals stay recorded.

    That is for a plan that the journal does not know, because an older copy of its database was restored.
    """
    _write_entries(
        mailbox,
        [
            (entry, replace(entry.document, plan=None))
            for entry in IN_FLIGHT.list_valid(mailbox)
            if entry.document.plan == plan and TopicPartition(*entry.key) in partitions
        ],
    )


def delete_in_flight(mailbox: Mailbox, plan: str | None, partitions: Sequence[TopicPartition]) -> None:
    """Delete the records of these partitions if they belong to `plan`; None stands for records without a plan.

    Missing records are ignored, and so are those that are changed externally in between.
    """
    records = _read_records(mailbox, partitions).values()
    mine = [node for node, known in records if node is not None and known is not None and known.plan == plan]
    mailbox.delete(mine)


def list_in_flight(mailbox: Mailbox) -> dict[TopicPartition, InFlight]:
    """Return all in-flight records by partition; unreadable records are left out."""
    return {TopicPartition(*entry.key): entry.document for entry in IN_FLIGHT.list_valid(mailbox)}


def read_owners(mailbox: Mailbox, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, str | None]:
    """Return the plan that each of these partitions' records names; a partition without a record is left out."""
    records = _read_records(mailbox, partitions)
    return {partition: known.plan for partition, (_, known) in records.items() if known is not None}


def list_in_flight_plans(mailbox: Mailbox) -> dict[TopicPartition, str | None]:
    """Return every partition with an in-flight record and the plan that wrote it; None for external reassignments."""
    return {partition: document.plan for partition, document in list_in_flight(mailbox).items()}


def _read_records(
    mailbox: Mailbox, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, tuple[Node | None, InFlight | None]]:
    nodes = mailbox.read([paths.reassignment(partition) for partition in partitions]) if partitions else []
    return {partition: (node, _parse_record(node)) for partition, node in zip(partitions, nodes, strict=True)}


def _parse_record(node: Node | None) -> InFlight | None:
    try:
        return None if node is None else InFlight.from_node(node)
    except DocumentError:
        return None  # the watch quarantines it


def _write_records(
    mailbox: Mailbox,
    records: Mapping[TopicPartition, InFlight],
    known: Mapping[TopicPartition, tuple[Node | None, InFlight | None]],
) -> None:
    """Write these records in one request over the nodes that were read; what is as wanted is left as it is."""
    seen = {partition: known[partition][0] for partition in records}
    texts = {partition: record.to_json() for partition, record in records.items()}
    wanted = {name: text for name, text in texts.items() if (node := seen[name]) is None or node.data != text}
    nodes = [node for name in wanted if (node := seen[name]) is not None]
    # A conflict with a concurrent write is left to the next step.
    mailbox.put({paths.reassignment(name): text for name, text in wanted.items()}, nodes)


def _write_entries(mailbox: Mailbox, changed: Sequence[tuple[ListedDocument[InFlight], InFlight]]) -> None:
    texts = {entry.node.path: document.to_json() for entry, document in changed}
    mailbox.put(texts, [entry.node for entry, _ in changed])
