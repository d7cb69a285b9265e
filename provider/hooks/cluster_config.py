"""The access to one cluster and its journal, derived from its Airflow connection.

`cluster_config` also takes the section [kafka_steward] and a DAG's parameters. Values are passed in, and nothing is
looked up or connected to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka_steward.cluster.connection import HOSTNAME_CHECK, client_config, is_client_key, override_config
from kafka_steward.errors import SettingError
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from kafka_steward.settings import SETTINGS, Settings

#: Keys of the extra that belong to the provider and are not fields of `Settings`.
_PLACES = ("journal", "workspace", "spark_conn_id", "kafka_conn_id", "cluster_id", "controllers")
#: Executors whose tasks run on the scheduler's host, in every spelling of Airflow: with an alias or a module.
_LOCAL = re.compile(r"(^|[.:=])LocalExecutor$")
_ZOOKEEPER = ("zookeeper", "zookeeper_user", "zookeeper_password", "zookeeper_tls")


@dataclass(frozen=True)
class ConnectionFields:
    """The relevant fields of an Airflow connection. The repr shows neither password nor extra."""

    conn_id: str
    host: str | None = None
    port: int | None = None
    login: str | None = None
    password: str | None = field(default=None, repr=False)
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def servers(self) -> str | None:
        """The bootstrap servers of the fields; the port applies to servers that are named without one."""
        if not (self.host and self.port):
            return self.host
        named = [server.strip() for server in self.host.split(",")]
        # An IPv6 address contains colons, within brackets.
        return ",".join(one if ":" in one.rpartition("]")[2] else f"{one}:{self.port}" for one in named)


@dataclass(frozen=True)
class ClusterConfig:
    """All parameters for reaching one cluster and its journal. The repr shows no secret.

    `journal` is a SQL URL, or the id of a SQL connection. With `zookeeper`, the KIPs' documents are kept there.
    `expected_cluster_id` is the only Kafka cluster.id to accept, None for any.
    """

    conn_id: str
    settings: Settings
    workspace: str
    client: Mapping[str, Any] = field(repr=False)
    journal: str = field(repr=False)
    expected_cluster_id: str | None = None
    zookeeper: ZooKeeperOptions | None = None
    #: The connection of the Spark that makes plans; None for the worker.
    spark_conn_id: str | None = None
    #: The KRaft controllers, through which the rates of dead brokers are put back; empty if they are not known.
    controllers: str = ""

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers, in an order that does not depend on their notation."""
        servers = self.client.get("bootstrap_servers", "")
        return ",".join(sorted(servers.split(",") if isinstance(servers, str) else servers)).replace(" ", "")


def cluster_config(
    fields: ConnectionFields,
    kafka: ConnectionFields | None,
    section: Mapping[str, Any],
    overrides: Mapping[str, Any],
    home: Path,
    *,
    executor: str = "LocalExecutor",
) -> ClusterConfig:
    """Return the access that `fields` describes; `kafka` is the connection that its `kafka_conn_id` names.

    `overrides` have precedence over the extra, which has precedence over `section`. Locations that are not configured
    default to `home`/kafka_steward. The journal has that default only if one host uses all of it: neither with
    `zookeeper` nor with an `executor`, Airflow's setting, that runs tasks on other hosts. Raises SettingError, naming
    connection and key.
    """
    _refuse_unknown_keys(fields)
    places = {name: fields.extra.get(name) or section.get(name) or None for name in (*_PLACES, *_ZOOKEEPER)}
    client = override_config(_kafka_connection_config(kafka) if kafka else {}, _kafka_client_config(fields))
    if not client.get("bootstrap_servers"):
        raise SettingError(
            f"The connection {fields.conn_id} names no bootstrap servers: enter host:port as its host, or "
            "several with commas between them."
        )
    zookeeper = _zookeeper_options(fields, places)
    spark_conn_id = places["spark_conn_id"]
    if spark_conn_id is not None and not isinstance(spark_conn_id, str):
        raise SettingError(
            f"The spark_conn_id of the connection {fields.conn_id} is {spark_conn_id!r}; it takes the id of a "
            "connection."
        )
    return ClusterConfig(
        fields.conn_id,
        Settings.of(overrides, fields.extra, section),
        workspace=_workspace_url(fields.conn_id, str(places["workspace"] or home / "kafka_steward" / "workspace")),
        client=client,
        journal=_journal_location(fields, places, section) or _local_journal_url(fields, places, home, executor),
        expected_cluster_id=places["cluster_id"],
        zookeeper=zookeeper,
        spark_conn_id=spark_conn_id,
        controllers=_controllers(fields.conn_id, places["controllers"]),
    )


def _controllers(conn_id: str, given: Any) -> str:
    servers = [server.strip() for server in str(given or "").split(",") if server.strip()]
    for server in servers:
        if not re.fullmatch(r".+:[0-9]{1,5}", server):
            raise SettingError(f"The controllers of the connection {conn_id} have {server!r}; write host:port.")
    return ",".join(servers)


