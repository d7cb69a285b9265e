"""The failover order of one shard among several: exchanges even out pairs of neighbours, the highest worth first.

The flow of `leaders.succession` finds the least sum of squares of one shard, which is not that of the cluster. These
exchanges come as near to that in a fraction of the time, and leave in place what is already even.
"""

from __future__ import annotations

import numpy as np

from kafka_steward.planning.solver.arrays import Ints

__all__ = ["takeover"]

#: Each round makes at least one exchange that lowers the sum of squares; few rounds make nearly all.
_ROUNDS = 200


def takeover(row: Ints, broker: Ints, brokers: int) -> Ints:
    """Return the slots' brokers with those after the first reordered, place by place.

    Slots are in order in ascending rows.
    """
    broker = broker.copy()
    degree = np.bincount(row)
    start = np.cumsum(degree) - degree
    for place in range(1, int(degree.max(initial=0)) - 1):
        rows = np.flatnonzero(degree > place)
        first = start[rows] + place
        count = degree[rows] - place
        index = np.repeat(np.arange(len(rows)), count)
        at = np.arange(len(index)) - np.repeat(np.cumsum(count) - count, count) + first[index]
        taken = _evened(index, broker[first[index] - 1] * brokers + broker[at], np.cumsum(count) - count)
        _bring_forward(broker, first, at[taken])
    return broker


def _evened(index: Ints, pair: Ints, first: Ints) -> Ints:
    """Return the candidate that each row takes, given each candidate's pair; each row starts with its first."""
    _, pair = np.unique(pair, return_inverse=True)
    height = np.bincount(pair[first], minlength=int(pair.max(initial=-1)) + 1)
    taken = first.copy()
    for _ in range(_ROUNDS):
        source, target = pair[taken][index], pair
        gain = height[source] - height[target] - 1
        better = np.flatnonzero(gain > 0)
        if len(better) == 0:
            break
        # At most one exchange per pair and round, so that every exchange is worth what was computed.
        better = better[np.argsort(-gain[better], kind="stable")]
        better = better[np.sort(np.unique(target[better], return_index=True)[1])]
        better = better[np.sort(np.unique(source[better], return_index=True)[1])]
        better = better[np.sort(np.unique(index[better], return_index=True)[1])]
        better = better[~np.isin(target[better], source[better])]
        np.subtract.at(height, source[better], 1)
        np.add.at(height, target[better], 1)
        taken[index[better]] = better
    return taken


def _bring_forward(broker: Ints, first: Ints, chosen: Ints) -> None:
    """Put the chosen slots first; the slots that they pass keep their order."""
    moved = chosen > first
    first, chosen = first[moved], chosen[moved]
    for step in range(int((chosen - first).max(initial=0))):
        far = chosen - first > step
        at = chosen[far] - step
        broker[at], broker[at - 1] = broker[at - 1], broker[at].copy()
