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

The reasons are a closed list. Each has a resulting event and one message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from kafka_steward.assignment import TopicPartition
from kafka_steward.journal.moves import MoveRow, MoveState, Phase


class Event(str, Enum):
    """An event in the life of a move."""

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


def next_state(state: MoveState, event: Event) -> MoveState:
    """Return the state after `event`. Raises ValueError that names both if the table has no such transition."""
    if event not in TRANSITIONS[state]:
        raise ValueError(f"A move that is {state.value} cannot meet '{event.value}'.")
    return TRANSITIONS[state][event]


def phase_of(row: MoveRow) -> Phase:
    """Return the phase of a SUBMITTED move; a missing phase counts as INTENDED, which assumes least."""
    return row.phase or Phase.INTENDED


def unsettled(rows: Iterable[MoveRow]) -> list[MoveRow]:
    """Return the moves that may still change their state, in the given order."""
    return [row for row in rows if row.state not in SETTLED]


class HoldReason(str, Enum):
    """The reason for which a move is not submitted."""

    #: The failed broker is live again (KIP-46): the move is not needed any more.
    SATISFIED = "satisfied"
    #: The partition already has the target assignment.
    ALREADY_THERE = "already_there"
    PARTITION_GONE = "partition_gone"
    #: An ACL hides its topic, so that its existence is unknown.
    TOPIC_HIDDEN = "topic_hidden"
    RECREATED = "created_anew"
    CHANGED_ELSEWHERE = "changed_elsewhere"
    DUPLICATE_REPLICA = "duplicate_replica"
    #: KIP-236: /admin/reassign_cancel is present.
    CLUSTER_DISABLED = "cluster_disabled"
    #: The plan needs an approval that is missing or was deleted.
    NOT_APPROVED = "not_approved"
    EXTERNAL_REASSIGNMENT = "foreign_reassignment"
    TARGET_RESTARTING = "target_bouncing"
    TARGET_DEAD = "target_dead"
    #: KIP-1066: the broker receives no new replicas.
    TARGET_CORDONED = "target_cordoned"
    KEPT_REPLICA_DEAD = "kept_replica_dead"
    #: A replica that the move keeps is in a failed log directory.
    KEPT_REPLICA_OFFLINE = "kept_replica_offline"
    NO_LEADER = "no_leader"
    BELOW_MIN_ISR = "below_min_isr"
    #: A receiving broker does not report the free space of its log directories.
    DISK_UNKNOWN = "disk_unknown"
    #: Its leader does not report its size.
    SIZE_UNKNOWN = "size_unknown"
    DISK_FULL = "disk_full"
    UNDER_MIN_ISR_ELSEWHERE = "cluster_strained"
    #: Kafka rejected the submission.
    KAFKA_REFUSED = "kafka_refused"

    @property
    def event(self) -> Event:
        """Return the event that this reason causes for the move."""
        return _EVENTS.get(self, Event.HOLD)

    @property
    def is_operator_choice(self) -> bool:
        """Return True if an operator's choice is the reason; such waiting does not count as a failed attempt."""
        return self in _OPERATOR_CHOICES


_OPERATOR_CHOICES = {
    HoldReason.CLUSTER_DISABLED,
    HoldReason.NOT_APPROVED,
    HoldReason.TARGET_RESTARTING,
    HoldReason.TARGET_CORDONED,
    HoldReason.EXTERNAL_REASSIGNMENT,
}

_EVENTS = {
    HoldReason.SATISFIED: Event.SATISFY,
    HoldReason.ALREADY_THERE: Event.SATISFY,
    HoldReason.PARTITION_GONE: Event.DROP,
    HoldReason.RECREATED: Event.DROP,
    HoldReason.CHANGED_ELSEWHERE: Event.DROP,
    HoldReason.DUPLICATE_REPLICA: Event.DROP,
}

