"""Balanced disks: replicas move until every broker's bytes are within a tolerance of its share, with few bytes moved.

This is a heuristic with a lower bound. Bytes above the upper edges must leave, and bytes missing below the lower edges
must arrive, so that no plan moves fewer bytes than the larger of the two sums. The fullest broker gives the largest
replica that is not larger than its excess to the emptiest broker that may have it. Then the emptiest broker receives. A
replica moves once at most, and a broker that can do no more is left out: the number of steps is bounded by the number
of replicas.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from kafka_steward.planning.solver.candidate import CandidatePlan
from kafka_steward.planning.solver.fair_shares import rack_bounds_by_row, rack_groups
from kafka_steward.planning.solver.fill_missing import fill_missing
from kafka_steward.planning.solver.problem import Bools, Disposition, Problem, count_pairs, static_dispositions


def balance_disks(problem: Problem) -> CandidatePlan:
    """Return new assignments that balance the disks, once lost and draining replicas are placed as by a heal."""
    first = fill_missing(problem)
    work = _DiskBalance(problem, first)
    # No plan moves fewer bytes than the larger of the two sums.
    bound = max(np.maximum(work.load - work.upper, 0).sum(), np.maximum(work.lower - work.load, 0).sum())
    while work.unload_fullest() or work.fill_emptiest():
        pass
    disposition = first.disposition.copy()
    disposition[first.row[work.broker != first.broker]] = Disposition.PLANNED
    notes = (
        f"Even disks need at least {int(bound)} bytes moved; lower_bound counts only what must move anyway.",
        *work.tolerance_notes(),
    )
    return replace(first, disposition=disposition, broker=work.broker, notes=notes)


def _movable_replicas(problem: Problem, first: CandidatePlan) -> Bools:
    """Return a mask of the replicas that may move."""
    free = static_dispositions(problem) == Disposition.UNTOUCHED
    # A partition that could not be fully replicated keeps a lost replica in its list: Kafka would never complete a move
    # of it.
    free[first.row[problem.brokers.state_mask("failed")[first.broker]]] = False
    return np.asarray(free[first.row] & ~first.added, bool)


class _DiskBalance:
    """The state of the loop: loads, the current broker of each replica, and the brokers that can do no more."""

    def __init__(self, problem: Problem, first: CandidatePlan) -> None:
        brokers, tolerance = problem.brokers, problem.options.tolerance
        self.problem, self.rack, self.row = problem, brokers.rack, first.row
        self.size, self.broker = problem.rows.size[first.row], first.broker.copy()
        share = np.where(brokers.receivers, [float(capacity) for capacity in brokers.capacity], 0.0)
        self.load = np.bincount(first.broker, weights=self.size, minlength=len(brokers))
        target = share / share.sum() * self.load.sum()
        self.lower, self.upper = target * (1 - tolerance), target * (1 + tolerance)
        self.free = brokers.free_bytes.astype(np.float64)
        self.sharing = share > 0
        self.blocked = ~self.sharing
        self.holds = np.zeros((int(first.row.max(initial=-1)) + 1, len(brokers)), bool)
        self.holds[first.row, first.broker] = True
        group = rack_groups(brokers)
        held = count_pairs(first.row, group[first.broker], (len(problem.rows), int(group.max()) + 1))
        self.low, self.high = rack_bounds_by_row(brokers, np.diff(first.row_starts), held, brokers.usable)
        order = np.lexsort((np.arange(len(self.size)), -self.size))
        order = order[_movable_replicas(problem, first)[order] & (self.size[order] > 0)]
        self.queue = [order[first.broker[order] == broker].tolist() for broker in range(len(brokers))]

    def unload_fullest(self) -> bool:
        """Take one replica from the fullest broker above the band. Returns False when no such broker is left."""
        excess = np.where(self.blocked, -np.inf, self.load - self.upper)
        giver = int(excess.argmax())
        if excess[giver] <= 0:
            return False
        fitting = [at for at in self.queue[giver] if self.size[at] <= excess[giver]]
        larger = [at for at in reversed(self.queue[giver]) if self.size[at] > excess[giver]]
        for at in (*fitting, *larger):
            if self.load[giver] - self.size[at] >= self.lower[giver] and self._move_replica(
                at, self._possible_receivers(at)
            ):
                return True
        self.blocked[giver] = True
        return True

    def fill_emptiest(self) -> bool:
        """Give one replica to the emptiest broker below the band. Returns False when no such broker is left."""
        lack = np.where(self.blocked, -np.inf, self.lower - self.load)
        receiver = int(lack.argmax())
        if lack[receiver] <= 0:
            return False
        for giver in np.argsort(-self.load, kind="stable").tolist():
            for at in self.queue[giver]:
                spared = self.load[giver] - self.size[at] >= self.lower[giver]
                fits = self.load[receiver] + self.size[at] <= self.upper[receiver]
                if spared and fits and self._move_replica(at, [receiver]):
                    return True
        self.blocked[receiver] = True
        return True

    def tolerance_notes(self) -> Iterator[str]:
        """Yield notes on the brokers out of the tolerance, and on the rows that are too large for it."""
        outside = np.flatnonzero((self.load > self.upper + 1e-6) | (self.load < self.lower - 1e-6))
        if len(outside) == 0:
            return
        ids = ", ".join(map(str, self.problem.brokers.ids[outside]))
        yield f"The disks of these brokers stay out of the tolerance: {ids}."
        band = (self.upper - self.lower)[self.sharing].min(initial=np.inf)
        for row in np.unique(self.row[self.size > band])[:10]:
            yield f"The partition {self.problem.rows.partition_name(row)} is larger than the tolerance leaves room for."

    def _possible_receivers(self, at: int) -> list[int]:
        fits = (self.load + self.size[at] <= self.upper) & self.sharing
        return [broker for broker in np.argsort(self.load - self.upper, kind="stable").tolist() if fits[broker]]

    def _move_replica(self, at: int, receivers: list[int]) -> bool:
        row, giver, size = int(self.row[at]), int(self.broker[at]), float(self.size[at])
        receiver = next((one for one in receivers if self._may_move(row, giver, one, size)), None)
        if receiver is None:
            return False
        self.queue[giver].remove(at)
        self.broker[at] = receiver
        self.holds[row, giver], self.holds[row, receiver] = False, True
        self.load[giver] -= size
        self.load[receiver] += size
        self.free[receiver] -= size
        return True

    def _may_move(self, row: int, giver: int, receiver: int, size: float) -> bool:
        if self.holds[row, receiver] or self.free[receiver] < size:
            return False
        leaves, enters = self.rack[giver], self.rack[receiver]
        if leaves == enters:
            return True
        on_rack = np.bincount(self.rack[self.holds[row] & (self.rack >= 0)], minlength=self.low.shape[1])
        may_leave = leaves < 0 or on_rack[leaves] > self.low[row, leaves]
        return bool(may_leave and (enters < 0 or on_rack[enters] < self.high[row, enters]))
