"""`doctor`: everything between Airflow and Kafka on one screen, each line ok or one sentence with what helps."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from airflow.configuration import conf

from kafka_steward.cli import Exit
from kafka_steward.cli.airflow_state import airflow_findings, read_airflow_state
from kafka_steward.cli.probe import probe_parts
from kafka_steward.cli.verb import CommandContext, print_error
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.doctor.commands import Commands
from kafka_steward.doctor.findings import Check, Finding, Level, run_checks
from kafka_steward.doctor.journal import inspect_journal
from kafka_steward.doctor.kafka import inspect_cluster
from kafka_steward.doctor.spark import inspect_local_spark
from kafka_steward.doctor.workspace import SHARE_WORKSPACE, inspect_workspace
from kafka_steward.errors import SettingError
from kafka_steward.hooks.cluster_config import ClusterConfig, runs_tasks_elsewhere
from kafka_steward.hooks.spark import find_spark_cluster
from kafka_steward.planning.spark.installed import repair_command

#: Seconds for all checks, which run at the same time.
WITHIN_S = 25.0
#: Milliseconds for one request to Kafka, and for the first connection.
_REQUEST_MS = 8_000


def diagnose(call: CommandContext) -> Exit:
    """Check the connection, and everything that it names, and print the findings."""
    try:
        config = call.hook.access
    except SettingError as error:
        findings = [Finding("connection", Level.FAULT, str(error), Commands(call.arguments.cluster).add_connection())]
    else:
        findings = [
            _connection_finding(config),
            executor_finding(conf.get("core", "executor")),
            *run_checks(_checks(call, config), within_s=WITHIN_S),
            *_probe(call, config),
        ]
    faults = sum(finding.level is Level.FAULT for finding in findings)
    rows = [finding.to_json() for finding in findings]
    call.out.print_document({"ok": not faults, "findings": rows}, rows, _lines(findings))
    if faults:
        print_error(f"{faults} of {len(findings)} checks found a fault.")
    return Exit.FAILED if faults else Exit.DONE


def _connection_finding(config: ClusterConfig) -> Finding:
    protocol, mechanism = config.client.get("security_protocol", "PLAINTEXT"), config.client.get("sasl_mechanism")
    how = f"{protocol} with {mechanism}" if mechanism else protocol
    return Finding("connection", Level.OK, f"{config.conn_id} names {config.bootstrap}, by {how}.")


def executor_finding(executor: str) -> Finding:
    """Return where the executor runs tasks, and so where the workspace and the journal have to be reached."""
    if runs_tasks_elsewhere(executor):
        sentence = f"The executor {executor} runs tasks on other hosts, which need the same journal and workspace."
        return Finding("executor", Level.OK, sentence)
    return Finding("executor", Level.OK, f"The executor {executor} runs tasks on the scheduler's host.")


def _probe(call: CommandContext, config: ClusterConfig) -> Sequence[Finding]:
    commands = Commands(config.conn_id)
    if call.arguments.probe:
        return probe_parts(config, commands)
    sentence = (
        "Whether a worker and the triggerer can use the workspace was not tried: a run of the DAG probe tries it."
    )
    return [Finding("worker", Level.NOTE, sentence, commands.steward("doctor --probe"))]


def _checks(call: CommandContext, config: ClusterConfig) -> list[Check]:
    commands = Commands.of(config.conn_id, config.client, config.bootstrap)
    shown = commands.show_connection()
    return [
        Check("kafka", lambda: _inspect_kafka(config, commands), shown),
        Check("journal", lambda: _inspect_journal(call, commands), shown),
        Check(
            "workspace",
            lambda: inspect_workspace(config.workspace),
            SHARE_WORKSPACE,
        ),
        Check("spark", lambda: _inspect_spark(config), _show_spark(config)),
        Check(
            "airflow", lambda: airflow_findings(read_airflow_state(config.conn_id), config.conn_id), "airflow db check"
        ),
        Check("metrics", lambda: [metrics_finding(_metrics_switches())], "airflow config list --section metrics"),
    ]


def _show_spark(config: ClusterConfig) -> str:
    if config.spark_conn_id is None:
        return repair_command()
    return Commands(config.spark_conn_id).show_connection()


def _inspect_kafka(config: ClusterConfig, commands: Commands) -> Sequence[Finding]:
    given = config.client
    limits = {
        name: min(int(given.get(name) or _REQUEST_MS), _REQUEST_MS)
        for name in ("request_timeout_ms", "bootstrap_timeout_ms")
    }
    with KafkaCluster({**given, **limits}, expected_cluster_id=config.expected_cluster_id) as cluster:
        return inspect_cluster(cluster, commands, throttled=config.settings.throttle > 0)


def _inspect_journal(call: CommandContext, commands: Commands) -> Sequence[Finding]:
    executor = conf.get("core", "executor")
    with call.journal() as journal:
        return inspect_journal(journal, commands, executor=executor, shared_needed=runs_tasks_elsewhere(executor))


def _inspect_spark(config: ClusterConfig) -> Sequence[Finding]:
    spark = find_spark_cluster(config.spark_conn_id)
    if spark.is_local:
        return inspect_local_spark(os.environ)
    spark.refuse_what_cannot_work(config.workspace, dict(os.environ), deploy_mode=None)
    return [Finding("spark", Level.OK, f"Plans are made by the Spark of {spark.conn_id}, {spark.url}.")]


def _metrics_switches() -> dict[str, bool]:
    return {name: conf.getboolean("metrics", name, fallback=False) for name in ("statsd_on", "otel_on")}


def metrics_finding(switches: Mapping[str, bool]) -> Finding:
    """Return where metrics go, by Airflow's switches of the section [metrics]."""
    on = [name for name, is_on in switches.items() if is_on]
    if not on:
        sentence = "Airflow sends no metrics ([metrics] statsd_on, otel_on), nor do we."
        return Finding("metrics", Level.NOTE, sentence, "export AIRFLOW__METRICS__STATSD_ON=True")
    return Finding("metrics", Level.OK, f"Metrics go where Airflow's go: [metrics] {', '.join(on)}.")


def _lines(findings: Sequence[Finding]) -> list[str]:
    width = max(len(finding.subject) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{finding.level.value:5}  {finding.subject.ljust(width)}  {finding.sentence}")
        lines += [f"{' ' * (width + 9)}{command}" for command in finding.command.splitlines()]
    return lines
