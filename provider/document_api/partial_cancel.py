"""Partial cancel: remove single partitions from an active plan, because a later document supersedes them (KIP-236).

Moves that have not started are dropped. Reassignments in flight are cancelled, and their replica order is restored,
before a new target is submitted. So no replica remains on a broker that is neither in the original nor in the new
target. Each round re-reads journal and cluster: if a process crashes in between, the next call resumes the work.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import Snapshot
from kafka_steward.execution.cancel_restoration import CancelRestoration
from kafka_steward.execution.effects import AuditedCalls
from kafka_steward.execution.late_submissions import LateRetraction
from kafka_steward.execution.move_recovery import HIDDEN, cancel_forbidden_reason
from kafka_steward.execution.move_store import Decision, MoveStore
from kafka_steward.execution.moves import OPEN, Event
from kafka_steward.execution.observe import Observation, ObservedState, observe_moves
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.journal.audit import Action, Actor
from kafka_steward.journal.locks import Fence
from kafka_steward.journal.moves import Cause, MoveRow
from kafka_steward.journal.store import Journal

#: Rounds in one call: for the cancel, for the replica order, and for a cluster that shows the result late.
_ROUNDS = 5


class PartialCancel:
    """Removes partitions from the plan `digest`, for the holder of the step lock. `why` is a clause for the record."""

    def __init__(
        self, cluster: ClusterPort, journal: Journal, digest: str, *, why: str, who: Actor, fence: Fence
    ) -> None:
        self._cluster = cluster
        self._why = why
        self._moves = MoveStore(journal, digest, who, fence)
        self._calls = AuditedCalls(journal.audit, fence)
        self._retraction = LateRetraction(cluster, journal, digest, who)
        self._restoring = CancelRestoration(cluster, self._moves, self._calls, self._retraction)

    def run(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        """Remove partitions from the plan as far as possible now; returns the remaining partitions, and why.

        Raises ClusterError, JournalError; LockLost when another process took over.
        """
        for _ in range(_ROUNDS):
            rows = [row for row in self._moves.rows() if row.topic_partition in partitions and not row.state.settled]
            if not rows:
                return {}
            blocked = self._run_round(rows)
            if blocked:
                return blocked
        left = [row for row in self._moves.rows() if row.topic_partition in partitions and not row.state.settled]
        return {row.topic_partition: "its cancel is in progress" for row in left}

    def _run_round(self, rows: Sequence[MoveRow]) -> dict[TopicPartition, str]:
        snapshot = self._cluster.snapshot(sorted({row.move.topic for row in rows}))
        findings = observe_moves(rows, snapshot)
        self._moves.record_observations([each for each in findings if each.state is not ObservedState.IN_FLIGHT])
        self._restoring.restore_replica_order(findings)
        self._restoring.propagate_external_cancel(findings)
        in_flight = [each for each in findings if each.state in {ObservedState.IN_FLIGHT, ObservedState.CANCELLING}]
        blocked = self._cancel_in_flight(in_flight, snapshot)
        blocked |= {each.row.topic_partition: HIDDEN for each in findings if each.state is ObservedState.HIDDEN}
        names = {row.topic_partition for row in rows}
        self._restoring.cancel_between_stages(self._find_open_moves(names), snapshot, self._why, Cause.SUPERSEDED)
        ends = [Decision(row, Event.DROP, self._why, Cause.SUPERSEDED) for row in self._find_open_moves(names)]
        begun = self._restoring.cancel_unacknowledged(ends, snapshot.partitions)
        self._moves.record_decisions([each for each in ends if each.row.topic_partition not in begun])
        return blocked

    def _find_open_moves(self, names: Collection[TopicPartition]) -> list[MoveRow]:
        return [row for row in self._moves.rows() if row.topic_partition in names and row.state in OPEN]

    def _cancel_in_flight(self, findings: Sequence[Observation], snapshot: Snapshot) -> dict[TopicPartition, str]:
        rules = {each.row.topic_partition: _cancel_forbidden_reason(each, snapshot) for each in findings}
        rows = [each.row for each in findings if rules[each.row.topic_partition] is None]
        self._moves.record_cancelling([(row, self._why, Cause.SUPERSEDED) for row in rows])
        self._calls.execute(
            {row.topic_partition: [self._moves.build_audit_record(Action.CANCEL, row, self._why)] for row in rows},
            self._cluster.cancel,
            late=self._retraction.restore_after_late_cancel,
        )
        return {name: rule for name, rule in rules.items() if rule is not None}


def _cancel_forbidden_reason(finding: Observation, snapshot: Snapshot) -> str | None:
    """Return KIP-236's rule that forbids the cancel; None when it may be cancelled.

    A reassignment that has completed, but whose replicas are not all in sync, is waited for instead of cancelled.
    """
    partition = snapshot.partitions[finding.row.topic_partition]
    if not partition.reassigning:
        return "it has completed, and not all its replicas are in sync yet"
    return cancel_forbidden_reason(finding.row.move.before, partition, snapshot.live)
