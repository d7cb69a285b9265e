"""The forecast: a simulation of the plan by its own runner, with Kafka's quotas (KIP-73)."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from kafka_steward.forecast.copying import Quota
from kafka_steward.forecast.forecast import Forecast, forecast_plan
from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder
from kafka_steward.settings import Settings
from tests.builders import planned, snapshot_of

NOW_MS = 1_700_000_000_000
MB = 1_000_000


def draining(partitions: int, size: int, *, rate: float | None = None, used: int = 10**9) -> SnapshotFolder:
    """Four brokers in two racks; the first is to be drained, and the third is the other one of its rack."""
    dice = random.Random(1)
    brokers: list[dict[str, Any]] = [
        {
            "broker": broker,
            "rack": "ab"[broker % 2],
            "state": "draining" if broker == 1 else "live",
            "disk_total": [10 * 10**9],
            "disk_used": [used],
        }
        for broker in (1, 2, 3, 4)
    ]
    parts: list[dict[str, Any]] = [
        {
            "topic": "t",
            "partition": number,
            "replicas": [1, dice.choice([2, 4])],
            "bytes": size,
            "bytes_per_s": rate,
            "min_isr": 1,
        }
        for number in range(partitions)
    ]
    return snapshot_of(brokers, parts)


def foreseen(snapshot: SnapshotFolder, *, mode: str = "kraft", most_steps: int = 1500, **rules: Any) -> Forecast:
    plan = drain(snapshot)
    settings = Settings.of({"min_free": 0, **rules})
    return forecast_plan(
        plan, snapshot, settings, zookeeper_mode=mode == "zookeeper", now_ms=NOW_MS, most_steps=most_steps
    )


def drain(snapshot: SnapshotFolder) -> PlanFolder:
    return planned(snapshot, "drain", {"balance": "none"})


@pytest.mark.parametrize("mode", ["kraft", "zookeeper"])
def test_a_plan_takes_what_the_quota_lets_through(mode: str) -> None:
    """Ten elevenths of the rate, and what it takes to see the end of one move and to begin the next one."""
    found = foreseen(draining(8, 50 * MB), mode=mode, throttle=5 * MB)
    assert found.seconds == pytest.approx(8 * 50 / 5 * 1.1, rel=0.06)
    assert {phase.broker for phase in found.phases} == {3}
    assert found.phases[0].from_s == 0
    assert found.phases[-1].to_s == pytest.approx(found.seconds, abs=3)
    assert not found.partial


def test_a_cancel_at_half_time_copies_back_what_was_completed() -> None:
    found = foreseen(draining(8, 50 * MB), throttle=5 * MB)
    assert found.seconds is not None
    assert found.cancel_seconds == pytest.approx(found.seconds / 2, rel=0.35)


def test_two_forecasts_of_one_plan_are_equal() -> None:
    snapshot = draining(6, 20 * MB)
    assert foreseen(snapshot, throttle=5 * MB) == foreseen(snapshot, throttle=5 * MB)


def test_the_disks_are_fullest_when_all_is_there() -> None:
    found = foreseen(draining(8, 50 * MB, used=2 * 10**9), throttle=50 * MB)
    assert found.disks[3] == pytest.approx((2 * 10**9 + 400 * MB) / 10**10)
    assert found.disks[2] == pytest.approx(0.2)
    assert dict(found.lines())["fullest disk"] == "broker 3, 24% at most"


def test_what_producers_bring_meanwhile_is_copied_too() -> None:
    idle, busy = (foreseen(draining(4, 50 * MB, rate=rate), throttle=5 * MB).seconds for rate in (None, 0.2 * MB))
    assert idle is not None
    assert busy is not None
    assert busy > idle * 1.05


def test_without_a_throttle_the_network_says_how_fast_a_broker_copies_or_nothing_does() -> None:
    snapshot = draining(8, 50 * MB)
    unknown = foreseen(snapshot, throttle=0)
    assert unknown.seconds is None
    ((name, sentence),) = unknown.lines()
    assert name == "forecast"
    assert "set a throttle, or network_bandwidth" in sentence
    known = foreseen(snapshot, throttle=0, network_bandwidth=20 * MB)
    assert known.seconds == pytest.approx(400 / 20, rel=0.4)


def test_a_long_simulation_is_ended_and_the_rest_is_by_its_rates() -> None:
    whole = foreseen(draining(24, 50 * MB), throttle=5 * MB)
    part = foreseen(draining(24, 50 * MB), throttle=5 * MB, most_steps=60)
    assert (whole.partial, part.partial) == (False, True)
    assert whole.seconds is not None
    assert part.seconds == pytest.approx(whole.seconds, rel=0.25)
    assert "of which the simulation covers the begin" in dict(part.lines())["forecast"]


def test_partitions_of_unknown_size_are_counted() -> None:
    snapshot = draining(3, 50 * MB)
    plan = drain(snapshot)
    rows = plan.rows.set_column(
        plan.rows.schema.get_field_index("bytes"), plan.rows.schema.field("bytes"), [[None, 50 * MB, 50 * MB]]
    )
    settings = Settings.of({"min_free": 0, "throttle": 5 * MB})
    found = forecast_plan(replace(plan, rows=rows), snapshot, settings, zookeeper_mode=False, now_ms=NOW_MS)
    assert found.unknown_sizes == 1
    assert "without 1 partition of unknown size" in dict(found.lines())["forecast"]


def test_a_plan_that_may_not_begin_now_waits_for_its_window_in_simulated_time() -> None:
    """It is 22:13 then, and the rest of the evening is no maintenance window."""
    found = foreseen(draining(2, 5 * MB), throttle=5 * MB, maintenance_window="23:00-23:30")
    assert found.seconds is not None
    assert 46 * 60 < found.seconds < 48 * 60


def limited(rate: float, seconds: int, *, fetch: int) -> int:
    """The bytes that a follower fetches with this quota, in fetches of this size."""
    quota, total = Quota(), 0
    for now_ms in range(0, seconds * 1000, 50):
        while quota.allowance(rate, now_ms) > 0:
            quota.record(fetch, now_ms)
            total += fetch
            if not quota.allowance(rate, now_ms):
                quota.back_off(now_ms)
    return total


@pytest.mark.parametrize(("fetch", "share"), [(100_000, 10 / 11), (MB, 10 / 11), (10 * MB, 1)])
def test_a_follower_that_asks_each_second_copies_ten_elevenths_of_its_rate(fetch: int, share: float) -> None:
    """One whose fetches are larger than what its rate allows in a second asks less often, and has fewer samples."""
    assert limited(4 * MB, 300, fetch=fetch) == pytest.approx(300 * 4 * MB * share, rel=0.05)


def test_a_quota_forgets_what_is_older_than_its_samples() -> None:
    quota = Quota()
    quota.record(100, 0)
    assert quota.allowance(10, 0) == 0
    assert quota.allowance(10, 10_500) == 5
    assert quota.allowance(10, 11_000) == 10
