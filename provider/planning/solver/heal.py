"""Heal and fill, for one shard: the replicas that each partition misses, and the new assignments (KIP-46, KIP-409).

No replica that is in place moves. A new replica takes the place in the list of the lost replica that it replaces. If
that was the preferred leader, a kept replica becomes the preferred leader, which needs no data, and the new replica
takes the kept replica's place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from kafka_steward.assignment import Operation
from kafka_steward.errors import PlanError
from kafka_steward.planning.files.options import EVEN
from kafka_steward.planning.solver.arrays import Bools, Brokers, Ints, Rows, member
from kafka_steward.planning.solver.drafts import Draft
from kafka_steward.planning.solver.leaders import choose_leaders
from kafka_steward.planning.solver.placement import Load, Want, place_missing
from kafka_steward.planning.solver.quotas import fair_bounds, shares, water_fill
from kafka_steward.planning.solver.selection import Case, Fate, fates

__all__ = ["Others", "Survey", "broker_shares", "heal", "survey"]


@dataclass(frozen=True)
class Survey:
    """The sums of one shard, or of the whole cluster: the facts that a shard must know of the others.

    `held` and `led` are replicas kept and partitions led per broker, `units` is the number of replicas to be added, and
    `factors` maps a replication factor to its number of partitions.
    """

    held: Ints
    led: Ints
    units: int
    factors: dict[int, int]

    @staticmethod
    def total(parts: list[Survey]) -> Survey:
        """Return the survey of all shards together."""
        factors: dict[int, int] = {}
        for part in parts:
            for factor, count in part.factors.items():
                factors[factor] = factors.get(factor, 0) + count
        held, led = (np.sum([getattr(part, name) for part in parts], axis=0) for name in ("held", "led"))
        return Survey(held, led, sum(part.units for part in parts), factors)


@dataclass(frozen=True)
class _Need:
    """The needs of a shard: slots kept, replicas missing per row (of planned rows), and dispositions (`fate`)."""

    kept: Bools
    missing: Ints
    fate: Ints
    factor: Ints
    #: Rows that give up replicas. Which replicas go is decided like a placement on the brokers that hold them.
    shrinks: Bools
    #: The fewest replicas that must be added.
    bound: int


@dataclass(frozen=True)
class Others:
    """A shard's view of the others: the survey of all, itself included, and the units of the shards before it."""

    total: Survey
    before: int

    def scaled(self, values: Ints, units: int) -> Ints:
        """Return this shard's part of cluster-wide `values`: each shard sees the cluster at its own scale.

        If each shard makes its own part even, the sum is even. The parts of all shards add up to `values` exactly.
        """
        if units == self.total.units:
            return values
        whole = self.total.units
        return values * (self.before + units) // whole - values * self.before // whole

    def aims(self, brokers: Brokers, units: int) -> Ints:
        """Return the part of the whole cluster's even load that each broker should carry here; 0 for an only shard.

        It is rounded to whole replicas with another phase for each broker. With the same phase for all, the odd
        replicas of every shard would go to the same brokers.
        """
        if units == self.total.units:
            return np.zeros(len(brokers), np.int64)
        where, whole = np.flatnonzero(brokers.target), self.total.units
        held = self.total.held[where].tolist()
        total = sum(held) + whole
        level = water_fill([brokers.capacity[b] for b in where], held, [total] * len(held), total)
        aims = np.zeros(len(brokers), np.int64)
        for index, (broker, amount) in enumerate(zip(where, level, strict=True)):
            phase = Fraction(index, len(held))
            first, last = (math.floor(amount * at / whole + phase) for at in (self.before, self.before + units))
            aims[broker] = last - first
        return aims


def survey(case: Case) -> Survey:
    """Count the values from which `heal` of this shard will start."""
    return _survey(case, _need(case))


