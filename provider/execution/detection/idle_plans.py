"""Idle plans: unfinished plans that no process steps any more, with reassignments that may still be in flight.

A plan becomes idle when its task has finally failed, the scheduler is gone, or the command line was killed. The plan
stays in the journal, and any retry resumes it. Until then the watch, in each of its polls, starts no new moves but
settles completed ones, so that throttles are released as soon as they are not needed.
"""

from __future__ import annotations

from typing import Any

from kafka_steward.errors import ClusterError
from kafka_steward.execution.decisions.failures import is_idle
from kafka_steward.execution.decisions.progress import Progress
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.execution.runner import PlanRunner
from kafka_steward.journal.audit import Action, Actor, AuditRecord
from kafka_steward.journal.listing import throttle_leases
from kafka_steward.journal.locks import Fence
from kafka_steward.journal.moves import MoveState
from kafka_steward.journal.open import Journal
from kafka_steward.journal.plans import PlanRecord, PlanStatus
from kafka_steward.settings import Settings

__all__ = ["pause_idle_plans"]

_LIVELY = {PlanStatus.PUBLISHED, PlanStatus.RUNNING}


def pause_idle_plans(cluster: ClusterPort, journal: Journal, settings: Settings, who: Actor) -> list[str]:
    """Pause or step plans that no process has stepped for `abandoned_after`; returns a message for each paused plan.

    A published or running plan is paused, once, with a row in the audit trail; any process that steps it again resumes
    it. A plan in another status, such as paused, is stepped while it has submitted moves, a cancel request or throttle
    leases.

    Raises ClusterError: the next poll handles the remaining plans.
    """
    told = []
    for record in journal.plans.unfinished():
        if not is_idle(record, journal.now_ms(), settings):
            continue
        if record.status in _LIVELY:
            told += _paused(journal, record, settings, who)
        elif _has_leases(journal, record):
            _CancelOnlyRunner(cluster, journal, record.digest, settings, who).step()
    return told


def _paused(journal: Journal, record: PlanRecord, settings: Settings, who: Actor) -> list[str]:
    """Pause the plan; returns its message, or nothing when the record changed concurrently.

    Only the next poll steps the plan: a step that was about to start has updated the record by then.
    """
    sentence = (
        f"Plan {record.digest[:12]} was paused: nobody has stepped it for {settings.abandoned_after:.0f} s. What is in "
        "flight goes on; to go on with the rest, clear or retry its task, or resume it; or cancel it."
    )
    if journal.plans.try_update(record, status=PlanStatus.PAUSED, reason=sentence) is None:
        return []  # another process steps it now
    journal.audit.record(
        AuditRecord(Action.PAUSE, sentence, plan=record.digest, attempt=journal.now_ms() // 1000, who=who)
    )
    return [sentence]


def _has_leases(journal: Journal, record: PlanRecord) -> bool:
    """Return whether moves of the plan may be in flight, it has a cancel request, or it has throttle leases."""
    flying = any(row.state is MoveState.SUBMITTED for row in journal.plans.rows_found(record.digest))
    return (
        flying
        or record.cancel is not None
        or any(record.digest in each.entries for each in throttle_leases(journal.tree))
    )


class _CancelOnlyRunner(PlanRunner):
    """Steps a plan without starting new moves, and without updating the time of its last step."""

    def _may_start(self, record: PlanRecord) -> tuple[bool, str]:
        return False, record.reason

    def _throttle(self, record: PlanRecord, *, cancelling: bool) -> int | None:
        del cancelling  # the process that stepped the plan had its own settings
        return record.throttle

    def _failed(self, record: PlanRecord, fence: Fence, error: ClusterError) -> Progress:
        del record, fence
        raise error

    def _update(self, record: PlanRecord, fence: Fence, **changes: Any) -> PlanRecord:
        return self._journal.plans.update(record, fence=fence, **changes)
