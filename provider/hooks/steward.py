"""The hook: it turns an Airflow connection of type kafka_steward into settings, a cluster and its journal.

The cluster.id of a connection's bootstrap servers is stored: a swapped cluster is rejected instead of healed.
"""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import sqlalchemy as sa
from airflow.sdk import BaseHook
from airflow.sdk.log import mask_secret

from kafka_steward.airflow_versions import AirflowNotFoundException, conf
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.connection import find_client_secrets
from kafka_steward.errors import SettingError, StewardError
from kafka_steward.execution.plans.znode_submission import ZnodeReassignmentClient
from kafka_steward.hooks.cluster_config import ClusterConfig, ConnectionFields, cluster_config
from kafka_steward.hooks.journal_database import find_secrets, journal_url, refuse_airflow_database
from kafka_steward.hooks.session import ClusterSession
from kafka_steward.journal.listing import read_pending_deletions
from kafka_steward.journal.records import KNOWN_CLUSTERS, NO_CLUSTER, KnownCluster
from kafka_steward.journal.schema import tables
from kafka_steward.journal.sql.database import open_database
from kafka_steward.journal.sql.watch_reports import WatchReports
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.page_data.reader import JournalReader, open_reader
from kafka_steward.settings import SETTINGS, Settings
from kafka_steward.value_parsing import parse_extra

if TYPE_CHECKING:
    from airflow.sdk import Connection

__all__ = ["ClusterIdPin", "StewardHook"]


@dataclass(frozen=True)
class ClusterIdPin:
    """The stored ids in the journal at `journal_url`, by bootstrap servers: other servers may be another cluster."""

    journal_url: str

    def get(self, access: ClusterConfig) -> str | None:
        """Return the stored cluster id of these bootstrap servers; None if there is none."""
        with self._open_journal() as journal:
            row = journal.rows(KNOWN_CLUSTERS).get(_servers_key(access))
        return None if row is None else row.value.cluster_id

    def set(self, access: ClusterConfig, cluster_id: str) -> None:
        """Store the current id of these servers. It replaces a different one only if a user configured `cluster_id`."""
        with self._open_journal() as journal:
            rows, key = journal.rows(KNOWN_CLUSTERS), _servers_key(access)
            row = rows.get(key)
            if row is None or row.value.cluster_id != cluster_id:
                # A concurrent writer connected to the same servers, so its value is equivalent.
                rows.put(key, KnownCluster(access.conn_id, access.bootstrap, cluster_id), row)

    def _open_journal(self) -> Journal:
        return open_journal(self.journal_url, NO_CLUSTER, compare=False)


def _servers_key(access: ClusterConfig) -> str:
    return sha256(access.bootstrap.encode()).hexdigest()[:32]


