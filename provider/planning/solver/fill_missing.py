"""Place the missing replicas of one shard, for heal and fill; replicas in place stay (KIP-46, KIP-409).

::

    partition ──► its share of a rack ──► (topic, broker) ──► broker ──► sink
                          └──► pool of the rack's brokers ──┘

Racks are a hard constraint here, which always leaves room: a partition takes as many brokers per rack as the most even
spread around its kept replicas needs. Constraints that may give way are priced, in this order: the rack's last place,
the topic's ceiling on a broker, the broker's own ceiling, and last the height of the broker's load, so that the load
becomes even. Every missing replica is placed and counts as one move, and nothing else moves. The movement is therefore
minimal by construction, and the flow only decides between plans of equal movement.

A pool stands for all brokers of a rack at once, which keeps the network small. It is exact if a partition takes at most
one unit from it and keeps nothing in it, because no two units of the partition can then meet on one broker.

A new replica takes the place of the lost replica in the list of replicas. If the preferred leader was lost, a kept
replica becomes the preferred leader, which copies no data, and the new replica takes the kept replica's place.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from kafka_steward.assignment import EVEN_OPERATIONS, Operation
from kafka_steward.errors import PlanError
from kafka_steward.planning.solver.candidate import CandidatePlan
from kafka_steward.planning.solver.fair_shares import fair_bounds, find_crowded_replicas, rack_groups, water_fill
from kafka_steward.planning.solver.flow import UNLIMITED, PlacementNetwork, deal_in_turns
from kafka_steward.planning.solver.leaders import choose_leaders, move_chosen_first
from kafka_steward.planning.solver.problem import (
    Bools,
    Brokers,
    Disposition,
    Ints,
    PartitionTable,
    Problem,
    combine_shards,
    count_pairs,
    dispositions,
    free_brokers,
    held_dispositions,
    is_pair_in,
    rows_that_lag,
)
from kafka_steward.planning.solver.room import Choices, RoomRules, Steps, choose_within_room

#: The most arcs for the heights of the brokers' loads. More replicas share steps of several.
_MAX_LEVEL_ARCS = 1_000_000
#: The replicas of a topic that a broker may have beyond the ceiling, at a price that rises from one to the next.
_OVER_CEILING = (1, 1, 2, 4, 8, 16, UNLIMITED)


@dataclass(frozen=True)
class ShardTotals:
    """The sums of one shard, or of the whole cluster, which a shard must know to do its part.

    `held` and `led` are replicas kept and partitions led per broker, `units` is the number of replicas to be added, and
    `factors` maps a replication factor to its number of partitions.
    """

    held: Ints
    led: Ints
    units: int
    factors: dict[int, int]


@dataclass(frozen=True)
class OtherShards:
    """A shard's view of the other shards: the totals of all shards, and the units of the shards before it."""

    total: ShardTotals
    before: int

    def scale_to_shard(self, values: Ints, units: int) -> Ints:
        """Return this shard's part of cluster-wide `values`, in proportion to its units.

        If each shard makes its own part even, the sum is even. The parts of all shards add up to `values` exactly.
        """
        if units == self.total.units:
            return values
        whole = self.total.units
        return values * (self.before + units) // whole - values * self.before // whole

    def load_targets(self, brokers: Brokers, units: int) -> Ints:
        """Return the part of the whole cluster's even load that each broker should carry here; 0 for an only shard.

        The part is rounded to whole replicas, with another phase for each broker. With the same phase for all brokers,
        the odd replicas of every shard would go to the same brokers.
        """
        targets = np.zeros(len(brokers), np.int64)
        if units == self.total.units:
            return targets
        receivers, whole = np.flatnonzero(brokers.receivers), self.total.units
        held = self.total.held[receivers].tolist()
        total = sum(held) + whole
        level = water_fill([brokers.capacity[b] for b in receivers], held, [total] * len(held), total)
        for index, (broker, amount) in enumerate(zip(receivers, level, strict=True)):
            phase = Fraction(index, len(held))
            first, last = (math.floor(amount * at / whole + phase) for at in (self.before, self.before + units))
            targets[broker] = last - first
        return targets


