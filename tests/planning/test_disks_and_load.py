"""Disks and bytes in at once: within tolerances and limits, by few bytes, and judged by the checker."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_steward.errors import PlanError
from kafka_steward.planning.checker.check import check
from kafka_steward.planning.checker.even_load import LoadCheck
from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder
from tests.builders import planned, snapshot_of
from tests.planning.manual_plans import plan_of
from tests.rings import tried
from tests.strategies import OPTIONS, clusters

MIB = 1 << 20
LOAD = {"balance": "load"}
SLOW = settings(deadline=None, max_examples=tried(60), suppress_health_check=[HealthCheck.too_slow])


def loaded(
    parts: Sequence[tuple[list[int], int, float | None]], brokers: Sequence[int], **extra: Mapping[str, object]
) -> SnapshotFolder:
    """A snapshot of one topic, given replicas, bytes and bytes per second of each partition."""
    rows = [
        {"topic": "t", "partition": number, "replicas": replicas, "bytes": size, "bytes_per_s": rate}
        for number, (replicas, size, rate) in enumerate(parts)
    ]
    return snapshot_of([{"broker": one, "state": "live", **extra.get(f"b{one}", {})} for one in brokers], rows)


def skewed(seed: int, partitions: int = 400, brokers: int = 9) -> SnapshotFolder:
    """Three racks, three replicas on all of them, and sizes and rates that have nothing to do with each other."""
    dice = random.Random(seed)
    ids = list(range(1, brokers + 1))
    by_rack = [[one for one in ids if one % 3 == rack] for rack in range(3)]
    parts = []
    for _ in range(partitions):
        replicas = [members[int(dice.random() ** 1.4 * len(members))] for members in by_rack]
        dice.shuffle(replicas)
        parts.append((replicas, int(dice.lognormvariate(18, 1)), float(int(dice.lognormvariate(10, 1.2)))))
    return loaded(parts, ids, **{f"b{one}": {"rack": "abc"[one % 3]} for one in ids})


def loads(snapshot: SnapshotFolder, plan: PlanFolder) -> list[dict[int, float]]:
    """The bytes, and the bytes per second, on each broker after a plan."""
    new = {(move.topic, move.partition): move.after for move in plan.moves}
    sums: list[dict[int, float]] = [dict.fromkeys(snapshot.brokers["broker"].to_pylist(), 0) for _ in range(2)]
    for row in snapshot.partitions.to_pylist():
        for broker in new.get((row["topic"], row["partition"]), row["replicas"]):
            for load, value in zip(sums, (row["bytes"], row["bytes_per_s"]), strict=True):
                load[broker] += value
    return sums


def highest(load: Mapping[int, float]) -> float:
    return max(load.values()) * len(load) / sum(load.values())


def carried_out(snapshot: SnapshotFolder, plan: PlanFolder) -> SnapshotFolder:
    new = {(move.topic, move.partition): list(move.after) for move in plan.moves}
    rows = snapshot.partitions.to_pylist()
    for row in rows:
        row["replicas"] = row["isr"] = new.get((row["topic"], row["partition"]), row["replicas"])
    return snapshot_of(snapshot.brokers.to_pylist(), rows)


def bound_of(plan: PlanFolder) -> int:
    note = next(note for note in plan.proof["notes"] if note.startswith("Even disks and bytes in need at least"))
    return int(note.split(" bytes moved")[0].split()[-1])


@pytest.mark.parametrize("seed", range(6))
def test_bytes_and_bytes_in_become_even_where_even_disks_alone_leave_bytes_in_uneven(seed: int) -> None:
    snapshot = skewed(seed)
    disks, bytes_in = loads(snapshot, planned(snapshot, "rebalance", {"balance": "bytes"}))
    assert highest(disks) <= 1.05
    assert highest(bytes_in) > 1.07
    plan = planned(snapshot, "rebalance", LOAD)
    disks, bytes_in = loads(snapshot, plan)
    for load in (disks, bytes_in):
        assert highest(load) <= 1.05 + 1e-9
        assert min(load.values()) >= 0.95 * sum(load.values()) / len(load) * (1 - 1e-9)
    assert bound_of(plan) <= plan.proof["bytes_moved"] <= 1.05 * bound_of(plan)
    assert check(snapshot, plan).problems == []
    assert plan.proof["rack_violations"] == {"before": 0, "after": 0}
    assert planned(carried_out(snapshot, plan), "rebalance", LOAD).moves == []


def test_two_brokers_exchange_replicas_where_no_move_alone_helps() -> None:
    # Both disks are full of partitions of one size, and one broker has all the hot ones.
    snapshot = loaded([([broker], 10 * MIB, rate) for broker, rate in ((1, 90.0), (2, 10.0)) for _ in range(2)], [1, 2])
    plan = planned(snapshot, "rebalance", LOAD)
    assert loads(snapshot, plan) == [{1: 20 * MIB, 2: 20 * MIB}, {1: 100.0, 2: 100.0}]
    (question,) = check(snapshot, plan).unproven
    assert (plan.proof["replicas_moved"], question.split("; ")[0]) == (2, f"The plan moves {20 * MIB} bytes")


def least_bytes(snapshot: SnapshotFolder, tolerance: float, limit: float) -> int | None:
    """The fewest bytes of any plan within tolerances and limit, by trying all; None if there is none."""
    brokers = snapshot.brokers["broker"].to_pylist()
    rows = snapshot.partitions.to_pylist()
    weights = np.array([[row["bytes"], row["bytes_per_s"]] for row in rows], float)
    counts = np.array([len(row["replicas"]) for row in rows])
    share = (weights * counts[:, None]).sum(axis=0) / len(brokers)
    upper = share * (1 + tolerance)
    upper[1] = min(upper[1], limit)
    best = None
    for placed in itertools.product(*(itertools.combinations(brokers, len(row["replicas"])) for row in rows)):
        load = np.zeros((len(brokers), 2))
        for weight, chosen in zip(weights, placed, strict=True):
            load[[brokers.index(one) for one in chosen]] += weight
        if (load > upper + 1e-6).any() or (load < share * (1 - tolerance) - 1e-6).any():
            continue
        pairs = zip(rows, placed, strict=True)
        moved = sum(row["bytes"] * len({*chosen} - {*row["replicas"]}) for row, chosen in pairs)
        best = moved if best is None else min(best, moved)
    return best


def test_the_bound_is_below_what_trying_all_plans_finds_and_the_plan_near_it() -> None:
    dice = random.Random(7)
    solvable, solved, ours, least = 0, 0, 0, 0
    for _ in range(40):
        parts = []
        for _ in range(6):
            replicas = dice.sample([1, 2, 3], dice.choice([1, 2]))
            parts.append((replicas, dice.randint(1, 30) * MIB, float(dice.randint(1, 40))))
        snapshot = loaded(parts, [1, 2, 3])
        mean = sum(len(replicas) * rate for replicas, _, rate in parts) / 3
        limit = int(mean * dice.choice([1.02, 1.1, 9]) + 1)
        plan = planned(snapshot, "rebalance", {**LOAD, "tolerance": 0.25, "network_bandwidth": limit})
        verdict, best = check(snapshot, plan), least_bytes(snapshot, 0.25, limit)
        assert verdict.problems == []
        within = not any("stay" in sentence for sentence in verdict.unproven)
        if best is None:
            assert not within
            continue
        solvable += 1
        judge = LoadCheck.of(snapshot.brokers, snapshot.partitions, plan.rows, plan.proof)
        assert judge is not None
        assert max(bound_of(plan), judge.fewest_bytes()) <= best
        if within:
            solved, ours, least = solved + 1, ours + plan.proof["bytes_moved"], least + best
            assert plan.proof["bytes_moved"] >= best
    assert solvable >= 20
    assert solved >= 0.8 * solvable
    assert ours <= 1.5 * least


@SLOW
@given(
    clusters(),
    OPTIONS,
    st.fixed_dictionaries(
        {"network_bandwidth": st.sampled_from([0, 1, 50, 500, 10**6])},
        optional={"max_moves": st.integers(1, 4), "max_bytes": st.integers(1, 2_000_000)},
    ),
    st.sampled_from(["rebalance", "drain", "expand"]),
    st.randoms(use_true_random=False),
)
def test_every_plan_is_valid(
    snapshot: SnapshotFolder, options: dict[str, Any], limits: dict[str, int], operation: str, dice: random.Random
) -> None:
    rows = snapshot.partitions.to_pylist()
    for row in rows:
        row["bytes_per_s"] = dice.choice([None, 0.0, 10.0, 300.0])
    rows[0]["bytes_per_s"] = 20.0
    snapshot = snapshot_of(snapshot.brokers.to_pylist(), rows)
    plan = planned(snapshot, operation, {**LOAD, **limits, **options})
    verdict = check(snapshot, plan)
    assert verdict.problems == []
    judge = LoadCheck.of(snapshot.brokers, snapshot.partitions, plan.rows, plan.proof)
    assert judge is not None
    # Within both tolerances no plan moves less than either bound says.
    if not any("stay" in sentence for sentence in verdict.unproven):
        assert plan.proof["bytes_moved"] >= judge.fewest_bytes()
    if limits.get("max_moves"):
        assert plan.proof["replicas_moved"] <= limits["max_moves"]


def test_what_a_broker_may_not_take_above_the_bandwidth_goes_to_the_others() -> None:
    parts = [([1], 10 * MIB, 10.0) for _ in range(40)]
    snapshot = loaded(parts, [1, 2, 3], b1={"capacity": 4.0}, b2={"capacity": 2.0}, b3={"capacity": 2.0})
    free = planned(snapshot, "rebalance", {**LOAD, "tolerance": 0.3})
    assert loads(snapshot, free)[1][1] > 180
    plan = planned(snapshot, "rebalance", {**LOAD, "tolerance": 0.3, "network_bandwidth": 150})
    assert all(load <= 150 for load in loads(snapshot, plan)[1].values())
    assert check(snapshot, plan).problems == []


def test_bytes_in_above_all_limits_are_said_and_the_plan_comes_nearer() -> None:
    snapshot = loaded([([1], MIB, 50.0) for _ in range(8)], [1, 2])
    plan = planned(snapshot, "rebalance", {**LOAD, "network_bandwidth": 150})
    assert (
        "The brokers take 400 bytes per second in all, and network_bandwidth allows them 300: no plan keeps every "
        "broker below it; add brokers, or correct network_bandwidth." in plan.proof["notes"]
    )
    assert "These brokers stay above network_bandwidth: 1." in plan.proof["notes"]
    assert loads(snapshot, plan)[1] == {1: 250.0, 2: 150.0}
    verdict = check(snapshot, plan)
    assert verdict.problems == []
    assert "These brokers stay above network_bandwidth, and it is not proven that they must: 1." in verdict.unproven


@pytest.mark.parametrize("budget", [{"max_moves": 3}, {"max_bytes": 1 << 30}, {"max_moves": 4, "max_bytes": 2 << 30}])
def test_plans_within_a_budget_lead_to_even_brokers(budget: dict[str, int]) -> None:
    snapshot = skewed(3, partitions=120)
    limit = int(sum(loads(snapshot, planned(snapshot, "heal"))[1].values()) / 9 * 1.2)
    options = {**LOAD, "tolerance": 0.1, "network_bandwidth": limit, **budget}
    for _ in range(60):
        plan = planned(snapshot, "rebalance", options)
        assert plan.proof["replicas_moved"] <= budget.get("max_moves", 10**9)
        assert plan.proof["bytes_moved"] <= budget.get("max_bytes", 10**18)
        assert check(snapshot, plan).problems == []
        rest = any("later plans continue" in note for note in plan.proof["notes"])
        snapshot = carried_out(snapshot, plan)
        if not rest:
            break
    disks, bytes_in = loads(snapshot, planned(snapshot, "heal"))
    assert max(highest(disks), highest(bytes_in)) <= 1.1 + 1e-9
    assert max(bytes_in.values()) <= limit


def test_a_drain_empties_its_brokers_and_evens_out_the_others() -> None:
    snapshot = skewed(1)
    # Without racks: the two brokers that are left in the rack would have to hold a third of everything.
    brokers = [{"broker": one, "state": "draining" if one == 9 else "live"} for one in range(1, 10)]
    snapshot = snapshot_of(brokers, snapshot.partitions.to_pylist())
    plan = planned(snapshot, "drain", LOAD)
    disks, bytes_in = loads(snapshot, plan)
    assert disks.pop(9) == bytes_in.pop(9) == 0
    assert max(highest(disks), highest(bytes_in)) <= 1.05 + 1e-9
    assert bound_of(plan) <= plan.proof["bytes_moved"] <= 1.15 * bound_of(plan)
    assert check(snapshot, plan).problems == []


def test_without_any_rate_nothing_is_planned_and_the_sentence_says_what_to_do() -> None:
    snapshot = loaded([([1], MIB, None), ([1], MIB, None)], [1, 2])
    with pytest.raises(PlanError, match="no partition's bytes in are known; let a watch of the cluster run"):
        planned(snapshot, "rebalance", LOAD)


def test_rates_that_are_assumed_are_counted_and_those_of_nothing_balance_the_disks() -> None:
    snapshot = loaded([([1], MIB, 5.0), ([1], MIB, None), ([1], MIB, None), ([1], MIB, 15.0)], [1, 2])
    load = planned(snapshot, "rebalance", LOAD).proof["load"]
    assert (load["assumed"], load["replicas"]["after"]["by_broker"]) == (2, {"1": 20, "2": 20})
    idle = loaded([([1], MIB, 0.0), ([1], MIB, 0.0)], [1, 2])
    assert loads(idle, planned(idle, "rebalance", LOAD))[0] == {1: MIB, 2: MIB}


def test_no_disk_is_filled_and_what_cannot_be_even_is_named() -> None:
    parts = [([1], 10 * MIB, 10.0) for _ in range(10)]
    snapshot = loaded(parts, [1, 2], b2={"room": [25 * MIB]})
    plan = planned(snapshot, "rebalance", LOAD)
    assert loads(snapshot, plan)[0] == {1: 80 * MIB, 2: 20 * MIB}
    assert "The disks of these brokers stay out of the tolerance: 1, 2." in plan.proof["notes"]
    verdict = check(snapshot, plan)
    assert verdict.problems == []
    assert "The bytes in of these brokers stay out of the tolerance, and it is not proven that they must: 1, 2." in (
        verdict.unproven
    )


def test_the_checker_refuses_a_broker_that_is_brought_above_the_bandwidth() -> None:
    snapshot = loaded([([1], MIB, 60.0), ([1], MIB, 60.0), ([2], MIB, 60.0), ([2], MIB, 30.0)], [1, 2])
    plan = planned(snapshot, "rebalance", {**LOAD, "tolerance": 0.3, "network_bandwidth": 125})
    assert (plan.moves, check(snapshot, plan).ok) == ([], True)
    forged = plan_of(snapshot, "rebalance", plan.proof["options"], "t-3 1", load=plan.proof["load"])
    verdict = check(snapshot, forged)
    assert "Broker 1 takes more bytes in than before, above network_bandwidth = 125." in verdict.problems
    assert f"The plan moves {MIB} bytes; the fewest that could do are only known to be at least 0." in verdict.unproven


@pytest.mark.parametrize("balance", ["bytes", "load"])
@pytest.mark.parametrize("state", [{"leader": -1, "isr": []}, {"isr": [1]}])
@pytest.mark.parametrize(("given", "reason"), [({"pin": ["t-0"]}, "pinned"), ({"adding": [2]}, "in_flight")])
def test_a_partition_that_could_not_move_anyway_is_listed_by_the_reason_that_holds_it(
    balance: str, state: dict[str, Any], given: dict[str, Any], reason: str
) -> None:
    row = {"topic": "t", "partition": 0, "replicas": [1, 2], "bytes": MIB, "bytes_per_s": 5.0, **state}
    options = {"balance": balance, **({"pin": given["pin"]} if "pin" in given else {})}
    brokers = [{"broker": one, "state": "live"} for one in (1, 2, 3)]
    snapshot = snapshot_of(brokers, [row | {"adding": given.get("adding")}])
    plan = planned(snapshot, "rebalance", options)
    assert plan.proof["pinned"] == [{"topic": "t", "partition": 0, "reason": reason}]
    assert check(snapshot, plan).problems == []


def test_a_budget_that_was_large_enough_is_not_blamed_and_no_broker_at_all_may_receive() -> None:
    snapshot = loaded([([1], 4 * MIB, 10.0) for _ in range(4)], [1, 2])
    plan = planned(snapshot, "rebalance", {**LOAD, "max_bytes": 8 * MIB})
    assert (plan.proof["bytes_moved"], len(plan.proof["notes"])) == (8 * MIB, 1)
    closed = planned(snapshot, "rebalance", {**LOAD, "exclude_brokers": [1, 2], "network_bandwidth": 5})
    assert (closed.moves, check(snapshot, closed).problems) == ([], [])
