"""Document plans: plans that request documents require, and the scheduler that steps them.

A document plan is made without Spark, because the documents contain the target replicas. It is published, locked,
stepped, cancelled and audited like any other plan. Several may be active at once, beside each other and beside plans of
DAGs and of the command line, as long as they move different partitions. So a slow partition delays no other request
(KIP-236).

The scheduler also steps requested cancels and rollbacks, which no DAG task steps.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from kafka_steward.assignment import Move, Operation, TopicPartition, counted
from kafka_steward.errors import SlotTaken
from kafka_steward.execution.moves.in_flight import flag_in_flight_legacy
from kafka_steward.execution.plans.cancel import record_accepted
from kafka_steward.execution.plans.rollback import find_unfinished_cancels
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.plans.slot import claim_slot
from kafka_steward.execution.ports import ClusterContext, ClusterPort
from kafka_steward.journal.audit import Action, Actor, AuditRecord
from kafka_steward.journal.mailbox import Node
from kafka_steward.journal.records import AcceptedDocument, PlanRecord
from kafka_steward.journal.store import Journal
from kafka_steward.settings import Settings

#: The maximum number of active document plans; requests beyond that wait in the mailbox.
_MOST = 8


def document_id_of(node: Node) -> str:
    """Return the permanent id of a document: a node that is deleted and re-created gets another id."""
    return f"{node.path}@{node.created_id}"


class DocumentPlans:
    """The unfinished plans of a journal, re-read by each `read_unfinished`.

    `requested` are those that documents requested, `others` all others; both the oldest first.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._by_source: Mapping[str, list[str]] | None = None
        self._rollbacks: set[tuple[str, int]] = set()
        self._to_roll_back = False
        self.requested: list[PlanRecord] = []
        self.others: list[PlanRecord] = []

    def read_unfinished(self) -> None:
        """Read the unfinished plans again. Raises JournalError."""
        records = self._journal.plans.unfinished(or_cancelled=True)
        ended = [
            record for record in records if record.status.finished and record.cancel and record.cancel.scope == "plan"
        ]
        rollbacks = {(record.digest, record.revision) for record in ended}
        self._to_roll_back |= not rollbacks <= self._rollbacks
        self._rollbacks, self._by_source = rollbacks, None
        running = [record for record in records if not record.status.finished]
        self.requested = [record for record in running if record.sources]
        self.others = [record for record in running if not record.sources]

    def executes_document(self, source: str) -> bool:
        """Return whether any plan, ended or not, executes this document."""
        return bool(self.executing(source))

    def executing_from(self, parent: str) -> PlanRecord | None:
        """Return an unfinished plan that executes a document below `parent`; None if there is none."""
        below = f"{parent}/"
        return next((plan for plan in self.requested if any(source.startswith(below) for source in plan.sources)), None)

    def executing(self, source: str) -> list[str]:
        """Return the digests of all plans, ended or not, that execute this document."""
        if self._by_source is None:
            self._by_source = self._journal.plans.by_source()
        return self._by_source.get(source, [])

    def pop_rollback_requested(self) -> bool:
        """Return whether an ended plan was seen to be rolled back, or to change, since the last call."""
        requested, self._to_roll_back = self._to_roll_back, False
        return requested


def blocked_reason(journal: Journal, plans: DocumentPlans) -> str:
    """Return why no request can start now, as a clause that ends a message; empty when some can.

    Nothing starts beside a heal: lost replicas come first.
    """
    holders = journal.slot.holders()
    heal = next((plan for plan in plans.others if plan.auto_generated and plan.digest in holders), None)
    if heal is not None:
        return f"{SlotTaken.reason(heal.digest, heal.operation)} until it ends"
    return f"{_MOST} plans that documents requested are in progress" if len(plans.requested) >= _MOST else ""


def partitions_of_others(journal: Journal, plans: DocumentPlans) -> dict[TopicPartition, str]:
    """Return the partitions that plans of another kind move or may still move, and why a request for each waits."""
    return {
        name: f"{name} is moved by plan {plan.digest[:12]} ({plan.operation}) until it ends"
        for plan in plans.others
        for name in journal.plans.unsettled_partitions(plan.digest, plan)
    }


