"""What a named person may decide about a plan that waits: that it goes on, or that it is given up."""

from __future__ import annotations

from kafka_steward.errors import PlanError
from kafka_steward.execution.ending import hand_on
from kafka_steward.journal.audit import Action, Entry, Who
from kafka_steward.journal.open import Journal
from kafka_steward.journal.plans import PlanRecord, PlanStatus

__all__ = ["abandon_plan", "resume_plan"]


def resume_plan(journal: Journal, digest: str, who: Who, reason: str = "a person resumed it") -> PlanRecord:
    """Let a stuck plan go on, with its attempts forgotten; one that is not stuck stays as it is.

    Raises PlanError for an unknown plan or one that has ended, VersionConflict when it is changed at this moment.
    """
    record = _unfinished(journal, digest)
    if record.status is not PlanStatus.STUCK:
        return record
    journal.audit.note(Entry(Action.RESUME, reason, plan=digest, attempt=journal.now_ms() // 1000, who=who))
    return journal.plans.update(record, status=PlanStatus.RUNNING, attempts=0, reason=reason)


def abandon_plan(journal: Journal, digest: str, who: Who, reason: str) -> PlanRecord:
    """Give a plan up: what it moved stays, what flies goes on under Kafka, and the cluster is free for another plan.

    Its throttles are given back by the next look of the detector. Raises as `resume_plan`.
    """
    record = _unfinished(journal, digest)
    sentence = f"Plan {digest[:12]} was abandoned: {reason}"
    journal.audit.note(Entry(Action.FINISH, sentence, plan=digest, after={"status": "abandoned"}, who=who))
    ended = journal.plans.update(record, status=PlanStatus.ABANDONED, reason=sentence, live_brokers=())
    hand_on(journal, digest, who)
    return ended


def _unfinished(journal: Journal, digest: str) -> PlanRecord:
    record = journal.plans.get(digest)
    if record is None:
        raise PlanError(f"There is no plan {digest[:12]} in the journal of this cluster.")
    if record.status.finished:
        raise PlanError(f"Plan {digest[:12]} has ended already: {record.reason}")
    return record
