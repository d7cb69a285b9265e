"""The executors of reversals: they cancel what is in flight, and restore the original replicas in their order.

Kafka's cancel loses the order of the replicas, and with it the preferred leader. A KRaft controller accepts no
assignment with a broker that was unregistered, not even the one that the partition has. Such a partition keeps the
replicas that it has: its verdict is REFUSED, and names them.

`MoveReversals` takes back moves of a plan that continues. `LateRetraction` takes back what a process sent to Kafka
after another process had resumed its plan: it was suspended between the fence and the call for longer than the lifetime
of its lock. While that plan continues, its next step finds the reassignment and adopts it. A plan that has ended has no
next step: the reassignment is cancelled, and the order of the replicas restored. If Kafka has completed it at once, as
it does for an empty log, the partition is reassigned to where it belongs. Until that is done it is recorded in
`/admin/reassignments`, so that the watch resumes the retraction if this process crashes.

The plan that submitted a partition last decides where it belongs. A late request may have replaced a reassignment that
such a plan has in flight. It is cancelled too, and the next step of that plan finds its move cancelled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from kafka_steward.assignment import Assignment, Move, TopicPartition, counted
from kafka_steward.cluster.state import Snapshot
from kafka_steward.errors import PlanError
from kafka_steward.execution.effects import AuditedCalls, alter_keeping_factor
from kafka_steward.execution.moves.in_flight import delete_in_flight, list_in_flight, record_in_flight
from kafka_steward.execution.moves.observe import Observation, ObservedState
from kafka_steward.execution.moves.recovery import EXTERNAL_CANCEL, is_unregistered_refusal, unregistered_clause
from kafka_steward.execution.moves.reversal import NextAction, Reversal, ReversalState, Verdict, next_action
from kafka_steward.execution.moves.skips import record_skips
from kafka_steward.execution.moves.staging import (
    UNCLEAN_ELECTIONS,
    can_roll_back_stages,
    is_between_stages,
    restoring_stage,
    stage_number,
    stage_reached,
)
from kafka_steward.execution.moves.states import OPEN, SETTLED, Event, next_state
from kafka_steward.execution.moves.store import Decision, MoveStore
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.journal.audit import Action, Actor, AuditRecord, Code, event_number
from kafka_steward.journal.records import Cause, MoveRow, MoveState, Phase, PlanRecord, PlanStatus
from kafka_steward.journal.store import Journal

#: Polls in one call: the cancel, the reorder, and three for a cluster that is slow to report.
_ROUNDS = 5

#: What may take longer than a few polls.
_LONG = {ReversalState.RETURNING, ReversalState.HIDDEN}

_ORDER_LOST = "the cancel did not restore the replica order"


class Retraction(Protocol):
    """What is done about requests that were sent after the lock was lost (`AuditedCalls`)."""

    def retract_submissions(self, asked: Mapping[TopicPartition, Assignment]) -> None:
        """Retract these submitted targets."""

    def restore_after_late_cancel(self, partitions: Collection[TopicPartition]) -> None:
        """Restore what a late cancel of these partitions may have hit."""


def judge(reversals: Iterable[Reversal], snapshot: Snapshot) -> dict[TopicPartition, Verdict]:
    """Return the verdict about each reversal by what a snapshot shows. Pure."""
    partitions, hidden = snapshot.partitions, snapshot.hidden
    return {
        reversal.partition: next_action(
            reversal, partitions.get(reversal.partition), snapshot.live, hidden=reversal.partition.topic in hidden
        )
        for reversal in reversals
    }


@dataclass(frozen=True)
class ReversalExecutor:
    """Executes reversals, one `next_action` at a time. Every method may raise ClusterError, JournalError, LockLost."""

    cluster: ClusterPort
    calls: AuditedCalls
    who: Actor
    retraction: Retraction | None = None

    def run(self, reversals: Iterable[Reversal]) -> dict[TopicPartition, Verdict]:
        """Execute reversals until Kafka shows the end of each, or keeps us waiting; return the last verdicts.

        If the process is killed at any point, the next call with the same reversals goes on.
        """
        verdicts: dict[TopicPartition, Verdict] = {}
        pending = list(reversals)
        for _ in range(_ROUNDS):
            if not pending:
                break
            snapshot = self.cluster.snapshot(sorted({reversal.partition.topic for reversal in pending}))
            verdicts |= self.execute_next(pending, snapshot)
            judged = [(reversal, verdicts[reversal.partition]) for reversal in pending]
            pending = [_after(reversal, verdict) for reversal, verdict in judged if not verdict.has_ended]
            if all(verdicts[reversal.partition].state in _LONG for reversal in pending):
                break
        return verdicts

    def execute_next(self, reversals: Iterable[Reversal], snapshot: Snapshot) -> dict[TopicPartition, Verdict]:
        """Execute the next action of each by what `snapshot` shows; return the verdicts.

        Refusals that are not for good are in the audit trail: the next call tries again.
        """
        by_name = {reversal.partition: reversal for reversal in reversals}
        verdicts = judge(by_name.values(), snapshot)
        reorders = [by_name[name] for name, verdict in verdicts.items() if verdict.action is NextAction.REORDER]
        refused = self._restore_originals(reorders, verdicts, snapshot) if reorders else {}
        cancels = {
            name: [by_name[name].audit_record(Action.CANCEL, by_name[name].why, self.who)]
            for name, verdict in verdicts.items()
            if verdict.action is NextAction.CANCEL
        }
        if cancels:
            # Sent too late, it may have hit a reassignment of a later plan.
            late = self.retraction.restore_after_late_cancel if self.retraction else None
            self.calls.execute(cancels, self.cluster.cancel, late=late)
        return verdicts | refused

    def _restore_originals(
        self, reversals: Sequence[Reversal], verdicts: Mapping[TopicPartition, Verdict], snapshot: Snapshot
    ) -> dict[TopicPartition, Verdict]:
        """Submit the original replicas, or a stage before them; return the verdicts of those that are refused for good.

        With the order, this restores the preferred leader. The same reassignment removes the replicas that completed
        stages had added before the cancel.
        """
        targets = self._next_assignments(reversals, snapshot)
        replicas = {name: verdicts[name].replicas for name in targets}
        entries = {
            reversal.partition: [self._build_restore_record(reversal, verdicts[reversal.partition], targets)]
            for reversal in reversals
        }
        retraction = self.retraction
        answers = self.calls.execute(
            entries,
            lambda batch: alter_keeping_factor(self.cluster, {name: targets[name] for name in batch}, replicas),
            late=None
            if retraction is None
            else lambda batch: retraction.retract_submissions({name: targets[name] for name in batch}),
        )
        return {
            name: Verdict(
                ReversalState.REFUSED,
                f"its replicas are {list(replicas[name])}, and Kafka refuses its original ones, "
                f"{list(targets[name])}{unregistered_clause(targets[name], snapshot)}: {error}",
                replicas[name],
            )
            for name, error in answers.items()
            if is_unregistered_refusal(error, zookeeper_mode=self.cluster.zookeeper_mode)
        }

    def _next_assignments(self, reversals: Sequence[Reversal], snapshot: Snapshot) -> dict[TopicPartition, Assignment]:
        """Return the assignment to submit next for each: its originals, or a stage before them."""
        partitions = snapshot.partitions
        adding = {
            reversal.move.topic
            for reversal in reversals
            if reversal.stage
            and not frozenset(reversal.move.before) <= frozenset(partitions[reversal.partition].replicas)
        }
        settings = self.cluster.topic_configs(sorted(adding), [UNCLEAN_ELECTIONS]) if adding else {}
        unclean = {topic for topic in adding if settings.get(topic, {}).get(UNCLEAN_ELECTIONS) == "true"}
        return {
            reversal.partition: restoring_stage(
                reversal.move, partitions[reversal.partition], snapshot.live, unclean=reversal.move.topic in unclean
            )
            for reversal in reversals
        }

    def _build_restore_record(
        self, reversal: Reversal, verdict: Verdict, targets: Mapping[TopicPartition, Assignment]
    ) -> AuditRecord:
        late = verdict.state is ReversalState.COMPLETED_LATE
        action, why = (Action.ROLL_BACK, reversal.why) if late else (Action.REORDER, _ORDER_LOST)
        before, after = list(verdict.replicas), list(targets[reversal.partition])
        return replace(reversal.audit_record(action, why, self.who), before=before, after=after)


def _after(reversal: Reversal, verdict: Verdict) -> Reversal:
    """Return a reversal as it is once the next action of `verdict` was answered."""
    if verdict.action is not NextAction.CANCEL:
        return reversal
    return replace(reversal, unanswered=False, cancelled=verdict.state is ReversalState.IN_FLIGHT)


_NEW_TOPIC = "it was meant for a topic that was deleted, and created anew while the move was submitted"

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
        cancelling = [finding.row for finding in findings if finding.state in _CANCELLING]
        begun = [_reversal_of(row, self.plan, row.detail) for row in cancelling]
        self.moves.record_cancelling(chosen)
        begun += [_reversal_of(row, self.plan, why) for row, why, _ in chosen]
        rows = {finding.row.topic_partition: finding.row for finding in findings}
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

        These moves count as being cancelled. A move may have started all the same, and its replicas may have lost their
        order, so the next poll decides. A partition with an external reassignment in flight is left alone: the cancel
        would hit that one.
        """
        unanswered = {
            decision.row.topic_partition: decision
            for decision in decisions
            if decision.row.state in OPEN
            and decision.row.unacknowledged
            and next_state(decision.row.state, decision.event).settled
        }
        reversals = [_reversal_of(decision.row, self.plan, _UNACKNOWLEDGED) for decision in unanswered.values()]
        verdicts = self.executor.execute_next([replace(reversal, unanswered=True) for reversal in reversals], snapshot)
        cancelled = [unanswered[name] for name, verdict in verdicts.items() if verdict.action is NextAction.CANCEL]
        self.moves.record_cancelling(
            [(_at_its_stage(decision.row, snapshot), decision.sentence, decision.cause) for decision in cancelled]
        )
        stay = {name for name, verdict in verdicts.items() if not verdict.has_ended}
        self.moves.record_decisions([decision for decision in decisions if decision.row.topic_partition not in stay])

    def begin_between_stages(self, rows: Sequence[MoveRow], snapshot: Snapshot, why: str, cause: Cause) -> None:
        """Mark moves at rest between two stages as being cancelled: the next poll finds and restores them."""
        partitions = snapshot.partitions
        back = [row for row in rows if can_roll_back_stages(row, partitions.get(row.topic_partition), snapshot.live)]
        staged = [replace(row, stage=stage_number(row.move, partitions[row.topic_partition].replicas)) for row in back]
        self.moves.record_cancelling([(row, why, cause) for row in staged])

    def cancel_on_new_topics(self, findings: Iterable[Observation], snapshot: Snapshot) -> None:
        """Cancel moves that Kafka has begun with a topic that was created anew while they were submitted.

        Kafka knows topics by their names. The cancel restores the replicas of the new topic, though not their order.
        """
        hit = [finding.row for finding in findings if finding.state is ObservedState.RECREATED_IN_FLIGHT]
        moves = []
        for row in hit:
            now = snapshot.partitions[row.topic_partition]
            moves.append(replace(row.move, before=now.original, after=now.target, topic_id=now.topic_id))
        self.executor.execute_next(
            [Reversal(move, _NEW_TOPIC, plan=self.plan, attempt=None) for move in moves], snapshot
        )

    def extend_external_cancels(self, findings: Iterable[Observation]) -> None:
        """Extend an external cancel of a stage to the stages before it."""
        rows = [finding.row for finding in findings if finding.state is ObservedState.CANCELLED_BETWEEN_STAGES]
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
    lost = {name for name, verdict in verdicts.items() if verdict.state is ReversalState.ORDER_LOST}
    return snapshot, [(row, reversal) for row, reversal in asked if row.topic_partition in lost]


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
    if row.state is MoveState.SATISFIED:
        # Somebody had moved it to the target before; or else its brokers came back, and it never left.
        return row.move.before if row.cause is Cause.BROKERS_RETURNED else row.move.after
    kept = record is not None and not record.rolled_back
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
        # First: by these records, the watch finds the requests if this process is killed.
        record_in_flight(self.journal.mailbox, self.plan, [reversal.move for reversal in late])
        left_alone = self.cancel_and_restore(late)
        if left_alone:
            more = counted(len(left_alone) - 1, "more partition", "is", "are")
            raise PlanError(f"{left_alone[0]}{f' {more} not restored either.' if len(left_alone) > 1 else ''}")

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
        finished = {
            name: verdict
            for name, verdict in verdicts.items()
            if verdict.state is ReversalState.RETURNING or (verdict.has_ended and verdict.state is not _WAITS)
        }
        kept = {name: verdict for name, verdict in finished.items() if verdict.action is NextAction.FORBIDDEN}
        left_alone = [
            replace(reversal, move=replace(reversal.move, after=verdict.replicas), why=verdict.why)
            for reversal in late
            if (verdict := kept.get(reversal.partition)) is not None
        ]
        entries = [reversal.audit_record(Action.SKIP, reversal.why, self.who) for reversal in left_alone]
        record_skips(
            self.journal, self.plan, Code.LEFT_ALONE, [replace(entry, code=Code.LEFT_ALONE) for entry in entries]
        )
        delete_in_flight(self.journal.mailbox, self.plan, list(finished))
        return [
            f"{reversal.partition} was moved to {list(reversal.move.after)} by a request of plan {self.plan[:12]} that "
            f"Kafka received after the plan had ended, and is not restored: {reversal.why.rstrip('.')}. Check its "
            "replicas, and reassign it."
            for reversal in left_alone
        ]


