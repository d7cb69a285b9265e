"""Positions for the checker, from one line of text for each topic."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from kafka_steward.planning.checker.certificate import (
    cluster_price_objections,
    cluster_violations,
    replica_totals,
    topic_violations,
    unproven_topics,
)
from kafka_steward.planning.checker.constraints import Ints, PlacementOutcome, build_outcome
from tests.builders import cluster

__all__ = ["bound_violations", "outcome", "price_objections", "replicas_after", "replicas_moved"]


def outcome(brokers: str, *topics: str, **options: Any) -> PlacementOutcome:
    """`outcome("1a 2b 3", "t: 12>13 23")`: a cluster as in `tests.builders`, and what becomes of its partitions."""
    snapshot = cluster(brokers, *(re.sub(r">\d*", "", line) for line in topics))
    after = {}
    for line in topics:
        name, _, words = line.partition(":")
        for number, word in enumerate(words.split()):
            if ">" in word:
                after[name, number] = [int(digit) for digit in word.split(">")[1]]
    return build_outcome(snapshot.brokers, snapshot.partitions, replicas_after(after), options)


def replicas_after(moved: dict[tuple[str, int], list[int]]) -> pa.Table:
    """The columns of a plan's rows that make a position."""
    rows = [{"topic": topic, "partition": number, "after": after} for (topic, number), after in moved.items()]
    types = {"topic": pa.string(), "partition": pa.int32(), "after": pa.list_(pa.int32())}
    return pa.Table.from_pylist(rows, pa.schema(types))


def replicas_moved(outcome: PlacementOutcome) -> int:
    """The number of replicas that the plan adds."""
    return int((outcome.placed & ~outcome.held).sum())


def bound_violations(outcome: PlacementOutcome) -> list[str]:
    """List the violations of an outcome of all partitions.

    They cover the replicas per partition, the racks, and every floor and ceiling.
    """
    return topic_violations(outcome) + cluster_violations(outcome.constraints, replica_totals(outcome))


def price_objections(outcome: PlacementOutcome, prices: Ints) -> list[str]:
    """List the reasons why the prices do not prove an outcome of all partitions minimal; empty if they do."""
    found = cluster_price_objections(outcome.constraints, replica_totals(outcome), prices)
    return found + [f"The topic {name} may do with fewer moves." for name in unproven_topics(outcome, prices)]
