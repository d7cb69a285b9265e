"""Bytes per broker before and after a plan, room for them, and what is not proven of even disks."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pytest

from kafka_steward.planning.checker.check import (
    DiskLoads,
    PlanVerdict,
    check,
    disk_loads,
    disk_space_problems,
    tolerance_gaps,
)
from kafka_steward.planning.files.formats import SNAPSHOT_BROKERS
from tests.builders import snapshot_of
from tests.planning.manual_plans import context, move, plan_of


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
        before={1: 111, 2: 101, 4: 1100},
        after={1: 11, 2: 101, 4: 1010, 5: 110},
        into={4: 10, 5: 110},
        lost=20,
    )


def test_loads_of_all_topics_are_the_sums_of_theirs() -> None:
    one = DiskLoads(before={1: 1, 2: 2}, after={1: 3}, into={2: 4}, lost=5)
    # As they come back from Spark, in JSON, where ids are words.
    other = DiskLoads(
        **json.loads(json.dumps(asdict(DiskLoads(before={1: 10}, after={1: 20, 2: 30}, into={}, lost=40))))
    )
    assert DiskLoads.combine([one, other]) == DiskLoads({1: 11, 2: 2}, {1: 23, 2: 30}, {2: 4}, 45)


def test_what_comes_in_may_fill_a_broker_and_no_more() -> None:
    brokers = table(b1={"usable_bytes": 9}, b2={"usable_bytes": 10}, b3={}, b4={"usable_bytes": 0}, b5={})
    loads = DiskLoads({}, {}, into={1: 10, 2: 10, 3: 10}, lost=0)
    assert list(disk_space_problems(loads, brokers)) == ["Broker 1 would receive 10 bytes and has room for 9."]


def test_a_plan_that_overfills_a_broker_is_not_valid() -> None:
    brokers = [{"broker": 1, "state": "live"}, {"broker": 2, "state": "live", "usable_bytes": 999}]
    rows = [{"topic": "t", "partition": at, "replicas": [1], "bytes": 1000} for at in (0, 1)]
    snapshot = snapshot_of(brokers, rows)
    problems = ["Broker 2 would receive 1000 bytes and has room for 999."]
    found = check(snapshot, plan_of(snapshot, "rebalance", {"balance": "bytes"}, "t-1 2"))
    assert found == PlanVerdict(False, problems, (beyond(1000, 950),))
    # Counted in replicas, room is not asked for.
    assert check(snapshot, plan_of(snapshot, "rebalance", {}, "t-1 2")) == PlanVerdict(True, [])


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
        (
            table(b1={"capacity": 1.0}, b2={"capacity": 5.0, "state": "draining"}, b3={}),
            {},
            {1: 100, 3: 300},
            [],
        ),
    ],
)
def test_disks_within_the_tolerance_of_their_shares_are_even(
    brokers: pa.Table, options: dict[str, Any], after: dict[int, int], gaps: list[str]
) -> None:
    assert list(tolerance_gaps(DiskLoads({}, after, {}, 0), brokers, options, moved_bytes=0)) == gaps


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
    loads = DiskLoads(before, {1: 100, 2: 100}, {}, lost)
    assert list(tolerance_gaps(loads, brokers, {}, moved_bytes=least)) == []
    assert list(tolerance_gaps(loads, brokers, {}, moved_bytes=least + 1)) == [beyond(least + 1, least)]