#: One message each: the problem, its location, the action. `{found}` is the result of the check, `{by}` the actor.
SENTENCES: dict[HoldReason, str] = {
    HoldReason.SATISFIED: "{partition} needs no move any more: all its brokers, {found}, are live again.",
    HoldReason.ALREADY_THERE: "{partition} already has the replicas {found}.",
} | {
    reason: f"{{partition}} was not moved: {why}."
    for reason, why in {
        HoldReason.PARTITION_GONE: "it does not exist any more",
        HoldReason.TOPIC_HIDDEN: "Kafka does not let us describe its topic, so that it may or may not exist; grant our "
        "principal DESCRIBE on it, as docs/permissions.md says",
        HoldReason.RECREATED: "its topic was deleted and created anew since the plan was made; make a new plan",
        HoldReason.CHANGED_ELSEWHERE: "{by} changed its replicas to {found} since it was planned; make a new plan",
        HoldReason.DUPLICATE_REPLICA: "its target {found} is empty or names a broker twice; correct the plan",
        HoldReason.CLUSTER_DISABLED: "reassignments are switched off for this cluster {found}; to allow them, "
        "delete /admin/reassign_cancel",
        HoldReason.NOT_APPROVED: "nobody has approved plan {found}, or the approval is gone; approve it in its run, or "
        "cancel it",
        HoldReason.EXTERNAL_REASSIGNMENT: "someone else is moving it to {found}; it is tried again when that has ended",
        HoldReason.TARGET_RESTARTING: "broker {found} announced a restart and has not returned; it is tried again; to "
        "end the announcement, delete /admin/rolling_bounce/{found}",
        HoldReason.TARGET_DEAD: "broker {found}, which is to receive it, is not live; it is tried again",
        HoldReason.TARGET_CORDONED: "broker {found}, which is to receive it, is cordoned; take its directories out of "
        "cordoned.log.dirs, or cancel and make a new plan",
        HoldReason.KEPT_REPLICA_OFFLINE: "its replica on broker {found} stays, and its log directory has failed, "
        "so that the move would hang; bring the disk back, or let a heal move it (heal_failed_disks)",
        HoldReason.KEPT_REPLICA_DEAD: "broker {found}, whose replica stays, is not live, and the move would hang; it "
        "is tried again",
        HoldReason.NO_LEADER: "it has no leader to copy from; bring back one of the brokers {found}",
        HoldReason.BELOW_MIN_ISR: "its target has fewer replicas than min.insync.replicas, {found}; lower that setting "
        "or plan more replicas",
        HoldReason.DISK_UNKNOWN: "broker {found}, which is to receive it, does not say what its log directories have "
        "left; it is tried again",
        HoldReason.SIZE_UNKNOWN: "broker {found}, which leads it, does not say how large it is; it is tried again",
        HoldReason.DISK_FULL: "it would leave broker {found} less free disk than min_free asks for; free some, or "
        "lower min_free",
        HoldReason.UNDER_MIN_ISR_ELSEWHERE: "{found}, outside this plan, has fewer replicas in sync than "
        "min.insync.replicas; "
        "it is tried again",
        HoldReason.KAFKA_REFUSED: "Kafka refused with '{found}'; it is tried again",
    }.items()
}


@dataclass(frozen=True, slots=True)
class Held:
    """A move that is not submitted now: its partition, the reason, and the message for an operator."""

    topic: str
    partition: int
    code: HoldReason
    sentence: str

    @classmethod
    def of(cls, partition: TopicPartition, reason: HoldReason, found: object = None, *, by: str = "someone") -> Held:
        """Return it with the message of `reason`, formatted with `found` and `by` if the message uses them."""
        return cls(*partition, reason, SENTENCES[reason].format(partition=partition, found=found, by=by))


def no_progress_possible(rows: Sequence[MoveRow], held: Sequence[Held]) -> bool:
    """Return True if no move is in flight, at least one is open, and all open ones are held.

    A move that is held by an operator's choice (`waits_for_people`) makes this False.
    """
    open_moves = sum(row.state in OPEN for row in rows)
    in_flight = any(row.state is MoveState.SUBMITTED for row in rows)
    return not in_flight and 0 < open_moves == len(held) and not any(each.code.is_operator_choice for each in held)
