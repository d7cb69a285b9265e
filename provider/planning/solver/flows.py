"""Minimum-cost flows: a network built from arrays, solved by OR-tools. No other module uses OR-tools."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from ortools.graph.python import min_cost_flow

__all__ = ["Infeasible", "Network"]

Ints = npt.NDArray[np.int64]


class Infeasible(Exception):
    """No flow satisfies the network."""


class Network:
    """A network that grows by blocks of nodes and arcs. The same blocks in the same order give the same flow."""

    def __init__(self) -> None:
        self._nodes = 0
        self._arcs = 0
        self._blocks: list[tuple[Ints, Ints, Ints, Ints]] = []
        self._supplies: list[tuple[Ints, Ints]] = []

    @property
    def arcs(self) -> int:
        """The number of arcs."""
        return self._arcs

    def nodes(self, count: int) -> Ints:
        """Add nodes and return their numbers."""
        first = self._nodes
        self._nodes += count
        return np.arange(first, self._nodes, dtype=np.int64)

    def connect(self, tail: Ints, head: Ints, capacity: npt.ArrayLike, cost: npt.ArrayLike) -> slice:
        """Add arcs; scalars are broadcast to them. Returns the slice of their flows in the solution."""
        tail, head = np.broadcast_arrays(np.asarray(tail, np.int64), np.asarray(head, np.int64))
        amounts = [np.broadcast_to(np.asarray(values, np.int64), tail.shape) for values in (capacity, cost)]
        self._blocks.append((tail.ravel(), head.ravel(), amounts[0].ravel(), amounts[1].ravel()))
        first = self._arcs
        self._arcs += tail.size
        return slice(first, self._arcs)

    def connect_between(self, tail: Ints, head: Ints, bounds: tuple[Ints, Ints], cost: npt.ArrayLike) -> slice:
        """Add arcs that carry at least the first bound and at most the second.

        Their flows are the amounts above the first bound.
        """
        low, high = bounds
        self.supply(tail.ravel(), -np.asarray(low).ravel())
        self.supply(head.ravel(), np.asarray(low).ravel())
        return self.connect(tail, head, np.asarray(high) - np.asarray(low), cost)

    def supply(self, nodes: Ints, amounts: npt.ArrayLike) -> None:
        """Add what enters (positive) or leaves (negative) at nodes; repeated calls add up."""
        nodes = np.atleast_1d(np.asarray(nodes, np.int64))
        self._supplies.append((nodes, np.broadcast_to(np.asarray(amounts, np.int64), nodes.shape)))

    def costs(self) -> Ints:
        """Return the cost of a unit on every arc."""
        return self._all(3)

    def cost_of(self, flow: Ints) -> int:
        """Return the total cost of a flow, without the cost of the arcs' lower bounds."""
        return int(flow @ self.costs())

    def potentials(self, flow: Ints) -> Ints:
        """Return for each node the least cost at which a unit could get there, if `flow` is the cheapest.

        Along every arc with room the potential grows by at most the cost; along every arc in use by at least the cost.
        Raises Infeasible when the flow is not the cheapest: there are no potentials then.
        """
        tail, head, cost = self._all(0), self._all(1), self.costs()
        forth, back = flow < self._all(2), flow > 0
        source, target = np.concatenate([tail[forth], head[back]]), np.concatenate([head[forth], tail[back]])
        worth = np.concatenate([cost[forth], -cost[back]])
        order = np.argsort(target, kind="stable")
        source, target, worth = source[order], target[order], worth[order]
        first = np.flatnonzero(np.diff(target, prepend=-1))
        potential = np.zeros(self._nodes, np.int64)
        for _ in range(self._nodes + 1):
            best = np.minimum.reduceat(potential[source] + worth, first) if len(first) else first
            better = best < potential[target[first]]
            if not better.any():
                return potential
            potential[target[first[better]]] = best[better]
        raise Infeasible

    def _all(self, part: int) -> Ints:
        return np.concatenate([block[part] for block in self._blocks]) if self._blocks else np.zeros(0, np.int64)

    def solve(self) -> Ints:
        """Return the flow on every arc, of least total cost. Raises Infeasible."""
        if self._arcs == 0:
            return np.zeros(0, np.int64)
        solver = min_cost_flow.SimpleMinCostFlow()
        tail, head, capacity, cost = (self._all(part) for part in range(4))
        # OR-tools takes int32 nodes.
        solver.add_arcs_with_capacity_and_unit_cost(tail.astype(np.int32), head.astype(np.int32), capacity, cost)
        balance = np.zeros(self._nodes, np.int64)
        for nodes, amounts in self._supplies:
            np.add.at(balance, nodes, amounts)
        used = np.flatnonzero(balance)
        solver.set_nodes_supplies(used.astype(np.int32), balance[used])
        if solver.solve() != solver.OPTIMAL:
            raise Infeasible
        return np.asarray(solver.flows(np.arange(self._arcs, dtype=np.int32)), dtype=np.int64)
