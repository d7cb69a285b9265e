"""Every number of a proof, counted again from the rows by plain Python, and by an integer solver."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_steward.assignment import Assignment
from kafka_steward.execution.plans.summary import plan_summary
from kafka_steward.planning.checker.check import check
from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder
from kafka_steward.planning.shards import PlanningJob
from kafka_steward.planning.solver import balance, leaders
from kafka_steward.planning.solver.balance import Bounds, Placement, PlacementProblem, min_cost_placement
from kafka_steward.planning.solver.leaders import LeaderBounds, Replicas, balanced_leaders, leader_bounds
from kafka_steward.planning.solver.problem import Ints, is_pair_in
from tests.builders import EVEN, cluster, planned, snapshot_of
from tests.planning.integer_solver import MIB, fewest, fewest_leader_changes, random_case, random_plan
from tests.planning.test_heal import given_instances, snapshot_of_instance
from tests.rings import tried
from tests.strategies import OPTIONS, clusters

SLOW = settings(deadline=None, max_examples=tried(40), suppress_health_check=[HealthCheck.too_slow])


#: The replicas of each (topic, partition).
Held = dict[tuple[str, int], Assignment]


def assignments(snapshot: SnapshotFolder, plan: PlanFolder) -> tuple[Held, Held]:
    """Before and after: a dictionary from (topic, partition) to replicas, each."""
    rows = snapshot.partitions.to_pylist()
    before = {(row["topic"], row["partition"]): tuple(row["replicas"]) for row in rows}
    return before, before | {(move.topic, move.partition): move.after for move in plan.moves}


def spread_again(
    held: Held, usable: Sequence[int], sizes: Mapping[tuple[str, int], int]
) -> tuple[Counter[int], Counter[int], Counter[int], Counter[Assignment], dict[str, int]]:
    """What `spread` should say of one side."""
    replicas, leaders, load, pairs = Counter[int](), Counter[int](), Counter[int](), Counter[Assignment]()
    topics: dict[str, Counter[int]] = {}
    for name, brokers in held.items():
        replicas.update(brokers)
        leaders[brokers[0]] += 1
        pairs.update([brokers[:2]] if len(brokers) > 1 else [])
        topics.setdefault(name[0], Counter()).update(brokers)
        for broker in brokers:
            load[broker] += sizes[name]
    widths = {
        topic: max(counts[one] for one in usable) - min(counts[one] for one in usable)
        for topic, counts in topics.items()
    }
    return replicas, leaders, load, pairs, widths


def side(spread: dict[str, Any], when: str) -> dict[str, dict[int, int]]:
    return {
        name: {int(broker): count for broker, count in spread[name][when]["by_broker"].items() if count}
        for name in ("replicas", "leaders", "bytes")
    }


@SLOW
@given(clusters(), OPTIONS, st.sampled_from(["heal", "fill", "rebalance"]))
def test_the_spread_is_what_the_rows_say(snapshot: SnapshotFolder, options: dict[str, Any], operation: str) -> None:
    states = dict(zip(*(snapshot.brokers[name].to_pylist() for name in ("broker", "state")), strict=True))
    usable = [broker for broker, state in states.items() if state in ("live", "new")]
    if operation == "rebalance" and max(snapshot.partitions["target_rf"].to_pylist()) > len(usable):
        return
    spread = (plan := planned(snapshot, operation, options)).proof["spread"]
    rows = snapshot.partitions.to_pylist()
    sizes = {(row["topic"], row["partition"]): row["bytes"] or 0 for row in rows}
    for when, held in zip(("before", "after"), assignments(snapshot, plan), strict=True):
        replicas, leaders, load, pairs, widths = spread_again(held, usable, sizes)
        assert side(spread, when) == {"replicas": replicas, "leaders": leaders, "bytes": +load}
        assert spread["topics"][when]["by_spread"] == {str(k): v for k, v in sorted(Counter(widths.values()).items())}
        named = {one["topic"]: one["spread"] for one in spread["topics"][when]["widest"]}
        assert named == {topic: widths[topic] for topic in named}
        assert max(named.values()) == max(widths.values()) == spread["topic_widest"][when]
        line = spread["next_in_line"][when]
        assert (line["pairs"], line["squares"]) == (len(pairs), sum(count**2 for count in pairs.values()))
        assert line["most"] == spread["next_in_line_most"][when] == max(pairs.values(), default=0)
        if pairs:
            heaviest = line["heaviest"]
            assert heaviest["leads"] == max(count + leaders[pair[1]] for pair, count in pairs.items())
            assert heaviest["partitions"] == pairs[heaviest["dies"], heaviest["takes_over"]]


@SLOW
@given(clusters(), OPTIONS, st.sampled_from(["heal", "rebalance", "fill"]), st.integers(1, 9))
def test_no_plan_changes_fewer_leaders_than_its_bound(
    snapshot: SnapshotFolder, options: dict[str, Any], operation: str, shard_rows: int
) -> None:
    usable = sum(state in ("live", "new") for state in snapshot.brokers["state"].to_pylist())
    if operation == "rebalance" and max(snapshot.partitions["target_rf"].to_pylist()) > usable:
        return
    cut = {} if operation == "rebalance" else {"shard_rows": shard_rows}
    proof = planned(snapshot, operation, options, **cut).proof
    assert 0 <= proof["leader_changes_bound"] <= proof["leader_changes"]
    if operation != "rebalance":
        # A preferred leader changes where it is lost, and nowhere else.
        assert proof["leader_changes"] == proof["leader_changes_bound"] == proof["leader_changes_forced"]


def test_the_bound_on_leader_changes_is_nearly_always_reached() -> None:
    reached, loose = 0, 0
    for seed in range(tried(100)):
        proof = random_plan(seed)[1].proof
        reached += proof["leader_changes"] == proof["leader_changes_bound"]
        loose += proof["leader_changes_bound"] < proof["leader_changes_forced"]
    assert reached >= 0.6 * tried(100)
    assert loose <= 0.25 * tried(100)


def test_without_the_flow_the_bound_is_never_above_that_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = range(tried(60))
    exact = [random_plan(seed)[1].proof["leader_changes_bound"] for seed in seeds]
    monkeypatch.setattr(leaders, "MAX_FLOW_CELLS", 0)
    summed = [planned(random_plan(seed)[0], "rebalance").proof["leader_changes_bound"] for seed in seeds]
    assert all(one <= other for one, other in zip(summed, exact, strict=True))
    assert sum(summed) >= 0.8 * sum(exact)


def test_a_new_broker_must_lead_its_share() -> None:
    snapshot = cluster("1 2 3 4+", "t: 12 23 31 12 23 31 12 23")
    proof = planned(snapshot, "expand").proof
    assert proof["leader_changes"] == proof["leader_changes_bound"] == 2


def test_a_gap_is_explained_and_none_is_not() -> None:
    snapshot = snapshot_of(
        [{"broker": one, "state": "live"} for one in (1, 2)],
        [{"topic": "t", "partition": one, "replicas": [1], "bytes": 1000} for one in range(4)],
    )
    proof = planned(snapshot, "rebalance", {"balance": "bytes"}).proof
    assert proof["gap"] == 2
    assert proof["gap_reason"].startswith("The bound counts the replicas that must leave their brokers")
    assert planned(snapshot, "rebalance").proof["gap_reason"] is None


@pytest.mark.parametrize(("throttle", "seconds"), [(1000, 2.0), (500, 4.0)])
def test_the_duration_is_that_of_the_busiest_broker(throttle: int, seconds: float) -> None:
    snapshot = snapshot_of(
        [{"broker": one, "state": "failed" if one == 1 else "live"} for one in (1, 2, 3, 4)],
        [
            {"topic": "t", "partition": at, "replicas": [1, one], "leader": one, "bytes": 1000}
            for at, one in enumerate((2, 3, 4, 3))
        ],
    )
    proof = planned(snapshot, "heal", {"throttle": throttle}).proof
    assert proof["bytes_moved"] == 4000
    assert proof["predicted_seconds"] == seconds


def test_an_unthrottled_plan_predicts_no_duration() -> None:
    snapshot = cluster("1a 2b 3c 4a+", "t: 123 231 312 123")
    plan = planned(snapshot, "expand", {"throttle": 0})
    assert plan.proof["predicted_seconds"] is None
    assert plan.proof["options"]["throttle"] == 0
    assert "| predicted duration | unthrottled: as fast as disks and network allow |" in plan_summary(plan, snapshot)
    throttled = planned(snapshot, "expand", {"throttle": 1000})
    assert throttled.proof["predicted_seconds"] > 0
    assert "| predicted duration | not predicted: 1,000 bytes/s limit nothing: " in plan_summary(throttled, snapshot)


CASES = tried(150)


class Seen(TypedDict, total=False):
    problem: tuple[PlacementProblem, Bounds]
    placed: Placement
    leaders: tuple[Ints, Replicas, list[LeaderBounds], Ints, str]


def solved(snapshot: SnapshotFolder, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Seen:
    """The plan's own placement problem, and the answer that the planner gave."""
    seen: Seen = {}

    def spy(problem: PlacementProblem, bounds: Bounds) -> Placement:
        seen["problem"], seen["placed"] = (problem, bounds), min_cost_placement(problem, bounds)
        return seen["placed"]

    def lead_spy(topic: Ints, replicas: Replicas, choices: list[LeaderBounds]) -> tuple[Ints, str]:
        leader, tier = balanced_leaders(topic, replicas, choices)
        seen["leaders"] = (topic, replicas, choices, leader, tier)
        return leader, tier

    monkeypatch.setattr(balance, "min_cost_placement", spy)
    monkeypatch.setattr(balance, "balanced_leaders", lead_spy)
    job = PlanningJob.of(snapshot, "rebalance", options)
    table = snapshot.partitions.sort_by([("topic", "ascending"), ("partition", "ascending")])
    balance.balance_replicas(job.build_problem(table))
    return seen


