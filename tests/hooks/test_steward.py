"""The hook, with nothing to connect to: what it says when something is missing or wrong."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_steward.errors import ClusterUnreachable, SettingError
from kafka_steward.hooks.steward import ClusterIdPin, StewardHook
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from tests.airflow_home import HOME, Connect


def test_no_such_connection_is_one_sentence() -> None:
    with pytest.raises(
        SettingError, match=r"^There is no Airflow connection nowhere; create it \(type kafka_steward\)"
    ):
        _ = StewardHook("nowhere").access


def test_no_such_kafka_connection_is_one_sentence(connect: Connect) -> None:
    connect(extra={"kafka_conn_id": "gone"})
    with pytest.raises(SettingError, match=r"^There is no Airflow connection gone;"):
        _ = StewardHook("kafka_test").access


def test_a_connection_of_another_type_is_refused(connect: Connect) -> None:
    connect(conn_type="kafka")
    with pytest.raises(SettingError, match=r"kafka_test is of type kafka; make one of type kafka_steward"):
        _ = StewardHook("kafka_test").access


def test_an_extra_that_is_no_json_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = {"conn_type": "kafka_steward", "host": "a:9092", "extra": "{broken"}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_TEST", json.dumps(connection))
    with pytest.raises(SettingError, match=r"extra of the connection kafka_test is not JSON"):
        _ = StewardHook("kafka_test").access


@pytest.mark.process
def test_bootstrap_servers_down_is_one_sentence(connect: Connect) -> None:
    connect()
    began = time.monotonic()
    with pytest.raises(ClusterUnreachable) as caught:
        StewardHook("kafka_test").open()
    assert "127.0.0.1:1" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert time.monotonic() - began < 20


@pytest.mark.process
def test_the_test_button_says_what_is_wrong(connect: Connect) -> None:
    connect()
    ok, sentence = StewardHook("kafka_test").test_connection()
    assert not ok
    assert "127.0.0.1:1" in sentence


def test_the_section_is_read(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    connect()
    monkeypatch.setenv("AIRFLOW__KAFKA_STEWARD__HEAL_FAILURE_INTERVAL", "12.5")
    assert StewardHook("kafka_test").settings.heal_failure_interval == 12.5


@pytest.mark.process
def test_the_journal_may_come_from_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Airflow takes every sensitive option: the file that holds the password is read when it is needed."""
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_TEST", json.dumps({"conn_type": "kafka_steward", "host": "a:9092"}))
    monkeypatch.setenv("AIRFLOW__KAFKA_STEWARD__JOURNAL_CMD", "echo postgresql://me:secret-word@db/x")
    assert StewardHook("kafka_test").access.journal == "postgresql://me:secret-word@db/x"


def test_the_password_of_a_journal_is_masked_before_it_is_used(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    masked: list[object] = []
    monkeypatch.setattr("kafka_steward.hooks.steward.mask_secret", masked.append)
    connect(extra={"journal": "postgresql://me:extra-word@db/x"})
    monkeypatch.setenv("AIRFLOW__KAFKA_STEWARD__JOURNAL", "postgresql://me:section%40word@db/x")
    _ = StewardHook("kafka_test").access
    assert {"extra-word", "section@word", "section%40word"} <= {each for each in masked if isinstance(each, str)}


def test_the_default_places_are_under_airflow_home(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = {"conn_type": "kafka_steward", "host": "a:9092"}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_TEST", json.dumps(connection))
    access = StewardHook("kafka_test").access
    assert access.journal == f"sqlite:///{HOME}/kafka_steward/journal.db"
    assert access.workspace == f"{HOME}/kafka_steward/workspace"


@pytest.mark.parametrize("zookeeper_mode", [True, False])
def test_only_a_cluster_in_zookeeper_must_be_found_there(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, zookeeper_mode: bool
) -> None:
    asked: dict[str, Any] = {}
    hook = StewardHook(connect(extra={"zookeeper": "z:2181/kafka"}))
    cluster = SimpleNamespace(cluster_id="c1", zookeeper_mode=zookeeper_mode)
    monkeypatch.setattr(hook, "cluster", lambda: cluster)

    def opened(*_: object, **given: Any) -> Any:
        asked.update(given)
        return SimpleNamespace(identity=None)

    monkeypatch.setattr("kafka_steward.hooks.steward.open_journal", opened)
    hook.open()
    assert asked["zookeeper"] == ZooKeeperOptions("z:2181/kafka", kafkas=zookeeper_mode)


def test_airflows_own_database_is_refused(connect: Connect, tmp_path: Path) -> None:
    import sqlite3

    with sqlite3.connect(tmp_path / "airflow.db") as database:
        database.executescript("CREATE TABLE dag_run (id); CREATE TABLE task_instance (id);")
    connect(extra={"journal": f"sqlite:///{tmp_path}/airflow.db"})
    with pytest.raises(SettingError, match=r"is Airflow's own database"):
        StewardHook("kafka_test").cluster()


def test_the_memory_keeps_one_cluster_per_bootstrap_servers(connect: Connect, tmp_path: Path) -> None:
    connect(host="a:9092,b:9092")
    access = StewardHook("kafka_test").access
    memory = ClusterIdPin(f"sqlite:///{tmp_path}/journal.db")
    assert memory.get(access) is None
    memory.set(access, "first")
    assert memory.get(access) == "first"
    connect(host="b:9092, a:9092")
    assert memory.get(StewardHook("kafka_test").access) == "first"
    connect(host="c:9092")
    assert memory.get(StewardHook("kafka_test").access) is None


@pytest.mark.process
def test_no_secret_is_shown_or_logged(
    connect: Connect, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    secure = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "ssl_certfile": __file__}
    connect(login="me", password="secret-word", extra={**secure, "ssl_password": "other-word"})
    caplog.set_level(logging.DEBUG)
    hook = StewardHook("kafka_test")
    with pytest.raises(ClusterUnreachable) as caught:
        hook.open()
    shown = repr(hook.access) + repr(hook) + str(caught.value) + caplog.text + "".join(capfd.readouterr())
    assert "secret-word" not in shown
    assert "other-word" not in shown
