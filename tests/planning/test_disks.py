"""Even disks: within the tolerance, by few bytes, and said so where it cannot be, by the planner and by the checker."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafka_steward.planning.checker.check import (
    DiskLoads,
    PlanVerdict,
    check,
    disk_loads,
    tolerance_gaps,
)
from kafka_steward.planning.files.formats import SNAPSHOT_BROKERS, PlanFolder, SnapshotFolder
from kafka_steward.planning.options import Options
from kafka_steward.planning.solver.disks import disk_shares
from kafka_steward.planning.solver.fill_missing import OtherShards, ShardTotals
from kafka_steward.planning.solver.problem import Brokers
from tests.builders import planned, snapshot_of
from tests.planning.manual_plans import context, move, plan_of

GIB = 1 << 30


def sized(
    sizes: Sequence[tuple[list[int], int]], brokers: Sequence[int], **extra: Mapping[str, object]
) -> SnapshotFolder:
    rows = [
        {"topic": "t", "partition": number, "replicas": replicas, "bytes": size}
        for number, (replicas, size) in enumerate(sizes)
    ]
    table = [{"broker": one, "state": "live", **extra.get(f"b{one}", {})} for one in brokers]
    return snapshot_of(table, rows)


def used(snapshot: SnapshotFolder, plan: PlanFolder) -> dict[int, int]:
    new = {(move.topic, move.partition): move.after for move in plan.moves}
    sums = dict.fromkeys(snapshot.brokers["broker"].to_pylist(), 0)
    for row in snapshot.partitions.to_pylist():
        for broker in new.get((row["topic"], row["partition"]), row["replicas"]):
            sums[broker] += row["bytes"]
    return sums


@pytest.mark.parametrize("seed", range(10))
def test_disks_end_up_within_the_tolerance_by_nearly_as_few_bytes_as_can_be(seed: int) -> None:
    dice = random.Random(seed)
    brokers = list(range(1, 13))
    full = [*brokers[:6], *brokers]
    sizes = []
    for _ in range(1000):
        replicas = list(dict.fromkeys(dice.sample(full, 6)))[:3]
        sizes.append((replicas, int(dice.lognormvariate(18, 1))))
    racks = {f"b{one}": {"rack": "abc"[one % 3]} for one in brokers}
    snapshot = sized(sizes, brokers, **racks)
    plan = planned(snapshot, "rebalance", {"balance": "bytes"})
    held = used(snapshot, plan)
    share = sum(held.values()) / len(held)
    assert max(held.values()) <= 1.05 * share
    assert min(held.values()) >= 0.95 * share
    bound = int(plan.proof["notes"][0].split(" bytes")[0].split()[-1])
    assert bound <= plan.proof["bytes_moved"] <= 1.1 * bound
    assert check(snapshot, plan).problems == []
    assert plan.proof["rack_violations"]["after"] <= plan.proof["rack_violations"]["before"]


def test_a_partition_too_large_for_the_band_is_reported_and_nothing_loops() -> None:
    snapshot = sized([([1], 100 * GIB), ([1], GIB), ([2], GIB)], [1, 2, 3])
    plan = planned(snapshot, "rebalance", {"balance": "bytes"})
    notes = " ".join(plan.proof["notes"])
    assert "The disks of these brokers stay out of the tolerance: 1, 2, 3." in notes
    assert "The partition t-0 is larger than the tolerance leaves room for." in notes


def test_no_broker_gets_more_than_it_has_room_for() -> None:
    sizes = [([1], GIB)] * 30
    snapshot = sized(sizes, [1, 2, 3], b2={"room": [2 * GIB]})
    held = used(snapshot, planned(snapshot, "rebalance", {"balance": "bytes"}))
    assert held[2] <= 2 * GIB < held[3]


def test_a_disk_of_twice_the_capacity_takes_twice_the_bytes() -> None:
    sizes = [([1], GIB)] * 40
    snapshot = sized(sizes, [1, 2, 3], b1={"capacity": 1.0}, b2={"capacity": 1.0}, b3={"capacity": 2.0})
    held = used(snapshot, planned(snapshot, "rebalance", {"balance": "bytes"}))
    assert held[3] == pytest.approx(20 * GIB, rel=0.06)


def test_a_draining_broker_is_emptied_too() -> None:
    snapshot = sized([([1, 2], GIB), ([2, 3], GIB), ([3, 1], GIB)], [1, 2, 3, 4], b1={"state": "draining"})
    plan = planned(snapshot, "drain", {"balance": "bytes"})
    assert used(snapshot, plan)[1] == 0
    assert check(snapshot, plan).problems == []


def unbalanced(seed: int, *, topics: int = 8, **states: Mapping[str, object]) -> SnapshotFolder:
    """Twelve brokers in three racks, half of which hold most; topics of different sizes."""
    dice = random.Random(seed)
    brokers = list(range(1, 13))
    full = [*brokers[:6], *brokers]
    rows: list[dict[str, Any]] = []
    for topic in range(topics):
        for number in range(dice.randrange(60, 200)):
            replicas = list(dict.fromkeys(dice.sample(full, 6)))[:3]
            size = int(dice.lognormvariate(18, 1))
            rows.append({"topic": f"t{topic}", "partition": number, "replicas": replicas, "bytes": size})
    table = [{"broker": one, "state": "live", "rack": "abc"[one % 3], **states.get(f"b{one}", {})} for one in brokers]
    return snapshot_of(table, rows)


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let any number of partitions be too many for one shard."""
    monkeypatch.setattr("kafka_steward.planning.solver.sharded.plan.MAX_UNSHARDED_PARTITIONS", 0)


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("seed", range(6))
def test_shards_together_balance_disks_within_the_tolerance(seed: int) -> None:
    snapshot = unbalanced(seed)
    plan, whole = (planned(snapshot, "rebalance", {"balance": "bytes"}, shard_rows=rows) for rows in (150, 100_000))
    held = used(snapshot, plan)
    share = sum(held.values()) / len(held)
    assert 0.95 * share <= min(held.values()) <= max(held.values()) <= 1.05 * share
    verdict = check(snapshot, plan)
    assert verdict.problems == []
    assert len(verdict.unproven) == 1, "only whether fewer bytes would do"
    assert plan.proof["notes"] == whole.proof["notes"], "the bound is that of the whole cluster"
    bound = int(plan.proof["notes"][0].split(" bytes")[0].split()[-1])
    assert bound <= plan.proof["bytes_moved"] <= 1.3 * bound
    assert len(plan.moves) > len({move.topic for move in plan.moves}) > 1


