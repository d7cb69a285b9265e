"""What a snapshot tells a planner: states, sizes, what moves, and the capacities of brokers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.capacities import PATTERN, parse_capacities
from kafka_steward.errors import SettingError
from kafka_steward.execution.snapshot import take_snapshot
from kafka_steward.planning.checker.check import check
from kafka_steward.planning.files.formats import read_snapshot
from kafka_steward.settings import Settings
from tests.builders import planned
from tests.simulator import Simulator


@pytest.mark.parametrize(
    ("text", "found"), [("", {}), ("  ", {}), ("4=2", {4: 2.0}), ("4=2, 5 = 0.5,10=1", {4: 2.0, 5: 0.5, 10: 1.0})]
)
def test_a_capacity_belongs_to_each_broker_that_is_named(text: str, found: dict[int, float]) -> None:
    assert parse_capacities(text) == found


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("4", "The setting capacity has '4'; it takes 4=2, 5=0.5."),
        ("4=2,", "The setting capacity has ''; it takes 4=2, 5=0.5."),
        ("b4=2", "The setting capacity has 'b4=2'; it takes 4=2, 5=0.5."),
        ("4=2, 4=3", "The setting capacity names broker 4 twice; keep one."),
        ("4=0", "The setting capacity gives broker 4 '0'; it takes numbers from 0.001 to 1000000, such as 2 for a "),
        (
            "4=nan",
            "The setting capacity gives broker 4 'nan'; it takes numbers from 0.001 to 1000000, such as 2 for a ",
        ),
        (
            {"4": "x"},
            "The setting capacity gives broker 4 'x'; it takes numbers from 0.001 to 1000000, such as 2 for a ",
        ),
        ({"four": 2}, "The setting capacity has 'four=2'; it takes 4=2, 5=0.5."),
    ],
)
def test_what_is_no_capacity_is_refused(given: Any, problem: str) -> None:
    for read in (Settings.of, Settings.refuse_wrong):
        with pytest.raises(SettingError) as refused:
            read({"capacity": given})
        assert str(refused.value).startswith(problem)


def test_a_connection_may_have_a_map() -> None:
    assert parse_capacities(Settings.of({"capacity": {"4": 2, "5": 0.5}}).capacity) == {4: 2.0, 5: 0.5}
    assert Settings.of({"capacity": "4=2"}, {"capacity": {"4": 9}}).capacity == "4=2"


def test_the_form_takes_what_the_setting_takes() -> None:
    import re

    taken = ["", "4=2", "4=2, 5=0.5"]
    assert all(re.fullmatch(PATTERN, text) for text in taken)
    assert not any(re.fullmatch(PATTERN, text) for text in ("4", "4=-2", "4=2,"))


def test_a_broker_of_twice_the_capacity_gets_twice_the_replicas(tmp_path: Path) -> None:
    simulator = Simulator.of("1a 2b 3c", "orders: " + " ".join("12312312"))
    take_snapshot(simulator, str(tmp_path / "plain"), failed=(), now_ms=1)
    take_snapshot(simulator, str(tmp_path / "weighted"), failed=(), now_ms=1, capacities={3: 2.0, 99: 5.0})
    plain, weighted = (read_snapshot(str(tmp_path / name)) for name in ("plain", "weighted"))
    assert plain.brokers["capacity"].to_pylist() == [None, None, None]
    assert weighted.brokers["capacity"].to_pylist() == [1.0, 1.0, 2.0]
    plan = planned(weighted, "rebalance")
    assert plan.proof["spread"]["replicas"]["after"]["by_broker"] == {"1": 2, "2": 2, "3": 4}
    assert plan.proof["leader_evenness"] == "proportional"
    assert (check(weighted, plan).problems, check(weighted, plan).unproven) == ([], ())


def test_a_snapshot_tells_states_sizes_and_what_moves(tmp_path: Path) -> None:
    simulator = Simulator.of("1a 2b 3c 4a 5b 6c", "t: 123 234", "u: 35", size=70)
    simulator.topic_settings["t"]["min.insync.replicas"] = "2"
    for broker in (1, 5):
        simulator.kill(broker)
    simulator.alter({TopicPartition("t", 1): (2, 3, 6)})
    digest = take_snapshot(simulator, str(tmp_path / "s"), failed=[1, 4], now_ms=7)
    snapshot = read_snapshot(str(tmp_path / "s"))
    assert (snapshot.digest, snapshot.cluster_id, snapshot.taken_ms) == (digest, "simulated", 7)
    states = {row["broker"]: (row["rack"], row["state"]) for row in snapshot.brokers.to_pylist()}
    assert states == {
        1: ("a", "failed"),
        2: ("b", "live"),
        3: ("c", "live"),
        4: ("a", "live"),  # said to have failed, and back again
        5: ("b", "draining"),  # gone, and not failed yet
        6: ("c", "live"),
    }
    rows = {(row["topic"], row["partition"]): row for row in snapshot.partitions.to_pylist()}
    assert (rows["t", 0]["bytes"], rows["t", 0]["min_isr"], rows["t", 0]["target_rf"]) == (70, 2, 3)
    moving = rows["t", 1]
    assert (moving["adding"], moving["removing"], moving["target_rf"]) == ([6], [4], 3)
    assert (rows["u", 0]["replicas"], rows["u", 0]["isr"], rows["u", 0]["leader"]) == ([3, 5], [3], 3)


def test_a_partition_whose_brokers_are_all_gone_has_no_leader_and_no_size(tmp_path: Path) -> None:
    simulator = Simulator.of("1a 2b 3c", "t: 12")
    simulator.kill(1)
    simulator.kill(2)
    take_snapshot(simulator, str(tmp_path / "s"), failed=[1, 2], now_ms=7)
    row = read_snapshot(str(tmp_path / "s")).partitions.to_pylist()[0]
    assert (row["leader"], row["bytes"], row["all_offline"]) == (-1, None, True)


@pytest.mark.parametrize("failed", [[], [2]])
def test_a_partition_has_no_live_replica_if_all_are_on_dead_brokers_or_failed_disks_whatever_is_to_be_healed(
    tmp_path: Path, failed: list[int]
) -> None:
    simulator = Simulator.of("1a 2b 3c", "t: 12 2 3 23 13", "u: 3")
    simulator.fail_disk(3, TopicPartition("t", 2), TopicPartition("t", 3))
    simulator.kill(2)
    take_snapshot(simulator, str(tmp_path / "s"), failed=failed, now_ms=7)
    rows = read_snapshot(str(tmp_path / "s")).partitions.to_pylist()
    found = {f"{row['topic']}-{row['partition']}" for row in rows if row["all_offline"]}
    assert found == {"t-1", "t-2", "t-3"}
    assert {row["all_offline"] for row in rows} == {None, True}