class StewardHook(BaseHook):
    """One Kafka cluster, its journal and its workspace, as the connection `conn_id` describes them.

    `overrides` have precedence over the connection's extra, which has precedence over the section [kafka_steward].
    Nothing is looked up or connected to before the first method call. The hook works in tasks and in threads of the
    triggerer. `journal` is the `ClusterSession.origin` of the process that began the work: another one is rejected.
    """

    conn_name_attr = "conn_id"
    default_conn_name = "kafka_steward_default"
    conn_type = "kafka_steward"
    hook_name = "Kafka Steward"

    def __init__(
        self,
        conn_id: str = default_conn_name,
        overrides: Mapping[str, Any] | None = None,
        journal: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.expected_origin = journal
        self.conn_id = conn_id
        self.overrides = dict(overrides or {})
        self._connections: dict[str, Connection] = {}

    @cached_property
    def access(self) -> ClusterConfig:
        """The access from connection, section and overrides. Raises SettingError, naming what is missing or wrong."""
        fields, kind = self._connection_fields(self.conn_id), self._find_connection(self.conn_id).conn_type
        if kind and kind != self.conn_type:
            raise SettingError(
                f"The connection {self.conn_id} is of type {kind}; make one of type {self.conn_type}, which may reuse "
                "a connection of type kafka by naming it as its kafka_conn_id."
            )
        kafka_conn_id = fields.extra.get("kafka_conn_id")
        kafka = self._connection_fields(kafka_conn_id) if kafka_conn_id else None
        names = (*SETTINGS, "journal", "workspace", "spark_conn_id")
        # The output of a command ends with a newline.
        given = {name: (conf.get("kafka_steward", name, fallback=None) or "").strip() for name in names}
        section = {name: value for name, value in given.items() if value}
        for setting in (fields.extra.get("journal"), section.get("journal")):
            _mask_secrets(find_secrets(setting))
        home = Path(os.path.expandvars(os.environ.get("AIRFLOW_HOME", "~/airflow"))).expanduser()
        executor = conf.get("core", "executor", fallback="LocalExecutor")
        access = cluster_config(fields, kafka, section, self.overrides, home, executor=executor)
        _mask_secrets(find_client_secrets(access.client))
        return access

    @property
    def settings(self) -> Settings:
        """The cluster's settings, from all sources. Raises SettingError."""
        return self.access.settings

    @property
    def workspace(self) -> str:
        """The location of snapshots and plans: a path or fsspec URI, without a trailing slash."""
        return self.access.workspace

    @property
    def spark_conn_id(self) -> str | None:
        """The connection of the Spark that makes plans; None for the worker."""
        return self.access.spark_conn_id

    def cluster(self) -> KafkaCluster:
        """Connect to the cluster. The caller closes it.

        Raises ClusterUnreachable, AuthenticationFailed, SettingError, and WrongCluster if the same bootstrap servers
        answered with another cluster.id before: two clusters must never share a journal's records.
        """
        # A task's log reports the changes to the cluster, which the log of each migration would hide.
        migrations = logging.getLogger("alembic.runtime.migration")
        if migrations.level == logging.NOTSET:
            migrations.setLevel(logging.WARNING)
        pin = ClusterIdPin(self.journal_url)
        known = self.access.expected_cluster_id or pin.get(self.access)
        controllers = self.access.controllers
        cluster = KafkaCluster(self.access.client, expected_cluster_id=known, controllers=controllers)
        pin.set(self.access, cluster.cluster_id)
        return cluster

    def cluster_id(self) -> str:
        """Return the configured or stored cluster.id of these bootstrap servers; if there is none, connect and read it.

        A known id needs no connection, so the journal of a dead cluster can be opened too.
        """
        if known := self._known_cluster_id():
            return known
        with self.cluster() as cluster:
            return cluster.cluster_id

    def journal(self, cluster_id: str, *, compare: bool = True, kafkas: bool = False) -> Journal:
        """Open the journal of one cluster. The caller closes it. Raises JournalError, SettingError, WrongJournal.

        Unless `compare` is False, its documents and rows must belong to one journal. That journal must be the one with
        which the work began; otherwise WrongJournal is raised. `kafkas` states that Kafka keeps the metadata of this
        cluster in ZooKeeper: then no other ZooKeeper is accepted.
        """
        zookeeper = self.access.zookeeper
        options = None if zookeeper is None else replace(zookeeper, kafkas=kafkas)
        journal = open_journal(self.journal_url, cluster_id, zookeeper=options, compare=compare)
        journal.conn_id = self.access.conn_id
        try:
            if journal.identity is not None:
                journal.identity.require_same_journal(self.expected_origin)
        except BaseException:
            journal.close()
            raise
        return journal

    def _known_cluster_id(self) -> str | None:
        return self.access.expected_cluster_id or ClusterIdPin(self.journal_url).get(self.access)

    @cached_property
    def journal_url(self) -> str:
        """The SQLAlchemy URL of the journal's database; it may contain a password. Raises SettingError."""
        url = journal_url(self.access.journal, self._sql_connection)
        text = url.render_as_string(hide_password=False)
        _mask_secrets(find_secrets(text))
        refuse_airflow_database(url)
        return text

    def stored_cluster_id(self, reader: JournalReader) -> str | None:
        """Return the configured or stored cluster.id of these bootstrap servers, from the database alone."""
        if self.access.expected_cluster_id:
            return self.access.expected_cluster_id
        state, key = tables.state.c, _servers_key(self.access)
        mine = (state.cluster_id == NO_CLUSTER) & (state.noun == KNOWN_CLUSTERS.name) & (state.key == key)
        rows = reader.rows(sa.select(state.value).where(mine))
        return KNOWN_CLUSTERS.decode(rows[0]["value"]).cluster_id if rows else None

    def reader(self) -> JournalReader:
        """Open the journal for reading: its database only, whatever cluster. The caller closes it.

        Neither Kafka nor ZooKeeper is asked. Raises JournalError, SettingError, JournalUnreachable.
        """
        return open_reader(self.journal_url)

    @contextmanager
    def watch_reports(self) -> Iterator[WatchReports | None]:
        """Open the database of the journal alone, for what a watch reports without Kafka and ZooKeeper.

        None while the id of the cluster is unknown. Raises JournalError, SettingError.
        """
        known = self._known_cluster_id()
        if not known:
            yield None
            return
        with closing(open_database(self.journal_url, known, platform.node())) as database:
            yield WatchReports(database)

    def open(self) -> ClusterSession:
        """Connect to the cluster and open its journal, as a context manager. Raises as `cluster` and `journal` do."""
        cluster = self.cluster()
        try:
            kafkas = self.access.zookeeper is not None and cluster.zookeeper_mode
            journal = self.journal(cluster.cluster_id, kafkas=kafkas)
            if kafkas:
                cluster.read_deletions = partial(read_pending_deletions, journal)
            return ClusterSession(self.access, _select_submission(self.access, cluster, journal), journal)
        except BaseException:
            cluster.close()
            raise

    def get_conn(self) -> KafkaCluster:
        """Return the result of `cluster`, under Airflow's name for it."""
        return self.cluster()

    def test_connection(self) -> tuple[bool, str]:
        """Return the result of the form's Test button: cluster id, mode and brokers, or one message about the fault."""
        try:
            with KafkaCluster(self.access.client, expected_cluster_id=self.access.expected_cluster_id) as cluster:
                brokers = ", ".join(str(broker) for broker in sorted(cluster.live_brokers()))
                return True, f"Cluster {cluster.cluster_id} in {cluster.mode_text} answers; live brokers: {brokers}."
        except StewardError as error:
            return False, str(error)

    def _find_connection(self, conn_id: str) -> Connection:
        # Each look-up is a request to Airflow's API server.
        if conn_id not in self._connections:
            try:
                self._connections[conn_id] = self.get_connection(conn_id)
            except AirflowNotFoundException as error:
                raise SettingError(
                    f"There is no Airflow connection {conn_id}; create it (type {self.conn_type}), or name another one."
                ) from error
        return self._connections[conn_id]

    def _connection_fields(self, conn_id: str) -> ConnectionFields:
        connection = self._find_connection(conn_id)
        extra = parse_extra(conn_id, connection.extra)
        mask_secret(extra)
        return ConnectionFields(conn_id, connection.host, connection.port, connection.login, connection.password, extra)

    def _sql_connection(self, conn_id: str) -> tuple[str, ConnectionFields, str | None]:
        connection = self._find_connection(conn_id)
        return connection.conn_type or "", self._connection_fields(conn_id), connection.schema


def _select_submission(access: ClusterConfig, cluster: KafkaCluster, journal: Journal) -> KafkaCluster:
    if access.settings.submission == "admin":
        return cluster
    if access.zookeeper is None:
        raise SettingError(
            f"The connection {access.conn_id} submits through ZooKeeper, and has no setting zookeeper; set it, or "
            "set submission to admin."
        )
    # All methods except `alter` are the cluster's own.
    return cast("KafkaCluster", ZnodeReassignmentClient(cluster, journal.mailbox))


def _mask_secrets(secrets: Sequence[str]) -> None:
    # Airflow recognises a secret by the name of its key, and neither `journal` nor sasl.jaas.config is one of those.
    for secret in secrets:
        mask_secret(secret)
