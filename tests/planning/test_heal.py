"""Heal and fill: nothing in place moves, everything lost is replaced, spread over racks and brokers."""

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_steward.planning.checker.check import check
from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder
from tests.builders import cluster, planned, snapshot_of
from tests.rings import tried
from tests.strategies import OPTIONS, clusters

SLOW = settings(deadline=None, max_examples=tried(60), suppress_health_check=[HealthCheck.too_slow])
DATA = Path(__file__).parent / "data"


def after(plan: PlanFolder) -> dict[str, list[int]]:
    return {str(move.topic_partition): list(move.after) for move in plan.moves}


def test_a_lost_replica_is_replaced_in_its_place_on_a_rack_that_is_missing() -> None:
    assert after(planned(cluster("1a 2b 3c! 4c 5a", "t: 123"))) == {"t-0": [1, 2, 4]}


def test_a_lost_preferred_leader_gives_way_to_one_that_has_the_data() -> None:
    assert after(planned(cluster("1a! 2b 3c 4a", "t: 123"))) == {"t-0": [2, 4, 3]}


def test_a_follower_that_is_behind_leads_only_where_no_other_can() -> None:
    assert after(planned(cluster("1a! 2b 3c 4a", "t: 123/3 123/3"))) == {"t-0": [3, 2, 4], "t-1": [3, 2, 4]}


def test_lost_leaderships_are_spread_evenly() -> None:
    plan = planned(cluster("1! 2 3 4 5", "t: 123 123 123 134 134 134"))
    leads = Counter(move.after[0] for move in plan.moves)
    assert max(leads.values()) - min(leads[broker] for broker in (2, 3, 4)) == 0


def test_load_ends_up_even_over_the_cluster_and_in_each_topic() -> None:
    topics = [f"{name}: " + " ".join(["12", "13", "14"] * 4) for name in "tuv"]
    plan = planned(cluster("1! 2 3 4 5 6", *topics))
    spread = plan.proof["spread"]["replicas"]["after"]
    # Brokers 2, 3 and 4 keep 12 each; the 36 lost ones make it 72 over five.
    assert (spread["least"], spread["most"]) == (14, 15)
    assert plan.proof["spread"]["topic_widest"]["after"] == 1


def test_a_broker_of_twice_the_capacity_takes_twice_the_share() -> None:
    brokers = [{"broker": 1, "state": "failed"}] + [
        {"broker": number, "state": "live", "capacity": 2.0 if number == 4 else 1.0} for number in (2, 3, 4)
    ]
    rows = [{"topic": "t", "partition": number, "replicas": [1, 9]} for number in range(40)]
    plan = planned(snapshot_of([*brokers, {"broker": 9, "state": "draining"}], rows))
    taken = Counter(next(iter(move.adding)) for move in plan.moves)
    assert taken == {2: 10, 3: 10, 4: 20}


def test_of_a_partition_that_is_healed_no_replica_stays_on_another_dead_broker() -> None:
    plan = planned(cluster("1 2! 3 7 8?", "wide: 1238", "t: 128 823 138"))
    assert after(plan) == {"t-0": [1, 3, 7], "t-1": [3, 7, 1]}
    assert plan.proof["replicas_moved"] == plan.proof["lower_bound"] == 4
    assert [(one["topic"], one["reason"]) for one in plan.proof["unplaced"]] == [("wide", "too_few_brokers")]
    assert plan.proof["brokers_failed"] == [2]


def test_what_cannot_be_healed_is_listed_and_left_alone() -> None:
    plan = planned(cluster("1! 2! 3 4", "t: 12 123 34 31"))
    assert after(plan) == {"t-3": [3, 4]}
    assert plan.proof["unplaced"] == [
        {"topic": "t", "partition": 0, "reason": "all_replicas_lost"},
        {"topic": "t", "partition": 1, "reason": "too_few_brokers"},
    ]
    assert (plan.proof["replicas_moved"], plan.proof["lower_bound"]) == (1, 1)


def test_what_is_in_flight_is_pinned_and_listed() -> None:
    snapshot = snapshot_of(
        [{"broker": 1, "state": "failed"}, {"broker": 2, "state": "live"}, {"broker": 3, "state": "live"}],
        [{"topic": "t", "partition": number, "replicas": [1, 2], "adding": [[2], None][number]} for number in (0, 1)],
    )
    plan = planned(snapshot)
    assert after(plan) == {"t-1": [2, 3]}
    assert plan.proof["pinned"] == [{"topic": "t", "partition": 0, "reason": "in_flight"}]


@pytest.mark.parametrize("topics", [["t: 12 13"], []], ids=["nothing lost", "no partition"])
def test_nothing_to_heal_is_a_plan_without_moves(topics: list[str]) -> None:
    plan = planned(cluster("1 2 3 4!", *topics))
    assert plan.moves == []
    assert [plan.proof[name] for name in ("replicas_moved", "lower_bound", "gap")] == [0, 0, 0]
    assert len(plan.digest) == 64


def test_excluded_brokers_receive_nothing_and_excluded_topics_are_left_alone() -> None:
    snapshot = cluster("1! 2 3 4", "t: 12", "keep: 12")
    plan = planned(snapshot, options={"exclude_brokers": [3], "exclude": ["k.*"]})
    assert after(plan) == {"t-0": [2, 4]}
    assert plan.proof["pinned"] == [{"topic": "keep", "partition": 0, "reason": "excluded"}]


def test_the_most_endangered_partitions_come_first() -> None:
    plan = planned(cluster("1! 2 3 4 5", "t: 123/23 123/2 1345/345 123/23 123/3"))
    assert [move.partition for move in plan.moves][:2] == [1, 4]
    assert plan.moves[-1].partition == 2


