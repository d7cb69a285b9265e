"""Retraction of requests that a process sent to Kafka after another process had resumed its plan.

A process that is suspended between the fence and the call, for longer than the lifetime of its lock, submits a
reassignment that the process which resumed the plan does not know of. While that plan continues, its next step finds
the reassignment and adopts it. A plan that has ended has no next step: the reassignment is cancelled, and the order of
the replicas restored. Until that is done it is recorded in `/admin/reassignments`, so that the watch resumes the
retraction if this process crashes.

The plan that submitted a partition last decides where it belongs. A late request may have replaced a reassignment that
such a plan has in flight. It is cancelled too, and the next step of that plan finds its move cancelled.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from kafka_steward.assignment import Assignment, Move, TopicPartition
from kafka_steward.cluster.state import Partition
from kafka_steward.execution.effects import AuditedCalls
from kafka_steward.execution.in_flight_records import delete_in_flight, list_in_flight, record_in_flight
from kafka_steward.execution.moves import SETTLED
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.journal.audit import Action, Actor, AuditRecord
from kafka_steward.journal.records import MoveRow, MoveState, Phase, PlanRecord, PlanStatus
from kafka_steward.journal.store import Journal

#: Polls in one call: the cancel, the reorder, and three for a cluster that is slow to report.
_ROUNDS = 5
_WHY = "it was submitted after its plan had ended"


def settled_assignment(record: PlanRecord | None, row: MoveRow | None) -> Assignment | None:
    """Return the final assignment of a partition after a plan; None while the plan may still move it. Pure.

    An unknown plan has no rows: nothing is known then, and None is returned.
    """
    if row is None or (row.state not in SETTLED and record is not None and not record.status.finished):
        return None
    kept = record is not None and record.status is not PlanStatus.ROLLED_BACK and record.not_taken_back is None
    return row.move.after if row.state is MoveState.COMPLETED and kept else row.move.before


@dataclass(frozen=True)
class LateRetraction:
    """Retracts requests that were sent to Kafka for `plan`. It needs no lock: it touches nothing that a plan moves."""

    cluster: ClusterPort
    journal: Journal
    plan: str
    who: Actor

    def retract_submissions(self, asked: Mapping[TopicPartition, Assignment]) -> None:
        """Retract these submitted targets, by partition, as far as no plan continues with them.

        Raises ClusterError, JournalError: a record is left then, and the watch resumes the retraction.
        """
        late = _find_unwanted_requests(self.journal, self.plan, asked, self.journal.plans.rows(self.plan))
        if late:
            record_in_flight(self.journal.tree, self.plan, late)
            self.cancel_and_restore(late)

    def restore_after_late_cancel(self, partitions: Collection[TopicPartition]) -> None:
        """Restore the replica order of reassignments of later plans that a late cancel may have hit.

        Raises ClusterError, JournalError.
        """
        rows = self.journal.plans.rows(self.plan)
        self.cancel_and_restore(_find_unwanted_requests(self.journal, self.plan, dict.fromkeys(partitions), rows))

    def cancel_and_restore(self, late: Sequence[Move]) -> None:
        """Cancel these moves, restore the order of their replicas, and delete their records.

        The record of a topic that we may not describe stays: its state is unknown, and the watch tries again. Raises
        the errors of `retract_submissions`.
        """
        open_ones = {move.topic_partition: move for move in late}
        calls = AuditedCalls(self.journal.audit, None)
        for round_ in range(_ROUNDS):
            snapshot = self.cluster.snapshot(sorted({name.topic for name in open_ones}))
            found = snapshot.partitions
            open_ones = {name: move for name, move in open_ones.items() if name.topic not in snapshot.hidden}
            if not round_:
                # Visible or not: an unanswered request may still take effect, but not after this cancel.
                resting = {name for name, each in found.items() if not each.reassigning}
                unheard = {name: move for name, move in open_ones.items() if move.before != move.after}
                self._cancel_moves(calls, {name: move for name, move in unheard.items() if name in resting})
            over = [name for name, move in open_ones.items() if _is_retracted(move, found.get(name))]
            delete_in_flight(self.journal.tree, self.plan, over)
            open_ones = {name: move for name, move in open_ones.items() if name not in over}
            if not open_ones:
                return
            in_flight = {name: move for name, move in open_ones.items() if found[name].reassigning}
            self._cancel_moves(calls, in_flight)
            self._restore_replica_orders(
                calls, {name: move for name, move in open_ones.items() if name not in in_flight}
            )

    def _cancel_moves(self, calls: AuditedCalls, moves: Mapping[TopicPartition, Move]) -> None:
        calls.execute(
            {name: [self._build_audit_record(Action.CANCEL, move)] for name, move in moves.items()}, self.cluster.cancel
        )

    def _restore_replica_orders(self, calls: AuditedCalls, moves: Mapping[TopicPartition, Move]) -> None:
        entries = {name: [self._build_audit_record(Action.REORDER, move)] for name, move in moves.items()}
        calls.execute(
            entries, lambda batch: self.cluster.alter({name: moves[name].before for name in batch}, keep_factor=True)
        )

    def _build_audit_record(self, action: Action, move: Move) -> AuditRecord:
        return AuditRecord(
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


def find_orphaned_moves(journal: Journal, plan: str, found: Mapping[TopicPartition, Partition]) -> list[Move]:
    """Return the recorded moves of an ended plan that are still in flight to the recorded target.

    The moves of a plan that a person abandoned are not returned: they continue.
    """
    record = journal.plans.get(plan)
    if record is None or record.status is PlanStatus.ABANDONED or not record.status.finished:
        return []
    noted = {name: each.replicas for name, each in list_in_flight(journal.tree).items() if each.plan == plan}
    in_flight = {
        name: target for name, target in noted.items() if name in found and _is_in_flight_to(found[name], target)
    }
    return _find_unwanted_requests(journal, plan, in_flight, journal.plans.existing_rows(plan))


def _find_unwanted_requests(
    journal: Journal, plan: str, asked: Mapping[TopicPartition, Assignment | None], rows: Sequence[MoveRow]
) -> list[Move]:
    """Return the late requests of `plan` that no plan continues with, as moves from where the partition belongs.

    The requests are targets, None for a cancel. `rows` are the plan's.
    """
    record, noted = journal.plans.get(plan), list_in_flight(journal.tree)
    others = journal.plans.submissions_by_others(plan, list(asked))
    late = []
    for row in rows:
        name = row.topic_partition
        if name not in asked:
            continue
        digest, latest = _latest_submission(plan, row, others.get(name, ()))
        # A record that an external reassignment or a request wrote since is not ours.
        if name in noted and noted[name].plan not in {plan, digest}:
            continue
        if digest == plan:
            home = _own_return_target(record, row, asked[name])
        else:
            home = _later_plan_return_target(journal.plans.get(digest), latest, asked[name])
        if home is not None:
            late.append(replace(row.move, before=home, after=asked[name] or home))
    return late


def _latest_submission(plan: str, row: MoveRow, others: Sequence[tuple[str, MoveRow]]) -> tuple[str, MoveRow]:
    """Return the latest submission of the partition of `row`, which is of `plan`, and its plan. Pure."""
    later = [each for each in others if (each[1].submitted_ms or 0) > (row.submitted_ms or 0)]
    return later[-1] if later else (plan, row)


def _own_return_target(record: PlanRecord | None, row: MoveRow, asked: Assignment | None) -> Assignment | None:
    """Return where the plan's own late request has to be taken back to; None if it needs not. Pure.

    A move that the plan submitted again, after the cancel to which a late reorder belongs, is in flight: the reorder
    replaces it, and on KRaft it would stay in flight for ever.
    """
    again = row.state is MoveState.SUBMITTED and row.phase is not Phase.CANCELLING
    if again and asked == row.move.before:
        return row.move.before
    home = settled_assignment(record, row)
    return None if asked in {None, home} else home


def _later_plan_return_target(record: PlanRecord | None, row: MoveRow, asked: Assignment | None) -> Assignment | None:
    """Return where a late request has to be taken back to, by the move of a later plan; None if it needs not. Pure."""
    if row.state in SETTLED:
        return settled_assignment(record, row)
    return None if asked == row.move.after else row.move.before


def _is_in_flight_to(partition: Partition, target: Assignment) -> bool:
    left = tuple(broker for broker in partition.replicas if broker not in partition.removing)
    # On KRaft, submitting the original replicas of a reassignment leaves it in flight without an end.
    endless = bool(frozenset(partition.adding) & frozenset(partition.removing))
    return partition.reassigning and (left == target or (endless and frozenset(left) == frozenset(target)))


def _is_retracted(move: Move, partition: Partition | None) -> bool:
    """Return True if nothing is left to retract.

    The partition is then deleted, restored, being reassigned to another target, or at rest with another set of
    replicas.
    """
    if partition is None:
        return True
    if partition.reassigning:
        return not _is_in_flight_to(partition, move.after)
    return partition.replicas == move.before or frozenset(partition.replicas) != frozenset(move.before)