def find_orphaned_moves(journal: Journal, plan: str, snapshot: Snapshot) -> list[Reversal]:
    """Return the reversals of the recorded moves of an ended plan, as far as they need something.

    The moves of a plan that a person abandoned are not returned: they continue.
    """
    record = journal.plans.get(plan)
    if record is None or record.status is PlanStatus.ABANDONED or not record.status.finished:
        return []
    documents = list_in_flight(journal.mailbox)
    targets = {name: document.replicas for name, document in documents.items() if document.plan == plan}
    late = _find_unwanted_requests(journal, plan, targets, journal.plans.existing_rows(plan))
    verdicts = judge([replace(reversal, unanswered=False) for reversal in late], snapshot)
    return [reversal for reversal in late if verdicts[reversal.partition].action is not NextAction.DONE]


def _find_unwanted_requests(
    journal: Journal, plan: str, asked: Mapping[TopicPartition, Assignment | None], rows: Sequence[MoveRow]
) -> list[Reversal]:
    """Return the late requests of `plan` that no plan continues with.

    The requests are targets, None for a cancel. `rows` are the plan's.
    """
    record, documents = journal.plans.get(plan), list_in_flight(journal.mailbox)
    submissions = journal.plans.submissions_by_others(plan, list(asked))
    late = []
    for row in rows:
        name = row.topic_partition
        if name not in asked:
            continue
        digest, latest = _latest_submission(plan, row, submissions.get(name, ()))
        # A record that an external reassignment or a request wrote since is not ours.
        if name in documents and documents[name].plan not in {plan, digest}:
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


def _latest_submission(plan: str, row: MoveRow, submissions: Sequence[tuple[str, MoveRow]]) -> tuple[str, MoveRow]:
    """Return the latest submission of the partition of `row`, which is of `plan`, and its plan. Pure."""
    later = [submission for submission in submissions if (submission[1].submitted_ms or 0) > (row.submitted_ms or 0)]
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