def views_of_others(parts: Sequence[ShardTotals]) -> list[OtherShards]:
    """Return each shard's view of the other shards, given the totals of the shards in their order."""
    total, before = combine_shards(parts), np.cumsum([0, *(part.units for part in parts)]).tolist()
    return [OtherShards(total, units) for units in before[:-1]]


@dataclass(frozen=True)
class _MissingReplicas:
    """The replicas that a shard keeps, and the number of replicas that each planned row misses."""

    problem: Problem
    kept: Bools
    missing: Ints
    disposition: Ints
    factor: Ints
    #: Rows that give up replicas. The flow decides which replicas stay, as if it placed them on the brokers that hold
    #: them.
    shrinks: Bools
    #: The replicas among which the flow chooses for a row that gives up some.
    optional: Bools
    #: The fewest replicas that must be added.
    bound: int
    #: Notes for readers of the proof.
    notes: tuple[str, ...] = ()

    @cached_property
    def missing_count(self) -> int:
        """The number of missing replicas."""
        return int(self.missing.sum())

    @property
    def totals(self) -> ShardTotals:
        """The sums of this shard."""
        rows, brokers = self.problem.rows, len(self.problem.brokers)
        held = np.bincount(rows.broker[self.kept], minlength=brokers)
        led = np.bincount(rows.broker[self.kept & (rows.replica_positions == 0)], minlength=brokers)
        return ShardTotals(held, led, self.missing_count, dict(Counter(self.factor.tolist())))

    @cached_property
    def incomplete_rows(self) -> Ints:
        """The rows with missing replicas."""
        return np.flatnonzero(self.missing)

    @cached_property
    def broker_groups(self) -> Ints:
        """Each broker's group: its rack, its own, or the common one of all brokers without a rack constraint."""
        brokers = self.problem.brokers
        own_rack = (brokers.rack < 0) & brokers.own_rack
        return rack_groups(brokers) + np.where(own_rack, np.cumsum(own_rack) - 1, 0)

    @cached_property
    def held_brokers(self) -> Bools:
        """A mask of the brokers on which each incomplete row keeps a replica."""
        return self.broker_mask(self.kept)

    @cached_property
    def lost_brokers(self) -> Bools:
        """A mask of the brokers on which each incomplete row has a lost replica, where Kafka accepts no second one."""
        return self.broker_mask(self.problem.rows.lost)

    @cached_property
    def open_brokers(self) -> Bools:
        """A mask of the brokers on which each incomplete row may place a replica."""
        grows = ~self.shrinks[self.incomplete_rows][:, None]
        able = self.broker_mask(self.optional) | (grows & self.problem.brokers.receivers)
        return able & ~self.held_brokers & ~self.lost_brokers

    def broker_mask(self, which: Bools) -> Bools:
        """Return a mask of the brokers of each incomplete row's replicas in `which`."""
        rows = self.problem.rows
        table = np.zeros((len(rows), len(self.problem.brokers)), bool)
        table[rows.row[which], rows.broker[which]] = True
        return table[self.incomplete_rows]


def shard_totals(problem: Problem) -> ShardTotals:
    """Count the values from which `fill_missing` of this shard will start."""
    return _find_missing(problem).totals


def fill_missing(problem: Problem, others: OtherShards | None = None) -> CandidatePlan:
    """Return new assignments of a shard. Without `others`, it is the only one."""
    need, rows = _find_missing(problem), problem.rows
    view = OtherShards(need.totals, 0) if others is None else others
    if problem.room_rules is not None:
        need, row, broker = _place_within_room(need, view, problem.room_rules)
    else:
        row, broker = _place_missing(need, view)
    # A replica "added" on a broker that already has one is kept: it is neither lost nor added.
    stays = ~need.kept & is_pair_in(rows.row, rows.broker, row, broker) & need.shrinks[rows.row]
    new = ~need.shrinks[row]
    need = replace(need, kept=need.kept | stays)
    row, broker = _assemble_replicas(need, row[new], broker[new])
    broker = _put_leaders_first(need, row, broker, view.scale_to_shard(view.total.led, need.missing_count))
    return CandidatePlan(rows, need.disposition, row, broker, bound=need.bound, notes=need.notes)


