"""What the sandbox's Airflow is asked again, and what not."""

from __future__ import annotations

import io
import json
import time
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from kafka_steward.sandbox import airflow
from kafka_steward.sandbox.airflow import AirflowBusy, AirflowFailed, AirflowSilent, LocalAirflow

pytestmark = pytest.mark.process

BUSY = '{"detail":{"reason":"Database error","statement":"hidden"}}'


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """Status (0: none came) and text of the answers to come, after that to the log-in."""
    told = [(200, '{"access_token": "t"}')]

    def answer(request: Any, timeout: float) -> io.BytesIO:
        status, text = told.pop(0)
        if not status:
            raise TimeoutError(text)
        if status != 200:
            raise HTTPError(request.full_url, status, "", Message(), io.BytesIO(text.encode()))
        return io.BytesIO(text.encode())

    monkeypatch.setattr(airflow, "urlopen", answer)
    monkeypatch.setattr(airflow, "_BUSY_PAUSE_S", 0)
    return told


def test_what_a_busy_database_refused_is_asked_again(answers: list[tuple[int, str]], tmp_path: Path) -> None:
    answers += [(500, BUSY), (500, BUSY), (200, json.dumps({"is_paused": False}))]
    assert LocalAirflow(tmp_path).call_api("PATCH", "/api/v2/dags/heal", {"is_paused": False}) == {"is_paused": False}
    assert answers == []


def test_one_that_stays_busy_is_reported_in_the_end(answers: list[tuple[int, str]], tmp_path: Path) -> None:
    answers += [(500, BUSY)] * 7
    with pytest.raises(AirflowBusy, match="answered 500"):
        LocalAirflow(tmp_path).call_api("PATCH", "/api/v2/dags/heal", {})
    assert answers == []


def test_another_failure_is_reported_at_once(answers: list[tuple[int, str]], tmp_path: Path) -> None:
    answers += [(500, "broken"), (200, "{}")]
    with pytest.raises(AirflowFailed, match="answered 500: broken"):
        LocalAirflow(tmp_path).call_api("PATCH", "/api/v2/dags/heal", {})
    assert answers == [(200, "{}")]


def test_a_read_that_was_not_answered_is_asked_once_more(answers: list[tuple[int, str]], tmp_path: Path) -> None:
    answers += [(0, "timed out"), (200, '{"state": "success"}'), (0, "timed out"), (0, "timed out")]
    local = LocalAirflow(tmp_path)
    assert local.call_api("GET", "/api/v2/dags/heal") == {"state": "success"}
    with pytest.raises(AirflowSilent, match="was not answered: timed out"):
        local.call_api("GET", "/api/v2/dags/heal")
    assert answers == []


def test_a_change_that_was_not_answered_is_not_sent_again(answers: list[tuple[int, str]], tmp_path: Path) -> None:
    answers += [(0, "timed out"), (200, "{}")]
    with pytest.raises(AirflowSilent):
        LocalAirflow(tmp_path).call_api("POST", "/api/v2/dags/heal/dagRuns", {})
    assert answers == [(200, "{}")]


def test_the_api_of_the_tasks_has_answered_before_any_task_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    parts = ("metadatabase", "scheduler", "triggerer", "dag_processor")
    asked: list[tuple[str, bool]] = []

    def answer(request: Any, timeout: float) -> io.BytesIO:
        asked.append((request.selector, timeout > 100))
        return io.BytesIO(json.dumps({part: {"status": "healthy"} for part in parts}).encode())

    monkeypatch.setattr(airflow, "urlopen", answer)
    LocalAirflow(tmp_path)._wait_until_healthy(time.monotonic() + 180)
    assert asked == [("/api/v2/monitor/health", False), ("/execution/health", True)], "the second takes long at first"
