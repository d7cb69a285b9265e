"""Who leads and who is next in line: each place is as even as its choices allow, by the fewest changes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise, permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from kafka_steward.planning.checker.check import check
from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder
from kafka_steward.planning.solver.leaders import order_for_failover
from tests.builders import cluster, planned
from tests.planning.integer_solver import carried_out
from tests.rings import tried
from tests.strategies import OPTIONS, clusters

Rows = list[list[int]]
BROKERS = 6


def rows_of(seed: int, count: int) -> Rows:
    """Replicas of partitions, 1 to 5 of each."""
    dice = random.Random(seed)
    return [dice.sample(range(BROKERS), dice.randint(1, 5)) for _ in range(count)]


def reordered(way: str, rows: Rows) -> Rows:
    """The rows as the flow of one shard, or the exchanges of one of several, put them in order."""
    row = np.repeat(np.arange(len(rows)), [len(one) for one in rows])
    flat = np.array([one for replicas in rows for one in replicas])
    broker = order_for_failover(row, flat, BROKERS, exact={"flow": True, "exchanges": False}[way])
    return [broker[row == number].tolist() for number in range(len(rows))]


def squares(pairs: Sequence[tuple[int, int]]) -> int:
    return sum(count**2 for count in Counter(pairs).values())


def at(rows: Rows, place: int) -> list[tuple[int, int]]:
    """The pairs of neighbours of which the second is at `place`."""
    return [(one[place - 1], one[place]) for one in rows if len(one) > place]


def choices(rows: Rows, place: int) -> list[list[tuple[int, int]]]:
    """The pairs that each row may make at `place`, given its order up to there; the first leaves it as it is."""
    return [[(one[place - 1], other) for other in one[place:]] for one in rows if len(one) > place]


def brought_forward(rows: Rows, place: int, chosen: Rows) -> Rows:
    """The rows with the replicas that `chosen` has at `place` there, and what they pass in the order it had."""
    return [
        one if len(one) <= place else [*one[:place], other[place], *(b for b in one[place:] if b != other[place])]
        for one, other in zip(rows, chosen, strict=True)
    ]


@pytest.mark.parametrize("seed", range(40))
def test_every_place_is_as_even_as_can_be_by_the_fewest_reorders(seed: int) -> None:
    rows = rows_of(seed, count=5)
    found = reordered("flow", rows)
    for place in range(1, 5):
        options = choices(rows, place)
        best = min(
            (squares(pairs), sum(pair != keep[0] for pair, keep in zip(pairs, options, strict=True)))
            for pairs in product(*options)
        )
        changed = sum(pair != keep[0] for pair, keep in zip(at(found, place), options, strict=True))
        assert (squares(at(found, place)), changed) == best, place
        rows = brought_forward(rows, place, found)
    assert rows == found


@pytest.mark.parametrize("seed", range(40))
def test_exchanges_end_where_none_makes_a_place_more_even(seed: int) -> None:
    rows = rows_of(seed, count=30)
    found = reordered("exchanges", rows)
    for place in range(1, 5):
        options, pairs = choices(brought_forward(rows, place, found), place), at(found, place)
        assert squares(pairs) <= squares([keep[0] for keep in choices(rows, place)])
        held = Counter(pairs)
        assert all(
            held[other] + 1 >= held[pair] for pair, others in zip(pairs, options, strict=True) for other in others
        )
        rows = brought_forward(rows, place, found)
    assert rows == found


@pytest.mark.parametrize("way", ["flow", "exchanges"])
def test_the_leader_stays_and_so_do_all_where_the_order_is_even(way: str) -> None:
    rows = rows_of(7, count=30)
    found = reordered(way, rows)
    assert [one[0] for one in found] == [one[0] for one in rows]
    assert [sorted(one) for one in found] == [sorted(one) for one in rows]
    assert found != rows
    assert reordered(way, found) == found


def pairs_after(snapshot: SnapshotFolder, plan: PlanFolder) -> list[Counter[tuple[int, int]]]:
    """How often each pair of neighbours occurs once the plan is carried out, place by place."""
    names = zip(*(snapshot.partitions[name].to_pylist() for name in ("topic", "partition", "replicas")), strict=True)
    held = {(topic, number): tuple(replicas) for topic, number, replicas in names}
    held |= {(move.topic, move.partition): move.after for move in plan.moves}
    places = max(len(replicas) for replicas in held.values())
    found = [Counter[tuple[int, int]]() for _ in range(places - 1)]
    for replicas in held.values():
        for place, pair in enumerate(pairwise(replicas)):
            found[place][pair] += 1
    return found


@pytest.mark.parametrize("shard_rows", [1000, 24], ids=["one shard", "two shards"])
def test_the_second_and_the_third_in_line_are_spread_over_all_pairs(shard_rows: int) -> None:
    snapshot = cluster("1 2 3 4", *(f"{name}: " + " ".join(["1234"] * 24) for name in "tu"))
    plan = planned(snapshot, "rebalance", shard_rows=shard_rows)
    assert plan.proof["replicas_moved"] == 0
    # 48 partitions, and 12 ordered pairs of 4 brokers.
    second, third, _ = pairs_after(snapshot, plan)
    assert (len(second), min(second.values()), max(second.values())) == (12, 4, 4)
    assert (len(third), max(third.values())) == (12, 4)


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
@given(clusters(states=("live", "live", "new", "draining", "down", "failed")), OPTIONS)
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
