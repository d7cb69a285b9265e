"""Taking back what a process asked of Kafka after its plan had gone on without it.

A process that is stopped between the fence and the call, for longer than its lock lives, asks for a reassignment that
whoever went on with the plan knew nothing of. While that plan goes on, its next step finds the reassignment and adopts
it. A plan that has ended has no next step: what was asked for is cancelled, and the order of the replicas restored.
Until that is done it is noted in `/admin/reassignments`, so that the watch goes on with it if this process dies.
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

#: Looks in one call: the cancel, its order, and three for a cluster that is slow to tell.
_ROUNDS = 5
_WHY = "it was asked for after its plan had ended"


def where_it_belongs(record: PlanRecord | None, row: MoveRow | None) -> Assignment | None:
    """Return the assignment that a plan has left a partition at for good; None while the plan may still move it. Pure.

    Unknown plans have no rows: then nothing is known, and None is returned.
    """
    if row is None or (row.state not in SETTLED and record is not None and not record.status.finished):
        return None
    kept = record is not None and record.status is not PlanStatus.ROLLED_BACK and record.not_taken_back is None
    return row.move.after if row.state is MoveState.COMPLETED and kept else row.move.before


@dataclass(frozen=True)
class Retraction:
    """Takes back what was asked of Kafka for the plan `plan`. Needs no lock: it touches nothing that a plan moves."""

    cluster: ClusterPort
    journal: Journal
    plan: str
    who: Who

    def of_late(self, asked: Mapping[TopicPartition, Assignment]) -> None:
        """Take back these targets, asked for by partition, as far as the plan has ended for them.

        Raises ClusterError, JournalError: then a note is left, and the watch goes on with it.
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
            # What another plan, or someone else, has noted since is theirs.
            and (name not in noted or noted[name].plan == self.plan)
        ]
        if late:
            note_in_flight(self.journal.tree, self.plan, late)
            self.take_back(late)

    def take_back(self, late: Sequence[Move]) -> None:
        """Cancel these moves, restore the order of their replicas, and strike out their notes. Raises as `of_late`."""
        open_ones = {move.topic_partition: move for move in late}
        deeds = Deeds(self.journal.audit, None)
        for round_ in range(_ROUNDS):
            found = self.cluster.snapshot(sorted({name.topic for name in open_ones})).partitions
            if not round_:
                # Whether or not it is to be seen: a request that was not answered may still begin, and not after this.
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
    """Return what is noted as in flight of a plan that has ended, and still flies to the noted target.

    Not of a plan that a person abandoned: what that had in flight goes on.
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
    """Whether nothing is to be taken back any more: it is gone, as it was, or has another set of replicas at rest."""
    if partition is None:
        return True
    if partition.reassigning:
        return not _flies_to(partition, move.after)
    return partition.replicas == move.before or frozenset(partition.replicas) != frozenset(move.before)
