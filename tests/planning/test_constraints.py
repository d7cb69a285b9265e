"""What a plan is held against, by hand: the brokers that count, their bounds, and the outcome beside the start."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from kafka_steward.planning.checker.constraints import Bools, BrokerConstraints, Ints, PlacementOutcome, build_outcome
from tests.builders import cluster, snapshot_of
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


def test_an_outcome_without_moves_is_the_start() -> None:
    snapshot = cluster("1 2", "t: 12 1", "u: 1")
    found = build_outcome(snapshot.brokers, snapshot.partitions, replicas_after({}), {})
    assert_bools(found.placed, [[1, 1], [1, 0], [1, 0]])
    assert_ints(found.cell_counts, [[2, 1], [1, 0]])
    assert replicas_moved(found) == 0


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
        (
            [],
            ([[0, 0]] * 4, [[1, 1]] * 4),
            ([[1, 1, 1], [0, 0, 0]], [[2, 2, 2], [1, 1, 1]]),
            ([2, 2, 2], [3, 3, 3]),
        ),
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
