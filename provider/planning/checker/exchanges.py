"""Exchanges that a plan's outcome allows in each topic: the ways of a unit between two brokers, and their worth.

There are two models of the same exchanges. `Pooled` goes through one node per topic and rack. It therefore ignores that
a partition may already be on the broker where the unit arrives. It allows more than there is, which cannot hide a
better plan, and takes a few numbers per replica. `Exact` has every pair of brokers, and is used for topics that
`Pooled` leaves unproven.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kafka_steward.planning.checker.constraints import Bools, Ints, PlacementOutcome, count_pairs

#: Longer than any path.
FAR = np.int32(1 << 28)
_NONE = 2
Distances = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Exact:
    """The best worth of moving a unit from one broker to another, per topic; `_NONE` if no partition allows it."""

    worth: npt.NDArray[np.int8]

    def relaxed(self, cell: Distances) -> Distances:
        """Return the distances after one more exchange."""
        through = np.where(self.worth == _NONE, FAR, cell[:, :, None] + self.worth)
        found: Distances = np.minimum(cell, through.min(axis=1, initial=FAR))
        return found

    def of(self, topics: Ints) -> Exact:
        """Return the exchanges of some topics, which must be in ascending order."""
        return Exact(self.worth[topics])


@dataclass(frozen=True)
class Pooled:
    """The worth of giving a unit to a pool, per topic, broker and pool; and the ways back to where data still is.

    `pool` is the pool that each broker draws from, -1 for none. `back` holds flat cells: from, to, and the worth.
    """

    out: npt.NDArray[np.int8]
    pool: Ints
    back: tuple[Ints, Ints, npt.NDArray[np.int32]]

    def relaxed(self, cell: Distances) -> Distances:
        """Return the distances after one more exchange."""
        given = np.where(self.out == _NONE, FAR, cell[:, :, None] + self.out).min(axis=1)
        drawn = np.where(self.pool < 0, FAR, given[:, self.pool])
        found: Distances = np.minimum(cell, drawn).ravel()
        start, end, worth = self.back
        np.minimum.at(found, end, cell.ravel()[start] + worth)
        return found.reshape(cell.shape)

    def of(self, topics: Ints) -> Pooled:
        """Return the exchanges of some topics, which must be in ascending order."""
        width = self.out.shape[1]
        start, end, worth = self.back
        mine = np.isin(start // width, topics)
        start, end = (np.searchsorted(topics, at // width) * width + at % width for at in (start[mine], end[mine]))
        return Pooled(self.out[topics], self.pool, (start, end, worth[mine]))


Exchanges = Exact | Pooled


def exact_exchanges(outcome: PlacementOutcome) -> Exact:
    """Return the exchanges between all pairs of brokers between which some partition could shift a replica."""
    topics, brokers = len(outcome.topics), outcome.placed.shape[1]
    worth = np.full((topics, brokers, brokers), _NONE, np.int8)
    row, leaving = np.nonzero(outcome.placed)
    gain = np.where(outcome.held, 0, 1)[row] - np.where(outcome.held[row, leaving], 0, 1)[:, None]
    allowed = ~outcome.placed[row] & _rack_allows(outcome, row, leaving)
    # Receive-excluded brokers may take back replicas that they held, and nothing else.
    allowed &= ~outcome.constraints.receive_excluded | outcome.held[row]
    for value in (1, 0, -1):
        at, entering = np.nonzero(allowed & (gain == value))
        worth[outcome.topic[row[at]], leaving[at], entering] = value
    return Exact(worth)


def pooled_exchanges(outcome: PlacementOutcome) -> Pooled:
    """Return the same exchanges by way of pools: one per rack, and one for all brokers without a rack."""
    racks, brokers = outcome.constraints.racks, len(outcome.rack)
    row, leaving = np.nonzero(outcome.placed)
    enter = _pools_allow(outcome, row, leaving)
    gain = np.where(outcome.held[row, leaving], 1, 0)
    out = np.full((len(outcome.topics), brokers, racks + 1), _NONE, np.int8)
    for value in (1, 0):
        at, entering = np.nonzero(enter & (gain == value)[:, None])
        out[outcome.topic[row[at]], leaving[at], entering] = value
    draws = np.where(outcome.constraints.receive_excluded, -1, _pools(outcome))
    return Pooled(out, draws, _ways_back(outcome))


def _ways_back(outcome: PlacementOutcome) -> tuple[Ints, Ints, npt.NDArray[np.int32]]:
    """Return the exchanges that, without data, give a partition back a replica that the plan takes from it."""
    width = len(outcome.rack)
    lost = outcome.held & ~outcome.placed
    changed = np.flatnonzero(lost.any(axis=1))
    index, leaving = np.nonzero(outcome.placed[changed])
    at, entering = np.nonzero(lost[changed][index])
    row, leaving = changed[index[at]], leaving[at]
    allowed = _rack_allows(outcome, row, leaving)[np.arange(len(row)), entering]
    row, leaving, entering = row[allowed], leaving[allowed], entering[allowed]
    first = outcome.topic[row] * width
    worth = np.where(outcome.held[row, leaving], 0, -1).astype(np.int32)
    return first + leaving, first + entering, worth


def _rack_allows(outcome: PlacementOutcome, row: Ints, leaving: Ints) -> Bools:
    """Return a mask of the brokers that could take a unit without a violation of the partition's rack bounds."""
    return _pools_allow(outcome, row, leaving)[:, _pools(outcome)]


def _pools(outcome: PlacementOutcome) -> Ints:
    """Return each broker's pool: its rack, or the last number for brokers without a rack."""
    return np.where(outcome.rack < 0, outcome.constraints.racks, outcome.rack)


def _pools_allow(outcome: PlacementOutcome, row: Ints, leaving: Ints) -> Bools:
    """Return a mask of the racks that could take a unit; the last column is for brokers without a rack."""
    on_rack = on_racks(outcome)[row]
    low, high = (bound[row] for bound in outcome.rack_bounds)
    pad = np.ones((len(row), 1), bool)
    own = _pools(outcome)[leaving]
    every = np.arange(len(row))
    may_leave = np.hstack([on_rack > low, pad])[every, own]
    may: Bools = may_leave[:, None] & np.hstack([on_rack < high, pad])
    may[every, own] = True
    return may


def on_racks(outcome: PlacementOutcome) -> Ints:
    """Return the number of each partition's replicas on each rack after the plan."""
    row, broker = np.nonzero(outcome.placed)
    rack = outcome.rack[broker]
    racked = rack >= 0
    return count_pairs(row[racked], rack[racked], (len(outcome.topic), outcome.constraints.racks))
