"""The hook, with nothing to connect to: what it says when something is missing or wrong."""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import airflow
import jsonschema
import pytest
import structlog
from airflow.configuration import conf
from airflow.models.connection import Connection
from airflow.providers_manager import ProvidersManager
from airflow.sdk import BaseHook, BaseOperator, BaseSensorOperator
from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime
from airflow.triggers.base import BaseTrigger

from kafka_steward.cluster.connection import _USED_BY
from kafka_steward.errors import ClusterUnreachable, SettingError
from kafka_steward.hooks.steward import ClusterIdPin, StewardHook
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from kafka_steward.provider_info import get_provider_info
from kafka_steward.settings import Settings
from kafka_steward.ui.plugin import KafkaStewardPlugin
from tests.airflow_home import HOME, Connect
from tests.secured import Authority


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
    connect: Connect, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    own = str(Authority(tmp_path).client("steward"))
    secure = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "ssl_certfile": own}
    connect(login="me", password="secret-word", extra={**secure, "ssl_password": "other-word"})
    caplog.set_level(logging.DEBUG)
    hook = StewardHook("kafka_test")
    with pytest.raises(ClusterUnreachable) as caught:
        hook.open()
    shown = repr(hook.access) + repr(hook) + str(caught.value) + caplog.text + "".join(capfd.readouterr())
    assert "secret-word" not in shown
    assert "other-word" not in shown


