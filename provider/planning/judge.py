"""What the checker holds a plan against: the bounds of an even cluster, computed anew from the snapshot alone.

This is the second implementation of the fair shares, on purpose: written from the definition, sharing no module with
the planner's own, so that a mistake in one is a contradiction and not a habit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Position", "position_of"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Position:
    """A plan's outcome beside what it started from, over the brokers that may hold a replica.

    `held` and `placed` are per partition and broker, `rack` is -1 for none; bounds are (fewest, most).
    """

    topics: tuple[str, ...]
    topic: Ints
    factor: Ints
    held: Bools
    placed: Bools
    rack: Ints
    rack_bounds: tuple[Ints, Ints]
    cell_bounds: tuple[Ints, Ints]
    broker_bounds: tuple[Ints, Ints]

    @property
    def cells(self) -> Ints:
        """Replicas per topic and broker after the plan."""
        counts = np.zeros((len(self.topics), self.placed.shape[1]), np.int64)
        np.add.at(counts, self.topic, self.placed)
        return counts

    @property
    def moves(self) -> int:
        """Replicas that the plan adds."""
        return int((self.placed & ~self.held).sum())


def position_of(brokers: pa.Table, partitions: pa.Table, after: pa.Table, options: Mapping[str, Any]) -> Position:
    """The position that a plan leads to; `partitions` are those it may touch, `after` has its rows' new replicas."""
    usable = brokers.filter(pc.is_in(brokers["state"], pa.array(["live", "new"]))).sort_by("broker")
    ids = usable["broker"].to_numpy()
    old = partitions.sort_by([("topic", "ascending"), ("partition", "ascending")])
    new = _replicas_after(old, after)
    encoded = old["topic"].combine_chunks().dictionary_encode()
    topic = encoded.indices.to_numpy(False).astype(np.int64)
    factor = old["target_rf"].to_numpy().astype(np.int64)
    rack = _racks(usable["rack"].to_pylist(), rack_aware=bool(options.get("rack_aware", True)))
    fair = _Fair(rack, _capacity(usable["capacity"].to_pylist()), own_rack=options.get("rackless") == "own-rack")
    low, high, least, most = fair.bounds(topic, factor)
    return Position(
        topics=tuple(encoded.dictionary.to_pylist()),
        topic=topic,
        factor=factor,
        held=_table(old["replicas"].combine_chunks(), ids),
        placed=_table(new, ids),
        rack=rack,
        rack_bounds=fair.rack_tables(factor),
        cell_bounds=(low, high),
        broker_bounds=(least, most),
    )


def _racks(names: Sequence[str | None], *, rack_aware: bool) -> Ints:
    if not rack_aware:
        return np.zeros(len(names), np.int64)
    known = sorted({name for name in names if name is not None})
    return np.array([-1 if name is None else known.index(name) for name in names], np.int64)


def _capacity(given: Sequence[float | None]) -> list[Fraction]:
    known = [Fraction(value).limit_denominator(10**6) for value in given if value is not None]
    usual = Fraction(sum(known)) / len(known) if known else Fraction(1)
    return [usual if value is None else Fraction(value).limit_denominator(10**6) for value in given]


def _replicas_after(old: pa.Table, after: pa.Table) -> pa.Array:
    """Each partition's replicas as the plan leaves them. Arrow joins no lists, so their numbers are joined."""
    keys = ["topic", "partition"]
    left = old.select(keys).append_column("row", pa.array(np.arange(len(old))))
    right = after.select(keys).append_column("move", pa.array(np.arange(len(after))))
    joined = left.join(right, keys).sort_by("row")
    at = pc.coalesce(pc.add(joined["move"], len(old)), joined["row"])
    lists = [table.combine_chunks().cast(pa.list_(pa.int32())) for table in (old["replicas"], after["after"])]
    return pa.concat_arrays(lists).take(at.combine_chunks())


def _table(flat: pa.ListArray, ids: npt.NDArray[Any]) -> Bools:
    row = np.repeat(np.arange(len(flat)), flat.value_lengths().to_numpy(False))
    broker = flat.flatten().to_numpy(False)
    at = np.minimum(np.searchsorted(ids, broker), max(len(ids) - 1, 0))
    known = ids[at] == broker if len(ids) else np.zeros(len(broker), bool)
    table = np.zeros((len(flat), len(ids)), bool)
    table[row[known], at[known]] = True
    return table


class _Fair:
    """Fair shares, found by handing out the total and taking back what is beyond a bound until nothing changes."""

    def __init__(self, rack: Ints, capacity: list[Fraction], *, own_rack: bool) -> None:
        self.rack, self.capacity, self.own_rack = rack, capacity, own_rack
        self.racks = int(rack.max(initial=-1)) + 1
        self.members = [np.flatnonzero(rack == number).tolist() for number in range(self.racks)]
        self.loose = np.flatnonzero(rack < 0).tolist()

    def rack_tables(self, factor: Ints) -> tuple[Ints, Ints]:
        """Fewest and most replicas per partition and rack."""
        known = {value: self._racks_for(value) for value in np.unique(factor).tolist()}
        low, high = (np.zeros((len(factor), self.racks), np.int64) for _ in range(2))
        for value, bounds in known.items():
            low[factor == value], high[factor == value] = bounds
        return low, high

    def bounds(self, topic: Ints, factor: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """Floors and ceilings per topic and broker, and per broker."""
        topics, brokers = int(topic.max(initial=-1)) + 1, len(self.rack)
        shares = {value: self._shares(value) for value in np.unique(factor).tolist()}
        sums = [[Fraction(0)] * brokers for _ in range(topics)]
        pairs, counts = np.unique(np.stack([topic, factor]), axis=1, return_counts=True)
        for (one, value), count in zip(pairs.T.tolist(), counts.tolist(), strict=True):
            sums[one] = [had + count * share for had, share in zip(sums[one], shares[value], strict=True)]
        total = [sum((row[b] for row in sums), Fraction(0)) for b in range(brokers)]
        low = np.array([[math.floor(value) for value in row] for row in sums], np.int64).reshape(topics, brokers)
        high = np.array([[math.ceil(value) for value in row] for row in sums], np.int64).reshape(topics, brokers)
        return low, high, np.array([math.floor(v) for v in total]), np.array([math.ceil(v) for v in total])

    def _racks_for(self, factor: int) -> tuple[list[int], list[int]]:
        sizes = [len(group) for group in self.members]
        spare = len(self.loose) if self.own_rack or sum(sizes) < factor else 0
        height = 1
        while sum(min(height, size) for size in sizes) + spare < factor and height < max(sizes, default=1):
            height += 1
        return [min(height - 1, size) for size in sizes], [min(height, size) for size in sizes]

    def _shares(self, factor: int) -> list[Fraction]:
        low, high = self._racks_for(factor)
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
