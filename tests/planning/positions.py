"""Positions for the checker, from one line of text for each topic."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from kafka_steward.planning.checker.judge import Position, position_of
from tests.builders import cluster

__all__ = ["position", "replicas_after"]


def position(brokers: str, *topics: str, **options: Any) -> Position:
    """`position("1a 2b 3", "t: 12>13 23")`: a cluster as in `tests.builders`, and what becomes of its partitions."""
    snapshot = cluster(brokers, *(re.sub(r">\d*", "", line) for line in topics))
    after = {}
    for line in topics:
        name, _, words = line.partition(":")
        for number, word in enumerate(words.split()):
            if ">" in word:
                after[name, number] = [int(digit) for digit in word.split(">")[1]]
    return position_of(snapshot.brokers, snapshot.partitions, replicas_after(after), options)


def replicas_after(moved: dict[tuple[str, int], list[int]]) -> pa.Table:
    """The columns of a plan's rows that make a position."""
    rows = [{"topic": topic, "partition": number, "after": after} for (topic, number), after in moved.items()]
    types = {"topic": pa.string(), "partition": pa.int32(), "after": pa.list_(pa.int32())}
    return pa.Table.from_pylist(rows, pa.schema(types))
