"""`doctor` on real clusters, and what it says of connections that cannot work."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from kafka_steward.cli import doctor, doctor_connection
from kafka_steward.doctor.findings import Finding, Level
from kafka_steward.hooks.steward import StewardHook
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


def test_a_connection_that_does_not_exist_hides_nothing_that_does_not_need_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, found = diagnosed("nowhere", capsys)
    assert code == 1
    assert found["connection"]["sentence"].startswith("There is no Airflow connection nowhere;")
    assert found["connection"]["command"].startswith("airflow connections add nowhere --conn-type kafka_steward ")
    assert {"executor", "spark", "java", "airflow", "metrics"} <= found.keys()
    assert found["not checked"]["level"] == "note"
    assert found["not checked"]["sentence"].startswith("Kafka, the journal, the watch and the workspace were not")


def test_a_journal_that_the_executor_needs_is_set_and_the_connection_is_not_made_again(
    connect: Connect, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "CeleryExecutor")
    code, found = diagnosed(connect(extra={"journal": None}), capsys)
    assert code == 1
    assert "with the executor CeleryExecutor, whose tasks run on other hosts" in found["connection"]["sentence"]
    assert found["connection"]["command"].splitlines() == [
        "export AIRFLOW__KAFKA_STEWARD__JOURNAL=postgresql://USER@HOST/steward",
        "airflow connections get kafka_test",
    ]
    assert "CeleryExecutor runs tasks on other hosts" in found["executor"]["sentence"]
    assert {"spark", "java", "airflow", "metrics", "not checked"} <= found.keys()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"extra": {"trottle": 1}}, "The connection kafka_test has 'trottle' in its extra, which is neither a setting"),
        ({"conn_type": "kafka"}, "The connection kafka_test is of type kafka; make one of type kafka_steward"),
        ({"extra": {"throttle": "fast"}}, "The setting throttle is 'fast'"),
    ],
)
def test_a_connection_that_is_wrong_is_shown_and_hides_nothing_that_does_not_need_it(
    connect: Connect, capsys: pytest.CaptureFixture[str], given: dict[str, Any], words: str
) -> None:
    code, found = diagnosed(connect(**given), capsys)
    assert code == 1
    assert found["connection"]["sentence"].startswith(words)
    assert found["connection"]["command"] == "airflow connections get kafka_test"
    assert {"executor", "spark", "java", "airflow", "metrics", "not checked"} <= found.keys()


def test_an_extra_that_is_not_json_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "CeleryExecutor")
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_TEST", json.dumps({"conn_type": "kafka_steward", "extra": "{"}))
    found = diagnosed("kafka_test", capsys)[1]["connection"]
    assert found["command"] == "airflow connections get kafka_test"


def test_a_wrong_setting_of_the_configuration_is_looked_up_there(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AIRFLOW__KAFKA_STEWARD__THROTTLE", "fast")
    found = diagnosed(connect(), capsys)[1]["connection"]
    assert found["sentence"].startswith("The setting throttle is 'fast'")
    assert found["command"].splitlines()[0] == "airflow config list --section kafka_steward"


def test_a_spark_elsewhere_is_not_taken_for_the_one_here_while_the_connection_is_wrong(
    connect: Connect, capsys: pytest.CaptureFixture[str]
) -> None:
    found = diagnosed(connect(extra={"trottle": 1, "spark_conn_id": "spark_test"}), capsys)[1]
    assert found.keys().isdisjoint({"spark", "java"})
    assert "and the Spark of spark_test were not checked" in found["not checked"]["sentence"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"conn_type": "spark", "host": "spark://master:7077"}, ("spark://master:7077", "spark-submit --version")),
        ({"conn_type": "spark_connect", "host": "server", "port": 1}, ("sc://server:1", "getOrCreate().version")),
    ],
)
def test_a_spark_elsewhere_is_named_with_what_shows_its_version(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: dict[str, Any], told: tuple[str, str]
) -> None:
    monkeypatch.setattr("kafka_steward.hooks.spark._connection_error", lambda _: None)
    (tmp_path / "spark-submit").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    connect("spark_test", **given, extra={"shared_workspace": True})
    conn_id = connect(extra={"spark_conn_id": "spark_test"})
    (found,) = doctor_connection._inspect_spark(StewardHook(conn_id).access)
    assert (found.subject, found.level) == ("spark", Level.OK)
    assert f"the Spark of spark_test, {told[0]}. Its version was not asked, because" in found.sentence
    assert told[1] in found.command


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
def test_passwords_are_not_shown(connect: Connect, capsys: pytest.CaptureFixture[str]) -> None:
    journal = "postgresql+psycopg://steward:very-secret@127.0.0.1:1/steward"
    secured = {"journal": journal, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    conn_id = connect(login="me", password="also-secret", extra=secured)
    run("doctor", "--cluster", conn_id, "--output", "json")
    told = "".join(capsys.readouterr())
    assert "SASL_PLAINTEXT with PLAIN" in told
    assert "secret" not in told


def test_the_command_that_helps_with_several_faults_in_a_row_is_printed_once() -> None:
    faults = [Finding(name, Level.FAULT, "It fails.", "airflow db check") for name in ("kafka", "journal")]
    printed = doctor._lines([*faults, Finding("spark", Level.OK, "It is there.")])
    assert printed == [
        "fault  kafka    It fails.",
        "fault  journal  It fails.",
        "                airflow db check",
        "ok     spark    It is there.",
    ]
