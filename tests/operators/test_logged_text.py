"""What a task logs, and fails with, is one printable line, also if it quotes a reason, a topic or an error."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafka_steward.errors import KafkaRefused
from kafka_steward.triggers.reporting import ProgressLog
from kafka_steward.triggers.wait import CheckResult, WaitTrigger
from tests.airflow_home import context
from tests.operators.simulated import CONN_ID, MakeCluster, make_cluster
from tests.triggers.progress_values import progress

__all__ = ["make_cluster"]

HOSTILE = "orders\n2026 INFO all is well \x1b[2J\u202e"
ESCAPED = r"orders\x0a2026 INFO all is well \x1b[2J\u202e"


def test_what_kafka_answered_is_logged_as_one_line(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from kafka_steward.operators.leaders import ElectLeadersOperator

    cluster = make_cluster("1a 2b", "t: 12")
    cluster.kill(1)
    cluster.restart(1)
    cluster.tick()
    refused = KafkaRefused(80, HOSTILE, f"Kafka refused: {HOSTILE}")
    monkeypatch.setattr(cluster, "elect_leaders", lambda names: dict.fromkeys(names, refused))
    ElectLeadersOperator(task_id="elect", conn_id=CONN_ID).execute(context(task_id="elect"))
    logged = capsys.readouterr().out
    assert f"t-0 keeps its leader: Kafka refused: {ESCAPED}" in logged
    assert HOSTILE not in logged


def test_what_a_sensor_found_in_the_triggerer_is_logged_as_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    from kafka_steward.sensors.health import ClusterHealthSensor

    sensor = ClusterHealthSensor(task_id="wait", conn_id="kafka_test")
    sensor.execute_complete(context(task_id="wait"), {"done": True, "sentence": HOSTILE, "value": 1})
    logged = capsys.readouterr().out
    assert ESCAPED in logged
    assert HOSTILE not in logged


def test_what_a_sensor_s_trigger_found_is_logged_as_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    trigger = WaitTrigger("kafka_test", "ready")

    async def ask(_: Any) -> CheckResult:
        return CheckResult(True, HOSTILE)

    trigger._thread.submit = ask  # type: ignore[assignment, method-assign]  # stands in for the thread
    assert asyncio.run(trigger._wait_until_met()).sentence == HOSTILE
    logged = capsys.readouterr().out
    assert ESCAPED in logged
    assert HOSTILE not in logged


def test_a_task_that_a_trigger_fails_does_so_with_one_line() -> None:
    from airflow.sdk.exceptions import AirflowException, AirflowFailException

    from kafka_steward.operators.gate import ClusterReadyOperator
    from kafka_steward.operators.submit import SubmitReassignmentOperator
    from kafka_steward.sensors.health import ClusterHealthSensor

    event = {"done": False, "ended": False, "sentence": HOSTILE, "progress": None, "for_good": False}
    with pytest.raises(AirflowFailException) as of_gate:
        ClusterReadyOperator(task_id="gate").execute_complete(context(task_id="gate"), event)
    with pytest.raises(AirflowFailException) as of_sensor:
        ClusterHealthSensor(task_id="wait").execute_complete(context(task_id="wait"), event)
    with pytest.raises(AirflowException) as of_plan:
        SubmitReassignmentOperator(task_id="submit", plan={"uri": "/p"}).execute_complete({}, event)
    assert [str(each.value) for each in (of_gate, of_sensor, of_plan)] == [ESCAPED] * 3


def test_why_the_rest_of_a_workflow_is_skipped_is_logged_as_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    from kafka_steward.operators.base import skip_downstream
    from kafka_steward.operators.gate import ClusterReadyOperator

    task, given = ClusterReadyOperator(task_id="gate"), context(task_id="gate")
    with pytest.raises(Exception, match="orders") as skipped:
        skip_downstream(task, given, f"Plan 12 was rejected by {HOSTILE}.")
    assert str(skipped.value) == f"Plan 12 was rejected by {ESCAPED}."
    logged = capsys.readouterr().out
    assert ESCAPED in logged
    assert HOSTILE not in logged


def test_the_progress_of_a_plan_is_logged_as_one_line() -> None:
    lines: list[str] = []
    ProgressLog(lines.append, lambda: 0.0).report(progress(1, sentence=HOSTILE))
    assert len(lines) == 1
    assert lines[0].endswith(ESCAPED)
