"""Demoted brokers lead nothing and come last: by a plan of their own, and in each plan made later."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from kafka_steward.assignment import Move
from kafka_steward.planning.checker.check import check
from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder
from tests.builders import cluster, plan_with, planned, snapshot_of


def with_demoted(snapshot: SnapshotFolder, *brokers: int) -> SnapshotFolder:
    """The same snapshot, in which these brokers are demoted."""
    rows = [row | {"demoted": row["broker"] in brokers or None} for row in snapshot.brokers.to_pylist()]
    return snapshot_of(rows, snapshot.partitions.to_pylist())


def orders_after(snapshot: SnapshotFolder, plan: PlanFolder) -> list[tuple[int, ...]]:
    """The replicas of each partition once the plan is carried out."""
    after = {(move.topic, move.partition): move.after for move in plan.moves}
    rows = snapshot.partitions.to_pylist()
    return [after.get((row["topic"], row["partition"]), tuple(row["replicas"])) for row in rows]


def test_demoted_brokers_lead_nothing_and_come_last_and_nothing_else_changes() -> None:
    snapshot = cluster("1a 2b 3c 4a", "t: 123 213 312 231 24 42", "u: 41")
    plan = planned(snapshot, "demote", {"demote": [1]})
    before = orders_after(snapshot, planned(with_demoted(snapshot), "demote"))
    assert orders_after(snapshot, plan) == [(3, 2, 1), (2, 3, 1), (3, 2, 1), (2, 3, 1), (2, 4), (4, 2), (4, 1)]
    assert plan.proof["replicas_moved"] == 0
    assert plan.proof["leader_changes"] == 1
    assert plan.proof["brokers_demoted"] == [1]
    assert [move.before for move in plan.moves] == [(1, 2, 3), (2, 1, 3), (3, 1, 2)]
    assert check(snapshot, plan).problems == []
    assert before == [tuple(row["replicas"]) for row in snapshot.partitions.to_pylist()]


def test_what_they_led_is_taken_over_evenly() -> None:
    snapshot = cluster("1 2 3 4", "t: 12 13 14 12 12 12 21")
    plan = planned(snapshot, "demote", {"demote": [1]})
    assert Counter(order[0] for order in orders_after(snapshot, plan)) == {2: 5, 3: 1, 4: 1}
    wide = cluster("1 2 3 4", "t: 1234 1234 1234 1234 1234 1234 23")
    plan = planned(wide, "demote", {"demote": [1]})
    assert sorted(Counter(order[0] for order in orders_after(wide, plan)).values()) == [2, 2, 3]


def test_a_demoted_broker_that_alone_is_in_sync_goes_on_leading_and_is_named() -> None:
    snapshot = cluster("1 2 3", "t: 12/1 12 1 231", "u: 123/13")
    plan = planned(snapshot, "demote", {"demote": [1]})
    assert orders_after(snapshot, plan) == [(1, 2), (2, 1), (1,), (2, 3, 1), (3, 2, 1)]
    assert [(row["partition"], row["reason"]) for row in plan.proof["unplaced"]] == [
        (0, "no_candidate"),
        (2, "no_candidate"),
    ]
    assert check(snapshot, plan).problems == []


def test_the_next_plan_is_empty() -> None:
    snapshot = cluster("1 2 3", "t: 123 132 213 12 31")
    rows = snapshot.partitions.to_pylist()
    after = orders_after(snapshot, planned(snapshot, "demote", {"demote": [1]}))
    moved = [row | {"replicas": list(order)} for row, order in zip(rows, after, strict=True)]
    again = with_demoted(snapshot_of(snapshot.brokers.to_pylist(), moved), 1)
    for operation in ("demote", "leaders", "fill"):
        plan = planned(again, operation)
        assert all(order[0] != 1 and 1 not in order[:-1] for order in orders_after(again, plan))
        assert check(again, plan).problems == []
    assert not planned(again, "demote").moves


def random_cluster(dice: random.Random, **usual: Any) -> SnapshotFolder:
    """Three to five brokers, of which one or two are demoted, and up to eight partitions."""
    brokers = list(range(1, dice.randint(3, 5) + 1))
    rows: list[dict[str, Any]] = [
        {"broker": broker, "rack": dice.choice(["a", "b", None]), "state": "live"} for broker in brokers
    ]
    for broker in dice.sample(brokers, dice.randint(1, 2)):
        rows[broker - 1]["demoted"] = True
    for state in usual.get("states", ()):
        rows[dice.randrange(len(brokers))]["state"] = state
    parts = []
    for topic in "tu":
        for number in range(dice.randint(1, 5)):
            replicas = dice.sample(brokers, dice.randint(1, 3))
            isr = [broker for broker in replicas if dice.random() < usual.get("in_sync", 1)] or replicas[:1]
            parts.append({"topic": topic, "partition": number, "replicas": replicas, "isr": isr, "leader": isr[0]})
            parts[-1] |= {"target_rf": max(len(replicas), dice.randint(1, 3)), "bytes": dice.choice([0, 10, 1000])}
    return snapshot_of(rows, parts)


@pytest.mark.parametrize("seed", range(60))
def test_no_other_takeover_is_more_even(seed: int) -> None:
    snapshot = random_cluster(random.Random(seed), in_sync=0.8)
    demoted = {row["broker"] for row in snapshot.brokers.to_pylist() if row["demoted"]}
    plan = planned(snapshot, "demote")
    options, led = [], Counter[int]()
    for row in snapshot.partitions.to_pylist():
        able = [broker for broker in row["replicas"] if broker in row["isr"] and broker not in demoted]
        if row["replicas"][0] in demoted and able:
            options.append(able)
        else:
            led[row["replicas"][0]] += 1
    best = min(sum(count**2 for count in (led + Counter(choice)).values()) for choice in itertools.product(*options))
    after = Counter(order[0] for order in orders_after(snapshot, plan))
    assert sum(count**2 for count in after.values()) == best
    assert plan.proof["leader_changes"] == len(options)
    assert check(snapshot, plan).problems == []


LATER: list[tuple[str, dict[str, Any]]] = [
    ("rebalance", {}),
    ("rebalance", {"prefer": "isr-order"}),
    ("rebalance", {"balance": "bytes"}),
    ("rebalance", {"balance": "racks"}),
    ("rebalance", {"max_moves": 1}),
    ("drain", {}),
    ("heal", {}),
    ("fill", {}),
    ("leaders", {}),
    ("set-replication-factor", {"replication_factor": 2, "topics": ["t"]}),
]


@pytest.mark.parametrize(("operation", "options"), LATER)
@pytest.mark.parametrize("seed", range(20))
def test_each_later_plan_lets_demoted_brokers_lead_only_what_no_other_can(
    operation: str, options: dict[str, Any], seed: int
) -> None:
    states = {"heal": ["failed"], "drain": ["draining"]}.get(operation, [])
    snapshot = random_cluster(random.Random(seed), in_sync=0.9, states=states)
    demoted = {row["broker"] for row in snapshot.brokers.to_pylist() if row["demoted"]}
    plan = planned(snapshot, operation, options)
    assert check(snapshot, plan).problems == []
    isr = {(row["topic"], row["partition"]): row["isr"] for row in snapshot.partitions.to_pylist()}
    live = {row["broker"] for row in snapshot.brokers.to_pylist() if row["state"] == "live"}
    for move in plan.moves:
        assert list(move.after[1:]) == sorted(move.after[1:], key=demoted.__contains__) or not demoted
        kept = set(move.after).intersection(isr[move.topic, move.partition], live) - demoted
        assert move.after[0] not in demoted or not kept


@pytest.mark.parametrize("seed", range(10))
def test_in_several_shards_too(seed: int) -> None:
    snapshot = random_cluster(random.Random(seed))
    for operation in ("rebalance", "heal", "demote", "leaders"):
        plan = planned(snapshot, operation, shard_rows=3)
        assert check(snapshot, plan).problems == []


SNAPSHOT = cluster("1 2 3 4", "t: 123 213 312 231 24 14 34")


@pytest.mark.parametrize(
    ("number", "after", "words"),
    [
        (0, (1, 2, 3), "changes nothing"),
        (0, (2, 1, 3), "demoted broker comes before"),
        (0, (1, 3, 2), "is demoted and would lead it"),
        (4, (4, 2), "no demoted broker leads it"),
        (1, (3, 2, 1), "is not demoted, and must stay"),
        (3, (3, 2, 1), "no demoted broker leads it"),
        (0, (2, 3), "does more than let another"),
    ],
)
def test_the_checker_refuses_what_is_no_demotion(number: int, after: tuple[int, ...], words: str) -> None:
    plan = planned(SNAPSHOT, "demote", {"demote": [1]})
    before = tuple(SNAPSHOT.partitions["replicas"][number].as_py())
    others = [move for move in plan.moves if move.partition != number]
    moves = [*others, Move("t", number, before, after, 0, len(others), "reorder", None, 1000)]
    wrong = plan_with(plan.digest, {**plan.proof, "spread": {}}, moves)
    assert any(words in problem for problem in check(SNAPSHOT, wrong).problems)


def test_the_checker_refuses_a_demotion_that_leaves_or_overloads() -> None:
    plan = planned(SNAPSHOT, "demote", {"demote": [1]})
    some = plan_with(plan.digest, {**plan.proof, "spread": {}}, plan.moves[:1])
    assert any("has to change its order, and is neither in" in problem for problem in check(SNAPSHOT, some).problems)
    by_number = {move.partition: move for move in plan.moves}
    assert by_number[0].after == (3, 2, 1)
    uneven = [replace(move, after=(2, 3, 1)) if move.partition == 0 else move for move in plan.moves]
    problems = check(SNAPSHOT, plan_with(plan.digest, {**plan.proof, "spread": {}}, uneven)).problems
    assert problems == [] or any("more evenly" in problem for problem in problems)


def test_the_proof_names_the_demoted_brokers() -> None:
    plan = planned(SNAPSHOT, "demote", {"demote": [1]})
    wrong = plan_with(plan.digest, {**plan.proof, "brokers_demoted": []}, plan.moves)
    assert "The proof says brokers_demoted = []; the snapshot says [1]." in check(SNAPSHOT, wrong).problems
