"""After a cancel: restore the replica order, roll back completed stages, cancel submissions that got no answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.state import Partition, Snapshot
from kafka_steward.execution.effects import AuditedCalls
from kafka_steward.execution.late_submissions import LateRetraction
from kafka_steward.execution.move_recovery import EXTERNAL_CANCEL
from kafka_steward.execution.move_store import Decision, MoveStore
from kafka_steward.execution.moves import OPEN, Event
from kafka_steward.execution.observe import Observation, ObservedState
from kafka_steward.execution.originals import ORDER_LOST, restore_originals
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.execution.staging import (
    UNCLEAN_ELECTIONS,
    can_roll_back_stages,
    is_between_stages,
    restoring_stage,
    stage_number,
    stage_reached,
)
from kafka_steward.journal.audit import Action, Actor, event_number
from kafka_steward.journal.records import Cause, MoveRow
from kafka_steward.journal.store import Journal

_UNACKNOWLEDGED = "it was not acknowledged, and must not start later"


class CancelRestoration:
    """Restores partitions after a cancel, for the holder of the step lock.

    Every method may raise ClusterError, LockLost.
    """

    def __init__(self, cluster: ClusterPort, moves: MoveStore, calls: AuditedCalls, retraction: LateRetraction) -> None:
        self._cluster = cluster
        self._moves = moves
        self._calls = calls
        self._retraction = retraction

    def restore_replica_order(self, findings: Iterable[Observation], snapshot: Snapshot) -> None:
        """Restore the order of the replicas, and with it the preferred leader.

        The same reassignment removes the replicas that completed stages had added before the cancel. A move whose
        originals Kafka refuses for good ends with the replicas that it has.
        """
        lost = {each.row.topic_partition: each for each in findings if each.state is ObservedState.ORDER_CHANGED}
        targets = self._next_assignments([each.row for each in lost.values()], snapshot)
        entries = {
            name: [
                self._moves.build_audit_record(
                    Action.REORDER, each.row, ORDER_LOST, before=list(each.found or ()), after=list(targets[name])
                )
            ]
            for name, each in lost.items()
        }
        refused = restore_originals(
            self._cluster,
            self._calls,
            entries,
            targets,
            snapshot,
            late=lambda batch: self._retraction.retract_submissions({name: targets[name] for name in batch}),
        )
        self._moves.record_decisions(
            [
                Decision(lost[name].row, Event.DROP, f"cancelled, and {why}", Cause.ORDER_REFUSED)
                for name, why in refused.items()
            ]
        )

    def _next_assignments(self, rows: Sequence[MoveRow], snapshot: Snapshot) -> dict[TopicPartition, Assignment]:
        """Return the assignment to submit next for each: its originals, or a stage before them."""
        found = snapshot.partitions
        adding = {
            row.move.topic
            for row in rows
            if not frozenset(row.move.before) <= frozenset(found[row.topic_partition].replicas)
        }
        settings = self._cluster.topic_configs(sorted(adding), [UNCLEAN_ELECTIONS]) if adding else {}
        unclean = {topic for topic in adding if settings.get(topic, {}).get(UNCLEAN_ELECTIONS) == "true"}
        return {
            row.topic_partition: restoring_stage(
                row.move, found[row.topic_partition], snapshot.live, unclean=row.move.topic in unclean
            )
            for row in rows
        }

    def cancel_unacknowledged(
        self, ends: Iterable[Decision], found: Mapping[TopicPartition, Partition]
    ) -> frozenset[TopicPartition]:
        """Cancel moves about to be given up whose submission Kafka never answered; return their partitions.

        This is done although no reassignment of them is visible. A KRaft controller that was unavailable executes, once
        it is back, requests that had timed out for us. Requests are ordered, so once this cancel is answered, no
        earlier submission can still take effect. A cancel that finds no reassignment in progress is expected and no
        failure.

        The returned partitions count as being cancelled. A move may have begun all the same, and its replicas may have
        lost their order, so the next poll decides. A partition with an external reassignment in flight is left alone:
        the cancel would hit that one.
        """
        unheard = [each for each in ends if each.row.state in OPEN and each.row.unacknowledged]
        asked = {}
        for each in unheard:
            partition = found.get(each.row.topic_partition)
            if partition is None or not partition.reassigning:
                between = partition is not None and is_between_stages(each.row, partition.replicas)
                stage = stage_reached(each.row.move, partition.replicas) if partition and between else 0
                asked[each.row.topic_partition] = replace(each.row, stage=stage), each.sentence, each.cause
        entries = {
            name: [self._moves.build_audit_record(Action.CANCEL, row, _UNACKNOWLEDGED)]
            for name, (row, _, _) in asked.items()
        }
        self._calls.execute(entries, self._cluster.cancel, late=self._retraction.restore_after_late_cancel)
        self._moves.record_cancelling(list(asked.values()))
        return frozenset(asked)

    def cancel_between_stages(self, rows: Sequence[MoveRow], snapshot: Snapshot, why: str, cause: Cause) -> None:
        """Mark moves at rest between two stages as being cancelled: the next poll finds and restores them."""
        found = snapshot.partitions
        back = [row for row in rows if can_roll_back_stages(row, found.get(row.topic_partition), snapshot.live)]
        staged = [replace(row, stage=stage_number(row.move, found[row.topic_partition].replicas)) for row in back]
        self._moves.record_cancelling([(row, why, cause) for row in staged])

    def propagate_external_cancel(self, findings: Iterable[Observation]) -> None:
        """Extend an external cancel of a stage to the stages before it."""
        rows = [each.row for each in findings if each.state is ObservedState.CANCELLED_BETWEEN_STAGES]
        self._moves.record_cancelling([(row, EXTERNAL_CANCEL, Cause.CANCELLED_ELSEWHERE) for row in rows])


def find_externally_reordered(cluster: ClusterPort, journal: Journal, plan: str) -> list[MoveRow]:
    """Return the moves that were cancelled externally and whose replica order Kafka lost."""
    rows = _list_cancelled_elsewhere(journal, plan)
    return list(_select_reordered(rows, _fetch_topics(cluster, rows)).values()) if rows else []


def restore_externally_reordered(
    cluster: ClusterPort, journal: Journal, plan: str, who: Actor
) -> dict[TopicPartition, str]:
    """Restore the replica order of moves that were cancelled externally. Raises ClusterError, LockLost.

    Returns why Kafka refuses an order for good, as a clause for each partition.
    """
    cancelled = _list_cancelled_elsewhere(journal, plan)
    if not cancelled:
        return {}
    snapshot = _fetch_topics(cluster, cancelled)
    rows = _select_reordered(cancelled, snapshot)
    originals = {name: row.move.before for name, row in rows.items()}
    with journal.step_lock() as fence:
        moves = MoveStore(journal, plan, who, fence)
        number = event_number()
        entries = {
            name: [
                moves.build_audit_record(Action.REORDER, row, ORDER_LOST, attempt=number, after=list(row.move.before))
            ]
            for name, row in rows.items()
        }
        retraction = LateRetraction(cluster, journal, plan, who)
        return restore_originals(
            cluster,
            AuditedCalls(journal.audit, fence),
            entries,
            originals,
            snapshot,
            late=lambda batch: retraction.retract_submissions({name: originals[name] for name in batch}),
        )


def _list_cancelled_elsewhere(journal: Journal, plan: str) -> list[MoveRow]:
    return [row for row in journal.plans.rows(plan) if row.cause is Cause.CANCELLED_ELSEWHERE]


def _fetch_topics(cluster: ClusterPort, rows: Sequence[MoveRow]) -> Snapshot:
    return cluster.snapshot(sorted({row.move.topic for row in rows}))


def _select_reordered(rows: Sequence[MoveRow], snapshot: Snapshot) -> dict[TopicPartition, MoveRow]:
    found = snapshot.partitions
    return {
        row.topic_partition: row
        for row in rows
        if row.topic_partition in found and _is_reordered(row, found[row.topic_partition])
    }


def _is_reordered(row: MoveRow, now: Partition) -> bool:
    lost = now.replicas != row.move.before and frozenset(now.replicas) == frozenset(row.move.before)
    return lost and not now.reassigning
