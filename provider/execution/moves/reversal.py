"""What a reassignment needs next that is being taken back: the one decision for all who cancel. Pure (KIP-236).

A reversal cancels what is in flight, and then restores the order of the replicas, which Kafka's cancel loses. A plan
takes its own moves back, and those of clients that are not ours, of a late request, and of a request that came while
reassignments were disabled are taken back likewise. Whoever wants that makes the `Reversal`s and records them;
`next_action` says what each needs, and reversal_execution.py executes it.

KIP-236 names two cases in which a cancel is harmful or impossible:

* No original replicas are recorded. Our moves always carry theirs, so this applies to external reassignments.
* None of the originals is in sync while some new replica is online: the cancel would take the partition offline. If
  all original and new replicas are offline, a cancel loses nothing, and the partition is rolled back.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from kafka_steward.assignment import Assignment, Move, TopicPartition, name_brokers
from kafka_steward.cluster.state import Partition
from kafka_steward.execution.moves.staging import is_at_stage, is_rolling_back, target_in_flight
from kafka_steward.journal.audit import Action, Actor, AuditRecord, event_number

_NO_ORIGINALS = "KIP-236: no original replicas are recorded, so it cannot be cancelled"

_WOULD_GO_OFFLINE = "KIP-236: none of the original replicas is in sync, so a cancel would take it offline"

_ELIGIBLE = "; {} may lead without a loss (ELR, KIP-966): start one, and cancel again when it is in sync"

_RECREATED = "its topic was deleted and re-created meanwhile, so its earlier replicas are not known"


class NextAction(Enum):
    """What a reversal needs next."""

    #: Kafka's cancel.
    CANCEL = "cancel"
    #: A reassignment to the original replicas, in their order.
    REORDER = "reorder"
    #: Another look: the cluster does not show the end yet.
    WAIT = "wait"
    #: Nothing.
    DONE = "done"
    #: Nothing that is allowed or possible: the reason says why.
    FORBIDDEN = "forbidden"


class ReversalState(Enum):
    """What the cluster shows of a reversal, and what that needs next."""

    IN_FLIGHT = "in flight", NextAction.CANCEL
    #: Kafka has not answered its submission, and none is visible: it may still begin, but not after a cancel.
    UNANSWERED = "unanswered", NextAction.CANCEL
    #: A rule of KIP-236 forbids the cancel.
    CANNOT_CANCEL = "cannot be cancelled", NextAction.FORBIDDEN
    #: Its replicas are the originals in another order, or the originals and those of completed stages.
    ORDER_LOST = "order lost", NextAction.REORDER
    #: Kafka had completed it, and it is rolled back all the same.
    COMPLETED_LATE = "completed late", NextAction.REORDER
    #: Kafka had completed it, or stages of it, and its originals cannot be restored.
    CANNOT_RESTORE = "cannot be restored", NextAction.FORBIDDEN
    #: Kafka refuses its original replicas for good.
    REFUSED = "refused", NextAction.FORBIDDEN
    #: Kafka is taking it to its originals.
    RETURNING = "returning", NextAction.WAIT
    #: It was cancelled or has ended, and the queried broker has stale metadata: it still shows it as in flight.
    STALE = "stale", NextAction.WAIT
    #: Kafka does not let us describe its topic.
    HIDDEN = "hidden", NextAction.WAIT
    RESTORED = "restored", NextAction.DONE
    #: Kafka had completed it before it could be cancelled.
    COMPLETED = "completed", NextAction.DONE
    #: Another reassignment of the partition is in flight.
    TAKEN_OVER = "taken over", NextAction.DONE
    #: It is at rest at replicas that are neither the originals nor the target.
    ELSEWHERE = "elsewhere", NextAction.DONE
    #: The partition was deleted.
    GONE = "gone", NextAction.DONE

    @property
    def action(self) -> NextAction:
        """What it needs next."""
        return self.value[1]


class Verdict(NamedTuple):
    """The state of a reversal, the reason as a clause if it is forbidden, and the replicas that the partition has."""

    state: ReversalState
    why: str = ""
    replicas: Assignment = ()

    @property
    def action(self) -> NextAction:
        """What the reversal needs next."""
        return self.state.action

    @property
    def has_ended(self) -> bool:
        """Return True if nothing more can be done."""
        return self.action in {NextAction.DONE, NextAction.FORBIDDEN}


@dataclass(frozen=True, slots=True)
class Reversal:
    """A reassignment to be taken back: `move` leads from the originals, empty if unknown, to the target in flight.

    `why`, `plan` and `attempt` are for the audit trail; without `attempt`, each of its rows is an event of its own.
    `stage` is that of the move's row. `unanswered` says that Kafka never answered the submission, and `cancelled` that
    it has answered the cancel. With `rolls_back`, the partition is restored although Kafka has completed the
    reassignment, unless `lost` says why its earlier replicas are not known.
    """

    move: Move
    why: str
    plan: str = ""
    attempt: int | None = 0
    stage: int = 0
    unanswered: bool = False
    cancelled: bool = False
    rolls_back: bool = False
    lost: str = ""

    @property
    def partition(self) -> TopicPartition:
        """The topic and partition number."""
        return self.move.topic_partition

    def audit_record(self, action: Action, reason: str, who: Actor) -> AuditRecord:
        """Return an audit row: from the target in flight to the originals."""
        return AuditRecord(
            action,
            reason,
            plan=self.plan,
            chunk=self.move.chunk if self.plan else None,
            topic=self.move.topic,
            partition=self.move.partition,
            attempt=event_number() if self.attempt is None else self.attempt,
            before=list(self.move.after),
            after=list(self.move.before) or None,
            who=who,
        )


def next_action(
    reversal: Reversal, partition: Partition | None, live: frozenset[int], *, hidden: bool = False
) -> Verdict:
    """Return the verdict about a reversal. `partition` is None if Kafka knows none, or if its topic is hidden."""
    if hidden:
        return Verdict(ReversalState.HIDDEN)
    # The request may still take effect. Requests are ordered: after the answer to a cancel it cannot any more.
    if reversal.unanswered and (partition is None or not partition.reassigning):
        return Verdict(ReversalState.UNANSWERED)
    if partition is None:
        return Verdict(ReversalState.GONE)
    judge = _judge_in_flight if partition.reassigning else _judge_at_rest
    state, why = judge(reversal, partition, live)
    return Verdict(state, why, partition.replicas)


def _judge_in_flight(reversal: Reversal, partition: Partition, live: frozenset[int]) -> tuple[ReversalState, str]:
    move, originals = reversal.move, reversal.move.before
    returning = originals != move.after and is_rolling_back(move, partition)
    if returning and frozenset(originals) <= live - partition.offline:
        return ReversalState.RETURNING, ""
    ours = _is_in_flight_to(partition, move.after) or (reversal.stage and target_in_flight(move, partition))
    if not (returning or ours):
        return ReversalState.TAKEN_OVER, ""
    # Kafka has answered the cancel: a broker that still shows it in flight has older metadata.
    if reversal.cancelled:
        return ReversalState.STALE, ""
    if originals and (reversal.stage or reversal.rolls_back):
        # Kafka's cancel takes it to what it had before, and that need not be the originals.
        originals = partition.original
    rule = _forbidding_rule(originals, partition, live)
    return (ReversalState.IN_FLIGHT, "") if rule is None else (ReversalState.CANNOT_CANCEL, rule)


def _judge_at_rest(reversal: Reversal, partition: Partition, live: frozenset[int]) -> tuple[ReversalState, str]:
    move, replicas = reversal.move, partition.replicas
    if replicas == move.before:
        return ReversalState.RESTORED, ""
    if replicas == move.after:
        if not reversal.rolls_back:
            return ReversalState.COMPLETED, ""
        why = _unrestorable_reason(reversal, partition, live)
        return (ReversalState.CANNOT_RESTORE, why) if why else (ReversalState.COMPLETED_LATE, "")
    between = is_at_stage(move, reversal.stage, replicas, back=True)
    if between and not frozenset(move.before) <= live - partition.offline:
        return ReversalState.CANNOT_RESTORE, "an original broker is dead or its log directory failed"
    same = between or frozenset(replicas) == frozenset(move.before)
    if same and not partition.is_recreated(move.topic_id):
        return ReversalState.ORDER_LOST, ""
    stale = not same and is_listed_as_in_flight(move, replicas)
    return (ReversalState.STALE if stale else ReversalState.ELSEWHERE), ""


def _unrestorable_reason(reversal: Reversal, partition: Partition, live: frozenset[int]) -> str:
    """Return why a partition that rests at the target cannot be rolled back, as a clause; empty if it can be."""
    if partition.is_recreated(reversal.move.topic_id):
        return _RECREATED
    dead = sorted(reversal.move.removing - live)
    gone = f"its original {name_brokers(dead)} {'is' if len(dead) == 1 else 'are'} not live" if dead else ""
    return reversal.lost or gone


def _forbidding_rule(originals: Assignment | None, partition: Partition, live: frozenset[int]) -> str | None:
    """Return the rule that forbids the cancel of a partition in flight; None if it may be cancelled."""
    if not originals:
        return _NO_ORIGINALS
    # While the new replicas are offline as well, a cancel loses nothing (KIP-236).
    new = frozenset(partition.replicas) - frozenset(originals)
    if not frozenset(originals) & partition.isr & live and new & live:
        eligible = sorted(partition.eligible.intersection(originals))
        # Kafka would elect one of them after the cancel, but only once its broker is back.
        return f"{_WOULD_GO_OFFLINE}{_ELIGIBLE.format(name_brokers(eligible))}" if eligible else _WOULD_GO_OFFLINE
    return None


def _is_in_flight_to(partition: Partition, target: Assignment) -> bool:
    """Return True if a reassignment to `target` is in flight."""
    # On KRaft, submitting the original replicas of a reassignment leaves it in flight without an end.
    endless = bool(frozenset(partition.adding) & frozenset(partition.removing))
    return partition.reassigning and (
        partition.target == target or (endless and frozenset(partition.target) == frozenset(target))
    )


def is_listed_as_in_flight(move: Move, replicas: Assignment) -> bool:
    """Return True if Kafka lists the whole move like this in flight: the target, then the replicas to remove."""
    wanted = len(move.after)
    return replicas[:wanted] == move.after and frozenset(replicas[wanted:]) == move.removing
