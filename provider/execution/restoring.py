"""After a cancel: the replicas get their order back, strides are taken back, and what was not heard is silenced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import Partition, Snapshot
from kafka_steward.execution.altering import alter_from
from kafka_steward.execution.decisions.moves import OPEN
from kafka_steward.execution.decisions.settle import Finding, Standing
from kafka_steward.execution.decisions.stalling import BY_SOMEONE
from kafka_steward.execution.decisions.strides import halfway, may_go_back, stage_of
from kafka_steward.execution.deeds import Deeds
from kafka_steward.execution.ledger import Decision, Ledger
from kafka_steward.execution.owner import new_owner
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.execution.retracting import Retraction
from kafka_steward.journal.audit import Action, Who
from kafka_steward.journal.moves import Cause, MoveRow
from kafka_steward.journal.open import Journal

__all__ = ["Restoring", "reordered_by_others", "restore_orders"]

_LOST = "the cancel lost the order of the replicas"
_UNHEARD = "it got no answer, and must not begin later"


class Restoring:
    """Makes partitions as they were, by the holder of the step lock. Every method may raise ClusterError, LockLost."""

    def __init__(self, cluster: ClusterPort, ledger: Ledger, deeds: Deeds, retraction: Retraction) -> None:
        self._cluster = cluster
        self._ledger = ledger
        self._deeds = deeds
        self._retraction = retraction

    def order(self, findings: Iterable[Finding]) -> None:
        """Kafka's cancel loses the order of replicas, and with it the preferred leader.

        What strides had brought before the cancel is let go of by the same reassignment.
        """
        lost = {each.row.topic_partition: each for each in findings if each.standing is Standing.DISORDERED}
        entries = {
            name: [
                self._ledger.entry(
                    Action.REORDER, each.row, _LOST, before=list(each.found or ()), after=list(each.row.move.before)
                )
            ]
            for name, each in lost.items()
        }
        targets = {name: each.row.move.before for name, each in lost.items()}
        found = {name: each.found or () for name, each in lost.items()}
        self._deeds.do(
            entries,
            lambda batch: alter_from(self._cluster, {name: targets[name] for name in batch}, found),
            late=lambda batch: self._retraction.of_late({name: targets[name] for name in batch}),
        )

    def silence(self, ends: Iterable[Decision], found: Mapping[TopicPartition, Partition]) -> frozenset[TopicPartition]:
        """Cancel what is about to be given up and Kafka gave no answer to, though nothing of it is to be seen.

        A KRaft controller that was away carries out, once it is back, what had timed out for us. Requests keep their
        order: once it has answered this one, nothing older comes to life any more. That there is none is no failure.
        These are returned, and count as being cancelled: it may have begun all the same, and lost the order of its
        replicas, so the next look decides. What someone else has in flight at this moment is left alone: the cancel
        would be theirs.
        """
        unheard = [each for each in ends if each.row.state in OPEN and each.row.unacknowledged]
        asked = {}
        for each in unheard:
            partition = found.get(each.row.topic_partition)
            if partition is None or not partition.reassigning:
                stage = 0 if partition is None else halfway(each.row.move, partition.replicas)
                asked[each.row.topic_partition] = replace(each.row, stage=stage), each.sentence, each.cause
        entries = {name: [self._ledger.entry(Action.CANCEL, row, _UNHEARD)] for name, (row, _, _) in asked.items()}
        self._deeds.do(entries, self._cluster.cancel)
        self._ledger.cancelling(list(asked.values()))
        return frozenset(asked)

    def from_halfway(self, rows: Sequence[MoveRow], snapshot: Snapshot, why: str, cause: Cause) -> None:
        """Mark what rests between two strides as being cancelled: the next look finds it, and restores it."""
        found = snapshot.partitions
        back = [row for row in rows if may_go_back(row, found.get(row.topic_partition), snapshot.live)]
        staged = [replace(row, stage=stage_of(row.move, found[row.topic_partition].replicas)) for row in back]
        self._ledger.cancelling([(row, why, cause) for row in staged])

    def after_others(self, findings: Iterable[Finding]) -> None:
        """Carry on someone else's cancel of a stride to the strides before it."""
        rows = [each.row for each in findings if each.standing is Standing.CANCELLED_HALFWAY]
        self._ledger.cancelling([(row, BY_SOMEONE, Cause.CANCELLED_ELSEWHERE) for row in rows])


def reordered_by_others(cluster: ClusterPort, journal: Journal, plan: str) -> list[MoveRow]:
    """Return the moves that someone else cancelled, and of which Kafka lost the order of the replicas."""
    rows = [row for row in journal.plans.rows(plan) if row.cause is Cause.CANCELLED_ELSEWHERE]
    found = cluster.snapshot(sorted({row.move.topic for row in rows})).partitions if rows else {}
    return [row for row in rows if row.topic_partition in found and _reordered(row, found[row.topic_partition])]


def restore_orders(cluster: ClusterPort, journal: Journal, plan: str, who: Who) -> None:
    """Give the replicas of what someone else cancelled the order back that they had. Raises ClusterError, LockLost."""
    rows = {row.topic_partition: row for row in reordered_by_others(cluster, journal, plan)}
    if not rows:
        return
    with journal.step_lock(new_owner()) as fence:
        ledger = Ledger(journal, plan, who, fence)
        now_s = journal.now_ms() // 1000
        entries = {
            name: [ledger.entry(Action.REORDER, row, _LOST, attempt=now_s, after=list(row.move.before))]
            for name, row in rows.items()
        }
        Deeds(journal.audit, fence).do(
            entries,
            lambda batch: cluster.alter({name: rows[name].move.before for name in batch}),
            late=lambda batch: Retraction(cluster, journal, plan, who).of_late(
                {name: rows[name].move.before for name in batch}
            ),
        )


def _reordered(row: MoveRow, now: Partition) -> bool:
    lost = now.replicas != row.move.before and frozenset(now.replicas) == frozenset(row.move.before)
    return lost and not now.reassigning
