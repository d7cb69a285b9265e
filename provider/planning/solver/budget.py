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

from kafka_steward.planning.solver.arrays import Bools, Ints
from kafka_steward.planning.solver.drafts import Draft
from kafka_steward.planning.solver.selection import Case

__all__ = ["within_budget"]


def within_budget(draft: Draft, case: Case, urgent: Bools) -> Draft:
    """Return the candidate plan, cut down to the options' `max_moves` and `max_bytes`.

    The rows in `urgent` come first.
    """
    most_moves, most_bytes = case.options.max_moves, case.options.max_bytes
    if most_moves is None and most_bytes is None:
        return draft
    cost = np.bincount(draft.row[draft.added], minlength=len(draft.rows))
    limits = [2**62 if limit is None else limit for limit in (most_moves, most_bytes)]
    taken = cost == 0
    taken[_taken(draft, case, cost, urgent, limits)] = True
    if taken.all():
        return draft
    left = int(cost[~taken].sum())
    note = f"The budget leaves {left} replicas to be moved by later plans; nothing could have left fewer moves to do."
    return replace(_only(draft, taken), bound=max(draft.bound - left, 0), notes=(*draft.notes, note))


def _taken(draft: Draft, case: Case, cost: Ints, urgent: Bools, limits: list[int]) -> list[int]:
    """Return rows in the order of their worth, as long as they fit.

    The worth changes with the loads, so that it is computed again before a row is taken.
    """
    load = _Load(draft, len(case.brokers))
    heap = [(not urgent[row], -load.gain(row) / cost[row], row) for row in np.flatnonzero(cost).tolist()]
    heapq.heapify(heap)
    moves, size, taken = 0, 0, []
    while heap:
        later, worth, row = heapq.heappop(heap)
        now = -load.gain(row) / cost[row]
        if now > worth:
            heapq.heappush(heap, (later, now, row))
            continue
        bytes_moved = int(cost[row] * draft.rows.size[row])
        if moves + cost[row] > limits[0] or size + bytes_moved > limits[1]:
            continue
        moves, size = moves + int(cost[row]), size + bytes_moved
        load.apply(row)
        taken.append(row)
    return taken


class _Load:
    """Each broker's distance from its load in the complete plan."""

    def __init__(self, draft: Draft, brokers: int) -> None:
        rows = draft.rows
        before = np.bincount(rows.broker, minlength=brokers)
        self._over: list[int] = (before - np.bincount(draft.broker, minlength=brokers)).tolist()
        self._gone, self._come = (
            _by_row(rows.row, rows.broker, draft.removed),
            _by_row(draft.row, draft.broker, draft.added),
        )

    def gain(self, row: int) -> int:
        """Return the amount by which the row's move would lower the sum of squares."""
        lost = sum(2 * self._over[broker] - 1 for broker in self._gone.get(row, ()))
        return lost - sum(2 * self._over[broker] + 1 for broker in self._come.get(row, ()))

    def apply(self, row: int) -> None:
        """Count the row as moved."""
        for broker in self._gone.get(row, ()):
            self._over[broker] -= 1
        for broker in self._come.get(row, ()):
            self._over[broker] += 1


def _by_row(row: Ints, broker: Ints, which: Bools) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for one, where in zip(row[which].tolist(), broker[which].tolist(), strict=True):
        found.setdefault(one, []).append(where)
    return found


def _only(draft: Draft, taken: Bools) -> Draft:
    """Return the candidate plan for the rows taken; all other rows stay unchanged."""
    rows = draft.rows
    new, old = taken[draft.row], ~taken[rows.row]
    row = np.concatenate([draft.row[new], rows.row[old]])
    broker = np.concatenate([draft.broker[new], rows.broker[old]])
    order = np.argsort(row, kind="stable")
    return Draft(rows, draft.fate, row[order], broker[order], draft.bound)
