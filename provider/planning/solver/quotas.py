"""Fair shares: bounds per rack, shares per broker, floors and ceilings per topic.

A broker's fair share of a partition is computed by water filling in two levels: the racks share the replicas in
proportion to their capacity within their bounds, and the brokers of a rack share the rack's amount, at most one replica
each. Shares are exact fractions: the floor of a float that should be 5 may be 4.

Rack bounds and shares together are KAFKA-19048's rack quotas. With as many racks as replicas, every rack gets one
replica of each partition. With more racks than replicas, each rack gets its weight, at most one. Fewer racks are filled
evenly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Ints", "fair_bounds", "rack_bounds", "shares", "water_fill"]

Ints = npt.NDArray[np.int64]


def rack_bounds(rf: int, sizes: Sequence[int], unracked: int) -> tuple[list[int], list[int]]:
    """Return the fewest and the most replicas of one partition on each rack, spread as far as the racks allow.

    `sizes` are the numbers of brokers of each rack. `unracked` is the number of brokers without a rack constraint that
    may be needed: the caller passes them only if each is a rack of its own, or if the racks alone have too few brokers.
    """
    most = max(sizes, default=0)
    height = next((u for u in range(1, most + 1) if sum(min(u, size) for size in sizes) + unracked >= rf), most)
    low = [min(height - 1, size) for size in sizes]
    return low, [min(height, size) for size in sizes]


def water_fill(weights: Sequence[Fraction], low: Sequence[int], high: Sequence[int], total: int) -> list[Fraction]:
    """Return amounts in proportion to `weights`, each within its bounds, that add up to `total` or come nearest."""
    bounds = [Fraction(bound) for bound in (*low, *high)]
    levels = sorted({bound / weight for bound, weight in zip(bounds, [*weights, *weights], strict=True) if weight})
    filled = [_clamped(weights, low, high, level) for level in levels] or [[Fraction(bound) for bound in low]]
    above = next((index for index, amounts in enumerate(filled) if sum(amounts) >= total), None)
    if above is None:
        return filled[-1]
    if above == 0 or sum(filled[above]) == total:
        return filled[above]
    under, over = filled[above - 1], filled[above]
    # Between two neighbouring levels every amount grows linearly.
    part = Fraction(total - sum(under)) / Fraction(sum(over) - sum(under))
    return [a + (b - a) * part for a, b in zip(under, over, strict=True)]


def _clamped(weights: Sequence[Fraction], low: Sequence[int], high: Sequence[int], level: Fraction) -> list[Fraction]:
    return [max(Fraction(lo), min(Fraction(hi), w * level)) for w, lo, hi in zip(weights, low, high, strict=True)]


def shares(rf: int, racks: Sequence[int], capacity: Sequence[Fraction], *, own_rack: bool) -> list[Fraction]:
    """Return each broker's fair share of one partition with `rf` replicas.

    The shares add up to `rf`, or to one each if there are fewer brokers. `racks` holds each broker's rack number, -1
    for none. The caller leaves out brokers that may hold nothing.
    """
    numbers = sorted({rack for rack in racks if rack >= 0})
    members = [[b for b, rack in enumerate(racks) if rack == number] for number in numbers]
    loose = [b for b, rack in enumerate(racks) if rack < 0]
    low, high = rack_bounds_of(rf, [len(group) for group in members], len(loose), own_rack=own_rack)
    groups = [*members, *([b] for b in loose)]
    weights = [Fraction(sum(capacity[b] for b in group)) for group in groups]
    amounts = water_fill(weights, [*low, *([0] * len(loose))], [*high, *([1] * len(loose))], rf)
    share: list[Fraction] = [Fraction(0)] * len(racks)
    for group, amount in zip(groups, amounts, strict=True):
        for broker, part in zip(group, _within(group, capacity, amount), strict=True):
            share[broker] = part
    return share


def rack_bounds_of(rf: int, sizes: Sequence[int], loose: int, *, own_rack: bool) -> tuple[list[int], list[int]]:
    """Return `rack_bounds` with brokers without a rack treated as the option `rackless` says."""
    return rack_bounds(rf, sizes, loose if own_rack or sum(sizes) < rf else 0)


def _within(group: Sequence[int], capacity: Sequence[Fraction], amount: Fraction) -> list[Fraction]:
    # Scaled to multiples of 1/denominator, so that one water filling serves both levels.
    unit = amount.denominator
    weights = [capacity[broker] for broker in group]
    return [part / unit for part in water_fill(weights, [0] * len(group), [unit] * len(group), amount.numerator)]


def fair_bounds(counts: Ints, share_of: Sequence[Sequence[Fraction]]) -> tuple[Ints, Ints, Ints, Ints]:
    """Return floors and ceilings of the fair share, per topic and broker, and per broker over all topics.

    `counts[t, i]` is the number of partitions of topic t with the i-th replication factor; `share_of[i]` is each
    broker's share of one such partition.
    """
    denominator = math.lcm(*(share.denominator for row in share_of for share in row)) if share_of else 1
    numerators = [[int(share * denominator) for share in row] for row in share_of]
    largest = max((value for row in numerators for value in row), default=0) * (int(counts.sum()) + 1)
    # Both types are exact: capacities in uneven proportions need more than 64 bits.
    kind = np.int64 if largest < 2**62 else object
    width = len(share_of[0]) if share_of else 0
    sums = counts.astype(kind) @ np.array(numerators, dtype=kind).reshape(len(share_of), width)
    total = sums.sum(axis=0)
    return _floor(sums, denominator), _ceil(sums, denominator), _floor(total, denominator), _ceil(total, denominator)


def _floor(sums: npt.NDArray[Any], denominator: int) -> Ints:
    return np.asarray(sums // denominator, dtype=np.int64)


def _ceil(sums: npt.NDArray[Any], denominator: int) -> Ints:
    return np.asarray(-((-sums) // denominator), dtype=np.int64)