def publish_document_plan(
    journal: Journal, moves: Sequence[Move], *, sources: Collection[str], legacy: bool, who: Actor
) -> PlanRecord:
    """Publish the plan, and let it share the plan slot if it can; else it waits."""
    # Whoever only reads plans of documents needs no Arrow, which is slow to import.
    from kafka_steward.planning.files.formats import plan_digest, plan_table  # noqa: PLC0415

    options: Mapping[str, Any] = {"sources": sorted(sources), "legacy": legacy}
    digest = plan_digest(journal.cluster_id, "", Operation.APPLY.value, options, plan_table(moves))
    reason = "requested by " + ", ".join(sorted(source.rpartition("@")[0] for source in sources)[:3])
    record = PlanRecord(digest, journal.cluster_id, Operation.APPLY.value, reason=reason, who=who, legacy=legacy)
    record = replace(record, sources=tuple(sorted(sources)))
    published = journal.plans.publish(record, moves)
    with suppress(SlotTaken):  # of plans that are published at the same moment, one goes first
        claim_slot(journal, published, who)
    facts = {"operation": Operation.APPLY.value, "partitions": len(moves), **options}
    journal.audit.record(
        AuditRecord(
            Action.PUBLISH, f"{counted(len(moves), 'partition')} to move, {reason}", plan=digest, after=facts, who=who
        )
    )
    record_accepted(journal, "request", AcceptedDocument(digest, (digest,)))
    return published


#: Seconds until the next poll while unfinished work is blocked by another process or by Kafka.
SOON_S = 0.5


@dataclass
class PollResult:
    """The result of one poll: events to emit ("request", "cancel"), messages, and the time until the next poll.

    `refusals` are those of the messages that say that a request is not executed.
    """

    events: set[str] = field(default_factory=set)
    sentences: list[str] = field(default_factory=list)
    refusals: set[str] = field(default_factory=set)
    #: Seconds until the next poll; None when nothing is in progress and the usual interval suffices.
    pause_s: float | None = None

    def schedule_within(self, seconds: float) -> None:
        """Schedule the next poll within `seconds`."""
        self.pause_s = seconds if self.pause_s is None else min(self.pause_s, seconds)


class PlanScheduler:
    """Steps document plans and cancels. Keeps one `PlanRunner` per plan, which remembers the transfer rate."""

    def __init__(self, cluster: ClusterPort, journal: Journal, settings: Settings, who: Actor) -> None:
        self._cluster = cluster
        self._journal = journal
        self._settings = settings
        self._who = who
        self._runners: dict[str, PlanRunner] = {}
        self._cancels: set[str] | None = None

    def step(self, plan: PlanRecord, result: PollResult) -> None:
        """Step a document plan once. Raises as `PlanRunner.step`."""
        self._step_plan(plan.digest, result)
        if plan.legacy:
            flag_in_flight_legacy(self._journal.mailbox, plan.digest)

    def invalidate_cancels(self) -> None:
        """Discard the cached cancels: `step_cancels` reads the requested ones again."""
        self._cancels = None

    def step_cancels(self, result: PollResult, *, stepped: Collection[str]) -> None:
        """Step each plan with a requested cancel or rollback once, except those `stepped` already.

        Raises as `PlanRunner.step`.
        """
        if self._cancels is None:
            self._cancels = {record.digest for record in find_unfinished_cancels(self._journal)}
            kept = {*stepped, *self._cancels}
            self._runners = {digest: runner for digest, runner in self._runners.items() if digest in kept}
        for digest in sorted(self._cancels - set(stepped)):
            if self._step_plan(digest, result):
                self._cancels.discard(digest)

    def _step_plan(self, digest: str, result: PollResult) -> bool:
        """Return whether the plan has ended, and add its message; if it has not, schedule the next step."""
        if digest not in self._runners:
            self._runners[digest] = PlanRunner(
                ClusterContext(self._cluster, self._journal, self._settings, self._who), digest, consume_signal=False
            )
        progress = self._runners[digest].step()
        if progress.ended:
            del self._runners[digest]
            result.sentences.append(progress.sentence)
            return True
        result.schedule_within(progress.pause_s(self._settings.step_interval))
        return False
