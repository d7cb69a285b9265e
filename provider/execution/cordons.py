"""Cordons of drained brokers (KIP-1066): what a drain empties receives no new replica, of a new topic or of a heal.

A drain cordons its brokers before its first move, where Kafka can (4.3), and where nobody else has: such a cordon stays
somebody else's. Each cordon of ours is a row of the journal, which the publication of the drain writes. It stays when
the drain has ended, until the broker is stopped for good or a person lifts it. A cancel or a rollback of the drain
lifts it, if nobody has changed it since, and what goes back waits until the brokers know.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kafka_steward.assignment import Operation
from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.errors import ClusterError, KafkaRefused
from kafka_steward.execution.effects import AuditedCalls
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.journal.audit import Action, Actor, AuditRecord
from kafka_steward.journal.locks import Fence
from kafka_steward.journal.records import CORDONS, Cordon, CordonPhase
from kafka_steward.journal.state import Row
from kafka_steward.journal.store import Journal

if TYPE_CHECKING:
    from kafka_steward.planning.files.formats import PlanFolder

KEY = "cordoned.log.dirs"
#: All log directories, those of the future included.
_ALL = "*"
#: Milliseconds for which a rollback waits until a broker knows that its cordon was lifted.
_KNOWN_WITHIN_MS = 30_000


@dataclass(frozen=True)
class Cordons:
    """The cordons of one plan, changed under the step lock."""

    cluster: ClusterPort
    journal: Journal
    plan: str
    who: Actor
    fence: Fence

    def set(self) -> tuple[str, ...]:
        """Cordon the brokers that the drain is to cordon; return why Kafka refuses it. Harmless when repeated.

        What is refused is not tried again: the drain goes on without. Raises ClusterError for a broker or a controller
        that does not answer.
        """
        asked = {row.key: row for row in self._rows() if row.value.phase in (CordonPhase.ASKED, CordonPhase.TRIED)}
        if not asked:
            return ()
        try:
            values = self.cluster.broker_configs(sorted(asked), [KEY])
        except KafkaRefused as refusal:
            self._forget(asked.values())
            return (str(refusal),)
        # A dead broker does not answer, and no drain moves anything off it now.
        shown = {broker: values[broker].get(KEY) for broker in asked.keys() & values.keys()}
        done = {broker for broker, value in shown.items() if value == _ALL and _is_ours(asked[broker])}
        wanted = {broker: self._put(asked[broker], CordonPhase.TRIED) for broker, value in shown.items() if value == ""}
        # Of the others somebody else has cordoned directories, or Kafka has no cordons.
        self._forget([asked[broker] for broker in shown.keys() - done - wanted.keys()])
        changes = {broker: ConfigChange(KEY, ConfigOp.SET, _ALL) for broker in sorted(wanted)}
        answers = self._change(changes, Action.CORDON, "its plan empties it", self._record_late)
        refused = {broker: error for broker, error in answers.items() if isinstance(error, KafkaRefused)}
        self._forget([wanted[broker] for broker in refused])
        for broker in sorted(done):
            self._put(asked[broker], CordonPhase.SET)
        for broker, error in answers.items():
            if error is not None and broker not in refused:
                raise error
            if error is None:
                self._put(wanted[broker], CordonPhase.SET)
        return tuple(map(str, refused.values()))

    def lift(self) -> list[int]:
        """Lift the cordons of the plan that nobody has changed since; return the brokers that do not know it yet.

        A row stays until its broker knows, and that of a dead broker until it is live again. Raises ClusterError.
        """
        rows = {row.key: row for row in self._rows()}
        if not rows:
            return []
        values = self.cluster.broker_configs(sorted(rows), [KEY], own_only=True)
        shown = {broker: of.get(KEY) for broker, of in values.items() if _is_ours(rows[broker])}
        dead = {broker for broker, row in rows.items() if broker not in values and _is_ours(row)}
        cordoned = {broker for broker, value in shown.items() if value == _ALL}
        lifted = sorted(broker for broker, value in shown.items() if not value)
        answers = self.cluster.directories(lifted) if lifted else {}
        recent_ms = self.fence.now_ms - _KNOWN_WITHIN_MS
        waiting = {
            broker
            for broker in lifted
            if broker in answers and answers[broker].cordoned and rows[broker].value.since_ms > recent_ms
        }
        self._forget([row for broker, row in rows.items() if broker not in dead | cordoned | waiting])
        for broker in sorted(cordoned):
            self._put(rows[broker], CordonPhase.TRIED)
        changes = {broker: ConfigChange(KEY, ConfigOp.DELETE) for broker in sorted(cordoned)}
        for error in self._change(changes, Action.UNCORDON, "its plan is taken back").values():
            if error is not None:
                raise error
        return sorted(cordoned | waiting)

    def _rows(self) -> list[Row[int, Cordon]]:
        return [row for row in self.journal.rows(CORDONS).all() if row.value.plan == self.plan]

    def _put(self, row: Row[int, Cordon], phase: CordonPhase) -> Row[int, Cordon]:
        changed = replace(row.value, phase=phase, since_ms=self.fence.now_ms, earlier=None)
        return self.journal.rows(CORDONS).put_all({row.key: changed}, {row.key: row})[row.key]

    def _forget(self, rows: Collection[Row[int, Cordon]]) -> None:
        """Delete rows; one that an earlier drain had is that drain's again."""
        ours, known = self.journal.rows(CORDONS), {row.key: row for row in rows}
        given_back = {
            broker: Cordon(row.value.earlier, row.value.since_ms, CordonPhase.SET)
            for broker, row in known.items()
            if row.value.earlier
        }
        ours.put_all(given_back, known)
        ours.delete_all([row for broker, row in known.items() if broker not in given_back])

    def _change(
        self,
        changes: Mapping[int, ConfigChange],
        action: Action,
        reason: str,
        late: Callable[[list[int]], None] | None = None,
    ) -> dict[int, ClusterError | None]:
        def change(brokers: list[int]) -> Mapping[int, ClusterError | None]:
            return self.cluster.change_broker_configs({broker: [changes[broker]] for broker in brokers})

        entries = {
            broker: [AuditRecord(action, reason, plan=self.plan, broker=broker, after=change.value, who=self.who)]
            for broker, change in changes.items()
        }
        return AuditedCalls(self.journal.audit, self.fence).execute(entries, change, late=late) if entries else {}

    def _record_late(self, brokers: list[int]) -> None:
        """Record cordons that were set after the step lock was lost: of a plan that was cancelled the watch lifts them.

        What another process has recorded since stays.
        """
        rows, now = self.journal.rows(CORDONS), self.journal.now_ms()
        for broker in brokers:
            rows.put(broker, Cordon(self.plan, now, CordonPhase.TRIED), None)


