"""Reversals of the moves of a plan: which of them begin, and what becomes of their rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import Snapshot
from kafka_steward.execution.effects import AuditedCalls
from kafka_steward.execution.moves.late_submissions import LateRetraction
from kafka_steward.execution.moves.observe import Observation, ObservedState
from kafka_steward.execution.moves.recovery import EXTERNAL_CANCEL
from kafka_steward.execution.moves.reversal import NextAction, Reversal, ReversalState, Verdict
from kafka_steward.execution.moves.reversing import ReversalExecutor, judge
from kafka_steward.execution.moves.staging import can_roll_back_stages, is_between_stages, stage_number, stage_reached
from kafka_steward.execution.moves.states import OPEN, Event, next_state
from kafka_steward.execution.moves.store import Decision, MoveStore
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.journal.audit import Actor, event_number
from kafka_steward.journal.records import Cause, MoveRow
from kafka_steward.journal.store import Journal

_UNACKNOWLEDGED = "it was not acknowledged, and must not start later"

#: The states of a move whose cancel is recorded, and is not complete.
_CANCELLING = {ObservedState.CANCELLING, ObservedState.ORDER_CHANGED}


@dataclass(frozen=True)
class MoveReversals:
    """Begins and continues reversals of the moves of `plan`, for the holder of the step lock.

    Every method may raise ClusterError, LockLost.
    """

    plan: str
    moves: MoveStore
    executor: ReversalExecutor

    def judge(self, rows: Iterable[MoveRow], snapshot: Snapshot) -> dict[TopicPartition, Verdict]:
        """Return what the cancel of each of these moves in flight would need next. Pure."""
        return judge([_reversal_of(row, self.plan, row.detail) for row in rows], snapshot)

    def run(self, rows: Iterable[MoveRow], why: str) -> None:
        """Continue the reversals of these moves, whose cancels are recorded, to the end that Kafka shows."""
        by_name = {row.topic_partition: row for row in rows}
        reversals = [_reversal_of(row, self.plan, why) for row in by_name.values()]
        self._record_refused(by_name, self.executor.run(reversals))

    def execute_next(
        self, chosen: Sequence[tuple[MoveRow, str, Cause]], findings: Iterable[Observation], snapshot: Snapshot
    ) -> None:
        """Begin the reversals of the `chosen` moves, each with the reason, and continue those that are recorded."""
        begun = [_reversal_of(each.row, self.plan, each.row.detail) for each in findings if each.state in _CANCELLING]
        self.moves.record_cancelling(chosen)
        begun += [_reversal_of(row, self.plan, why) for row, why, _ in chosen]
        rows = {each.row.topic_partition: each.row for each in findings}
        self._record_refused(rows, self.executor.execute_next(begun, snapshot))

    def _record_refused(
        self, rows: Mapping[TopicPartition, MoveRow], verdicts: Mapping[TopicPartition, Verdict]
    ) -> None:
        """Record the end of moves whose originals Kafka refuses for good: they keep the replicas that they have."""
        self.moves.record_decisions(
            [
                Decision(rows[name], Event.DROP, f"cancelled, and {verdict.why}", Cause.ORDER_REFUSED)
                for name, verdict in verdicts.items()
                if verdict.state is ReversalState.REFUSED
            ]
        )

    def end_moves(self, decisions: Sequence[Decision], snapshot: Snapshot) -> None:
        """Record decisions; cancel the moves before that they end and whose submission Kafka never answered.

        This is done although no reassignment of them is visible. A KRaft controller that was unavailable executes, once
        it is back, requests that had timed out for us. Requests are ordered, so once this cancel is answered, no
        earlier submission can still take effect. A cancel that finds no reassignment in progress is expected and no
        failure.

        These moves count as being cancelled. A move may have begun all the same, and its replicas may have lost their
        order, so the next poll decides. A partition with an external reassignment in flight is left alone: the cancel
        would hit that one.
        """
        unanswered = {
            each.row.topic_partition: each
            for each in decisions
            if each.row.state in OPEN and each.row.unacknowledged and next_state(each.row.state, each.event).settled
        }
        reversals = [_reversal_of(each.row, self.plan, _UNACKNOWLEDGED) for each in unanswered.values()]
        verdicts = self.executor.execute_next([replace(each, unanswered=True) for each in reversals], snapshot)
        asked = [unanswered[name] for name, verdict in verdicts.items() if verdict.action is NextAction.CANCEL]
        self.moves.record_cancelling([(_at_its_stage(each.row, snapshot), each.sentence, each.cause) for each in asked])
        stay = {name for name, verdict in verdicts.items() if not verdict.has_ended}
        self.moves.record_decisions([each for each in decisions if each.row.topic_partition not in stay])

    def begin_between_stages(self, rows: Sequence[MoveRow], snapshot: Snapshot, why: str, cause: Cause) -> None:
        """Mark moves at rest between two stages as being cancelled: the next poll finds and restores them."""
        found = snapshot.partitions
        back = [row for row in rows if can_roll_back_stages(row, found.get(row.topic_partition), snapshot.live)]
        staged = [replace(row, stage=stage_number(row.move, found[row.topic_partition].replicas)) for row in back]
        self.moves.record_cancelling([(row, why, cause) for row in staged])

    def extend_external_cancels(self, findings: Iterable[Observation]) -> None:
        """Extend an external cancel of a stage to the stages before it."""
        rows = [each.row for each in findings if each.state is ObservedState.CANCELLED_BETWEEN_STAGES]
        self.moves.record_cancelling([(row, EXTERNAL_CANCEL, Cause.CANCELLED_ELSEWHERE) for row in rows])


def _reversal_of(row: MoveRow, plan: str, why: str) -> Reversal:
    return Reversal(row.move, why, plan=plan, attempt=row.attempt, stage=row.stage)


def _at_its_stage(row: MoveRow, snapshot: Snapshot) -> MoveRow:
    """Return the row with the stage between whose replicas its partition rests, 0 without any."""
    partition = snapshot.partitions.get(row.topic_partition)
    between = partition is not None and is_between_stages(row, partition.replicas)
    return replace(row, stage=stage_reached(row.move, partition.replicas) if partition and between else 0)


def find_externally_reordered(cluster: ClusterPort, journal: Journal, plan: str) -> list[MoveRow]:
    """Return the moves that were cancelled externally and whose replica order Kafka lost."""
    _, lost = _look_for_reordered(cluster, journal, plan)
    return [row for row, _ in lost]


def restore_externally_reordered(
    cluster: ClusterPort, journal: Journal, plan: str, who: Actor
) -> dict[TopicPartition, str]:
    """Restore the replica order of moves that were cancelled externally. Raises ClusterError, LockLost.

    Returns why Kafka refuses an order for good, as a clause for each partition.
    """
    snapshot, lost = _look_for_reordered(cluster, journal, plan)
    if snapshot is None:
        return {}
    with journal.step_lock() as fence:
        calls, retraction = AuditedCalls(journal.audit, fence), LateRetraction(cluster, journal, plan, who)
        executor = ReversalExecutor(cluster, calls, who, retraction)
        verdicts = executor.execute_next([reversal for _, reversal in lost], snapshot)
    return {name: verdict.why for name, verdict in verdicts.items() if verdict.state is ReversalState.REFUSED}


def _look_for_reordered(
    cluster: ClusterPort, journal: Journal, plan: str
) -> tuple[Snapshot | None, list[tuple[MoveRow, Reversal]]]:
    rows = [row for row in journal.plans.rows(plan) if row.cause is Cause.CANCELLED_ELSEWHERE]
    if not rows:
        return None, []
    number = event_number()
    snapshot = cluster.snapshot(sorted({row.move.topic for row in rows}))
    asked = [(row, Reversal(row.move, row.detail, plan=plan, attempt=number)) for row in rows]
    verdicts = judge((reversal for _, reversal in asked), snapshot)
    return snapshot, [each for each in asked if verdicts[each[0].topic_partition].state is ReversalState.ORDER_LOST]
