"""Find the even placement of a shard with the fewest moves by one flow: rebalance, expand and drain (KAFKA-19048).

::

    partition ─[rack bounds]─► its share of a rack ──keep──► (topic, broker) ─[fair share]─► broker ─[fair share]─► sink
                                        └──new──► pool of (topic, rack) ──┘

Rows and columns are two laminar families, so that the network has an integral solution that meets every floor and
ceiling at once, and the cheapest flow is the cheapest plan. A new replica costs one move, then its mebibytes; keeping
the preferred leader is worth the least. A pool does not record which partition a unit came from, so that the flow can
only be too cheap. If its units can then be dealt to distinct brokers, a plan of this cost exists, and it is optimal. A
topic whose units cannot be dealt is modelled again with an arc for each of its partitions and brokers, which is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from kafka_steward.planning.solver.candidate import CandidatePlan, merge_replicas
from kafka_steward.planning.solver.failover import order_with_leaders
from kafka_steward.planning.solver.fair_shares import (
    fair_bounds,
    limit_excluded_bounds,
    rack_bounds_by_row,
    rack_groups,
    widen_bounds,
)
from kafka_steward.planning.solver.flow import (
    UNLIMITED,
    Infeasible,
    Network,
    PlacementNetwork,
    deal_in_turns,
    placement_costs,
)
from kafka_steward.planning.solver.leaders import (
    LeaderBounds,
    Replicas,
    balanced_leaders,
    leader_bounds,
    leader_candidates,
    order_for_failover,
    uneven_note,
)
from kafka_steward.planning.solver.load import (
    MAX_PAIRS,
    Counts,
    LeaderChoice,
    Load,
    Racks,
    ReplicaChoice,
    even_out,
    only_exchanges,
)
from kafka_steward.planning.solver.problem import (
    Bools,
    Disposition,
    Ints,
    Problem,
    count_pairs,
    equal_pairs,
    find_in_order,
    held_dispositions,
    is_pair_in,
    positions_in,
    rows_that_lag,
)
from kafka_steward.planning.solver.room import Choices, RoomRules, Steps, choose_within_room

#: The note of a proof if fair shares are out of reach.
NEAREST_NOTE = "Not every floor and ceiling can be met at once with these brokers; the plan comes nearest."


@dataclass(frozen=True)
class PlacementProblem:
    """Partitions to place, and the replicas that usable brokers hold.

    `topic`, `factor` (the replicas wanted) and `size` in bytes are per row; `row`, `broker` and `leads` are per held
    replica. `group` is each broker's rack, and one more number for brokers without a rack.
    """

    topic: Ints
    factor: Ints
    size: Ints
    row: Ints
    broker: Ints
    leads: Bools
    group: Ints
    #: A mask of the brokers that keep their replicas and receive none.
    receive_excluded: Bools

    @cached_property
    def replicas_per_group(self) -> Ints:
        """The number of replicas held per row and group."""
        shape = (len(self.topic), int(self.group.max()) + 1)
        return count_pairs(self.row, self.group[self.broker], shape)

    @cached_property
    def replica_cells(self) -> Ints:
        """The number of each held replica's topic and broker."""
        return np.asarray(self.topic[self.row] * len(self.group) + self.broker, np.int64)


@dataclass(frozen=True)
class Bounds:
    """The fewest and most replicas: per row and group (`rack`), per topic and broker (`cell`), and per `broker`."""

    rack: tuple[Ints, Ints]
    cell: tuple[Ints, Ints]
    broker: tuple[Ints, Ints]


@dataclass(frozen=True)
class Placement:
    """Row and broker of every replica, the fewest moves of any placement, and whether all bounds are met."""

    row: Ints
    broker: Ints
    bound: int
    within_bounds: bool
    #: Whether the number of replicas on each broker is given: that of one shard among several.
    of_shard: bool = False


#: A function that returns each row's leader, and the name of the bounds that it could meet.
ChooseLeaders = Callable[[Ints, Replicas, list[LeaderBounds]], tuple[Ints, str]]