def scarce_racks(snapshot: SnapshotFolder) -> bool:
    """Whether only brokers without a rack can keep some partition's replicas apart, beyond what is their share."""
    usable = [row["rack"] for row in snapshot.brokers.to_pylist() if row["state"] in ("live", "new")]
    return None in usable and len({*usable} - {None}) < max(snapshot.partitions["target_rf"].to_pylist())


def cost(problem: PlacementProblem, placed: Placement) -> tuple[int, int]:
    brokers = len(problem.group)
    new = ~np.isin(placed.row * brokers + placed.broker, problem.row * brokers + problem.broker)
    weight = -(-problem.size[placed.row[new]] // MIB)
    return int(new.sum()), int(weight.sum())


def test_random_cases_move_as_little_as_an_integer_solver_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    worse, loose, infeasible, refined = [], [], [], 0
    for seed in range(CASES):
        options = {"rackless": ["free", "own-rack"][seed % 2], "rack_aware": seed % 7 != 0}
        seen = solved(random_case(seed), monkeypatch, **options)
        if "problem" not in seen:
            continue
        best, placed = fewest(*seen["problem"]), seen["placed"]
        found = cost(seen["problem"][0], placed)
        if best is None or not placed.within_bounds:
            infeasible += [] if options["rackless"] == "free" and scarce_racks(random_case(seed)) else [seed]
            continue
        worse += [(seed, found, best)] if found != best else []
        loose += [(seed, placed.bound, best)] if placed.bound > best[0] else []
        refined += placed.bound == best[0]
    assert (worse, loose, infeasible) == ([], [], [])
    assert refined > CASES * 0.9


def test_random_cases_change_as_few_leaders_as_an_integer_solver_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = []
    for seed in range(CASES):
        seen = solved(random_case(seed), monkeypatch)
        if "leaders" not in seen:
            continue
        topic, replicas, choices, leader, name = seen["leaders"]
        changes = len(topic) - int((leader[replicas.row] == replicas.broker)[replicas.leads].sum())
        best = [(bounds.name, fewest_leader_changes(topic, replicas, bounds)) for bounds in choices]
        first = next(one for one in best if one[1] is not None)
        wrong += [(seed, (name, changes), first)] if first != (name, changes) else []
    assert wrong == []


@pytest.mark.parametrize("instance", given_instances("rebalance", "expand", "drain"))
def test_given_instances_equal_the_proven_optimum(instance: dict[str, Any]) -> None:
    snapshot = snapshot_of_instance(instance)
    plan = planned(snapshot, instance["operation"], {"rackless": "own-rack", **EVEN})
    verdict = check(snapshot, plan)
    assert (verdict.problems, verdict.unproven) == ([], ())
    assert plan.proof["replicas_moved"] == plan.proof["lower_bound"] == instance["optimal_added_replicas"]
    assert plan.proof["rack_violations"]["after"] == 0
    bounds = instance["constraints"]
    held = plan.proof["spread"]["replicas"]["after"]["by_broker"]
    for broker, low, high in zip(bounds["target_brokers"], bounds["broker_lo"], bounds["broker_hi"], strict=True):
        assert low <= held[str(broker)] <= high


@pytest.mark.parametrize("instance", given_instances("rebalance", "expand", "drain", "heal", "fill"))
def test_given_leader_problems_equal_the_proven_optimum(instance: dict[str, Any]) -> None:
    from kafka_steward.planning.solver.leaders import Replicas

    given = instance["leader"]
    ids = instance["constraints"]["target_brokers"]
    topics = sorted({one["topic"] for one in instance["partitions"]})
    parts = instance["partitions"]
    pairs = [(row, ids.index(broker)) for row, held in enumerate(given["given_replica_sets"]) for broker in held]
    row, broker = (np.array(values) for values in zip(*pairs, strict=True))
    leads = np.array([parts[r]["replicas"][0] == ids[b] for r, b in pairs])
    replicas = Replicas(row, broker, leads, np.zeros(len(row), bool))
    topic = np.array([topics.index(one["topic"]) for one in parts])
    leader, name = balanced_leaders(
        topic, replicas, leader_bounds(topic, replicas, np.ones(len(ids), bool), alike=True)
    )
    assert name == given["tier"]
    assert len(parts) - int((leader[row] == broker)[leads].sum()) == given["optimal_leader_changes"]


@pytest.mark.parametrize("many", [0, 1 << 26], ids=["by sorting", "by a table"])
def test_a_pair_is_found_among_others(monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    monkeypatch.setattr("kafka_steward.planning.solver.problem._MANY_PAIRS", many)
    for seed in range(50):
        dice = random.Random(seed)
        mine, others = ([(dice.randrange(9), dice.randrange(9)) for _ in range(dice.randrange(30))] for _ in range(2))
        columns = [np.array([pair[at] for pair in pairs], np.int64) for pairs in (mine, others) for at in (0, 1)]
        assert is_pair_in(*columns).tolist() == [pair in others for pair in mine]