def _find_missing(problem: Problem) -> _MissingReplicas:
    rows, brokers = problem.rows, problem.brokers
    if problem.options.balance == "racks":
        return _find_misplaced(problem)
    if problem.options.balance == "none":
        return _find_drained(problem)
    alive = ~brokers.state_mask(*_states_to_leave(problem))[rows.broker] & ~rows.lost
    keeps = np.bincount(rows.row[alive], minlength=len(rows))
    factor = _wanted_factor(problem, keeps)
    shrinks = factor < keeps
    stays, optional = _choose_staying(problem, alive & shrinks[rows.row], factor)
    kept = (alive & ~shrinks[rows.row]) | stays
    lacks = factor > np.bincount(rows.row[kept], minlength=len(rows))
    # A partition that gets a replica must keep none on a dead broker: Kafka would not complete the move.
    kept &= ~(brokers.state_mask("down")[rows.broker] & lacks[rows.row])
    missing = factor - np.bincount(rows.row[kept], minlength=len(rows))
    room = np.where(shrinks, np.bincount(rows.row[optional], minlength=len(rows)), free_brokers(problem, kept))
    # A partition with as many live replicas as requested still drops the dead ones from its list.
    trims = _named_rows(problem) & (factor == keeps) & (keeps < rows.replica_count)
    disposition = dispositions(problem, missing, room, changes=shrinks | trims)
    if problem.operation is Operation.SET_REPLICATION_FACTOR:
        below = (disposition == Disposition.PLANNED) & (factor < np.minimum(rows.min_isr, rows.replica_count))
        disposition[below] = Disposition.BELOW_MIN_ISR
        _refuse_large_factor(problem, (disposition == Disposition.TOO_FEW_BROKERS) & (factor > keeps), factor)
    planned = disposition == Disposition.PLANNED
    bound = int(missing[planned & ~shrinks].sum())
    return _MissingReplicas(problem, kept, np.where(planned, missing, 0), disposition, factor, shrinks, optional, bound)


def _states_to_leave(problem: Problem) -> tuple[str, ...]:
    if problem.operation is Operation.SET_REPLICATION_FACTOR:
        return "failed", "down"
    # Only the balance of disks comes here for an even operation, and it empties draining brokers first.
    return ("failed", "draining", "down") if problem.operation in EVEN_OPERATIONS else ("failed",)


def _find_misplaced(problem: Problem) -> _MissingReplicas:
    """Treat the replicas that crowd a rack as missing, so that they are placed elsewhere; nothing else changes."""
    rows, crowded = problem.rows, find_crowded_replicas(problem)
    disposition = held_dispositions(problem)
    # Excluded partitions were not requested: their state is no shortcoming of the plan.
    disposition[disposition == Disposition.EXCLUDED] = Disposition.UNTOUCHED
    disposition[crowded.row] = Disposition.PLANNED
    disposition[crowded.lagging] = Disposition.OUT_OF_SYNC
    missing = np.bincount(rows.row[crowded.give_way], minlength=len(rows))
    none, nowhere = np.zeros(len(rows), bool), np.zeros(len(rows.row), bool)
    kept, bound = ~crowded.give_way, int(missing.sum())
    return _MissingReplicas(problem, kept, missing, disposition, rows.replica_count, none, nowhere, bound)


def _find_drained(problem: Problem) -> _MissingReplicas:
    """Treat the replicas on draining brokers as missing, and those of the same rows that are dead."""
    rows, brokers = problem.rows, problem.brokers
    there = np.bincount(rows.row[brokers.state_mask("draining")[rows.broker]], minlength=len(rows)) > 0
    kept = (brokers.usable[rows.broker] & ~rows.lost) | ~there[rows.row]
    missing = rows.replica_count - np.bincount(rows.row[kept], minlength=len(rows))
    none, nowhere = np.zeros(len(rows), bool), np.zeros(len(rows.row), bool)
    disposition = dispositions(problem, missing, free_brokers(problem, kept), changes=none)
    disposition[(disposition == Disposition.PLANNED) & rows_that_lag(problem)] = Disposition.OUT_OF_SYNC
    # Excluded partitions were not requested: their state is no shortcoming of the plan.
    disposition[disposition == Disposition.EXCLUDED] = Disposition.UNTOUCHED
    missing = np.where(disposition == Disposition.PLANNED, missing, 0)
    bound = int(missing.sum())
    return _MissingReplicas(problem, kept, missing, disposition, rows.replica_count, none, nowhere, bound)