def balance_replicas(problem: Problem) -> CandidatePlan:
    """Return new assignments of all rows that make every topic and the whole cluster even, by the fewest moves."""
    if problem.room_rules is not None:
        return _balance_within_room(problem, problem.room_rules)
    return balance_with_placement(problem, min_cost_placement, balanced_leaders)


def _balance_within_room(problem: Problem, rules: RoomRules) -> CandidatePlan:
    """Return new assignments that come nearest to even ones within the room there is, by the fewest moves then.

    The rack rule gives way before a partition lacks a replica.
    """
    setup = BalanceSetup.of(problem)
    if len(setup.planned) == 0:
        return balance_with_placement(problem, min_cost_placement, balanced_leaders)
    to_place, bounds = setup.to_place, setup.bounds
    rows, brokers = len(to_place.topic), len(problem.brokers)
    hold, leads = np.zeros((2, rows, brokers), bool)
    hold[to_place.row, to_place.broker] = True
    leads[to_place.row[to_place.leads], to_place.broker[to_place.leads]] = True
    lacks = np.maximum(to_place.factor - hold.sum(axis=1), 0)
    groups = bounds.rack[0].shape[1]
    choices = Choices(
        size=to_place.size,
        wanted=to_place.factor,
        may=hold | problem.brokers.receivers,
        hold=hold,
        may_stay=lacks > 0,
        missing=lacks,
        gives=np.zeros_like(hold),
        goals=[
            [_steps_off(np.arange(rows)[:, None] * groups + to_place.group, bounds.rack, rows)],
            [
                _steps_off(to_place.topic[:, None] * brokers + np.arange(brokers), bounds.cell, rows),
                _steps_off(np.broadcast_to(np.arange(brokers), hold.shape), bounds.broker, rows),
            ],
        ],
        leads=leads,
    )

    def place() -> Bools:
        placed = min_cost_placement(to_place, bounds)
        on = np.zeros_like(hold)
        on[placed.row, placed.broker] = True
        return on

    chosen = choose_within_room(choices, place, problem.brokers.rooms, rules)
    stays = np.zeros(len(problem.rows), bool)
    stays[setup.planned[chosen.left]] = True
    row, broker = np.nonzero(chosen.on[~chosen.left])
    within = Placement(row, broker, int((chosen.on & ~hold).sum()), within_bounds=False)
    return balance_with_placement(replace(problem, no_room=stays), lambda *_: within, balanced_leaders)


#: The values of `topic_spread` that every plan is compared with.
_COMPARED_SPREADS = ("1", "2", "3", "any")


def compare_spreads(problem: Problem) -> list[dict[str, Any]]:
    """Return for each `topic_spread` what a whole plan would move, and how many topics it would leave less even.

    These are the topics of which a broker would hold more or fewer replicas than at `topic_spread` 1.
    """
    costs = []
    even: Bounds | None = None
    for spread in sorted({*_COMPARED_SPREADS, problem.options.topic_spread}):
        setup = BalanceSetup.of(replace(problem, options=replace(problem.options, topic_spread=spread)))
        to_place, bounds = setup.to_place, setup.bounds
        if len(setup.planned) == 0:
            return []
        even = even or bounds  # the first is that of spread 1
        placed = min_cost_placement(to_place, bounds)
        fresh = placed.row[~is_pair_in(placed.row, placed.broker, to_place.row, to_place.broker)]
        held = count_pairs(to_place.topic[placed.row], placed.broker, bounds.cell[0].shape)
        off = (held < even.cell[0]) | (held > even.cell[1])
        costs.append(
            {
                "topic_spread": spread,
                "replicas_moved": len(fresh),
                "bytes_moved": int(to_place.size[fresh].sum()),
                "topics_less_even": int(off.any(axis=1).sum()),
            }
        )
    return costs


