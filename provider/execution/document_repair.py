"""Repair of our own corrupt documents: they are quarantined and rebuilt from other data.

The plan slot, the step lock, the plan records and the throttle leases are the documents that every step needs.
Documents that the KIPs let others write are validated where they are read, and left out there with a message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from kafka_steward.assignment import Operation
from kafka_steward.errors import DocumentError
from kafka_steward.execution.moves import final_status
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Actor, AuditRecord, Outcome, StoredAuditRecord
from kafka_steward.journal.document import NewerDocument
from kafka_steward.journal.listing import quarantine_document
from kafka_steward.journal.locks import TTL_MS
from kafka_steward.journal.records import (
    ASKED,
    RATES,
    ROLLS_BACK,
    THROTTLED_TOPICS,
    Lock,
    PlanRecord,
    PlanStatus,
    SlotOwnership,
    ThrottleLease,
)
from kafka_steward.journal.store import Journal
from kafka_steward.journal.tree import Node

T = TypeVar("T")
#: Plans that are searched for the rollback of one.
_PLANS = 1000


def run_with_repair(journal: Journal, who: Actor, act: Callable[[], T]) -> T:
    """Execute `act`; if one of our documents is unreadable, repair it and try again.

    Raises DocumentError if that does not help.
    """
    try:
        return act()
    except DocumentError:
        if not repair_documents(journal, who):
            raise
        return act()


def repair_documents(journal: Journal, who: Actor) -> list[str]:
    """Quarantine unreadable documents, rebuild them, and write both into the audit trail; return a message for each."""
    told = (_repair_document(journal, who, *each) for each in _list_repairable_documents(journal))
    return [sentence for sentence in told if sentence is not None]


def _repair_document(
    journal: Journal, who: Actor, node: Node, read: Callable[[Node], object], rebuilt: Callable[[], str | None]
) -> str | None:
    try:
        read(node)
    except DocumentError as error:
        newer = isinstance(error, NewerDocument)
        kept = None if newer else quarantine_document(journal.tree, node, str(error), rebuilt())
        if kept is None:
            return None
        sentence = f"{error} Its content was copied to {kept}/text, and it was re-created from the other documents."
        journal.audit.record(AuditRecord(Action.REPAIR, sentence, before=node.path, after=kept, who=who))
        return sentence
    return None


def _list_repairable_documents(
    journal: Journal,
) -> Iterator[tuple[Node, Callable[[Node], object], Callable[[], str | None]]]:
    """Yield each of our documents with its reader and the function that rebuilds it.

    Plans come first, because the slot names them.
    """
    for node in journal.tree.below(paths.PLANS):
        if not paths.is_digest(node.path.rpartition("/")[2]):
            continue  # the watch quarantines it: no plan has such a name
        yield node, PlanRecord.from_node, partial(_rebuild_plan_record, journal, node.path.rpartition("/")[2])
    slot = journal.tree.get(paths.SLOT)
    if slot is not None:
        yield slot, SlotOwnership.from_node, partial(_rebuild_slot, journal)
    lock = journal.tree.get(paths.STEP_LOCK)
    if lock is not None:
        # Each acquisition changed the node: its version is higher than any fencing token that was ever issued.
        yield lock, Lock.from_node, Lock(None, TTL_MS, lock.version + 2).to_json
    for collection in (RATES, THROTTLED_TOPICS):
        for each in collection.list_with_unreadable(journal.tree).unreadable:
            if each.node is not None:
                yield each.node, ThrottleLease.from_node, partial(_rebuild_throttle_lease, journal, each.node.path)


def _rebuild_plan_record(journal: Journal, digest: str) -> str | None:
    """Return the record, rebuilt from its rows and its publication; None for a plan without moves.

    A plan with unsettled moves becomes STUCK: a person must decide whether to resume it. The record has the number of
    moves that were published, so that a plan with lost rows is not stepped.
    """
    rows, told = journal.plans.existing_rows(digest), journal.audit.rows(plan=digest)
    published = next((row.entry for row in told if row.entry.action is Action.PUBLISH), None)
    facts = published.after if published is not None and isinstance(published.after, dict) else {}
    partitions = int(facts.get("partitions", len(rows)))  # the row may be archived
    if partitions == 0:
        return None  # it was never published, or has no moves
    operation = str(facts.get("operation") or Operation.APPLY.value)
    over = len(rows) == partitions and all(row.state.settled for row in rows)
    heals = operation == Operation.HEAL.value
    return PlanRecord(
        digest,
        journal.cluster_id,
        operation,
        status=final_status(rows) if over else PlanStatus.STUCK,
        failed_brokers=tuple(facts.get("brokers_failed") or ()) if heals else (),
        auto_generated=heals,
        reason=f"The record of plan {digest[:12]} could not be read, and was re-created from its rows; resume or "
        "cancel the plan.",
        published_ms=min((row.when_ms for row in told), default=journal.now_ms()),
        stepped_ms=journal.now_ms(),
        who=published.who if published is not None else Actor(),
        partitions=partitions,
        left=facts.get("left", 0),
        rolled_back_by=_find_latest_rollback(journal, digest),
        needs_approval=facts.get("needs_approval") is True,
        extra=_rebuild_extra_fields(facts),
    ).to_json()


def _rebuild_extra_fields(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plan that this plan rolls back, or the documents that requested this plan.

    Without the latter, these documents would be executed once more.
    """
    undone = {ROLLS_BACK: facts[ROLLS_BACK]} if ROLLS_BACK in facts else {}
    asked = {name: facts[name] for name in ("sources", "legacy") if name in facts}
    return {**undone, **({ASKED: asked} if asked else {})}


