"""Find minimum-cost flows: build a network from arrays, and solve it by LEMON. No other module uses pylmcf.

LEMON's network simplex is the quickest method for all networks but the largest ones of quotas. For 71,000 nodes and
259,000 arcs it takes 7 s, and cost scaling 1.2 s.

A network is first reduced to a smaller one with the same flows of least cost, because the solver's time grows with the
nodes. More than half of a placement's nodes are useless or in series, such as a topic's cell on a broker that no
partition may use, or only one. With all nodes, it took three times as long for 10,000 partitions on 300 brokers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pylmcf import Graph
from pylmcf.pylmcf_cpp import lmcf_cost_scaling

from kafka_steward.planning.solver.problem import Bools, Ints, positions_within

#: The capacity of an arc without a limit.
UNLIMITED = 1 << 40
MIB = 1 << 20
#: Upper limit of a weight: more mebibytes are counted as this number.
_MAX_MEBIBYTES = 2**31 - 1
#: The most that any path of a network may cost. LEMON adds costs up along paths, and gives arcs of its own a cost of
#: 2^62.
_MAX_PATH_COST = 1 << 61
#: Nodes from which cost scaling is used.
_SCALED_FROM = 30_000
#: Cost scaling multiplies costs by `_SCALE` and by the number of nodes. Its prices are sums of these along paths, at
#: most twice the sum. They must stay below `_LONGEST`: beyond 64 bits, LEMON does not raise an error, but ends the
#: process.
_SCALE, _LONGEST = 16, 1 << 63


class Infeasible(Exception):
    """No flow satisfies the network."""


class Network:
    """A network that grows by blocks of nodes and arcs. The same blocks in the same order give the same flow."""

    def __init__(self) -> None:
        self._nodes = 0
        self._arcs = 0
        self._blocks: list[tuple[Ints, Ints, Ints, Ints]] = []
        self._supplies: list[tuple[Ints, Ints]] = []

    def add_nodes(self, count: int) -> Ints:
        """Add nodes and return their numbers."""
        first = self._nodes
        self._nodes += count
        return np.arange(first, self._nodes, dtype=np.int64)

    def add_arcs(self, tail: Ints, head: Ints, capacity: npt.ArrayLike, cost: npt.ArrayLike) -> slice:
        """Add arcs; all arguments are broadcast. Return the slice of their flows in the solution."""
        tail, head = np.broadcast_arrays(np.asarray(tail, np.int64), np.asarray(head, np.int64))
        amounts = [np.broadcast_to(np.asarray(values, np.int64), tail.shape) for values in (capacity, cost)]
        self._blocks.append((tail.ravel(), head.ravel(), amounts[0].ravel(), amounts[1].ravel()))
        first = self._arcs
        self._arcs += tail.size
        return slice(first, self._arcs)

    def add_bounded_arcs(self, tail: Ints, head: Ints, bounds: tuple[Ints, Ints], cost: npt.ArrayLike) -> slice:
        """Add arcs with a least and a most amount; the flows in the solution are the amounts above the least."""
        # The least amount always flows, and so it is supplied behind the arc and taken away before it.
        low, high = bounds
        tail, head = np.broadcast_arrays(tail, head)
        self.add_supply(tail.ravel(), -low.ravel())
        self.add_supply(head.ravel(), low.ravel())
        return self.add_arcs(tail, head, high - low, cost)

    def add_supply(self, nodes: Ints, amounts: npt.ArrayLike) -> None:
        """Add amounts that enter (positive) or leave (negative) at nodes; repeated calls add up."""
        nodes = np.atleast_1d(np.asarray(nodes, np.int64))
        self._supplies.append((nodes, np.broadcast_to(np.asarray(amounts, np.int64), nodes.shape)))

    def total_cost(self, flow: Ints) -> int:
        """Return the total cost of a flow, without the cost of the arcs' lower bounds."""
        return int(flow @ self._concatenate_blocks(3))

    def solve(self) -> Ints:
        """Return the flow of least total cost on every arc. Raises Infeasible."""
        full, capacity, reduction = self._reduce()
        flow, _ = _solve_with_lemon(reduction.arcs, reduction.supply)
        return _unreversed(reduction.flow(flow), full, capacity)

    def solve_with_prices(self, path_cost: int) -> tuple[Ints, Ints]:
        """Return the flow of least total cost on every arc, and the price of each node. Raises Infeasible.

        The price is the least cost at which a unit could get to the node. Along every arc with room the price grows by
        at most the arc's cost, along every arc in use by at least the cost. Of all such prices that are not above 0,
        these are the largest. `path_cost` is an upper bound of the cost of a path that passes no node twice, where a
        path may also take arcs backwards.
        """
        full, capacity, reduction = self._reduce()
        nodes = len(reduction.supply)
        if nodes >= _SCALED_FROM and _SCALE * (nodes + 1) * 2 * path_cost < _LONGEST:
            reduced, prices = _solve_by_scaling(reduction.arcs, reduction.supply)
        else:
            reduced, graph = _solve_with_lemon(reduction.arcs, reduction.supply)
            prices = np.asarray(graph.potentials(), np.int64)
        carried = reduction.flow(reduced)
        return _unreversed(carried, full, capacity), reduction.prices(prices, carried)

    def _concatenate_blocks(self, part: int) -> Ints:
        return np.concatenate([block[part] for block in self._blocks]) if self._blocks else np.zeros(0, np.int64)

    def _reduce(self) -> tuple[Bools, Ints, Reduction]:
        """Return a mask of the reversed arcs, all capacities, and the smaller network. Raises Infeasible."""
        tail, head, capacity, cost = (self._concatenate_blocks(part) for part in range(4))
        supply = np.zeros(self._nodes, np.int64)
        for nodes, amounts in self._supplies:
            np.add.at(supply, nodes, amounts)
        # LEMON takes no negative costs. An arc of negative cost is filled, and its reverse carries what flows back.
        full = cost < 0
        np.subtract.at(supply, tail[full], capacity[full])
        np.add.at(supply, head[full], capacity[full])
        arcs = Arcs(np.where(full, head, tail), np.where(full, tail, head), capacity, np.abs(cost))
        if supply.sum():
            raise Infeasible
        return full, capacity, Reduction(arcs, supply)