def _steps_off(group: Ints, bounds: tuple[Ints, Ints], most: int) -> Steps:
    """Return steps that gain up to the fewest, cost nothing up to the most, and cost one each beyond."""
    low, high = (bound.ravel() for bound in bounds)
    return Steps(
        group,
        np.column_stack([low, high - low, np.full_like(low, most)]),
        np.broadcast_to([-1, 0, 1], (len(low), 3)),
    )


def balance_with_placement(
    problem: Problem,
    place: Callable[[PlacementProblem, Bounds], Placement],
    choose: ChooseLeaders,
    *,
    shards: Sequence[int] | None = None,
) -> CandidatePlan:
    """Return new assignments of all rows: the leader comes first, then the other replicas in failover order.

    `place` finds the placement, and `choose` the leaders. `shards` are the numbers of topics of the shards that are put
    in order by themselves, because the next plan does so and would otherwise find another order; None if all rows are
    put in order together.
    """
    setup = BalanceSetup.of(problem)
    rows, brokers, to_place = problem.rows, len(problem.brokers), setup.to_place
    if len(setup.planned) == 0:
        return CandidatePlan(rows, setup.disposition, rows.row, rows.broker, bound=0)
    placed, even_load = place(to_place, setup.bounds), None
    if rows.bytes_per_s is not None and len(setup.planned) * brokers <= MAX_PAIRS:
        even_load = _EvenLoad(problem, setup, rows.bytes_per_s)
        placed = even_load.replicas(placed) if problem.room_rules is None else placed
    old, new = (to_place.row * brokers + to_place.broker, placed.row * brokers + placed.broker)
    held = np.isin(new, old)
    # Replicas in place keep their order, and new replicas follow them.
    position = np.full(len(placed.row), brokers)
    position[held] = setup.place[find_in_order(new[held], old)]
    replicas = Replicas(placed.row, placed.broker, position == 0, ~held)
    demoted = problem.brokers.demoted
    candidates = leader_candidates(replicas, demoted)
    choices = leader_bounds(
        to_place.topic, candidates, problem.brokers.leading, alike=problem.brokers.has_equal_capacities
    )
    leader, evenness = choose(to_place.topic, candidates, choices)
    met = next(bounds for bounds in choices if bounds.name == evenness)
    may_lead = replace(placed, row=candidates.row, broker=candidates.broker)
    leader = even_load.leaders(may_lead, leader, met) if even_load else leader
    position[demoted[placed.broker]] += brokers + 1
    position[placed.broker == leader[placed.row]] = -1
    order = np.lexsort((placed.broker, position, placed.row))
    ordered = Replicas(placed.row, placed.broker[order], replicas.leads[order], replicas.added[order])
    broker = _failover_order(problem, to_place.topic, ordered, met, shards)
    notes = []
    if not placed.within_bounds:
        notes.append(NEAREST_NOTE)
    if evenness != "even":
        notes.append(uneven_note(evenness))
    row, broker = merge_replicas(
        rows, (setup.disposition != Disposition.PLANNED)[rows.row], setup.planned[placed.row], broker
    )
    return CandidatePlan(rows, setup.disposition, row, broker, placed.bound, tuple(notes), evenness)