def runs_tasks_elsewhere(executor: str) -> bool:
    """Return whether Airflow's setting `executor`, which may name several, runs tasks on other hosts."""
    return not all(_LOCAL.search(name.strip()) for name in executor.split(","))


def _workspace_url(conn_id: str, place: str) -> str:
    # Each task runs in its own folder, so a relative path would differ between tasks.
    if ":" not in place and not place.startswith("/"):
        raise SettingError(
            f"The workspace of the connection {conn_id} is {place!r}; write an absolute path, or a URI such as "
            "s3://bucket/folder."
        )
    return place.rstrip("/")


def _journal_location(fields: ConnectionFields, places: Mapping[str, Any], section: Mapping[str, Any]) -> str:
    """Return the location of the SQL part; empty for the default.

    The word zookeeper gives no location: only the documents are kept there.
    """
    place = str(places["journal"] or "")
    if place == "zookeeper" and not places["zookeeper"]:
        raise SettingError(
            f"The journal of the connection {fields.conn_id} is to be in ZooKeeper, which is not configured; add "
            "zookeeper, such as zk1:2181,zk2:2181/kafka, to its extra."
        )
    if place == "zookeeper":
        place = str(section.get("journal") or "")
    return "" if place == "zookeeper" else place


def _local_journal_url(fields: ConnectionFields, places: Mapping[str, Any], home: Path, executor: str) -> str:
    file = f"{home}/kafka_steward/journal.db"
    why = ""
    if places["zookeeper"]:
        why = "beside documents in ZooKeeper, which all hosts share, its rows would be"
    elif runs_tasks_elsewhere(executor):
        why = f"with the executor {executor}, whose tasks run on other hosts, it would be"
    if why:
        from kafka_steward.journal.sql.dialect import join_alternatives  # noqa: PLC0415 - SQLAlchemy takes its time

        shared = join_alternatives(lambda database, _: f"{database}://", shared=True)
        raise SettingError(
            f"The connection {fields.conn_id} names no journal, and {why} in {file}, a file on one host has to "
            f"itself; set journal to a {shared} URL that all hosts share, in the connection's extra or in the section "
            "[kafka_steward]."
        )
    return f"sqlite:///{file}"


def _zookeeper_options(fields: ConnectionFields, places: Mapping[str, Any]) -> ZooKeeperOptions | None:
    if not places["zookeeper"]:
        vain = [name for name in _ZOOKEEPER if places[name]]
        if vain:
            raise SettingError(
                f"The connection {fields.conn_id} has {vain[0]}, which needs zookeeper; add zookeeper, "
                f"such as zk1:2181,zk2:2181/kafka, or remove {vain[0]}."
            )
        return None
    tls = places["zookeeper_tls"] or {}
    if not isinstance(tls, Mapping):
        raise SettingError(
            f"The zookeeper_tls of the connection {fields.conn_id} is not a JSON object of TLS settings."
        )
    return ZooKeeperOptions(str(places["zookeeper"]), _digest_credentials(fields, places), tls)


def _digest_credentials(fields: ConnectionFields, places: Mapping[str, Any]) -> str | None:
    user, password = places["zookeeper_user"], places["zookeeper_password"]
    if not user and not password:
        return None
    if not (user and password):
        have, lacks = ("user", "password") if user else ("password", "user")
        raise SettingError(
            f"The connection {fields.conn_id} has a zookeeper_{have} and no zookeeper_{lacks}; set both, or neither."
        )
    if ":" in str(user):
        raise SettingError(
            f"The zookeeper_user of the connection {fields.conn_id} contains a colon, at which ZooKeeper would "
            "truncate it; use another user."
        )
    return f"{user}:{password}"


def _kafka_connection_config(kafka: ConnectionFields) -> dict[str, Any]:
    if kafka.login or kafka.password:
        raise SettingError(
            f"The connection {kafka.conn_id} has a login or a password in the connection's fields, which connections "
            "of type kafka do not use; put them into its extra, as sasl.username and sasl.password."
        )
    return client_config(kafka.extra)


def _kafka_client_config(fields: ConnectionFields) -> dict[str, Any]:
    ours = {
        key: value
        for key, value in fields.extra.items()
        if is_client_key(key) and value is not None and (value != "" or key == HOSTNAME_CHECK)
    }
    by_field = {
        "bootstrap_servers": fields.servers,
        "sasl_plain_username": fields.login,
        "sasl_plain_password": fields.password,
    }
    client = client_config(ours)
    for key, value in by_field.items():
        if value and client.setdefault(key, value) != value:
            raise SettingError(
                f"The connection {fields.conn_id} has {key} twice, in a connection field and in its extra, with two "
                "values; keep one."
            )
    return client


def _refuse_unknown_keys(fields: ConnectionFields) -> None:
    for key in fields.extra:
        undotted = key.removeprefix("kafka.").replace(".", "_")
        if undotted not in SETTINGS and key not in (*_PLACES, *_ZOOKEEPER) and not is_client_key(key):
            raise SettingError(
                f"The connection {fields.conn_id} has {key!r} in its extra, which is neither a setting of Kafka "
                "Steward nor of a Kafka client; remove it, or correct its spelling."
            )