@pytest.mark.usefixtures("many")
def test_shards_together_overfill_no_disk() -> None:
    snapshot = unbalanced(7, b12={"room": [3 * GIB]})
    rows = snapshot.partitions.to_pylist()
    before = sum(row["bytes"] for row in rows if 12 in row["replicas"])
    held = used(snapshot, planned(snapshot, "rebalance", {"balance": "bytes"}, shard_rows=150))
    assert before < held[12] <= before + 3 * GIB < held[11]


@pytest.mark.usefixtures("many")
def test_shards_empty_a_draining_broker() -> None:
    snapshot = unbalanced(7, b2={"state": "draining"})
    plan = planned(snapshot, "drain", {"balance": "bytes"}, shard_rows=150)
    assert used(snapshot, plan)[2] == 0
    assert check(snapshot, plan).problems == []


@pytest.mark.usefixtures("many")
def test_shards_take_a_budget_together() -> None:
    snapshot = unbalanced(3)
    complete = planned(snapshot, "rebalance", {"balance": "bytes"}, shard_rows=150)
    budget = complete.proof["bytes_moved"] // 3
    plan = planned(snapshot, "rebalance", {"balance": "bytes", "max_bytes": budget}, shard_rows=150)
    assert 0.9 * budget <= plan.proof["bytes_moved"] <= budget
    assert {(move.topic, move.partition) for move in plan.moves} < {
        (move.topic, move.partition) for move in complete.moves
    }
    left = complete.proof["replicas_moved"] - plan.proof["replicas_moved"]
    assert plan.proof["notes"] == [
        *complete.proof["notes"],
        f"The budget leaves {left} replicas to be moved by later plans.",
    ]
    assert check(snapshot, plan).problems == []


