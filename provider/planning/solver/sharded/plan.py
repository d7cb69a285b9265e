"""Make an even plan of many shards: turn shard summaries into shard quotas, and place each shard within its quota.

A quota gives the number of replicas of every topic on every broker. The shard only has to choose the replicas that
stay. If each partition has one place in a rack, the choice is simple: the heaviest of a topic's replicas on a broker
stay. Replicas that do not stay, and lost ones, take the places left in the rack in turns. Where partitions have two
replicas in the rack, a small flow decides which replicas stay on their brokers. Racks where partitions have several
places go through the flow of `balance`, one rack at a time. So do whole partitions whose numbers of replicas per rack
are not given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from kafka_steward.assignment import EVEN_OPERATIONS, Operation
from kafka_steward.planning.options import Options
from kafka_steward.planning.solver.balance import (
    NEAREST_NOTE,
    Bounds,
    Placement,
    PlacementProblem,
    balance_with_placement,
    min_cost_placement,
    place_within_bounds,
)
from kafka_steward.planning.solver.candidate import CandidatePlan, MovedRows, budget_note
from kafka_steward.planning.solver.fair_shares import broker_bounds, rack_groups
from kafka_steward.planning.solver.flow import Infeasible, Network, deal_in_turns, mebibytes, placement_costs
from kafka_steward.planning.solver.leaders import balanced_leaders, has_level_leaders
from kafka_steward.planning.solver.problem import Bools, Brokers, Ints, Problem, positions_in, positions_within, sum_by
from kafka_steward.planning.solver.proof import Measures
from kafka_steward.planning.solver.sharded.leaders import leader_quotas, leaders_for_targets
from kafka_steward.planning.solver.sharded.nearest import nearest_quotas
from kafka_steward.planning.solver.sharded.quotas import (
    QuotaProblem,
    Quotas,
    ShardQuota,
    quotas_by_pricing,
    shard_quotas,
)
from kafka_steward.planning.solver.sharded.summary import ShardSummary

RowsAndBrokers = tuple[Ints, Ints]

#: Topics times brokers, up to which leaders are planned for all shards together.
MAX_LEADER_CELLS = 2_500_000
#: Partitions up to which a gap is closed by one flow over all of them, and disks are balanced by one shard.
MAX_UNSHARDED_PARTITIONS = 150_000


def is_shardable(operation: Operation, options: Options, partitions: int) -> bool:
    """Return True if an even plan may be put together from shards.

    To balance disks, one shard moves fewer bytes than several, so that it is used up to a number of partitions, and for
    the load of brokers always.
    """
    many = not options.balances_bytes or (options.balance == "bytes" and partitions > MAX_UNSHARDED_PARTITIONS)
    return operation in EVEN_OPERATIONS and many


@dataclass(frozen=True)
class Movement:
    """The replicas and mebibytes that a plan moves, the partitions, and each broker's bytes and leaders after it.

    `leader_evenness` has the name of the bounds that the leaders of each shard meet.
    """

    replicas: int
    weight: int
    partitions: int
    load: Ints
    leads: Ints
    leader_evenness: list[str]

    @classmethod
    def of_measures(cls, measures: Measures) -> Movement:
        """Return the movement of a plan that was measured."""
        counts = measures.counts
        return cls(
            counts["replicas_moved"],
            counts["weight_moved"],
            counts["partitions"],
            measures.after.bytes,
            measures.leaders_planned,
            measures.leader_evenness,
        )

    @classmethod
    def of_rows(cls, moved: MovedRows) -> Movement:
        """Return the movement of a complete plan that a budget chooses from."""
        weight = int((moved.cost * mebibytes(moved.size)).sum())
        partitions = sum(moved.row_counts)
        return cls(int(moved.cost.sum()), weight, partitions, moved.load, moved.leads, moved.leader_evenness)


@dataclass(frozen=True)
class MergedShards:
    """All shards, merged into one: the number of topics that each plans, and the quota of all, if there is one."""

    topics: tuple[int, ...]
    quota: ShardQuota | None = None


@dataclass(frozen=True)
class ShardedQuotas:
    """The shards' quotas, and the least moves and mebibytes that any plan needs.

    `merged` is the quota of all, to choose their leaders at once; None where the shards always have even leaders.
    """

    shard_quotas: Sequence[ShardQuota]
    quotas: Quotas
    leading: Bools
    merged: MergedShards | None

    def meets_bound(self, movement: Movement) -> bool:
        """Return True if the shards together move as little as the bound says: the plan is proven minimal."""
        return (movement.replicas, movement.weight) == (self.quotas.moves, self.quotas.weight)

    def needs_one_flow(self, movement: Movement) -> bool:
        """Return True if a gap has to be closed by one flow, and the partitions are not too many for one.

        The gap is in moves, or in leaders if no merged quota is there to choose the leaders of all shards at once.
        """
        missed = self.merged is None and self._misses_level_leaders(movement)
        return (missed or not self.meets_bound(movement)) and movement.partitions <= MAX_UNSHARDED_PARTITIONS

    def needs_leaders_of_all(self, movement: Movement) -> bool:
        """Return True if leaders, unlike replicas, are to be chosen for all shards at once.

        With brokers that receive nothing, the brokers of some topics may not be able to lead them evenly. Which leaders
        are then the most even cannot be decided in one shard.
        """
        missed = self._misses_level_leaders(movement) or set(movement.leader_evenness) > {"even"}
        return self.merged is not None and missed and movement.partitions <= MAX_UNSHARDED_PARTITIONS

    def _misses_level_leaders(self, movement: Movement) -> bool:
        return self.shard_quotas[0].leaders is not None and not has_level_leaders(movement.leads, self.leading)

    def with_bound(self, measures: Measures, complete: Movement) -> Measures:
        """Return the measures with the cluster-wide bound, and the prices that prove it.

        `complete` is the movement of the plan without a budget, of which `measures` may be a part.
        """
        left = complete.replicas - measures.counts["replicas_moved"]
        # The prices prove only plans that reach the bound.
        prices = self.quotas.prices.tolist() if measures.counts["replicas_moved"] == self.quotas.moves else []
        notes = [*measures.notes, *([NEAREST_NOTE] if self.quotas.steps else [])]
        if left:
            notes.append(budget_note(left, exact=self.meets_bound(complete)))
        if not self.meets_bound(complete):
            more = complete.weight - self.quotas.weight
            notes.append(
                f"Slices were planned apart: at least {self.quotas.moves} replicas must move, and of plans that move "
                f"as few this one may be {max(more, 0)} MiB above the least."
            )
        counts = {**measures.counts, "lower_bound": max(self.quotas.moves - left, 0)}
        # A plan that leaves moves to later plans promises no even leaders.
        evenness = [] if left else measures.leader_evenness
        return replace(measures, counts=counts, prices=prices, notes=notes, leader_evenness=evenness)


def sharded_plan(brokers: Brokers, parts: Sequence[ShardSummary]) -> ShardedQuotas | None:
    """Return the quotas of shards from their summaries; None if none meet all floors and ceilings.

    With brokers that receive nothing, the floors and ceilings may be out of reach: the quotas are then the nearest.
    """
    summary = ShardSummary.combine(parts)
    factors, which = np.unique(summary.factor, return_inverse=True)
    counts = sum_by(summary.factor_count, which, len(factors))
    if len(factors) == 0:
        return None
    low, high = broker_bounds(brokers, factors, counts, summary.held)
    soft = bool((brokers.usable & ~brokers.receivers).any())
    problem = QuotaProblem(summary, rack_groups(brokers), low, high, brokers.receivers)
    try:
        quotas = nearest_quotas(problem) if soft else quotas_by_pricing(problem)
    except Infeasible:
        return None
    topics = [part.topics for part in parts]
    # If every broker is excluded, no broker can take over leaders.
    leads = brokers.has_equal_capacities and bool(brokers.receivers.any())
    leaders = leader_quotas(summary, topics, quotas, brokers.leading, brokers.demoted) if leads else None
    # A proof has prices of usable brokers only.
    quotas = replace(quotas, prices=quotas.prices[brokers.usable])
    merged = None
    if soft and leaders is not None:
        merged = MergedShards(tuple(topics), shard_quotas(summary, [summary.topics], quotas, None)[0])
    return ShardedQuotas(shard_quotas(summary, topics, quotas, leaders), quotas, brokers.leading, merged)


def balance_merged_shards(problem: Problem, merged: MergedShards) -> CandidatePlan:
    """Return the new assignments of all shards, replicas within the quota if there is one: leaders by one flow."""
    place = min_cost_placement if merged.quota is None else partial(_place_shard, quota=merged.quota)
    return balance_with_placement(problem, place, balanced_leaders, shards=merged.topics)


def _place_shard(problem: PlacementProblem, bounds: Bounds, quota: ShardQuota) -> Placement:
    row, broker = place_within_quota(problem, bounds.rack, quota.replicas(bounds.cell[0]))
    return Placement(row, broker, 0, within_bounds=True, of_shard=True)


def balance_shard(problem: Problem, quota: ShardQuota) -> CandidatePlan:
    """Return the new assignments of one shard of an even plan. Raises Infeasible if its quota cannot be met."""
    place = partial(_place_shard, quota=quota)
    if quota.leaders is None:
        return balance_with_placement(problem, place, balanced_leaders)
    topics = len(problem.rows.topics)
    choose = partial(leaders_for_targets, targets=quota.leaders)
    return balance_with_placement(problem, place, choose, shards=(topics,))


def place_within_quota(problem: PlacementProblem, rack: tuple[Ints, Ints], quota: Ints) -> RowsAndBrokers:
    """Return row and broker of every replica, sorted by both.

    The placement has the fewest moves, then the fewest mebibytes. Raises Infeasible.
    """
    given = rack[1].sum(axis=1) == problem.factor
    # A topic is separable if the number of replicas per rack is given for each of its partitions.
    separable = np.bincount(problem.topic[~given], minlength=len(quota)) == 0
    pairs = _PartitionRackPairs(problem, np.flatnonzero(separable[problem.topic]), rack[1], quota)
    parts = [pairs.place_single(), pairs.place_several(), _place_inseparable_topics(problem, rack, quota, ~separable)]
    row, broker = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.lexsort((broker, row))
    return row[order], broker[order]


def _place_inseparable_topics(
    problem: PlacementProblem, rack: tuple[Ints, Ints], quota: Ints, chosen: Bools
) -> RowsAndBrokers:
    rows = np.flatnonzero(chosen[problem.topic])
    if len(rows) == 0:
        return rows, rows
    topics, topic = np.unique(problem.topic[rows], return_inverse=True)
    entry = positions_in(rows, len(problem.topic))[problem.row]
    bounds = (rack[0][rows], rack[1][rows])
    return _place_by_flow(problem, rows, entry, (topic, problem.factor[rows]), (bounds, quota[topics]))


def _place_by_flow(
    problem: PlacementProblem,
    rows: Ints,
    entry: Ints,
    wanted: tuple[Ints, Ints],
    bounds: tuple[tuple[Ints, Ints], Ints],
) -> RowsAndBrokers:
    """Place entries of the given rows by the flow of `balance`, within bounds per rack and a number per cell.

    `wanted` has each entry's topic and number of replicas; `entry` has the entry of each held replica, -1 for none.
    """
    mine = entry >= 0
    part = PlacementProblem(
        *wanted,
        problem.size[rows],
        entry[mine],
        problem.broker[mine],
        problem.leads[mine],
        problem.group,
        problem.receive_excluded,
    )
    rack, cell = bounds
    # The numbers per cell are given, and so are those per broker: floors and ceilings are equal.
    total = cell.sum(axis=0)
    placed = place_within_bounds(part, Bounds(rack, (cell, cell), (total, total)))
    return rows[placed.row], placed.broker


class _PartitionRackPairs:
    """The places of partitions in racks: arrays have one entry per pair of a partition and a rack."""

    def __init__(self, problem: PlacementProblem, rows: Ints, high: Ints, quota: Ints) -> None:
        self.problem, self.quota, self.groups = problem, quota, high.shape[1]
        at, self.group = np.nonzero(high[rows])
        self.row = rows[at]
        self.places = high[self.row, self.group]
        self.pool = problem.topic[self.row] * self.groups + self.group
        number = np.full(high.shape, -1)
        number[self.row, self.group] = np.arange(len(self.row))
        #: The pair of each replica that is held, -1 for none.
        self.pair = number[problem.row, problem.group[problem.broker]]
        self.has_several = np.bincount(self.pool[self.places > 1], minlength=len(quota) * self.groups) > 0
        self.chooses = problem.replicas_per_group[self.row, self.group] > self.places

    def place_single(self) -> RowsAndBrokers:
        """Place the pairs of the racks where each partition has one place."""
        mine = ~self.has_several[self.pool]
        held = np.flatnonzero(self.pair >= 0)
        replica = held[mine[self.pair[held]]]
        cell = self.problem.replica_cells[replica]
        # Where a partition has to choose between two replicas, the choices on their brokers depend on each other.
        contended = np.zeros(self.quota.size, bool)
        contended[cell[self.chooses[self.pair[replica]]]] = True
        plain, rival = replica[~contended[cell]], replica[contended[cell]]
        keeps = np.concatenate([plain[self._heaviest_replicas(plain)], rival[self._most_compatible_replicas(rival)]])
        mine[self.pair[keeps]] = False
        pairs = np.flatnonzero(mine)
        # Pairs and places are both in the order of the pools, so that they fit one to one.
        pairs = pairs[np.argsort(self.pool[pairs], kind="stable")]
        # No row gets a replica back that it gave up: a broker has places left only if all replicas that it held stay.
        rows = np.concatenate([self.problem.row[keeps], self.row[pairs]])
        return rows, np.concatenate([self.problem.broker[keeps], self._places_left(keeps)])

    def _most_compatible_replicas(self, replica: Ints) -> Bools:
        """Return a mask of the replicas that stay: the most that can, where pairs have to choose one of two."""
        if len(replica) == 0:
            return np.zeros(0, bool)
        problem, pair = self.problem, self.pair[replica]
        cells, at = np.unique(problem.replica_cells[replica], return_inverse=True)
        chooses = self.chooses[pair]
        pairs, which = np.unique(pair[chooses], return_inverse=True)
        net = Network()
        source, sink, pair_node = net.add_nodes(1), net.add_nodes(1), net.add_nodes(len(pairs))
        cell_node = net.add_nodes(len(cells))
        tail = np.full(len(replica), source[0])
        tail[chooses] = pair_node[which]
        one_each = np.ones(len(replica), np.int64)
        price, lead, _ = placement_costs(problem.size[problem.row[replica]], one_each, int(cell_node[-1]), soft=False)
        stays = net.add_arcs(tail, cell_node[at], 1, -(price + lead * problem.leads[replica]))
        net.add_arcs(source, pair_node, 1, 0)
        most = self.quota.ravel()[cells]
        # An excluded broker must keep its quota, because it cannot receive.
        least = np.where(problem.receive_excluded[cells % len(problem.group)], most, 0)
        net.add_bounded_arcs(cell_node, sink, (least, most), 0)
        net.add_arcs(source, sink, len(replica), 0)
        net.add_supply(source, len(replica))
        net.add_supply(sink, -len(replica))
        return np.asarray(net.solve()[stays] > 0, bool)

    def _heaviest_replicas(self, replica: Ints) -> Bools:
        """Return a mask of the heaviest replicas of each topic on each broker; among equals, leaders come first."""
        problem, cell = self.problem, self.problem.replica_cells[replica]
        order = np.lexsort((~problem.leads[replica], -mebibytes(problem.size)[problem.row[replica]], cell))
        rank = np.empty(len(replica), np.int64)
        rank[order] = positions_within(np.bincount(cell, minlength=self.quota.size))
        return np.asarray(rank < self.quota.ravel()[cell], bool)

    def _places_left(self, keeps: Ints) -> Ints:
        """Return the brokers of the places that no replica keeps, in turns, rack by rack of each topic."""
        left = self.quota - np.bincount(self.problem.replica_cells[keeps], minlength=self.quota.size).reshape(
            self.quota.shape
        )
        pool = np.arange(len(self.quota))[:, None] * self.groups + self.problem.group
        used = np.zeros(len(self.has_several), bool)
        used[self.pool] = True
        topic, broker = np.nonzero(np.where((used & ~self.has_several)[pool], left, 0))
        if self.problem.receive_excluded[broker].any():
            raise Infeasible
        return deal_in_turns(left[topic, broker], broker, pool[topic, broker])

    def place_several(self) -> RowsAndBrokers:
        """Place the pairs of all other racks by the flow, in which each rack of a topic is a topic of its own."""
        pairs = np.flatnonzero(self.has_several[self.pool])
        if len(pairs) == 0:
            return pairs, pairs
        pools, topic = np.unique(self.pool[pairs], return_inverse=True)
        entry = np.where(self.pair >= 0, positions_in(pairs, len(self.pool))[self.pair], -1)
        rack = np.zeros((len(pairs), self.groups), np.int64)
        rack[np.arange(len(pairs)), self.group[pairs]] = self.places[pairs]
        inside = (pools % self.groups)[:, None] == self.problem.group
        cell = np.where(inside, self.quota[pools // self.groups], 0)
        wanted = (topic, self.places[pairs])
        return _place_by_flow(self.problem, self.row[pairs], entry, wanted, ((rack, rack), cell))
