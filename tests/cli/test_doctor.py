"""`doctor` on real clusters, and what it says of connections that cannot work."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from kafka_steward.sandbox import Sandbox
from tests.airflow_home import NOWHERE, Connect
from tests.cli.airflow_command import assignments, throttles
from tests.cli.calling import run


def diagnosed(conn_id: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    """The exit code, and the findings by subject."""
    capsys.readouterr()
    code = run("doctor", "--cluster", conn_id, "--output", "json")
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] == (code == 0)
    return code, {each["subject"]: each for each in answer["findings"]}


@pytest.mark.in_ci("kraft")
def test_a_cluster_is_described_and_nothing_on_it_changes(
    connect: Connect, sandbox: Sandbox, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sandbox.create_topics(topic, partitions=2)
    conn_id = connect(host=sandbox.bootstrap, extra={"bootstrap_timeout_ms": 8000})
    before = assignments(sandbox, ""), throttles(sandbox)
    began_s = time.monotonic()
    code, found = diagnosed(conn_id, capsys)
    assert time.monotonic() - began_s < 30
    assert (assignments(sandbox, ""), throttles(sandbox)) == before
    mode = "ZooKeeper" if sandbox.zookeeper else "KRaft"
    assert f"in {mode} mode" in found["kafka"]["sentence"]
    assert "live brokers: 1, 2, 3, 4" in found["kafka"]["sentence"]
    for subject in ("connection", "kafka", "rights", "hidden topics", "workspace"):
        assert found[subject]["level"] == "ok", found[subject]
    assert found["rights"]["sentence"].startswith("Kafka lets us read log directories, move replicas, throttle brokers")
    assert (code, found["watch"]["level"]) == (1, "fault")
    assert "No watch has ever polled" in found["watch"]["sentence"]


def test_a_connection_that_does_not_exist_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = diagnosed("nowhere", capsys)
    assert (code, list(found)) == (1, ["connection"])
    assert found["connection"]["sentence"].startswith("There is no Airflow connection nowhere;")


@pytest.mark.process
def test_a_cluster_that_is_down_hides_nothing_else(
    connect: Connect, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    conn_id = connect()
    code, found = diagnosed(conn_id, capsys)
    assert code == 1
    for subject in ("kafka", "journal"):  # the journal is kept by the cluster's id, which nobody knows yet
        assert found[subject]["sentence"].startswith(f"No Kafka server at {NOWHERE} answered within 1 s")
    assert found["workspace"]["level"] == "ok"
    assert "no task has written there yet" in found["workspace"]["sentence"]
    assert {"spark", "java", "metrics"} <= found.keys()
    assert run("doctor", "--cluster", conn_id) == 1
    out, err = capsys.readouterr()
    assert "\nfault  kafka " in out
    assert "checks found a fault." in err


@pytest.mark.process
def test_a_workspace_that_cannot_be_written_is_one_sentence(
    connect: Connect, capsys: pytest.CaptureFixture[str]
) -> None:
    found = diagnosed(connect(extra={"workspace": "/proc/nowhere"}), capsys)[1]
    assert found["workspace"]["level"] == "fault"
    assert found["workspace"]["sentence"].startswith("The workspace cannot be written: ")


@pytest.mark.process
def test_passwords_are_not_told(connect: Connect, capsys: pytest.CaptureFixture[str]) -> None:
    journal = "postgresql+psycopg://steward:very-secret@127.0.0.1:1/steward"
    secured = {"journal": journal, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    conn_id = connect(login="me", password="also-secret", extra=secured)
    run("doctor", "--cluster", conn_id, "--output", "json")
    told = "".join(capsys.readouterr())
    assert "SASL_PLAINTEXT with PLAIN" in told
    assert "secret" not in told
