"""Who leads: the preferred leader stays where its broker lives; others are chosen so that leadership ends up even."""

from __future__ import annotations

import numpy as np

from kafka_steward.planning.arrays import Bools, Ints
from kafka_steward.planning.flows import Network

__all__ = ["choose_leaders"]


def choose_leaders(row: Ints, broker: Ints, second_choice: Bools, load: Ints) -> tuple[Ints, Ints]:
    """One of the candidates (row, broker) for each row, so that `load` plus the choices is as even as can be.

    A candidate marked as second choice (out of sync, or about to leave) is taken only where a row has no other.
    Returns the rows in order, and the broker chosen for each.
    """
    rows, index = np.unique(row, return_inverse=True)
    if len(rows) == 0:
        return rows, rows
    net = Network()
    parts, brokers, sink = net.nodes(len(rows)), net.nodes(len(load)), net.nodes(1)
    used, most = np.unique(broker, return_counts=True)
    # Unit arcs of growing cost: the cheapest flow is the one of least sum of squares.
    level = np.concatenate([load[one] + np.arange(count) for one, count in zip(used, most, strict=True)])
    level -= level.min()
    arcs = net.connect(parts[index], brokers[broker], 1, np.where(second_choice, int(level.max()) + 1, 0))
    net.connect(brokers[np.repeat(used, most)], sink, 1, level)
    net.supply(parts, 1)
    net.supply(sink, -len(rows))
    chosen = net.solve()[arcs] > 0
    order = np.argsort(index[chosen], kind="stable")
    return rows, broker[chosen][order]