def heal(case: Case, others: Others | None = None) -> Draft:
    """Return new assignments of a shard. Without `others`, it is the only one."""
    need = _need(case)
    own = _survey(case, need)
    others = Others(own, 0) if others is None else others
    load = _load(case, need, others)
    want = Want(case.rows, case.brokers, need.kept, need.missing, case.own_rack, need.shrinks)
    need, added = _chosen_to_stay(case.rows, need, place_missing(want, load))
    row, broker = _assembled(case.rows, need, *added)
    broker = _led(case, need, (row, broker), others.scaled(others.total.led, own.units))
    return Draft(case.rows, need.fate, row, broker, bound=need.bound)


def _need(case: Case) -> _Need:
    rows = case.rows
    # To balance disks, draining brokers are emptied first.
    gone = ("failed", "draining") if case.operation in EVEN else ("failed",)
    alive = ~case.brokers.having(*gone)[rows.broker] & ~rows.lost
    keeps = np.bincount(rows.row[alive], minlength=len(rows))
    goal = _goal(case, keeps)
    shrinks = goal < keeps
    kept = alive & (~shrinks[rows.row] | _stays_leader(case, alive))
    missing = goal - np.bincount(rows.row[kept], minlength=len(rows))
    open_slots = alive & shrinks[rows.row] & case.brokers.target[rows.broker] & ~kept
    room = np.where(shrinks, np.bincount(rows.row[open_slots], minlength=len(rows)), len(case.brokers))
    fate = fates(case, kept, missing, room, changes=shrinks)
    if case.operation is Operation.SET_REPLICATION_FACTOR:
        _refuse_too_many(case, fate, goal, keeps)
    bound = int(np.maximum(goal - keeps, 0)[fate == Fate.PLANNED].sum())
    return _Need(kept, np.where(fate == Fate.PLANNED, missing, 0), fate, goal, shrinks, bound)


def _refuse_too_many(case: Case, fate: Ints, goal: Ints, keeps: Ints) -> None:
    """Raise PlanError if too few brokers may hold the requested replication factor.

    The error is in the request; it is not a shortcoming of the plan.
    """
    short = np.flatnonzero((fate == Fate.TOO_FEW_BROKERS) & (goal > keeps))
    if len(short):
        row = int(short[0])
        mine = case.rows.row == row
        held = case.rows.broker[mine]
        alive = held[~case.brokers.having("failed")[held]]
        room = len(set(np.flatnonzero(case.brokers.target).tolist()) | set(alive.tolist()))
        name, factor = case.rows.name(row), goal[row]
        raise PlanError(f"The partition {name} is to have {factor} replicas, and only {room} brokers may hold one.")


def _goal(case: Case, keeps: Ints) -> Ints:
    """Return the number of replicas that each row is to have."""
    rows = case.rows
    if case.operation is Operation.HEAL:
        return rows.degree
    if case.operation is not Operation.SET_REPLICATION_FACTOR:
        return np.maximum(rows.target_rf, keeps)
    named = np.isin(np.array(rows.topics), case.options.topics)[rows.topic]
    return np.where(named, case.options.replication_factor, keeps)


def _stays_leader(case: Case, alive: Bools) -> Bools:
    """Return a mask of the one slot per row that stays whatever else is removed.

    It is the preferred leader, or the next slot that may stay.
    """
    rows = case.rows
    may = np.flatnonzero(alive & case.brokers.target[rows.broker])
    first = may[np.flatnonzero(np.diff(rows.row[may], prepend=-1))]
    stays = np.zeros(len(rows.row), bool)
    stays[first] = True
    return stays


def _survey(case: Case, need: _Need) -> Survey:
    rows, brokers = case.rows, len(case.brokers)
    held = np.bincount(rows.broker[need.kept], minlength=brokers)
    led = np.bincount(rows.broker[need.kept & (rows.place == 0)], minlength=brokers)
    factors, counts = np.unique(need.factor, return_counts=True)
    by_factor = dict(zip(factors.tolist(), counts.tolist(), strict=True))
    return Survey(held, led, int(need.missing.sum()), by_factor)


