"""What prices and exchanges prove and what they do not, and which prices are found."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from kafka_steward.assignment import Move
from kafka_steward.planning.checker import certificate
from kafka_steward.planning.checker.certificate import (
    Distances,
    ExactExchanges,
    PooledExchanges,
    ReplicaTotals,
    badly_spread_partitions,
    cluster_price_objections,
    cluster_violations,
    count_on_racks,
    exact_exchanges,
    find_prices,
    pooled_exchanges,
    replica_totals,
    topic_violations,
    unproven_topics,
)
from kafka_steward.planning.checker.check import check, touchable_partitions
from kafka_steward.planning.checker.constraints import PlacementOutcome, build_outcome
from kafka_steward.planning.checker.rules import build_context
from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder, plan_table
from kafka_steward.planning.solver.problem import Ints
from tests.builders import cluster, plan_with, planned, snapshot_of
from tests.planning.integer_solver import MIB, random_plan
from tests.planning.outcomes import bound_violations, outcome, price_objections, replicas_after
from tests.rings import tried

NUMBER = "A partition of t has another number of usable replicas than it should."
UNEVEN = "The topic t is not even."
BEYOND = "The cluster is uneven: a broker is beyond its fair share."
NOT_FULL = "A broker that is not full has a positive price."
ABOVE = "A broker that is above its floor has a negative price."
#: Two partitions swapped their brokers, and need not have.
SWAPPED = "1>2 2>1"
#: Pools forget that some of these partitions hold the broker already where they come out, and prove nothing.
INTRICATE = ("1a 2a 3a 4 5", "t: 145>134 234 235 23 13>15 145>124")


def start_of(args: tuple[str, ...]) -> PlacementOutcome:
    """The outcome of these lines; that of `INTRICATE` as if each partition had at most one replica off the rack."""
    found = outcome(*args)
    if args != INTRICATE:
        return found
    loose = (found.factor[:, None] - 1, found.factor[:, None])
    return replace(found, rack_bounds=loose, constraints=replace(found.constraints, largest_factor=1))


def test_what_pools_leave_open_exact_exchanges_prove() -> None:
    assert unproven_topics(start_of(INTRICATE), np.zeros(5, np.int64)) == []


@pytest.mark.parametrize(
    ("brokers", "topics", "options", "problems"),
    [
        ("1 2 3", ["t: 1 2 3", "u: 12>13 23>12"], {}, []),
        ("1 2 3", ["t: 12>123 12>3"], {}, [NUMBER, NUMBER]),
        ("1 2", ["t: 1 1"], {}, [UNEVEN, BEYOND]),
        # Only above, and only below.
        ("1 2 3", ["t: 1 2 3>12"], {}, [NUMBER, UNEVEN, BEYOND]),
        ("1 2 3", ["t: 1 2 3>"], {}, [NUMBER, UNEVEN, BEYOND]),
        ("1 2 3", ["s: 1", "t: 1"], {}, [BEYOND]),
        ("1 2", ["s: 1 2", "t: 12>1"], {}, [NUMBER, UNEVEN, BEYOND]),
        (
            "1a 2a 3b",
            ["t: 13>12 23", "u: 13>12"],
            {},
            [
                "2 partitions are not spread over the racks as could be.",
                UNEVEN,
                "The topic u is not even.",
                BEYOND,
            ],
        ),
        # Where brokers are excluded, what is even may be out of reach.
        ("1 2 3", ["t: 1 1 1"], {"exclude_brokers": [3]}, []),
        ("1 2", ["t: 1 1"], {"exclude_brokers": [2]}, []),
        ("1 2", ["t: 1 1>"], {"exclude_brokers": [2]}, [NUMBER]),
    ],
)
def test_whatever_is_misplaced_is_named(
    brokers: str, topics: list[str], options: dict[str, Any], problems: list[str]
) -> None:
    assert bound_violations(outcome(brokers, *topics, **options)) == problems


def test_of_many_that_are_misplaced_ten_are_named() -> None:
    found = topic_violations(outcome("1 2", "t: " + " ".join(["12>1"] * 11)))
    assert found == [*[NUMBER] * 10, UNEVEN]
    topics = [f"t{one:02}" for one in range(11)]
    found = topic_violations(outcome("1 2", *(f"{topic}: 1 1" for topic in topics)))
    assert found == [f"The topic {topic} is not even." for topic in topics[:10]]


def test_too_many_on_a_rack_and_too_few_are_badly_spread() -> None:
    found = badly_spread_partitions(outcome("1a 2a 3a 4b", "t: 124 123 124>12 124>1234"))
    assert_array_equal(found, np.array([False, True, True, True]), strict=True)


def test_totals_are_of_all_partitions() -> None:
    totals = replica_totals(outcome("1 2 3", "t: 12>13 2", "u: 12"))
    assert_array_equal(totals.held, np.array([2, 3, 0]))
    assert_array_equal(totals.placed, np.array([2, 2, 1]))
    assert totals.factors == {2: 2, 1: 1}


#: Seven replicas on three brokers: two or three on each. Where broker 3 is excluded, it keeps the one that it has; and
#: one beyond a bound counts 1024 moves.
@pytest.mark.parametrize(
    ("excluded", "placed", "prices", "problems"),
    [
        ([], [2, 3, 2], [0, 0, 0], []),
        ([], [2, 3, 2], [-3, 7, -1], []),
        ([], [2, 3, 2], [1, 0, 0], [NOT_FULL]),
        ([], [2, 3, 2], [0, -1, 0], [ABOVE]),
        ([], [2, 3, 2], [0, -1, 1], [NOT_FULL, ABOVE]),
        ([3], [3, 2, 1], [0, 0, 0], []),
        ([3], [3, 2, 1], [1024, -1024, 1024], []),
        ([3], [3, 2, 1], [1024, -1024, -1024], []),
        ([3], [3, 2, 1], [1025, 0, 0], [NOT_FULL]),
        ([3], [3, 2, 1], [-1, 0, 0], [ABOVE]),
        ([3], [3, 2, 1], [0, 1, 0], [NOT_FULL]),
        ([3], [3, 2, 1], [0, -1025, 0], [ABOVE]),
        ([3], [3, 2, 1], [0, 0, 1025], [NOT_FULL]),
        ([3], [3, 2, 1], [0, 0, -1025], [ABOVE]),
        ([3], [1, 5, 1], [-1024, 1024, 0], []),
        ([3], [1, 5, 1], [-1023, 1024, 0], [NOT_FULL]),
        ([3], [1, 5, 1], [-1025, 1024, 0], [ABOVE]),
        ([3], [1, 5, 1], [-1024, 1023, 0], [ABOVE]),
        ([3], [1, 5, 1], [-1024, 1025, 0], [NOT_FULL]),
    ],
)
def test_only_full_brokers_have_a_positive_price_and_only_those_at_their_floor_a_negative_one(
    excluded: list[int], placed: list[int], prices: list[int], problems: list[str]
) -> None:
    constraints = outcome("1 2 3", "t: 1", exclude_brokers=excluded).constraints
    totals = ReplicaTotals(np.array([3, 3, 1]), np.array(placed), {1: 7})
    assert cluster_price_objections(constraints, totals, np.array(prices)) == problems
    assert cluster_violations(constraints, totals) == []


@pytest.mark.parametrize(
    ("brokers", "topics", "prices", "still_open"),
    [
        ("1 2", ["t: 1 2"], [0, 0], []),
        ("1 2", [f"t: {SWAPPED}"], [0, 0], ["t"]),
        ("1 2", ["s: 1 2", f"t: {SWAPPED}", "u: 1 2", f"v: {SWAPPED}"], [0, 0], ["t", "v"]),
        # Broker 3 may have a replica as well: it would cost one move, which a price of one outweighs.
        ("1 2 3", ["t: 1 2"], [1, 0, 0], []),
        ("1 2 3", ["t: 1 2"], [2, 0, 0], ["t"]),
        ("1 2 3", ["t: 1 2"], [0, 0, -1], []),
        ("1 2 3", ["t: 1 2"], [0, 0, -2], ["t"]),
        ("1 2 3", ["t: 1 2"], [0, 1, -1], ["t"]),
        ("1 2 3", ["t: 1 2"], [-9, -9, 9], []),
        # Where a topic is at its bounds on each broker, prices say nothing about it.
        ("1 2", ["t: 1 2"], [9, -9], []),
        # Each broker but the last passes one on to the next.
        ("1 2 3 4", ["t: 1>2 2>3 3>4 4>1"], [0, 0, 0, 0], ["t"]),
        ("1 2 3 4", ["t: 1>2 2>3 3>4"], [0, 0, 0, 0], ["t"]),
        ("1!", ["t: 1"], [], []),
        ("1", [], [0], []),
    ],
)
def test_topics_that_could_do_with_fewer_moves_are_open(
    brokers: str, topics: list[str], prices: list[int], still_open: list[str]
) -> None:
    assert unproven_topics(outcome(brokers, *topics), np.array(prices, np.int64)) == still_open


def test_with_excluded_brokers_a_topic_that_could_come_nearer_to_its_shares_is_unproven() -> None:
    prices = np.array([0, 0, 0])
    assert unproven_topics(outcome("1 2 3", "t: 1 1", "u: 1 1>2", exclude_brokers=[3]), prices) == ["t"]


def test_unproven_minimality_is_reported_for_the_cluster_and_for_each_topic() -> None:
    assert price_objections(outcome("1 2 3", "t: 1 2", "u: 3"), np.array([2, -2, 0])) == [
        "The topic t may do with fewer moves.",
        "The topic u may do with fewer moves.",
    ]
    assert price_objections(outcome("1 2 3", "t: 1 2"), np.array([0, 0, 2])) == [NOT_FULL]


@pytest.mark.parametrize("sign", [1, -1])
def test_no_prices_are_so_large_that_they_hide_what_is_open(sign: int) -> None:
    brokers, half = 70, 35
    rows = [{"topic": "tu"[one // half], "partition": one % half, "replicas": [one]} for one in range(brokers)]
    snapshot = snapshot_of([{"broker": one, "state": "live"} for one in range(brokers)], rows)
    after = replicas_after({("t", 0): [1], ("t", 1): [0]})
    found = build_outcome(snapshot.brokers, snapshot.partitions, after, {})
    largest = sign * ((1 << 24) - 1)
    assert unproven_topics(found, np.array([largest, -largest] * half)) == ["t", "u"]


@pytest.mark.parametrize(
    ("brokers", "topics", "options", "prices"),
    [
        ("1 2+", ["t: 1>2 1"], {}, [0, 0]),
        # The last move could be spared, were broker 1 not full.
        ("1 2", ["t: 1", "u: 1>2"], {}, [1, 0]),
        ("1 2", ["t: 2", "u: 2>1"], {}, [0, 1]),
        # And here, were broker 3 not at its floor.
        ("1 2 3+", ["t: 1", "u: 1>3", "v: 2", "w: 2"], {}, [0, 0, -1]),
        # A broker beyond its share, from which nobody may take.
        ("1 2", ["t: 1", "u: 1"], {"exclude_brokers": [2]}, [1024, 0]),
        ("1 2", [f"t: {SWAPPED}"], {}, None),
        ("1", [], {}, [0]),
        ("1", ["t: 1"], {}, [0]),
        ("1!", ["t: 1"], {}, None),
    ],
)
def test_prices_are_found_where_there_are_any(
    brokers: str, topics: list[str], options: dict[str, Any], prices: list[int] | None
) -> None:
    start = outcome(brokers, *topics, **options)
    found = find_prices(start)
    if prices is None:
        assert found is None
    else:
        assert found is not None
        assert_array_equal(found, np.array(prices, np.int64), strict=True)
        assert price_objections(start, found) == []


class Calls:
    """Which calls the certificate draws, and of what."""

    def __init__(self, patched: pytest.MonkeyPatch, *, few: int, most: int) -> None:
        self.called: list[str] = []
        self.exact: list[PlacementOutcome] = []

        def exact(of: PlacementOutcome) -> ExactExchanges:
            self.called.append("exact")
            self.exact.append(of)
            return exact_exchanges(of)

        def pooled(of: PlacementOutcome) -> PooledExchanges:
            self.called.append("pooled")
            return pooled_exchanges(of)

        patched.setattr(certificate, "exact_exchanges", exact)
        patched.setattr(certificate, "pooled_exchanges", pooled)
        patched.setattr(certificate, "_FEW_CELLS", few)
        patched.setattr(certificate, "MAX_EXACT_CELLS", most)


#: One topic on five brokers has 25 pairs, two topics on two brokers have 8.
@pytest.mark.parametrize(
    ("args", "limits", "called", "prices"),
    [
        (INTRICATE, (25, 25), ["exact"], [0, 0, 0, 0, 0]),
        (INTRICATE, (24, 25), ["pooled", "exact"], [0, 0, 0, 0, 0]),
        (INTRICATE, (24, 24), ["pooled"], None),
        (("1 2", "t: 1", "u: 1>2"), (8, 8), ["exact"], [1, 0]),
        (("1 2", "t: 1", "u: 1>2"), (7, 8), ["pooled"], [1, 0]),
    ],
)
def test_prices_use_exact_exchanges_if_pairs_are_few_or_pools_find_none(
    args: tuple[str, ...],
    limits: tuple[int, int],
    called: list[str],
    prices: list[int] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = start_of(args)
    calls = Calls(monkeypatch, few=limits[0], most=limits[1])
    found = find_prices(start)
    assert (None if found is None else found.tolist(), calls.called) == (prices, called)


@pytest.mark.parametrize(("most", "at_once"), [(18, 2), (17, 1), (1, 1)])
def test_exact_exchanges_take_as_many_unproven_topics_at_once_as_fit(
    most: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    swapped = [f"{name}: {SWAPPED}" for name in "bde"]
    start = outcome("1a 2b 3", "a: 12 3", swapped[0], "c: 13 23 3", *swapped[1:], "f: 3")
    calls = Calls(monkeypatch, few=0, most=most)
    assert unproven_topics(start, np.array([0, 0, 0])) == ["b", "d", "e"]
    assert calls.called == ["pooled", *["exact"] * (3 if at_once == 1 else 2)]
    for number, part in enumerate(calls.exact):
        alone = outcome("1a 2b 3", *swapped[number * at_once : (number + 1) * at_once])
        assert part.topics == alone.topics
        for field in fields(PlacementOutcome):
            if field.name not in ("topics", "constraints", "broker_bounds"):
                assert_array_equal(getattr(part, field.name), getattr(alone, field.name), strict=True)


#: No partition allows it.
NO = 2


def some_outcome() -> PlacementOutcome:
    """Racks a and b, and broker 4 without one; u and v are alike."""
    return outcome("1a 2a 3b 4", "t: 13>23 34 1>4", "u: 12>32", "v: 12>32")


def assert_pooled(found: PooledExchanges, out: object, pool: object, back: tuple[object, object, object]) -> None:
    assert_array_equal(found.out, np.array(out, np.int8), strict=True)
    assert_array_equal(found.pool, np.array(pool, np.int64), strict=True)
    exchanges = (found.back.start, found.back.end, found.back.worth)
    for one, expected, kind in zip(exchanges, back, (np.int64, np.int64, np.int32), strict=True):
        assert_array_equal(one, np.array(expected, kind), strict=True)


def assert_distances(found: Distances, expected: object) -> None:
    assert_array_equal(found, np.array(expected, np.int32), strict=True)


def distances(*rows: list[int]) -> Distances:
    return np.array(rows, np.int32)


def test_a_pair_of_brokers_is_worth_what_its_best_partition_allows() -> None:
    alike = [[NO, NO, NO, NO], [0, NO, NO, 1], [NO, NO, NO, 0], [NO, NO, NO, NO]]
    worth = [[[NO, NO, NO, NO], [-1, NO, NO, 0], [1, 1, NO, 1], [-1, 0, 0, NO]], alike, alike]
    found = exact_exchanges(some_outcome())
    assert_array_equal(found.worth, np.array(worth, np.int8), strict=True)
    assert_array_equal(
        found.restrict_to_topics(np.array([0, 2])).worth, np.array([worth[0], alike], np.int8), strict=True
    )


#: Per broker: what giving to rack a, rack b and the brokers without a rack is worth.
OUT_T = [[NO, NO, NO], [0, NO, 0], [1, 1, 1], [0, 0, 0]]
OUT_U = [[NO, NO, NO], [1, NO, 1], [NO, 0, 0], [NO, NO, NO]]


def test_a_pool_is_given_what_its_rack_could_take_and_gives_back_what_was_there() -> None:
    found = pooled_exchanges(some_outcome())
    pool = [0, 0, 1, 2]
    assert_pooled(found, [OUT_T, OUT_U, OUT_U], pool, ([1, 3, 5, 9], [0, 0, 4, 8], [-1, -1, 0, 0]))
    assert_pooled(found.restrict_to_topics(np.array([0, 2])), [OUT_T, OUT_U], pool, ([1, 3, 5], [0, 0, 4], [-1, -1, 0]))
    assert_pooled(found.restrict_to_topics(np.array([1])), [OUT_U], pool, ([1], [0], [0]))


def test_a_rack_at_its_fewest_gives_to_nobody_else() -> None:
    found = outcome("1a 2a 3b 4a", "t: 123")
    assert_array_equal(count_on_racks(found), np.array([[2, 1]]), strict=True)
    worth = [[[NO, NO, NO, 1], [NO, NO, NO, 1], [NO, NO, NO, NO], [NO, NO, NO, NO]]]
    assert_array_equal(exact_exchanges(found).worth, np.array(worth, np.int8), strict=True)
    out = [[[1, NO, 1], [1, NO, 1], [NO, 1, NO], [NO, NO, NO]]]
    assert_pooled(pooled_exchanges(found), out, [0, 0, 1, 0], ([], [], []))


def test_an_excluded_broker_takes_back_what_is_its_own_and_nothing_else() -> None:
    found = outcome("1 2 3", "t: 13>12 12", exclude_brokers=[3])
    worth = [[[NO, NO, 0], [NO, NO, -1], [NO, NO, NO]]]
    assert_array_equal(exact_exchanges(found).worth, np.array(worth, np.int8), strict=True)
    pooled = pooled_exchanges(found)
    assert_pooled(pooled, [[[1], [0], [NO]]], [0, 0, -1], ([0, 1], [2, 2], [0, -1]))
    assert_distances(pooled.relax_distances(distances([0, -4, 0])), [[-4, -4, -5]])
    nothing_back = pooled_exchanges(outcome("1 2 3", "t: 12", exclude_brokers=[3]))
    assert_distances(nothing_back.relax_distances(distances([0, -4, 5])), [[-3, -4, 5]])


def test_on_racks_counts_a_partition_s_replicas_without_those_on_no_rack() -> None:
    found = outcome("1a 2a 3b 4 5c", "t: 13>12 4 34 123 5>4")
    assert_array_equal(
        count_on_racks(found), np.array([[2, 0, 0], [0, 0, 0], [0, 1, 0], [2, 1, 0], [0, 0, 0]]), strict=True
    )


def test_distances_shrink_along_pairs_that_some_partition_allows() -> None:
    pairs = ExactExchanges(np.array([[[NO, -1], [1, NO]], [[NO, NO], [0, NO]]], np.int8))
    assert_distances(pairs.relax_distances(distances([0, 0], [9, 9])), [[0, -1], [9, 9]])
    assert_distances(pairs.relax_distances(distances([-3, 5], [9, -2])), [[-3, -4], [-2, -2]])
    assert_distances(pairs.relax_distances(distances([0, 0], [0, 9])), [[0, -1], [0, 9]])
    nobody = ExactExchanges(np.zeros((1, 0, 0), np.int8))
    assert_distances(nobody.relax_distances(np.zeros((1, 0), np.int32)), np.zeros((1, 0)))


def test_distances_shrink_along_pools_and_ways_back() -> None:
    pooled = pooled_exchanges(some_outcome())
    one = distances([0, -5, 0, 0], [0, 0, -2, 0], [0, -3, 0, 9])
    assert_distances(pooled.relax_distances(one), [[-6, -5, 0, -5], [0, 0, -2, -2], [-3, -3, 0, -2]])


def outcome_after(snapshot: SnapshotFolder, plan: PlanFolder) -> PlacementOutcome:
    options = plan.proof["options"]
    context = build_context(snapshot.brokers, snapshot.partitions, {"options": options})
    touched = touchable_partitions(context, snapshot.partitions)
    return build_outcome(snapshot.brokers, touched, plan_table(plan.moves), options)


def open_by_pairs(outcome: PlacementOutcome, price: Ints) -> list[str]:
    """The topics that are open in the picture that forgets nothing."""
    steps = certificate._cell_step_costs(outcome, np.arange(len(outcome.topics)))
    worse = certificate.improvable_topics(steps, exact_exchanges(outcome), price.astype(np.int32))
    return [outcome.topics[topic] for topic in np.flatnonzero(worse)]


def test_pooled_exchanges_prove_nothing_that_exact_exchanges_do_not() -> None:
    dice, seen = random.Random(5), 0
    for seed in range(tried(120)):
        outcome = outcome_after(*random_plan(seed))
        # A random placement besides the planned one: most of its topics are open.
        mixed = replace(outcome, placed=np.roll(outcome.placed, dice.randrange(3), axis=1))
        for one in (outcome, mixed):
            price = np.array([dice.randint(-2, 2) for _ in one.constraints.ids])
            assert unproven_topics(one, price) == open_by_pairs(one, price)
            seen += len(one.topics)
    assert seen > 2.5 * tried(120)


@pytest.mark.parametrize("prices", [{}, {"1": 5, "2": -3, "3": 0, "4": 7}, {"1": 1 << 30}, {"1": "x"}, {"9": 0}])
def test_wrong_prices_prove_nothing_and_missing_prices_are_recomputed(prices: dict[str, object]) -> None:
    snapshot = cluster("1 2 3 4+", "t: 12 23 31 12 23 31 12")
    plan = planned(snapshot, "expand")
    verdict = check(snapshot, plan_with(plan.digest, {**plan.proof, "prices": prices}, plan.moves))
    assert verdict.problems == []
    # Prices for all brokers are taken at their word and found wanting; anything else is as good as none.
    assert bool(verdict.unproven) == (len(prices) == 4)


def test_prices_found_by_pooled_exchanges_prove_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificate, "_FEW_CELLS", 0)
    found = 0
    for seed in range(tried(60)):
        outcome = outcome_after(*random_plan(seed))
        quick = certificate._prices_from_exchanges(outcome, pooled_exchanges(outcome))
        found += quick is not None
        prices = find_prices(outcome)
        assert prices is not None
        assert price_objections(outcome, prices) == []
    assert found >= tried(60) * 5 / 6


def _exchanges(snapshot: SnapshotFolder, plan: PlanFolder) -> Iterator[list[Move]]:
    """The plan, with a broker exchanged between a partition that moves and one that does not: as even as before."""
    moved = {move.partition for move in plan.moves}
    for one in plan.moves:
        for number in sorted(set(range(len(snapshot.partitions))) - moved):
            before = tuple(snapshot.partitions["replicas"][number].as_py())
            for home, leaves in itertools.product(set(one.after) - set(before), set(before) - set(one.after)):
                first = replace(one, after=tuple(leaves if broker == home else broker for broker in one.after))
                after = tuple(home if broker == leaves else broker for broker in before)
                second = replace(one, partition=number, before=before, after=after)
                yield [first if move is one else move for move in plan.moves] + [second]


def test_a_worse_plan_with_any_prices_is_valid_and_not_proven() -> None:
    snapshot = cluster("1 2 3 4+", "t: 12 23 31 12 23 31 12 23")
    plan = planned(snapshot, "expand")
    least = plan.proof["replicas_moved"]
    moves = next(moves for moves in _exchanges(snapshot, plan) if sum(len(each.adding) for each in moves) > least)
    moves = [replace(move, chunk=0, position=at) for at, move in enumerate(moves)]
    counts: dict[str, Any] = {
        "replicas_moved": sum(len(move.adding) for move in moves),
        "bytes_moved": sum(len(move.adding) * 1000 for move in moves),
        "leader_changes": sum(move.before[0] != move.after[0] for move in moves),
        # What it says of leaders and order is another matter.
        "leader_evenness": None,
        "spread": {},
    }
    dice = random.Random(2)
    guesses = [plan.proof["prices"], {}, *({str(b): dice.randint(-9, 9) for b in (1, 2, 3, 4)} for _ in range(50))]
    for prices in guesses:
        verdict = check(snapshot, plan_with(plan.digest, {**plan.proof, **counts, "prices": prices}, moves))
        assert [problem for problem in verdict.problems if "how even leaders are" not in problem] == []
        assert verdict.unproven


def test_a_plan_of_bytes_is_checked_for_room_and_its_bound_is_stated() -> None:
    brokers = [{"broker": one, "state": "live", "room": [40 * MIB]} for one in (1, 2, 3)]
    rows = [{"topic": "t", "partition": at, "replicas": [1], "bytes": MIB} for at in range(60)]
    snapshot = snapshot_of(brokers, rows)
    plan = planned(snapshot, "rebalance", {"balance": "bytes"})
    verdict = check(snapshot, plan)
    assert (verdict.problems, verdict.unproven) == ([], ())
    brokers[1]["room"] = [MIB]
    tight = snapshot_of(brokers, rows)
    proof = {**plan.proof, "snapshot_digest": tight.digest}
    problems = check(tight, plan_with(plan.digest, proof, plan.moves)).problems
    assert problems == ["Broker 2 has room for 0 bytes when t-2 comes with 1048576."]


def test_within_a_budget_whatever_moves_ends_up_right() -> None:
    snapshot = cluster("1a 2b 3c 4a+", "t: " + " ".join(["12", "23", "31"] * 6), "u: 14 21")
    plan = planned(snapshot, "rebalance", {"max_moves": 3})
    assert check(snapshot, plan).problems == []
    assert "that no other leaves less to do is not proven" in check(snapshot, plan).unproven[0]
    move = next(move for move in plan.moves if 4 in move.adding)
    # Both are on rack a.
    wrong = replace(move, after=(1, 4))
    moves = [wrong if one is move else one for one in plan.moves]
    verdict = check(snapshot, plan_with(plan.digest, plan.proof, moves))
    assert any("ends up on the wrong racks" in problem for problem in verdict.problems)
    beyond = {**plan.proof, "options": {**plan.proof["options"], "max_moves": 2}}
    assert "beyond max_moves = 2" in " ".join(check(snapshot, plan_with(plan.digest, beyond, plan.moves)).problems)
    roomy = planned(snapshot, "rebalance", {"max_moves": 1000})
    assert (check(snapshot, roomy).problems, check(snapshot, roomy).unproven) == ([], ())