def _find_latest_rollback(journal: Journal, digest: str) -> str | None:
    """Return the plan that was published last to roll this one back."""
    found = (record.digest for record in journal.plans.latest(_PLANS) if record.extra.get(ROLLS_BACK) == digest)
    return next(found, None)


def _rebuild_slot(journal: Journal) -> str:
    """Return the plan slot, rebuilt: it belongs to the last published plan among those that do not wait."""
    unfinished = journal.plans.unfinished()
    waiting = [record.digest for record in unfinished if record.status.waits]
    active = [record.digest for record in unfinished if not record.status.waits]
    claims = (*waiting, *active)
    # Those that shared it share it again, at their next step.
    return SlotOwnership(claims[-1] if claims else None, preempted=claims[:-1]).to_json()


def _rebuild_throttle_lease(journal: Journal, path: str) -> str | None:
    """Return the throttle lease, rebuilt from the throttles that the audit trail records as set and not released.

    A recorded entry that Kafka does not have is harmless: the release does not remove it.
    """
    kind, name, _ = path.split("/")[-3:]
    rows = [row for action in (Action.THROTTLE, Action.UNTHROTTLE) for row in journal.audit.rows(action=action)]
    rows.sort(key=lambda row: row.id)
    mine = [row for row in rows if name == (row.entry.topic if kind == "topic" else _rate_broker_id(row.entry))]
    lease = _rebuild_list_lease(mine) if kind == "topic" else _rebuild_rate_lease(mine)
    return lease.to_json() if lease.entries else None


def _rebuild_list_lease(told: Sequence[StoredAuditRecord]) -> ThrottleLease:
    returned = Counter(
        _audit_key(row.entry) for row in told if row.entry.action is Action.UNTHROTTLE and _is_outcome_done(row)
    )
    entries: dict[str, set[str]] = {}
    for entry in (row.entry for row in told if row.entry.action is Action.THROTTLE):
        if returned[_audit_key(entry)]:
            returned[_audit_key(entry)] -= 1
            continue
        entries.setdefault(entry.plan, set()).add(f"{entry.partition}:{entry.broker}")
    return ThrottleLease(None, None, {plan: tuple(sorted(several)) for plan, several in entries.items()})


def _rebuild_rate_lease(told: Sequence[StoredAuditRecord]) -> ThrottleLease:
    """Return the lease of a rate, rebuilt from its audit rows.

    A rate is set again when it is changed, or was cleared. The previous rate is therefore the last one that is not
    ours.
    """
    before, ours = None, list[str]()
    entries: dict[str, tuple[str, ...]] = {}
    for row in told:
        entry, was, now = row.entry, _text_or_none(row.entry.before), _text_or_none(row.entry.after)
        if entry.action is Action.THROTTLE and now is not None:
            before = before if was in ours else was
            entries[entry.plan], ours = (now,), [*ours, now]
        elif entry.action is Action.UNTHROTTLE and _is_outcome_done(row):
            entries.pop(entry.plan, None)
    return ThrottleLease(before, ours[-1] if ours else None, entries, tuple(dict.fromkeys(ours[:-1])))


def _audit_key(entry: AuditRecord) -> tuple[object, ...]:
    return entry.plan, entry.topic, entry.partition, entry.broker


def _is_outcome_done(row: StoredAuditRecord) -> bool:
    return row.outcome is Outcome.DONE


def _rate_broker_id(entry: AuditRecord) -> str | None:
    return str(entry.broker) if entry.topic is None else None


def _text_or_none(value: object) -> str | None:
    return None if value is None else str(value)