def _load(case: Case, need: _Need, others: Others) -> Load:
    rows, total = case.rows, others.total
    factors = sorted(total.factors)
    share_of = [broker_shares(case.brokers, case.brokers.target, factor, own_rack=case.own_rack) for factor in factors]
    counts = np.zeros((len(rows.topics), len(factors)), np.int64)
    np.add.at(counts, (rows.topic, np.searchsorted(factors, need.factor)), 1)
    _, ceiling, _, _ = fair_bounds(counts, share_of)
    _, _, _, limit = fair_bounds(np.array([[total.factors[factor] for factor in factors]], np.int64), share_of)
    units = int(need.missing.sum())
    level, limit = others.scaled(total.held, units), others.scaled(limit, units)
    return Load(rows.cells(need.kept, len(case.brokers)), ceiling, level, limit, others.aims(case.brokers, units))


def broker_shares(brokers: Brokers, sharing: Bools, factor: int, *, own_rack: bool) -> list[Fraction]:
    """Return every broker's fair share of one partition: 0 for brokers that are not `sharing`."""
    where = np.flatnonzero(sharing).tolist()
    capacity = [brokers.capacity[one] for one in where]
    wide = [Fraction(0)] * len(brokers)
    found = shares(factor, brokers.rack[where].tolist(), capacity, own_rack=own_rack)
    for index, value in zip(where, found, strict=True):
        wide[index] = value
    return wide


def _chosen_to_stay(rows: Rows, need: _Need, added: tuple[Ints, Ints]) -> tuple[_Need, tuple[Ints, Ints]]:
    """Treat replicas "added" on a broker that already has one as kept: they are neither lost nor added."""
    stays = ~need.kept & member(rows.row, rows.broker, *added) & need.shrinks[rows.row]
    new = ~need.shrinks[added[0]]
    return replace(need, kept=need.kept | stays), (added[0][new], added[1][new])


def _assembled(rows: Rows, need: _Need, added_row: Ints, added_broker: Ints) -> tuple[Ints, Ints]:
    """Return old and new slots together.

    A kept replica keeps its place. A new replica takes the place of a lost one, or the end.
    """
    stays = need.kept | (need.fate != Fate.PLANNED)[rows.row]
    lost = np.flatnonzero(~stays)
    turn = np.arange(len(added_row)) - np.searchsorted(added_row, added_row)
    replaced = np.searchsorted(rows.row[lost], added_row) + turn
    has_place = replaced < len(lost)
    has_place[has_place] = rows.row[lost[replaced[has_place]]] == added_row[has_place]
    place = rows.degree[added_row] + turn
    place[has_place] = rows.place[lost[replaced[has_place]]]
    row = np.concatenate([rows.row[stays], added_row])
    broker = np.concatenate([rows.broker[stays], added_broker])
    order = np.lexsort((np.concatenate([rows.place[stays], place]), row))
    return row[order], broker[order]


def _led(case: Case, need: _Need, slots: tuple[Ints, Ints], load: Ints) -> Ints:
    """Return the assembled brokers, with a kept replica in front wherever the preferred leader was lost."""
    rows, (row, broker) = case.rows, slots
    leaderless = (need.fate == Fate.PLANNED) & ~need.kept[rows.start[:-1]]
    candidate = need.kept & leaderless[rows.row]
    second = ~rows.in_sync | case.brokers.having("draining")[rows.broker]
    chosen_row, leader = choose_leaders(rows.row[candidate], rows.broker[candidate], second[candidate], load)
    start = np.searchsorted(row, chosen_row)
    wanted = np.full(len(rows), -1)
    wanted[chosen_row] = leader
    at = np.flatnonzero(broker == wanted[row])
    broker = broker.copy()
    broker[start], broker[at] = broker[at], broker[start]
    return broker
