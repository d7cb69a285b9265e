"""The throttles that the moves of a plan need at one moment, and the rate of each broker (KIP-73). Pure.

While plans move replicas, a broker gets the strictest of the plans' rates and of the external rate that was set before
them. An external rate that is set later stays unchanged for as long as it exists. When it is cleared, our rate is set
again, and the original external rate counts as withdrawn: a cleared rate is not restored. A rate that we set before and
that shows again counts as ours: a broker may report a change late, and another tool may restore the value it found.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain

from kafka_steward.assignment import Move
from kafka_steward.cluster.throttles import Side
from kafka_steward.journal.records import ThrottleLease


@dataclass(frozen=True)
class ThrottleDemand:
    """The throttles that moves need: list entries by (topic, side), and the (broker, side) pairs that need a rate."""

    entries: Mapping[tuple[str, Side], frozenset[str]]
    brokers: frozenset[tuple[int, Side]]


#: The throttles of a finished plan: none.
NO_DEMAND = ThrottleDemand({}, frozenset())


def throttle_demand(copying: Iterable[Move], ahead: Iterable[Move] = (), *, leaders: bool = False) -> ThrottleDemand:
    """Return the throttles that `copying` moves need.

    `ahead` are moves that are not submitted yet: they need no list entry, but the rate of their brokers is kept. With
    `leaders`, the sending side is throttled too, as other reassignment tools do; that slows ordinary replica catch-up.
    """
    copying, entries = list(copying), dict[tuple[str, Side], set[str]]()
    for move in copying:
        for side, brokers in _sides(move, leaders):
            entries.setdefault((move.topic, side), set()).update(f"{move.partition}:{broker}" for broker in brokers)
    rates = {
        (broker, side)
        for move in chain(copying, ahead)
        for side, brokers in _sides(move, leaders)
        for broker in brokers
    }
    return ThrottleDemand({key: frozenset(several) for key, several in entries.items() if several}, frozenset(rates))


def _sides(move: Move, leaders: bool) -> list[tuple[Side, Collection[int]]]:
    if not move.adding:
        return []
    receiving: list[tuple[Side, Collection[int]]] = [(Side.FOLLOWER, sorted(move.adding))]
    return [*receiving, (Side.LEADER, move.before)] if leaders else receiving


#: The number of our own earlier rates that are stored for one broker.
_REMEMBERED = 20


def to_set(
    known: ThrottleLease | None, plan: str, rate: str | None, now: str | None
) -> tuple[ThrottleLease | None, str | None]:
    """Return the throttle lease to store for a broker, and the rate to set; None to leave the current rate.

    `known` is the stored lease. `rate` is the rate that `plan` requests, None for the rate that it requested before.
    `now` is the broker's current rate, None if none is set on the broker. All rates are in bytes per second.
    """
    noted = known or ThrottleLease(now, None)
    if rate is None and plan not in noted.entries:
        return known, None
    entries = dict(noted.entries) if rate is None else {**noted.entries, plan: (rate,)}
    noted = replace(noted, entries=entries)
    asked = _strictest(entries, noted.ours)
    if asked is None:
        return noted, None
    if noted.ours is None:
        noted = replace(noted, before=now)
    elif now is None:
        noted = replace(noted, before=None)
    elif now not in _known_rates(noted):
        if int(now) <= asked or str(asked) == noted.ours:
            return noted, None
        noted = replace(noted, before=now)  # a stricter rate was requested after the external one was set
    return _set(noted, asked, now)


def returned(borrowed: ThrottleLease, now: str | None) -> str | None:
    """Return the rate that counts as current: an earlier rate of ours that still shows is equal to the last one."""
    return borrowed.ours if now in borrowed.earlier else now


def set_late(known: ThrottleLease | None, plan: str, rate: str, before: str | None) -> ThrottleLease:
    """Return the lease to store if `rate` was set for a plan that had released its lease in the meantime."""
    if known is None:
        return ThrottleLease(before, rate, {plan: (rate,)})
    earlier = _unique((*known.earlier, rate), known.ours)
    return replace(known, entries={**known.entries, plan: known.entries.get(plan, (rate,))}, earlier=earlier)


def _set(noted: ThrottleLease, asked: int, now: str | None) -> tuple[ThrottleLease, str | None]:
    if noted.before is not None and int(noted.before) <= asked:
        if noted.ours is None:
            return noted, None  # the external rate is at least as strict, and stays
        asked = int(noted.before)
    wanted = str(asked)
    earlier = _unique((*noted.earlier, *filter(None, (noted.ours,))), wanted)
    return replace(noted, ours=wanted, earlier=earlier), None if now == wanted else wanted


def _strictest(entries: Mapping[str, tuple[str, ...]], ours: str | None) -> int | None:
    """Return the strictest rate that a plan requests; an entry without a rate requests the rate that was set."""
    rates = [of[0] if of else ours for of in entries.values()]
    return min((int(rate) for rate in rates if rate is not None), default=None)


def _known_rates(noted: ThrottleLease) -> set[str | None]:
    return {noted.ours, noted.before, *noted.earlier}


def _unique(rates: tuple[str, ...], but: str | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(rate for rate in rates if rate != but))[-_REMEMBERED:]
