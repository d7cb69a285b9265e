"""Without a throttle there is no duration to predict, and people are told that."""

from __future__ import annotations

from kafka_steward.execution.plan_report import plan_summary
from tests.builders import cluster, planned


def test_an_unthrottled_plan_predicts_no_duration() -> None:
    snapshot = cluster("1a 2b 3c 4a+", "t: 123 231 312 123")
    plan = planned(snapshot, "expand", {"throttle": 0})
    assert plan.proof["predicted_seconds"] is None
    assert plan.proof["options"]["throttle"] == 0
    assert "| predicted duration | unthrottled: as fast as disks and network allow |" in plan_summary(plan, snapshot)
    throttled = planned(snapshot, "expand", {"throttle": 1000})
    assert throttled.proof["predicted_seconds"] > 0
    assert "at 1.0 kB/s into each broker" in plan_summary(throttled, snapshot)
