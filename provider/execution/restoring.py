"""After a cancel: the replicas get their order back, strides are taken back, and what was not heard is silenced."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kafka_steward.cluster.state import Snapshot
from kafka_steward.execution.altering import alter_from
from kafka_steward.execution.decisions.moves import OPEN
from kafka_steward.execution.decisions.settle import MEANING, Finding, Standing
from kafka_steward.execution.decisions.stalling import BY_SOMEONE
from kafka_steward.execution.decisions.strides import may_go_back, words
from kafka_steward.execution.deeds import Deeds
from kafka_steward.execution.ledger import Ledger
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.journal.audit import Action
from kafka_steward.journal.moves import MoveRow

__all__ = ["Restoring"]

_LOST = "the cancel lost the order of the replicas"
_UNHEARD = "it got no answer, and must not begin later"


class Restoring:
    """Makes partitions as they were, by the holder of the step lock. Every method may raise ClusterError, LockLost."""

    def __init__(self, cluster: ClusterPort, ledger: Ledger, deeds: Deeds) -> None:
        self._cluster = cluster
        self._ledger = ledger
        self._deeds = deeds

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
        self._deeds.do(entries, lambda batch: alter_from(self._cluster, {name: targets[name] for name in batch}, found))

    def silence(self, rows: Iterable[MoveRow]) -> None:
        """Cancel what Kafka gave no answer to, though nothing of it is to be seen.

        A KRaft controller that was away carries out, once it is back, what had timed out for us. Requests keep their
        order: once it has answered this one, nothing older comes to life any more. That there is none is no failure.
        """
        unheard = [row for row in rows if row.state in OPEN and row.attempt and row.detail == _NEVER_BEGAN]
        entries = {row.topic_partition: [self._ledger.entry(Action.CANCEL, row, _UNHEARD)] for row in unheard}
        self._deeds.do(entries, self._cluster.cancel)

    def from_halfway(self, rows: Sequence[MoveRow], snapshot: Snapshot, why: str) -> None:
        """Mark what rests between two strides as being cancelled: the next look finds it, and restores it."""
        found = snapshot.partitions
        back = [row for row in rows if may_go_back(row, found.get(row.topic_partition), snapshot.live)]
        told = [f"{why} ({words(row.move, found[row.topic_partition].replicas)})" for row in back]
        self._ledger.cancelling(back, told)

    def after_others(self, findings: Iterable[Finding]) -> None:
        """Someone else cancelled a stride: that is carried on to the strides before it."""
        rows = [each.row for each in findings if each.standing is Standing.CANCELLED_HALFWAY]
        self._ledger.cancelling(rows, [BY_SOMEONE for _ in rows])


_NEVER_BEGAN = MEANING[Standing.NEVER_BEGAN][1]
