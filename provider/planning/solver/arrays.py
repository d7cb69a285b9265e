"""A snapshot as arrays: brokers by index, partitions by row, replicas as one flat list. No object per partition.

A *slot* is one replica of one row: `row[s]` is its row, `broker[s]` its broker (an index into the brokers). Slots are
in assignment order within their row, rows in order of topic and number.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_steward.errors import PlanError

__all__ = ["Bools", "Brokers", "Ints", "Rows", "equal_pairs", "member"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

STATES = ("live", "failed", "draining", "new")


@dataclass(frozen=True)
class Brokers:
    """The brokers in order of their ids. `rack` is -1 for none; `target` marks brokers that may receive a replica."""

    ids: Ints
    rack: Ints
    state: tuple[str, ...]
    target: Bools
    capacity: tuple[Fraction, ...]
    free_bytes: Ints
    racks: tuple[str, ...]

    @classmethod
    def of(cls, table: pa.Table, excluded: Collection[int] = (), *, rack_aware: bool = True) -> Brokers:
        """Return the brokers of a snapshot.

        Raises PlanError if there is no broker, if one appears twice or has an unknown state or an invalid capacity, if
        all have failed, or if an excluded broker is unknown.
        """
        rows = sorted(table.to_pylist(), key=lambda row: row["broker"])
        _refuse_broken(rows, excluded)
        racks = sorted({row["rack"] for row in rows if row["rack"] is not None})
        numbers = [racks.index(row["rack"]) if row["rack"] is not None else -1 for row in rows]
        usable = [row["state"] in ("live", "new") and row["broker"] not in excluded for row in rows]
        free = [2**62 if row["usable_bytes"] is None else row["usable_bytes"] for row in rows]
        return cls(
            ids=np.array([row["broker"] for row in rows], np.int64),
            rack=np.array(numbers if rack_aware else [0] * len(rows), np.int64),
            state=tuple(row["state"] for row in rows),
            target=np.array(usable, bool),
            capacity=_capacities([row["capacity"] for row in rows]),
            free_bytes=np.array(free, np.int64),
            racks=tuple(racks) if rack_aware else ("",),
        )

    def __len__(self) -> int:
        return len(self.ids)

    def having(self, *states: str) -> Bools:
        """Return a mask of the brokers in one of the states."""
        return np.array([state in states for state in self.state], bool)


def _refuse_broken(rows: Sequence[dict[str, object]], excluded: Collection[int]) -> None:
    if not rows:
        raise PlanError("The cluster is empty: the snapshot names no broker.")
    ids = [row["broker"] for row in rows]
    twice = next((one for one, other in pairwise(ids) if one == other), None)
    if twice is not None:
        raise PlanError(f"Broker {twice} is in the snapshot twice; take a new snapshot.")
    for row in rows:
        if row["state"] not in STATES:
            raise PlanError(
                f"Broker {row['broker']} has the unknown state {row['state']!r}; there are {', '.join(STATES)}."
            )
    if all(row["state"] == "failed" for row in rows):
        raise PlanError("Every broker of the snapshot has failed: there is none to place a replica on.")
    unknown = sorted(set(excluded) - set(ids))
    if unknown:
        raise PlanError(f"The option exclude_brokers names broker {unknown[0]}, which the snapshot does not have.")


def _capacities(given: Sequence[float | None]) -> tuple[Fraction, ...]:
    known = [Fraction(value).limit_denominator(10**6) for value in given if value is not None]
    if any(value <= 0 for value in known):
        raise PlanError("A broker's capacity is zero or negative; leave it out, or drain the broker.")
    # A broker without a known capacity counts as an average one.
    usual = sum(known, Fraction(0)) / len(known) if known else Fraction(1)
    return tuple(usual if value is None else Fraction(value).limit_denominator(10**6) for value in given)


#: Pairs of rows and brokers up to which a lookup table is used. It takes as many bytes.
_MANY_PAIRS = 1 << 26


@dataclass(frozen=True)
class Rows:
    """Partitions, in order of topic and number. `topic[r]` is an index into `topics`; sizes in bytes, unknown is 0."""

    topics: tuple[str, ...]
    topic: Ints
    number: Ints
    row: Ints
    broker: Ints
    #: Lost replicas on live brokers: their log directories have failed, and they must be replaced.
    lost: Bools
    in_sync: Bools
    in_sync_count: Ints
    leader: Ints
    target_rf: Ints
    size: Ints
    unsized: Bools
    moving: Bools

    @classmethod
    def of(cls, table: pa.Table, brokers: Brokers) -> Rows:
        """Return the rows of a table sorted by topic and partition.

        Raises PlanError that names the first invalid partition.
        """
        encoded = table.column("topic").combine_chunks().dictionary_encode()
        encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
        topics = tuple(encoded.dictionary.to_pylist())
        topic, number = encoded.indices.to_numpy(False).astype(np.int64), _ints(table, "partition")
        names = _Names(topics, topic, number)
        row, ids = _flat(table, "replicas")
        isr_row, isr = _flat(table, "isr")
        _refuse_duplicates(names, row, ids)
        _refuse_bare(names, row)
        broker = _indexed(names, row, ids, brokers)
        moving = (_lengths(table, "adding") > 0) | (_lengths(table, "removing") > 0)
        return cls(
            topics=topics,
            topic=topic,
            number=number,
            row=row,
            broker=broker,
            lost=member(row, ids, *_flat(table, "offline")),
            in_sync=member(row, ids, isr_row, isr),
            in_sync_count=np.bincount(isr_row, minlength=len(topic)),
            leader=_ints(table, "leader"),
            target_rf=_checked_rf(names, _ints(table, "target_rf")),
            size=np.maximum(_ints(table, "bytes"), 0),
            unsized=_ints(table, "bytes", -1) < 0,
            moving=moving,
        )

    def __len__(self) -> int:
        return len(self.topic)

    @cached_property
    def start(self) -> Ints:
        """The start of each row's slots, followed by the end of the last row's slots."""
        return np.searchsorted(self.row, np.arange(len(self) + 1))

    @cached_property
    def degree(self) -> Ints:
        """The number of replicas of each row."""
        return np.diff(self.start)

    @cached_property
    def place(self) -> Ints:
        """Each slot's position in its row; 0 is the preferred leader."""
        return np.arange(len(self.row), dtype=np.int64) - self.start[self.row]

    def name(self, row: int) -> str:
        """Return the row's display name, such as `orders-7`."""
        return f"{self.topics[self.topic[row]]}-{self.number[row]}"

    def cells(self, keep: Bools, brokers: int) -> Ints:
        """Count the slots in `keep` per topic and broker."""
        at = self.topic[self.row[keep]] * brokers + self.broker[keep]
        return np.bincount(at, minlength=len(self.topics) * brokers).reshape(len(self.topics), brokers)


