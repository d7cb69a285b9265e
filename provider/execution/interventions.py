"""Decisions of a named person about a plan: to resume it, to abandon it, to change the rate of its moves."""

from __future__ import annotations

from kafka_steward.errors import PlanError, VersionConflict
from kafka_steward.execution.completion import release_slot
from kafka_steward.journal.audit import Action, Actor, AuditRecord
from kafka_steward.journal.open import Journal
from kafka_steward.journal.plans import PlanRecord, PlanStatus

__all__ = ["abandon_plan", "change_throttle", "resume_plan", "throttle_sentence"]

#: Attempts to write a change while a step changes the same record.
_TRIES = 20


def resume_plan(journal: Journal, digest: str, who: Actor, reason: str = "a person resumed it") -> PlanRecord:
    """Resume a stuck plan and reset its attempts; a plan that is not stuck stays unchanged.

    Raises PlanError for an unknown plan or one that has ended, VersionConflict when it is changed at this moment.
    """
    record = _unfinished(journal, digest)
    if record.status is not PlanStatus.STUCK:
        return record
    journal.audit.record(AuditRecord(Action.RESUME, reason, plan=digest, attempt=journal.now_ms() // 1000, who=who))
    return journal.plans.update(record, status=PlanStatus.RUNNING, attempts=0, reason=reason)


def abandon_plan(journal: Journal, digest: str, who: Actor, reason: str) -> PlanRecord:
    """Abandon a plan: completed moves stay, moves in flight continue under Kafka, and the plan slot is released.

    The next poll of the detector releases its throttles. Raises the errors of `resume_plan`.
    """
    record = _unfinished(journal, digest)
    sentence = f"Plan {digest[:12]} was abandoned: {reason}"
    journal.audit.record(AuditRecord(Action.FINISH, sentence, plan=digest, after={"status": "abandoned"}, who=who))
    ended = journal.plans.update(record, status=PlanStatus.ABANDONED, reason=sentence, live_brokers=())
    release_slot(journal, digest, who)
    return ended


def change_throttle(journal: Journal, digest: str, throttle: int, who: Actor, reason: str) -> PlanRecord:
    """Limit a plan's moves to `throttle` bytes per second into one broker, 0 for no throttle.

    The rate applies to this plan, regardless of the process that steps it and of the settings. The plan's next step
    sets it on the brokers. If the plan has that rate already, nothing is changed. Raises the errors of `resume_plan`.
    """
    for _ in range(_TRIES):
        record = _unfinished(journal, digest)
        if record.throttle == throttle:
            return record
        entry = AuditRecord(
            Action.REQUEST,
            f"throttle: {reason}",
            plan=digest,
            attempt=journal.now_ms() // 1000,
            before=record.throttle,
            after={"throttle": throttle},
            who=who,
        )
        try:
            with journal.together():
                journal.audit.record(entry)
                return journal.plans.update(record, throttle=throttle)
        except VersionConflict:
            continue  # a step changed it in between
    raise VersionConflict(
        f"Plan {digest[:12]} is changed by others all the time, and its throttle was not changed; try again."
    )


def throttle_sentence(record: PlanRecord) -> str:
    """Return the message about the rate that was requested for a plan."""
    told = f"{record.throttle} bytes per second into one broker" if record.throttle else "no throttle"
    return f"Plan {record.digest[:12]}: {told}, from its next step on."


def _unfinished(journal: Journal, digest: str) -> PlanRecord:
    record = journal.plans.get(digest)
    if record is None:
        raise PlanError(f"There is no plan {digest[:12]} in the journal of this cluster.")
    if record.status.finished:
        raise PlanError(f"Plan {digest[:12]} has ended already: {record.reason}")
    return record
