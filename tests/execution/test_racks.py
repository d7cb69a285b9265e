"""Racks: a plan that moves only what breaks the rack rule, and the health check that counts it, once a rack is back."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_steward.assignment import Operation, TopicPartition
from kafka_steward.cluster.health import judge_rack_rule
from kafka_steward.cluster.state import Broker, Partition, Snapshot
from kafka_steward.errors import PlanError, RequestError
from kafka_steward.execution.plans.report import racks_sentence
from kafka_steward.execution.plans.requests import planner_options
from kafka_steward.execution.plans.snapshot import take_snapshot
from kafka_steward.execution.watch.health import DEFAULT_LIMITS, check_health, health_message, violated_limits
from kafka_steward.planning.checker.check import check
from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder, read_snapshot
from kafka_steward.rack_rule import RackRule, rack_left_sentence
from kafka_steward.rebalance_request import RebalanceRequest
from tests.builders import cluster, plan_with, planned, snapshot_of
from tests.rings import tried
from tests.simulated_plan import lose, memory_journal
from tests.simulator import Simulator

RACKS = {"balance": "racks"}
CANARY_LEFT = (
    "Not spread over the racks as well as can be, and left: __strimzi_canary-0 (service topic, which a rebalance moves "
    "with internal_topics or by its full name)."
)


@pytest.mark.parametrize("mode", ["kraft", "zookeeper"])
def test_once_a_lost_rack_is_back_health_counts_what_breaks_the_rule_and_a_rebalance_moves_only_that(
    mode: str, tmp_path: Path
) -> None:
    topics = ("t: 135 246 153 264", "u: 46", "__consumer_offsets: 135")
    simulator = Simulator.of("1a 2a 3b 4b 5c 6c", *topics, mode=mode)
    simulator.create("__strimzi_canary", [(3, 4)])
    journal = memory_journal(simulator)

    def health() -> tuple[list[str], str]:
        found, _ = check_health(simulator, journal)
        return violated_limits(found, DEFAULT_LIMITS), health_message(found)

    def carry_out(operation: str, options: dict[str, Any], *failed: int) -> PlanFolder:
        folder = tmp_path / f"{operation}-{simulator.now_ms}"
        take_snapshot(simulator, str(folder), failed=failed, now_ms=1)
        plan = planned(read_snapshot(str(folder)), operation, options)
        assert check(read_snapshot(str(folder)), plan).problems == []
        simulator.alter({move.topic_partition: move.after for move in plan.moves})
        simulator.run()
        return plan

    assert health()[0] == []
    lose(simulator, journal, 1, 2)
    carry_out("heal", {}, 1, 2)
    assert health()[0] == [], "no rack but two is there"
    for broker in (1, 2):
        simulator.restart(broker)
    above, message = health()
    assert above == ["rack_violations"]
    assert message.endswith(
        " 5 partitions (__consumer_offsets-0, t-0, t-1 and 2 more) are not spread over the racks as well as can be; "
        f"rebalance with balance=racks repairs only that. {CANARY_LEFT}"
    )
    plan = carry_out("rebalance", RACKS)
    assert (plan.proof["replicas_moved"], plan.proof["lower_bound"], plan.proof["gap"]) == (5, 5, 0)
    assert {move.topic for move in plan.moves} == {"t", "__consumer_offsets"}
    assert {move.purpose for move in plan.moves} == {"rack_spread"}
    assert plan.proof["rack_violations"] == {"before": 5, "after": 0}
    assert racks_sentence(plan.proof) == CANARY_LEFT
    above, message = health()
    assert (above, message.endswith(f" None is being reassigned. {CANARY_LEFT}")) == ([], True)


def random_case(seed: int) -> tuple[SnapshotFolder, dict[str, Any], Snapshot]:
    """Brokers of racks, some without, some cordoned; and the same cluster as the health check sees it."""
    dice = random.Random(seed)
    racks: list[str | None] = dice.choice([["a", "b"], ["a", "b", "c"], ["a", "b", "c", None], ["a", None]])
    ids = range(1, dice.randint(4, 9))
    rack_of = {broker: dice.choice(racks) for broker in ids}
    cordoned = {broker for broker in ids if dice.random() < 0.15}
    held = {
        TopicPartition(topic, n): tuple(dice.sample(ids, dice.randint(1, min(4, len(ids)))))
        for topic in "tuv"
        for n in range(dice.randint(1, 6))
    }
    options = {**RACKS, **dice.choice([{}, {"rackless": "own-rack"}]), **dice.choice([{}, {}, {"max_moves": 2}])}
    known = {broker: Broker(broker, "h", 1, rack) for broker, rack in rack_of.items()}
    seen = Snapshot("c", 1, known, {name: Partition(*name, each, frozenset(), 1) for name, each in held.items()})
    table = [
        {"broker": broker, "rack": rack, "state": "live", "cordoned": broker in cordoned}
        for broker, rack in rack_of.items()
    ]
    rows = [{**name._asdict(), "replicas": list(each), "bytes": 7} for name, each in held.items()]
    return snapshot_of(table, rows), options, seen


@settings(max_examples=tried(150), deadline=None)
@given(st.integers(0, 100_000), st.sampled_from([3, 30_000]))
def test_every_plan_moves_what_health_counts_as_little_as_can_be_and_no_more(seed: int, shard_rows: int) -> None:
    snapshot, options, seen = random_case(seed)
    plan = planned(snapshot, "rebalance", options, shard_rows)
    found = check(snapshot, plan)
    assert (found.problems, found.unproven, plan.proof["gap"]) == ([], (), 0)
    cordoned = {row["broker"] for row in snapshot.brokers.to_pylist() if row["cordoned"]}
    before = broken(seen, cordoned)
    moved = {move.topic_partition for move in plan.moves}
    assert moved == before if "max_moves" not in options else moved <= before
    assert broken(carried_out(seen, plan), cordoned) == before - moved
    assert plan.proof["rack_violations"] == {"before": len(before), "after": len(before - moved)}
    assert plan.proof["rack_left"]["counts"] == ({"budget": len(before - moved)} if before - moved else {})


def broken(seen: Snapshot, cordoned: Collection[int]) -> set[TopicPartition]:
    """What the health check counts."""
    return {name for name, verdict in judge_rack_rule(seen, cordoned, ["canary"]).items() if verdict is RackRule.BROKEN}


def carried_out(seen: Snapshot, plan: PlanFolder) -> Snapshot:
    after = {
        each.topic_partition: replace(seen.partitions[each.topic_partition], replicas=each.after, leader=each.after[0])
        for each in plan.moves
    }
    return replace(seen, partitions={**seen.partitions, **after})


def neglected_case(seed: int) -> tuple[SnapshotFolder, dict[str, Any], Snapshot, Operation]:
    """As `random_case`, with dead brokers, reassignments in flight, no leaders, replicas out of sync, and canaries."""
    dice = random.Random(seed)
    snapshot, _, seen = random_case(seed)
    operation = dice.choice([Operation.REBALANCE, Operation.EXPAND, Operation.HEAL, Operation.FILL])
    rows = snapshot.partitions.to_pylist()
    dead = {broker for broker in seen.brokers if broker > 1 and dice.random() < 0.2}
    parts = {}
    for row in rows:
        row["topic"] = {"v": "canary"}.get(row["topic"], row["topic"])
        replicas = row["replicas"]
        live = [broker for broker in replicas if broker not in dead]
        isr = [broker for broker in live if dice.random() < 0.9]
        leaving = replicas[-1:] if len(replicas) > 1 and dice.random() < 0.1 else []
        row |= {"isr": isr, "leader": isr[0] if isr else -1, "removing": leaving, "all_offline": None if live else True}
        row |= {"target_rf": len(replicas) - len(leaving)}
        leader = isr[0] if isr else None
        name = TopicPartition(row["topic"], row["partition"])
        parts[name] = Partition(*name, tuple(replicas), frozenset(isr), leader, removing=tuple(leaving))
    state = "failed" if operation is Operation.HEAL else "down"
    brokers = [row | ({"state": state} if row["broker"] in dead else {}) for row in snapshot.brokers.to_pylist()]
    options: dict[str, Any] = {"service_topics": ["canary"]}
    if operation is Operation.REBALANCE:
        options |= dice.choice(
            [{}, RACKS, {**RACKS, "pin": ["t-0"]}, {**RACKS, "exclude": ["u"]}, {"rack_aware": False}]
        )
    if operation is not Operation.FILL:
        options |= dice.choice([{}, {"exclude_brokers": [1]}])
    known = {broker: each for broker, each in seen.brokers.items() if broker not in dead}
    return snapshot_of(brokers, rows), options, replace(seen, brokers=known, partitions=parts), operation


@settings(max_examples=tried(300), deadline=None)
@given(st.integers(0, 100_000), st.sampled_from([3, 30_000]))
def test_on_a_neglected_cluster_a_plan_and_the_health_check_count_the_same_before_and_after(
    seed: int, shard_rows: int
) -> None:
    snapshot, options, seen, operation = neglected_case(seed)
    try:
        plan = planned(snapshot, operation, options, shard_rows)
    except PlanError:
        return  # no broker is left that may receive anything
    cordoned = {row["broker"] for row in snapshot.brokers.to_pylist() if row["cordoned"]}
    after = carried_out(seen, plan)
    numbers = [len(broken(each, cordoned)) for each in (seen, after)]
    assert list(plan.proof["rack_violations"].values()) == numbers
    judged = judge_rack_rule(after, cordoned, ["canary"])
    assert sum(plan.proof["rack_left"]["counts"].values()) == len(judged), (
        "each partition that still breaks it is named"
    )
    for each in plan.proof["rack_left"]["first"]:
        verdict = judged[TopicPartition(each["topic"], each["partition"])]
        assert verdict in {RackRule.BROKEN, RackRule[each["reason"].upper()]}


def test_each_reason_for_which_a_partition_is_left_has_words_and_names_a_few() -> None:
    for reason in RackRule:
        if reason > RackRule.BROKEN:
            left = [("t", number, reason.word) for number in range(3)]
            sentence = rack_left_sentence(left, {reason.word: 7})
            assert sentence.startswith(
                "Not spread over the racks as well as can be, and left: t-0, t-1, t-2 and 4 more ("
            )
            assert reason.word not in sentence
    assert rack_left_sentence([]) == rack_left_sentence([], {}) == ""


def test_what_a_repair_may_not_do_is_caught() -> None:
    snapshot = cluster("1a 2a 3b 4b 5c 6c", "t: 135 123 341")
    plan = planned(snapshot, "rebalance", RACKS)
    assert [(str(m.topic_partition), m.before, m.after) for m in plan.moves] == [
        ("t-1", (1, 2, 3), (1, 6, 3)),
        ("t-2", (3, 4, 1), (3, 6, 1)),
    ]
    one, two = plan.moves
    needless = replace(one, partition=0, before=(1, 3, 5), after=(2, 3, 5))
    for moves, sentence in (
        ([needless, one, two], "t-0: it breaks no rack rule, and moves."),
        ([one], "t-2: its replicas are not spread over the racks as they could be, and it does not move."),
        ([one, replace(two, after=(5, 2, 3))], "t-2: it adds 2 replicas; 1 repair its racks."),
        (
            [one, replace(two, after=(3, 2, 1))],
            "t-2: its replicas are not spread over the racks as they could be after the plan.",
        ),
    ):
        assert sentence in check(snapshot, plan_with(plan.digest, plan.proof, moves)).problems


def test_a_dead_replica_is_left_to_a_heal_and_other_operations_repair_no_racks() -> None:
    snapshot = cluster("1a 2a 3b 4c 5c?", "t: 125 12 12/1 13/1")
    plan = planned(snapshot, "rebalance", RACKS)
    assert [str(move.topic_partition) for move in plan.moves] == ["t-1"]
    assert plan.proof["pinned"] == [{"topic": "t", "partition": 2, "reason": "out_of_sync"}]
    assert check(snapshot, plan).problems == []
    assert (plan.proof["rack_violations"], plan.proof["notes"]) == ({"before": 2, "after": 1}, [])
    assert racks_sentence(plan.proof) == (
        "Not spread over the racks as well as can be, and left: t-2 (a live replica is out of sync; make another plan "
        "when it is in sync); not counted, because no rebalance moves such: t-0 (has a replica on a broker that is not "
        "live; start that, or heal first)."
    )
    wanted = {"version": 1, "partitions": [{"topic": "t", "partition": 3, "replicas": [1, 2]}]}
    given = planned(cluster("1a 2a 3b", "t: 13 13 13 13"), "apply", {"reassignment": wanted})
    assert "and left: t-3 (where this plan moves it; rebalance with" in racks_sentence(given.proof)
    for operation, options in (("expand", RACKS), ("drain", RACKS), ("rebalance", {**RACKS, "rack_aware": False})):
        with pytest.raises(PlanError, match="which is only for the operation rebalance, with rack_aware"):
            planned(snapshot, operation, options)
    with pytest.raises(RequestError, match="The field balance, with the value racks, is only for rebalance"):
        planner_options(RebalanceRequest("expand", options={"balance": "racks"}), snapshot, scheduled=False)
    assert TopicPartition("t", 0) not in {move.topic_partition for move in plan.moves}
