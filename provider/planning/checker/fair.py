"""Fair shares: how many replicas of what is placed each broker is entitled to, as exact fractions.

This is the second implementation of them, on purpose: written from the definition, sharing no module with the
planner's own, so that a mistake in one is a contradiction and not a habit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Fair"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Fair:
    """Fair shares, found by handing out the total and taking back what is beyond a bound until nothing changes."""

    def __init__(self, rack: Ints, capacity: list[Fraction], *, own_rack: bool) -> None:
        self.rack, self.capacity, self.own_rack = rack, capacity, own_rack
        self.racks = int(rack.max(initial=-1)) + 1
        self.members = [np.flatnonzero(rack == number).tolist() for number in range(self.racks)]
        self.loose = np.flatnonzero(rack < 0).tolist()

    def cell_bounds(self, topic: Ints, factor: Ints) -> tuple[Ints, Ints]:
        """Floors and ceilings per topic and broker."""
        factors, which = np.unique(factor, return_inverse=True)
        counts = np.zeros((int(topic.max(initial=-1)) + 1, len(factors)), np.int64)
        np.add.at(counts, (topic, which), 1)
        return self._rounded(counts, factors.tolist())

    def broker_bounds(self, factors: Mapping[int, int]) -> tuple[Ints, Ints]:
        """Floors and ceilings per broker, given how many partitions have which replication factor."""
        counts = np.array([list(factors.values())], np.int64).reshape(1, len(factors))
        low, high = self._rounded(counts, list(factors))
        return low[0], high[0]

    def _rounded(self, counts: Ints, factors: Sequence[int]) -> tuple[Ints, Ints]:
        """`counts` holds one row per sum that is wanted, and in it the partitions of each factor."""
        shares = [self._shares(factor) for factor in factors]
        whole = math.lcm(*(share.denominator for row in shares for share in row)) if shares else 1
        parts = [[int(share * whole) for share in row] for row in shares]
        most = max((part for row in parts for part in row), default=0) * (int(counts.sum()) + 1)
        # Python's own integers where 64 bits would not hold the numerators.
        kind: Any = np.int64 if most < 2**62 else object
        sums = counts.astype(kind) @ np.array(parts, kind).reshape(len(factors), len(self.rack))
        return np.asarray(sums // whole, np.int64), np.asarray(-(-sums // whole), np.int64)

    def racks_for(self, factor: int, reach: Bools) -> tuple[list[int], list[int]]:
        """Fewest and most replicas per rack of a partition that only the brokers in `reach` can hold."""
        sizes = [int(reach[group].sum()) for group in self.members]
        loose = int(reach[self.loose].sum())
        spare = loose if self.own_rack or sum(sizes) < factor else 0
        height = 1
        while sum(min(height, size) for size in sizes) + spare < factor and height < max(sizes, default=1):
            height += 1
        return [min(height - 1, size) for size in sizes], [min(height, size) for size in sizes]

    def _shares(self, factor: int) -> list[Fraction]:
        low, high = self.racks_for(factor, np.ones(len(self.rack), bool))
        groups = [*self.members, *([b] for b in self.loose)]
        weights = [Fraction(sum(self.capacity[b] for b in group)) for group in groups]
        limits = [(Fraction(a), Fraction(b)) for a, b in zip(low, high, strict=True)]
        limits += [(Fraction(0), Fraction(1))] * len(self.loose)
        shares = [Fraction(0)] * len(self.rack)
        for group, amount in zip(groups, _handed_out(weights, limits, Fraction(factor)), strict=True):
            inside = _handed_out([self.capacity[b] for b in group], [(Fraction(0), Fraction(1))] * len(group), amount)
            for broker, part in zip(group, inside, strict=True):
                shares[broker] = part
        return shares


def _handed_out(
    weights: Sequence[Fraction], limits: Sequence[tuple[Fraction, Fraction]], total: Fraction
) -> list[Fraction]:
    """`total` in proportion to the weights; whoever is beyond a limit is fixed at it, and the rest share again."""
    amounts: dict[int, Fraction] = {}
    while len(amounts) < len(weights):
        free = [one for one in range(len(weights)) if one not in amounts]
        left = total - sum(amounts.values(), Fraction(0))
        level = left / sum((weights[one] for one in free), Fraction(0))
        want = {one: weights[one] * level for one in free}
        over = {one: limits[one][1] for one in free if want[one] > limits[one][1]}
        under = {one: limits[one][0] for one in free if want[one] < limits[one][0]}
        excess = sum((want[one] - limits[one][1] for one in over), Fraction(0))
        lack = sum((limits[one][0] - want[one] for one in under), Fraction(0))
        # What binds more is settled first: fixing the other side too could be undone by it.
        fixed = (over if excess >= lack else under) or want
        amounts.update(fixed)
    return [amounts[one] for one in range(len(weights))]
