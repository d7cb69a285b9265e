"""Run a plan to its end, and through its rollback if that was requested in the meantime."""

from __future__ import annotations

from dataclasses import replace

from kafka_steward.execution.cancellation.cancel_runner import CancelRunner, is_open
from kafka_steward.execution.decisions.aftermath import what_became
from kafka_steward.execution.decisions.progress import Progress, progress_of
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.execution.runner import PlanRunner
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.open import Journal
from kafka_steward.journal.plans import PlanRecord
from kafka_steward.settings import Settings

__all__ = ["PlanRun"]


class PlanRun:
    """Steps a plan, then its requested rollback; same interface as `PlanRunner`. Keep one for a loop.

    The requester steps the rollback too, but may have crashed. The last progress is that of the plan itself, and its
    message reports the final outcome.
    """

    def __init__(self, cluster: ClusterPort, journal: Journal, digest: str, settings: Settings, who: Actor) -> None:
        self._cluster, self._journal, self._digest = cluster, journal, digest
        self._settings, self._who = settings, who
        self._runner = PlanRunner(cluster, journal, digest, settings, who)
        self._undo: CancelRunner | None = None

    def step(self) -> Progress:
        """Take the next step, of the plan or of its rollback. Raises as `PlanRunner.step` and `CancelRunner.step`."""
        progress = self._runner.step() if self._undo is None else self._undo.step()
        record = self._journal.plans.get(self._digest) if progress.ended else None
        if self._undo is None and record is not None and is_open(self._journal, record):
            self._undo = self._undo_of(record)
            progress = self._undo.step()
            record = self._journal.plans.get(self._digest) if progress.ended else None
        return progress if record is None else self._ended(record, progress)

    def _undo_of(self, record: PlanRecord) -> CancelRunner:
        reason = (record.cancel.reason if record.cancel else None) or "someone asked for it"
        return CancelRunner(
            self._cluster, self._journal, self._digest, self._settings, self._who, scope="plan", reason=reason
        )

    def _ended(self, record: PlanRecord, progress: Progress) -> Progress:
        became = what_became(record)
        if not became:
            return progress
        own = progress_of(record, self._journal.plans.rows(self._digest))
        return replace(own, sentence=became)
