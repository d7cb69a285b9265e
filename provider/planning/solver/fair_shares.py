"""Compute fair shares: bounds per rack, shares per broker, floors and ceilings per topic.

A broker's fair share of a partition is computed by water filling in two levels: the racks share the replicas in
proportion to their capacity within their bounds, and the brokers of a rack share the rack's amount, at most one replica
each. Shares are exact fractions: the floor of a float that should be 5 may be 4.

Rack bounds and shares together are KAFKA-19048's rack quotas. With as many racks as replicas, every rack gets one
replica of each partition. With more racks than replicas, each rack gets its weight, at most one. Fewer racks are filled
evenly.

`find_crowded_replicas` chooses what a rebalance with `balance="racks"` moves: the replicas that crowd a rack of a
partition that could be spread better, and no others. They are then placed as a heal places missing replicas. Two
numbers are counted: the replicas beyond the most that their rack may hold, and the replicas that the racks lack. The
larger number gives way, and no plan that repairs the partition moves fewer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from kafka_steward.planning.solver.problem import (
    Bools,
    Brokers,
    Disposition,
    Ints,
    Problem,
    held_dispositions,
    rows_that_lag,
)
from kafka_steward.rack_rule import breaks_rack_rule, rack_bounds

#: Stand in place of a broker's rack: the broker has none, or has no share.
_NO_RACK, _NOT_SHARING = -1, -2


#: Many partitions have the same bounds.
_bounds = lru_cache(maxsize=4096)(rack_bounds)


def water_fill(weights: Sequence[Fraction], low: Sequence[int], high: Sequence[int], total: int) -> list[Fraction]:
    """Return amounts in proportion to `weights`, each within its bounds, that add up to `total` or come nearest."""
    # The amounts grow with a common level, and each of them changes its slope only where it meets one of its bounds.
    bounds = [Fraction(bound) for bound in (*low, *high)]
    levels = sorted({bound / weight for bound, weight in zip(bounds, [*weights, *weights], strict=True) if weight})
    filled = [_clamp_shares(weights, low, high, level) for level in levels] or [[Fraction(bound) for bound in low]]
    above = next((index for index, amounts in enumerate(filled) if sum(amounts) >= total), None)
    if above is None:
        return filled[-1]
    if above == 0 or sum(filled[above]) == total:
        return filled[above]
    under, over = filled[above - 1], filled[above]
    # Between two neighbouring levels every amount grows linearly.
    part = Fraction(total - sum(under)) / Fraction(sum(over) - sum(under))
    return [a + (b - a) * part for a, b in zip(under, over, strict=True)]


def _clamp_shares(
    weights: Sequence[Fraction], low: Sequence[int], high: Sequence[int], level: Fraction
) -> list[Fraction]:
    return [max(Fraction(lo), min(Fraction(hi), w * level)) for w, lo, hi in zip(weights, low, high, strict=True)]


@lru_cache(maxsize=64)
def _shares_of(
    rack: tuple[int, ...], capacity: tuple[Fraction, ...], rf: int, *, own_rack: bool
) -> tuple[Fraction, ...]:
    """Return every broker's fair share of one partition with `rf` replicas; 0 for brokers that are not sharing.

    The shares add up to `rf`, or to one each if there are fewer brokers.
    """
    # The shares are the same for all shards, and exact fractions of hundreds of brokers take a while: they are cached.
    numbers = sorted({number for number in rack if number >= 0})
    racks = [[broker for broker, its_rack in enumerate(rack) if its_rack == number] for number in numbers]
    rackless = [broker for broker, number in enumerate(rack) if number == _NO_RACK]
    low, high = rack_bounds(rf, [len(brokers) for brokers in racks], len(rackless), own_rack=own_rack)
    groups = [*racks, *([broker] for broker in rackless)]
    weights = [Fraction(sum(capacity[broker] for broker in group)) for group in groups]
    amounts = water_fill(weights, [*low, *([0] * len(rackless))], [*high, *([1] * len(rackless))], rf)
    share = [Fraction(0)] * len(rack)
    for group, amount in zip(groups, amounts, strict=True):
        # Scaled to multiples of 1/denominator, so that one water filling serves both levels.
        unit, weight = amount.denominator, [capacity[broker] for broker in group]
        parts = water_fill(weight, [0] * len(group), [unit] * len(group), amount.numerator)
        for broker, part in zip(group, parts, strict=True):
            share[broker] = part / unit
    return tuple(share)


def fair_bounds(
    brokers: Brokers, sharing: Bools, factors: Sequence[int], counts: Ints
) -> tuple[Ints, Ints, Ints, Ints]:
    """Return floors and ceilings of the fair share, per topic and broker, and per broker over all topics.

    `counts[t, i]` is the number of partitions of topic t with the replication factor `factors[i]`.
    """
    rack = tuple(np.where(sharing, brokers.rack, _NOT_SHARING).tolist())
    share = [_shares_of(rack, brokers.capacity, factor, own_rack=brokers.own_rack) for factor in factors]
    whole = math.lcm(*(part.denominator for row in share for part in row))
    parts = [[int(part * whole) for part in row] for row in share]
    largest = max((part for row in parts for part in row), default=0) * (int(counts.sum()) + 1)
    # Both types are exact: capacities in uneven proportions need more than 64 bits.
    kind = np.int64 if largest < 2**62 else object
    sums = counts.astype(kind) @ np.array(parts, dtype=kind).reshape(len(parts), len(brokers))
    total = sums.sum(axis=0)
    bounds = (sums // whole, -((-sums) // whole), total // whole, -((-total) // whole))
    low, high, least, most = (np.asarray(bound, dtype=np.int64) for bound in bounds)
    return low, high, least, most


def broker_bounds(brokers: Brokers, factors: Ints, counts: Ints, held: Ints) -> tuple[Ints, Ints]:
    """Return floors and ceilings per broker over all topics.

    `counts` is the number of partitions of each factor; `held` is the number of replicas that the brokers hold now.
    """
    usable = brokers.usable
    _, _, least, most = fair_bounds(brokers, usable, factors.tolist(), counts[None, :])
    return limit_excluded_bounds((least, most), held, usable & ~brokers.receivers)


def widen_bounds(bounds: tuple[Ints, Ints], slack: int | None, partitions: Ints) -> tuple[Ints, Ints]:
    """Return the bounds per topic and broker, wider by `slack` replicas; without a limit, as wide as can be.

    A broker without a share of a topic still gets nothing of it.
    """
    low, high = bounds
    most = np.broadcast_to(partitions[:, None], high.shape)
    if slack is None:
        return np.zeros_like(low), np.where(high > 0, most, 0)
    return np.maximum(low - slack, 0), np.where(high > 0, np.minimum(high + slack, most), 0)


def limit_excluded_bounds(bounds: tuple[Ints, Ints], held: Ints, excluded: Bools) -> tuple[Ints, Ints]:
    """Return the bounds; excluded brokers receive nothing, so that their bounds are cut down to what they hold."""
    low, high = (np.where(excluded, np.minimum(bound, held), bound) for bound in bounds)
    return low, high


def rack_groups(brokers: Brokers) -> Ints:
    """Return each broker's group: its rack, or one more group for all brokers without a rack, a rack to the flow."""
    rack = brokers.rack
    return np.where(rack < 0, int(rack.max(initial=-1)) + 1, rack)