@dataclass(frozen=True)
class _Names:
    topics: Sequence[str]
    topic: Ints
    number: Ints

    def __getitem__(self, row: int) -> str:
        return f"{self.topics[self.topic[row]]}-{self.number[row]}"


def member(row: Ints, value: Ints, other_row: Ints, other_value: Ints) -> Bools:
    """Return a mask of the pairs (row, value) that are among the other pairs."""
    values = 1 + max(int(value.max(initial=0)), int(other_value.max(initial=0)))
    pairs = values * (1 + max(int(row.max(initial=0)), int(other_row.max(initial=0))))
    mine, other = row * values + value, other_row * values + other_value
    if pairs > _MANY_PAIRS:
        return np.isin(mine, other)
    # A table of all pairs takes a fraction of the time that sorting takes.
    found = np.zeros(pairs, bool)
    found[other] = True
    return np.asarray(found[mine], bool)


def equal_pairs(left: Ints, right: Ints) -> tuple[Ints, Ints]:
    """Return the indices of all pairs of equal values, in order of the left."""
    order = np.argsort(right, kind="stable")
    first = np.searchsorted(right[order], left, "left")
    count = np.searchsorted(right[order], left, "right") - first
    index = np.repeat(np.arange(len(left)), count)
    within = np.arange(len(index)) - np.repeat(np.cumsum(count) - count, count)
    return index, order[np.repeat(first, count) + within]


def _ints(table: pa.Table, name: str, unknown: int = 0) -> Ints:
    column = pc.fill_null(table.column(name).cast(pa.int64()), unknown)
    return np.asarray(column.to_numpy(), dtype=np.int64)


def _lengths(table: pa.Table, name: str) -> Ints:
    return np.asarray(pc.fill_null(pc.list_value_length(table.column(name)), 0).to_numpy(), dtype=np.int64)


def _flat(table: pa.Table, name: str) -> tuple[Ints, Ints]:
    owner = np.repeat(np.arange(table.num_rows, dtype=np.int64), _lengths(table, name))
    return owner, np.asarray(pc.list_flatten(table.column(name)).to_numpy(), dtype=np.int64)


def _refuse_duplicates(names: _Names, row: Ints, ids: Ints) -> None:
    same = (names.topic[1:] == names.topic[:-1]) & (names.number[1:] == names.number[:-1])
    if same.any():
        raise PlanError(f"The partition {names[int(same.argmax())]} is in the snapshot twice; take a new snapshot.")
    order = np.lexsort((ids, row))
    twice = (row[order][1:] == row[order][:-1]) & (ids[order][1:] == ids[order][:-1])
    if twice.any():
        at = order[int(twice.argmax())]
        raise PlanError(f"The partition {names[int(row[at])]} lists broker {ids[at]} twice; mend its assignment.")


def _refuse_bare(names: _Names, row: Ints) -> None:
    bare = np.bincount(row, minlength=len(names.topic)) == 0
    if bare.any():
        raise PlanError(f"The partition {names[int(bare.argmax())]} has no replica at all; take a new snapshot.")


def _indexed(names: _Names, row: Ints, ids: Ints, brokers: Brokers) -> Ints:
    index = np.searchsorted(brokers.ids, ids)
    known = brokers.ids[np.minimum(index, len(brokers) - 1)] == ids
    if not known.all():
        at = int((~known).argmax())
        raise PlanError(
            f"The partition {names[int(row[at])]} is on broker {ids[at]}, which the snapshot does not have."
        )
    return index


def _checked_rf(names: _Names, target: Ints) -> Ints:
    if (target < 1).any():
        at = int((target < 1).argmax())
        raise PlanError(f"The partition {names[at]} has the replication factor {target[at]}; it must be at least 1.")
    return target
