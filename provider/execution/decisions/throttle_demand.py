"""The throttles that the moves of a plan need at one moment. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

from kafka_steward.assignment import Move
from kafka_steward.cluster.throttles import Side

__all__ = ["NO_DEMAND", "ThrottleDemand", "throttle_demand"]


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
