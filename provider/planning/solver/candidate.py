"""Candidate plans: new assignments of every row of a shard, as they were given, or as far as a budget allows.

Within a budget, of the moves of a complete plan those are taken that improve most. Moves off failed and draining
brokers, moves towards the right number of replicas, and moves that repair a rack violation come first. The others are
taken in the order in which they make the brokers' loads most even. Each move that is taken is a step of a plan with the
fewest moves, so budgets add up: a cluster that `n` moves would make even needs `n` minus the moves already made.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.errors import PlanError
from kafka_steward.planning.files.reassignment import parse_reassignment
from kafka_steward.planning.solver.fair_shares import rack_spread_violated
from kafka_steward.planning.solver.problem import (
    Bools,
    Disposition,
    Ints,
    PartitionTable,
    Problem,
    is_pair_in,
)


@dataclass(frozen=True)
class CandidatePlan:
    """New assignments, as flat as the rows: `broker[i]` in order within `row[i]`. `bound` is the fewest moves."""

    rows: PartitionTable
    disposition: Ints
    row: Ints
    broker: Ints
    bound: int
    #: Notes for readers of the proof, such as a goal that could not be met in full.
    notes: tuple[str, ...] = ()
    #: The name of the bounds that the leaders meet (see `leaders.leader_bounds`); None if they are not to be even.
    leader_evenness: str | None = None

    @cached_property
    def row_starts(self) -> Ints:
        """The start of each row's new replicas, followed by the end of the last row's replicas."""
        return np.searchsorted(self.row, np.arange(len(self.rows) + 1))

    @cached_property
    def added(self) -> Bools:
        """A mask of the new replicas on brokers that did not hold the row."""
        return ~is_pair_in(self.row, self.broker, self.rows.row, self.rows.broker)

    @cached_property
    def removed(self) -> Bools:
        """A mask of the old replicas on brokers that no longer hold the row."""
        return ~is_pair_in(self.rows.row, self.rows.broker, self.row, self.broker)

    @cached_property
    def changed_rows(self) -> Ints:
        """The rows whose assignment differs, even if only in its order."""
        differs = np.diff(self.row_starts) != self.rows.replica_count
        same_length = ~differs[self.row]
        row = self.row[same_length]
        place = np.arange(len(self.row))[same_length] - self.row_starts[row]
        differs[row[self.rows.broker[self.rows.row_starts[row] + place] != self.broker[same_length]]] = True
        return np.flatnonzero(differs)


def merge_replicas(rows: PartitionTable, stays: Bools, row: Ints, broker: Ints) -> tuple[Ints, Ints]:
    """Return the old replicas in `stays` and the new replicas (row, broker) in order of their rows."""
    both = np.concatenate([rows.row[stays], row])
    order = np.argsort(both, kind="stable")
    return both[order], np.concatenate([rows.broker[stays], broker])[order]


def apply_reassignment(problem: Problem) -> CandidatePlan:
    """Return the given assignments as new ones.

    Raises PlanError that names a partition or broker that the snapshot does not have, or a broker that has failed.
    """
    rows, brokers = problem.rows, problem.brokers
    given = parse_reassignment(problem.options.reassignment)
    wanted = _find_rows(rows, given)
    disposition = np.full(len(rows), int(Disposition.UNTOUCHED))
    disposition[wanted] = np.where(rows.moving[wanted], Disposition.IN_FLIGHT, Disposition.PLANNED)
    planned = np.flatnonzero(disposition == Disposition.PLANNED)
    index = {int(broker): at for at, broker in enumerate(brokers.ids)}
    row, broker = [], []
    for at in planned.tolist():
        target = given[TopicPartition(rows.topics[rows.topic[at]], int(rows.number[at]))]
        for one in target:
            if one not in index:
                raise PlanError(
                    f"The reassignment of {rows.partition_name(at)} names broker {one}, which the snapshot does not "
                    "have."
                )
            if brokers.state[index[one]] == "failed":
                raise PlanError(f"The reassignment of {rows.partition_name(at)} names broker {one}, which has failed.")
        row += [at] * len(target)
        broker += [index[one] for one in target]
    new = merge_replicas(
        rows, (disposition != Disposition.PLANNED)[rows.row], np.array(row, int), np.array(broker, int)
    )
    candidate = CandidatePlan(rows, disposition, *new, bound=0)
    # No plan reaches exactly these assignments with fewer moves than they differ by.
    return replace(candidate, bound=int(candidate.added.sum()))


def _find_rows(rows: PartitionTable, given: dict[TopicPartition, Assignment]) -> Ints:
    known = {topic: at for at, topic in enumerate(rows.topics)}
    first = np.searchsorted(rows.topic, np.arange(len(rows.topics) + 1))
    found = []
    for name in given:
        if name.topic not in known:
            continue
        low, high = first[known[name.topic] : known[name.topic] + 2]
        at = low + int(np.searchsorted(rows.number[low:high], name.partition))
        if at >= high or rows.number[at] != name.partition:
            raise PlanError(f"The reassignment names {name}, which the snapshot does not have.")
        found.append(at)
    return np.array(found, np.int64)


def cut_to_budget(candidate: CandidatePlan, problem: Problem) -> CandidatePlan:
    """Return the candidate plan, cut down to the options' `max_moves` and `max_bytes`."""
    most_moves, most_bytes = problem.options.max_moves, problem.options.max_bytes
    if most_moves is None and most_bytes is None:
        return candidate
    rows = candidate.rows
    cost = np.bincount(candidate.row[candidate.added], minlength=len(rows))
    limits = [2**62 if limit is None else limit for limit in (most_moves, most_bytes)]
    taken = cost == 0
    taken[_choose_rows(candidate, problem, cost, limits)] = True
    if taken.all():
        return candidate
    left = int(cost[~taken].sum())
    note = f"The budget leaves {left} replicas to be moved by later plans; nothing could have left fewer moves to do."
    mine = taken[candidate.row]
    row, broker = merge_replicas(rows, ~taken[rows.row], candidate.row[mine], candidate.broker[mine])
    bound, notes = max(candidate.bound - left, 0), (*candidate.notes, note)
    return replace(candidate, row=row, broker=broker, bound=bound, notes=notes, leader_evenness=None)


