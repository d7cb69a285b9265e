"""Keeps KIP-236's in-flight records equal to the reassignments in flight, external ones included.

Our plans write the records of their moves and delete them. The watch does so for every other reassignment: those that
began through the Admin API, and those that Kafka took from `/admin/reassign_partitions`. It also restores a record of
ours that somebody deleted or changed. Topics that we may not describe are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kafka_steward.assignment import Move, TopicPartition, counted
from kafka_steward.cluster.state import Reassignment
from kafka_steward.errors import DocumentError
from kafka_steward.execution.moves.in_flight import (
    delete_in_flight,
    list_in_flight,
    record_external_in_flight,
    record_in_flight,
    repair_in_flight,
    update_external_in_flight,
)
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Actor, AuditRecord
from kafka_steward.journal.document import sanitize_text
from kafka_steward.journal.kip_documents import InFlight, Request
from kafka_steward.journal.listing import ListedDocument
from kafka_steward.journal.mailbox import Node, read_one
from kafka_steward.journal.records import IN_FLIGHT, MoveState, PlanRecord
from kafka_steward.journal.store import Journal

#: Characters that the audit trail keeps of a record that somebody changed, and the paths that it names.
_TEXT, _NAMED = 1_000, 20


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


def record_unrecorded(cluster: ClusterPort, journal: Journal, plans: Sequence[PlanRecord], who: Actor) -> list[str]:
    """Record each reassignment in flight that has no record, or whose record says something else.

    `plans` are the unfinished plans: what one of them has in flight gets the record that the plan would write. Returns
    a message if somebody had changed such a record. Raises ClusterError, JournalError.
    """
    listed = cluster.reassignments()
    recorded = {TopicPartition(*entry.key): entry for entry in IN_FLIGHT.list_valid(journal.mailbox)}
    changed = [name for name, partition in listed.items() if _may_differ(recorded.get(name), partition)]
    if not changed:
        return []
    ours = _submitted_moves(journal, plans, changed)
    moved = {move.topic_partition for moves in ours.values() for move in moves}
    for plan, moves in ours.items():
        record_in_flight(journal.mailbox, plan, [move for move in moves if move.topic_partition not in recorded])
    known = [recorded[name] for name in moved & recorded.keys()]
    repaired = repair_in_flight(
        journal.mailbox,
        ours,
        [plan.digest for plan in plans if plan.legacy],
        seen=[entry.node for entry in known if not _is_of_request(journal, entry.document)],
    )
    rest = [name for name in changed if name not in moved]
    snapshot = cluster.snapshot(sorted({name.topic for name in rest})) if rest else None
    # What is hidden, deleted or complete by now is not in flight any more.
    in_flight = {} if snapshot is None else {name: snapshot.reassigning.get(name) for name in rest}
    targets = {name: each.target for name, each in in_flight.items() if each is not None and name in recorded}
    update_external_in_flight(journal.mailbox, targets)
    record_external_in_flight(
        journal.mailbox,
        {
            name: InFlight(each.original, each.target, top=len(each.original))
            for name, each in in_flight.items()
            if each is not None and name not in recorded
        },
    )
    return _record_repairs(journal, repaired, who)


def _record_repairs(journal: Journal, repaired: Sequence[Node], who: Actor) -> list[str]:
    """Record which in-flight records of plans were repaired, and what somebody had written into the first of them.

    One row for a poll: a client that goes on to change them must not fill the audit trail.
    """
    if not repaired:
        return []
    more = f"; so were {counted(len(repaired) - 1, 'more record')}" if len(repaired) > 1 else ""
    sentence = f"{repaired[0].path} was changed by somebody else, and says again what its plan does{more}."
    before, named = sanitize_text(repaired[0].data, _TEXT), [node.path for node in repaired[:_NAMED]]
    journal.audit.record(AuditRecord(Action.REPAIR, sentence, before=before, after=named, who=who))
    return [sentence]


def _may_differ(entry: ListedDocument[InFlight] | None, shown: Reassignment) -> bool:
    """Return whether a record is missing, or may say something else than the reassignment that Kafka lists.

    One of a move in stages always may. So may one that was changed since it was created, whatever it says: Kafka shows
    neither the order of the originals nor a plan.
    """
    if entry is None:
        return True
    found = entry.document
    if found.plan is None:
        return found.replicas != shown.target or entry.node.version > 0
    return (
        entry.node.version > 0
        or found.replicas != shown.target
        or frozenset(found.original_replicas or ()) != frozenset(shown.original)
    )


def _is_of_request(journal: Journal, document: InFlight) -> bool:
    """Return whether a record belongs to a request that supersedes its plan's, and is not carried out yet."""
    plan = document.plan
    if plan is None or paths.is_digest(plan):
        return False
    try:
        return read_one(journal.mailbox, paths.validate_path(plan)) is not None
    except DocumentError:
        return False


def _submitted_moves(
    journal: Journal, plans: Sequence[PlanRecord], names: Collection[TopicPartition]
) -> dict[str, list[Move]]:
    """Return the moves of these partitions that plans have submitted, by plan."""
    rows = {plan.digest: journal.plans.rows_of(plan.digest, names) for plan in plans}
    submitted = {
        digest: [row.move for row in of_plan if row.state is MoveState.SUBMITTED] for digest, of_plan in rows.items()
    }
    return {digest: moves for digest, moves in submitted.items() if moves}


def _legacy_partitions(journal: Journal) -> frozenset[TopicPartition]:
    node = read_one(journal.mailbox, paths.REASSIGN_PARTITIONS)
    try:
        return frozenset(
            entry.topic_partition for entry in (() if node is None else Request.from_node(node).partitions)
        )
    except DocumentError:
        return frozenset()  # Kafka's own reader cannot read it either