def _refuse_large_factor(problem: Problem, short: Bools, factor: Ints) -> None:
    """Raise PlanError if too few brokers may hold the requested replication factor."""
    rows, brokers = problem.rows, problem.brokers
    for row in np.flatnonzero(short)[:1]:
        usable = brokers.receivers.copy()
        held = rows.broker[rows.row == row]
        usable[held[~brokers.state_mask("failed", "down")[held]]] = True
        raise PlanError(
            f"The partition {rows.partition_name(row)} is to have {factor[row]} replicas, "
            f"and only {int(usable.sum())} brokers may hold one."
        )


def _wanted_factor(problem: Problem, keeps: Ints) -> Ints:
    rows = problem.rows
    if problem.operation is Operation.HEAL:
        return rows.replica_count
    if problem.operation is not Operation.SET_REPLICATION_FACTOR:
        return np.maximum(rows.target_rf, keeps)
    return np.where(_named_rows(problem), problem.options.replication_factor, keeps)


def _named_rows(problem: Problem) -> Bools:
    if problem.operation is not Operation.SET_REPLICATION_FACTOR:
        return np.zeros(len(problem.rows), bool)
    return np.isin(np.array(problem.rows.topics), problem.options.topics)[problem.rows.topic]


def _choose_staying(problem: Problem, held: Bools, factor: Ints) -> tuple[Bools, Bools]:
    """Return masks of the replicas that stay, and of the replicas among which the flow chooses.

    `held` are the live replicas of the rows that shrink. Replicas in sync rank first, then replicas out of sync. Both
    may be on excluded brokers, which keep what they hold, but not on draining brokers, which keep nothing. All replicas
    of a rank stay before the flow chooses in the next rank. In the rank where it chooses, the leader stays, and then
    the first of all replicas that may stay, if it is of this rank: it becomes the preferred leader.
    """
    rows, brokers = problem.rows, problem.brokers
    able = held & brokers.usable[rows.broker]
    rank = np.select([able & ~rows.behind, able], [0, 1], 2)
    last = np.where(np.bincount(rows.row[rank == 0], minlength=len(rows)) >= factor, 0, 1)
    stays = rank < last[rows.row]
    open_here = (rank == last[rows.row]) & able
    left = factor - np.bincount(rows.row[stays], minlength=len(rows))
    leads = open_here & (rank == 0) & rows.in_sync & (brokers.ids[rows.broker] == rows.leader[rows.row])
    first = np.zeros(len(rows.row), bool)
    may = np.flatnonzero(stays | open_here)
    first[may[np.flatnonzero(np.diff(rows.row[may], prepend=-1))]] = True
    stays |= leads
    left -= np.bincount(rows.row[leads], minlength=len(rows))
    stays |= first & open_here & (left > 0)[rows.row]
    return stays, open_here & ~stays


def _assemble_replicas(need: _MissingReplicas, added_row: Ints, added_broker: Ints) -> tuple[Ints, Ints]:
    """Return old and new replicas in order: a new replica takes the place of a lost one, or stands at the end."""
    rows: PartitionTable = need.problem.rows
    stays = need.kept | (need.disposition != Disposition.PLANNED)[rows.row]
    lost = np.flatnonzero(~stays)
    turn = np.arange(len(added_row)) - np.searchsorted(added_row, added_row)
    replaced = np.searchsorted(rows.row[lost], added_row) + turn
    has_place = replaced < len(lost)
    has_place[has_place] = rows.row[lost[replaced[has_place]]] == added_row[has_place]
    place = rows.replica_count[added_row] + turn
    place[has_place] = rows.replica_positions[lost[replaced[has_place]]]
    row = np.concatenate([rows.row[stays], added_row])
    broker = np.concatenate([rows.broker[stays], added_broker])
    order = np.lexsort((np.concatenate([rows.replica_positions[stays], place]), row))
    return row[order], broker[order]


