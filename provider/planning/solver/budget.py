"""A plan within a budget: of the moves of a complete plan, those that improve most within what may be moved.

Moves off failed and draining brokers, moves towards the right number of replicas, and moves that repair a rack
violation come first. The others are taken in the order in which they make the brokers' loads most even. Each move that
is taken is a step of a plan with the fewest moves, so budgets add up: a cluster that `n` moves would make even needs
`n` minus the moves already made.
"""

from __future__ import annotations

import heapq
from dataclasses import replace

import numpy as np

from kafka_steward.planning.solver.candidate import CandidatePlan, merged
from kafka_steward.planning.solver.fair_shares import rack_spread_violated
from kafka_steward.planning.solver.problem import Bools, Ints, Problem


def within_budget(candidate: CandidatePlan, problem: Problem) -> CandidatePlan:
    """Return the candidate plan, cut down to the options' `max_moves` and `max_bytes`."""
    most_moves, most_bytes = problem.options.max_moves, problem.options.max_bytes
    if most_moves is None and most_bytes is None:
        return candidate
    rows = candidate.rows
    cost = np.bincount(candidate.row[candidate.added], minlength=len(rows))
    limits = [2**62 if limit is None else limit for limit in (most_moves, most_bytes)]
    taken = cost == 0
    taken[_taken(candidate, problem, cost, limits)] = True
    if taken.all():
        return candidate
    left = int(cost[~taken].sum())
    note = f"The budget leaves {left} replicas to be moved by later plans; nothing could have left fewer moves to do."
    mine = taken[candidate.row]
    row, broker = merged(rows, ~taken[rows.row], candidate.row[mine], candidate.broker[mine])
    bound, notes = max(candidate.bound - left, 0), (*candidate.notes, note)
    return replace(candidate, row=row, broker=broker, bound=bound, notes=notes)


def _urgent(problem: Problem) -> Bools:
    """Return a mask of the rows that come first."""
    rows, brokers = problem.rows, problem.brokers
    urgent: Bools = rack_spread_violated(rows.row, rows.broker, len(rows), brokers) | (rows.degree != rows.target_rf)
    urgent[rows.row[~brokers.having("live", "new")[rows.broker]]] = True
    return urgent


def _taken(candidate: CandidatePlan, problem: Problem, cost: Ints, limits: list[int]) -> list[int]:
    """Return rows in the order of their worth, as long as they fit.

    The worth changes with the loads, so that it is computed again before a row is taken.
    """
    load, urgent = _Imbalance(candidate, len(problem.brokers)), _urgent(problem)
    heap = [(not urgent[row], -load.gain(row) / cost[row], row) for row in np.flatnonzero(cost).tolist()]
    heapq.heapify(heap)
    moves, size, taken = 0, 0, []
    while heap:
        later, worth, row = heapq.heappop(heap)
        now = -load.gain(row) / cost[row]
        if now > worth:
            heapq.heappush(heap, (later, now, row))
            continue
        bytes_moved = int(cost[row] * candidate.rows.size[row])
        if moves + cost[row] > limits[0] or size + bytes_moved > limits[1]:
            continue
        moves, size = moves + int(cost[row]), size + bytes_moved
        load.apply(row)
        taken.append(row)
    return taken


class _Imbalance:
    """Each broker's distance from its load in the complete plan."""

    def __init__(self, candidate: CandidatePlan, brokers: int) -> None:
        rows = candidate.rows
        before = np.bincount(rows.broker, minlength=brokers)
        self._over: list[int] = (before - np.bincount(candidate.broker, minlength=brokers)).tolist()
        self._removed = _by_row(rows.row, rows.broker, candidate.removed)
        self._added = _by_row(candidate.row, candidate.broker, candidate.added)

    def gain(self, row: int) -> int:
        """Return the amount by which the row's move would lower the sum of squares."""
        lost = sum(2 * self._over[broker] - 1 for broker in self._removed.get(row, ()))
        return lost - sum(2 * self._over[broker] + 1 for broker in self._added.get(row, ()))

    def apply(self, row: int) -> None:
        """Count the row as moved."""
        for broker in self._removed.get(row, ()):
            self._over[broker] -= 1
        for broker in self._added.get(row, ()):
            self._over[broker] += 1


def _by_row(row: Ints, broker: Ints, which: Bools) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for one, where in zip(row[which].tolist(), broker[which].tolist(), strict=True):
        found.setdefault(one, []).append(where)
    return found
