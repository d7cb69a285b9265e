"""What a plan is held against, by hand: the brokers that count, their fair shares, and the outcome beside the start."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal

from kafka_steward.planning.checker import check
from kafka_steward.planning.checker.check import (
    EvennessFindings,
    add_prices,
    check_evenness,
    prices_in_proof,
    touchable_partitions,
)
from kafka_steward.planning.checker.constraints import Bools, BrokerConstraints, Ints, PlacementOutcome, build_outcome
from kafka_steward.planning.checker.rules import build_context, promises_evenness
from kafka_steward.planning.files.formats import SnapshotFolder, plan_table
from tests.builders import cluster, snapshot_of
from tests.planning.manual_plans import move
from tests.planning.outcomes import outcome, replicas_after, replicas_moved

BROKERS: list[dict[str, Any]] = [
    {"broker": 7, "rack": "b", "state": "live"},
    {"broker": 3, "rack": "a", "state": "live"},
    {"broker": 5, "rack": None, "state": "new"},
    {"broker": 2, "rack": "a", "state": "failed"},
    {"broker": 4, "rack": "0", "state": "draining"},
]


def some_outcome(**options: Any) -> PlacementOutcome:
    """Four partitions, of which three move: on brokers 3, 5 and 7, which may hold them, and on others."""
    rows = [
        {"topic": "u", "partition": 0, "replicas": [7, 3]},
        {"topic": "t", "partition": 1, "replicas": [2, 3]},
        {"topic": "t", "partition": 10, "replicas": [4, 2], "target_rf": 1},
        {"topic": "t", "partition": 0, "replicas": [3, 5]},
    ]
    snapshot = snapshot_of(BROKERS, rows)
    after = replicas_after({("t", 10): [7], ("u", 0): [7, 5], ("t", 1): [5, 3]})
    return build_outcome(snapshot.brokers, snapshot.partitions, after, options)


def assert_ints(found: Ints, expected: object) -> None:
    assert_array_equal(found, np.array(expected, np.int64), strict=True)


def assert_bools(found: Bools, expected: object) -> None:
    assert_array_equal(found, np.array(expected, bool), strict=True)


@pytest.mark.parametrize(
    ("options", "rack", "receive_excluded", "own_rack"),
    [
        ({}, [0, -1, 1], [0, 0, 0], False),
        ({"rack_aware": True, "rackless": "free", "exclude_brokers": None}, [0, -1, 1], [0, 0, 0], False),
        ({"rack_aware": False, "exclude_brokers": [2, 5]}, [0, 0, 0], [0, 1, 0], False),
        ({"rackless": "own-rack", "exclude_brokers": [7, 3]}, [0, -1, 1], [1, 0, 1], True),
    ],
)
def test_live_and_new_brokers_count_in_order_of_their_ids(
    options: dict[str, Any], rack: list[int], receive_excluded: list[int], own_rack: bool
) -> None:
    constraints = BrokerConstraints.of(snapshot_of(BROKERS, []).brokers, options)
    assert_ints(constraints.ids, [3, 5, 7])
    assert_ints(constraints.rack, rack)
    assert_bools(constraints.receive_excluded, receive_excluded)
    assert constraints.soft == any(receive_excluded)
    assert constraints.own_rack == own_rack


@pytest.mark.parametrize(
    ("given", "capacity"),
    [
        ([None, None], [Fraction(1), Fraction(1)]),
        ([2.0, None, 5.0, None], [Fraction(2), Fraction(7, 2), Fraction(5), Fraction(7, 2)]),
        ([1 / 3, 1.1], [Fraction(1, 3), Fraction(11, 10)]),
        # Millionths, and nothing finer.
        ([1 / 1_000_000, 1 / 1_000_001], [Fraction(1, 1_000_000)] * 2),
    ],
)
def test_capacities_are_exact_and_those_not_given_are_the_mean(
    given: list[float | None], capacity: list[Fraction]
) -> None:
    brokers = [{"broker": at, "state": "live", "capacity": one} for at, one in enumerate(given)]
    assert BrokerConstraints.of(snapshot_of(brokers, []).brokers, {}).capacity == capacity


def test_an_outcome_has_replicas_before_and_after_on_usable_brokers() -> None:
    some = some_outcome()
    assert some.topics == ("t", "u")
    assert_ints(some.topic, [0, 0, 0, 1])
    assert_ints(some.factor, [2, 2, 1, 2])
    assert_bools(some.held, [[1, 1, 0], [1, 0, 0], [0, 0, 0], [1, 0, 1]])
    assert_bools(some.placed, [[1, 1, 0], [1, 1, 0], [0, 0, 1], [0, 1, 1]])
    assert_ints(some.cell_counts, [[2, 2, 1], [0, 1, 1]])
    assert_ints(some.rack, [0, -1, 1])
    assert (replicas_moved(some), some.factor_counts) == (3, {2: 3, 1: 1})


def test_a_broker_that_does_not_count_is_in_no_table_wherever_its_id_stands() -> None:
    found = outcome("2", "t: 12>32 3 1>2")
    assert_bools(found.held, [[1], [0], [0]])
    assert_bools(found.placed, [[1], [0], [1]])
    nobody = outcome("1! 2-", "t: 12")
    assert_ints(nobody.rack, [])
    assert_bools(nobody.held, np.zeros((1, 0)))
    assert_ints(nobody.cell_counts, np.zeros((1, 0)))


@pytest.mark.parametrize(
    ("excluded", "rack_bounds", "cell_bounds", "broker_bounds"),
    [
        ([], ([[0, 0]] * 4, [[1, 1]] * 4), ([[1, 1, 1], [0, 0, 0]], [[2, 2, 2], [1, 1, 1]]), ([2, 2, 2], [3, 3, 3])),
        # Broker 7 keeps the one replica that it has, and the others are held to the same shares as before.
        (
            [7],
            ([[0, 0]] * 4, [[1, 0], [1, 0], [1, 0], [1, 1]]),
            ([[1, 1, 0], [0, 0, 0]], [[2, 2, 0], [1, 1, 1]]),
            ([2, 2, 1], [3, 3, 1]),
        ),
    ],
)
def test_bounds_are_fair_shares_and_excluded_brokers_keep_what_they_have(
    excluded: list[int], rack_bounds: object, cell_bounds: object, broker_bounds: object
) -> None:
    some = some_outcome(exclude_brokers=excluded)
    bounds: list[tuple[Any, Any]] = [
        (some.rack_bounds, rack_bounds),
        (some.cell_bounds, cell_bounds),
        (some.broker_bounds, broker_bounds),
    ]
    for found, expected in bounds:
        assert len(found) == len(expected) == 2
        assert_ints(found[0], expected[0])
        assert_ints(found[1], expected[1])


def test_rack_bounds_follow_the_factor_and_the_excluded_brokers_that_hold_the_partition() -> None:
    found = outcome("1a 2a 3b 4b 5c", "t: 123 124 453 12 1 5", exclude_brokers=[4, 5])
    low = [[1, 1, 0], [1, 1, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]]
    high = [[2, 1, 0], [2, 2, 0], [1, 1, 1], [1, 1, 0], [1, 1, 0], [1, 1, 1]]
    assert_ints(found.rack_bounds[0], low)
    assert_ints(found.rack_bounds[1], high)


def fair(racks: str, capacity: Sequence[int] = (), *, own_rack: bool = False) -> BrokerConstraints:
    """`fair("aab-")`: two brokers on rack a, one on b, and one without; of the same capacity, unless given."""
    known = sorted(set(racks) - {"-"})
    rack = np.array([-1 if name == "-" else known.index(name) for name in racks], np.int64)
    exact = [Fraction(one) for one in capacity or [1] * len(racks)]
    return BrokerConstraints(np.arange(len(racks)), rack, np.zeros(len(racks), bool), exact, own_rack)


#: No broker is excluded, so that it does not count what they hold.
ANY = np.zeros(1, np.int64)


def assert_bounds(found: tuple[Ints, Ints], low: object, high: object) -> None:
    for bound, expected in zip(found, (low, high), strict=True):
        assert_array_equal(bound, np.array(expected, np.int64), strict=True)


@pytest.mark.parametrize(
    ("racks", "own_rack", "reach", "factor", "fewest_and_most"),
    [
        ("ab", False, "11", 1, ([0, 0], [1, 1])),
        ("ab", False, "11", 2, ([0, 0], [1, 1])),
        ("aab", False, "111", 3, ([1, 1], [2, 1])),
        ("aaabb", False, "11111", 5, ([2, 2], [3, 2])),
        # Only those within reach count.
        ("aabb", False, "0111", 3, ([1, 1], [1, 2])),
        ("aab-", True, "1110", 3, ([1, 1], [2, 1])),
        # Brokers without a rack are the last resort, unless each is a rack of its own.
        ("aab-", False, "1111", 3, ([1, 1], [2, 1])),
        ("aab-", True, "1111", 3, ([0, 0], [1, 1])),
        ("aaab--", False, "111111", 5, ([1, 1], [2, 1])),
        ("--", False, "11", 2, ([], [])),
        # More replicas than there is room for: each broker has one.
        ("aab", False, "111", 9, ([1, 1], [2, 1])),
        ("ab", False, "11", 3, ([0, 0], [1, 1])),
        ("--", False, "01", 2, ([], [])),
        ("", False, "", 1, ([], [])),
    ],
)
def test_the_replicas_of_a_partition_are_on_as_many_racks_as_can_be(
    racks: str, own_rack: bool, reach: str, factor: int, fewest_and_most: tuple[list[int], list[int]]
) -> None:
    within = np.array([digit == "1" for digit in reach], bool)
    assert fair(racks, own_rack=own_rack).reachable_rack_bounds(factor, within) == fewest_and_most


@pytest.mark.parametrize(
    ("racks", "capacity", "factor", "partitions", "replicas"),
    [
        ("--", [1, 2], 1, 3, [1, 2]),
        # Nobody holds a partition twice, and the others share what is left.
        ("---", [1, 1, 8], 2, 2, [1, 1, 2]),
        ("abc", [1, 5, 9], 3, 1, [1, 1, 1]),
        ("aab", [1, 1, 1], 2, 2, [1, 1, 2]),
        ("aaab", [6, 1, 1, 4], 3, 2, [2, 1, 1, 2]),
        # Rack a is as much above its most as rack b is below its fewest.
        ("aaab", [1, 1, 1, 1], 3, 3, [2, 2, 2, 3]),
        # Rack a is above its most by more than the others are below their fewest; then it is the other way round.
        ("aaabbbccc", [8, 6, 6, 1, 1, 1, 1, 1, 1], 5, 10, [8, 6, 6, 5, 5, 5, 5, 5, 5]),
        ("aaabbbccc", [7, 7, 7, 5, 5, 5, 1, 1, 2], 4, 12, [7, 7, 7, 5, 5, 5, 3, 3, 6]),
        ("ab-", [1, 1, 1], 2, 3, [2, 2, 2]),
        ("-ab", [6, 1, 1], 2, 2, [2, 1, 1]),
        ("ab-", [6, 3, 1], 3, 1, [1, 1, 1]),
        ("ab", [1, 1], 3, 1, [1, 1]),
    ],
)
def test_shares_follow_capacity_as_far_as_racks_and_brokers_allow(
    racks: str, capacity: list[int], factor: int, partitions: int, replicas: list[int]
) -> None:
    # So many partitions that the shares are whole numbers.
    assert_bounds(fair(racks, capacity).broker_bounds({factor: partitions}, ANY), replicas, replicas)


def test_bounds_are_the_shares_of_all_factors_together_rounded_once() -> None:
    two = fair("--", [1, 2])
    assert_bounds(two.broker_bounds({1: 3, 2: 3}, ANY), [4, 5], [4, 5])
    assert_bounds(two.broker_bounds({2: 3, 1: 1}, ANY), [3, 3], [4, 4])
    topic, factor = np.array([0, 0, 3, 3, 3]), np.array([1, 2, 1, 1, 1])
    low, high = [[1, 1], [0, 0], [0, 0], [1, 2]], [[2, 2], [0, 0], [0, 0], [1, 2]]
    assert_bounds(two.cell_bounds(topic, factor, ANY), low, high)


def test_no_partitions_and_no_brokers_have_no_shares() -> None:
    nothing = np.zeros(0, np.int64)
    assert_bounds(fair("ab").broker_bounds({}, ANY), [0, 0], [0, 0])
    assert_bounds(fair("ab").cell_bounds(nothing, nothing, ANY), np.zeros((0, 2)), np.zeros((0, 2)))
    nobody = fair("")
    assert (nobody.rack_count, nobody.rack_members, nobody.rackless) == (0, [], [])
    assert_bounds(nobody.broker_bounds({1: 2}, ANY), [], [])


#: The largest number of 64 bits is 2**63 - 1.
@pytest.mark.parametrize(
    ("capacity", "partitions", "low", "high"),
    [
        ([2**61 + 1, 2**61 - 1], 1, [0, 0], [1, 1]),
        ([2**61 + 1, 2**61 - 1], 4, [2, 1], [3, 2]),
        ([2**59 + 1, 2**59 - 1], 4, [2, 1], [3, 2]),
        ([2**70 + 1, 2**70 - 1], 4, [2, 1], [3, 2]),
        # The denominator is beyond, and no numerator.
        ([2**60] * 8 + [1], 1, [0] * 9, [1] * 9),
    ],
)
def test_shares_are_exact_beyond_64_bits(capacity: list[int], partitions: int, low: list[int], high: list[int]) -> None:
    many = fair("-" * len(capacity), capacity)
    assert_bounds(many.broker_bounds({1: partitions}, ANY), low, high)
    one = np.ones(partitions, np.int64)
    assert_bounds(many.cell_bounds(one - 1, one, ANY), [low], [high])


def judged(snapshot: SnapshotFolder, *moves: str, **proof: Any) -> EvennessFindings:
    rows = [move(snapshot, text, at) for at, text in enumerate(moves)]
    full = {"operation": "rebalance", **proof}
    touched = touchable_partitions(build_context(snapshot.brokers, snapshot.partitions, full), snapshot.partitions)
    return check_evenness(snapshot.brokers, touched, plan_table(rows), full)


def touchable(snapshot: SnapshotFolder, options: dict[str, Any]) -> pa.Table:
    context = build_context(snapshot.brokers, snapshot.partitions, {"options": options})
    return touchable_partitions(context, snapshot.partitions)


TWO = cluster("1 2", "t: 1 1", "u: 2")


@pytest.mark.parametrize(
    ("operation", "options", "even"),
    [
        ("rebalance", {"balance": "replicas"}, True),
        ("expand", {}, True),
        ("drain", None, True),
        ("rebalance", {"balance": "bytes"}, False),
        ("heal", {}, False),
        ("apply", {"balance": "replicas"}, False),
    ],
)
def test_what_evens_out_replicas_is_to_be_even(operation: str, options: dict[str, Any] | None, even: bool) -> None:
    assert promises_evenness({"operation": operation, "options": options}) is even


def test_what_is_lost_or_still_moving_may_not_be_touched() -> None:
    brokers = [{"broker": 1, "state": "live"}, {"broker": 2, "state": "failed"}]
    rows: list[dict[str, Any]] = [
        {"topic": "t", "partition": 0, "replicas": [2]},
        {"topic": "t", "partition": 1, "replicas": [1, 2]},
        {"topic": "t", "partition": 2, "replicas": [1], "adding": [1]},
        {"topic": "t", "partition": 3, "replicas": [1], "removing": [1]},
    ]
    snapshot = snapshot_of(brokers, rows)
    assert touchable(snapshot, {})["partition"].to_pylist() == [1]


def test_sums_are_those_of_the_topics_that_may_be_touched() -> None:
    snapshot = cluster("1 2 3 4-", "t: 14 12", "u: 3", "x: 123")
    found = judged(snapshot, "t-0 13", options={"exclude": ["x"]}, prices={"1": 0, "2": 0, "3": 0})
    assert found == EvennessFindings([], [], {1: 2, 2: 1, 3: 1}, {1: 2, 2: 1, 3: 2}, {2: 2, 1: 1}, [])


@pytest.mark.parametrize(
    ("moves", "uneven", "unproven_topics"),
    [(["t-1 2"], [], []), ([], ["The topic t is not even."], []), (["t-0 2"], [], []), (["t-1 2", "u-0 1"], [], ["u"])],
)
def test_what_is_not_even_or_not_proven_is_named(
    moves: list[str], uneven: list[str], unproven_topics: list[str]
) -> None:
    found = judged(TWO, *moves, prices={"1": 0, "2": 0})
    assert (found.problems, found.uneven, found.unproven_topics) == ([], uneven, unproven_topics)


RACKED = cluster("1a 2a 3b 4b", "t: 12 34", "u: 13")
WRONG = "A partition of t moves, and ends up on the wrong racks or number of brokers."


@pytest.mark.parametrize(
    ("moves", "problems"),
    [
        ([], []),
        (["t-0 13"], []),
        (["t-1 12"], [WRONG]),
        (["t-0 134"], [WRONG]),
        (["t-0 34", "t-1 12"], [WRONG]),
        # What stays on its brokers, in another order, is no worse than it was.
        (["t-0 21"], []),
    ],
)
@pytest.mark.parametrize("budget", [{"max_moves": 9}, {"max_bytes": 9000}])
def test_within_a_budget_what_moves_ends_up_on_the_right_racks(
    budget: dict[str, int], moves: list[str], problems: list[str]
) -> None:
    assert judged(RACKED, *moves, options=budget).problems == problems
    # Without a budget, all of it has to be right, and is listed as uneven.
    assert judged(RACKED, *moves, options={"max_moves": None, "max_bytes": None}).problems == []


def test_what_a_drain_leaves_behind_is_named_ten_times_at_most() -> None:
    brokers = [{"broker": one, "state": "draining" if one == 1 else "live"} for one in (1, 2, 3)]
    row = {"topic": "t", "replicas": [1, 2, 3], "target_rf": 2}
    named = ["A partition of t keeps a replica on a broker that is to hold none."]
    for count in (1, 10, 11):
        snapshot = snapshot_of(brokers, [{**row, "partition": at} for at in range(count)])
        assert judged(snapshot).uneven == named * min(count, 10)
        # The first of them gives it up.
        assert judged(snapshot, "t-0 23").uneven == named * min(count - 1, 10)


@pytest.mark.parametrize(
    ("replicas", "target", "uneven"),
    [
        ([2, 3], 2, []),
        ([1, 2], 2, ["A partition of t has another number of usable replicas than it should."]),
        ([1, 2, 3], 3, ["A partition of t has another number of usable replicas than it should."]),
        ([2, 3], 1, ["A partition of t has another number of usable replicas than it should."]),
    ],
)
def test_what_lacks_or_has_too_many_usable_replicas_is_named_once(
    replicas: list[int], target: int, uneven: list[str]
) -> None:
    brokers = [{"broker": one, "state": "draining" if one == 1 else "live"} for one in (1, 2, 3, 4)]
    row = {"topic": "t", "partition": 0, "replicas": replicas, "target_rf": target}
    found = judged(snapshot_of(brokers, [row])).uneven
    assert [one for one in found if one.startswith("A partition")] == uneven


@pytest.mark.parametrize(
    ("prices", "used"),
    [
        ({"1": 1, "2": -2}, [1, -2]),
        ({"2": -2, "1": 1}, [1, -2]),
        ({"1": (1 << 24) - 1, "2": 1 - (1 << 24)}, [(1 << 24) - 1, 1 - (1 << 24)]),
        ({"1": 1 << 24, "2": 0}, None),
        ({"1": 0, "2": -(1 << 24)}, None),
        ({"1": 0}, None),
        ({"1": 0, "2": 0, "3": 0}, None),
        ({"1": 0, "2": 0.0}, None),
        ({"1": 0, "2": True}, None),
        ({}, None),
        (None, None),
    ],
)
def test_prices_are_one_whole_number_for_each_broker(prices: dict[str, Any] | None, used: list[int] | None) -> None:
    assert prices_in_proof(BrokerConstraints.of(TWO.brokers, {}), {"prices": prices}) == used
    if used is None:
        assert judged(TWO, "t-1 2", prices=prices).unproven_topics == []


SEEN = {"operation": "rebalance", "options": {}}


@pytest.mark.parametrize(
    ("moves", "proof", "sought"),
    [
        (["t-1 2"], SEEN, True),
        (["t-1 2"], {**SEEN, "prices": {"1": 0}}, True),
        (["t-1 2"], {"operation": "rebalance"}, True),
        (["t-1 2"], {**SEEN, "prices": {"1": 7, "2": 7}}, False),
        (["t-1 2"], {**SEEN, "operation": "heal"}, False),
        (["t-1 2"], {**SEEN, "options": {"balance": "bytes"}}, False),
        # A plan that is not minimal has none, and one with rows that are no moves is not looked at.
        (["t-1 2", "u-0 1"], SEEN, False),
        (["t-1 2", "t-1 2"], SEEN, False),
    ],
)
def test_prices_that_a_proof_lacks_are_computed_from_its_rows(
    moves: list[str], proof: dict[str, Any], sought: bool
) -> None:
    rows = plan_table([move(TWO, text, at) for at, text in enumerate(moves)])
    found = add_prices(TWO, rows, proof)
    if not sought:
        assert found is proof
        return
    prices = found["prices"]
    assert found == {**proof, "prices": prices}
    assert [(name, type(price)) for name, price in prices.items()] == [("1", int), ("2", int)]
    assert judged(TWO, *moves, prices=prices).unproven_topics == []


def test_no_prices_are_computed_for_rows_of_another_snapshot() -> None:
    other = plan_table([move(TWO, "t-1 2", partition=9)])
    assert add_prices(TWO, other, SEEN) is SEEN
    assert add_prices(TWO, plan_table([move(TWO, "t-1 2", topic="v")]), SEEN) is SEEN


def test_prices_are_those_of_the_partitions_that_may_be_touched() -> None:
    snapshot = cluster("1 2", "t: 1 1", "x: 1 2")
    # An exchange without need, for which there are no prices.
    rows = plan_table([move(snapshot, text, at) for at, text in enumerate(["t-1 2", "x-0 2", "x-1 1"])])
    assert "prices" not in add_prices(snapshot, rows, SEEN)
    assert "prices" in add_prices(snapshot, rows, {**SEEN, "options": {"exclude": ["x"]}})


def test_prices_are_computed_up_to_a_number_of_partitions_times_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = plan_table([move(TWO, "t-1 2")])
    monkeypatch.setattr(check, "_MAX_SOUGHT", 5)
    assert add_prices(TWO, rows, SEEN) is SEEN
    monkeypatch.setattr(check, "_MAX_SOUGHT", 6)
    assert "prices" in add_prices(TWO, rows, SEEN)
