"""Capacities of brokers: a setting, or a map in the connection, that reaches the planner by the snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_steward.capacities import PATTERN, parse_capacities
from kafka_steward.errors import SettingError
from kafka_steward.execution.snapshot import take_snapshot
from kafka_steward.planning.checker.check import check
from kafka_steward.planning.files.formats import read_snapshot
from kafka_steward.settings import Settings
from tests.builders import planned
from tests.simulator import Simulator


@pytest.mark.parametrize(
    ("text", "found"),
    [("", {}), ("  ", {}), ("4=2", {4: 2.0}), ("4=2, 5 = 0.5,10=1", {4: 2.0, 5: 0.5, 10: 1.0})],
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