def _put_leaders_first(need: _MissingReplicas, row: Ints, broker: Ints, load: Ints) -> Ints:
    """Return the assembled brokers, with a kept replica in front wherever the preferred leader was lost.

    A partition that is to have fewer replicas gets its leader in front, and its other replicas keep their order,
    because nobody has asked for even leaders. If its leader goes, too, the choice is as for other partitions.
    """
    rows, brokers = need.problem.rows, need.problem.brokers
    leaderless = (need.disposition == Disposition.PLANNED) & ~need.kept[rows.row_starts[:-1]]
    able = need.kept & leaderless[rows.row]
    second_choice = ~rows.in_sync | brokers.state_mask("draining", "down")[rows.broker]
    lowers = need.problem.operation is Operation.SET_REPLICATION_FACTOR
    fewer = (need.factor < rows.replica_count) & lowers
    leads = able & ~second_choice & fewer[rows.row] & (brokers.ids[rows.broker] == rows.leader[rows.row])
    able &= leads | ~np.isin(rows.row, rows.row[leads])
    chosen_row, chosen = choose_leaders(rows.row[able], rows.broker[able], second_choice[able], load)
    first = np.searchsorted(row, chosen_row)
    leader = np.full(len(rows), -1)
    leader[chosen_row] = chosen
    at = np.flatnonzero(broker == leader[row])
    broker = broker.copy()
    moves_up = fewer[chosen_row]
    move_chosen_first(broker, first[moves_up], at[moves_up])
    first, at = first[~moves_up], at[~moves_up]
    # The new replica has the place of the lost leader, and changes places with the kept replica.
    broker[first], broker[at] = broker[at], broker[first]
    return broker


def _place_missing(need: _MissingReplicas, others: OtherShards) -> tuple[Ints, Ints]:
    """Return row and broker of every replica to add, sorted by both. Rows must have enough free brokers."""
    if len(need.incomplete_rows) == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    index, broker = _FillFlow(need, others).solve()
    order = np.lexsort((broker, index))
    return need.incomplete_rows[index[order]], broker[order]


def _place_within_room(
    need: _MissingReplicas, others: OtherShards, rules: RoomRules
) -> tuple[_MissingReplicas, Ints, Ints]:
    """Return row and broker of every replica to add that there is room for, and the need without the rows that stay.

    The rack rule, which the flow keeps, gives way here before a replica is not placed.
    """
    rows, at = need.problem.rows, need.incomplete_rows
    if len(at) == 0:
        return need, *_place_missing(need, others)
    flow = _FillFlow(need, others)
    leaves = ~need.kept & ~rows.lost & need.problem.brokers.usable[rows.broker] & ~need.optional
    choices = Choices(
        size=rows.size[at],
        wanted=need.missing[at],
        may=need.open_brokers,
        hold=need.broker_mask(need.optional),
        may_stay=~need.shrinks[at],
        missing=np.where(need.shrinks, 0, need.missing)[at],
        gives=need.broker_mask(leaves),
        goals=flow.goals(),
    )

    def place() -> Bools:
        on = np.zeros(choices.may.shape, bool)
        on[flow.solve()] = True
        return on

    chosen = choose_within_room(choices, place, need.problem.brokers.rooms, rules)
    stays = at[chosen.left]
    missing, disposition = need.missing.copy(), need.disposition.copy()
    missing[stays], disposition[stays] = 0, Disposition.NO_ROOM
    index, broker = np.nonzero(chosen.on & ~chosen.left[:, None])
    bound = need.bound - int(need.missing[stays].sum())
    # The masks of `need` are of all rows that missed replicas; only what stands below is read from now on.
    return replace(need, missing=missing, disposition=disposition, bound=bound), at[index], broker


def _rack_room(need: _MissingReplicas) -> tuple[Ints, Ints]:
    """Return the replicas that each incomplete row may add per group, and how many of them come first.

    The spread is the most even one that the kept replicas allow. It is that of `rack_rule.rack_bounds`, but computed
    row by row, because rows keep different replicas. Brokers without a rack come before a second replica on a rack,
    whether each of them is a rack of its own or not.
    """
    brokers, missing = need.problem.brokers, need.missing[need.incomplete_rows]
    groups = int(need.broker_groups.max()) + 1
    member_of = need.broker_groups[:, None] == np.arange(groups)
    kept, room = (mask.astype(np.int64) @ member_of for mask in (need.held_brokers, need.open_brokers))
    racked = (member_of & (brokers.rack >= 0)[:, None]).any(axis=0)
    height = _fill_height_per_rack(kept + room, racked, kept.sum(axis=1) + missing)[:, None]
    top = np.minimum(height, kept + room)
    most = np.where(racked, np.clip(top - kept, 0, room), np.minimum(room, missing[:, None]))
    below = np.where(racked, np.minimum(height - 1, top) - kept, np.where(height > 1, most, 0))
    return most, np.clip(below, 0, most)


