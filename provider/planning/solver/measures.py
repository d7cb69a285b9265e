"""The moves and the balance of a candidate plan: counts of one shard, which add up over the shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from kafka_steward.planning.solver.arrays import Bools, Brokers, Ints, Rows
from kafka_steward.planning.solver.drafts import Draft, left_out, sources
from kafka_steward.planning.solver.leader_bound import fewest_changes, keepable, leadership_of
from kafka_steward.planning.solver.quotas import rack_bounds_of
from kafka_steward.planning.solver.selection import Fate

__all__ = ["Measures", "measured", "rack_violations", "spread_badly"]

#: Number of topics to name, of those that are spread worst.
_NAMED = 5
_WHEN = ("before", "after")


@dataclass(frozen=True)
class Measures:
    """Sums of one shard, or of all. Arrays are per broker, pairs per (preferred leader, next in line)."""

    counts: dict[str, int]
    replicas_before: Ints
    replicas_after: Ints
    leaders_before: Ints
    leaders_after: Ints
    bytes_before: Ints
    bytes_after: Ints
    bytes_in: Ints
    bytes_out: Ints
    pairs_before: Ints
    pairs_after: Ints
    #: Of the planned partitions: leaders that each broker could keep, and leaders that the plan gives it.
    leaders_keepable: Ints
    leaders_planned: Ints
    #: The fewest leader changes, if the shard's flow was solved.
    leader_bounds: list[int | None]
    #: By "before" and "after": the number of topics per spread, and the worst few by name.
    spreads: dict[str, dict[str, int]]
    widest: dict[str, list[tuple[str, int]]]
    left: list[tuple[str, int, str]]
    notes: list[str]
    #: One price per usable broker that proves the plan minimal. Empty if counting proves it, or no prices were
    #: searched.
    prices: list[int]

    @classmethod
    def total(cls, parts: Iterable[Measures]) -> Measures:
        """Combine the measures of all shards, in the order of the shards."""
        values = {name: [getattr(part, name) for part in parts] for name in (field.name for field in fields(cls))}
        arrays = {name: np.sum(found, axis=0) for name, found in values.items() if isinstance(found[0], np.ndarray)}
        return cls(
            counts={name: sum(found[name] for found in values["counts"]) for name in values["counts"][0]},
            spreads={when: _summed(found[when] for found in values["spreads"]) for when in _WHEN},
            widest={when: _worst([one for found in values["widest"] for one in found[when]]) for when in _WHEN},
            leader_bounds=[one for found in values["leader_bounds"] for one in found],
            left=sorted(one for found in values["left"] for one in found),
            prices=[one for found in values["prices"] for one in found],
            notes=list(dict.fromkeys(one for found in values["notes"] for one in found)),
            **arrays,
        )


def measured(draft: Draft, brokers: Brokers, prices: list[int], *, own_rack: bool) -> Measures:
    """Measure a candidate plan."""
    rows, count = draft.rows, len(brokers)
    added_size = rows.size[draft.row[draft.added]]
    source = np.searchsorted(brokers.ids, sources(rows, brokers))[draft.row[draft.added]]
    first_before, first_after = rows.start[:-1], draft.start[:-1]
    spreads = {
        "before": _topic_spreads(rows, rows.row, rows.broker, brokers),
        "after": _topic_spreads(rows, draft.row, draft.broker, brokers),
    }
    able, keep, bound = _leadership(draft, brokers)
    return Measures(
        counts={**_counts(draft, brokers, added_size, own_rack=own_rack), "leaders_keepable": keep},
        replicas_before=np.bincount(rows.broker, minlength=count),
        replicas_after=np.bincount(draft.broker, minlength=count),
        leaders_before=np.bincount(rows.broker[first_before], minlength=count),
        leaders_after=np.bincount(draft.broker[first_after], minlength=count),
        bytes_before=_sums(rows.broker, rows.size[rows.row], count),
        bytes_after=_sums(draft.broker, rows.size[draft.row], count),
        bytes_in=_sums(draft.broker[draft.added], added_size, count),
        bytes_out=_sums(np.minimum(source, count - 1), added_size, count),
        leaders_keepable=able,
        leaders_planned=np.bincount(draft.broker[first_after][draft.fate == Fate.PLANNED], minlength=count),
        leader_bounds=[bound],
        pairs_before=_pairs(rows.row, rows.broker, count),
        pairs_after=_pairs(draft.row, draft.broker, count),
        spreads={when: _histogram(found) for when, found in spreads.items()},
        widest={when: _worst_of(rows.topics, found) for when, found in spreads.items()},
        left=left_out(draft),
        notes=list(draft.notes),
        prices=prices,
    )


def _leadership(draft: Draft, brokers: Brokers) -> tuple[Ints, int, int | None]:
    """Return the leaders that each broker could keep, those that all topics could, and the fewest changes."""
    found = leadership_of(draft, len(brokers), int(brokers.target.sum()))
    if found is None:
        return np.zeros(len(brokers), np.int64), 0, 0
    by_topic, by_broker = keepable(found)
    return by_broker, by_topic, fewest_changes(found)


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
        # A preferred leader whose broker no longer holds the partition has to change.
        "leader_changes_forced": int(draft.removed[rows.start[:-1]].sum()),
        "rack_violations_before": before,
        "rack_violations_after": after,
        "partitions_without_size": int(rows.unsized.sum()),
    }


def rack_violations(row: Ints, broker: Ints, rows: int, brokers: Brokers, *, own_rack: bool) -> int:
    """Count the partitions that `spread_badly` finds."""
    return int(spread_badly(row, broker, rows, brokers, own_rack=own_rack).sum())


def spread_badly(row: Ints, broker: Ints, rows: int, brokers: Brokers, *, own_rack: bool) -> Bools:
    """Return a mask of the partitions that are spread worse than necessary.

    They could be spread better over the racks of the usable brokers.
    """
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
    order = np.argsort(broker, kind="stable")
    # Integers throughout: bincount's weights are floats, and byte counts exceed what those hold exactly.
    ends = np.cumsum(np.bincount(broker, minlength=count))
    total = np.concatenate([[0], np.cumsum(amount[order])])
    return np.asarray(np.diff(total[np.concatenate([[0], ends])]), np.int64)


def _pairs(row: Ints, broker: Ints, count: int) -> Ints:
    first = np.flatnonzero(np.diff(row, prepend=-1))
    has_next = (first + 1 < len(row)) & (row[np.minimum(first + 1, len(row) - 1)] == row[first])
    lead = first[has_next]
    return np.bincount(broker[lead] * count + broker[lead + 1], minlength=count * count)


def _topic_spreads(rows: Rows, row: Ints, broker: Ints, brokers: Brokers) -> Ints:
    """Return per topic the replicas on its fullest usable broker minus those on its emptiest."""
    if not brokers.target.any():
        return np.zeros(len(rows.topics), np.int64)
    cells = np.bincount(rows.topic[row] * len(brokers) + broker, minlength=len(rows.topics) * len(brokers))
    usable = cells.reshape(len(rows.topics), len(brokers))[:, brokers.target]
    return np.asarray(usable.max(axis=1) - usable.min(axis=1), np.int64)


def _histogram(spreads: Ints) -> dict[str, int]:
    return {str(spread): int(topics) for spread, topics in enumerate(np.bincount(spreads)) if topics}


def _summed(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for part in parts:
        found.update(part)
    return {spread: found[spread] for spread in sorted(found, key=int)}


def _worst_of(topics: Sequence[str], spreads: Ints) -> list[tuple[str, int]]:
    few = np.argsort(-spreads, kind="stable")[:_NAMED].tolist()
    return [(topics[topic], int(spreads[topic])) for topic in few]


def _worst(topics: list[tuple[str, int]]) -> list[tuple[str, int]]:
    return sorted(((name, spread) for name, spread in topics), key=lambda one: (-one[1], one[0]))[:_NAMED]
