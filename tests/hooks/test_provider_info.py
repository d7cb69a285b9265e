"""What Airflow is told, held against Airflow's schemas and against the modules themselves."""

from __future__ import annotations

import importlib
import inspect
import json
from dataclasses import fields
from importlib import metadata
from pathlib import Path
from typing import Any

import airflow
import jsonschema
import pytest
from airflow.configuration import conf
from airflow.providers_manager import ProvidersManager
from airflow.sdk import BaseHook, BaseOperator, BaseSensorOperator
from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime
from airflow.triggers.base import BaseTrigger

from kafka_steward.cluster.connection import _USED_BY
from kafka_steward.provider_info import get_provider_info
from kafka_steward.settings import Settings

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


def test_the_form_tells_defaults_and_fills_none_in() -> None:
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
