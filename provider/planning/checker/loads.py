"""Part of the checker: the bytes on every broker before and after a plan that balances disks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pyarrow as pa

from kafka_steward.assignment import Move
from kafka_steward.planning.checker.rules import Facts

__all__ = ["Loads", "band_gaps", "loads_of", "overfull"]


@dataclass(frozen=True)
class Loads:
    """Bytes per broker id: before, without lost replicas; after; and incoming. `lost` bytes must be copied again."""

    before: dict[int, int]
    after: dict[int, int]
    into: dict[int, int]
    lost: int

    @classmethod
    def total(cls, parts: Sequence[Loads]) -> Loads:
        """Combine the loads of all topics."""
        sides = [_added(getattr(part, name) for part in parts) for name in ("before", "after", "into")]
        return cls(sides[0], sides[1], sides[2], sum(part.lost for part in parts))


def loads_of(facts: Facts, moves: Sequence[Move]) -> Loads:
    """Return the loads of some topics."""
    new = {move.topic_partition: move for move in moves}
    before: dict[int, int] = {}
    after: dict[int, int] = {}
    into: dict[int, int] = {}
    lost = 0
    for name, part in facts.parts.items():
        size, move = part.size or 0, new.get(name)
        alive = facts.alive(part.replicas, part)
        lost += size * max(len(move.after) - len(alive), 0) if move else 0
        _put(before, alive, size)
        _put(after, facts.alive(move.after, part) if move else alive, size)
        _put(into, sorted(move.adding) if move else (), size)
    return Loads(before, after, into, lost)


def overfull(loads: Loads, brokers: pa.Table) -> Iterator[str]:
    """Yield a problem for each broker that would receive more bytes than it has room for."""
    for row in brokers.to_pylist():
        room, coming = row["usable_bytes"], loads.into.get(row["broker"], 0)
        if room is not None and coming > room:
            yield f"Broker {row['broker']} would receive {coming} bytes and has room for {room}."


def band_gaps(loads: Loads, brokers: pa.Table, options: Mapping[str, Any], moved_bytes: int) -> Iterator[str]:
    """Yield what is not proven of balanced disks.

    This covers brokers outside the tolerance, and bytes moved beyond the fewest possible.
    """
    share = _shares(brokers, set(options.get("exclude_brokers") or ()))
    tolerance = Fraction(str(options.get("tolerance", 0.05)))
    total = sum(loads.after.values())
    low = {broker: part * total * (1 - tolerance) for broker, part in share.items()}
    high = {broker: part * total * (1 + tolerance) for broker, part in share.items()}
    # Allow one byte of slack: the planner's edges are floating-point numbers.
    outside = [b for b in share if not low[b] - 1 <= loads.after.get(b, 0) <= high[b] + 1]
    # A draining broker has to be emptied, so that any remaining byte is too much.
    emptied = [row["broker"] for row in brokers.to_pylist() if row["state"] == "draining"]
    outside += [b for b in emptied if loads.after.get(b, 0) > 0]
    if outside:
        names = ", ".join(str(broker) for broker in outside)
        yield f"The disks of these brokers stay out of the tolerance, and it is not proven that they must: {names}."
    excess = sum(max(held - high.get(b, Fraction(0)), Fraction(0)) for b, held in loads.before.items())
    lack = sum(max(low[b] - loads.before.get(b, 0), Fraction(0)) for b in share)
    least = int(max(loads.lost + excess, lack))
    if moved_bytes > least:
        yield f"The plan moves {moved_bytes} bytes; the fewest that could do are only known to be at least {least}."


def _shares(brokers: pa.Table, barred: set[int]) -> dict[int, Fraction]:
    rows = [{**row, "weight": None if row["capacity"] is None else _weight(row)} for row in brokers.to_pylist()]
    known = [row["weight"] for row in rows if row["weight"] is not None]
    usual = Fraction(sum(known), len(known)) if known else Fraction(1)
    sharing = [row for row in rows if row["state"] in ("live", "new") and row["broker"] not in barred]
    weight = {row["broker"]: usual if row["weight"] is None else row["weight"] for row in sharing}
    whole = sum(weight.values())
    return {broker: one / whole for broker, one in weight.items()}


def _weight(row: Mapping[str, Any]) -> Fraction:
    """Return a broker's capacity as a fraction with a denominator of at most a million, as the planner takes it."""
    return Fraction(row["capacity"]).limit_denominator(10**6)


def _put(load: dict[int, int], brokers: Sequence[int], size: int) -> None:
    for broker in brokers:
        load[broker] = load.get(broker, 0) + size


def _added(parts: Iterator[dict[int, int]]) -> dict[int, int]:
    found: dict[int, int] = {}
    for part in parts:
        for broker, size in part.items():
            found[int(broker)] = found.get(int(broker), 0) + size
    return found