class _EvenLoad:
    """The load of a shard's planned rows: `bytes_per_s` are the rates of all its rows."""

    def __init__(self, problem: Problem, setup: BalanceSetup, bytes_per_s: Ints) -> None:
        self.rows, self.setup, self.rates = problem.rows, setup, bytes_per_s
        brokers, to_place = problem.brokers, setup.to_place
        self.weight = np.where(brokers.usable, np.array(brokers.capacity, float), 0)
        self.held = np.zeros((len(setup.planned), len(brokers)), bool)
        self.held[to_place.row, to_place.broker] = True
        self.leader = np.full(len(setup.planned), -1)
        self.leader[to_place.row[to_place.leads]] = to_place.broker[to_place.leads]

    def replicas(self, placed: Placement) -> Placement:
        """Return a placement that costs the same, and whose fullest broker takes fewer bytes from producers."""
        to_place, bounds = self.setup.to_place, self.setup.bounds
        on = self._table(placed)
        shape = (len(on), bounds.rack[0].shape[1])
        racks = Racks(to_place.group, count_pairs(placed.row, to_place.group[placed.broker], shape), bounds.rack)
        choice = ReplicaChoice(on, self.held, self.leader, to_place.size, racks, to_place.receive_excluded)
        counts = Counts(to_place.topic, bounds.cell, bounds.broker)
        if placed.of_shard or not placed.within_bounds:
            counts = only_exchanges(counts, placed.broker)
        broker = even_out(placed.row, placed.broker, choice, self._load(np.arange(len(self.rows.row))), counts)
        order = np.lexsort((broker, placed.row))
        return replace(placed, row=placed.row[order], broker=broker[order])

    def leaders(self, placed: Placement, leader: Ints, bounds: LeaderBounds) -> Ints:
        """Return leaders of which as few are new, the fullest of whom takes fewer bytes from producers."""
        counts = Counts(self.setup.to_place.topic, bounds.cell, bounds.broker)
        if placed.of_shard:
            counts = only_exchanges(counts, leader)
        choice = LeaderChoice(self._table(placed), self.held, self.leader)
        return even_out(np.arange(len(leader)), leader, choice, self._load(self.rows.row_starts[:-1]), counts)

    def _table(self, placed: Placement) -> Bools:
        on = np.zeros_like(self.held)
        on[placed.row, placed.broker] = True
        return on

    def _load(self, replicas: Ints) -> Load:
        """Return the load, beside what those of the given replicas take that stay as they are."""
        row, broker = self.rows.row[replicas], self.rows.broker[replicas]
        stays = self.setup.disposition[row] != Disposition.PLANNED
        besides = np.bincount(broker[stays], self.rates[row[stays]], len(self.weight))
        return Load(self.rates[self.setup.planned], besides.astype(np.float64), self.weight)


def _failover_order(
    problem: Problem, topic: Ints, replicas: Replicas, bounds: LeaderBounds, shards: Sequence[int] | None
) -> Ints:
    """Return the replicas' brokers in failover order, shard by shard."""
    number = np.repeat(np.arange(len(shards)), shards)[topic] if shards else np.zeros_like(topic)
    starts = np.flatnonzero(np.diff(number, prepend=-1))
    # Leaders that change for an even failover might be those of demoted brokers.
    demoted = problem.brokers.demoted if problem.brokers.demoted.any() else None
    ordered = []
    for start, end in pairwise([*starts.tolist(), len(topic)]):
        at = slice(*np.searchsorted(replicas.row, [start, end]).tolist())
        part = Replicas(replicas.row[at] - start, replicas.broker[at], replicas.leads[at], replicas.added[at])
        if problem.options.prefer == "isr-order" and demoted is None:
            first, last = topic[start], topic[end - 1] + 1
            own = replace(bounds, cell=(bounds.cell[0][first:last], bounds.cell[1][first:last]))
            ordered.append(order_with_leaders(topic[start:end] - first, part, own, exact=shards is None))
        else:
            ordered.append(
                order_for_failover(part.row, part.broker, len(problem.brokers), exact=shards is None, last=demoted)
            )
    return np.concatenate(ordered)


@dataclass(frozen=True)
class BalanceSetup:
    """The inputs of a shard's placement. `place` has the position of each held replica in its row's old order."""

    disposition: Ints
    planned: Ints
    to_place: PlacementProblem
    bounds: Bounds
    place: Ints

    @classmethod
    def of(cls, problem: Problem) -> BalanceSetup:
        """Build the inputs from a problem. Partitions that are to have more replicas than there are brokers stay."""
        rows, brokers = problem.rows, problem.brokers
        usable = brokers.usable
        disposition = _balance_dispositions(problem, usable)
        planned = np.flatnonzero(disposition == Disposition.PLANNED)
        index = positions_in(planned, len(rows))
        mine = (index[rows.row] >= 0) & usable[rows.broker]
        to_place = PlacementProblem(
            # Topics are numbered anew, because topics without a planned row need no nodes.
            topic=np.unique(rows.topic[planned], return_inverse=True)[1],
            factor=rows.target_rf[planned],
            size=rows.size[planned],
            row=index[rows.row[mine]],
            broker=rows.broker[mine],
            leads=rows.replica_positions[mine] == 0,
            group=rack_groups(brokers),
            receive_excluded=usable & ~brokers.receivers,
        )
        return cls(disposition, planned, to_place, _placement_bounds(problem, to_place), rows.replica_positions[mine])


