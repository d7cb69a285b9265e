"""What one move of a plan can be, and how it gets from one state to the next.

A move takes one partition from its assignment `before` to its assignment `after`. The journal's row says what we
*intended*; Kafka says what *is*; neither alone is the truth, because a process can die between writing the one and
asking the other, and because others change Kafka too. So a move's life is a small automaton whose state is in the
journal, and whose events are drawn from comparing that state with a fresh look at the cluster::

    WAITING    not begun                                   HELD   not begun, and preflight says why not now
    SUBMITTED  written down as submitted, *before* Kafka is asked; what became of it is read from Kafka
    COMPLETED  seen to be at `after`, with every replica of `after` in the ISR once (KIP-46)
    SATISFIED  needs nothing any more: already at `after`, or the broker that failed is back (KIP-46)
    DROPPED    will not be done: the partition is gone, or someone cancelled it, or it was handed back to the next plan
    FAILED     someone else moved the partition elsewhere; it is theirs now and is left alone

SUBMITTED has three phases, kept in the row's `phase`, because the same look means different things in each:

* ``intended``: Kafka may or may not have been asked. A partition still at `before` means that it was not, or that the
  request was lost: the move waits again, and is submitted anew. Submitting twice is harmless, for the target is named.
* ``accepted``: Kafka took it. A partition back at the replicas of `before` means that someone cancelled it.
* ``cancelling``: we cancel it. Kafka's cancel (a null target) gives back the set of `before` and loses its order, so
  the order is restored by a second reassignment, and only then is the move handed back.

A move that adds several replicas may be carried out in several *strides* (strides.py). When one of them has arrived the
move waits again, halfway: it meets preflight and the window anew before the next. Cancelled there, it goes back too.

A submission that Kafka gave no answer to leaves the row `unacknowledged`, whatever becomes of the row afterwards: a
controller that was away may still carry it out. Before such a move is given up, Kafka is asked to cancel it.

Never is a move in flight reverted by submitting `before` again: a KRaft cluster of release 4.3 then adds and removes
the same replica for ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from kafka_steward.journal.moves import MoveRow, MoveState, Phase

__all__ = ["Event", "OPEN", "Phase", "SETTLED", "TRANSITIONS", "next_state", "phase_of", "unsettled"]


class Event(str, Enum):
    """What happens to a move."""

    #: Preflight held it back; it may go on later.
    HOLD = "hold"
    #: What held it back is gone.
    RELEASE = "release"
    #: It is about to be asked of Kafka.
    SUBMIT = "submit"
    #: Kafka said no.
    REFUSE = "refuse"
    #: It was written down, and Kafka shows no trace of it.
    NEVER_BEGAN = "never began"
    #: A part of it arrived, and the next part may begin.
    GO_ON = "go on"
    #: It was in flight, was cancelled by us and has its order back.
    HAND_BACK = "hand back"
    #: It arrived.
    COMPLETE = "complete"
    #: Nothing need be done.
    SATISFY = "satisfy"
    #: It will not be done.
    DROP = "drop"
    #: Someone else gave the partition another assignment.
    LOSE = "lose"


_NOT_BEGUN = {
    Event.HOLD: MoveState.HELD,
    Event.RELEASE: MoveState.WAITING,
    Event.SUBMIT: MoveState.SUBMITTED,
    Event.SATISFY: MoveState.SATISFIED,
    Event.DROP: MoveState.DROPPED,
}

#: State, event, next state. What is not here cannot happen.
TRANSITIONS: dict[MoveState, dict[Event, MoveState]] = {
    MoveState.WAITING: _NOT_BEGUN,
    MoveState.HELD: _NOT_BEGUN,
    MoveState.SUBMITTED: {
        Event.SUBMIT: MoveState.SUBMITTED,
        Event.REFUSE: MoveState.HELD,
        Event.NEVER_BEGAN: MoveState.WAITING,
        Event.GO_ON: MoveState.WAITING,
        Event.HAND_BACK: MoveState.HELD,
        Event.COMPLETE: MoveState.COMPLETED,
        Event.DROP: MoveState.DROPPED,
        Event.LOSE: MoveState.FAILED,
    },
    MoveState.COMPLETED: {},
    MoveState.SATISFIED: {},
    MoveState.DROPPED: {},
    MoveState.FAILED: {},
}

#: Moves that may still begin.
OPEN = frozenset({MoveState.WAITING, MoveState.HELD})
#: Moves with which nothing more will happen.
SETTLED = frozenset(state for state in MoveState if state.settled)


def next_state(state: MoveState, event: Event) -> MoveState:
    """The state after `event`. Raises ValueError, naming both, when the table has no such transition."""
    if event not in TRANSITIONS[state]:
        raise ValueError(f"A move that is {state.value} cannot meet '{event.value}'.")
    return TRANSITIONS[state][event]


def phase_of(row: MoveRow) -> Phase:
    """Return the phase of a SUBMITTED move; one that has none counts as INTENDED, which assumes least."""
    return row.phase or Phase.INTENDED


def unsettled(rows: Iterable[MoveRow]) -> list[MoveRow]:
    """The moves with which something may still happen, in the order given."""
    return [row for row in rows if row.state not in SETTLED]
