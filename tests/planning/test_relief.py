"""Relief: what full volumes hold above a threshold moves away, in few bytes, and nothing else."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import pytest

from kafka_steward.errors import PlanError
from kafka_steward.planning.checker.check import check
from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder
from kafka_steward.planning.solver.relief import smallest_cover
from tests.builders import planned, snapshot_of
from tests.planning.integer_solver import MIB, carried_out
from tests.planning.manual_plans import plan_of

Row = dict[str, Any]
GIB = 1024 * MIB


def broker(number: int, *used: int, total: int = 100 * GIB, **more: Any) -> Row:
    """A broker with log directories of which so many GiB are used."""
    disks = {"disk_total": [total] * len(used), "disk_used": [each * GIB for each in used]}
    return {"broker": number, "state": "live", "room": [total - each * GIB for each in used], **disks, **more}


def partition(number: int, replicas: Sequence[int], gib: float | None, **more: Any) -> Row:
    size = None if gib is None else int(gib * GIB)
    return {"topic": "t", "partition": number, "replicas": list(replicas), "bytes": size, **more}


def after(plan: PlanFolder) -> dict[int, list[int]]:
    return {row["partition"]: row["after"] for row in plan.rows.to_pylist()}


def test_only_what_is_above_the_threshold_moves_to_the_emptiest_disk() -> None:
    brokers = [broker(1, 92), broker(2, 40), broker(3, 20), broker(4, 84)]
    snapshot = snapshot_of(brokers, [partition(0, [1, 2], 5), partition(1, [1, 2], 4), partition(2, [4, 1], 3)])
    plan = planned(snapshot, "relieve")
    # 7 GiB are too much: 4 and 3 are the fewest that cover them, each in its place of the list.
    assert after(plan) == {1: [3, 2], 2: [4, 3]}
    assert {row["reason"] for row in plan.rows.to_pylist()} == {"disk_full"}
    assert plan.proof["bytes_moved"] == 7 * GIB
    assert plan.proof["notes"] == [f"The volumes hold {7 * GIB} bytes above max_used, which any plan must move away."]
    assert check(snapshot, plan).problems == []


def test_nothing_moves_where_no_volume_is_full_or_its_size_is_not_known() -> None:
    unknown = {"broker": 2, "state": "live", "room": None}
    snapshot = snapshot_of([broker(1, 85), unknown], [partition(0, [1], 50), partition(1, [2], 50)])
    plan = planned(snapshot, "relieve")
    assert (after(plan), plan.proof["notes"]) == ({}, [])
    assert check(snapshot, plan).problems == []


def test_no_receiver_is_brought_above_the_threshold_and_what_stays_is_named() -> None:
    brokers = [broker(1, 95), broker(2, 80), broker(3, 84)]
    snapshot = snapshot_of(brokers, [partition(number, [1], 3) for number in range(4)])
    plan = planned(snapshot, "relieve")
    assert list(after(plan).values()) == [[2]]
    assert plan.proof["notes"][1] == (
        "The volumes of these brokers stay above max_used, because no other broker has a place for what could leave "
        "them: 1."
    )
    assert check(snapshot, plan).problems == []


def test_the_threshold_and_a_budget_are_asked_for() -> None:
    brokers = [broker(1, 60), broker(2, 70), broker(3, 5), broker(4, 5)]
    snapshot = snapshot_of(brokers, [partition(number, [1 + number % 2], 10) for number in range(8)])
    whole = planned(snapshot, "relieve", {"max_used": 0.5})
    assert sorted(after(whole)) == [0, 1, 3]
    fewer = planned(snapshot, "relieve", {"max_used": 0.5, "max_bytes": 15 * GIB})
    # The fullest disk comes first.
    assert sorted(after(fewer)) == [1]
    assert fewer.proof["notes"][-1] == "The budget leaves 2 replicas to be moved by later plans."
    for plan in (whole, fewer):
        assert check(snapshot, plan).problems == []
    with pytest.raises(PlanError, match=r"The option max_used is 1\.2; it must be at most 1"):
        planned(snapshot, "relieve", {"max_used": 1.2})


def test_of_several_log_directories_only_the_full_one_gives() -> None:
    brokers = [broker(1, 95, 10), broker(2, 10, 10), broker(3, 10)]
    partitions = [
        partition(0, [1, 2], 11, log_dirs=[1, 0]),
        partition(1, [1, 3], 10, log_dirs=[0, 0]),
        partition(2, [1], 30, log_dirs=[-1]),
    ]
    snapshot = snapshot_of(brokers, partitions)
    plan = planned(snapshot, "relieve")
    assert after(plan) == {1: [2, 3]}
    assert check(snapshot, plan).problems == []
    with pytest.raises(PlanError, match="t-0 has more or fewer log directories than replicas"):
        planned(snapshot_of(brokers, [partition(0, [1, 2], 1, log_dirs=[0])]), "relieve")


def test_racks_get_no_worse() -> None:
    brokers = [broker(1, 95, rack="a"), broker(2, 10, rack="b"), broker(3, 60, rack="a"), broker(4, 20, rack="c")]
    snapshot = snapshot_of(brokers, [partition(0, [1, 2], 12), partition(1, [1, 4], 10), partition(2, [4, 2], 1)])
    plan = planned(snapshot, "relieve")
    assert after(plan) == {1: [2, 4]}
    assert check(snapshot, plan).problems == []
    scarce = snapshot_of([*brokers[:2], broker(3, 80, rack="a")], [partition(0, [1, 2], 12)])
    assert after(planned(scarce, "relieve")) == {}


def test_what_must_not_move_stays() -> None:
    brokers = [broker(1, 95), broker(2, 10), broker(3, 10), {"broker": 4, "state": "down"}]
    partitions = [
        partition(0, [1, 2], 9, isr=[2]),
        partition(1, [1, 4], 9),
        partition(2, [1], 9, leader=-1),
        partition(3, [1], 9, adding=[2]),
        partition(4, [1], None),
        partition(5, [1], 2),
        partition(6, [1], 20, topic="kept"),
    ]
    snapshot = snapshot_of(brokers, partitions)
    plan = planned(snapshot, "relieve", {"exclude": ["kept"]})
    assert sorted(after(plan)) == [5]
    assert check(snapshot, plan).problems == []


def random_case(seed: int) -> SnapshotFolder:
    dice = random.Random(seed)
    count, racks = dice.randint(3, 6), dice.choice([None, None, 2, 3])
    used = [[dice.choice([10, 40, 84, 86, 92, 97]) for _ in range(dice.choice([1, 1, 1, 2]))] for _ in range(count)]
    brokers = [
        broker(number, *each, rack=None if racks is None else f"r{number % racks}") for number, each in enumerate(used)
    ]
    parts = []
    for number in range(dice.randint(1, 14)):
        replicas = dice.sample(range(count), dice.randint(1, min(3, count)))
        where = [dice.randrange(len(used[each])) for each in replicas]
        parts.append(partition(number, replicas, dice.choice([0.5, 1, 2, 3, 5, 8]), log_dirs=where))
    return snapshot_of(brokers, parts)


@pytest.mark.parametrize("seed", range(60))
def test_any_relief_is_judged_to_be_right(seed: int) -> None:
    snapshot = random_case(seed)
    assert check(snapshot, planned(snapshot, "relieve")).problems == []


def test_once_a_relief_is_carried_out_the_next_one_is_empty() -> None:
    relieved = 0
    for seed in range(60):
        snapshot = random_case(seed)
        if any(len(row["disk_total"]) > 1 for row in snapshot.brokers.to_pylist()):
            continue
        plan = planned(snapshot, "relieve", {}, 4)
        change: Counter[int] = Counter()
        for row in plan.rows.to_pylist():
            change.update(dict.fromkeys(row["adding"], row["bytes"]))
            change.subtract(dict.fromkeys(row["removing"], row["bytes"]))
        rows = snapshot.brokers.to_pylist()
        brokers = [row | {"disk_used": [row["disk_used"][0] + change[row["broker"]]]} for row in rows]
        done = snapshot_of(brokers, carried_out(snapshot, plan).partitions.to_pylist())
        # Where not all found a place, what has moved may have made one.
        if "stay above" not in " ".join(plan.proof["notes"]):
            assert (seed, planned(done, "relieve", {}, 4).moves) == (seed, [])
        relieved += bool(plan.moves)
    assert relieved > 5


@pytest.mark.parametrize("seed", range(20))
def test_the_fewest_bytes_leave_where_each_replica_has_a_place(seed: int) -> None:
    dice = random.Random(seed)
    brokers = [broker(1, 95), broker(2, 93), broker(3, 1), broker(4, 1)]
    sizes = [(dice.choice([1, 2]), dice.choice([0.3, 0.7, 1.9, 3.1, 4.4, 6, 11])) for _ in range(dice.randint(4, 12))]
    snapshot = snapshot_of(brokers, [partition(number, [at], size) for number, (at, size) in enumerate(sizes)])
    plan = planned(snapshot, "relieve")
    for number, need in ((1, 10 * GIB), (2, 8 * GIB)):
        mine = [int(size * GIB) for at, size in sizes if at == number]
        sums = [sum(some) for count in range(len(mine) + 1) for some in combinations(mine, count)]
        gone = sum(row["bytes"] for row in plan.rows.to_pylist() if row["before"] == [number])
        assert gone == min((each for each in sums if each >= need), default=sum(mine))


def test_a_cover_of_many_sizes_is_as_small_as_can_be() -> None:
    dice = random.Random(7)
    sizes = [dice.randint(1, 10**10) for _ in range(2_000)]
    chosen = smallest_cover(sizes, 10**12)
    assert len(set(chosen)) == len(chosen)
    assert 10**12 <= sum(sizes[at] for at in chosen) <= 1.002 * 10**12
    assert smallest_cover([5, 9, 4], 8) == [1]
    assert sorted(smallest_cover([5, 9, 4], 10)) == [1, 2]
    assert sorted(smallest_cover([5, 9, 4, 0], 100)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("moves", "problem"),
    [
        (["t-0 13"], "t-0: its replica on broker 2 is on no volume above max_used, and must not move."),
        (["t-0 31"], "t-0: it does more than to replace replicas on full volumes, each in its place."),
        (["t-1 32", "t-2 3"], "gives away"),
        (["t-1 42", "t-0 42"], "which brings its volumes above max_used"),
        ([], "t-0: broker 1 stays above max_used, and broker 3 has a place for its replica."),
    ],
)
def test_a_wrong_relief_is_refused(moves: list[str], problem: str) -> None:
    brokers = [broker(1, 90), broker(2, 10), broker(3, 10), broker(4, 82)]
    snapshot = snapshot_of(brokers, [partition(0, [1, 2], 2), partition(1, [1, 2], 6), partition(2, [1], 4)])
    options = {"max_used": 0.85, "exclude_brokers": []}
    found = check(snapshot, plan_of(snapshot, "relieve", options, *moves)).problems
    assert any(problem in each for each in found), found
