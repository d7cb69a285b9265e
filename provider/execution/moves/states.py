"""The states of one move of a plan, their transitions, and the reasons for which a move is not submitted. Pure.

A move takes one partition from its assignment `before` to its assignment `after`. The journal's row records the
*intended* state, and Kafka the *actual* state. Neither alone is sufficient: a process can crash between the write to
the journal and the request to Kafka, and other clients change Kafka too. So a move is a small state machine. Its state
is in the journal. Its events result from a comparison of that state with a fresh poll of the cluster::

    WAITING    not submitted                               HELD   not submitted, preflight gives the reason
    SUBMITTED  recorded as submitted *before* the request to Kafka; the result is read from Kafka
    COMPLETED  observed at `after`, with every replica of `after` in the ISR once (KIP-46)
    SATISFIED  not needed any more: already at `after`, or the failed broker is live again (KIP-46)
    DROPPED    not executed: the partition was deleted, the move was cancelled, or it is deferred to the next plan
    FAILED     an external reassignment moved the partition elsewhere; the plan does not touch it any more

SUBMITTED has three phases, kept in the row's `phase`, because the same observation means different things in each:

* ``intended``: the request may or may not have reached Kafka. A partition still at `before` means that it did not, or
  that the request was lost: the move waits and is submitted again. A repeated submission is harmless, because the
  request names the target.
* ``accepted``: Kafka accepted it. A partition back at the replicas of `before` means that another client cancelled it.
* ``cancelling``: we cancel it. Kafka's cancel (a null target) restores the set of `before` and loses its order. A
  second reassignment therefore restores the order, and only then does the move return to HELD.

A move that adds several replicas may be carried out in several *stages* (staging.py). When a stage has completed, the
move waits again, between stages: preflight and the concurrency window check it again before the next stage. A cancel
between stages also restores the original replicas.

A submission that Kafka has not answered leaves the row `unacknowledged`, through all later states of the row: an
unavailable controller may still execute it. Before such a move is dropped, a cancel is sent to Kafka.

A move in flight is never reverted by submitting `before` again: a KRaft cluster of release 4.3 then adds and removes
the same replica forever.

The reasons are a closed list, `HoldReason`. Each has a consequence and one message.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Self

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.journal.records import Cause, MoveRow, MoveState, Phase, PlanStatus

#: Why the partition of a move is not there.
TOPIC_DELETED = "its topic was deleted"
DELETION_PENDING = "the deletion of its topic is pending"
TOPIC_RECREATED = f"{TOPIC_DELETED} and re-created"


class Event(StrEnum):
    """An event in the life of a move."""

    __hash__ = str.__hash__  # as that of MoveState

    #: Preflight held it; it may be submitted later.
    HOLD = "hold"
    #: The reason for the hold is gone.
    RELEASE = "release"
    #: It is about to be submitted to Kafka.
    SUBMIT = "submit"
    #: Kafka rejected it.
    REFUSE = "refuse"
    #: It was recorded as submitted, and Kafka shows no trace of it.
    NOT_STARTED = "never began"
    #: One stage completed, and the next stage may be submitted.
    STAGE_COMPLETED = "go on"
    #: It was in flight, we cancelled it, and the replica order is restored.
    CANCEL_COMPLETED = "hand back"
    #: It completed.
    COMPLETE = "complete"
    #: It is not needed any more.
    SATISFY = "satisfy"
    #: It will not be executed.
    DROP = "drop"
    #: An external reassignment gave the partition another assignment.
    TAKE_OVER = "lose"


_NOT_STARTED = {
    Event.HOLD: MoveState.HELD,
    Event.RELEASE: MoveState.WAITING,
    Event.SUBMIT: MoveState.SUBMITTED,
    Event.SATISFY: MoveState.SATISFIED,
    Event.DROP: MoveState.DROPPED,
}

#: State, event, next state. Transitions that are not listed cannot happen.
TRANSITIONS: dict[MoveState, dict[Event, MoveState]] = {
    MoveState.WAITING: _NOT_STARTED,
    MoveState.HELD: _NOT_STARTED,
    MoveState.SUBMITTED: {
        Event.SUBMIT: MoveState.SUBMITTED,
        Event.REFUSE: MoveState.HELD,
        Event.NOT_STARTED: MoveState.WAITING,
        Event.STAGE_COMPLETED: MoveState.WAITING,
        Event.CANCEL_COMPLETED: MoveState.HELD,
        Event.COMPLETE: MoveState.COMPLETED,
        Event.DROP: MoveState.DROPPED,
        Event.TAKE_OVER: MoveState.FAILED,
    },
    MoveState.COMPLETED: {},
    MoveState.SATISFIED: {},
    MoveState.DROPPED: {},
    MoveState.FAILED: {},
}

#: States of moves that may still be submitted.
OPEN = frozenset({MoveState.WAITING, MoveState.HELD})

#: States in which a move does not change any more.
SETTLED = frozenset(state for state in MoveState if state.settled)


#: Settled states of moves that left nothing undone.
DONE = frozenset({MoveState.COMPLETED, MoveState.SATISFIED})


def final_status(rows: Sequence[MoveRow], *, cancelled: bool | None = None) -> PlanStatus:
    """Return the status in which a plan ends whose moves are all settled.

    Without `cancelled`, the causes of its moves say whether a person cancelled it. A plan of which later requests have
    replaced every move is cancelled, too.
    """
    if cancelled or (cancelled is None and was_cancelled(rows)):
        return PlanStatus.CANCELLED
    if not rows or any(row.state in DONE for row in rows):
        return PlanStatus.COMPLETED
    return PlanStatus.CANCELLED if all(row.cause is Cause.SUPERSEDED for row in rows) else PlanStatus.FAILED


#: The causes of moves that ended because a person cancelled their plan.
_CANCELLED = frozenset({Cause.REQUESTED, Cause.ORDER_REFUSED})


def was_cancelled(rows: Iterable[MoveRow]) -> bool:
    """Return whether a cancel of the plan has ended one of its moves."""
    return any(row.cause in _CANCELLED for row in rows)


def next_state(state: MoveState, event: Event) -> MoveState:
    """Return the state after `event`. Raises ValueError that names both if the table has no such transition."""
    if event not in TRANSITIONS[state]:
        raise ValueError(f"A move that is {state.value} cannot meet '{event.value}'.")
    return TRANSITIONS[state][event]


def phase_of(row: MoveRow) -> Phase:
    """Return the phase of a SUBMITTED move; a missing phase counts as INTENDED, which assumes least."""
    return row.phase or Phase.INTENDED


def filter_unsettled(rows: Iterable[MoveRow]) -> list[MoveRow]:
    """Return the moves that may still change their state, in the given order."""
    return [row for row in rows if row.state not in SETTLED]


def bytes_to_copy(move: Move) -> int:
    """Return the bytes that the whole move copies: the partition size once per receiving broker; 0 if it is unknown."""
    return (move.size_bytes or 0) * len(move.adding)


class _Consequence(Enum):
    """The consequence of a reason: the event of the move, and whether the wait is an operator's choice."""

    #: The next step tries again. If nothing else is possible, that is a failed attempt.
    TRY_AGAIN = Event.HOLD, False
    #: It waits until an operator changes something, or a set time is over; such waiting is no failed attempt.
    AWAIT_OPERATOR = Event.HOLD, True
    DROP = Event.DROP, False
    SATISFY = Event.SATISFY, False


