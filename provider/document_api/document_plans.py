"""Document plans: plans that request documents asked for, and the documents that each of them executes.

A document plan is made without Spark, because the documents contain the target replicas. It is published, locked,
stepped, cancelled and audited like any other plan. Several may be active at once: a later plan preempts an earlier one,
which resumes after it. The earlier plan's reassignments in flight continue meanwhile, so a slow partition delays no
other request (KIP-236).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_steward.assignment import Move, Operation
from kafka_steward.errors import DocumentError
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Actor, AuditRecord
from kafka_steward.journal.open import Journal
from kafka_steward.journal.plans import PlanRecord
from kafka_steward.journal.records import ASKED
from kafka_steward.journal.tree import Node
from kafka_steward.planning.files.digest import plan_digest
from kafka_steward.planning.files.formats import plan_table

__all__ = ["DocumentPlan", "DocumentPlans", "publish_document_plan", "source_of", "blocked_reason"]

#: The maximum number of active document plans; requests beyond that wait in the tree.
_MOST = 8


@dataclass(frozen=True)
class DocumentPlan:
    """A plan's record, the documents that it executes, and whether they are marked `legacy` (legacy znode route)."""

    record: PlanRecord
    sources: frozenset[str]
    legacy: bool

    @property
    def digest(self) -> str:
        """The plan's digest."""
        return self.record.digest


def source_of(node: Node) -> str:
    """Return the permanent id of a document: a node that is deleted and re-created gets another id."""
    return f"{node.path}@{node.created_id}"


class DocumentPlans:
    """The unfinished plans of a journal, re-read by each `read`; an ended plan is read once and cached."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._ended: dict[str, frozenset[str]] = {}
        self._to_roll_back = False
        self.asked: list[DocumentPlan] = []
        self.others: list[PlanRecord] = []

    def read(self) -> None:
        """Read the unfinished plans again. Raises JournalError."""
        names = frozenset(self._journal.tree.children(paths.PLANS))
        self._ended = {name: sources for name, sources in self._ended.items() if name in names}
        records = [record for name in sorted(names - self._ended.keys()) for record in self._record(name)]
        for record in records:
            if record.status.finished:
                self._ended[record.digest] = _documents_of(record).sources
                self._to_roll_back |= record.cancel is not None and record.cancel.scope == "plan"
        running = sorted((each for each in records if not each.status.finished), key=lambda each: each.published_ms)
        self.asked = [_documents_of(record) for record in running if ASKED in record.extra]
        self.others = [record for record in running if ASKED not in record.extra]

    def knows(self, source: str) -> bool:
        """Return whether any plan, ended or not, executes this document."""
        running = (plan.sources for plan in self.asked)
        return any(source in sources for sources in (*running, *self._ended.values()))

    def rollback_asked(self) -> bool:
        """Return whether a plan with a rollback request was seen to end since the last call; resets the flag."""
        asked, self._to_roll_back = self._to_roll_back, False
        return asked

    def of(self, digest: str) -> DocumentPlan | None:
        """Return the unfinished document plan with this digest; None if there is none."""
        return next((plan for plan in self.asked if plan.digest == digest), None)

    def _record(self, name: str) -> list[PlanRecord]:
        try:
            record = self._journal.plans.get(name)
        except DocumentError:
            return []
        return [] if record is None else [record]


def blocked_reason(journal: Journal, plans: DocumentPlans) -> str:
    """Return why requests cannot start now, as a clause that ends a message; empty when they can."""
    owner = journal.slot.owner()
    other = next((record for record in plans.others if record.digest == owner), None)
    if other is not None:
        return f"the cluster belongs to plan {other.digest[:12]} ({other.operation}) until that one ends"
    return f"{_MOST} plans that documents asked for are under way" if len(plans.asked) >= _MOST else ""


def publish_document_plan(
    journal: Journal, moves: Sequence[Move], *, sources: Collection[str], legacy: bool, who: Actor
) -> PlanRecord:
    """Publish the plan and let it preempt the plan slot; an earlier document plan gets the slot back afterwards."""
    options: Mapping[str, Any] = {"sources": sorted(sources), "legacy": legacy}
    digest = plan_digest(journal.cluster_id, "", Operation.APPLY.value, options, plan_table(moves))
    reason = "asked for by " + ", ".join(sorted(source.rpartition("@")[0] for source in sources)[:3])
    record = PlanRecord(
        digest, journal.cluster_id, Operation.APPLY.value, reason=reason, who=who, extra={ASKED: dict(options)}
    )
    published = journal.plans.publish(record, moves)
    journal.slot.preempt_with(digest)
    told = {"operation": Operation.APPLY.value, **options}
    journal.audit.record(
        AuditRecord(Action.PUBLISH, f"{len(moves)} partitions to move, {reason}", plan=digest, after=told, who=who)
    )
    return published


def _documents_of(record: PlanRecord) -> DocumentPlan:
    asked = record.extra.get(ASKED)
    values = asked if isinstance(asked, Mapping) else {}
    return DocumentPlan(record, record.sources, bool(values.get("legacy")))
