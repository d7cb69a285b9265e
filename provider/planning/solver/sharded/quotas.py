"""Quotas of replicas per topic and broker, over all shards: a flow over topics and brokers, not over partitions.

::

    topic ─► (topic, rack) ──option──► broker ──[fair share]──► sink
                   ├──► contended cell ──► (topic, broker) ──► broker
                   └──uncontended, new──► (topic, broker)

The flow ignores which partition a replica belongs to, so that its cost is a lower bound of every plan's cost. If the
number of replicas per rack is given for each partition, a plan of that cost exists, because partitions of a topic can
be exchanged for one another in a rack. The cost has two components: moves first, mebibytes second. `summary` explains
contended cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from kafka_steward.planning.solver.flow import UNLIMITED, Network
from kafka_steward.planning.solver.problem import Bools, Ints, numbers_of
from kafka_steward.planning.solver.sharded.summary import NO_OPTION, ShardSummary


@dataclass(frozen=True)
class QuotaProblem:
    """The summaries of all shards as one, and the fewest and most replicas that each broker may hold."""

    summary: ShardSummary
    group: Ints
    low: Ints
    high: Ints

    @cached_property
    def separable(self) -> Bools:
        """A mask of the separable topics, whose partitions all have a given number of replicas in every rack."""
        return np.asarray(self.summary.most.sum(axis=1) == self.summary.wants, bool)

    @property
    def extra_bounds(self) -> tuple[Ints, Ints]:
        """The fewest and most replicas beyond the guaranteed ones that each broker may hold."""
        return self.low - self.summary.guaranteed, self.high - self.summary.guaranteed

    @cached_property
    def move(self) -> int:
        """The cost of a move: more than all mebibytes, and than twice the sum of any path through the network."""
        summary = self.summary
        ways = np.maximum(summary.value, 0).sum(dtype=np.int64) + summary.uncontended_weight.sum()
        return int(summary.wanted[1] + 2 * (ways + summary.contended_weight[summary.contender_of].sum())) + 1


@dataclass(frozen=True)
class SubProblem:
    """The part of all topics in a network: their racks, their open options, and what each rack has taken besides."""

    rows: Bools
    open: Bools
    taken: Ints


@dataclass(frozen=True)
class Quotas:
    """Extra replicas per topic and broker, lower bounds on moves and on mebibytes, and the brokers' prices."""

    extra: npt.NDArray[np.int32]
    moves: int
    weight: int
    prices: Ints

    def beyond_floors(self, summary: ShardSummary) -> Ints:
        """Return replicas per topic and broker beyond the floors: 0 or 1."""
        more = self.extra.astype(np.int64)
        more[summary.cell_topic, summary.cell_broker] -= summary.cell_low
        return more


@dataclass(frozen=True)
class QuotaSolution:
    """A flow: extra replicas per topic and broker, its cost, and the worth of a place by its dual prices.

    `prices` of brokers are in moves, `full_prices` in costs; `worth`, in costs, is that of a place in a topic's rack.
    """

    extra: npt.NDArray[np.int32]
    cost: int
    prices: Ints
    full_prices: Ints
    worth: Ints


