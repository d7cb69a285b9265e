"""Compute the bounds of an even cluster, with which the checker compares a plan, from the snapshot alone.

The planner computes fair shares, too. Here they are computed a second time on purpose: this code is written from the
definition and shares no module with the planner's, so that a mistake in one of them becomes a contradiction.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class BrokerConstraints:
    """The brokers that may hold a replica, in order of their ids; `rack` is -1 for none.

    Brokers in `receive_excluded` keep their replicas and receive none. The fair shares may then be out of reach: a plan
    must come as near to them as possible (`soft`), instead of staying within them. If `own_rack`, each broker without a
    rack is a rack of its own.
    """

    ids: Ints
    rack: Ints
    receive_excluded: Bools
    capacity: list[Fraction]
    own_rack: bool
    #: The most replicas that a partition of the cluster is to have.
    largest_factor: int = 0
    #: How even each topic is to be: the option `topic_spread`.
    topic_spread: str = "1"

    @classmethod
    def of(cls, brokers: pa.Table, options: Mapping[str, Any], largest_factor: int = 0) -> BrokerConstraints:
        """Build the constraints from a snapshot's brokers, a plan's options and the cluster's largest factor."""
        usable = brokers.filter(pc.is_in(brokers["state"], pa.array(["live", "new"]))).sort_by("broker")
        ids = usable["broker"].to_numpy().astype(np.int64)
        names = usable["rack"].to_pylist() if options.get("rack_aware", True) else [""] * len(ids)
        known = sorted({name for name in names if name is not None})
        return cls(
            ids=ids,
            rack=np.array([-1 if name is None else known.index(name) for name in names], np.int64),
            receive_excluded=np.isin(ids, options.get("exclude_brokers") or []),
            capacity=exact_capacities(usable["capacity"].to_pylist()),
            own_rack=options.get("rackless") == "own-rack",
            largest_factor=largest_factor,
            topic_spread=options.get("topic_spread", "1"),
        )

    @property
    def soft(self) -> bool:
        """Return True if the fair shares may be out of reach.

        Excluded brokers may lack what they cannot receive. Brokers without a rack may hold more than their share, of
        partitions that have more replicas than there are racks.
        """
        mixed = bool(self.rackless) and not self.own_rack
        return bool(self.receive_excluded.any()) or (mixed and 0 < self.rack_count < self.largest_factor)

    @cached_property
    def rack_count(self) -> int:
        """The number of racks."""
        return int(self.rack.max(initial=-1)) + 1

    @cached_property
    def rack_members(self) -> list[list[int]]:
        """The brokers of each rack."""
        return [np.flatnonzero(self.rack == number).tolist() for number in range(self.rack_count)]

    @cached_property
    def rackless(self) -> list[int]:
        """The brokers without a rack."""
        rackless: list[int] = np.flatnonzero(self.rack < 0).tolist()
        return rackless

    def broker_bounds(self, factors: Mapping[int, int], held: Ints) -> tuple[Ints, Ints]:
        """Return the fewest and most replicas per broker; `held` is each broker's number now.

        `factors` maps a replication factor to its number of partitions.
        """
        low, high = self._limit_receive_excluded(
            self._floors_and_ceilings(np.array([list(factors.values())]), list(factors)), held
        )
        return low[0], high[0]

    def cell_bounds(self, topic: Ints, factor: Ints, held: Ints) -> tuple[Ints, Ints]:
        """Return the fewest and most replicas per topic and broker; `held` is the number now."""
        factors, which = np.unique(factor, return_inverse=True)
        counts = count_pairs(topic, which, (int(topic.max(initial=-1)) + 1, len(factors)))
        low, high = self._floors_and_ceilings(counts, factors.tolist())
        partitions = counts.sum(axis=1, keepdims=True)
        slack = partitions if self.topic_spread == "any" else int(self.topic_spread) - 1
        wider = np.maximum(low - slack, 0), np.where(high > 0, np.minimum(high + slack, partitions), 0)
        return self._limit_receive_excluded(wider, held)

    def rack_bounds(self, factor: Ints, held: Bools) -> tuple[Ints, Ints]:
        """Return the fewest and most replicas per partition and rack, on brokers that hold it or may receive it.

        Where brokers without a rack follow no rack rule, no partition has to be spread better than it is, and none may
        be spread worse. A rack then keeps at most what it has, or what it would have if there were no such brokers.
        """
        low, high = (np.zeros((len(factor), self.rack_count), np.int64) for _ in range(2))
        now = np.column_stack([held[:, group].sum(axis=1) for group in self.rack_members] or [np.zeros((len(held), 0))])
        kinds, which = np.unique(np.column_stack([factor, held[:, self.receive_excluded]]), axis=0, return_inverse=True)
        # A receive-excluded broker counts only for partitions that it holds. Partitions with the same factor and on the
        # same excluded brokers have the same bounds.
        for kind, (value, *holds) in enumerate(kinds.tolist()):
            reach = ~self.receive_excluded
            reach[self.receive_excluded] = holds
            rows = np.flatnonzero(which.ravel() == kind)
            low[rows], high[rows] = self.reachable_rack_bounds(value, reach, spread=True)
            if not self.own_rack:
                kept = np.minimum(now[rows], self.reachable_rack_bounds(value, reach)[1])
                high[rows] = np.maximum(high[rows], kept)
        return low, high

    def reachable_rack_bounds(self, factor: int, reach: Bools, *, spread: bool = False) -> tuple[list[int], list[int]]:
        """Return the fewest and most replicas per rack of a partition that only the brokers in `reach` can hold.

        With `spread`, brokers without a rack take as many replicas as they can, so that racks hold the fewest.
        """
        sizes = [int(reach[group].sum()) for group in self.rack_members]
        rackless = int(reach[self.rackless].sum())
        spare = rackless if spread or self.own_rack or sum(sizes) < factor else 0
        # Fill all racks to the same height, one replica at a time, until every replica has a place.
        placed, height = min(factor, sum(sizes) + spare), 1
        while sum(min(height, size) for size in sizes) + spare < placed:
            height += 1
        return [min(height - 1, size) for size in sizes], [min(height, size) for size in sizes]

    def _limit_receive_excluded(self, bounds: tuple[Ints, Ints], held: Ints) -> tuple[Ints, Ints]:
        low, high = (np.where(self.receive_excluded, np.minimum(bound, held), bound) for bound in bounds)
        return low, high

    def _floors_and_ceilings(self, counts: Ints, factors: Sequence[int]) -> tuple[Ints, Ints]:
        """Return the floors and ceilings of sums of shares.

        Each row of `counts` stands for one sum: it holds the number of partitions of each factor.
        """
        shares = [self._broker_shares(factor) for factor in factors]
        # Whole multiples of a common denominator are exact, and NumPy can add them.
        whole = math.lcm(*(share.denominator for row in shares for share in row))
        parts = [[int(share * whole) for share in row] for row in shares]
        # Use Python integers where 64 bits would not hold the sums. No share is above 1.
        kind = np.min_scalar_type(-whole * int(counts.sum()))
        sums = counts @ np.array(parts, kind).reshape(len(factors), len(self.rack))
        return np.asarray(sums // whole, np.int64), np.asarray(-(-sums // whole), np.int64)

    def _broker_shares(self, factor: int) -> list[Fraction]:
        low, high = self.reachable_rack_bounds(factor, np.full(len(self.rack), True))
        groups = [*self.rack_members, *([b] for b in self.rackless)]
        weights = {number: Fraction(sum(self.capacity[b] for b in group)) for number, group in enumerate(groups)}
        fewest = dict(enumerate([*map(Fraction, low), *([Fraction(0)] * len(self.rackless))]))
        most = dict(enumerate([*map(Fraction, high), *([Fraction(1)] * len(self.rackless))]))
        shares: dict[int, Fraction] = {}
        for number, amount in _fill_proportionally(weights, fewest, most, Fraction(factor)).items():
            inside = {broker: self.capacity[broker] for broker in groups[number]}
            none, whole = dict.fromkeys(inside, Fraction(0)), dict.fromkeys(inside, Fraction(1))
            shares |= _fill_proportionally(inside, none, whole, amount)
        return [shares[broker] for broker in range(len(self.rack))]


def _fill_proportionally(
    weights: Mapping[int, Fraction], fewest: Mapping[int, Fraction], most: Mapping[int, Fraction], total: Fraction
) -> dict[int, Fraction]:
    """Divide `total` in proportion to the weights.

    An amount beyond a limit is fixed at the limit, and the rest of the total is divided again.
    """
    amounts: dict[int, Fraction] = {}
    while len(amounts) < len(weights):
        free = [number for number in weights if number not in amounts]
        left = total - sum(amounts.values())
        level = left / sum(weights[number] for number in free)
        want = {number: weights[number] * level for number in free}
        fixed = {number: min(max(want[number], fewest[number]), most[number]) for number in free}
        beyond = left - sum(fixed.values())
        # Fix the side that binds more first: the next round could undo fixing the other side as well.
        if beyond > 0:
            fixed = {number: fixed[number] for number in free if fixed[number] < want[number]}
        if beyond < 0:
            fixed = {number: fixed[number] for number in free if fixed[number] > want[number]}
        amounts |= fixed
    return amounts


def exact_capacities(given: Sequence[float | None]) -> list[Fraction]:
    """Return capacities as fractions with a denominator of at most a million; a missing capacity is the mean."""
    exact = [None if value is None else Fraction(value).limit_denominator(10**6) for value in given]
    known = [value for value in exact if value is not None]
    usual = Fraction(sum(known)) / len(known) if known else Fraction(1)
    return [usual if value is None else value for value in exact]


@dataclass(frozen=True)
class PlacementOutcome:
    """A plan's outcome and its starting point, over the brokers of its constraints.

    `held` (before) and `placed` (after) are per partition and broker. Bounds are pairs (fewest, most).
    """

    topics: tuple[str, ...]
    topic: Ints
    factor: Ints
    held: Bools
    placed: Bools
    constraints: BrokerConstraints
    rack_bounds: tuple[Ints, Ints]
    cell_bounds: tuple[Ints, Ints]
    broker_bounds: tuple[Ints, Ints]

    @property
    def rack(self) -> Ints:
        """Each broker's rack, -1 for none."""
        return self.constraints.rack

    @property
    def cell_counts(self) -> Ints:
        """Replicas per topic and broker after the plan."""
        return _count_cells(self.topic, self.placed, len(self.topics))

    @property
    def factor_counts(self) -> dict[int, int]:
        """The number of partitions per replication factor."""
        return dict(Counter(self.factor.tolist()))


def build_outcome(
    brokers: pa.Table,
    partitions: pa.Table,
    after: pa.Table,
    options: Mapping[str, Any],
    largest_factor: int | None = None,
) -> PlacementOutcome:
    """Return the outcome of a plan.

    `partitions` are those that the plan may touch; `after` has the new replicas of the plan's rows. The `broker_bounds`
    of the outcome count these partitions alone. So does `largest_factor`, unless the cluster's is given.
    """
    if largest_factor is None:
        largest_factor = pc.max(partitions["target_rf"]).as_py() or 0
    constraints = BrokerConstraints.of(brokers, options, largest_factor)
    old = partitions.sort_by([("topic", "ascending"), ("partition", "ascending")])
    encoded = old["topic"].combine_chunks().dictionary_encode()
    topic = encoded.indices.to_numpy().astype(np.int64)
    factor = old["target_rf"].to_numpy().astype(np.int64)
    held = _replica_mask(old["replicas"].combine_chunks(), constraints.ids)
    topics = tuple(encoded.dictionary.to_pylist())
    return PlacementOutcome(
        topics=topics,
        topic=topic,
        factor=factor,
        held=held,
        placed=_replica_mask(_replicas_after(old, after), constraints.ids),
        constraints=constraints,
        rack_bounds=constraints.rack_bounds(factor, held),
        cell_bounds=constraints.cell_bounds(topic, factor, _count_cells(topic, held, len(topics))),
        broker_bounds=constraints.broker_bounds(Counter(factor.tolist()), held.sum(axis=0)),
    )


def _count_cells(topic: Ints, replicas: Bools, topics: int) -> Ints:
    row, broker = np.nonzero(replicas)
    return count_pairs(topic[row], broker, (topics, replicas.shape[1]))


def count_pairs(row: Ints, column: Ints, shape: tuple[int, int]) -> Ints:
    """Return a table of that shape with the number of times that each pair (row, column) occurs."""
    return np.bincount(row * shape[1] + column, minlength=shape[0] * shape[1]).reshape(shape)


def _replicas_after(old: pa.Table, after: pa.Table) -> pa.Array:
    # Arrow cannot join lists, so row numbers are joined.
    keys = ["topic", "partition"]
    left = old.select(keys).append_column("row", pa.array(np.arange(len(old))))
    right = after.select(keys).append_column("move", pa.array(np.arange(len(after))))
    joined = left.join(right, keys).sort_by("row")
    at = pc.coalesce(pc.add(joined["move"], len(old)), joined["row"])
    lists = [table.combine_chunks().cast(pa.list_(pa.int32())) for table in (old["replicas"], after["after"])]
    return pa.concat_arrays(lists).take(at.combine_chunks())


def _replica_mask(flat: pa.ListArray, ids: Ints) -> Bools:
    row = np.repeat(np.arange(len(flat)), flat.value_lengths().to_numpy())
    broker = flat.flatten().to_numpy()
    known = np.isin(broker, ids)
    table = np.zeros((len(flat), len(ids)), bool)
    table[row[known], np.searchsorted(ids, broker[known])] = True
    return table
