"""Even disks: within the tolerance, by few bytes, and said so where it cannot be."""

import random
from collections.abc import Mapping, Sequence

import pytest

from kafka_steward.planning.checker.check import check
from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder
from tests.builders import planned, snapshot_of

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
    snapshot = sized(sizes, [1, 2, 3], b2={"usable_bytes": 2 * GIB})
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
