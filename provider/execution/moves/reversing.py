"""The executor of reversals: cancels what is in flight, and restores the original replicas in their order.

Kafka's cancel loses the order of the replicas, and with it the preferred leader. A KRaft controller accepts no
assignment with a broker that was unregistered, not even the one that the partition has. Such a partition keeps the
replicas that it has: its verdict is REFUSED, and names them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.state import Snapshot
from kafka_steward.execution.effects import AuditedCalls, alter_keeping_factor
from kafka_steward.execution.moves.recovery import is_unregistered_refusal, unregistered_clause
from kafka_steward.execution.moves.reversal import NextAction, Reversal, ReversalState, Verdict, next_action
from kafka_steward.execution.moves.staging import UNCLEAN_ELECTIONS, restoring_stage
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.journal.audit import Action, Actor, AuditRecord

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
    found, hidden = snapshot.partitions, snapshot.hidden
    return {
        each.partition: next_action(
            each, found.get(each.partition), snapshot.live, hidden=each.partition.topic in hidden
        )
        for each in reversals
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
            snapshot = self.cluster.snapshot(sorted({each.partition.topic for each in pending}))
            found = self.execute_next(pending, snapshot)
            verdicts |= found
            pending = [_after(each, found[each.partition]) for each in pending if not found[each.partition].has_ended]
            if all(found[each.partition].state in _LONG for each in pending):
                break
        return verdicts

    def execute_next(self, reversals: Iterable[Reversal], snapshot: Snapshot) -> dict[TopicPartition, Verdict]:
        """Execute the next action of each by what `snapshot` shows; return the verdicts.

        Refusals that are not for good are in the audit trail: the next call tries again.
        """
        by_name = {each.partition: each for each in reversals}
        verdicts = judge(by_name.values(), snapshot)
        reorders = [by_name[name] for name, verdict in verdicts.items() if verdict.action is NextAction.REORDER]
        refused = self._restore_originals(reorders, verdicts, snapshot) if reorders else {}
        cancels = {
            name: [by_name[name].audit_record(Action.CANCEL, by_name[name].why, self.who)]
            for name, verdict in verdicts.items()
            if verdict.action is NextAction.CANCEL
        }
        if cancels:
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
        found = {name: verdicts[name].replicas for name in targets}
        entries = {
            each.partition: [self._build_restore_record(each, verdicts[each.partition], targets)] for each in reversals
        }
        retraction = self.retraction
        answers = self.calls.execute(
            entries,
            lambda batch: alter_keeping_factor(self.cluster, {name: targets[name] for name in batch}, found),
            late=None
            if retraction is None
            else lambda batch: retraction.retract_submissions({name: targets[name] for name in batch}),
        )
        return {
            name: Verdict(
                ReversalState.REFUSED,
                f"its replicas are {list(found[name])}, and Kafka refuses its original ones, "
                f"{list(targets[name])}{unregistered_clause(targets[name], snapshot)}: {error}",
                found[name],
            )
            for name, error in answers.items()
            if is_unregistered_refusal(error, zookeeper_mode=self.cluster.zookeeper_mode)
        }

    def _next_assignments(self, reversals: Sequence[Reversal], snapshot: Snapshot) -> dict[TopicPartition, Assignment]:
        """Return the assignment to submit next for each: its originals, or a stage before them."""
        found = snapshot.partitions
        adding = {
            each.move.topic
            for each in reversals
            if each.stage and not frozenset(each.move.before) <= frozenset(found[each.partition].replicas)
        }
        settings = self.cluster.topic_configs(sorted(adding), [UNCLEAN_ELECTIONS]) if adding else {}
        unclean = {topic for topic in adding if settings.get(topic, {}).get(UNCLEAN_ELECTIONS) == "true"}
        return {
            each.partition: restoring_stage(
                each.move, found[each.partition], snapshot.live, unclean=each.move.topic in unclean
            )
            for each in reversals
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
