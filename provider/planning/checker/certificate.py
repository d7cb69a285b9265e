"""Prove that a plan moves as little as possible, from its outcome and one price per broker; no solver is trusted.

The proof is stated in terms of exchanges. A unit (one replica) that moves from broker b to broker b' in some partition
is an arc from (topic, b) to (topic, b'). The arc is worth +1 if b' has no data of the partition, and -1 if b had none.
A market is added, where a place on a broker costs the broker's price. If the exchanges of every topic together with the
market have no cycle of negative worth, then no plan of that topic is cheaper at those prices. If in addition only full
brokers have a positive price, and only brokers at their floor have a negative price, then no plan can gain anything
from the prices, and the sum over all topics is minimal. For any other plan y, moves(y) >= moves(x) + price * (total(x)
- total(y)) >= moves(x). Wrong prices can only fail to prove a plan.

If brokers are excluded, the fair shares may be out of reach. Every step beyond a fair share then counts as `_STEP`
moves. A plan is proven if it comes nearest to the fair shares, and has the fewest moves of all plans that come as near.

There are two models of the exchanges in each topic. `PooledExchanges` goes through one node per topic and rack. It
therefore ignores that a partition may already be on the broker where the unit arrives. It allows more than there is,
which cannot hide a better plan, and takes a few numbers per replica. `ExactExchanges` has every pair of brokers, and is
used for topics that `PooledExchanges` leaves unproven.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from kafka_steward.assignment import counted
from kafka_steward.planning.checker.constraints import Bools, BrokerConstraints, Ints, PlacementOutcome, count_pairs

#: Longer than any path.
FAR = np.int32(1 << 28)
#: Stands for a missing exchange in tables of worths, which are -1, 0 or 1.
_NONE = 2
Distances = npt.NDArray[np.int32]

#: Topics times brokers squared, up to which the price search examines every pair of brokers.
MAX_EXACT_CELLS = 20_000_000
#: Topics times brokers squared, up to which the exact exchanges are as fast as the pooled ones.
_FEW_CELLS = 10_000
#: Cost of one replica beyond a bound, where bounds may be out of reach: more than any chain of moves that repairs it.
_STEP = np.int32(1 << 10)
#: Rounds after which the price search stops. Prices are found within tens of rounds, or hardly ever.
_MAX_ROUNDS = 500


@dataclass(frozen=True)
class ReplicaTotals:
    """Totals over all topics: replicas per broker before and after, and partitions per replication factor."""

    held: Ints
    placed: Ints
    factors: dict[int, int]


def replica_totals(outcome: PlacementOutcome) -> ReplicaTotals:
    """Return the totals of the partitions in an outcome."""
    return ReplicaTotals(outcome.held.sum(axis=0), outcome.placed.sum(axis=0), outcome.factor_counts)


def topic_violations(outcome: PlacementOutcome) -> list[str]:
    """List the violations of an outcome that its own partitions show, without the cluster's totals."""
    degree = outcome.placed.sum(axis=1)
    wrong = [outcome.topics[outcome.topic[row]] for row in np.flatnonzero(degree != outcome.factor)[:10]]
    problems = [f"A partition of {topic} has another number of usable replicas than it should." for topic in wrong]
    bad = int(badly_spread_partitions(outcome).sum())
    if bad:
        problems.append(f"{counted(bad, 'partition', 'is', 'are')} not spread over the racks as could be.")
    low, high = outcome.cell_bounds
    uneven = ((outcome.cell_counts < low) | (outcome.cell_counts > high)).any(axis=1) & (not outcome.constraints.soft)
    return problems + [f"The topic {outcome.topics[topic]} is not even." for topic in np.flatnonzero(uneven)[:10]]


def badly_spread_partitions(outcome: PlacementOutcome) -> Bools:
    """Return a mask of the partitions outside their rack bounds after the plan."""
    on_rack, (low, high) = count_on_racks(outcome), outcome.rack_bounds
    wrong: Bools = np.any((on_rack < low) | (on_rack > high), axis=1)
    return wrong


def cluster_violations(constraints: BrokerConstraints, totals: ReplicaTotals) -> list[str]:
    """List the violations that the whole cluster's totals show."""
    low, high = constraints.broker_bounds(totals.factors, totals.held)
    if not constraints.soft and ((totals.placed < low) | (totals.placed > high)).any():
        return ["The cluster is uneven: a broker is beyond its fair share."]
    return []