class QuotaFlow:
    """The network over a part (all racks of a topic that is not separable), within the brokers' bounds."""

    def __init__(self, problem: QuotaProblem, part: SubProblem, bounds: tuple[Ints, Ints]) -> None:
        self.summary, self.group, self.bounds, self.part = problem.summary, problem.group, bounds, part
        self.topics = np.flatnonzero(part.rows.any(axis=1))
        self.local = numbers_of(self.topics, len(part.rows))
        self.separable = problem.separable
        self.net = Network()
        racks = self.summary.least.shape[1]
        self.rack = self.net.add_nodes(len(self.topics) * racks).reshape(-1, racks)
        self.broker = self.net.add_nodes(len(self.group))
        self.sink = self.net.add_nodes(1)
        self.move = problem.move

    def solve(self) -> QuotaSolution:
        """Return the cheapest flow. Raises Infeasible."""
        self._supplies()
        self._options()
        self._contended()
        self.net.add_bounded_arcs(self.broker, self.sink, self.bounds, 0)
        flow = self.net.solve()
        extra = np.zeros(self.summary.value.shape, np.int32)
        extra[self.option_at] = flow[self.option]
        cells = flow[self.cell_out] + self.summary.cell_low[self.cells]
        extra[self.summary.cell_topic[self.cells], self.summary.cell_broker[self.cells]] = cells
        potential = self.net.dual_prices(flow)
        worth = np.zeros(self.part.rows.shape, np.int64)
        worth[self.topics] = potential[self.sink[0]] - potential[self.rack]
        # A potential is a sum of moves and of mebibytes, which are worth less than half a move. Rounded, it is the
        # potential of the moves alone.
        moves = (potential + self.move // 2) // self.move
        prices, full = (found[self.sink[0]] - found[self.broker] for found in (moves, potential))
        return QuotaSolution(extra, self.net.cost_of(flow), prices, full, worth)

    def _supplies(self) -> None:
        net, wants = self.net, self.summary.wants[self.topics]
        least, most = self.summary.least[self.topics], self.summary.most[self.topics]
        separable = self.separable[self.topics]
        # If only some racks are in the network, the replicas of the others are no part of it.
        here = np.where(self.part.rows[self.topics], most - self.part.taken[self.topics], 0)
        net.add_supply(self.rack[separable].ravel(), here[separable].ravel())
        # A topic needs a node of its own only if its numbers of replicas per rack are not given.
        source = net.add_nodes(int((~separable).sum()))
        net.add_supply(source, wants[~separable])
        net.add_bounded_arcs(source[:, None], self.rack[~separable], (least[~separable], most[~separable]), 0)
        net.add_supply(self.sink, -int(here[separable].sum() + wants[~separable].sum()))

    def _options(self) -> None:
        self.option_at = np.nonzero(self.part.open)
        topic, broker = self.option_at
        cost = option_costs(self.summary.value[self.option_at], self.move)
        tail = self.rack[self.local[topic], self.group[broker]]
        self.option = self.net.add_arcs(tail, self.broker[broker], 1, cost)

    def _contended(self) -> None:
        net, summary = self.net, self.summary
        self.cells = np.flatnonzero(self.part.rows[summary.cell_topic, self.group[summary.cell_broker]])
        number = numbers_of(self.cells, len(summary.cell_topic))
        node = net.add_nodes(len(self.cells))
        topic, broker = self.local[summary.cell_topic[self.cells]], summary.cell_broker[self.cells]
        rack = self.rack[topic, self.group[broker]]
        uncontended = np.flatnonzero(number[summary.uncontended_cell] >= 0)
        at = number[summary.uncontended_cell[uncontended]]
        net.add_arcs(rack[at], node[at], 1, -(self.move + summary.uncontended_weight[uncontended]))
        net.add_arcs(rack, node, UNLIMITED, 0)
        self._contenders(node)
        low, high = summary.cell_low[self.cells], summary.cell_high[self.cells]
        self.cell_out = net.add_bounded_arcs(node, self.broker[broker], (low, high), 0)

    def _contenders(self, node: Ints) -> None:
        net, summary = self.net, self.summary
        chosen = np.flatnonzero(self.part.rows[summary.contended_topic, summary.contended_group])
        number = numbers_of(chosen, len(summary.contended_topic))
        contended = net.add_nodes(len(chosen))
        topic = self.local[summary.contended_topic[chosen]]
        net.add_arcs(self.rack[topic, summary.contended_group[chosen]], contended, summary.contended_most[chosen], 0)
        contender = np.flatnonzero(number[summary.contender_of] >= 0)
        at = number[summary.contender_of[contender]]
        brokers = len(self.group)
        key = self.local[summary.cell_topic[self.cells]] * brokers + summary.cell_broker[self.cells]
        cell = np.searchsorted(key, topic[at] * brokers + summary.contender_broker[contender])
        net.add_arcs(contended[at], node[cell], 1, -(self.move + summary.contended_weight[chosen][at]))


def quotas_by_flow(problem: QuotaProblem) -> Quotas:
    """Return the quotas of all topics, computed by one flow. Raises Infeasible."""
    summary = problem.summary
    everything = SubProblem(np.ones(summary.most.shape, bool), summary.value > NO_OPTION, np.zeros_like(summary.most))
    found = QuotaFlow(problem, everything, problem.extra_bounds).solve()
    return Quotas(found.extra, *lower_bound(summary, problem.move, found.cost), found.prices)


def option_costs(value: npt.NDArray[np.int32], move: int) -> Ints:
    """Return the cost of an option of each value: a gain if there is a replica to keep."""
    return np.where(value >= 0, -(move + value.astype(np.int64)), 0)


def lower_bound(summary: ShardSummary, move: int, cost: int) -> tuple[int, int]:
    """Return the moves and mebibytes of a cost, which counts replicas kept beyond the guaranteed ones as a gain."""
    total = (summary.wanted - summary.kept) @ np.array([move, 1])
    moves, weight = divmod(int(total) + cost, move)
    return moves, weight


@dataclass(frozen=True)
class ShardQuota:
    """One shard's part: replicas per topic and broker, as a bit for one more than the floor, and leaders per broker.

    `leaders` is None if brokers lead in proportion to their replicas, which every shard can ensure on its own.
    """

    beyond_floor: npt.NDArray[np.uint8]
    leaders: Ints | None

    def replicas(self, low: Ints) -> Ints:
        """Return replicas per topic and broker, given the floors."""
        return np.asarray(low + np.unpackbits(self.beyond_floor, count=low.size).reshape(low.shape), np.int64)


def shard_quotas(
    summary: ShardSummary, topics: list[int], quotas: Quotas, leaders: list[Ints] | None
) -> list[ShardQuota]:
    """Return the quotas of the shards; `topics` is the number of topics of each."""
    parts = np.split(quotas.beyond_floors(summary), np.cumsum(topics)[:-1])
    bits = [np.packbits(part.astype(bool)) for part in parts]
    return [ShardQuota(one, None if leaders is None else leaders[number]) for number, one in enumerate(bits)]
