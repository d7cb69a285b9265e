"""What prices prove and what they do not, and which ones are found: on positions whose answers are known."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from kafka_steward.planning.checker import certificate
from kafka_steward.planning.checker.certificate import (
    ExactExchanges,
    PooledExchanges,
    ReplicaTotals,
    badly_spread_partitions,
    cluster_price_objections,
    cluster_violations,
    exact_exchanges,
    find_prices,
    pooled_exchanges,
    replica_totals,
    topic_violations,
    unproven_topics,
)
from kafka_steward.planning.checker.constraints import PlacementOutcome, build_outcome
from tests.builders import snapshot_of
from tests.planning.outcomes import bound_violations, outcome, price_objections, replicas_after

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
                "2 partitions are not spread over the racks as they could be.",
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
