"""Fair shares by hand: racks first, then capacities, each to the last digit."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from kafka_steward.planning.checker.constraints import BrokerConstraints, Ints


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
