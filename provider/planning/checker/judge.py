"""The bounds of an even cluster that the checker compares a plan with, recomputed from the snapshot alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_steward.planning.checker.fair import Fair

__all__ = ["Court", "Position", "position_of"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Court:
    """The brokers that may hold a replica, in order of their ids; `rack` is -1 for none.

    Brokers in `barred` keep their replicas and receive none. The fair shares may then be out of reach. A plan must then
    come as near to them as possible (`lenient`), instead of staying within them.
    """

    ids: Ints
    rack: Ints
    barred: Bools
    fair: Fair

    @classmethod
    def of(cls, brokers: pa.Table, options: Mapping[str, Any]) -> Court:
        """Build the constraints from a snapshot's brokers and a plan's options."""
        usable = brokers.filter(pc.is_in(brokers["state"], pa.array(["live", "new"]))).sort_by("broker")
        ids = usable["broker"].to_numpy().astype(np.int64)
        rack = _racks(usable["rack"].to_pylist(), rack_aware=bool(options.get("rack_aware", True)))
        fair = Fair(rack, _capacity(usable["capacity"].to_pylist()), own_rack=options.get("rackless") == "own-rack")
        return cls(ids, rack, np.isin(ids, options.get("exclude_brokers") or []), fair)

    @property
    def lenient(self) -> bool:
        """Return True if the fair shares may be out of reach."""
        return bool(self.barred.any())

    def broker_bounds(self, factors: Mapping[int, int], held: Ints) -> tuple[Ints, Ints]:
        """Return the fewest and most replicas per broker; `held` is the number that each has now."""
        return self._within_reach(self.fair.broker_bounds(factors), held)

    def cell_bounds(self, topic: Ints, factor: Ints, held: Ints) -> tuple[Ints, Ints]:
        """Return the fewest and most replicas per topic and broker; `held` is the number that each has now."""
        return self._within_reach(self.fair.cell_bounds(topic, factor), held)

    def rack_bounds(self, factor: Ints, held: Bools) -> tuple[Ints, Ints]:
        """Return the fewest and most replicas per partition and rack, on brokers that hold it or may receive it."""
        low, high = (np.zeros((len(factor), self.fair.racks), np.int64) for _ in range(2))
        kinds, which = np.unique(np.column_stack([factor, held[:, self.barred]]), axis=0, return_inverse=True)
        for kind, (value, *holds) in enumerate(kinds.tolist()):
            reach = ~self.barred
            reach[self.barred] = holds
            mine = which.ravel() == kind
            low[mine], high[mine] = self.fair.racks_for(value, reach)
        return low, high

    def _within_reach(self, bounds: tuple[Ints, Ints], held: Ints) -> tuple[Ints, Ints]:
        low, high = (np.where(self.barred, np.minimum(bound, held), bound) for bound in bounds)
        return low, high


@dataclass(frozen=True)
class Position:
    """A plan's outcome and its starting point, over the brokers of its `court`.

    `held` (before) and `placed` (after) are per partition and broker. Bounds are pairs (fewest, most).
    """

    topics: tuple[str, ...]
    topic: Ints
    factor: Ints
    held: Bools
    placed: Bools
    court: Court
    rack_bounds: tuple[Ints, Ints]
    cell_bounds: tuple[Ints, Ints]
    broker_bounds: tuple[Ints, Ints]

    @property
    def rack(self) -> Ints:
        """Each broker's rack, -1 for none."""
        return self.court.rack

    @property
    def cells(self) -> Ints:
        """Replicas per topic and broker after the plan."""
        return _cells(self.topic, self.placed, len(self.topics))

    @property
    def moves(self) -> int:
        """The number of replicas that the plan adds."""
        return int((self.placed & ~self.held).sum())

    @property
    def factors(self) -> dict[int, int]:
        """The number of partitions per replication factor."""
        return dict(Counter(self.factor.tolist()))


def position_of(brokers: pa.Table, partitions: pa.Table, after: pa.Table, options: Mapping[str, Any]) -> Position:
    """Return the position that a plan leads to.

    `partitions` are those that the plan may touch; `after` has the new replicas of the plan's rows. The `broker_bounds`
    of the position are those of these partitions alone.
    """
    court = Court.of(brokers, options)
    old = partitions.sort_by([("topic", "ascending"), ("partition", "ascending")])
    new = _replicas_after(old, after)
    encoded = old["topic"].combine_chunks().dictionary_encode()
    topic = encoded.indices.to_numpy().astype(np.int64)
    factor = old["target_rf"].to_numpy().astype(np.int64)
    held = _table(old["replicas"].combine_chunks(), court.ids)
    topics = tuple(encoded.dictionary.to_pylist())
    return Position(
        topics=topics,
        topic=topic,
        factor=factor,
        held=held,
        placed=_table(new, court.ids),
        court=court,
        rack_bounds=court.rack_bounds(factor, held),
        cell_bounds=court.cell_bounds(topic, factor, _cells(topic, held, len(topics))),
        broker_bounds=court.broker_bounds(Counter(factor.tolist()), held.sum(axis=0)),
    )


def _cells(topic: Ints, replicas: Bools, topics: int) -> Ints:
    row, broker = np.nonzero(replicas)
    width = replicas.shape[1]
    return np.bincount(topic[row] * width + broker, minlength=topics * width).reshape(topics, width)


def _racks(names: Sequence[str | None], *, rack_aware: bool) -> Ints:
    if not rack_aware:
        return np.zeros(len(names), np.int64)
    known = sorted({name for name in names if name is not None})
    return np.array([-1 if name is None else known.index(name) for name in names], np.int64)


def _capacity(given: Sequence[float | None]) -> list[Fraction]:
    exact = [None if value is None else Fraction(value).limit_denominator(10**6) for value in given]
    known = [value for value in exact if value is not None]
    usual = Fraction(sum(known)) / len(known) if known else Fraction(1)
    return [usual if value is None else value for value in exact]


def _replicas_after(old: pa.Table, after: pa.Table) -> pa.Array:
    """Return each partition's replicas after the plan. Arrow cannot join lists, so row numbers are joined."""
    keys = ["topic", "partition"]
    left = old.select(keys).append_column("row", pa.array(np.arange(len(old))))
    right = after.select(keys).append_column("move", pa.array(np.arange(len(after))))
    joined = left.join(right, keys).sort_by("row")
    at = pc.coalesce(pc.add(joined["move"], len(old)), joined["row"])
    lists = [table.combine_chunks().cast(pa.list_(pa.int32())) for table in (old["replicas"], after["after"])]
    return pa.concat_arrays(lists).take(at.combine_chunks())


def _table(flat: pa.ListArray, ids: npt.NDArray[Any]) -> Bools:
    row = np.repeat(np.arange(len(flat)), flat.value_lengths().to_numpy())
    broker = flat.flatten().to_numpy()
    known = np.isin(broker, ids)
    table = np.zeros((len(flat), len(ids)), bool)
    table[row[known], np.searchsorted(ids, broker[known])] = True
    return table
