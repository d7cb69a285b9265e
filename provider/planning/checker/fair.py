"""Fair shares: how many of the placed replicas each broker is entitled to, as exact fractions.

This is a second implementation on purpose. It is written from the definition and shares no module with the planner's
own, so that a mistake in one of them becomes a contradiction between the two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

__all__ = ["Fair"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Fair:
    """Fair shares, found by dividing the total and cutting what is beyond a bound until nothing changes."""

    def __init__(self, rack: Ints, capacity: list[Fraction], *, own_rack: bool) -> None:
        self.rack, self.capacity, self.own_rack = rack, capacity, own_rack
        self.racks = int(rack.max(initial=-1)) + 1
        self.members = [np.flatnonzero(rack == number).tolist() for number in range(self.racks)]
        self.loose = np.flatnonzero(rack < 0).tolist()

    def cell_bounds(self, topic: Ints, factor: Ints) -> tuple[Ints, Ints]:
        """Return floors and ceilings per topic and broker."""
        factors, which = np.unique(factor, return_inverse=True)
        counts = np.zeros((int(topic.max(initial=-1)) + 1, len(factors)), np.int64)
        np.add.at(counts, (topic, which), 1)
        return self._rounded(counts, factors.tolist())

    def broker_bounds(self, factors: Mapping[int, int]) -> tuple[Ints, Ints]:
        """Return floors and ceilings per broker; `factors` maps a replication factor to its number of partitions."""
        low, high = self._rounded(np.array([list(factors.values())]), list(factors))
        return low[0], high[0]

    def _rounded(self, counts: Ints, factors: Sequence[int]) -> tuple[Ints, Ints]:
        """Return the floors and ceilings of sums of shares.

        Each row of `counts` stands for one sum, and holds the number of partitions of each factor.
        """
        shares = [self._shares(factor) for factor in factors]
        whole = math.lcm(*(share.denominator for row in shares for share in row))
        parts = [[int(share * whole) for share in row] for row in shares]
        # Use Python integers where 64 bits would not hold the sums. No share is above 1.
        kind = np.min_scalar_type(-whole * int(counts.sum()))
        sums = counts @ np.array(parts, kind).reshape(len(factors), len(self.rack))
        return np.asarray(sums // whole, np.int64), np.asarray(-(-sums // whole), np.int64)

    def racks_for(self, factor: int, reach: Bools) -> tuple[list[int], list[int]]:
        """Return the fewest and most replicas per rack of a partition that only the brokers in `reach` can hold."""
        sizes = [int(reach[group].sum()) for group in self.members]
        loose = int(reach[self.loose].sum())
        spare = loose if self.own_rack or sum(sizes) < factor else 0
        placed, height = min(factor, sum(sizes) + spare), 1
        while sum(min(height, size) for size in sizes) + spare < placed:
            height += 1
        return [min(height - 1, size) for size in sizes], [min(height, size) for size in sizes]

    def _shares(self, factor: int) -> list[Fraction]:
        low, high = self.racks_for(factor, np.full(len(self.rack), True))
        groups = [*self.members, *([b] for b in self.loose)]
        weights = {number: Fraction(sum(self.capacity[b] for b in group)) for number, group in enumerate(groups)}
        fewest = dict(enumerate([*map(Fraction, low), *([Fraction(0)] * len(self.loose))]))
        most = dict(enumerate([*map(Fraction, high), *([Fraction(1)] * len(self.loose))]))
        shares: dict[int, Fraction] = {}
        for number, amount in _handed_out(weights, fewest, most, Fraction(factor)).items():
            inside = {broker: self.capacity[broker] for broker in groups[number]}
            none, whole = dict.fromkeys(inside, Fraction(0)), dict.fromkeys(inside, Fraction(1))
            shares |= _handed_out(inside, none, whole, amount)
        return [shares[broker] for broker in range(len(self.rack))]


def _handed_out(
    weights: Mapping[int, Fraction], fewest: Mapping[int, Fraction], most: Mapping[int, Fraction], total: Fraction
) -> dict[int, Fraction]:
    """Divide `total` in proportion to the weights.

    An amount beyond a limit is fixed at the limit, and the remaining amounts are divided again.
    """
    amounts: dict[int, Fraction] = {}
    while len(amounts) < len(weights):
        free = [one for one in weights if one not in amounts]
        left = total - sum(amounts.values())
        level = left / sum(weights[one] for one in free)
        want = {one: weights[one] * level for one in free}
        fixed = {one: min(max(want[one], fewest[one]), most[one]) for one in free}
        beyond = left - sum(fixed.values())
        # Fix the side that binds more first: the next round could undo fixing the other side as well.
        if beyond > 0:
            fixed = {one: fixed[one] for one in free if fixed[one] < want[one]}
        if beyond < 0:
            fixed = {one: fixed[one] for one in free if fixed[one] > want[one]}
        amounts |= fixed
    return amounts
