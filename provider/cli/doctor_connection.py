"""The checks of `doctor` for an Airflow connection: everything between Airflow and Kafka."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from airflow.configuration import conf
from airflow.sdk import BaseHook

from kafka_steward.airflow_versions import AirflowNotFoundException
from kafka_steward.cli.airflow_state import airflow_findings, read_airflow_state
from kafka_steward.cli.doctor import WITHIN_S, connection_finding, open_cluster
from kafka_steward.cli.verb import CommandContext
from kafka_steward.doctor.findings import Check, Commands, Finding, Level, run_checks
from kafka_steward.doctor.journal import SHARE_JOURNAL, inspect_journal
from kafka_steward.doctor.kafka import inspect_cluster, throttle_finding
from kafka_steward.doctor.planning import SHARE_WORKSPACE, inspect_local_spark, inspect_workspace, remote_spark_finding
from kafka_steward.errors import ClusterError, JournalError, SettingError
from kafka_steward.execution.failures.records import last_racks
from kafka_steward.execution.throttles.leftovers import survey_throttles
from kafka_steward.hooks.cluster_config import ClusterConfig, runs_tasks_elsewhere
from kafka_steward.hooks.spark import find_spark_cluster
from kafka_steward.journal.listing import read_pending_deletions
from kafka_steward.journal.store import Journal
from kafka_steward.planning.spark.installed import repair_command
from kafka_steward.settings import SETTINGS, Settings
from kafka_steward.value_parsing import parse_extra

K = TypeVar("K")
V = TypeVar("V")

_SHOW_SECTION = "airflow config list --section kafka_steward"


def find_by_connection(call: CommandContext) -> list[Finding]:
    """Return the findings about the connection, and about everything that it names."""
    try:
        config = call.hook.access
    except SettingError as error:
        return _findings_without_config(call.arguments.cluster, str(error))
    return [
        connection_finding(config),
        executor_finding(conf.get("core", "executor")),
        *run_checks(_checks(call, config), within_s=WITHIN_S),
        *_probe(call, config),
    ]


def _findings_without_config(conn_id: str, fault: str) -> list[Finding]:
    """Return the fault of a connection that cannot be used, and the findings about what does not depend on it."""
    given, commands = _read_connection(conn_id), Commands(conn_id)
    checks, unchecked = _checks_of_airflow(conn_id), "Kafka, the journal, the watch and the workspace"
    spark_conn_id = (given.extra or {}).get("spark_conn_id") or _read_section("spark_conn_id")
    if spark_conn_id:
        unchecked = f"Kafka, the journal, the watch, the workspace and the Spark of {spark_conn_id}"
    else:
        checks.insert(0, Check("spark", lambda: inspect_local_spark(os.environ), repair_command()))
    return [
        Finding("connection", Level.FAULT, fault, "\n".join(_commands_for_connection(given, commands))),
        executor_finding(conf.get("core", "executor")),
        *run_checks(checks, within_s=WITHIN_S),
        Finding(
            "not checked",
            Level.NOTE,
            f"{unchecked} were not checked: they need the connection; run doctor again when it can be used.",
            commands.steward("doctor"),
        ),
    ]


@dataclass(frozen=True, slots=True)
class _GivenConnection:
    """A connection as Airflow has it; `extra` is None if it cannot be read."""

    exists: bool
    extra: Mapping[str, Any] | None


def _read_connection(conn_id: str) -> _GivenConnection:
    try:
        connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        return _GivenConnection(exists=False, extra=None)
    try:
        return _GivenConnection(exists=True, extra=parse_extra(conn_id, connection.extra))
    except SettingError:
        return _GivenConnection(exists=True, extra=None)


def _commands_for_connection(given: _GivenConnection, commands: Commands) -> list[str]:
    """Return the commands that help with a connection that cannot be used."""
    if not given.exists:
        return [commands.add_connection()]
    settings = [SHARE_JOURNAL] if given.extra is not None and _lacks_journal(given.extra) else []
    return [*settings, *([_SHOW_SECTION] if _is_section_wrong() else []), commands.show_connection()]


def _lacks_journal(extra: Mapping[str, Any]) -> bool:
    """Return whether no journal is named where the default, a file of one host, does not do."""
    named = (extra.get("journal"), _read_section("journal"))
    several_hosts = runs_tasks_elsewhere(conf.get("core", "executor")) or bool(extra.get("zookeeper"))
    return several_hosts and all(name in (None, "", "zookeeper") for name in named)


def _is_section_wrong() -> bool:
    try:
        Settings.refuse_wrong({name: value for name in SETTINGS if (value := _read_section(name))})
    except SettingError:
        return True
    return False


def _read_section(name: str) -> str:
    return (conf.get("kafka_steward", name, fallback=None) or "").strip()


def executor_finding(executor: str) -> Finding:
    """Return where the executor runs tasks, and so where the workspace and the journal have to be reached."""
    if runs_tasks_elsewhere(executor):
        sentence = f"The executor {executor} runs tasks on other hosts, which need the same journal and workspace."
        return Finding("executor", Level.OK, sentence)
    return Finding("executor", Level.OK, f"The executor {executor} runs tasks on the scheduler's host.")


def _probe(call: CommandContext, config: ClusterConfig) -> Sequence[Finding]:
    commands = Commands(config.conn_id)
    if call.arguments.probe:
        from kafka_steward.cli.probe import probe_parts  # noqa: PLC0415 - half a second, for this option only

        return probe_parts(config, commands)
    sentence = (
        "Whether a worker and the triggerer can use the workspace was not tried: a run of the DAG probe tries it."
    )
    return [Finding("worker", Level.NOTE, sentence, commands.steward("doctor --probe"))]


def _checks(call: CommandContext, config: ClusterConfig) -> list[Check]:
    commands = Commands.of(config.conn_id, config.client, config.bootstrap)
    shown = commands.show_connection()
    return [
        Check("kafka", lambda: _inspect_kafka(call, config, commands), shown),
        Check("throttles", lambda: _inspect_throttles(call, config, commands), shown),
        Check("journal", lambda: _inspect_journal(call, commands), shown),
        Check(
            "workspace",
            lambda: inspect_workspace(config.workspace),
            SHARE_WORKSPACE,
        ),
        Check("spark", lambda: _inspect_spark(config), _show_spark(config)),
        *_checks_of_airflow(config.conn_id),
    ]


def _checks_of_airflow(conn_id: str) -> list[Check]:
    """Return the checks that need no more than the id of the connection."""
    return [
        Check("airflow", lambda: airflow_findings(read_airflow_state(conn_id), conn_id), "airflow db check"),
        Check("metrics", lambda: [metrics_finding(_metrics_switches())], "airflow config list --section metrics"),
    ]


def _show_spark(config: ClusterConfig) -> str:
    if config.spark_conn_id is None:
        return repair_command()
    return Commands(config.spark_conn_id).show_connection()


def _inspect_kafka(call: CommandContext, config: ClusterConfig, commands: Commands) -> Sequence[Finding]:
    with open_cluster(config) as cluster:
        read_racks = partial(_read_journal, call, last_racks)
        if cluster.zookeeper_mode:
            cluster.read_deletions = partial(_read_journal, call, read_pending_deletions)
        return inspect_cluster(cluster, commands, throttled=config.settings.throttle > 0, read_racks=read_racks)


def _read_journal(call: CommandContext, read: Callable[[Journal], Mapping[K, V]]) -> Mapping[K, V]:
    try:
        with call.journal() as journal:
            return read(journal)
    except (ClusterError, JournalError):
        return {}  # the check of the journal says why


def _inspect_throttles(call: CommandContext, config: ClusterConfig, commands: Commands) -> Sequence[Finding]:
    try:
        with open_cluster(config) as cluster, call.journal() as journal:
            survey = survey_throttles(cluster, journal, leaders=config.settings.throttle_leaders)
            commands = commands.reaching(cluster.live_brokers())
            return [throttle_finding(survey, config.settings.throttle, commands)]
    except (ClusterError, JournalError):
        return []  # the checks of Kafka and of the journal say why


def _inspect_journal(call: CommandContext, commands: Commands) -> Sequence[Finding]:
    executor = conf.get("core", "executor")
    with call.journal() as journal:
        return inspect_journal(journal, commands, executor=executor, shared_needed=runs_tasks_elsewhere(executor))


def _inspect_spark(config: ClusterConfig) -> Sequence[Finding]:
    spark = find_spark_cluster(config.spark_conn_id)
    if spark.is_local:
        return inspect_local_spark(os.environ)
    spark.refuse_what_cannot_work(config.workspace, dict(os.environ), deploy_mode=None)
    return [remote_spark_finding(spark.conn_id, spark.url, submit=None if spark.is_connect else spark.binary)]


def _metrics_switches() -> dict[str, bool]:
    return {name: conf.getboolean("metrics", name, fallback=False) for name in ("statsd_on", "otel_on")}


def metrics_finding(switches: Mapping[str, bool]) -> Finding:
    """Return where metrics go, by Airflow's switches of the section [metrics]."""
    on = [name for name, is_on in switches.items() if is_on]
    if not on:
        sentence = "Airflow sends no metrics ([metrics] statsd_on, otel_on), nor do we."
        return Finding("metrics", Level.NOTE, sentence, "export AIRFLOW__METRICS__STATSD_ON=True")
    return Finding("metrics", Level.OK, f"Metrics go where Airflow's go: [metrics] {', '.join(on)}.")
