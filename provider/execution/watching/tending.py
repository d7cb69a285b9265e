"""Plans that nobody steps any more: what is in flight goes on under Kafka, and someone must see to its end.

A task failed for good, a scheduler is gone, a command line was killed: the plan stays in the journal, and any retry
goes on with it. Until then nothing new is begun, and what has arrived is settled, so that no throttle outlasts what it
is for. The watch does that, at each of its looks.
"""

from __future__ import annotations

from typing import Any

from kafka_steward.errors import ClusterError
from kafka_steward.execution.decisions.failures import is_idle
from kafka_steward.execution.decisions.progress import Progress
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.execution.runner import Runner
from kafka_steward.journal.audit import Action, Entry, Who
from kafka_steward.journal.listing import borrowed_now
from kafka_steward.journal.locks import Fence
from kafka_steward.journal.moves import MoveState
from kafka_steward.journal.open import Journal
from kafka_steward.journal.plans import PlanRecord, PlanStatus
from kafka_steward.settings import Settings

__all__ = ["tend_abandoned"]

_LIVELY = {PlanStatus.PUBLISHED, PlanStatus.RUNNING}


def tend_abandoned(cluster: ClusterPort, journal: Journal, settings: Settings, who: Who) -> list[str]:
    """See to every plan that nobody has stepped for `abandoned_after`; returns a sentence for each newly found one.

    Such a plan is paused, once, with a row in the audit trail; whoever steps it again goes on with it. Raises
    ClusterError: the next look sees to the rest.
    """
    told = []
    for record in journal.plans.unfinished():
        if not is_idle(record, journal.now_ms(), settings):
            continue
        if record.status in _LIVELY:
            told += _paused(journal, record, settings, who)
        elif _owes(journal, record):
            _Tender(cluster, journal, record.digest, settings, who).step()
    return told


def _paused(journal: Journal, record: PlanRecord, settings: Settings, who: Who) -> list[str]:
    """The next look tends it: by then a step that was about to begin has said so."""
    sentence = (
        f"Plan {record.digest[:12]} was paused: nobody has stepped it for {settings.abandoned_after:.0f} s. What is in "
        "flight goes on; to go on with the rest, clear or retry its task, or resume it; or cancel it."
    )
    if journal.plans.try_update(record, status=PlanStatus.PAUSED, reason=sentence) is None:
        return []  # somebody steps it after all
    journal.audit.note(Entry(Action.PAUSE, sentence, plan=record.digest, attempt=journal.now_ms() // 1000, who=who))
    return [sentence]


def _owes(journal: Journal, record: PlanRecord) -> bool:
    """Whether anything of it may still move, or is still throttled."""
    flying = any(row.state is MoveState.SUBMITTED for row in journal.plans.rows_found(record.digest))
    return (
        flying or record.cancel is not None or any(record.digest in each.entries for each in borrowed_now(journal.tree))
    )


class _Tender(Runner):
    """Steps a plan without beginning anything, and without counting as someone who steps it."""

    def _may_start(self, record: PlanRecord) -> tuple[bool, str]:
        return False, record.reason

    def _throttle(self, record: PlanRecord, *, cancelling: bool) -> int | None:
        del cancelling  # whoever steps it had settings of their own
        return record.throttle

    def _failed(self, record: PlanRecord, fence: Fence, error: ClusterError) -> Progress:
        del record, fence
        raise error

    def _update(self, record: PlanRecord, fence: Fence, **changes: Any) -> PlanRecord:
        return self._journal.plans.update(record, fence=fence, **changes)