def _balance_dispositions(problem: Problem, usable: Bools) -> Ints:
    rows, brokers = problem.rows, problem.brokers
    disposition = held_dispositions(problem)
    disposition[(disposition == Disposition.UNTOUCHED) & rows_that_lag(problem)] = Disposition.OUT_OF_SYNC
    disposition[disposition == Disposition.UNTOUCHED] = Disposition.PLANNED
    if problem.no_room is not None:
        disposition[problem.no_room] = Disposition.NO_ROOM
    room = np.full(len(rows), int(brokers.receivers.sum()))
    np.add.at(room, rows.row, (usable & ~brokers.receivers)[rows.broker])
    disposition[(disposition == Disposition.PLANNED) & (rows.target_rf > room)] = Disposition.TOO_FEW_BROKERS
    # Excluded partitions were not requested: their state is no shortcoming of the plan.
    disposition[disposition == Disposition.EXCLUDED] = Disposition.UNTOUCHED
    return disposition


def _placement_bounds(problem: Problem, to_place: PlacementProblem) -> Bounds:
    brokers, usable = problem.brokers, problem.brokers.usable
    topics = int(to_place.topic.max(initial=-1)) + 1
    # Without any partition there is still a table, with no rows.
    factors = np.unique(to_place.factor) if topics else np.ones(1, np.int64)
    counts = count_pairs(to_place.topic, np.searchsorted(factors, to_place.factor), (topics, len(factors)))
    low, high, least, most = fair_bounds(brokers, usable, factors.tolist(), counts)
    low, high = widen_bounds((low, high), problem.options.topic_slack, counts.sum(axis=1))
    holds = count_pairs(to_place.topic[to_place.row], to_place.broker, low.shape)
    # Excluded brokers have a share like any broker, but cannot receive what they lack. The other brokers then come as
    # near to their shares as possible.
    excluded = to_place.receive_excluded
    return Bounds(
        rack=_rack_bounds(problem, to_place, usable),
        cell=limit_excluded_bounds((low, high), holds, excluded),
        broker=limit_excluded_bounds((least, most), holds.sum(axis=0), excluded),
    )


def _rack_bounds(problem: Problem, to_place: PlacementProblem, usable: Bools) -> tuple[Ints, Ints]:
    """Return bounds per row and group; a receive-excluded broker counts only for the rows that it holds."""
    excluded = np.flatnonzero(to_place.receive_excluded)
    holds = np.zeros((len(to_place.factor), len(excluded)), bool)
    column, at = np.nonzero(excluded[:, None] == to_place.broker)
    holds[to_place.row[at], column] = True
    # Most rows are on no excluded broker: they are of kind 0, without the cost of sorting them.
    which, some = np.zeros(len(holds), np.int64), np.flatnonzero(holds.any(axis=1))
    kinds, number = np.unique(holds[some], axis=0, return_inverse=True)
    which[some] = number.ravel() + 1
    low, high = np.zeros((2, len(to_place.factor), int(to_place.group.max()) + 1), np.int64)
    for kind, held in enumerate([np.zeros(len(excluded), bool), *kinds]):
        reach = usable.copy()
        reach[excluded] = held
        mine = which == kind
        low[mine], high[mine] = rack_bounds_by_row(
            problem.brokers, to_place.factor[mine], to_place.replicas_per_group[mine], reach
        )
    return low, high