def rack_bound_tables(
    brokers: Brokers, factors: Sequence[int], reach: Bools, *, own_rack: bool = True
) -> tuple[Ints, Ints]:
    """Return the bounds per factor and group, where only the brokers in `reach` count.

    The bounds spread a partition as far as possible: each broker without a rack counts as a rack of its own. Without
    `own_rack`, these brokers are used only if the racks have too few brokers.
    """
    group = rack_groups(brokers)
    groups = int(group.max()) + 1
    sizes = np.bincount(group[reach], minlength=groups)
    racked = np.unique(group[brokers.rack >= 0])
    rackless = int((reach & (brokers.rack < 0)).sum())
    low, high = np.zeros((2, len(factors), groups), np.int64)
    for at, factor in enumerate(factors):
        bounds = rack_bounds(factor, sizes[racked].tolist(), rackless, own_rack=own_rack)
        low[at, racked], high[at, racked] = np.maximum(bounds[0], 0), bounds[1]
        if rackless:
            high[at, -1] = min(factor, rackless)
    return low, high


def rack_bounds_by_row(brokers: Brokers, factor: Ints, held: Ints, reach: Bools) -> tuple[Ints, Ints]:
    """Return the bounds per row and group of partitions that hold `held` replicas per group.

    Where no rack rule binds the brokers without a rack, a rack may keep the replicas of a partition that it has, up to
    the number that it would have without such brokers. It gets no more than in the best spread.
    """
    factors, which = np.unique(factor, return_inverse=True)
    low, high = (table[which] for table in rack_bound_tables(brokers, factors.tolist(), reach))
    if brokers.own_rack:
        return low, high
    _, loose = rack_bound_tables(brokers, factors.tolist(), reach, own_rack=False)
    return low, np.maximum(high, np.minimum(loose[which], held))


