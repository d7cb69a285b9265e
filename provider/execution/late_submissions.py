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
from enum import Enum, auto

from kafka_steward.assignment import Assignment, Move, TopicPartition, counted, name_brokers
from kafka_steward.cluster.state import Partition, Snapshot
from kafka_steward.errors import PlanError
from kafka_steward.execution.effects import AuditedCalls
from kafka_steward.execution.in_flight_records import delete_in_flight, list_in_flight, record_in_flight
from kafka_steward.execution.moves import SETTLED
from kafka_steward.execution.originals import restore_originals
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.journal.audit import Action, Actor, AuditRecord, Code, event_number
from kafka_steward.journal.records import Cause, MoveRow, MoveState, Phase, PlanRecord, PlanStatus
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
    kept = record is not None and record.status is not PlanStatus.ROLLED_BACK and record.not_rolled_back is None
    return row.move.after if row.state is MoveState.COMPLETED and kept else row.move.before


class LateAction(Enum):
    """What a late request still needs."""

    #: Nothing: its topic is deleted, the partition is where it belongs or on its way there, or another client moved it.
    NONE = auto()
    #: It is in flight to the late target.
    CANCEL = auto()
    #: It rests with the right replicas in another order.
    REORDER = auto()
    #: Kafka completed the request: it rests at the late target.
    ROLL_BACK = auto()
    #: Kafka completed the request, and the replicas before it cannot be restored.
    LEAVE = auto()


@dataclass(frozen=True, slots=True)
class LateRequest:
    """A late request: a move from where the partition belongs to the target of the request.

    `ended` is the state in which the partition's move ended, None if it has not, and `cause` the cause. A partition
    that an external client had moved (FAILED) was elsewhere when Kafka received the request. One that needed no move
    (SATISFIED) was at the target before, unless its brokers had returned.
    """

    move: Move
    ended: MoveState | None = MoveState.DROPPED
    cause: Cause | None = None


def next_late_action(request: LateRequest, partition: Partition | None, live: frozenset[int]) -> LateAction:
    """Return what a late request needs next. Pure."""
    move = request.move
    if partition is None:
        return LateAction.NONE
    if partition.reassigning:
        return LateAction.CANCEL if _is_in_flight_to(partition, move.after) else LateAction.NONE
    if partition.replicas == move.after != move.before:
        if request.ended is MoveState.SATISFIED and request.cause is not Cause.BROKERS_RETURNED:
            return LateAction.NONE
        return LateAction.LEAVE if unrestorable_reason(request, partition, live) else LateAction.ROLL_BACK
    same = frozenset(partition.replicas) == frozenset(move.before) and not partition.is_recreated(move.topic_id)
    return LateAction.REORDER if same and partition.replicas != move.before else LateAction.NONE