def _unreversed(carried: Ints, full: Bools, capacity: Ints) -> Ints:
    # A reversed arc was filled, and its reverse carries back what is too much.
    return np.where(full, capacity - carried, carried)


def _solve_with_lemon(arcs: Arcs, supply: Ints) -> tuple[Ints, Graph]:
    order = np.lexsort((arcs.head, arcs.tail))
    ordered = arcs.take(order)
    graph = Graph(len(supply), ordered.tail.astype(np.int32), ordered.head.astype(np.int32))
    graph.set_node_supply(supply)
    graph.set_edge_capacities(ordered.capacity)
    graph.set_edge_costs(ordered.cost)
    try:
        graph.solve()
    except RuntimeError as error:
        raise Infeasible from error
    flow = np.empty_like(arcs.capacity)
    flow[order] = graph.result()
    return flow, graph


def _solve_by_scaling(arcs: Arcs, supply: Ints) -> tuple[Ints, Ints]:
    """Return the flow and the largest prices, none above 0. Raises Infeasible."""
    # A capacity above all supply has no effect.
    capacity = np.minimum(arcs.capacity, int(supply[supply > 0].sum()))
    given = supply, arcs.tail, arcs.head, capacity, arcs.cost
    try:
        flow, prices = lmcf_cost_scaling(*map(np.ascontiguousarray, given), return_potentials=True)
    except RuntimeError as error:
        raise Infeasible from error
    return flow, prices


class PlacementNetwork(Network):
    """The network of a placement, as the docstrings of `balance` and `fill_missing` draw it.

    `topic` is the number of each partition's topic, below `topics`. `group` is the rack of each broker, or the number
    that stands for a rack.
    """

    def __init__(self, topic: Ints, topics: int, group: Ints) -> None:
        super().__init__()
        self.topic, self.group = topic, group
        groups, brokers = int(group.max()) + 1, len(group)
        self.part = self.add_nodes(len(topic))
        self.share = self.add_nodes(len(topic) * groups).reshape(-1, groups)
        self.pool = self.add_nodes(topics * groups).reshape(-1, groups)
        self.cell = self.add_nodes(topics * brokers).reshape(-1, brokers)
        self.broker = self.add_nodes(brokers)
        self.sink = self.add_nodes(1)

    def add_replica_arcs(self, row: Ints, broker: Ints, cost: npt.ArrayLike) -> slice:
        """Add arcs for one replica of a row on a broker."""
        return self.add_arcs(self.share[row, self.group[broker]], self.cell[self.topic[row], broker], 1, cost)