def _fill_height_per_rack(places: Ints, racked: Bools, rf: Ints) -> Ints:
    # The height is the most replicas on one rack: it grows until every replica has a place.
    on_racks, spare = places[:, racked], places[:, ~racked].sum(axis=1)
    height = np.full(len(places), 1, np.int64)
    for _ in range(int(places.max(initial=1))):
        short = np.minimum(on_racks, height[:, None]).sum(axis=1) + spare < rf
        if not short.any():
            break
        height += short
    return height


class _FillFlow:
    """The network that places missing replicas, and the data to decode its flows."""

    def __init__(self, need: _MissingReplicas, others: OtherShards) -> None:
        self.need, self.brokers = need, need.problem.brokers
        #: The brokers that may hold placed replicas. An excluded broker may, for a row that chooses among its own
        #: replicas.
        self.able = self.brokers.receivers | need.open_brokers.any(axis=0)
        self.most, self.first = _rack_room(need)
        self.topics, topic = np.unique(need.problem.rows.topic[need.incomplete_rows], return_inverse=True)
        self.net = PlacementNetwork(topic, len(self.topics), need.broker_groups)
        self._measure_load(others)
        # Each weight exceeds the most that one change of any lower-priority term can be worth.
        self.step = max(1, need.missing_count * len(self.brokers) // _MAX_LEVEL_ARCS)
        self.height_cost = self._compute_load_cost(others)
        self.over_limit = int(self.height_cost.max(initial=0)) + 1
        self.over_ceiling = 4 * self.over_limit
        self.last_place = 1000 * self.over_ceiling

    def _measure_load(self, others: OtherShards) -> None:
        """Compute the room under each topic's ceiling on a broker, and the level and the limit of each broker."""
        need, rows, total = self.need, self.need.problem.rows, others.total
        factors = sorted(total.factors)
        counts = count_pairs(rows.topic, np.searchsorted(factors, need.factor), (len(rows.topics), len(factors)))
        everything = [total.factors[factor] for factor in factors]
        bounds = fair_bounds(self.brokers, self.able, factors, np.vstack([counts, everything]))
        cells = count_pairs(rows.topic[rows.row[need.kept]], rows.broker[need.kept], (len(counts), len(self.brokers)))
        self.room = np.maximum(bounds[1][:-1] - cells, 0)
        self.limit = others.scale_to_shard(bounds[1][-1], need.missing_count)
        self.level = others.scale_to_shard(total.held, need.missing_count)

    def solve(self) -> tuple[Ints, Ints]:
        """Return the index among the incomplete rows and the broker of every missing replica."""
        net = self.net
        net.add_supply(net.part, self.need.missing[self.need.incomplete_rows])
        net.add_supply(net.sink, -self.need.missing_count)
        for rooms, price in ((self.first, 0), (self.most - self.first, self.last_place)):
            row, group = np.nonzero(rooms)
            net.add_arcs(net.part[row], net.share[row, group], rooms[row, group], price)
        self._add_replica_arcs()
        self._add_cell_arcs()
        # Each further replica on a broker costs the height of its load, so that the lowest brokers get them.
        broker, step = np.nonzero(np.broadcast_to(self.able[:, None], self.height_cost.shape))
        cost = self.height_cost + self._limit_cost()
        net.add_arcs(net.broker[broker], net.sink, self.step, cost[broker, step])
        return self._decode_flow(net.solve())

    def goals(self) -> list[list[Steps]]:
        """Return the network's costs as steps: the rack rule, and then even topics and brokers."""
        rows, groups, brokers = len(self.most), self.most.shape[1], len(self.brokers)
        # A repair of the racks puts no replica where the rule is still broken.
        beyond = 0 if self.need.problem.options.balance == "racks" else self.need.missing_count
        many = np.full_like(self.most, beyond)
        racks = Steps(
            np.arange(rows)[:, None] * groups + self.need.broker_groups,
            np.stack([self.first, self.most - self.first, many], axis=-1).reshape(-1, 3),
            np.broadcast_to([0, 1, 1000], (rows * groups, 3)),
        )
        room = self.room[self.topics].ravel()
        over = np.array([*_OVER_CEILING[:-1], self.need.missing_count])
        cells = Steps(
            self.net.topic[:, None] * brokers + np.arange(brokers),
            np.column_stack([room, np.broadcast_to(over, (len(room), len(over)))]),
            np.broadcast_to(np.arange(len(over) + 1) * self.over_ceiling, (len(room), len(over) + 1)),
        )
        loads = Steps(
            np.broadcast_to(np.arange(brokers), (rows, brokers)),
            np.full_like(self.height_cost, self.step),
            self.height_cost + self._limit_cost(),
        )
        return [[racks], [cells, loads]]

    def _limit_cost(self) -> Ints:
        """Return what each step of each broker's load costs beyond its height: above the limit the same."""
        steps = np.arange(self.height_cost.shape[1]) * self.step
        above = self.level[:, None] + steps >= self.limit[:, None]
        return np.where(above, self.over_limit, 0)

    def _add_replica_arcs(self) -> None:
        """Add arcs for the missing replicas: by pools where these are exact, else directly to each open broker."""
        net, need, target = self.net, self.need, self.brokers.receivers
        row, broker = np.nonzero((need.held_brokers | need.lost_brokers) & target)
        keeps = count_pairs(row, need.broker_groups[broker], self.most.shape)
        # A row that may only choose among some brokers must not share a pool with all others.
        self.pooled = (self.most == 1) & (keeps == 0) & ~need.shrinks[need.incomplete_rows][:, None]
        self.pool_row, group = np.nonzero(self.pooled)
        self.into_pool = net.pool[net.topic[self.pool_row], group]
        self.to_pool = net.add_arcs(net.share[self.pool_row, group], self.into_pool, 1, 0)
        used = np.isin(net.pool, self.into_pool)
        topic, self.pool_broker = np.nonzero(used[:, need.broker_groups] & target)
        self.pool_of = net.pool[topic, need.broker_groups[self.pool_broker]]
        self.from_pool = net.add_arcs(self.pool_of, net.cell[topic, self.pool_broker], UNLIMITED, 0)
        open_here = (self.most > 0) & ~self.pooled
        self.direct_row, self.direct_broker = np.nonzero(open_here[:, need.broker_groups] & need.open_brokers)
        self.direct = net.add_replica_arcs(self.direct_row, self.direct_broker, 0)

    def _add_cell_arcs(self) -> None:
        topic, broker = np.nonzero(np.broadcast_to(self.able, self.net.cell.shape))
        tail, head = self.net.cell[topic, broker], self.net.broker[broker]
        room = self.room[self.topics[topic], broker]
        self.net.add_arcs(tail, head, room, 0)
        missing = np.zeros(len(self.topics), np.int64)
        np.add.at(missing, self.net.topic, self.need.missing[self.need.incomplete_rows])
        # A topic may exceed its ceiling on a broker, at a price that grows with the excess.
        for over, capacity in enumerate(_OVER_CEILING, start=1):
            # No broker gets more of a topic than the topic lacks.
            short = np.flatnonzero(room < missing[topic])
            self.net.add_arcs(tail[short], head[short], capacity, over * self.over_ceiling)
            room = room + capacity

    def _compute_load_cost(self, others: OtherShards) -> Ints:
        """Return the cost of a broker's further replicas, which grows with its load per capacity."""
        capacity = np.array([float(value) for value in self.brokers.capacity])
        steps = np.arange(0, self.need.missing_count, self.step)
        above = self.level - others.load_targets(self.brokers, self.need.missing_count)
        height = (above[:, None] + steps) * (4 * capacity.mean() / capacity[:, None])
        cost = np.asarray(np.floor(height), np.int64)
        return cost - int(cost[self.able].min(initial=int(cost.min())))

    def _decode_flow(self, flow: Ints) -> tuple[Ints, Ints]:
        hit = flow[self.direct] > 0
        taken = flow[self.to_pool] > 0
        row = self.pool_row[taken]
        row = row[np.lexsort((row, self.into_pool[taken]))]
        dealt = deal_in_turns(flow[self.from_pool], self.pool_broker, self.pool_of)
        return np.concatenate([self.direct_row[hit], row]), np.concatenate([self.direct_broker[hit], dealt])
