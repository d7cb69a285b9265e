"""Retraction of requests that a process sent to Kafka after another process had resumed its plan.

A process that is suspended between the fence and the call, for longer than the lifetime of its lock, submits a
reassignment that the process which resumed the plan does not know of. While that plan continues, its next step finds
the reassignment and adopts it. A plan that has ended has no next step: the reassignment is cancelled, and the order of
the replicas restored. Until that is done it is recorded in `/admin/reassignments`, so that the watch resumes the
retraction if this process crashes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kafka_steward.assignment import Assignment, Move, TopicPartition
from kafka_steward.cluster.state import Partition
from kafka_steward.execution.decisions.moves import SETTLED
from kafka_steward.execution.deeds import Deeds
from kafka_steward.execution.inflight import flights, forget_in_flight, note_in_flight
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.journal.audit import Action, Entry, Who
from kafka_steward.journal.moves import MoveRow, MoveState
from kafka_steward.journal.open import Journal
from kafka_steward.journal.plans import PlanRecord, PlanStatus

__all__ = ["Retraction", "orphans", "where_it_belongs"]

#: Polls in one call: the cancel, the reorder, and three for a cluster that is slow to report.
_ROUNDS = 5
_WHY = "it was asked for after its plan had ended"


def where_it_belongs(record: PlanRecord | None, row: MoveRow | None) -> Assignment | None:
    """Return the final assignment of a partition after a plan; None while the plan may still move it. Pure.

    An unknown plan has no rows: nothing is known then, and None is returned.
    """
    if row is None or (row.state not in SETTLED and record is not None and not record.status.finished):
        return None
    kept = record is not None and record.status is not PlanStatus.ROLLED_BACK and record.not_taken_back is None
    return row.move.after if row.state is MoveState.COMPLETED and kept else row.move.before


@dataclass(frozen=True)
class Retraction:
    """Retracts requests that were sent to Kafka for `plan`. It needs no lock: it touches nothing that a plan moves."""

    cluster: ClusterPort
    journal: Journal
    plan: str
    who: Who

    def of_late(self, asked: Mapping[TopicPartition, Assignment]) -> None:
        """Retract these submitted targets, by partition, as far as the plan has ended for them.

        Raises ClusterError, JournalError: a record is left then, and the watch resumes the retraction.
        """
        record = self.journal.plans.get(self.plan)
        rows = {row.topic_partition: row for row in self.journal.plans.rows(self.plan)}
        homes = {name: where_it_belongs(record, rows.get(name)) for name in asked}
        noted = flights(self.journal.tree)
        late = [
            replace(rows[name].move, before=home, after=target)
            for name, target in asked.items()
            if (home := homes[name]) is not None
            and home != target
            # A record that another plan or an external reassignment wrote since is not ours.
            and (name not in noted or noted[name].plan == self.plan)
        ]
        if late:
            note_in_flight(self.journal.tree, self.plan, late)
            self.take_back(late)

    def take_back(self, late: Sequence[Move]) -> None:
        """Cancel these moves, restore the order of their replicas, and delete their records.

        Raises the errors of `of_late`.
        """
        open_ones = {move.topic_partition: move for move in late}
        deeds = Deeds(self.journal.audit, None)
        for round_ in range(_ROUNDS):
            found = self.cluster.snapshot(sorted({name.topic for name in open_ones})).partitions
            if not round_:
                # Visible or not: an unanswered request may still take effect, but not after this cancel.
                resting = {name for name, each in found.items() if not each.reassigning}
                self._cancel(deeds, {name: move for name, move in open_ones.items() if name in resting})
            over = [name for name, move in open_ones.items() if _is_over(move, found.get(name))]
            forget_in_flight(self.journal.tree, self.plan, over)
            open_ones = {name: move for name, move in open_ones.items() if name not in over}
            if not open_ones:
                return
            flying = {name: move for name, move in open_ones.items() if found[name].reassigning}
            self._cancel(deeds, flying)
            self._reorder(deeds, {name: move for name, move in open_ones.items() if name not in flying})

    def _cancel(self, deeds: Deeds, moves: Mapping[TopicPartition, Move]) -> None:
        deeds.do({name: [self._entry(Action.CANCEL, move)] for name, move in moves.items()}, self.cluster.cancel)

    def _reorder(self, deeds: Deeds, moves: Mapping[TopicPartition, Move]) -> None:
        entries = {name: [self._entry(Action.REORDER, move)] for name, move in moves.items()}
        deeds.do(
            entries, lambda batch: self.cluster.alter({name: moves[name].before for name in batch}, keep_factor=True)
        )

    def _entry(self, action: Action, move: Move) -> Entry:
        return Entry(
            action,
            _WHY,
            plan=self.plan,
            topic=move.topic,
            partition=move.partition,
            attempt=self.journal.now_ms() // 1000,
            before=list(move.after),
            after=list(move.before),
            who=self.who,
        )


def orphans(journal: Journal, plan: str, found: Mapping[TopicPartition, Partition]) -> list[Move]:
    """Return the recorded moves of an ended plan that are still in flight to the recorded target.

    The moves of a plan that a person abandoned are not returned: they continue.
    """
    record = journal.plans.get(plan)
    if record is None or record.status is PlanStatus.ABANDONED or not record.status.finished:
        return []
    rows = {row.topic_partition: row for row in journal.plans.rows_found(plan)}
    late = []
    for name, noted in flights(journal.tree).items():
        home, partition = where_it_belongs(record, rows.get(name)), found.get(name)
        flies = noted.plan == plan and partition is not None and _flies_to(partition, noted.replicas)
        if home is not None and flies and home != noted.replicas:
            late.append(replace(rows[name].move, before=home, after=noted.replicas))
    return late


def _flies_to(partition: Partition, target: Assignment) -> bool:
    left = tuple(broker for broker in partition.replicas if broker not in partition.removing)
    return partition.reassigning and left == target


def _is_over(move: Move, partition: Partition | None) -> bool:
    """Return True if nothing is left to retract.

    The partition is then deleted, restored, being reassigned to another target, or at rest with another set of
    replicas.
    """
    if partition is None:
        return True
    if partition.reassigning:
        return not _flies_to(partition, move.after)
    return partition.replicas == move.before or frozenset(partition.replicas) != frozenset(move.before)
