"""Which exchanges an outcome allows, pair by pair and by pools: written out for a few partitions."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_array_equal

from kafka_steward.planning.checker.certificate import (
    Distances,
    ExactExchanges,
    PooledExchanges,
    count_on_racks,
    exact_exchanges,
    pooled_exchanges,
)
from kafka_steward.planning.checker.constraints import PlacementOutcome
from tests.planning.outcomes import outcome

#: No partition allows it.
NO = 2


def some_outcome() -> PlacementOutcome:
    """Racks a and b, and broker 4 without one; u and v are alike."""
    return outcome("1a 2a 3b 4", "t: 13>23 34 1>4", "u: 12>32", "v: 12>32")


def assert_pooled(found: PooledExchanges, out: object, pool: object, back: tuple[object, object, object]) -> None:
    assert_array_equal(found.out, np.array(out, np.int8), strict=True)
    assert_array_equal(found.pool, np.array(pool, np.int64), strict=True)
    for one, expected, kind in zip(found.back, back, (np.int64, np.int64, np.int32), strict=True):
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
