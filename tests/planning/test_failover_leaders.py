"""Failover first: leaders and next in line are chosen together, within the same bounds and without moving data."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from itertools import permutations, product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from kafka_steward.planning.checker.check import check
from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder
from tests.builders import cluster, planned
from tests.planning.integer_solver import carried_out
from tests.rings import tried
from tests.strategies import OPTIONS, clusters

FIRST = {"prefer": "isr-order"}
RING = "12 23 34 41"


def line(plan: PlanFolder) -> dict[str, Any]:
    found: dict[str, Any] = plan.proof["spread"]["next_in_line"]["after"]
    return found


@pytest.mark.parametrize(
    "topics",
    [
        [f"t: {' '.join([RING] * 6)}"],
        [f"{name}: {' '.join([RING] * 3)}" for name in "tu"],
        [f"t{number}: {pair}" for number, pair in enumerate(RING.split() * 6)],
    ],
    ids=["one topic", "two topics", "a topic for each partition"],
)
def test_with_two_replicas_both_neighbours_take_over_half(topics: list[str]) -> None:
    snapshot = cluster("1 2 3 4", *topics)
    stable, plan = planned(snapshot, "rebalance"), planned(snapshot, "rebalance", FIRST)
    assert stable.moves == []
    assert line(stable)["heaviest"]["partitions"] == 6
    assert plan.proof["replicas_moved"] == plan.proof["bytes_moved"] == 0
    assert (line(plan)["pairs"], line(plan)["least"], line(plan)["most"]) == (8, 3, 3)
    assert set(plan.proof["spread"]["leaders"]["after"]["by_broker"].values()) == {6}
    assert plan.proof["leader_changes"] == 12
    assert {move.purpose for move in plan.moves} == {"reorder"}
    assert check(snapshot, plan).ok


def best(rows: Sequence[Sequence[int]], brokers: int) -> tuple[int, int]:
    """The least sum of squares, and the fewest leader changes for it, of all even choices; by trying all."""
    low, high = len(rows) // brokers, -(-len(rows) // brokers)
    found = []
    for choice in product(*(list(permutations(replicas, 2)) for replicas in rows)):
        led = Counter(first for first, _ in choice)
        if all(low <= led[broker] <= high for broker in range(1, brokers + 1)):
            squares = sum(count**2 for count in Counter(choice).values())
            changes = sum(pair[0] != replicas[0] for pair, replicas in zip(choice, rows, strict=True))
            found.append((squares, changes))
    return min(found)


@pytest.mark.parametrize("seed", range(12))
def test_one_topic_is_spread_as_evenly_as_can_be_by_the_fewest_leader_changes(seed: int) -> None:
    dice = random.Random(seed)
    brokers, factor, count = (3, 2, 7) if seed % 2 else (4, 3, 4)
    rows = [dice.sample(range(1, brokers + 1), factor) for _ in range(count)]
    # What a rebalance leaves behind has the replicas in their places; only leaders and order are left to choose.
    even = planned(cluster(" ".join(map(str, range(1, brokers + 1))), "t: " + " ".join(map(_word, rows))), "rebalance")
    snapshot = carried_out(cluster(" ".join(map(str, range(1, brokers + 1))), "t: " + " ".join(map(_word, rows))), even)
    plan = planned(snapshot, "rebalance", FIRST)
    assert plan.proof["replicas_moved"] == 0
    assert plan.proof["leader_evenness"] == "even"
    rows = snapshot.partitions.sort_by("partition")["replicas"].to_pylist()
    assert (line(plan)["squares"], plan.proof["leader_changes"]) == best(rows, brokers)


def _word(replicas: Sequence[int]) -> str:
    return "".join(map(str, replicas))


@settings(deadline=None, max_examples=tried(60), suppress_health_check=[HealthCheck.too_slow])
@given(clusters(states=("live", "live", "new", "draining", "failed")), OPTIONS)
def test_it_moves_the_same_is_no_less_even_and_leaves_nothing_to_the_next_plan(
    snapshot: SnapshotFolder, options: dict[str, Any]
) -> None:
    usable = sum(state in ("live", "new") for state in snapshot.brokers["state"].to_pylist())
    if max(snapshot.partitions["target_rf"].to_pylist()) > usable:
        return
    for shard_rows in (30_000, 4):
        stable, plan = (planned(snapshot, "rebalance", {**options, **extra}, shard_rows) for extra in ({}, FIRST))
        for name in ("replicas_moved", "bytes_moved", "leader_evenness"):
            assert plan.proof[name] == stable.proof[name]
        assert plan.proof["spread"]["replicas"] == stable.proof["spread"]["replicas"]
        assert (check(snapshot, plan).problems, check(snapshot, plan).unproven) == ([], ())
        if shard_rows == 30_000:
            assert line(plan)["squares"] <= line(stable)["squares"]
        for asked in ({}, FIRST):
            carried = carried_out(snapshot, plan if asked else stable)
            moved = carried.partitions["adding"].to_pylist()
            if not any(moved):
                assert planned(carried, "rebalance", {**options, **asked}, shard_rows).moves == []
