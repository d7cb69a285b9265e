"""What an even plan leaves of some topics: which it may touch, what is wrong, and sums and prices for the rest."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pytest

from kafka_steward.planning.checker import check
from kafka_steward.planning.checker.check import (
    EvennessFindings,
    add_prices,
    check_evenness,
    promises_evenness,
    touchable_partitions,
)
from kafka_steward.planning.checker.rules import build_context
from kafka_steward.planning.files.formats import SnapshotFolder, plan_table
from tests.builders import cluster, snapshot_of
from tests.planning.manual_plans import move


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
    assert found == EvennessFindings(
        problems=[],
        uneven=[],
        held=[2, 1, 1],
        placed=[2, 1, 2],
        factors={2: 2, 1: 1},
        prices=[0, 0, 0],
        unproven_topics=[],
    )


@pytest.mark.parametrize(
    ("moves", "uneven", "unproven_topics"),
    [
        (["t-1 2"], [], []),
        ([], ["The topic t is not even."], []),
        (["t-0 2"], [], []),
        (["t-1 2", "u-0 1"], [], ["u"]),
    ],
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


def test_the_evenness_of_all_topics_is_the_sum_of_theirs() -> None:
    one = EvennessFindings(["a"], ["b"], [1, 2], [3, 4], {1: 2, 3: 1}, [5, -5], ["c"])
    # As it comes back from Spark, in JSON, where factors are words.
    told = json.dumps(asdict(EvennessFindings(["d"], [], [10, 20], [30, 40], {3: 4}, [5, -5], ["e", "f"])))
    other = EvennessFindings(**json.loads(told))
    summed = EvennessFindings(["a", "d"], ["b"], [11, 22], [33, 44], {1: 2, 3: 5}, [5, -5], ["c", "e", "f"])
    assert EvennessFindings.combine([one, other]) == summed


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
    found = judged(TWO, "t-1 2", prices=prices)
    assert found.prices == used
    if used is None:
        assert found.unproven_topics == []


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
