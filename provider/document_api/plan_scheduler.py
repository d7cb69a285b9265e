"""Plan scheduler: step document plans and requested cancels and rollbacks, which no DAG task steps."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_steward.document_api.document_plans import DocumentPlan
from kafka_steward.execution.cancellation.cancel_runner import CancelRunner, unfinished_cancels
from kafka_steward.execution.cancelling import Scope
from kafka_steward.execution.decisions.progress import Progress
from kafka_steward.execution.in_flight_records import flag_legacy
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.execution.runner import PlanRunner
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.open import Journal
from kafka_steward.journal.plans import PlanRecord
from kafka_steward.settings import Settings

__all__ = ["SOON_S", "PlanScheduler", "PollResult"]

#: Seconds until the next poll while unfinished work is blocked by another process or by Kafka.
SOON_S = 0.5


@dataclass
class PollResult:
    """The result of one poll: events to emit ("request", "cancel"), messages, and the time until the next poll."""

    events: set[str] = field(default_factory=set)
    sentences: list[str] = field(default_factory=list)
    #: Seconds until the next poll; None when nothing is in progress and the usual interval suffices.
    pause_s: float | None = None

    def within(self, seconds: float) -> None:
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
        self._undos: dict[str, CancelRunner] | None = None

    def step(self, plan: DocumentPlan, looked: PollResult) -> None:
        """Step a document plan once. Raises as `PlanRunner.step`."""
        runner = self._runners.setdefault(plan.digest, self._runner(plan.digest))
        progress = runner.step()
        if plan.legacy:
            flag_legacy(self._journal.tree, plan.digest)
        if self._report(progress, looked):
            del self._runners[plan.digest]

    def find_cancels(self) -> None:
        """Discard the cached cancels: `undo` reads the requested ones again."""
        self._undos = None

    def cancel(self, looked: PollResult) -> None:
        """Step each requested cancel and rollback once. Raises as `CancelRunner.step`."""
        if self._undos is None:
            self._undos = {record.digest: self._cancel_runner(record) for record in unfinished_cancels(self._journal)}
        for digest, undo in list(self._undos.items()):
            if self._report(undo.step(), looked):
                del self._undos[digest]

    def _report(self, progress: Progress, looked: PollResult) -> bool:
        """Return whether the plan has ended, and add its message; if it has not, schedule the next step."""
        if progress.ended:
            looked.sentences.append(progress.sentence)
            return True
        looked.within(progress.pause_s(self._settings.step_interval))
        return False

    def _runner(self, digest: str) -> PlanRunner:
        return PlanRunner(self._cluster, self._journal, digest, self._settings, self._who)

    def _cancel_runner(self, record: PlanRecord) -> CancelRunner:
        asked = record.cancel
        scope: Scope = "plan" if asked is not None and asked.scope == "plan" else "pending"
        reason = (asked.reason if asked is not None else None) or "someone asked for it"
        return CancelRunner(
            self._cluster, self._journal, record.digest, self._settings, self._who, scope=scope, reason=reason
        )
