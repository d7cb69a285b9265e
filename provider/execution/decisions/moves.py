"""The states of one move of a plan, and the transitions between them.

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
unavailable controller may still execute it. Before such a move is dropped, Kafka is asked to cancel it.

A move in flight is never reverted by submitting `before` again: a KRaft cluster of release 4.3 then adds and removes
the same replica forever.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from kafka_steward.journal.moves import MoveRow, MoveState, Phase

__all__ = ["Event", "OPEN", "Phase", "SETTLED", "TRANSITIONS", "next_state", "phase_of", "unsettled"]


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
