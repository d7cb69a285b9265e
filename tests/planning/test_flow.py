"""The smaller network that is solved has the costs and the prices of the one that was drawn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from pylmcf import Graph

from kafka_steward.planning.solver import flow as flows
from kafka_steward.planning.solver.flow import Arcs, Infeasible, Network, Reduction
from kafka_steward.planning.solver.problem import Ints

#: Nodes from which cost scaling is used, and the largest cost: with the last, cost scaling exceeds 64 bits.
SOLVERS = {"simplex": (10**6, 9), "scaling": (0, 9), "scaling, beyond 64 bits": (0, 1 << 58)}


@st.composite
def networks(draw: st.DrawFn, most: int = 9) -> tuple[Arcs, Ints]:
    """Few arcs per node: many nodes are in series, or useless. Costs of either sign."""
    nodes = draw(st.integers(2, 9))
    ends = st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1)).filter(lambda pair: pair[0] != pair[1])
    rows = draw(st.lists(st.tuples(ends, st.integers(0, 4), st.integers(-3, most)), min_size=1, max_size=14))
    supply = np.zeros(nodes, np.int64)
    for source, target in draw(st.lists(ends, max_size=4)):
        supply[source] += 1
        supply[target] -= 1
    tail, head = np.array([row[0] for row in rows], np.int64).T
    capacity, cost = np.array([row[1:] for row in rows], np.int64).T
    return Arcs(tail, head, capacity, cost), supply


def unreduced(arcs: Arcs, supply: Ints) -> tuple[int, Ints] | None:
    """The least cost and the largest prices, found by LEMON on the whole network; None if there is no flow."""
    order = np.lexsort((arcs.head, arcs.tail))
    graph = Graph(len(supply), arcs.tail[order].astype(np.int32), arcs.head[order].astype(np.int32))
    graph.set_node_supply(supply)
    graph.set_edge_capacities(arcs.capacity[order])
    graph.set_edge_costs(arcs.cost[order])
    try:
        graph.solve()
    except RuntimeError:
        return None
    return int(np.asarray(graph.result()) @ arcs.cost[order]), np.asarray(graph.potentials(), np.int64)


@pytest.mark.parametrize("solver", SOLVERS)
@given(data=st.data())
def test_its_flow_is_one_of_the_drawn_network_and_costs_the_least(solver: str, data: st.DataObject) -> None:
    scaled_from, most = SOLVERS[solver]
    arcs, supply = data.draw(networks(most))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flows, "_SCALED_FROM", scaled_from)
        assert_cheapest(arcs, supply)


def assert_cheapest(arcs: Arcs, supply: Ints) -> None:
    drawn = Network()
    drawn.add_nodes(len(supply))
    path_cost = sum(map(abs, arcs.cost.tolist()))
    drawn.add_arcs(arcs.tail, arcs.head, arcs.capacity, arcs.cost)
    drawn.add_supply(np.arange(len(supply)), supply)
    # An arc with a negative cost, filled and turned round.
    full = arcs.cost < 0
    turned = Arcs(
        np.where(full, arcs.head, arcs.tail), np.where(full, arcs.tail, arcs.head), arcs.capacity, np.abs(arcs.cost)
    )
    left = supply.copy()
    np.subtract.at(left, arcs.tail[full], arcs.capacity[full])
    np.add.at(left, arcs.head[full], arcs.capacity[full])
    expected = unreduced(turned, left)
    if expected is None:
        with pytest.raises(Infeasible):
            drawn.solve_with_prices(path_cost)
        return
    flow, prices = drawn.solve_with_prices(path_cost)
    assert ((flow >= 0) & (flow <= arcs.capacity)).all()
    net = np.zeros(len(supply), np.int64)
    np.add.at(net, arcs.tail, flow)
    np.subtract.at(net, arcs.head, flow)
    assert_array_equal(net, supply)
    assert drawn.total_cost(flow) == expected[0] + int((arcs.capacity * arcs.cost)[full].sum())
    assert_array_equal(prices, expected[1])


def test_costs_that_cost_scaling_would_carry_beyond_64_bits_are_left_to_the_simplex(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dice, nodes = np.random.default_rng(0), 40
    tail = np.repeat(np.arange(nodes - 1), 4)
    head = np.minimum(tail + dice.integers(1, 9, len(tail)), nodes - 1)
    arcs = Arcs(tail, head, dice.integers(1, 4, len(tail)), dice.integers(1 << 54, 1 << 55, len(tail)))
    supply = np.zeros(nodes, np.int64)
    supply[0], supply[-1] = 3, -3
    monkeypatch.setattr(flows, "_SCALED_FROM", 0)
    assert_cheapest(arcs, supply)


def test_what_no_supply_gets_to_is_left_out_and_arcs_in_series_are_one() -> None:
    # 0 → 1 → 2; and 4 → 3 → 2, to which nothing gets; and 0 → 2 without a capacity.
    rows = ([0, 1, 3, 4, 0], [1, 2, 2, 3, 2], [5, 4, 9, 9, 0], [10, 7, 1, 1, 0])
    reduction = Reduction(Arcs(*(np.array(row, np.int64) for row in rows)), np.array([3, 0, -3, 0, 0], np.int64))
    only = reduction.arcs
    assert [part.tolist() for part in (only.tail, only.head, only.capacity, only.cost)] == [[0], [1], [4], [17]]
    assert reduction.supply.tolist() == [3, -3]
    flow = reduction.flow(np.array([3]))
    assert flow.tolist() == [3, 3, 0, 0, 0]
    assert reduction.prices(np.array([-17, 0]), flow).tolist() == [-17, -7, 0, 0, 0]