def unrestorable_reason(request: LateRequest, partition: Partition, live: frozenset[int]) -> str:
    """Return why a partition at the late target cannot be restored, as a clause; empty if it can be. Pure."""
    if partition.is_recreated(request.move.topic_id):
        return "its topic was deleted and re-created meanwhile, so its earlier replicas are not known"
    if request.ended is MoveState.FAILED:
        return "someone else had reassigned it meanwhile, so its earlier replicas are not known"
    dead = sorted(request.move.removing - live)
    return f"its original {name_brokers(dead)} {'is' if len(dead) == 1 else 'are'} not live" if dead else ""


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
        record_in_flight(self.journal.tree, self.plan, [request.move for request in late])
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

    def cancel_and_restore(self, late: Sequence[LateRequest]) -> list[str]:
        """Cancel these requests, restore their replicas and the order of these, and delete their records.

        Returns a message for each partition that rests at the late target and cannot be restored. The record of a topic
        that we may not describe stays: its state is unknown, and the watch tries again. Raises ClusterError,
        JournalError.
        """
        left_alone: list[str] = []
        open_ones = {request.move.topic_partition: request for request in late}
        calls = AuditedCalls(self.journal.audit, None)
        for round_ in range(_ROUNDS):
            snapshot = self.cluster.snapshot(sorted({name.topic for name in open_ones}))
            found = snapshot.partitions
            open_ones = {name: each for name, each in open_ones.items() if name.topic not in snapshot.hidden}
            if not round_:
                # Visible or not: an unanswered request may still take effect, but not after this cancel.
                resting = {name for name, each in found.items() if not each.reassigning}
                moves = {name: each.move for name, each in open_ones.items() if name in resting}
                self._cancel_moves(calls, {name: move for name, move in moves.items() if move.before != move.after})
            needed = {name: next_late_action(each, found.get(name), snapshot.live) for name, each in open_ones.items()}
            left_alone += self._record_left_alone(
                [
                    (open_ones[name].move, unrestorable_reason(open_ones[name], found[name], snapshot.live))
                    for name, action in needed.items()
                    if action is LateAction.LEAVE
                ]
            )
            over = [name for name, action in needed.items() if action in {LateAction.NONE, LateAction.LEAVE}]
            delete_in_flight(self.journal.tree, self.plan, over)
            open_ones = {name: each for name, each in open_ones.items() if name not in over}
            if not open_ones:
                break
            in_flight = {name: each.move for name, each in open_ones.items() if needed[name] is LateAction.CANCEL}
            self._cancel_moves(calls, in_flight)
            at_rest = {name: each.move for name, each in open_ones.items() if name not in in_flight}
            completed = [name for name in at_rest if needed[name] is LateAction.ROLL_BACK]
            refused = self._restore_replicas(calls, at_rest, completed, snapshot)
            left_alone += self._record_left_alone(
                [(replace(at_rest[name], after=found[name].replicas), why) for name, why in refused.items()]
            )
            delete_in_flight(self.journal.tree, self.plan, list(refused))
            open_ones = {name: each for name, each in open_ones.items() if name not in refused}
        return left_alone

    def _cancel_moves(self, calls: AuditedCalls, moves: Mapping[TopicPartition, Move]) -> None:
        calls.execute(
            {name: [self._build_audit_record(Action.CANCEL, move)] for name, move in moves.items()}, self.cluster.cancel
        )

    def _restore_replicas(
        self,
        calls: AuditedCalls,
        moves: Mapping[TopicPartition, Move],
        completed: Collection[TopicPartition],
        snapshot: Snapshot,
    ) -> dict[TopicPartition, str]:
        """Submit the replicas before; return why Kafka refuses them for good, as a clause for each partition."""
        entries = {
            name: [self._build_audit_record(Action.ROLL_BACK if name in completed else Action.REORDER, move)]
            for name, move in moves.items()
        }
        return restore_originals(
            self.cluster, calls, entries, {name: move.before for name, move in moves.items()}, snapshot
        )

    def _record_left_alone(self, late: Sequence[tuple[Move, str]]) -> list[str]:
        self.journal.audit.record_all(
            [self._build_audit_record(Action.SKIP, move, why, Code.LEFT_ALONE) for move, why in late]
        )
        return [
            f"{move.topic_partition} was moved to {list(move.after)} by a request of plan {self.plan[:12]} that Kafka "
            f"received after the plan had ended, and is not restored: {why.rstrip('.')}. Check its replicas, and "
            "reassign it."
            for move, why in late
        ]

    def _build_audit_record(self, action: Action, move: Move, why: str = _WHY, code: Code | None = None) -> AuditRecord:
        return AuditRecord(
            action,
            why,
            plan=self.plan,
            topic=move.topic,
            partition=move.partition,
            attempt=event_number(),
            before=list(move.after),
            after=list(move.before),
            who=self.who,
            code=code,
        )


def find_orphaned_moves(journal: Journal, plan: str, found: Mapping[TopicPartition, Partition]) -> list[LateRequest]:
    """Return the recorded moves of an ended plan that are in flight to the recorded target, or rest there.

    The moves of a plan that a person abandoned are not returned: they continue.
    """
    record = journal.plans.get(plan)
    if record is None or record.status is PlanStatus.ABANDONED or not record.status.finished:
        return []
    noted = {name: each.replicas for name, each in list_in_flight(journal.tree).items() if each.plan == plan}
    there = {
        name: target
        for name, target in noted.items()
        if name in found and (_is_in_flight_to(found[name], target) or found[name].replicas == target)
    }
    return _find_unwanted_requests(journal, plan, there, journal.plans.existing_rows(plan))


def _find_unwanted_requests(
    journal: Journal, plan: str, asked: Mapping[TopicPartition, Assignment | None], rows: Sequence[MoveRow]
) -> list[LateRequest]:
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
        ended = latest.state if latest.state in SETTLED else None
        if digest == plan:
            home = _own_return_target(record, row, asked[name])
        else:
            home = _later_plan_return_target(journal.plans.get(digest), latest, asked[name])
        if home is not None:
            late.append(LateRequest(replace(row.move, before=home, after=asked[name] or home), ended, latest.cause))
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
