"""Who is next in line: each place after the leader's is as even as its choices allow, by the fewest reorders."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise, product

import numpy as np
import pytest

from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder
from kafka_steward.planning.solver.leaders import order_for_failover
from tests.builders import cluster, planned

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