def has_scarce_racks(brokers: Brokers, factor: int) -> bool:
    """Return True if the racks are fewer than `factor` replicas, and brokers without a rack are bound by no rack rule.

    The best spread of such partitions may then need more places on brokers without a rack than are fair.
    """
    rackless = brokers.usable & (brokers.rack < 0)
    racks = len(set(brokers.rack[brokers.usable & ~rackless].tolist()))
    return bool(rackless.any()) and 0 < racks < factor and not brokers.own_rack


def rack_spread_violated(row: Ints, broker: Ints, rows: int, brokers: Brokers) -> Bools:
    """Return a mask of the partitions that break the rack rule and that the brokers that receive replicas can mend."""
    return breaks_rack_rule(row, broker, rows, rack=brokers.rack, live=brokers.usable, able=brokers.receivers)


@dataclass(frozen=True)
class CrowdedReplicas:
    """A mask of the replicas that give way, and the rows that lose them.

    `lagging` are the rows that break the rule and stay because a live replica is out of sync.
    """

    give_way: Bools
    row: Ints
    lagging: Ints


def find_crowded_replicas(problem: Problem) -> CrowdedReplicas:
    """Return the replicas that give way: in a crowded rack those on the busiest brokers first, and the leader last."""
    rows, brokers = problem.rows, problem.brokers
    suspect = rack_spread_violated(rows.row, rows.broker, len(rows), brokers)
    suspect &= held_dispositions(problem) == Disposition.UNTOUCHED
    unhealthy = np.zeros(len(rows), bool)
    unhealthy[rows.row[~brokers.usable[rows.broker] | rows.lost]] = True
    lags, lagging = rows_that_lag(problem), list[int]()
    give_way, load = np.zeros(len(rows.row), bool), np.bincount(rows.broker, minlength=len(brokers))
    for row in np.flatnonzero(suspect & ~unhealthy).tolist():
        if lags[row]:
            lagging.append(row)
            continue
        chosen = _choose_of_row(problem, np.arange(rows.row_starts[row], rows.row_starts[row + 1]), load)
        give_way[chosen] = True
        # The next row sees the brokers without the replicas that have left.
        load[rows.broker[chosen]] -= 1
    return CrowdedReplicas(give_way, np.unique(rows.row[give_way]), np.array(lagging, np.int64))


def _choose_of_row(problem: Problem, replicas: Ints, load: Ints) -> list[int]:
    """Return the replicas of a row that give way; `load` has the number of replicas on each broker."""
    rows, brokers = problem.rows, problem.brokers
    broker = dict(zip(replicas.tolist(), rows.broker[replicas].tolist(), strict=True))
    rack = {replica: int(brokers.rack[at]) for replica, at in broker.items() if brokers.rack[at] >= 0}
    # The row's brokers may keep it, even those that receive nothing.
    reach = brokers.receivers.copy()
    reach[rows.broker[replicas]] = True
    racked = reach & (brokers.rack >= 0)
    sizes = np.bincount(brokers.rack[racked], minlength=int(brokers.rack.max(initial=-1)) + 1)
    bounds = _bounds(len(replicas), tuple(sizes.tolist()), int((reach & ~racked).sum()), own_rack=True)
    low, high = (np.maximum(np.array(bound, np.int64), 0) for bound in bounds)
    held = np.bincount(np.array(list(rack.values()), np.int64), minlength=len(low))
    leader = rows.leader[rows.row[replicas[0]]]
    waiting = sorted(
        rack,
        key=lambda replica: (
            *(rows.replica_positions[replica] == 0, brokers.ids[broker[replica]] == leader, rows.in_sync[replica]),
            *(-load[broker[replica]], replica),
        ),
    )
    chosen: list[int] = []
    while (crowded := _next_crowded(held, low, high, placed=len(chosen))) is not None:
        gone = next(replica for replica in waiting if rack[replica] == crowded)
        waiting.remove(gone)
        chosen.append(gone)
        held[crowded] -= 1
    return chosen


def _next_crowded(held: Ints, low: Ints, high: Ints, *, placed: int) -> int | None:
    """Return the fullest rack that still has to give up a replica, after `placed` others; None if no rack has to."""
    # As long as a rack is too full, only such racks give. Then racks give that are above their floor.
    over = (held > high).any()
    if not over and np.maximum(low - held, 0).sum() <= placed:
        return None
    return int(np.where(held > (high if over else low), held, -1).argmax())
