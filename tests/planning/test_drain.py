"""A drain moves exactly the replicas on the drained brokers, unless evenness is asked for."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kafka_steward.assignment import Move, Operation
from kafka_steward.errors import PlanError, RequestError
from kafka_steward.planning.checker.check import check
from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder
from kafka_steward.planning.options import Options
from kafka_steward.rebalance_request import RebalanceRequest
from tests.builders import EVEN, cluster, plan_with, planned, snapshot_of
from tests.rings import tried

EMPTY: dict[str, Any] = {"balance": "none"}
#: Broker 4 is to be emptied; brokers 1 and 2 hold more than their share, and stay so.
UNEVEN = cluster("1a 2b 3c 4a- 5b", "t: 12 12 12 14 42 34", "u: 21 12")


def drained(snapshot: SnapshotFolder, shard_rows: int = 30_000, **options: Any) -> PlanFolder:
    plan = planned(snapshot, "drain", options, shard_rows=shard_rows)
    assert plan.proof["options"]["balance"] == "none"
    verdict = check(snapshot, plan)
    assert (verdict.problems, verdict.unproven) == ([], ())
    return plan


def moved(plan: PlanFolder) -> dict[str, tuple[int, ...]]:
    return {str(move.topic_partition): move.after for move in plan.moves}


def test_what_is_on_the_drained_broker_moves_and_nothing_else() -> None:
    plan = drained(UNEVEN)
    assert moved(plan).keys() == {"t-3", "t-4", "t-5"}
    assert (plan.proof["replicas_moved"], plan.proof["lower_bound"], plan.proof["gap"]) == (3, 3, 0)
    assert planned(UNEVEN, "drain", EVEN).proof["replicas_moved"] > 3, "where the rest is evened out"
    assert planned(UNEVEN, "drain", {"topic_spread": "2"}).proof["options"]["balance"] == "replicas"
    assert {move.purpose for move in plan.moves} == {"broker_draining"}


def test_replicas_that_stay_keep_their_order_and_the_leader_if_it_stays() -> None:
    after = moved(drained(cluster("1 2 3 4- 5", "t: 143 412 32")))
    assert (after["t-0"][0], after["t-0"][2]) == (1, 3)
    assert after["t-1"][0] in (1, 2), "of those that have data"


def test_the_receivers_become_as_even_as_the_moved_replicas_allow() -> None:
    plan = drained(cluster("1 2 3 4-", "t: 1 1 1 2 4 4 4"))
    assert plan.proof["spread"]["replicas"]["after"]["by_broker"] == {"1": 3, "2": 2, "3": 2, "4": 0}


def test_the_racks_of_what_moves_come_before_evenness() -> None:
    plan = drained(cluster("1a 2b 3a 4b- 5b", "t: 14 25 25 25"))
    assert moved(plan) == {"t-0": (1, 2)} or moved(plan) == {"t-0": (1, 5)}


def test_a_second_drain_moves_nothing() -> None:
    rows = [
        row | {"replicas": now, "isr": now, "leader": now[0]}
        for row in UNEVEN.partitions.to_pylist()
        for now in [list(moved(drained(UNEVEN)).get(f"{row['topic']}-{row['partition']}", row["replicas"]))]
    ]
    assert drained(snapshot_of(UNEVEN.brokers.to_pylist(), rows)).moves == []


@pytest.mark.parametrize(
    ("brokers", "topic", "reason"),
    [
        ("1 2 3 4-", "t: 42/4", "out_of_sync"),
        ("1 4-", "t: 14", "too_few_brokers"),
    ],
)
def test_what_cannot_move_stays_and_is_named(brokers: str, topic: str, reason: str) -> None:
    plan = drained(cluster(brokers, topic))
    assert plan.moves == []
    assert [row["reason"] for row in [*plan.proof["unplaced"], *plan.proof["pinned"]]] == [reason]


def test_a_partition_that_moves_leaves_dead_brokers_too() -> None:
    plan = drained(cluster("1 2 3 4- 5?", "t: 145 15"))
    assert moved(plan) == {"t-0": (1, 2, 3)} or moved(plan) == {"t-0": (1, 3, 2)}


def test_pinned_and_excluded_partitions_stay() -> None:
    assert moved(drained(UNEVEN, pin=["t-3"], exclude=["u"])).keys() == {"t-4", "t-5"}
    assert drained(UNEVEN, exclude=["t"]).moves == []


def test_a_budget_leaves_some_of_it_to_the_next_plan() -> None:
    plan = drained(UNEVEN, max_moves=2)
    assert (plan.proof["replicas_moved"], len(plan.moves)) == (2, 2)


def changed(plan: PlanFolder, number: int, after: tuple[int, ...]) -> PlanFolder:
    old = plan.moves[number]
    new = Move(**{**vars_of(old), "after": after})
    return plan_with(plan.digest, plan.proof, [*plan.moves[:number], new, *plan.moves[number + 1 :]])


def vars_of(move: Move) -> dict[str, Any]:
    names = ("topic", "partition", "before", "after", "chunk", "position", "purpose", "topic_id", "size_bytes")
    return {name: getattr(move, name) for name in names}


def test_the_checker_rejects_what_is_no_such_drain() -> None:
    plan = drained(UNEVEN)
    first = plan.moves[0]
    assert first.before == (1, 4)
    for after, words in (
        ((1, 4), "keeps a replica on broker 4"),
        ((2, 5), "its replica on broker 1 is in place and must not move."),
        ((1, 2, 3), "its target has 3 replicas; 2 are due."),
        ((5, 1), "its new preferred leader 5 has no data, while 1 has."),
    ):
        assert any(words in problem for problem in check(UNEVEN, changed(plan, 0, after)).problems), after
    fewer = plan_with(plan.digest, plan.proof, plan.moves[1:])
    assert "t-3: it stays on broker 4, which is to be emptied." in check(UNEVEN, fewer).problems
    more = Move("t", 0, (1, 2), (1, 3), 0, len(plan.moves), "balance", None, 1000)
    problems = check(UNEVEN, plan_with(plan.digest, plan.proof, [*plan.moves, more])).problems
    assert "t-0: it is on no broker that is to be emptied, and moves." in problems


@pytest.mark.parametrize("shard_rows", [30_000, 3], ids=["one shard", "several"])
def test_random_drains_move_exactly_what_is_there(shard_rows: int) -> None:
    for seed in range(tried(200, least=60)):
        dice = random.Random(seed)
        brokers: list[dict[str, Any]] = [
            {"broker": number, "rack": dice.choice(["a", "b", "c", None]), "state": "live"} for number in range(1, 8)
        ]
        for broker in dice.sample(brokers, dice.randint(1, 2)):
            broker["state"] = "draining"
        gone = {row["broker"] for row in brokers if row["state"] == "draining"}
        rows: list[dict[str, Any]] = [
            {"topic": topic, "partition": number, "replicas": dice.sample(range(1, 8), dice.randint(1, 3))}
            for topic in "tuv"
            for number in range(dice.randint(1, 4))
        ]
        plan = drained(snapshot_of(brokers, rows), shard_rows)
        assert plan.proof["replicas_moved"] == sum(len(gone.intersection(row["replicas"])) for row in rows)
        held = {(row["topic"], row["partition"]): row["replicas"] for row in rows}
        for move in plan.moves:
            stays = [broker for broker in held[move.topic, move.partition] if broker not in gone]
            assert set(stays) < set(move.after)
            assert gone.isdisjoint(move.after)


def test_random_drains_leave_what_nothing_can_be_copied_from_and_name_it() -> None:
    named = set[str]()
    for seed in range(tried(400, least=120)):
        dice = random.Random(seed)
        states = ["live"] * 4 + ["draining"] + [dice.choice(["live", "failed", "down"]) for _ in range(2)]
        brokers: list[dict[str, Any]] = [
            {"broker": number, "rack": dice.choice(["a", "b", None]), "state": state}
            for number, state in enumerate(states, 1)
        ]
        rows: list[dict[str, Any]] = []
        for number in range(dice.randint(1, 6)):
            held = dice.sample(range(1, 8), dice.randint(1, 3))
            row = {"topic": "t", "partition": number, "replicas": held, "isr": held[: dice.randint(1, len(held))]}
            row |= dice.choice([{}, {}, {"leader": -1}, {"leader": -1, "all_offline": True}, {"offline": held[:1]}])
            rows.append(row)
        plan = drained(snapshot_of(brokers, rows), max_moves=dice.choice([None, None, 2]))
        left = {row["partition"]: row["reason"] for row in [*plan.proof["unplaced"], *plan.proof["pinned"]]}
        moves = {move.partition for move in plan.moves}
        named.update(left.values())
        assert moves.isdisjoint(left)
        assert {row["partition"] for row in rows if 5 in row["replicas"]} >= moves | left.keys()
    assert named >= {"no_leader", "all_replicas_lost", "out_of_sync"}


def test_it_is_for_drains_alone() -> None:
    with pytest.raises(PlanError, match="balance is 'none', which is only for the operation drain"):
        Options.of(Operation.REBALANCE, EMPTY)
    with pytest.raises(RequestError, match="The field balance, with the value none, is only for drain"):
        RebalanceRequest("expand", options=EMPTY).validate()
    RebalanceRequest("drain", brokers=[4], options=EMPTY).validate()