def test_a_hook_looks_each_connection_up_once(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    connect("steward_db", conn_type="sqlite", host="/tmp/journal.db")  # noqa: S108 - not opened
    connect("kafka_clients", conn_type="kafka", extra={"bootstrap.servers": "broker1:9092"})
    connect("kafka_test", host="", extra={"journal": "steward_db", "kafka_conn_id": "kafka_clients"})
    asked: Counter[str] = Counter()

    def counted(conn_id: str) -> object:
        asked[conn_id] += 1
        return BaseHook.get_connection(conn_id)

    monkeypatch.setattr(StewardHook, "get_connection", staticmethod(counted))
    hook = StewardHook("kafka_test")
    assert (hook.access.bootstrap, hook.journal_url) == ("broker1:9092", "sqlite:////tmp/journal.db")
    assert asked == {"kafka_test": 1, "kafka_clients": 1, "steward_db": 1}


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """The texts that are logged, after all processors."""
    before, texts = structlog.get_config(), []

    def keep(_: Any, __: str, event: Any) -> Any:
        texts.append(str(event["event"]))
        raise structlog.DropEvent

    structlog.configure(processors=[keep])
    yield texts
    structlog.configure(**before)


def look_up(conn_type: str) -> None:
    """As the server does for a task or a trigger that asks for a connection."""
    Connection(conn_id="kafka_test", conn_type=conn_type, host="broker1:9092").get_uri()


def test_airflow_warns_of_each_look_up_until_the_plugin_is_loaded(logged: list[str]) -> None:
    look_up("kafka_steward")
    assert len(logged) == 1
    KafkaStewardPlugin.on_load()
    KafkaStewardPlugin.on_load()
    look_up("kafka_steward")
    assert len(logged) == 1
    assert len(structlog.get_config()["processors"]) == 2


def test_no_other_warning_is_dropped(logged: list[str]) -> None:
    KafkaStewardPlugin.on_load()
    look_up("google_cloud_platform")
    assert ["google_cloud_platform" in text for text in logged] == [True]


LOOK_UP = """
from airflow.models.connection import Connection
Connection(conn_id="kafka_test", conn_type="kafka_steward", host="broker1:9092").get_uri()
Connection(conn_id="other", conn_type="kafka_steward", host="broker1:9092").log.error("this is logged")
"""
PAGE = Path(__file__).parents[2] / "docs" / "production" / "index.md"
(SETTING,) = [line for line in PAGE.read_text().splitlines() if line.startswith("AIRFLOW__LOGGING__NAMESPACE_LEVELS=")]


@pytest.mark.process
@pytest.mark.parametrize(("setting", "warns"), [("", True), (SETTING.partition("=")[2], False)])
def test_the_setting_of_the_page_drops_the_warning_and_no_error(setting: str, warns: bool, tmp_path: Path) -> None:
    variables = {"AIRFLOW_HOME": str(tmp_path), SETTING.partition("=")[0]: setting}
    done = subprocess.run(
        [sys.executable, "-c", LOOK_UP], env=os.environ | variables, capture_output=True, text=True, check=True
    )
    logged = done.stdout + done.stderr
    assert "this is logged" in logged
    assert ("shall not contain '_'" in logged) == warns


AIRFLOW = Path(airflow.__file__).parent
INFO = get_provider_info()
KINDS = {"operators": BaseOperator, "sensors": BaseSensorOperator, "hooks": BaseHook, "triggers": BaseTrigger}
MODULES = [(kind, module) for kind in KINDS for entry in INFO[kind] for module in entry["python-modules"]]


def test_airflows_runtime_schema_accepts_it() -> None:
    jsonschema.validate(INFO, json.loads((AIRFLOW / "provider_info.schema.json").read_text()))


@pytest.mark.parametrize("key", ["config", "connection-types"])
def test_airflows_strict_schema_accepts_what_the_other_one_does_not_look_at(key: str) -> None:
    schema = json.loads((AIRFLOW / "provider.yaml.schema.json").read_text())
    part = {**schema["properties"][key], "definitions": schema.get("definitions", {})}
    jsonschema.validate(INFO[key], part)


def test_the_package_name_is_the_distributions() -> None:
    assert metadata.distribution(INFO["package-name"]).name == INFO["package-name"]


@pytest.mark.parametrize(("kind", "module"), MODULES, ids=lambda value: value)
def test_each_listed_module_has_its_kind_of_class(kind: str, module: str) -> None:
    loaded = importlib.import_module(module)
    own = [value for _, value in inspect.getmembers(loaded, inspect.isclass) if value.__module__ == module]
    assert any(issubclass(value, KINDS[kind]) for value in own)
    assert not any(value.__name__.startswith("_") for value in own if issubclass(value, KINDS[kind]))


def test_every_class_of_its_kind_is_listed() -> None:
    root = Path(importlib.import_module("kafka_steward").__file__ or "").parent
    listed = {module for _, module in MODULES}
    for kind, base in KINDS.items():
        for path in (root / kind).glob("*.py"):
            module = f"kafka_steward.{kind}.{path.stem}"
            if path.stem in ("__init__", "base", "execution") or module in listed:
                continue
            own = [
                value
                for _, value in inspect.getmembers(importlib.import_module(module), inspect.isclass)
                if value.__module__ == module
            ]
            assert not [value for value in own if issubclass(value, base)], module


def test_the_listing_has_each_file_of_an_operator_and_of_a_sensor() -> None:
    assert ("operators", "kafka_steward.operators.submit") in MODULES
    assert {module for kind, module in MODULES if kind == "sensors"} == {
        f"kafka_steward.sensors.{name}" for name in ("brokers", "health", "replication")
    }


def test_the_section_has_every_setting_with_its_own_default() -> None:
    options = INFO["config"]["kafka_steward"]["options"]
    defaults: dict[str, Any] = {each.name: each.default for each in fields(Settings)}
    assert list(options) == ["journal", "workspace", "spark_conn_id", *defaults]
    read = {name: getattr(Settings.of({name: options[name]["default"]}), name) for name in defaults}
    assert read == defaults
    kinds = {float: "float", int: "integer", bool: "boolean", str: "string"}
    assert {name: options[name]["type"] for name in defaults} == {
        name: kinds[type(default)] for name, default in defaults.items()
    }


def test_airflow_shows_no_journal_of_the_section(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__KAFKA_STEWARD__JOURNAL", "postgresql://me:secret-word@db/x")
    monkeypatch.setenv("AIRFLOW__KAFKA_STEWARD__WORKSPACE", "/srv/plans")
    with conf.make_sure_configuration_loaded(with_providers=True):
        shown = conf.as_dict(display_sensitive=False, include_env=True)["kafka_steward"]
    assert (shown["journal"], shown["workspace"]) == ("< hidden >", "/srv/plans")


def test_secrets_of_the_form_are_marked() -> None:
    form = INFO["connection-types"][0]["conn-fields"]
    secret = {name for name, field in form.items() if field["schema"].get("format") == "password"}
    assert secret == {"journal", *(name for name in form if "password" in name)}


def test_the_form_states_defaults_and_fills_none_in() -> None:
    form = INFO["connection-types"][0]["conn-fields"]
    assert form["heal_failure_interval"]["description"].endswith("nothing is healed. Default: 1800.")
    assert form["throttle_leaders"]["description"].endswith("Default: off.")
    assert not [name for name, field in form.items() if "default" in field["schema"]]


def test_airflow_knows_the_connection_type_and_its_test_button() -> None:
    hook = ProvidersManagerTaskRuntime().hooks["kafka_steward"]
    assert hook is not None
    assert (hook.hook_name, hook.connection_testable) == ("Kafka Steward", True)
    manager = ProvidersManager()
    manager.initialize_providers_hooks()
    assert manager.field_behaviours["kafka_steward"]["relabeling"]["host"] == "Bootstrap servers"
    assert "extra__kafka_steward__throttle" in manager.connection_form_widgets


def test_the_form_has_groups_and_every_mechanism_that_a_client_takes() -> None:
    form = INFO["connection-types"][0]["conn-fields"]
    groups = [field["schema"]["section"] for field in form.values()]
    assert list(dict.fromkeys(groups)) == [
        "Security",
        "Journal, workspace and Spark",
        "ZooKeeper",
        "Settings of the workflows",
    ]
    assert groups == sorted(groups, key=list(dict.fromkeys(groups)).index)
    assert set(form["sasl_mechanism"]["schema"]["enum"]) == set(_USED_BY)