def cluster_price_objections(constraints: BrokerConstraints, totals: ReplicaTotals, prices: Ints) -> list[str]:
    """List the reasons why the prices do not fit the brokers' totals; empty if they do."""
    gain, lose = step_costs(
        totals.placed, constraints.broker_bounds(totals.factors, totals.held), soft=constraints.soft
    )
    problems = []
    if (prices > gain).any():
        problems.append("A broker that is not full has a positive price.")
    if (-prices > lose).any():
        problems.append("A broker that is above its floor has a negative price.")
    return problems


def unproven_topics(outcome: PlacementOutcome, prices: Ints) -> list[str]:
    """Return the topics that the prices do not prove: topics with a cycle of exchanges that may save a move."""
    if not outcome.placed.size:
        return []
    price = prices.astype(np.int32)
    numbers = np.arange(len(outcome.topics))
    steps = _cell_step_costs(outcome, numbers)
    unproven = numbers[improvable_topics(steps, pooled_exchanges(outcome), price)]
    # The pooled exchanges allow more than there is: the exact ones may prove a topic that the pooled ones do not.
    at_once = max(MAX_EXACT_CELLS // len(price) ** 2, 1)
    left: list[int] = []
    for start in range(0, len(unproven), at_once):
        batch = unproven[start : start + at_once]
        exact = exact_exchanges(_restrict_to_topics(outcome, batch))
        left += batch[improvable_topics((steps[0][batch], steps[1][batch]), exact, price)].tolist()
    return [outcome.topics[topic] for topic in left]


def _restrict_to_topics(outcome: PlacementOutcome, topics: Ints) -> PlacementOutcome:
    # `topics` are in ascending order: their numbers in the result keep that order.
    mine = np.isin(outcome.topic, topics)
    return replace(
        outcome,
        topics=tuple(outcome.topics[topic] for topic in topics),
        topic=np.searchsorted(topics, outcome.topic[mine]),
        factor=outcome.factor[mine],
        held=outcome.held[mine],
        placed=outcome.placed[mine],
        rack_bounds=(outcome.rack_bounds[0][mine], outcome.rack_bounds[1][mine]),
        cell_bounds=(outcome.cell_bounds[0][topics], outcome.cell_bounds[1][topics]),
    )


def improvable_topics(steps: tuple[Distances, Distances], exchanges: Exchanges, price: Distances) -> Bools:
    """Return a mask of the topics that have a cycle of negative worth.

    `steps` are the costs of one more and of one fewer, per topic and broker. The distances of such a topic shrink for
    more rounds than a path without a cycle has steps.
    """
    gain, lose = steps
    cell = np.zeros_like(gain)
    topics = moving = np.arange(len(gain))
    for _ in price:
        market = (cell + price + gain).min(axis=1, keepdims=True)
        # Without a cycle no distance is that small, and much smaller distances would overflow 32 bits.
        relaxed = np.maximum(exchanges.relax_distances(np.minimum(cell, market - price + lose)), -FAR)
        # Most topics settle within a few rounds, and leave the search.
        shrinks = ((relaxed < cell) | (relaxed == -FAR)).any(axis=1)
        moving, exchanges = moving[shrinks], exchanges.restrict_to_topics(np.flatnonzero(shrinks))
        cell, gain, lose = relaxed[shrinks], gain[shrinks], lose[shrinks]
    return np.isin(topics, moving)


def find_prices(outcome: PlacementOutcome) -> Ints | None:
    """Return prices that prove the outcome, found from the outcome alone; None if none were found in time."""
    cells = len(outcome.topics) * len(outcome.rack) ** 2
    if cells <= _FEW_CELLS:
        return _prices_from_exchanges(outcome, exact_exchanges(outcome))
    prices = _prices_from_exchanges(outcome, pooled_exchanges(outcome))
    if prices is None and cells <= MAX_EXACT_CELLS:
        return _prices_from_exchanges(outcome, exact_exchanges(outcome))
    return prices


def _prices_from_exchanges(outcome: PlacementOutcome, exchanges: Exchanges) -> Ints | None:
    """Return the market's distance minus each broker's distance, once no distance shrinks any more.

    Return None if distances still shrink after the last round: the outcome may have a cycle of negative worth.
    """
    gain, lose = _cell_step_costs(outcome, np.arange(len(outcome.topics)))
    total = outcome.placed.sum(axis=0)
    broker_gain, broker_lose = step_costs(total, outcome.broker_bounds, soft=outcome.constraints.soft)
    cell, broker, market = np.zeros_like(gain), np.zeros_like(broker_gain), np.int32(0)
    # A shortest path without a cycle visits no cell twice. Paths may start at the brokers too.
    for _ in range(min(cell.size + broker.size, _MAX_ROUNDS)):
        relaxed = exchanges.relax_distances(cell)
        broker = np.minimum(broker, (relaxed + gain).min(axis=0, initial=FAR))
        market = np.minimum(market, (broker + broker_gain).min())
        broker = np.minimum(broker, market + broker_lose)
        relaxed = np.minimum(relaxed, broker + lose)
        if (relaxed == cell).all():
            prices: Ints = (market - broker).astype(np.int64)
            return prices
        cell = relaxed
    return None


def _cell_step_costs(outcome: PlacementOutcome, topics: Ints) -> tuple[Distances, Distances]:
    low, high = (bound[topics] for bound in outcome.cell_bounds)
    return step_costs(outcome.cell_counts[topics], (low, high), soft=outcome.constraints.soft)


def step_costs(count: Ints, bounds: tuple[Ints, Ints], *, soft: bool) -> tuple[Distances, Distances]:
    """Return the costs of one replica more and of one replica fewer. A step within the bounds costs nothing.

    A step out of the bounds is forbidden (`FAR`). If `soft`, it costs `_STEP` instead, and a step back towards the
    bounds gains `_STEP`.
    """
    low, high = bounds
    if not soft:
        return np.where(count >= high, FAR, 0), np.where(count <= low, FAR, 0)
    gain = np.where(count >= high, _STEP, np.where(count < low, -_STEP, 0))
    lose = np.where(count <= low, _STEP, np.where(count > high, -_STEP, 0))
    return gain, lose


@dataclass(frozen=True)
class ExactExchanges:
    """The best worth of moving a unit from one broker to another, per topic; `_NONE` if no partition allows it."""

    worth: npt.NDArray[np.int8]

    def relax_distances(self, cell: Distances) -> Distances:
        """Return the distances after one more exchange."""
        through = np.where(self.worth == _NONE, FAR, cell[:, :, None] + self.worth)
        relaxed: Distances = np.minimum(cell, through.min(axis=1, initial=FAR))
        return relaxed

    def restrict_to_topics(self, topics: Ints) -> ExactExchanges:
        """Return the exchanges of some topics, which must be in ascending order."""
        return ExactExchanges(self.worth[topics])


@dataclass(frozen=True)
class ListedExchanges:
    """Exchanges one by one: the cell that a unit leaves, the cell that it enters, and the worth.

    A cell is topic * `width` + broker, where `width` is the number of brokers.
    """

    start: Ints
    end: Ints
    worth: npt.NDArray[np.int32]
    width: int

    def relax_distances(self, cell: Distances) -> Distances:
        """Return the distances after one more exchange."""
        relaxed = cell.ravel().copy()
        np.minimum.at(relaxed, self.end, cell.ravel()[self.start] + self.worth)
        return relaxed.reshape(cell.shape)

    def restrict_to_topics(self, topics: Ints) -> ListedExchanges:
        """Return the exchanges of some topics, which must be in ascending order."""
        mine = np.isin(self.start // self.width, topics)
        start, end = (
            np.searchsorted(topics, at[mine] // self.width) * self.width + at[mine] % self.width
            for at in (self.start, self.end)
        )
        return ListedExchanges(start, end, self.worth[mine], self.width)


@dataclass(frozen=True)
class PooledExchanges:
    """The worth of giving a unit to a pool, per topic, broker and pool; and exchanges back to brokers that have data.

    `pool` is the pool that each broker draws from, -1 for none.
    """

    out: npt.NDArray[np.int8]
    pool: Ints
    back: ListedExchanges

    def relax_distances(self, cell: Distances) -> Distances:
        """Return the distances after one more exchange."""
        given = np.where(self.out == _NONE, FAR, cell[:, :, None] + self.out).min(axis=1)
        drawn = np.where(self.pool < 0, FAR, given[:, self.pool])
        relaxed: Distances = np.minimum(drawn, self.back.relax_distances(cell))
        return relaxed

    def restrict_to_topics(self, topics: Ints) -> PooledExchanges:
        """Return the exchanges of some topics, which must be in ascending order."""
        return PooledExchanges(self.out[topics], self.pool, self.back.restrict_to_topics(topics))


Exchanges = ExactExchanges | PooledExchanges | ListedExchanges


def exact_exchanges(outcome: PlacementOutcome) -> ExactExchanges:
    """Return the exchanges between all pairs of brokers between which some partition could shift a replica."""
    topics, brokers = len(outcome.topics), outcome.placed.shape[1]
    worth = np.full((topics, brokers, brokers), _NONE, np.int8)
    row, leaving = np.nonzero(outcome.placed)
    gain = np.where(outcome.held, 0, 1)[row] - np.where(outcome.held[row, leaving], 0, 1)[:, None]
    allowed = ~outcome.placed[row] & _rack_allowed_brokers(outcome, row, leaving)
    # Receive-excluded brokers may take back replicas that they held, and nothing else.
    allowed &= ~outcome.constraints.receive_excluded | outcome.held[row]
    for value in (1, 0, -1):
        at, entering = np.nonzero(allowed & (gain == value))
        worth[outcome.topic[row[at]], leaving[at], entering] = value
    return ExactExchanges(worth)


def pooled_exchanges(outcome: PlacementOutcome) -> PooledExchanges:
    """Return the exchanges by way of pools: one pool per rack, and one for all brokers without a rack."""
    racks, brokers = outcome.constraints.rack_count, len(outcome.rack)
    row, leaving = np.nonzero(outcome.placed)
    enter = _allowed_racks(outcome, row, leaving)
    # The pool does not know what data the receiving broker has: giving costs as if it had none.
    gain = np.where(outcome.held[row, leaving], 1, 0)
    out = np.full((len(outcome.topics), brokers, racks + 1), _NONE, np.int8)
    for value in (1, 0):
        at, entering = np.nonzero(enter & (gain == value)[:, None])
        out[outcome.topic[row[at]], leaving[at], entering] = value
    draws = np.where(outcome.constraints.receive_excluded, -1, _pool_of_brokers(outcome))
    return PooledExchanges(out, draws, _find_return_exchanges(outcome))


def _find_return_exchanges(outcome: PlacementOutcome) -> ListedExchanges:
    """Return the exchanges that give a partition back a replica which the plan takes from it, without copying data."""
    width = len(outcome.rack)
    lost = outcome.held & ~outcome.placed
    changed = np.flatnonzero(lost.any(axis=1))
    index, leaving = np.nonzero(outcome.placed[changed])
    at, entering = np.nonzero(lost[changed][index])
    row, leaving = changed[index[at]], leaving[at]
    allowed = _rack_allowed_brokers(outcome, row, leaving)[np.arange(len(row)), entering]
    row, leaving, entering = row[allowed], leaving[allowed], entering[allowed]
    first = outcome.topic[row] * width
    worth = np.where(outcome.held[row, leaving], 0, -1).astype(np.int32)
    return ListedExchanges(first + leaving, first + entering, worth, width)


def _rack_allowed_brokers(outcome: PlacementOutcome, row: Ints, leaving: Ints) -> Bools:
    """Return a mask of the brokers that could take a unit within the partition's rack bounds."""
    return _allowed_racks(outcome, row, leaving)[:, _pool_of_brokers(outcome)]


def _pool_of_brokers(outcome: PlacementOutcome) -> Ints:
    # Brokers without a rack share the last pool.
    return np.where(outcome.rack < 0, outcome.constraints.rack_count, outcome.rack)


def _allowed_racks(outcome: PlacementOutcome, row: Ints, leaving: Ints) -> Bools:
    """Return a mask of the racks that could take a unit; the last column is for brokers without a rack."""
    on_rack = count_on_racks(outcome)[row]
    low, high = (bound[row] for bound in outcome.rack_bounds)
    always = np.ones((len(row), 1), bool)
    own_pool = _pool_of_brokers(outcome)[leaving]
    index = np.arange(len(row))
    may_leave = np.hstack([on_rack > low, always])[index, own_pool]
    # An exchange within one rack changes no count, and so is always allowed.
    allowed: Bools = may_leave[:, None] & np.hstack([on_rack < high, always])
    allowed[index, own_pool] = True
    return allowed


def count_on_racks(outcome: PlacementOutcome) -> Ints:
    """Return the number of each partition's replicas on each rack after the plan."""
    row, broker = np.nonzero(outcome.placed)
    rack = outcome.rack[broker]
    racked = rack >= 0
    return count_pairs(row[racked], rack[racked], (len(outcome.topic), outcome.constraints.rack_count))
