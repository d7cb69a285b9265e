"""The option `topic_spread`: how far a broker may be beyond its share of a topic, and how few replicas then move."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kafka_steward.assignment import EVEN_OPERATIONS, Operation
from kafka_steward.errors import PlanError, RequestError
from kafka_steward.execution.plans.summary import plan_tables
from kafka_steward.planning import shards
from kafka_steward.planning.checker.check import check
from kafka_steward.planning.files.formats import SnapshotFolder
from kafka_steward.planning.options import Options
from kafka_steward.rebalance_request import RebalanceRequest
from tests.builders import EVEN, cluster, planned
from tests.planning.integer_solver import fewest, random_case
from tests.planning.test_proof import cost, scarce_racks, solved
from tests.rings import tried

SPREADS = ["1", "2", "any"]
#: Each broker holds four replicas, but not as many of each topic.
UNEVEN = cluster("1 2 3", "t: 1 1 1 1 2 3", "u: 3 3 3 2 2 2")


def moved(snapshot: SnapshotFolder, spread: str, **options: Any) -> int:
    plan = planned(snapshot, "rebalance", {"topic_spread": spread, **options})
    verdict = check(snapshot, plan)
    assert (verdict.problems, verdict.unproven) == ([], ())
    return int(plan.proof["replicas_moved"])


def test_a_wider_spread_moves_fewer_replicas_and_leaves_the_brokers_even() -> None:
    assert [moved(UNEVEN, spread) for spread in ("1", "2", "3", "any")] == [4, 2, 0, 0]


def test_a_plan_for_a_wide_spread_is_not_even_for_a_narrow_one() -> None:
    plan = planned(UNEVEN, "rebalance", {"topic_spread": "2"})
    plan.proof["options"]["topic_spread"] = "1"
    assert "The topic t is not even." in check(UNEVEN, plan).problems


@pytest.mark.parametrize("spread", SPREADS)
def test_random_cases_move_as_little_as_an_integer_solver_finds(monkeypatch: pytest.MonkeyPatch, spread: str) -> None:
    worse, compared = [], 0
    for seed in range(2000, 2000 + tried(120, least=40)):
        snapshot = random_case(seed)
        options = {"rackless": ["free", "own-rack"][seed % 2], "rack_aware": seed % 7 != 0, "topic_spread": spread}
        seen = solved(snapshot, monkeypatch, **options)
        if "problem" not in seen:
            continue
        best = fewest(*seen["problem"])
        if best is None or not seen["placed"].within_bounds:
            assert options["rackless"] == "free"
            assert scarce_racks(snapshot)
            continue
        compared += 1
        worse += [seed] if cost(seen["problem"][0], seen["placed"]) != best else []
    assert worse == []
    assert compared > 10


@pytest.mark.parametrize("operation", sorted(EVEN_OPERATIONS))
@pytest.mark.parametrize("spread", SPREADS[1:])
@pytest.mark.parametrize("barred", [[], [103]], ids=["", "excluded"])
def test_random_cases_are_valid_and_proven_in_one_shard_and_in_several(
    operation: str, spread: str, barred: list[int]
) -> None:
    for seed in range(3000, 3000 + tried(40, least=12)):
        snapshot = random_case(seed)
        ids = set(snapshot.brokers["broker"].to_pylist())
        options = {"topic_spread": spread, "exclude_brokers": sorted(ids.intersection(barred))}
        whole, pieces = (planned(snapshot, operation, options, shard_rows=rows) for rows in (30_000, 1))
        for plan in (whole, pieces):
            verdict = check(snapshot, plan)
            assert (seed, verdict.problems, verdict.unproven) == (seed, [], ())
        moves = [(plan.proof["replicas_moved"], plan.proof["lower_bound"]) for plan in (whole, pieces)]
        assert moves[0] == moves[1], seed


def test_a_number_may_be_given_as_one() -> None:
    assert Options.of(Operation.EXPAND, {"topic_spread": 2}).topic_slack == 1
    assert Options.of(Operation.EXPAND, {"topic_spread": "any"}).topic_slack is None


@pytest.mark.parametrize("value", ["0", "all", 0, -1, 1.5, True, None, ["1"]])
def test_another_value_is_refused_in_a_sentence(value: Any) -> None:
    with pytest.raises(PlanError, match=re.escape("The option topic_spread is ")):
        Options.of(Operation.REBALANCE, {"topic_spread": value})


def test_a_heal_has_no_spread() -> None:
    with pytest.raises(PlanError, match="has no option 'topic_spread'"):
        Options.of(Operation.HEAL, {"topic_spread": "1"})


@pytest.mark.parametrize("balance", ["bytes", "racks"])
def test_a_spread_of_replicas_where_something_else_is_balanced_is_refused(balance: str) -> None:
    given = {"topic_spread": "2", "balance": balance}
    with pytest.raises(PlanError, match="The option topic_spread is '2', which is about numbers of replicas"):
        Options.of(Operation.REBALANCE, given)
    with pytest.raises(RequestError, match="topic_spread is about numbers of replicas"):
        RebalanceRequest("rebalance", options=given).validate()
    RebalanceRequest("rebalance", options={**given, "topic_spread": "1"}).validate()


def test_the_proof_says_what_each_spread_would_move() -> None:
    plan = planned(UNEVEN, "rebalance", {"topic_spread": "2"})
    costs = [
        (cost["topic_spread"], cost["replicas_moved"], cost["topics_less_even"]) for cost in plan.proof["frontier"]
    ]
    assert costs == [("1", 4, 0), ("2", 2, 2), ("3", 0, 2), ("any", 0, 2)]
    rows = dict(plan_tables(plan, UNEVEN).costs)
    assert rows["with topic_spread 1"] == "4 replicas, 4.0 kB"
    assert rows["with topic_spread 3"] == "0 replicas, 0 B; 2 topics less even than can be"
    assert rows.keys().isdisjoint({"with topic_spread 2", "with topic_spread any"})
    plan.proof["frontier"][1]["replicas_moved"] = 5
    assert "The proof's frontier has 5 moves for the plan, which has 2." in check(UNEVEN, plan).problems


@pytest.mark.parametrize("operation", sorted(EVEN_OPERATIONS))
def test_what_a_spread_would_move_is_what_its_plan_moves(operation: str) -> None:
    for seed in range(4000, 4000 + tried(20, least=6)):
        snapshot = random_case(seed)
        frontier = planned(snapshot, operation, EVEN).proof["frontier"]
        assert [costs["topic_spread"] for costs in frontier] == ["1", "2", "3", "any"], seed
        for costs in frontier:
            proof = planned(snapshot, operation, {**EVEN, "topic_spread": costs["topic_spread"]}).proof
            assert {name: proof[name] for name in ("replicas_moved", "bytes_moved")}.items() <= costs.items(), seed


def test_nothing_is_compared_where_it_takes_long_or_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert planned(UNEVEN, "rebalance", {"balance": "bytes"}).proof["frontier"] == []
    assert planned(UNEVEN, "heal").proof["frontier"] == []
    few = planned(UNEVEN, "rebalance").proof["frontier"]
    monkeypatch.setattr(shards, "SHARD_ROWS", 11)
    assert planned(UNEVEN, "rebalance").proof["frontier"] == []
    assert planned(UNEVEN, "rebalance", {"compare_spreads": True}).proof["frontier"] == few != []