def test_bands_of_shards_add_up_to_that_of_the_cluster() -> None:
    loads = [np.array([900.0, 100, 300, 0]), np.array([300.0, 100, 500, 200])]
    table = snapshot_of([{"broker": one, "state": "live"} for one in (1, 2, 3, 4)], []).brokers
    brokers, none = Brokers.of(table, Options()), ShardTotals(np.zeros(4, int), np.zeros(4, int), 0, {})
    shares = disk_shares(loads, [OtherShards(none, 0)] * 2, brokers, 0.05)
    bands = [share.own_band(load) for share, load in zip(shares, loads, strict=True)]
    whole = shares[0].band
    for edge in ("lower", "upper"):
        assert sum(getattr(band, edge) for band in bands) == pytest.approx(getattr(whole, edge))
    assert all((band.lower <= band.upper + 1e-9).all() for band in bands)


def table(**brokers: dict[str, Any]) -> pa.Table:
    """`table(b1={}, b2={"state": "failed"})`: brokers by their ids, live where nothing else is said."""
    rows = [{"broker": int(name[1:]), "state": "live", **context} for name, context in brokers.items()]
    return pa.Table.from_pylist(rows, SNAPSHOT_BROKERS)


def test_loads_are_before_without_what_is_lost_and_after_with_what_comes_in() -> None:
    brokers = [{"broker": one, "state": "failed" if one == 3 else "live"} for one in (1, 2, 3, 4, 5)]
    replicas = [([1, 2], 1), ([1, 3], 10), ([1, 2, 4], 100), ([1, 2], None), ([3, 4], 1000), ([1, 2], -1)]
    rows = [{"topic": "t", "partition": at, "replicas": ids, "bytes": size} for at, (ids, size) in enumerate(replicas)]
    snapshot = snapshot_of(brokers, rows)
    moves = [move(snapshot, text) for text in ("t-1 145", "t-2 25", "t-3 45")]
    assert disk_loads(context(snapshot, "rebalance", {}), moves) == DiskLoads(
        before={1: 111, 2: 101, 4: 1100}, after={1: 11, 2: 101, 4: 1010, 5: 110}, lost=20
    )


def test_a_plan_that_overfills_a_broker_is_not_valid() -> None:
    brokers = [{"broker": 1, "state": "live"}, {"broker": 2, "state": "live", "room": [999]}]
    rows = [{"topic": "t", "partition": at, "replicas": [1], "bytes": 1000} for at in (0, 1)]
    snapshot = snapshot_of(brokers, rows)
    problems = ["Broker 2 has room for 999 bytes when t-1 comes with 1000."]
    found = check(snapshot, plan_of(snapshot, "rebalance", {"balance": "bytes"}, "t-1 2"))
    assert found == PlanVerdict(False, problems, (beyond(1000, 950),))
    assert check(snapshot, plan_of(snapshot, "rebalance", {}, "t-1 2")).problems == problems


def outside(*brokers: int) -> str:
    names = ", ".join(map(str, brokers))
    return f"The disks of these brokers stay out of the tolerance, and it is not proven that they must: {names}."


def beyond(moved: int, least: int) -> str:
    return f"The plan moves {moved} bytes; the fewest that could do are only known to be at least {least}."


TWO = table(b1={}, b2={})