def min_cost_placement(problem: PlacementProblem, bounds: Bounds) -> Placement:
    """Return the placement with the fewest moves, then the fewest bytes, within the bounds or nearest to them."""
    try:
        return place_within_bounds(problem, bounds)
    except Infeasible:
        return place_within_bounds(problem, bounds, soft=True)


def place_within_bounds(problem: PlacementProblem, bounds: Bounds, *, soft: bool = False) -> Placement:
    """Return the placement of the fewest moves within the bounds, or if `soft`, nearest to them. Raises Infeasible."""
    dense = np.zeros(int(problem.topic.max()) + 1, bool)
    # This ends: each round makes at least one more topic dense, and the units of a dense topic need no dealing.
    for _ in range(len(dense) + 1):
        row, broker, bound, undealt = _PlacementFlow(problem, bounds, dense, soft=soft).solve()
        if len(undealt) == 0:
            order = np.lexsort((broker, row))
            return Placement(row[order], broker[order], bound, within_bounds=not soft)
        dense[undealt] = True
    raise Infeasible


class _PlacementFlow:
    """The network of one placement. `dense` marks the topics that are modelled without pools."""

    def __init__(self, problem: PlacementProblem, bounds: Bounds, dense: Bools, *, soft: bool) -> None:
        self.problem, self.bounds, self.dense, self.soft = problem, bounds, dense, soft
        self.net = PlacementNetwork(problem.topic, len(dense), problem.group)
        last = int(self.net.sink[0])
        self.price, self.lead, self.far = placement_costs(problem.size, problem.factor, last, soft=soft)

    def solve(self) -> tuple[Ints, Ints, int, Ints]:
        """Return rows, brokers, the bound, and the topics whose pooled units cannot be dealt to distinct brokers."""
        self._add_arcs()
        flow = self.net.solve()
        kept = flow[self.keep] > 0
        fresh = flow[self.fresh] > 0
        units = flow[self.to_pool]
        bound = int(fresh.sum() + units.sum())
        held = (self.problem.row[kept], self.problem.broker[kept])
        row, broker, undealt = self._deal_pooled_units(units, flow[self.from_pool], held)
        rows = np.concatenate([held[0], self.fresh_row[fresh], row])
        return rows, np.concatenate([held[1], self.fresh_broker[fresh], broker]), bound, undealt

    def _add_arcs(self) -> None:
        net, problem = self.net, self.problem
        net.add_supply(net.part, problem.factor)
        net.add_supply(net.sink, -int(problem.factor.sum()))
        low, high = self.bounds.rack
        row, group = np.nonzero(high)
        net.add_bounded_arcs(net.part[row], net.share[row, group], (low[row, group], high[row, group]), 0)
        self.keep = net.add_replica_arcs(problem.row, problem.broker, np.where(problem.leads, -self.lead, 0))
        pooled = ~self.dense[problem.topic[row]]
        row, group = row[pooled], group[pooled]
        #: The row and the pool of each arc into a pool.
        self.pool_row, self.into_pool = row, net.pool[problem.topic[row], group]
        self.to_pool = net.add_arcs(net.share[row, group], self.into_pool, high[row, group], self.price[row])
        self._add_new_replica_arcs()
        self._add_level_arcs()

    def _add_new_replica_arcs(self) -> None:
        net, problem, most = self.net, self.problem, self.bounds.cell[1]
        topic, broker = np.nonzero((most > 0) & ~self.dense[:, None] & ~problem.receive_excluded)
        #: The pool and the broker of each arc that leaves a pool.
        self.pool_of, self.from_broker = net.pool[topic, problem.group[broker]], broker
        capacity = UNLIMITED if self.soft else most[topic, broker]
        self.from_pool = net.add_arcs(self.pool_of, net.cell[topic, broker], capacity, 0)
        rows = np.flatnonzero(self.dense[problem.topic])
        open_cells = (
            (most[problem.topic[rows]] > 0)
            & ~problem.receive_excluded
            & (self.bounds.rack[1][rows][:, problem.group] > 0)
        )
        place = positions_in(rows, len(problem.topic))
        mine = place[problem.row] >= 0
        # A replica that is in place has an arc of its own, without the price of a move.
        open_cells[place[problem.row[mine]], problem.broker[mine]] = False
        index, self.fresh_broker = np.nonzero(open_cells)
        self.fresh_row = rows[index]
        self.fresh = net.add_replica_arcs(self.fresh_row, self.fresh_broker, self.price[self.fresh_row])

    def _add_level_arcs(self) -> None:
        net = self.net
        topic, broker = np.nonzero(self.bounds.cell[1] > 0)
        low, high = (bound[topic, broker] for bound in self.bounds.cell)
        for tail, head, pair in (
            (net.cell[topic, broker], net.broker[broker], (low, high)),
            (net.broker, net.sink, self.bounds.broker),
        ):
            if not self.soft:
                net.add_bounded_arcs(tail, head, pair, 0)
                continue
            # Up to the floor each unit gains, and above the ceiling it costs: more than any moves that avoid it.
            net.add_arcs(tail, head, pair[0], -self.far)
            net.add_arcs(tail, head, pair[1] - pair[0], 0)
            net.add_arcs(tail, head, UNLIMITED, self.far)

    def _deal_pooled_units(self, units: Ints, amounts: Ints, held: tuple[Ints, Ints]) -> tuple[Ints, Ints, Ints]:
        """Deal pooled units to distinct brokers. Return rows, brokers, and the topics for which this is impossible."""
        used = units > 0
        row, units, pool = self.pool_row[used], units[used], self.into_pool[used]
        # A pool is simple if no partition may take more than one unit from it.
        most = np.zeros(int(self.net.sink[0]), np.int64)
        bounded, group = np.nonzero(self.bounds.rack[1])
        np.maximum.at(most, self.net.pool[self.problem.topic[bounded], group], self.bounds.rack[1][bounded, group])
        simple_pools = most <= 1
        simple = simple_pools[pool]
        easy_row = row[simple][np.lexsort((row[simple], pool[simple]))]
        # Units of a simple pool may get any of its brokers; neighbours get different ones.
        easy = np.where(simple_pools[self.pool_of], amounts, 0)
        easy_broker = deal_in_turns(easy, self.from_broker, self.pool_of)
        if simple.all():
            return easy_row, easy_broker, np.zeros(0, np.int64)
        giving = np.flatnonzero((amounts > 0) & ~simple_pools[self.pool_of])
        wants = (row[~simple], pool[~simple], units[~simple])
        hard_row, hard_broker, undealt = self._deal_by_flow(wants, giving, amounts[giving], held)
        return np.concatenate([easy_row, hard_row]), np.concatenate([easy_broker, hard_broker]), undealt

    def _deal_by_flow(
        self, wants: tuple[Ints, Ints, Ints], giving: Ints, amounts: Ints, held: tuple[Ints, Ints]
    ) -> tuple[Ints, Ints, Ints]:
        row, pool, units = wants
        # A unit that no broker can take goes to the sink at a cost: its topic cannot be dealt.
        net = Network()
        asks, gives, sink = net.add_nodes(len(row)), net.add_nodes(len(giving)), net.add_nodes(1)
        ask, give = equal_pairs(pool, self.pool_of[giving])
        brokers = len(self.problem.group)
        distinct = ~np.isin(row[ask] * brokers + self.from_broker[giving[give]], held[0] * brokers + held[1])
        ask, give = ask[distinct], give[distinct]
        dealt = net.add_arcs(asks[ask], gives[give], 1, 0)
        left = net.add_arcs(asks, sink, UNLIMITED, 1)
        net.add_arcs(gives, sink, amounts, 0)
        net.add_supply(asks, units)
        net.add_supply(sink, -int(units.sum()))
        flow = net.solve()
        hit = flow[dealt] > 0
        undealt = np.unique(self.problem.topic[row[flow[left] > 0]])
        return row[ask[hit]], self.from_broker[giving[give[hit]]], undealt
