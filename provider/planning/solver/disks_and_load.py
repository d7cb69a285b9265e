"""Balance the disks and the bytes in of the brokers at once, with few bytes moved, until both are within a tolerance.

This is a heuristic with a lower bound. Every replica brings its bytes to a broker, and the bytes per second that
producers bring into its partition. Both have a band around the broker's share, and no broker comes above the
network's bandwidth, which is a hard limit of the bytes in. The broker farthest out of a band gives or gets the replica,
or exchanges two replicas with another broker, by which both brokers come nearest to their bands for the bytes that are
copied. A step that brings them no nearer is not made, so that the search ends. A budget ends it earlier, behind the
steps that were worth most.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from kafka_steward.planning.solver.candidate import CandidatePlan, cut_to_budget
from kafka_steward.planning.solver.disks import PlacedReplicas, movable_replicas, with_replicas_on
from kafka_steward.planning.solver.fill_missing import fill_missing
from kafka_steward.planning.solver.problem import Bools, Floats, Ints, Problem

#: The most steps of a search, the brokers of the giver's rack and of other racks that are tried first, and the replicas
#: of a broker that are compared for a move and for an exchange.
_STEPS, _NEAR, _MOVED, _EXCHANGED = 200_000, 3, 96, 64
#: The part of the whole load by which a step must bring two brokers nearer to their bands.
_WORTH = 1e-12
#: The mean replicas whose bytes are added to those of a step: many small moves are worse than a few larger ones.
_LEAST_COST = 4

_DISK, _IN = 0, 1


@dataclass(frozen=True)
class LoadBands:
    """The least and the most that each broker should hold: tables of measure (bytes, bytes per second) and broker.

    `limit` is the most that a broker may take per second, infinite without a limit; `fits` is False if all bytes in
    are more than the limits allow.
    """

    lower: Floats
    upper: Floats
    limit: float
    fits: bool

    @classmethod
    def of(cls, load: Floats, weight: Floats, tolerance: float, limit: float) -> LoadBands:
        """Return the bands around the shares of brokers of such a capacity, 0 for those that are not to receive."""
        sharing = weight > 0
        target = load[:, sharing].sum(axis=1)[:, None] * weight / max(weight.sum(), 1e-12)
        fits = not sharing.any() or bool(target[_IN].sum() <= limit * sharing.sum())
        if fits:
            target[_IN] = _shares_below(target[_IN], limit)
        upper = target * (1 + tolerance)
        if fits:
            upper[_IN] = np.minimum(upper[_IN], limit)
        return cls(target * (1 - tolerance), upper, limit, fits)

    def off(self, load: Floats, brokers: list[int] | slice | int) -> Floats:
        """Return how far loads are out of the bands of these brokers, or of a broker if each load is one of it."""
        lower, upper = self.lower[:, brokers], self.upper[:, brokers]
        if load.ndim > lower.ndim:
            shape = (2,) + (1,) * (load.ndim - 1)
            lower, upper = lower.reshape(shape), upper.reshape(shape)
        return np.asarray(np.maximum(load - upper, 0) + np.maximum(lower - load, 0))


def _shares_below(share: Floats, limit: float) -> Floats:
    """Return shares of the same sum of which none is above the limit: the others take what one may not, by theirs."""
    target, full = share.copy(), np.zeros(len(share), bool)
    # Each turn at least one more broker is at the limit.
    while (over := target > limit).any():
        full |= over
        target[full] = limit
        rest = share.sum() - target[full].sum()
        target[~full] = share[~full] * (rest / share[~full].sum()) if (~full).any() else 0
    return target


def balance_load(problem: Problem) -> CandidatePlan:
    """Return new assignments that balance disks and bytes in, once lost and draining replicas are placed as by a heal.

    The problem has rates.
    """
    options, brokers = problem.options, problem.brokers
    first = cut_to_budget(complete := fill_missing(problem), problem)
    weights = _weights(problem, first.row)
    load = _sum_per_broker(weights, first.broker, len(brokers))
    weight = np.where(brokers.receivers, np.array(brokers.capacity, float), 0)
    bands = LoadBands.of(load, weight, options.tolerance, float(options.network_bandwidth or np.inf))
    search = _Search(problem, first, bands, weights)
    # What has to move comes first: as long as the budget leaves some of it, nothing else moves.
    if first is complete:
        search.run()
    notes = [*first.notes, *_notes(problem, first, bands, search)]
    return replace(with_replicas_on(first, problem, search.placed.broker), notes=tuple(notes))


def _weights(problem: Problem, row: Ints) -> Floats:
    """Return bytes and bytes per second of a replica of each of the rows."""
    rates = problem.rows.bytes_per_s
    return np.array([problem.rows.size[row], np.zeros(len(row)) if rates is None else rates[row]], np.float64)


def _sum_per_broker(weights: Floats, broker: Ints, brokers: int) -> Floats:
    return np.array([np.bincount(broker, of, brokers) for of in weights], np.float64)


def _notes(problem: Problem, first: CandidatePlan, bands: LoadBands, search: _Search) -> Iterator[str]:
    brokers, load = problem.brokers, search.load * search.scale
    bound = bytes_bound(problem, first, bands)
    yield (f"Even disks and bytes in need at least {bound} bytes moved; lower_bound counts only what must move anyway.")
    over = brokers.receivers & (load[_IN] > bands.limit * (1 + 1e-9))
    if not bands.fits:
        total, allowed = round(load[_IN, brokers.receivers].sum()), int(bands.limit * brokers.receivers.sum())
        yield (
            f"The brokers take {total} bytes per second in all, and network_bandwidth allows them {allowed}: no plan "
            "keeps every broker below it; add brokers, or correct network_bandwidth."
        )
    if over.any():
        yield f"These brokers stay above network_bandwidth: {', '.join(map(str, brokers.ids[over]))}."
    uneven = False
    for measure, what in ((_DISK, "The disks"), (_IN, "The bytes in")):
        edge = bands.upper[measure] * 1e-9 + 1e-3
        outside = brokers.receivers & (bands.off(load, slice(None))[measure] > edge)
        if outside.any():
            uneven = True
            yield f"{what} of these brokers stay out of the tolerance: {', '.join(map(str, brokers.ids[outside]))}."
    if search.out_of_budget and uneven:
        yield "The budget leaves moves that would even out more; later plans continue from there."


def bytes_bound(problem: Problem, first: CandidatePlan, bands: LoadBands) -> int:
    """Return the fewest bytes of any plan that meets the bands, given one that places lost and draining replicas.

    What is above a band must leave, what is missing below one must arrive, and lost replicas are copied. Bytes per
    second leave with the fewest bytes if those replicas leave first that have most of them per byte.
    """
    rows, brokers = problem.rows, problem.brokers
    stays = brokers.usable[rows.broker] & ~rows.lost
    row, broker = rows.row[stays], rows.broker[stays]
    load = _sum_per_broker(_weights(problem, row), broker, len(brokers))
    every = _weights(problem, np.arange(len(rows)))
    densest = np.argsort(-every[_IN] / np.maximum(every[_DISK], 0.5), kind="stable")
    every, holds = every[:, densest], np.zeros((len(brokers), len(rows)), bool)
    holds[broker, row] = True
    leaves, arrives = float(rows.size[first.row[first.added]].sum()), 0.0
    for at in np.flatnonzero(brokers.receivers).tolist():
        held, excess = holds[at, densest], load[:, at] - bands.upper[:, at]
        leaves += max(excess[_DISK], _fewest_bytes(every[:, held], excess[_IN]), 0)
        lack = bands.lower[:, at] - load[:, at]
        arrives += max(lack[_DISK], _fewest_bytes(every[:, ~held], lack[_IN]), 0)
    return int(max(leaves, arrives))


def _fewest_bytes(weights: Floats, needed: float) -> float:
    """Return the fewest bytes of replicas, in order of density, and of a part of one, that take so much per second."""
    if needed <= 0 or not weights.size:
        return 0.0
    taken = np.cumsum(weights[_IN])
    at = min(int(np.searchsorted(taken, needed)), len(taken) - 1)
    before = float(taken[at - 1]) if at else 0.0
    part = min((needed - before) / weights[_IN, at], 1.0) if weights[_IN, at] else 1.0
    return float(weights[_DISK, :at].sum() + part * weights[_DISK, at])


class _Search:
    """The state of the search. Loads and bands are parts of the whole load of each measure."""

    def __init__(self, problem: Problem, first: CandidatePlan, bands: LoadBands, weights: Floats) -> None:
        options, self.placed = problem.options, PlacedReplicas(problem, first)
        self.row, self.size, self.home = first.row, self.placed.size, first.broker
        self.scale = np.maximum(weights.sum(axis=1), 1)[:, None]
        self.weight = weights / self.scale
        self.bands = replace(
            bands,
            lower=bands.lower / self.scale,
            upper=bands.upper / self.scale,
            limit=bands.limit / float(self.scale[_IN, 0]),
        )
        self.load = _sum_per_broker(self.weight, first.broker, len(problem.brokers))
        self.sharing = problem.brokers.receivers
        movable = np.flatnonzero(movable_replicas(problem, first) & (self.weight > 0).any(axis=0))
        movable = movable[self.sharing[first.broker[movable]]]
        #: The movable replicas of each broker.
        self.items: list[Ints] = [movable[first.broker[movable] == broker] for broker in range(len(problem.brokers))]
        self.least_cost = _LEAST_COST * float(self.size[movable].mean()) + 1 if len(movable) else 1.0
        spent = first.row[first.added]
        self.bytes_left = np.inf if options.max_bytes is None else options.max_bytes - int(self.size[first.added].sum())
        self.moves_left = np.inf if options.max_moves is None else options.max_moves - len(spent)
        self.out_of_budget = False

    def run(self) -> None:
        """Improve the broker farthest out of a band, until none can be improved."""
        done, improved = np.zeros_like(self.load, bool), False
        for _ in range(_STEPS):
            off = np.where(done | ~self.sharing, 0, self.bands.off(self.load, slice(None)))
            measure, broker = divmod(int(off.argmax()), off.shape[1])
            if off[measure, broker] <= _WORTH:
                # What was left before may have become possible since.
                if not (improved and done.any()):
                    return
                done[:], improved = False, False
            elif self._improve(measure, broker):
                improved = True
            else:
                done[measure, broker] = True

    def _improve(self, measure: int, broker: int) -> bool:
        """Make the best move or exchange of a broker. Return False if there is none."""
        gives = self.load[measure, broker] > self.bands.upper[measure, broker]
        # Brokers that may take most, or give most, come first: of the own rack, which the rack rule always allows.
        room = self.bands.upper - self.load if gives else self.load - self.bands.lower
        far = np.where(self.sharing, -room[measure] / max(float(self.bands.upper[measure, broker]), 1e-12), np.inf)
        far[broker] = np.inf
        order = np.argsort(far, kind="stable")[: int(np.isfinite(far).sum())]
        own = self.placed.rack[order] == self.placed.rack[broker]
        near = [*order[own][:_NEAR].tolist(), *order[~own][:_NEAR].tolist()]
        chosen = self._nearest(broker, broker) if gives else None
        for others in (near, order.tolist()):
            pairs = [(broker, other) if gives else (other, broker) for other in others]
            if self._make_best(
                self._find_move(pair, self._nearest(pair[0], broker) if chosen is None else chosen) for pair in pairs
            ):
                return True
            # All brokers are tried for moves alone, because exchanges take longer.
            if others is near and self._make_best(self._find_exchange(pair) for pair in pairs):
                return True
        return False

    def _make_best(self, found: Iterator[tuple[float, list[tuple[int, int]]]]) -> bool:
        score, steps = max(found, key=lambda step: step[0], default=(0.0, []))
        if score <= 0:
            return False
        for at, receiver in steps:
            self._move_replica(at, receiver)
        return True

    def _nearest(self, giver: int, changed: int) -> Ints:
        """Return the replicas of a giver that bring the changed broker, giver or receiver, nearest to its bands."""
        items = self.items[giver]
        if len(items) <= _MOVED:
            return items
        sign = -1 if changed == giver else 1
        off = self.bands.off(self.load[:, [changed]] + sign * self.weight[:, items], changed).sum(axis=0)
        cost = np.where(self.home[items] == giver, self.size[items], 0) + self.least_cost
        return items[np.argpartition((off - off.max()) / cost, _MOVED)[:_MOVED]]

    def _find_move(self, pair: tuple[int, int], items: Ints) -> tuple[float, list[tuple[int, int]]]:
        """Return the best move of these replicas from one broker to another, and its worth per byte; 0 without one."""
        giver, receiver = pair
        items = items[self._may_go(items, giver, receiver)]
        if not len(items):
            return 0.0, []
        given = self.load[:, [giver]] - self.weight[:, items]
        taken = self.load[:, [receiver]] + self.weight[:, items]
        below = (taken[_IN] <= self.bands.limit) | (self.weight[_IN, items] == 0)
        score = np.where(below, self._score(pair, given, taken, *self._cost(items, giver, receiver)), 0)
        best = int(score.argmax())
        return float(score[best]), [(int(items[best]), receiver)]

    def _find_exchange(self, pair: tuple[int, int]) -> tuple[float, list[tuple[int, int]]]:
        """Return the best exchange between two brokers, and its worth per byte; 0 if there is none."""
        one, two = pair
        there, back = (self._some(self.items[broker]) for broker in pair)
        there, back = there[self._may_go(there, one, two)], back[self._may_go(back, two, one)]
        if not (len(there) and len(back)):
            return 0.0, []
        less = self.weight[:, there][:, :, None] - self.weight[:, back][:, None, :]
        given, taken = self.load[:, one, None, None] - less, self.load[:, two, None, None] + less
        costs = zip(self._cost(there, one, two), self._cost(back, two, one), strict=True)
        cost, moves = (first[:, None] + second for first, second in costs)
        # The broker that takes more ends below the limit, or takes no more than before.
        limit = self.bands.limit
        below = (np.maximum(given[_IN], limit) <= max(self.load[_IN, one], limit)) & (
            np.maximum(taken[_IN], limit) <= max(self.load[_IN, two], limit)
        )
        score = np.where(below, self._score(pair, given, taken, cost, moves), 0)
        at, other = divmod(int(score.argmax()), len(back))
        return float(score[at, other]), [(int(there[at]), two), (int(back[other]), one)]

    def _score(self, pair: tuple[int, int], given: Floats, taken: Floats, cost: Floats, moves: Floats) -> Floats:
        """Return how much nearer brokers come to their bands per byte, 0 for what is not worth it or beyond budget."""
        giver, receiver = pair
        before = self.bands.off(self.load[:, [giver, receiver]], [giver, receiver]).sum()
        nearer = before - self.bands.off(given, giver).sum(axis=0) - self.bands.off(taken, receiver).sum(axis=0)
        worth = nearer > _WORTH
        affordable = ((cost <= self.bytes_left) | (cost <= 0)) & ((moves <= self.moves_left) | (moves <= 0))
        self.out_of_budget = self.out_of_budget or bool((worth & ~affordable).any())
        return np.where(worth & affordable, nearer / (np.maximum(cost, 0) + self.least_cost), 0)

    def _may_go(self, items: Ints, giver: int, receiver: int) -> Bools:
        row, placed = self.row[items], self.placed
        fits = (self.size[items] <= placed.free[receiver]) | (self.home[items] == receiver)
        free = fits & ~placed.holds[row, receiver]
        return np.asarray(free & placed.racks_allow(row, placed.rack[giver], placed.rack[receiver]), bool)

    def _cost(self, items: Ints, giver: int, receiver: int) -> tuple[Floats, Floats]:
        """Return the bytes and the replicas that are moved more than before: less than none if one returns."""
        moves = (self.home[items] != receiver).astype(np.float64) - (self.home[items] != giver)
        return moves * self.size[items], moves

    def _some(self, items: Ints) -> Ints:
        if len(items) <= _EXCHANGED:
            return items
        # Some of every kind: by density, from the coldest to the hottest.
        order = np.argsort(self.weight[_IN, items] - self.weight[_DISK, items], kind="stable")
        return items[order[np.linspace(0, len(items) - 1, _EXCHANGED).astype(np.int64)]]

    def _move_replica(self, at: int, receiver: int) -> None:
        giver = int(self.placed.broker[at])
        cost, moves = self._cost(np.array([at]), giver, receiver)
        self.bytes_left -= float(cost[0])
        self.moves_left -= float(moves[0])
        self.placed.move(at, receiver)
        self.items[giver] = self.items[giver][self.items[giver] != at]
        self.items[receiver] = np.append(self.items[receiver], at)
        self.load[:, giver] -= self.weight[:, at]
        self.load[:, receiver] += self.weight[:, at]