class HoldReason(StrEnum):
    """The reason for which a move is not submitted: its code, the consequence, and the message.

    A message names the problem, its location and the action. `{found}` is the result of the check, `{by}` the actor.
    """

    #: The failed broker is live again (KIP-46).
    SATISFIED = (
        "satisfied",
        _Consequence.SATISFY,
        "{partition} no longer needs to move: {found}.",
    )
    ALREADY_THERE = "already_there", _Consequence.SATISFY, "{partition} already has the replicas {found}."
    PARTITION_GONE = "partition_gone", _Consequence.DROP, "{found}"
    #: An ACL hides its topic, so that its existence is unknown.
    TOPIC_HIDDEN = (
        "topic_hidden",
        _Consequence.TRY_AGAIN,
        (
            "Kafka does not let us describe its topic, so that it may or may not exist; grant our principal DESCRIBE "
            "on it, as docs/permissions.md says"
        ),
    )
    RECREATED = (
        "recreated",
        _Consequence.DROP,
        f"{TOPIC_RECREATED} since the plan was made; make a new plan",
    )
    CHANGED_ELSEWHERE = (
        "changed_elsewhere",
        _Consequence.DROP,
        "{by} changed its replicas to {found} since it was planned; make a new plan",
    )
    DUPLICATE_REPLICA = (
        "duplicate_replica",
        _Consequence.DROP,
        "its target {found} is empty or names a broker twice; correct the plan",
    )
    #: KIP-236: /admin/reassign_cancel is present.
    CLUSTER_DISABLED = (
        "cluster_disabled",
        _Consequence.AWAIT_OPERATOR,
        "reassignments are disabled for this cluster {found}",
    )
    #: The plan needs an approval that is missing or was deleted.
    NOT_APPROVED = (
        "not_approved",
        _Consequence.AWAIT_OPERATOR,
        "plan {found} is not approved, or its approval was deleted; approve it in its run, or cancel it",
    )
    EXTERNAL_REASSIGNMENT = (
        "external_reassignment",
        _Consequence.AWAIT_OPERATOR,
        "an external reassignment is moving it to {found}; it is retried when that has ended",
    )
    TARGET_RESTARTING = (
        "target_restarting",
        _Consequence.AWAIT_OPERATOR,
        ("broker {found}; it is retried; to end the announcement, delete the broker's entry in /admin/rolling_bounce"),
    )
    TARGET_DEAD = (
        "target_dead",
        _Consequence.TRY_AGAIN,
        "target broker {found} is not live; it is retried",
    )
    #: A cordon (KIP-1066) in the way of a rollback, which ends with what it could restore.
    ORIGINAL_CORDONED = (
        "original_cordoned",
        _Consequence.DROP,
        (
            "its original broker {found} is cordoned, so it keeps the replicas that it has; remove the directories of "
            "the broker from cordoned.log.dirs, and run the same command again"
        ),
    )
    #: KIP-1066: the broker receives no new replicas.
    TARGET_CORDONED = (
        "target_cordoned",
        _Consequence.AWAIT_OPERATOR,
        (
            "target broker {found} is cordoned; remove its directories from cordoned.log.dirs, or cancel and make a "
            "new plan"
        ),
    )
    KEPT_REPLICA_DEAD = (
        "kept_replica_dead",
        _Consequence.TRY_AGAIN,
        "broker {found}, whose replica the move keeps, is not live, so the move would never complete; it is retried",
    )
    #: A replica that the move keeps is in a failed log directory.
    KEPT_REPLICA_OFFLINE = (
        "kept_replica_offline",
        _Consequence.TRY_AGAIN,
        (
            "its replica on broker {found}, which the move keeps, is in a failed log directory, so the move would "
            "never complete; restore the disk, or let a heal move the replica (heal_failed_disks)"
        ),
    )
    NO_LEADER = (
        "no_leader",
        _Consequence.TRY_AGAIN,
        "it has no leader to copy from; {found}",
    )
    #: Its topic allows unclean leader elections.
    OUT_OF_SYNC = (
        "out_of_sync",
        _Consequence.TRY_AGAIN,
        (
            "its replica on broker {found} is out of sync, and would lead before one that has more if the replicas in "
            "sync were lost (unclean.leader.election.enable); it starts once that replica is in sync"
        ),
    )
    BELOW_MIN_ISR = (
        "below_min_isr",
        _Consequence.TRY_AGAIN,
        "its target has fewer replicas than min.insync.replicas, {found}; lower that setting or plan more replicas",
    )
    #: A receiving broker did not answer how much free space its log directories have.
    DISK_UNKNOWN = (
        "disk_unknown",
        _Consequence.TRY_AGAIN,
        "the free space of its target is unknown, since {found}; it is retried",
    )
    #: Its leader did not answer, or answered without it.
    SIZE_UNKNOWN = (
        "size_unknown",
        _Consequence.TRY_AGAIN,
        "its size is unknown, since {found}; it is retried",
    )
    DISK_FULL = (
        "disk_full",
        _Consequence.TRY_AGAIN,
        "it would leave broker {found} less free disk space than min_free requires; free some, or lower min_free",
    )
    UNDER_MIN_ISR_ELSEWHERE = (
        "under_min_isr_elsewhere",
        _Consequence.AWAIT_OPERATOR,
        (
            "{found}, outside this plan, has fewer replicas in sync than min.insync.replicas, on a broker that the "
            "move would load; it starts once {found} is in sync, or has been out of sync for stuck_after: look for a "
            "throttle that somebody left or restart the broker that lags, or set a shorter stuck_after to overrule this"
        ),
    )
    #: Kafka rejected a target of existing replicas, for good.
    BROKER_UNREGISTERED = (
        "broker_unregistered",
        _Consequence.DROP,
        (
            "one of its brokers is not registered in the cluster any more, and Kafka refused with '{found}'; restart "
            "that broker, or move its replica to another one"
        ),
    )
    #: Kafka rejected the submission.
    KAFKA_REFUSED = "kafka_refused", _Consequence.TRY_AGAIN, "Kafka refused with '{found}'; it is retried"

    event: Event
    is_operator_choice: bool
    message: str

    def __new__(cls, code: str, then: _Consequence, message: str) -> Self:
        """Create the member with `code` as its value."""
        reason = str.__new__(cls, code)
        reason._value_ = code
        reason.event, reason.is_operator_choice = then.value
        reason.message = message if then is _Consequence.SATISFY else f"{{partition}} was not moved: {message}."
        return reason


