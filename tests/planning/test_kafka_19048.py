"""KAFKA-19048's rules, worked out by hand and not by our checker, and its own cases, beside the plans of others."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path

import pytest

from benchmarks.planner import iteration
from benchmarks.planner.exactness import exactness
from benchmarks.planner.makespan import makespans
from kafka_steward.assignment import Assignment
from kafka_steward.planning.checker.check import check
from kafka_steward.planning.files.formats import SnapshotFolder
from kafka_steward.planning.files.reassignment import parse_reassignment, reassignment_json
from tests.builders import EVEN, cluster, planned, snapshot_of
from tests.planning.public_cases import CASES, PublicCase, figures, snapshot_of_case

Placed = Mapping[tuple[str, int], Assignment]


def topic(count: int, *replicas: str) -> str:
    """The line of a topic `t` of `count` partitions, with these replicas in turn."""
    return f"t: {' '.join(islice(cycle(replicas), count))}"


def rebalanced(snapshot: SnapshotFolder) -> Placed:
    """The assignments after a rebalance, which is proven and could meet every floor and ceiling."""
    plan = planned(snapshot, "rebalance")
    verdict = check(snapshot, plan)
    notes = [note for note in plan.proof["notes"] if "it is alone in rack" not in note]
    assert (verdict.problems, verdict.unproven, notes) == ([], (), [])
    held = {(row["topic"], row["partition"]): tuple(row["replicas"]) for row in snapshot.partitions.to_pylist()}
    return held | {(move.topic, move.partition): move.after for move in plan.moves}


def by_broker(placed: Placed) -> dict[int, int]:
    return dict(sorted(Counter(broker for replicas in placed.values() for broker in replicas).items()))


def by_rack(snapshot: SnapshotFolder, placed: Placed) -> dict[str, int]:
    racks = dict(zip(*(snapshot.brokers[name].to_pylist() for name in ("broker", "rack")), strict=True))
    return dict(sorted(Counter(racks[broker] for replicas in placed.values() for broker in replicas).items()))


# racks


@pytest.mark.parametrize("brokers", ["1a 2b 3c", "1a 2a 3a 4b 5c", "1a 2a 3b 4b 5c 6c"])
def test_as_many_racks_as_replicas_hold_one_replica_of_each_partition(brokers: str) -> None:
    snapshot = cluster(brokers, topic(6, "123"))
    assert by_rack(snapshot, rebalanced(snapshot)) == {"a": 6, "b": 6, "c": 6}


def test_of_more_racks_one_whose_weight_is_a_replica_of_each_partition_holds_just_that() -> None:
    # Four of seven brokers: by its weight alone rack a would hold 10 of the 18 replicas.
    snapshot = cluster("1a 2a 3a 4a 5b 6c 7d", topic(6, "156", "267", "375"))
    assert by_rack(snapshot, rebalanced(snapshot)) == {"a": 6, "b": 4, "c": 4, "d": 4}


def test_of_more_racks_others_share_the_rest_by_their_weight() -> None:
    # Three, two, and one of six brokers; 12 partitions of two replicas.
    snapshot = cluster("1a 2a 3a 4b 5b 6c", topic(12, "14", "25", "36"))
    assert by_rack(snapshot, rebalanced(snapshot)) == {"a": 12, "b": 8, "c": 4}


# brokers


def test_of_the_brokers_of_a_rack_some_hold_one_replica_more_where_it_does_not_divide() -> None:
    snapshot = cluster("1a 2a 3b 4b 5c 6c", topic(7, "135"))
    assert sorted(by_broker(rebalanced(snapshot)).values()) == [3, 3, 3, 4, 4, 4]


def test_as_many_racks_as_replicas_of_the_same_size_hold_as_many_on_each_broker() -> None:
    snapshot = cluster("1a 2a 3b 4b 5c 6c", topic(6, "135"))
    assert by_broker(rebalanced(snapshot)) == dict.fromkeys(range(1, 7), 3)


def test_as_many_racks_as_replicas_hold_fewer_on_each_broker_of_a_larger_rack() -> None:
    snapshot = cluster("1a 2a 3a 4b 5c", topic(6, "145"))
    assert by_broker(rebalanced(snapshot)) == {1: 2, 2: 2, 3: 2, 4: 6, 5: 6}


def test_more_racks_than_replicas_without_a_heavy_one_hold_as_many_on_each_broker() -> None:
    snapshot = cluster("1a 2a 3b 4b 5c", topic(10, "13", "24"))
    assert by_broker(rebalanced(snapshot)) == dict.fromkeys(range(1, 6), 4)


def test_the_brokers_of_a_heavy_rack_hold_fewer() -> None:
    snapshot = cluster("1a 2a 3a 4a 5b 6c", topic(8, "15", "26"))
    assert by_broker(rebalanced(snapshot)) == {1: 2, 2: 2, 3: 2, 4: 2, 5: 4, 6: 4}


# anti-affinity


def test_no_partition_keeps_two_replicas_on_a_rack() -> None:
    snapshot = cluster("1a 2a 3b 4b", topic(6, "12", "34"))
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    assert [{racks[broker] for broker in replicas} for replicas in rebalanced(snapshot).values()] == [{"a", "b"}] * 6


def test_racks_count_only_where_the_plan_is_to_be_rack_aware() -> None:
    snapshot = cluster("1a 2a 3b 4b", topic(6, "12", "34"))
    assert planned(snapshot, "rebalance", {"rack_aware": False}).proof["replicas_moved"] == 0
    assert planned(snapshot, "rebalance", {}).proof["replicas_moved"] == 6


def test_brokers_without_a_rack_collide_with_none() -> None:
    snapshot = cluster("1a 2b 3 4", topic(6, "12", "34"))
    assert planned(snapshot, "rebalance").proof["replicas_moved"] == 0
    assert planned(snapshot, "rebalance").proof["rack_violations"] == {"before": 0, "after": 0}


# what is left


def test_nothing_is_left_above_or_below_its_share() -> None:
    snapshot = cluster("1 2 3 4+ 5+", topic(7, "123"), "u: 12 12")
    # 25 replicas on five brokers, 21 and 4 of the topics.
    placed = rebalanced(snapshot)
    assert set(by_broker(placed).values()) == {5}
    for name, shares in (("t", {4, 5}), ("u", {0, 1})):
        of_topic = by_broker({each: replicas for each, replicas in placed.items() if each[0] == name})
        assert {of_topic.get(broker, 0) for broker in range(1, 6)} <= shares


def test_nobody_is_left_below_its_share_although_nobody_is_above() -> None:
    assert sorted(by_broker(rebalanced(cluster("1 2 3 4+", "t: 1 1 2 2 3"))).values()) == [1, 1, 1, 2]


def test_each_broker_leads_its_share_of_each_topic_and_of_the_cluster() -> None:
    snapshot = cluster("1 2 3", "t: 123 123 123 123", "u: 123 123 123 123", "v: 123")
    placed = rebalanced(snapshot)
    assert set(Counter(replicas[0] for replicas in placed.values()).values()) == {3}
    for name in "tu":
        led = Counter(replicas[0] for each, replicas in placed.items() if each[0] == name)
        assert {led[broker] for broker in (1, 2, 3)} == {1, 2}


def test_one_move_of_much_is_better_than_two_of_little() -> None:
    # Broker 1 has one replica too many, and broker 3 one too few, which has a replica of `a` already.
    snapshot = cluster("1 2 3", "a: 13", "b: 12", "c: 2", "d: 1")
    sizes = [1 << 20, 100 << 20, 1 << 20, 100 << 20]
    at = snapshot.partitions.column_names.index("bytes")
    snapshot = replace(snapshot, partitions=snapshot.partitions.set_column(at, "bytes", [sizes]))
    plan = planned(snapshot, "rebalance")
    assert (plan.proof["replicas_moved"], plan.proof["bytes_moved"]) == (1, 100 << 20)


def test_the_file_for_kafkas_own_tool_has_what_the_plan_leaves() -> None:
    plan = planned(cluster("1 2 3 4+", topic(6, "123")), "rebalance")
    found = parse_reassignment(json.loads(reassignment_json(plan.moves)))
    assert found == {move.topic_partition: move.after for move in plan.moves}
    assert found


PAGE = Path(__file__).parents[2] / "docs" / "planning.md"


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("prefer", ["leader-stability", "isr-order"])
def test_plans_are_proven_and_have_these_figures(case: PublicCase, prefer: str) -> None:
    snapshot = snapshot_of_case(case)
    plan = planned(snapshot, "rebalance", {"prefer": prefer})
    verdict = check(snapshot, plan)
    assert (verdict.problems, verdict.unproven) == ([], ())
    assert plan.proof["leader_evenness"] == "even"
    assert plan.proof["replicas_moved"] == plan.proof["lower_bound"]
    assert figures(plan) == (case.ordered if prefer == "isr-order" else case.stable)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_with_its_ranking_no_figure_is_worse_than_its_own(case: PublicCase) -> None:
    assert all(ours <= theirs for ours, theirs in zip(case.ordered, case.theirs, strict=True))


def test_the_ranking_decides_one_case_alone() -> None:
    different = [name for name, case in CASES.items() if case.stable != case.ordered]
    assert different == ["rf2IsrOrder"]
    case = CASES["rf2IsrOrder"]
    plan = planned(snapshot_of_case(case), "rebalance", {"prefer": "isr-order"})
    line = plan.proof["spread"]["next_in_line"]["after"]
    assert (line["pairs"], line["most"]) == (6, 1)
    assert planned(snapshot_of_case(case), "rebalance").moves == []


@pytest.mark.project
def test_the_page_says_in_how_many_cases_ours_are_better() -> None:
    better = [name for name, case in CASES.items() if case.ordered != case.theirs]
    assert (len(better), len(CASES)) == (9, 12)
    assert "Of the twelve cases of its tests, ours are better in nine" in PAGE.read_text()


@pytest.mark.parametrize("name", ["highWeightRandomExtend", "replaceBroker"])
def test_two_public_cases_of_kafka_19048_expect_a_move_more_than_is_needed(name: str) -> None:
    snapshot = snapshot_of_case(CASES[name])
    plan = planned(snapshot, "rebalance")
    verdict = check(snapshot, plan)
    assert (verdict.problems, verdict.unproven) == ([], ())
    assert plan.proof["replicas_moved"] == plan.proof["lower_bound"] == CASES[name].theirs.moved - 1


#: With five replicas on five racks the reading gets stuck before all racks are apart.
@pytest.mark.parametrize("name", [name for name in CASES if name != "rf5Replace"])
def test_the_reading_of_the_iteration_is_even_and_keeps_racks_apart(name: str) -> None:
    snapshot = snapshot_of_case(CASES[name])
    rows = snapshot.brokers.to_pylist()
    rack = {row["broker"]: row["rack"] for row in rows}
    targets = [row["broker"] for row in rows if row["state"] in ("live", "new")]
    after = iteration.rebalanced(snapshot.partitions["replicas"].to_pylist(), targets, rack)
    for replicas in after:
        assert len({rack[one] for one in replicas}) == len(set(replicas)) == len(replicas)
        assert set(replicas) <= set(targets)
    ours = planned(snapshot, "rebalance").proof["spread"]["replicas"]["after"]["by_broker"]
    held = [one for replicas in after for one in replicas]
    assert sorted(held.count(one) for one in targets) == sorted(ours[str(one)] for one in targets)


def test_twenty_replicas_need_not_move_where_one_will_do() -> None:
    # 20 brokers in two zones, ten partitions; the last broker goes. A fresh placement moves nearly all of it.
    pairs = [(7, 18), (8, 19), (9, 10), (0, 11), (1, 12), (2, 13), (3, 14), (4, 15), (5, 16), (6, 17)]
    states = {19: "draining"}
    brokers = [{"broker": one, "rack": "ab"[one % 2], "state": states.get(one, "live")} for one in range(20)]
    rows = [{"topic": "t", "partition": at, "replicas": list(pair)} for at, pair in enumerate(pairs)]
    snapshot = snapshot_of(brokers, rows)
    plan = planned(snapshot, "drain", EVEN)
    assert plan.proof["replicas_moved"] == 1
    assert check(snapshot, plan).unproven == ()


def test_the_benchmarks_tables_hold_what_they_promise() -> None:
    given, made = exactness(10).splitlines()[2:4]
    assert re.findall(r"\d+", given) == ["12", *"000000"]
    assert re.findall(r"\d+", made)[1:] == [*"000000"]
    rows = makespans(moves=300).splitlines()[2:]
    assert all(float(row.split("|")[2]) <= 1.06 for row in rows[1:])