@pytest.mark.parametrize(
    ("brokers", "options", "after", "gaps"),
    [
        (TWO, {}, {1: 100, 2: 100}, []),
        # 5 % where nothing is said, and a byte for the planner's rounding.
        (TWO, {}, {1: 1051, 2: 949}, []),
        (TWO, {}, {1: 1052, 2: 948}, [outside(1, 2)]),
        (TWO, {"tolerance": 0.1}, {1: 1101, 2: 899}, []),
        (TWO, {"tolerance": 0.1}, {1: 1102, 2: 898}, [outside(1, 2)]),
        (TWO, {"tolerance": 0}, {1: 100}, [outside(1, 2)]),
        (TWO, {"tolerance": 0}, {1: 3}, [outside(1, 2)]),
        (table(b1={}, b2={}, b3={"state": "new"}), {}, {1: 100, 2: 100, 3: 100}, []),
        (table(b1={}, b2={}, b3={"state": "draining"}), {}, {1: 100, 2: 100}, []),
        (table(b1={}, b2={}, b3={"state": "draining"}), {}, {1: 99, 2: 100, 3: 1}, [outside(3)]),
        (table(b1={}, b2={}, b3={"state": "draining"}), {}, {1: 100, 2: 80, 3: 20}, [outside(2, 3)]),
        # What is lost is no load, and what is excluded keeps what it has.
        (table(b1={}, b2={}, b3={"state": "failed"}), {}, {1: 100, 2: 100}, []),
        (table(b1={}, b2={}, b3={}), {"exclude_brokers": [3]}, {1: 100, 2: 100, 3: 5}, []),
        (table(b1={}, b2={}, b3={}), {"exclude_brokers": [3]}, {1: 100, 2: 100}, []),
        (table(b1={}, b2={}, b3={}), {"exclude_brokers": None}, {1: 100, 2: 100}, [outside(1, 2, 3)]),
        (table(b1={"capacity": 1.0}, b2={"capacity": 3.0}), {}, {1: 100, 2: 300}, []),
        # Capacities count to a millionth.
        (table(b1={"capacity": 1.0}, b2={"capacity": 0.99}), {"tolerance": 0}, {1: 100_000, 2: 99_000}, []),
        (table(b1={"capacity": 1.0}, b2={"capacity": 1 / 1_500_001}), {"tolerance": 0}, {1: 10**7, 2: 10}, []),
        # One without a capacity counts as the average of all that have one.
        (table(b1={"capacity": 1.0}, b2={"capacity": 5.0}, b3={}), {}, {1: 100, 2: 500, 3: 300}, []),
        (table(b1={"capacity": 1.0}, b2={"capacity": 5.0, "state": "draining"}, b3={}), {}, {1: 100, 3: 300}, []),
    ],
)
def test_disks_within_the_tolerance_of_their_shares_are_even(
    brokers: pa.Table, options: dict[str, Any], after: dict[int, int], gaps: list[str]
) -> None:
    assert list(tolerance_gaps(DiskLoads({}, after, 0), brokers, options, moved_bytes=0)) == gaps


@pytest.mark.parametrize(
    ("brokers", "before", "lost", "least"),
    [
        # What is above the upper edges of 105 has to go, and what is lost to be copied anew.
        (TWO, {1: 150, 2: 50}, 0, 45),
        (TWO, {1: 150, 2: 50}, 7, 52),
        (TWO, {1: 104, 2: 96}, 7, 7),
        # What is below the lower edges of 95 has to come.
        (TWO, {1: 100, 2: 60}, 0, 35),
        (TWO, {1: 100, 2: 60}, 36, 36),
        (TWO, {1: 100}, 0, 95),
        # A broker that is to be emptied has no share.
        (table(b1={}, b2={}, b3={"state": "draining"}), {1: 100, 2: 100, 3: 120}, 0, 120),
    ],
)
def test_no_plan_moves_fewer_bytes_than_stand_or_lack_outside_the_tolerance(
    brokers: pa.Table, before: dict[int, int], lost: int, least: int
) -> None:
    loads = DiskLoads(before, {1: 100, 2: 100}, lost)
    assert list(tolerance_gaps(loads, brokers, {}, moved_bytes=least)) == []
    assert list(tolerance_gaps(loads, brokers, {}, moved_bytes=least + 1)) == [beyond(least + 1, least)]