@dataclass(frozen=True, slots=True)
class Held:
    """A move that is not submitted now: its partition, the reason, and the message for an operator."""

    topic: str
    partition: int
    code: HoldReason
    sentence: str

    @property
    def topic_partition(self) -> TopicPartition:
        """The topic and partition number."""
        return TopicPartition(self.topic, self.partition)

    @property
    def final_sentence(self) -> str:
        """The message without "it is retried": of a plan that makes no further attempt until a person acts."""
        return f"{self.sentence.removesuffix('.').removesuffix('; it is retried')}."

    @classmethod
    def of(cls, partition: TopicPartition, reason: HoldReason, found: object = None, *, by: str = "someone") -> Held:
        """Return it with the message of `reason`, formatted with `found` and `by` if the message uses them."""
        return cls(*partition, reason, reason.message.format(partition=partition, found=found, by=by))


def no_progress_possible(
    rows: Sequence[MoveRow], held: Sequence[Held], in_flight: Collection[TopicPartition] = ()
) -> bool:
    """Return True if no move is in flight, at least one is open, and all open ones are held.

    A move that is held by an operator's choice makes this False. So does one of `in_flight`, which counts as in flight.
    """
    if not held:
        return False
    open_moves = sum(row.state in OPEN for row in rows)
    flies = in_flight or any(row.state is MoveState.SUBMITTED for row in rows)
    return not flies and open_moves == len(held) and not any(move.code.is_operator_choice for move in held)
