"""The same inputs through three planners: ours, a reading of KAFKA-19048's iteration, and Kafka's own --generate."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.clusters import OPERATIONS, make_snapshot
from benchmarks.planner.generate import VERSIONS, generator
from benchmarks.planner.iteration import rebalanced
from benchmarks.planner.table import table
from kafka_steward.planning.files.formats import SnapshotFolder, read_snapshot
from tests.builders import planned

Topics = dict[str, list[list[int]]]
Planner = Callable[[Topics], Topics]

SIZES = (("expand", 10_000, 60), ("drift", 10_000, 60))
_HEAD = [
    "input", "planner", "replicas moved", "leader changes", "replicas per broker", "leaders per broker",
    "widest topic", "rack violations left", "s",
]  # fmt: skip


@dataclass(frozen=True)
class Input:
    """One cluster: its topics, the brokers that may hold replicas, and all brokers' racks."""

    name: str
    snapshot: SnapshotFolder
    operation: str

    @property
    def topics(self) -> Topics:
        """Replicas by topic, in order of the partitions."""
        rows = self.snapshot.partitions.sort_by([("topic", "ascending"), ("partition", "ascending")])
        found: Topics = {}
        for topic, replicas in zip(rows["topic"].to_pylist(), rows["replicas"].to_pylist(), strict=True):
            found.setdefault(topic, []).append(replicas)
        return found

    @property
    def rack(self) -> dict[int, str]:
        """Every broker's rack."""
        return {row["broker"]: row["rack"] for row in self.snapshot.brokers.to_pylist()}

    @property
    def targets(self) -> list[int]:
        """The brokers that may hold replicas."""
        return [row["broker"] for row in self.snapshot.brokers.to_pylist() if row["state"] in ("live", "new")]


def peers(sizes: Sequence[tuple[str, int, int]] = SIZES) -> str:
    """The table of larger clusters."""
    return table(_HEAD, [line for size in sizes for line in _compared(_made(*size))])


def _made(scenario: str, partitions: int, brokers: int) -> Input:
    with tempfile.TemporaryDirectory() as folder:
        make_snapshot(folder, scenario, partitions, brokers)
        name = f"{partitions:,} x {brokers} {scenario}".replace(",", " ")
        return Input(name, read_snapshot(folder), OPERATIONS[scenario])


def _compared(given: Input) -> list[list[object]]:
    lines = [_line(given, "ours", partial(_ours, given, "1"))]
    # As even as kafka-utils makes it: every broker, and no topic by itself.
    lines += [_line(given, f"ours, `topic_spread` {spread}", partial(_ours, given, spread)) for spread in ("2", "any")]
    lines.append(_line(given, "KAFKA-19048, a reading", _iteration(given)))
    for version in VERSIONS:
        with generator(version, {broker: given.rack[broker] for broker in given.targets}) as kafka:
            lines.append(_line(given, f"--generate of Kafka {version}", lambda topics: _each(topics, kafka.proposed)))
    return lines


def _ours(given: Input, topic_spread: str, topics: Topics) -> Topics:
    plan = planned(given.snapshot, given.operation, {"topic_spread": topic_spread})
    result = {name: list(parts) for name, parts in topics.items()}
    for move in plan.moves:
        result[move.topic][move.partition] = list(move.after)
    return result


def _iteration(given: Input) -> Planner:
    return lambda topics: _each(topics, lambda parts: rebalanced(parts, given.targets, given.rack))


def _each(topics: Topics, planner: Callable[[list[list[int]]], list[list[int]]]) -> Topics:
    return {name: planner(parts) for name, parts in topics.items()}


def _line(given: Input, name: str, planner: Planner) -> list[object]:
    topics = given.topics
    started = time.perf_counter()
    after = planner(topics)
    seconds = time.perf_counter() - started
    found = _measured(given, after)
    names = ("moved", "leaders", "replicas", "leads", "topic", "racks")
    return [given.name, name, *(found[one] for one in names), round(seconds, 1)]


def _measured(given: Input, after: Topics) -> Mapping[str, Any]:
    pairs = [pair for name, parts in given.topics.items() for pair in zip(parts, after[name], strict=True)]
    rack, targets = given.rack, given.targets
    racks = len({rack[one] for one in targets})
    load = Counter(one for _, new in pairs for one in new)
    leads = Counter(new[0] for _, new in pairs)
    topics = [Counter(one for new in parts for one in new) for parts in after.values()]
    return {
        "moved": sum(len(set(new) - set(old)) for old, new in pairs),
        "leaders": sum(old[0] != new[0] for old, new in pairs),
        "replicas": f"{min(load[one] for one in targets)}..{max(load.values())}",
        "leads": f"{min(leads[one] for one in targets)}..{max(leads.values())}",
        "topic": max(max(held.values()) - min(held[one] for one in targets) for held in topics),
        "racks": sum(len({rack[one] for one in new}) < min(len(new), racks) for _, new in pairs),
    }
