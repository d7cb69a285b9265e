"""The metadata that Airflow requires of a provider. Imports little: every Airflow process reads it."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path
from typing import Any

from kafka_steward.settings import SETTINGS, Setting

_NAME = "Kafka Steward"
_DISTRIBUTION = "airflow-provider-kafka-steward"
#: The oldest version of Airflow that the provider runs with, as its requirements say.
OLDEST_AIRFLOW = "3.2.2"

_PLACES: dict[str, tuple[str, str]] = {
    "journal": (
        "Where the journal is: a SQL URL, or the id of a SQL connection. Empty: SQLite in AIRFLOW_HOME/kafka_steward.",
        "postgresql+psycopg://steward@db.example.com/steward",
    ),
    "workspace": (
        "Where snapshots and plans go: a path or URI that workers and Spark reach. Empty: beside the default journal.",
        "s3://bucket/kafka-steward",
    ),
    "spark_conn_id": (
        "Id of a connection of type spark or spark_connect that makes the plans. Empty: they are made on the worker.",
        "spark_production",
    ),
}

#: Labels of boolean defaults, as in the form.
_SWITCH_WORDS = {False: "off", True: "on"}
#: Types of options in Airflow's schema, where they differ from those of JSON.
_OPTION_TYPES = {"number": "float"}

#: Modules of operators and sensors that hold no class for a DAG.
_HELPERS = frozenset({"__init__", "base", "execution", "links", "plan_folders"})


def get_provider_info() -> dict[str, Any]:
    """Return the provider's parts, for `airflow providers get` and the connection form.

    Raises RuntimeError with an Airflow that is too old, as Airflow's own providers do: pip can be told to install it.
    """
    refuse_old_airflow()
    return {
        "package-name": _DISTRIBUTION,
        "name": _NAME,
        "description": "Keeps Kafka fully replicated and balanced: heals, rebalances, expands, drains, rolls back.",
        "integrations": [
            {
                "integration-name": _NAME,
                "external-doc-url": "https://github.com/kafka-steward/airflow-provider-kafka-steward/tree/main/docs",
                "tags": ["service"],
            }
        ],
        "operators": _module_entries("operators", *_list_module_names("operators")),
        "sensors": _module_entries("sensors", *_list_module_names("sensors")),
        "hooks": _module_entries("hooks", "steward"),
        "triggers": _module_entries("triggers", "probe", "run_plan", "watch", "wait"),
        "notifications": ["kafka_steward.notifications.steward.StewardNotifier"],
        "extra-links": ["kafka_steward.operators.links.PlanLink"],
        "connection-types": [_connection_type()],
        "config": {"kafka_steward": {"description": "Defaults for every cluster.", "options": _config_options()}},
        "plugins": [{"name": "kafka_steward", "plugin-class": "kafka_steward.ui.plugin.KafkaStewardPlugin"}],
        "cli": ["kafka_steward.cli.get_kafka_steward_commands"],
    }


def refuse_old_airflow(installed: str | None = None) -> None:
    """Raise RuntimeError with an Airflow that is too old; `installed` is its version, by default that of this one."""
    installed = installed or metadata.version("apache-airflow")  # Airflow 2 has no apache-airflow-core
    if _numbers(installed) < _numbers(OLDEST_AIRFLOW):
        raise RuntimeError(
            f"{_DISTRIBUTION} needs Apache Airflow {OLDEST_AIRFLOW} or newer, and this is {installed}: "
            "upgrade Airflow, or uninstall the provider."
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:3]))


def _list_module_names(package: str) -> list[str]:
    # Listed, not imported: importing an operator would load most of Airflow.
    names = {path.stem for path in Path(__file__).with_name(package).glob("*.py")}
    return sorted(names - _HELPERS)


def _module_entries(package: str, *names: str) -> list[dict[str, Any]]:
    return [{"integration-name": _NAME, "python-modules": [f"kafka_steward.{package}.{name}" for name in names]}]


def _config_options() -> dict[str, Any]:
    places: dict[str, Any] = {
        name: {"description": text, "version_added": "0.1.0", "type": "string", "example": example, "default": ""}
        for name, (text, example) in _PLACES.items()
    }
    # A URL may contain a password: Airflow hides a sensitive option, and also reads `journal_cmd` and `journal_secret`.
    places["journal"]["sensitive"] = True
    types = {name: _OPTION_TYPES.get(setting.json_type, setting.json_type) for name, setting in SETTINGS.items()}
    return places | {
        name: {"description": setting.description, "version_added": "0.1.0", "type": types[name], "example": None}
        | {"default": str(setting.default)}
        for name, setting in SETTINGS.items()
    }


def _connection_type() -> dict[str, Any]:
    return {
        "connection-type": "kafka_steward",
        "hook-class-name": "kafka_steward.hooks.steward.StewardHook",
        "hook-name": _NAME,
        "ui-field-behaviour": {
            "hidden-fields": ["schema"],
            "relabeling": {"host": "Bootstrap servers", "login": "SASL user", "password": "SASL password"},
            "placeholders": {
                "host": "broker1:9092,broker2:9092",
                "port": "9092, for servers without a port",
                "login": "empty without SASL",
                "password": "empty without SASL",
            },
        },
        "conn-fields": _connection_fields(),
    }


def _connection_fields() -> dict[str, Any]:
    protocols = ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    mechanisms = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER", "AWS_MSK_IAM"]
    groups = {
        "Security": {
            "security_protocol": _field("Security protocol", "Empty: PLAINTEXT, which takes no login.", enum=protocols),
            "sasl_mechanism": _field("SASL mechanism", "For the SASL protocols.", enum=mechanisms),
            "sasl_oauth_token_provider": _field(
                "Token provider", "For OAUTHBEARER: the dotted path of a class or function that returns tokens."
            ),
            "ssl_cafile": _field("CA file", "Certificates to trust, a path on the workers and the triggerer."),
            "ssl_certfile": _field("Client certificate", "A path on the workers and the triggerer."),
            "ssl_keyfile": _field("Client key", "A path on the workers and the triggerer."),
            "ssl_password": _field("Password of the client key", "Empty: none. Kept secret.", format="password"),
            "kafka_conn_id": _field(
                "Kafka connection", "Id of a connection of type kafka whose settings are used too."
            ),
            "cluster_id": _field(
                "Cluster id", "The only Kafka cluster.id to accept. Empty: the one that answers first."
            ),
            "controllers": _field(
                "KRaft controllers", "host:port, several with commas: the rates of dead brokers are put back by them."
            ),
        },
        "Journal, workspace and Spark": {
            "journal": _field("Journal", f"{_PLACES['journal'][0]} Kept secret.", format="password"),
            "workspace": _field("Workspace", _PLACES["workspace"][0]),
            "spark_conn_id": _field("Spark connection", _PLACES["spark_conn_id"][0]),
        },
        "ZooKeeper": {
            "zookeeper": _field("ZooKeeper", "The brokers' zookeeper.connect: the KIPs' documents are kept there."),
            "zookeeper_user": _field("ZooKeeper user", "User of the digest scheme. Empty: no authentication."),
            "zookeeper_password": _field("ZooKeeper password", "Kept secret.", format="password"),
        },
        "Settings of the workflows": {name: _setting_field(name, setting) for name, setting in SETTINGS.items()},
    }
    return {
        name: {**field, "schema": {**field["schema"], "section": group}}
        for group, fields in groups.items()
        for name, field in fields.items()
    }


def _field(label: str, description: str, kind: str = "string", **schema: Any) -> dict[str, Any]:
    return {"label": label, "description": description, "schema": {"type": [kind, "null"], **schema}}


def _setting_field(name: str, setting: Setting) -> dict[str, Any]:
    # In the description, not as a value: the form would store it in the connection, which overrides [kafka_steward].
    default = setting.default
    word = _SWITCH_WORDS[default] if isinstance(default, bool) else str(default).removesuffix(".0")
    text = f"{setting.description} Default: {word}." if word else setting.description
    choices = {"enum": list(setting.choices)} if setting.choices else {}
    return _field(name.replace("_", " ").capitalize(), text, setting.json_type, **choices)