def mebibytes(size: Ints) -> Ints:
    """Return sizes in mebibytes, rounded up."""
    return np.minimum(-(-size // MIB), _MAX_MEBIBYTES)


def placement_costs(size: Ints, factor: Ints, nodes: int, *, soft: bool) -> tuple[Ints, int, int]:
    """Return the cost of a new replica of each row, the worth of keeping a leader, and the cost of a step off a bound.

    Fewer moves are worth more than fewer bytes, and these more than leaders that stay. Sizes are in mebibytes, rounded
    up, or in the smallest multiple of a mebibyte whose costs fit. Leaders have no worth if their costs do not fit.
    """
    for lead, unit in [(1, MIB), (0, MIB), *((0, MIB << shift) for shift in range(4, 60, 4))]:
        weight = -(-size // unit)
        move = int((weight * factor).sum()) + 1
        scale = len(size) + 1 if lead else 1
        price = (weight + move) * scale
        far = 8 * int(price.max())
        if (far if soft else int(price.max())) * (nodes + 1) < _MAX_PATH_COST:
            return price, lead, far
    raise AssertionError("costs of one unit always fit")


def deal_in_turns(amounts: Ints, broker: Ints, pool: Ints) -> Ints:
    """Return the broker of every unit, pool by pool, so that neighbours differ.

    Each arc from a pool to a broker carries an amount of units.
    """
    brokers = np.repeat(broker, amounts)
    return np.asarray(brokers[np.lexsort((brokers, positions_within(amounts), np.repeat(pool, amounts)))], np.int64)


@dataclass(frozen=True)
class Arcs:
    """The arcs of a network as four arrays; no cost is negative."""

    tail: Ints
    head: Ints
    capacity: Ints
    cost: Ints

    def take(self, places: Ints) -> Arcs:
        """Return the arcs at `places`."""
        return Arcs(self.tail[places], self.head[places], self.capacity[places], self.cost[places])


class Reduction:
    """A network without its useless nodes, and without one of each two arcs in series.

    - An arc is useless if it has no capacity, or if no supply gets to its tail.
    - Two arcs are in series at a node that has no other arcs and no supply: the second carries what the first carries.

    `arcs` and `supply` are the smaller network, whose nodes have numbers of their own.
    """

    def __init__(self, arcs: Arcs, supply: Ints) -> None:
        self._given, self._nodes = arcs, len(supply)
        used = _find_used(arcs, supply)
        self._first, self._second = self._find_series(used, supply)
        kept = np.setdiff1d(used, self._second, assume_unique=True)
        bridged = np.isin(kept, self._first)
        tail, head, capacity, cost = (part[kept] for part in (arcs.tail, arcs.head, arcs.capacity, arcs.cost))
        # `kept` is ascending, and so are the first arcs: both sides of the assignments have the same order.
        head[bridged] = arcs.head[self._second]
        capacity[bridged] = np.minimum(capacity[bridged], arcs.capacity[self._second])
        cost[bridged] += arcs.cost[self._second]
        self._kept = kept
        self._names, numbers = np.unique(np.concatenate((tail, head, np.flatnonzero(supply))), return_inverse=True)
        self.arcs = Arcs(numbers[: len(kept)], numbers[len(kept) : 2 * len(kept)], capacity, cost)
        self.supply = supply[self._names]

    def _find_series(self, used: Ints, supply: Ints) -> tuple[Ints, Ints]:
        """Return the first and the second arc of each pair; only the beginning of a longer series is bridged."""
        tail, head = self._given.tail, self._given.head
        # With several arcs at a node the last one wins here, but only nodes with a single arc are used.
        into, out = np.full(self._nodes, -1), np.full(self._nodes, -1)
        into[head[used]], out[tail[used]] = used, used
        enter, leave = (np.bincount(ends[used], minlength=self._nodes) for ends in (head, tail))
        passed = (enter == 1) & (leave == 1) & (supply == 0)
        node = np.flatnonzero(passed)
        # A node behind a bridged one stays, and so does a node whose two arcs would become a loop.
        node = node[~passed[tail[into[node]]] & (tail[into[node]] != head[out[node]])]
        first = np.sort(into[node])
        return first, out[head[first]]

    def flow(self, reduced: Ints) -> Ints:
        """Return the flow on every given arc, for a flow on the arcs of the smaller network."""
        flow = np.zeros_like(self._given.capacity)
        flow[self._kept] = reduced
        # Both arcs of a pair carry the flow of the one that stands for them.
        flow[self._second] = flow[self._first]
        return flow

    def prices(self, reduced: Ints, flow: Ints) -> Ints:
        """Return the largest prices of all given nodes, none above 0, from those of the smaller network's nodes."""
        arcs, prices = self._given, np.zeros(self._nodes, np.int64)
        prices[self._names] = reduced
        first, second = arcs.take(self._first), arcs.take(self._second)
        carried = flow[self._first]
        # A bridged node is reached forward along the first arc, or backward along the second one.
        forward = np.where(carried < first.capacity, prices[first.tail] + first.cost, 0)
        backward = np.where(carried > 0, prices[second.head] - second.cost, 0)
        prices[first.head] = np.minimum(0, np.minimum(forward, backward))
        return prices


def _find_used(arcs: Arcs, supply: Ints) -> Ints:
    """Return the arcs with a capacity that some supply gets to."""
    wide = np.flatnonzero(arcs.capacity > 0)
    tail, head = arcs.tail[wide], arcs.head[wide]
    reached, before = supply > 0, 0
    while before < (count := int(np.count_nonzero(reached))):
        before = count
        reached[head[reached[tail]]] = True
    return wide[reached[tail]]
