"""Judge a plan that balances disks and bytes in at once: limits, tolerances, and the fewest bytes that could do.

Written from the definition, without the planner's code. Each broker is to hold its share of the bytes, and of the bytes
per second that producers bring, within the tolerance. A broker that may take no more than `network_bandwidth` has that
as its share if it is less, and the others share the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from kafka_steward.assignment import EVEN_OPERATIONS
from kafka_steward.planning.checker.constraints import exact_capacities
from kafka_steward.planning.checker.load import partition_rates

#: What a sum of bytes may differ by from an edge: the planner's edges are floating-point numbers.
_SLACK = 1e-3
_PART = 1e-9


@dataclass(frozen=True)
class _Replicas:
    """A partition: its bytes and bytes per second, its live replicas before and after a plan, and if it moves."""

    size: int
    rate: int
    before: frozenset[int]
    after: frozenset[int]
    moves: bool


@dataclass(frozen=True)
class LoadCheck:
    """The load of the live brokers, as a plan leaves it; `share` has the capacity of those that may receive."""

    partitions: tuple[_Replicas, ...]
    share: Mapping[int, float]
    tolerance: float
    limit: int

    @classmethod
    def of(cls, brokers: pa.Table, partitions: pa.Table, rows: pa.Table, proof: Mapping[str, Any]) -> LoadCheck | None:
        """Return the load that a plan leaves; None if it balances something else, or no rate is known."""
        options = proof.get("options") or {}
        if options.get("balance") != "load" or proof.get("operation") not in EVEN_OPERATIONS:
            return None
        rates = partition_rates(partitions)
        if rates is None:
            return None
        excluded = frozenset(options.get("exclude_brokers") or ())
        live, capacity = set(), exact_capacities(brokers["capacity"].to_pylist())
        share = {}
        for row, weight in zip(brokers.to_pylist(), capacity, strict=True):
            if row["state"] in ("live", "new"):
                live.add(row["broker"])
                if row["broker"] not in excluded:
                    share[row["broker"]] = float(weight)
        moved = {(row["topic"], row["partition"]): row["after"] for row in rows.to_pylist()}
        found = []
        columns = partitions.select(["topic", "partition", "replicas", "bytes", "offline"]).to_pylist()
        for row, rate in zip(columns, rates, strict=True):
            name = (row["topic"], row["partition"])
            alive = live.intersection(row["replicas"]).difference(row["offline"] or ())
            after = live.intersection(moved[name]) if name in moved else alive
            found.append(_Replicas(max(row["bytes"] or 0, 0), rate, frozenset(alive), frozenset(after), name in moved))
        return cls(tuple(found), share, float(options.get("tolerance", 0.05)), options.get("network_bandwidth") or 0)

    @cached_property
    def lost(self) -> int:
        """The bytes that the plan copies in place of replicas that are lost or to be drained."""
        return sum(part.size * max(len(part.after) - len(part.before), 0) for part in self.partitions if part.moves)

    def loads(self, what: str, when: str) -> Counter[int]:
        """Return size or rate of all replicas per broker, before or after the plan."""
        load = Counter[int]()
        for part in self.partitions:
            load.update(dict.fromkeys(getattr(part, when), getattr(part, what)))
        return load

    def shares(self, what: str) -> dict[int, float]:
        """Return each broker's share of what the plan leaves on the brokers that may receive."""
        after, open_ = self.loads(what, "after"), dict(self.share)
        rest, shares = float(sum(after[broker] for broker in open_)), dict[int, float]()
        limited = what == "rate" and self.limit and rest <= self.limit * len(open_)
        while open_:
            part = {broker: rest * weight / sum(open_.values()) for broker, weight in open_.items()}
            full = [broker for broker, of in part.items() if limited and of > self.limit]
            if not full:
                return shares | part
            shares |= dict.fromkeys(full, float(self.limit))
            rest -= self.limit * len(full)
            open_ = {broker: weight for broker, weight in open_.items() if broker not in full}
        return shares

    def edges(self, what: str) -> tuple[dict[int, float], dict[int, float]]:
        """Return the least and the most that each broker is to have."""
        shares = self.shares(what)
        low = {broker: share * (1 - self.tolerance) for broker, share in shares.items()}
        high = {broker: share * (1 + self.tolerance) for broker, share in shares.items()}
        if what == "rate" and self.limit and sum(shares.values()) <= self.limit * len(shares):
            high = {broker: min(most, self.limit) for broker, most in high.items()}
        return low, high

    def above_limit(self) -> dict[int, bool]:
        """Return the brokers that take more than the limit after the plan, and whether they take more than before."""
        if not self.limit:
            return {}
        before, after = self.loads("rate", "before"), self.loads("rate", "after")
        return {b: after[b] > before[b] for b in sorted(self.share) if after[b] > self.limit * (1 + _PART)}

    def fewest_bytes(self) -> int:
        """Return a number of bytes that every plan within the tolerances moves at least.

        What a broker has beyond its most must leave it, and what it lacks must come. The replicas that take most per
        byte, and a part of the last one, bring or take bytes per second with the fewest bytes.
        """
        edges = {what: self.edges(what) for what in ("size", "rate")}
        before = {what: self.loads(what, "before") for what in edges}
        by_density = sorted(self.partitions, key=lambda part: -part.rate / (part.size or 0.5))
        leave, arrive = float(self.lost), 0.0
        for broker in self.share:
            over = {what: before[what][broker] - edges[what][1][broker] for what in edges}
            lack = {what: edges[what][0][broker] - before[what][broker] for what in edges}
            held = (part for part in by_density if broker in part.before)
            other = (part for part in by_density if broker not in part.before)
            leave += max(over["size"], _bytes_for(held, over["rate"]), 0)
            arrive += max(lack["size"], _bytes_for(other, lack["rate"]), 0)
        return int(max(leave, arrive))


def _bytes_for(partitions: Iterable[_Replicas], rate: float) -> float:
    """Return the bytes of the first partitions that take so much per second, the last one in part."""
    total = 0.0
    for part in partitions:
        if rate <= 0:
            break
        total += part.size * (min(rate / part.rate, 1) if part.rate else 1)
        rate -= part.rate
    return total


def limit_problems(load: LoadCheck | None) -> Iterator[str]:
    """Yield a problem for each broker that the plan brings above the limit without need."""
    # What is lost or drained has to go somewhere.
    if load is None or any(len(part.after) > len(part.before) for part in load.partitions if part.moves):
        return
    for broker, more in load.above_limit().items():
        if more:
            yield f"Broker {broker} takes more bytes in than before, above network_bandwidth = {load.limit}."


def load_questions(load: LoadCheck | None, proof: Mapping[str, Any]) -> Iterator[str]:
    """Yield sentences on brokers out of limits and tolerances, and on bytes moved beyond the fewest possible."""
    if load is None:
        return
    if above := load.above_limit():
        names = ", ".join(map(str, above))
        yield f"These brokers stay above network_bandwidth, and it is not proven that they must: {names}."
    for what, name in (("size", "The disks"), ("rate", "The bytes in")):
        (low, high), after = load.edges(what), load.loads(what, "after")
        slack = {broker: _SLACK + high[broker] * _PART for broker in high}
        outside = [b for b in low if not low[b] - slack[b] <= after[b] <= high[b] + slack[b]]
        if outside:
            names = ", ".join(map(str, sorted(outside)))
            yield f"{name} of these brokers stay out of the tolerance, and it is not proven that they must: {names}."
    moved, least = proof.get("bytes_moved", 0), load.fewest_bytes()
    if moved > least:
        yield f"The plan moves {moved} bytes; the fewest that could do are only known to be at least {least}."