def record_drain(journal: Journal, plan: PlanFolder) -> None:
    """Write which brokers a published drain is to cordon: those that no drain that has not ended is to cordon."""
    if plan.proof.get("operation") != Operation.DRAIN.value:
        return
    rows = journal.rows(CORDONS)
    known, unfinished = {row.key: row for row in rows.all()}, {record.digest for record in journal.plans.unfinished()}
    now, wanted = journal.now_ms(), dict[int, Cordon]()
    for broker in plan.proof["brokers_draining"]:
        row = known.get(broker)
        if row is None or row.value.plan not in unfinished:
            # A person may have lifted what the earlier drain had set.
            wanted[broker] = Cordon(plan.digest, now, earlier=row.value.plan if row else None)
    rows.put_all(wanted, known)


def lift_orphaned_cordons(cluster: ClusterPort, journal: Journal, who: Actor) -> None:
    """Lift what is left of the cordons of drains that were cancelled, and forget those of plans that are not kept.

    Raises ClusterError, and LockLost while a plan is being stepped.
    """
    rows = journal.rows(CORDONS).all()
    for plan in sorted({row.value.plan for row in rows}):
        record = journal.plans.get(plan)
        if record is None:
            journal.rows(CORDONS).delete_all([row for row in rows if row.value.plan == plan])
        elif record.status.finished and record.cancel is not None:
            with journal.step_lock() as fence:
                Cordons(cluster, journal, plan, who, fence).lift()


def cordons_in_effect(journal: Journal) -> dict[int, Cordon]:
    """Return the cordons that drains have set, by broker. Raises JournalError."""
    rows = journal.rows(CORDONS).all()
    return {row.key: row.value for row in rows if row.value.phase is CordonPhase.SET}


def _is_ours(row: Row[int, Cordon]) -> bool:
    return row.value.phase is not CordonPhase.ASKED
