"""Plan scheduler: step document plans and requested cancels and rollbacks, which no DAG task steps."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_steward.execution.cancelling import Scope
from kafka_steward.execution.decisions.progress import Progress
from kafka_steward.execution.inflight import mark_legacy
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.execution.runner import Runner
from kafka_steward.execution.undoing.undo import Undo, open_undos
from kafka_steward.journal.audit import Who
from kafka_steward.journal.open import Journal
from kafka_steward.journal.plans import PlanRecord
from kafka_steward.protocol.asked_plans import AskedPlan
from kafka_steward.settings import Settings

__all__ = ["SOON_S", "Driver", "Looked"]

#: Seconds until the next poll while unfinished work is blocked by another process or by Kafka.
SOON_S = 0.5


@dataclass
class Looked:
    """The result of one poll: events to emit ("request", "cancel"), messages, and the time until the next poll."""

    rings: set[str] = field(default_factory=set)
    sentences: list[str] = field(default_factory=list)
    #: Seconds until the next poll; None when nothing is in progress and the usual interval suffices.
    pause_s: float | None = None

    def soon(self, seconds: float) -> None:
        """Schedule the next poll within `seconds`."""
        self.pause_s = seconds if self.pause_s is None else min(self.pause_s, seconds)


class Driver:
    """Steps document plans and cancels. Keeps one `Runner` for each plan, because it remembers the transfer rate."""

    def __init__(self, cluster: ClusterPort, journal: Journal, settings: Settings, who: Who) -> None:
        self._cluster = cluster
        self._journal = journal
        self._settings = settings
        self._who = who
        self._runners: dict[str, Runner] = {}
        self._undos: dict[str, Undo] | None = None

    def step(self, plan: AskedPlan, looked: Looked) -> None:
        """Step a document plan once. Raises as `Runner.step`."""
        runner = self._runners.setdefault(plan.digest, self._runner(plan.digest))
        progress = runner.step()
        if plan.legacy:
            mark_legacy(self._journal.tree, plan.digest)
        if self._told(progress, looked):
            del self._runners[plan.digest]

    def look_for_undos(self) -> None:
        """Discard the cached cancels: `undo` reads the requested ones again."""
        self._undos = None

    def undo(self, looked: Looked) -> None:
        """Step each requested cancel and rollback once. Raises as `Undo.step`."""
        if self._undos is None:
            self._undos = {record.digest: self._undo_of(record) for record in open_undos(self._journal)}
        for digest, undo in list(self._undos.items()):
            if self._told(undo.step(), looked):
                del self._undos[digest]

    def _told(self, progress: Progress, looked: Looked) -> bool:
        """Return whether the plan has ended, and add its message; if it has not, schedule the next step."""
        if progress.ended:
            looked.sentences.append(progress.sentence)
            return True
        looked.soon(progress.pause_s(self._settings.step_interval))
        return False

    def _runner(self, digest: str) -> Runner:
        return Runner(self._cluster, self._journal, digest, self._settings, self._who)

    def _undo_of(self, record: PlanRecord) -> Undo:
        asked = record.cancel
        scope: Scope = "plan" if asked is not None and asked.scope == "plan" else "pending"
        reason = (asked.reason if asked is not None else None) or "someone asked for it"
        return Undo(self._cluster, self._journal, record.digest, self._settings, self._who, scope=scope, reason=reason)
