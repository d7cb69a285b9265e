"""What a named person may decide about a plan: that it goes on, that it is given up, how fast its moves may copy."""

from __future__ import annotations

from kafka_steward.errors import PlanError, VersionConflict
from kafka_steward.execution.ending import hand_on
from kafka_steward.journal.audit import Action, Entry, Who
from kafka_steward.journal.open import Journal
from kafka_steward.journal.plans import PlanRecord, PlanStatus

__all__ = ["abandon_plan", "change_throttle", "resume_plan"]

#: How often a change is written again when a step changes the same record.
_TRIES = 20


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


def change_throttle(journal: Journal, digest: str, throttle: int, who: Who, reason: str) -> PlanRecord:
    """Let a plan's moves bring `throttle` bytes per second into one broker, 0 for no throttle.

    It holds for this plan, whoever steps it and whatever the settings say; its next step carries it to the brokers.
    Asked for the rate that the plan has already, nothing is changed. Raises as `resume_plan`.
    """
    for _ in range(_TRIES):
        record = _unfinished(journal, digest)
        if record.throttle == throttle:
            return record
        entry = Entry(
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
                journal.audit.note(entry)
                return journal.plans.update(record, throttle=throttle)
        except VersionConflict:
            continue  # a step changed it in between
    raise VersionConflict(
        f"Plan {digest[:12]} is changed by others all the time, and its throttle was not changed; try again."
    )


def _unfinished(journal: Journal, digest: str) -> PlanRecord:
    record = journal.plans.get(digest)
    if record is None:
        raise PlanError(f"There is no plan {digest[:12]} in the journal of this cluster.")
    if record.status.finished:
        raise PlanError(f"Plan {digest[:12]} has ended already: {record.reason}")
    return record