def _urgent_rows(problem: Problem) -> Bools:
    """Return a mask of the rows that come first."""
    rows, brokers = problem.rows, problem.brokers
    urgent: Bools = rack_spread_violated(rows.row, rows.broker, len(rows), brokers) | (
        rows.replica_count != rows.target_rf
    )
    urgent[rows.row[~brokers.usable[rows.broker]]] = True
    return urgent


def _choose_rows(candidate: CandidatePlan, problem: Problem, cost: Ints, limits: list[int]) -> list[int]:
    """Return rows in the order of their worth, as long as they fit.

    The worth changes with the loads, so that it is computed again before a row is taken.
    """
    load, urgent = _Imbalance(candidate, len(problem.brokers)), _urgent_rows(problem)
    heap = [(not urgent[row], -load.move_gain(row) / cost[row], row) for row in np.flatnonzero(cost).tolist()]
    heapq.heapify(heap)
    moves, size, taken = 0, 0, []
    while heap:
        later, worth, row = heapq.heappop(heap)
        now = -load.move_gain(row) / cost[row]
        if now > worth:
            heapq.heappush(heap, (later, now, row))
            continue
        bytes_moved = int(cost[row] * candidate.rows.size[row])
        if moves + cost[row] > limits[0] or size + bytes_moved > limits[1]:
            continue
        moves, size = moves + int(cost[row]), size + bytes_moved
        load.apply_move(row)
        taken.append(row)
    return taken


class _Imbalance:
    """Each broker's distance from its load in the complete plan."""

    def __init__(self, candidate: CandidatePlan, brokers: int) -> None:
        rows = candidate.rows
        before = np.bincount(rows.broker, minlength=brokers)
        self._over: list[int] = (before - np.bincount(candidate.broker, minlength=brokers)).tolist()
        self._removed = _brokers_by_row(rows.row, rows.broker, candidate.removed)
        self._added = _brokers_by_row(candidate.row, candidate.broker, candidate.added)

    def move_gain(self, row: int) -> int:
        """Return the amount by which the row's move would lower the sum of squares."""
        lost = sum(2 * self._over[broker] - 1 for broker in self._removed.get(row, ()))
        return lost - sum(2 * self._over[broker] + 1 for broker in self._added.get(row, ()))

    def apply_move(self, row: int) -> None:
        """Count the row as moved."""
        for broker in self._removed.get(row, ()):
            self._over[broker] -= 1
        for broker in self._added.get(row, ()):
            self._over[broker] += 1


def _brokers_by_row(row: Ints, broker: Ints, which: Bools) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for one, where in zip(row[which].tolist(), broker[which].tolist(), strict=True):
        found.setdefault(one, []).append(where)
    return found
