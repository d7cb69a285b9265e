"""`doctor` beside a running Airflow: every line, with a watch that polls, and with a DAG that is paused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from kafka_steward.sandbox import Sandbox
from kafka_steward.sandbox.processes import run_to_end
from tests.airflow.conftest import Desk
from tests.eventually import eventually

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

DAGS = """\
from airflow_provider_kafka_steward.dags import heal, probe

heal_it = heal(conn_id="{conn_id}")
probe_it = probe(conn_id="{conn_id}")
"""
#: The metrics of the tests' Airflow are sent; its Kafka is the newest; nothing else is a note either.
LINES = {
    *("connection", "executor", "kafka", "capabilities", "rights", "hidden topics", "journal", "watch", "workspace"),
    *("throttles", "spark", "java", "airflow", "dags", "metrics", "worker", "triggerer"),
}


def doctor(desk: Desk, *words: str) -> dict[str, Any]:
    """The findings by subject, as a person at a terminal of this Airflow gets them."""
    program = str(Path(sys.executable).with_name("airflow"))
    command = [program, "kafka-steward", "doctor", *words, "--cluster", desk.conn_id, "--output", "json"]
    done = run_to_end(command, environment=desk.airflow.environment(), within_s=240)
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["ok"] == (done.returncode == 0)
    return {each["subject"]: each for each in answer["findings"]}


def levels(found: dict[str, Any]) -> dict[str, str]:
    return {subject: each["level"] for subject, each in found.items()}


def test_every_line_with_a_watch_and_with_a_paused_dag(desk: Desk, kraft_sandbox: Sandbox) -> None:
    kraft_sandbox.create_topics("doctored", partitions=2)
    heal = f"heal_{desk.conn_id}"
    desk.add_dags("doctor", DAGS.format(conn_id=desk.conn_id), heal, f"probe_{desk.conn_id}")
    found = doctor(desk)
    assert (found["dags"]["level"], found["dags"]["command"]) == ("fault", f"airflow dags unpause {heal}")
    assert found["watch"]["level"] == "fault"
    assert found["worker"]["level"] == "note"
    assert " doctor --probe " in found["worker"]["command"]

    desk.pause(heal, paused=False)

    def all_well() -> dict[str, Any]:
        found = doctor(desk)
        assert "fault" not in levels(found).values(), found
        return found

    found = eventually(all_well, within=180, every=2)
    assert "failures " in found["watch"]["sentence"]
    found = doctor(desk, "--probe")
    assert levels(found) == dict.fromkeys(LINES, "ok"), found
    for part in ("worker", "triggerer"):
        assert found[part]["sentence"].startswith(f"The {part} on ")

    desk.airflow.call_api("PATCH", f"/api/v2/dags/probe_{desk.conn_id}", {"is_paused": True})
    found = doctor(desk, "--probe")
    assert found["worker"]["command"] == f"airflow dags unpause probe_{desk.conn_id}"
