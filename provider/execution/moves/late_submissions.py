"""Retraction of requests that a process sent to Kafka after another process had resumed its plan.

A process that is suspended between the fence and the call, for longer than the lifetime of its lock, submits a
reassignment that the process which resumed the plan does not know of. While that plan continues, its next step finds
the reassignment and adopts it. A plan that has ended has no next step: the reassignment is cancelled, and the order of
the replicas restored. If Kafka has completed it at once, as it does for an empty log, the partition is reassigned to
where it belongs. Until that is done it is recorded in `/admin/reassignments`, so that the watch resumes the retraction
if this process crashes.

The plan that submitted a partition last decides where it belongs. A late request may have replaced a reassignment that
such a plan has in flight. It is cancelled too, and the next step of that plan finds its move cancelled.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from kafka_steward.assignment import Assignment, Move, TopicPartition, counted
from kafka_steward.cluster.state import Snapshot
from kafka_steward.errors import PlanError
from kafka_steward.execution.effects import AuditedCalls
from kafka_steward.execution.moves.in_flight import delete_in_flight, list_in_flight, record_in_flight
from kafka_steward.execution.moves.reversal import NextAction, Reversal, ReversalState
from kafka_steward.execution.moves.reversing import ReversalExecutor, judge
from kafka_steward.execution.moves.states import SETTLED
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.journal.audit import Action, Actor, Code
from kafka_steward.journal.records import Cause, MoveRow, MoveState, Phase, PlanRecord, PlanStatus
from kafka_steward.journal.store import Journal

#: What is not to be cancelled now may be so later, or completes.
_WAITS = ReversalState.CANNOT_CANCEL
_WHY = "it was submitted after its plan had ended"
_MOVED_ELSEWHERE = "someone else had reassigned it meanwhile, so its earlier replicas are not known"


def settled_assignment(record: PlanRecord | None, row: MoveRow | None) -> Assignment | None:
    """Return the final assignment of a partition after a plan; None while the plan may still move it. Pure.

    An unknown plan has no rows: nothing is known then, and None is returned.
    """
    if row is None or (row.state not in SETTLED and record is not None and not record.status.finished):
        return None
    kept = record is not None and record.status is not PlanStatus.ROLLED_BACK and record.not_rolled_back is None
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

        Raises ClusterError, JournalError: a record is left then, and the watch resumes the retraction. Raises PlanError
        that names a partition which Kafka has moved to the late target, and which cannot be restored.
        """
        late = _find_unwanted_requests(self.journal, self.plan, asked, self.journal.plans.rows(self.plan))
        if not late:
            return
        record_in_flight(self.journal.tree, self.plan, [each.move for each in late])
        left_alone = self.cancel_and_restore(late)
        if left_alone:
            others = counted(len(left_alone) - 1, "more partition", "is", "are")
            raise PlanError(f"{left_alone[0]}{f' {others} not restored either.' if len(left_alone) > 1 else ''}")

    def restore_after_late_cancel(self, partitions: Collection[TopicPartition]) -> None:
        """Restore the replica order of reassignments of later plans that a late cancel may have hit.

        Raises ClusterError, JournalError.
        """
        rows = self.journal.plans.rows(self.plan)
        self.cancel_and_restore(_find_unwanted_requests(self.journal, self.plan, dict.fromkeys(partitions), rows))

    def cancel_and_restore(self, late: Sequence[Reversal]) -> list[str]:
        """Take these requests back, and delete their records.

        Returns a message for each partition that cannot be restored. The record of a request that Kafka does not let us
        take back yet stays, and the watch tries again. Raises ClusterError, JournalError.
        """
        verdicts = ReversalExecutor(self.cluster, AuditedCalls(self.journal.audit, None), self.who).run(late)
        # One that Kafka is taking to its originals needs nothing more.
        over = {
            name: each
            for name, each in verdicts.items()
            if each.state is ReversalState.RETURNING or (each.has_ended and each.state is not _WAITS)
        }
        kept = {name: each for name, each in over.items() if each.action is NextAction.FORBIDDEN}
        left_alone = [
            replace(each, move=replace(each.move, after=kept[each.partition].replicas), why=kept[each.partition].why)
            for each in late
            if each.partition in kept
        ]
        self.journal.audit.record_all(
            [replace(each.audit_record(Action.SKIP, each.why, self.who), code=Code.LEFT_ALONE) for each in left_alone]
        )
        delete_in_flight(self.journal.tree, self.plan, list(over))
        return [
            f"{each.partition} was moved to {list(each.move.after)} by a request of plan {self.plan[:12]} that Kafka "
            f"received after the plan had ended, and is not restored: {each.why.rstrip('.')}. Check its replicas, and "
            "reassign it."
            for each in left_alone
        ]


def find_orphaned_moves(journal: Journal, plan: str, snapshot: Snapshot) -> list[Reversal]:
    """Return the reversals of the recorded moves of an ended plan, as far as they need something.

    The moves of a plan that a person abandoned are not returned: they continue.
    """
    record = journal.plans.get(plan)
    if record is None or record.status is PlanStatus.ABANDONED or not record.status.finished:
        return []
    noted = {name: each.replicas for name, each in list_in_flight(journal.tree).items() if each.plan == plan}
    late = _find_unwanted_requests(journal, plan, noted, journal.plans.existing_rows(plan))
    verdicts = judge([replace(each, unanswered=False) for each in late], snapshot)
    return [each for each in late if verdicts[each.partition].action is not NextAction.DONE]


def _find_unwanted_requests(
    journal: Journal, plan: str, asked: Mapping[TopicPartition, Assignment | None], rows: Sequence[MoveRow]
) -> list[Reversal]:
    """Return the late requests of `plan` that no plan continues with.

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
            late.append(late_reversal(plan, replace(row.move, before=home, after=asked[name] or home), latest))
    return late


def late_reversal(plan: str, move: Move, latest: MoveRow) -> Reversal:
    """Return the reversal of a late request of `plan`: a `move` from where the partition belongs to its target. Pure.

    `latest` is the last submission of the partition. A partition that an external client had moved (FAILED) was
    elsewhere when Kafka received the request. One that needed no move (SATISFIED) was at the target before, unless its
    brokers had returned.
    """
    was_there = latest.state is MoveState.SATISFIED and latest.cause is not Cause.BROKERS_RETURNED
    return Reversal(
        move,
        _WHY,
        plan=plan,
        attempt=None,
        unanswered=move.before != move.after,
        rolls_back=not was_there,
        lost=_MOVED_ELSEWHERE if latest.state is MoveState.FAILED else "",
    )


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