def test_unknown_sizes_count_as_zero_and_are_noted() -> None:
    plan = planned(
        snapshot_of(
            [{"broker": 1, "state": "failed"}, {"broker": 2, "state": "live"}, {"broker": 3, "state": "live"}],
            [
                {"topic": "t", "partition": 0, "replicas": [1, 2], "bytes": -1},
                {"topic": "t", "partition": 1, "replicas": [2, 3], "bytes": -1},
            ],
        )
    )
    assert plan.proof["bytes_moved"] == 0
    assert plan.proof["notes"] == ["Of 1 partition to copy the size is not known; each counts as 0 bytes."]


def test_fill_brings_every_partition_to_its_target() -> None:
    snapshot = snapshot_of(
        [{"broker": n, "rack": rack, "state": "live"} for n, rack in ((1, "a"), (2, "b"), (3, "c"))],
        [{"topic": "t", "partition": n, "replicas": [1 + n % 2], "target_rf": 3} for n in range(2)],
    )
    assert after(planned(snapshot, "fill")) == {"t-0": [1, 2, 3], "t-1": [2, 1, 3]}


@SLOW
@given(clusters(), OPTIONS, st.sampled_from(["heal", "fill"]))
def test_every_plan_is_valid_and_moves_only_what_is_missing(
    snapshot: SnapshotFolder, options: dict[str, Any], operation: str
) -> None:
    plan = planned(snapshot, operation, options)
    assert check(snapshot, plan).problems == []
    assert plan.proof["gap"] == 0


@SLOW
@given(clusters(), OPTIONS, st.sampled_from(["heal", "fill"]), st.sampled_from([1, 30_000]))
def test_no_other_brokers_would_leave_a_partition_spread_better_over_the_racks(
    snapshot: SnapshotFolder, options: dict[str, Any], operation: str, shard_rows: int
) -> None:
    rows = snapshot.brokers.to_pylist()
    aware = options.get("rack_aware", True)
    rack = {row["broker"]: row["rack"] if aware else None for row in rows}
    able = {row["broker"] for row in rows if row["state"] in ("live", "new")}
    for move in planned(snapshot, operation, options, shard_rows).moves:
        kept = set(move.after) - set(move.adding)
        others = itertools.combinations(sorted(able - kept), len(move.adding))
        best = min(rack_collisions([*kept, *added], rack) for added in others)
        assert rack_collisions(move.after, rack) == best, move


def rack_collisions(replicas: Iterable[int], rack: Mapping[int, str | None]) -> int:
    """The pairs of replicas that share a rack."""
    filled = Counter(rack[broker] for broker in replicas if rack[broker] is not None)
    return sum(count * (count - 1) // 2 for count in filled.values())


def test_a_broker_without_a_rack_comes_before_a_second_replica_on_a_rack() -> None:
    rack_violations = {}
    for rackless in ("free", "own-rack"):
        plan = planned(cluster("1a 2a 3b 4b 5c! 6", "t: 135 135 315 245"), options={"rackless": rackless})
        assert {next(iter(move.adding)) for move in plan.moves} == {6}
        rack_violations[rackless] = plan.proof["rack_violations"]["after"]
    assert rack_violations == {"free": 0, "own-rack": 0}


@SLOW
@given(clusters(), OPTIONS, st.integers(1, 6))
def test_a_heal_in_shards_is_valid_and_minimal(
    snapshot: SnapshotFolder, options: dict[str, Any], shard_rows: int
) -> None:
    plan = planned(snapshot, options=options, shard_rows=shard_rows)
    assert check(snapshot, plan).problems == []
    assert plan.proof["replicas_moved"] == planned(snapshot, options=options).proof["replicas_moved"]


def test_shards_together_make_the_cluster_even() -> None:
    topics = [f"{name}: " + " ".join(["12", "13", "14"] * 4) for name in "tuvwxyz"]
    plan = planned(cluster("1! 2 3 4 5 6", *topics), shard_rows=12)
    spread = plan.proof["spread"]
    assert spread["replicas"]["after"]["most"] - spread["replicas"]["after"]["least"] <= 2
    assert spread["leaders"]["after"]["by_broker"]["5"] == 0


def instances(*operations: str) -> list[dict[str, Any]]:
    found = [json.loads(path.read_text()) | {"name": path.stem} for path in sorted(DATA.glob("*.json"))]
    return [one for one in found if one["operation"] in operations]


def given_instances(*operations: str) -> list[ParameterSet]:
    return [pytest.param(one, id=one["name"]) for one in instances(*operations)]


def snapshot_of_instance(instance: dict[str, Any]) -> SnapshotFolder:
    states = {"dead": "failed"}
    brokers = [
        {"broker": one["id"], "rack": one["rack"], "state": states.get(one["state"], one["state"])}
        for one in instance["brokers"]
    ]
    return snapshot_of(brokers, instance["partitions"])


@pytest.mark.parametrize("instance", given_instances("heal", "fill"))
def test_given_instances_move_no_more_than_the_proven_optimum(instance: dict[str, Any]) -> None:
    snapshot = snapshot_of_instance(instance)
    plan = planned(snapshot, instance["operation"], {"rackless": "own-rack"})
    assert check(snapshot, plan).problems == []
    assert plan.proof["unplaced"] == []
    targets = set(instance["constraints"]["target_brokers"])
    missing = sum(max(0, one["target_rf"] - len(targets & set(one["replicas"]))) for one in instance["partitions"])
    # Where kept replicas share a rack, the solver's optimum moves them; a heal leaves in place what is in place.
    assert plan.proof["replicas_moved"] == missing <= instance["optimal_added_replicas"]
