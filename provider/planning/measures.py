"""What a draft moves and what it makes of the balance: counts of one slice, which add up over the slices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np

from kafka_steward.planning.arrays import Bools, Brokers, Ints, Rows
from kafka_steward.planning.drafts import Draft, left_out, sources
from kafka_steward.planning.quotas import rack_bounds_of

__all__ = ["Measures", "measured", "rack_violations", "spread_badly"]


@dataclass(frozen=True)
class Measures:
    """Sums of one slice, or of all. Arrays are per broker, pairs per (preferred leader, next in line)."""

    counts: dict[str, int]
    replicas_before: Ints
    replicas_after: Ints
    leaders_before: Ints
    leaders_after: Ints
    bytes_in: Ints
    bytes_out: Ints
    pairs_before: Ints
    pairs_after: Ints
    widest: dict[str, int]
    left: list[tuple[str, int, str]]
    notes: list[str]
    #: One price per usable broker that proves the plan minimal; empty where counting proves it, or none were sought.
    prices: list[int]

    @classmethod
    def total(cls, parts: Iterable[Measures]) -> Measures:
        """The measures of all slices together; in the order of the slices."""
        values = {name: [getattr(part, name) for part in parts] for name in (field.name for field in fields(cls))}
        arrays = {name: np.sum(found, axis=0) for name, found in values.items() if isinstance(found[0], np.ndarray)}
        return cls(
            counts={name: sum(found[name] for found in values["counts"]) for name in values["counts"][0]},
            widest={name: max(found[name] for found in values["widest"]) for name in values["widest"][0]},
            left=sorted(one for found in values["left"] for one in found),
            prices=[one for found in values["prices"] for one in found],
            notes=list(dict.fromkeys(one for found in values["notes"] for one in found)),
            **arrays,
        )


def measured(draft: Draft, brokers: Brokers, prices: list[int], *, own_rack: bool) -> Measures:
    """Measure a draft."""
    rows, count = draft.rows, len(brokers)
    added_size = rows.size[draft.row[draft.added]]
    source = np.searchsorted(brokers.ids, sources(rows, brokers))[draft.row[draft.added]]
    first_before, first_after = rows.start[:-1], draft.start[:-1]
    return Measures(
        counts=_counts(draft, brokers, added_size, own_rack=own_rack),
        replicas_before=np.bincount(rows.broker, minlength=count),
        replicas_after=np.bincount(draft.broker, minlength=count),
        leaders_before=np.bincount(rows.broker[first_before], minlength=count),
        leaders_after=np.bincount(draft.broker[first_after], minlength=count),
        bytes_in=_sums(draft.broker[draft.added], added_size, count),
        bytes_out=_sums(np.minimum(source, count - 1), added_size, count),
        pairs_before=_pairs(rows.row, rows.broker, count),
        pairs_after=_pairs(draft.row, draft.broker, count),
        widest={
            "topic_spread_before": _topic_spread(rows, rows.row, rows.broker, brokers),
            "topic_spread_after": _topic_spread(rows, draft.row, draft.broker, brokers),
        },
        left=left_out(draft),
        notes=list(draft.notes),
        prices=prices,
    )


def _counts(draft: Draft, brokers: Brokers, added_size: Ints, *, own_rack: bool) -> dict[str, int]:
    rows = draft.rows
    before = rack_violations(rows.row, rows.broker, len(rows), brokers, own_rack=own_rack)
    after = rack_violations(draft.row, draft.broker, len(rows), brokers, own_rack=own_rack)
    return {
        "partitions": len(rows),
        "partitions_moved": len(draft.changed),
        "replicas_moved": int(draft.added.sum()),
        "bytes_moved": int(added_size.sum()),
        "lower_bound": draft.bound,
        "leader_changes": int(draft.lead_lost.sum()),
        # A preferred leader whose broker holds the partition no more has to be another one.
        "leader_changes_forced": int(draft.removed[rows.start[:-1]].sum()),
        "rack_violations_before": before,
        "rack_violations_after": after,
        "partitions_without_size": int(rows.unsized.sum()),
    }


def rack_violations(row: Ints, broker: Ints, rows: int, brokers: Brokers, *, own_rack: bool) -> int:
    """How many partitions `spread_badly` finds."""
    return int(spread_badly(row, broker, rows, brokers, own_rack=own_rack).sum())


def spread_badly(row: Ints, broker: Ints, rows: int, brokers: Brokers, *, own_rack: bool) -> Bools:
    """Which partitions are less spread over the racks of the usable brokers than they could be."""
    found_bad = np.zeros(rows, bool)
    racks = int(brokers.rack.max(initial=-1)) + 1
    if racks == 0:
        return found_bad
    usable = brokers.target & (brokers.rack >= 0)
    sizes = np.bincount(brokers.rack[usable], minlength=racks).tolist()
    loose = int((brokers.target & (brokers.rack < 0)).sum())
    degree = np.bincount(row, minlength=rows)
    racked = brokers.rack[broker] >= 0
    at = row[racked] * racks + brokers.rack[broker[racked]]
    held = np.bincount(at, minlength=rows * racks).reshape(rows, racks)
    for rf in np.unique(degree).tolist():
        low, high = rack_bounds_of(rf, sizes, loose, own_rack=own_rack)
        bad = ((held > np.maximum(high, 1)) | (held < low)).any(axis=1)
        found_bad |= bad & (degree == rf)
    return found_bad


def _sums(broker: Ints, amount: Ints, count: int) -> Ints:
    sums = np.zeros(count, np.int64)
    np.add.at(sums, broker, amount)
    return sums


def _pairs(row: Ints, broker: Ints, count: int) -> Ints:
    first = np.flatnonzero(np.diff(row, prepend=-1))
    has_next = (first + 1 < len(row)) & (row[np.minimum(first + 1, len(row) - 1)] == row[first])
    lead = first[has_next]
    return np.bincount(broker[lead] * count + broker[lead + 1], minlength=count * count)


def _topic_spread(rows: Rows, row: Ints, broker: Ints, brokers: Brokers) -> int:
    """Of the topic that is spread worst: replicas on its fullest usable broker less those on its emptiest."""
    if not brokers.target.any():
        return 0
    cells = np.bincount(rows.topic[row] * len(brokers) + broker, minlength=len(rows.topics) * len(brokers))
    usable = cells.reshape(len(rows.topics), len(brokers))[:, brokers.target]
    return int((usable.max(axis=1) - usable.min(axis=1)).max(initial=0))
