"""Demoted brokers: those that are to lead nothing and to be the last to take over, from a plan on until a promotion.

A demotion is a row of the journal, which the publication of its plan writes. It is in effect until a plan of the
operation `promote` has been published, and only as long as nobody cancels or rolls back the plan that it came with. A
cancel of the promotion puts it in effect again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kafka_steward.assignment import Assignment, Move, Operation, TopicPartition
from kafka_steward.cluster.state import Partition
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.records import DEMOTIONS, Demotion, MoveState
from kafka_steward.journal.state import Row
from kafka_steward.journal.store import Journal

if TYPE_CHECKING:
    from kafka_steward.planning.files.formats import PlanFolder


@dataclass(frozen=True)
class Demotions:
    """The demoted brokers, and the changes of order that their plans have made, by partition."""

    brokers: frozenset[int] = frozenset()
    changes: Mapping[TopicPartition, Sequence[Move]] = field(default_factory=dict)

    def order_before(self, partition: Partition) -> Assignment | None:
        """Return the order of a partition's replicas before the demotions.

        None if no demotion has changed it, and empty if it was changed since.
        """
        left = [move for move in self.changes.get(partition.topic_partition, ()) if move.topic_id == partition.topic_id]
        if not left:
            return None
        order = partition.replicas
        while (last := next((move for move in left if move.after == order), None)) is not None:
            left.remove(last)
            order = last.before
        return () if order == partition.replicas else order


def read_demotions(journal: Journal) -> Demotions:
    """Return the demotions that are in effect, with what their plans have changed. Raises JournalError."""
    rows = _rows_in_effect(journal)
    changes: dict[TopicPartition, list[Move]] = {}
    for digest in dict.fromkeys(digest for row in rows for digest in row.value.plans):
        if journal.plans.get(digest) is None:
            continue  # it ended longer ago than `plan_retention`
        for row in journal.plans.rows(digest):
            if row.state in (MoveState.COMPLETED, MoveState.SATISFIED):
                changes.setdefault(row.topic_partition, []).append(row.move)
    return Demotions(frozenset(row.key for row in rows), changes)


def demoted_brokers(journal: Journal) -> frozenset[int]:
    """Return the brokers whose demotion is in effect. Raises JournalError."""
    return frozenset(row.key for row in _rows_in_effect(journal))


def demotions_in_effect(journal: Journal) -> dict[int, Demotion]:
    """Return the demotions that are in effect, by broker. Raises JournalError."""
    return {row.key: row.value for row in _rows_in_effect(journal)}


def record_plan_of_demotions(journal: Journal, plan: PlanFolder, who: Actor) -> None:
    """Write what a published plan says of demotions: those that it begins or widens, or those that it ends."""
    options = plan.proof.get("options") or {}
    if plan.proof.get("operation") == Operation.PROMOTE.value:
        _end_demotions(journal, options.get("promote") or (), plan.digest)
    if plan.proof.get("operation") == Operation.DEMOTE.value:
        _begin_demotions(journal, plan.proof["brokers_demoted"], plan.digest, who)


def _begin_demotions(journal: Journal, brokers: Collection[int], digest: str, who: Actor) -> None:
    known = {row.key: row for row in journal.rows(DEMOTIONS).all()}
    current = demotions_in_effect(journal)
    name = who.person or who.dag_id or ""
    fresh = Demotion((), name, journal.now_ms())
    wanted = {broker: current.get(broker, fresh) for broker in brokers}
    changed = {
        broker: replace(demotion, plans=(*demotion.plans, digest), promoted_by=None)
        for broker, demotion in wanted.items()
        if digest not in demotion.plans
    }
    journal.rows(DEMOTIONS).put_all(changed, known)


def _end_demotions(journal: Journal, brokers: Collection[int], digest: str) -> None:
    rows = {row.key: row for row in journal.rows(DEMOTIONS).all()}
    ended = {broker: row.value for broker, row in rows.items() if broker in brokers and row.value.promoted_by != digest}
    changed = {broker: replace(demotion, promoted_by=digest) for broker, demotion in ended.items()}
    # The way back of those that stay demoted leads through this plan, and through what it has undone.
    through = (*(plan for demotion in ended.values() for plan in demotion.plans), digest)
    for broker, row in rows.items():
        if broker not in brokers and ended:
            changed[broker] = replace(row.value, plans=tuple(dict.fromkeys((*row.value.plans, *through))))
    journal.rows(DEMOTIONS).put_all(changed, rows)


def forget_cancelled_plan(journal: Journal, digest: str) -> None:
    """Write that a plan is cancelled, which also counts without this, into the demotions: plans are not kept for ever.

    Demotions that the plan began are gone, and those that it ended are in effect again.
    """
    rows = journal.rows(DEMOTIONS)
    for row in rows.all():
        if row.value.plans[:1] == (digest,):
            rows.delete(row)
        elif row.value.promoted_by == digest:
            rows.put(row.key, replace(row.value, promoted_by=None), row)


def _rows_in_effect(journal: Journal) -> list[Row[int, Demotion]]:
    return [row for row in journal.rows(DEMOTIONS).all() if _is_in_effect(journal, row.value)]


def _is_in_effect(journal: Journal, demotion: Demotion) -> bool:
    ends = {demotion.plans[0], demotion.promoted_by} - {None}
    return demotion.is_in_effect([digest for digest in ends if digest and _is_cancelled(journal, digest)])


def _is_cancelled(journal: Journal, digest: str) -> bool:
    record = journal.plans.get(digest)
    return record is not None and record.cancel is not None
