"""`doctor`: everything between Airflow and Kafka on one screen, each line ok or one sentence with what helps."""

from __future__ import annotations

import os
from collections.abc import Sequence

from kafka_steward.cli import Exit
from kafka_steward.cli.direct import DirectAccess
from kafka_steward.cli.verb import CommandContext, print_error
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.doctor.findings import Check, Commands, Finding, Level, run_checks
from kafka_steward.doctor.kafka import inspect_cluster
from kafka_steward.doctor.planning import inspect_local_spark
from kafka_steward.errors import SettingError
from kafka_steward.hooks.cluster_config import ClusterConfig
from kafka_steward.planning.spark.installed import repair_command

#: Seconds for all checks, which run at the same time.
WITHIN_S = 25.0
#: Milliseconds for one request to Kafka, and for the first connection.
_REQUEST_MS = 8_000


def diagnose(call: CommandContext) -> Exit:
    """Check the cluster, and everything that its connection names, and print the findings."""
    if call.direct is not None:
        findings = find_directly(call.direct)
    else:
        from kafka_steward.cli.doctor_connection import find_by_connection  # noqa: PLC0415 - it imports Airflow

        findings = find_by_connection(call)
    faults = sum(finding.level is Level.FAULT for finding in findings)
    rows = [finding.to_json() for finding in findings]
    call.out.print_document({"ok": not faults, "findings": rows}, rows, _lines(findings))
    if faults:
        print_error(f"{faults} of {len(findings)} checks found a fault.")
    return Exit.FAILED if faults else Exit.DONE


def find_directly(direct: DirectAccess) -> list[Finding]:
    """Return the findings about a cluster, and about the Spark of this machine, without a connection."""
    try:
        config = direct.access
    except SettingError as error:
        return [Finding("connection", Level.FAULT, str(error), f"kafka-steward status {direct.options}")]
    commands = Commands.of(config.conn_id, config.client, config.bootstrap, direct.options)
    checks = [
        Check("kafka", lambda: _inspect_kafka(config, commands), commands.steward("status")),
        Check("spark", lambda: inspect_local_spark(os.environ), repair_command()),
    ]
    unchecked = (
        "The journal, the watch, the workspace, throttles that are left over, and Airflow were not checked: they need "
        "an Airflow connection."
    )
    return [
        connection_finding(config, "--bootstrap-server"),
        *run_checks(checks, within_s=WITHIN_S),
        Finding("not checked", Level.NOTE, unchecked, commands.add_connection()),
    ]


def _inspect_kafka(config: ClusterConfig, commands: Commands) -> Sequence[Finding]:
    with open_cluster(config) as cluster:
        return inspect_cluster(cluster, commands, throttled=config.settings.throttle > 0)


def connection_finding(config: ClusterConfig, name: str = "") -> Finding:
    """Return what names the brokers, the connection or `name`, and how they are reached."""
    protocol, mechanism = config.client.get("security_protocol", "PLAINTEXT"), config.client.get("sasl_mechanism")
    how = f"{protocol} with {mechanism}" if mechanism else protocol
    return Finding("connection", Level.OK, f"{name or config.conn_id} names {config.bootstrap}, by {how}.")


def open_cluster(config: ClusterConfig) -> KafkaCluster:
    """Connect to the cluster, with a limit for each request that leaves time for the others. Raises ClusterError."""
    given = config.client
    limits = {
        name: min(int(given.get(name) or _REQUEST_MS), _REQUEST_MS)
        for name in ("request_timeout_ms", "bootstrap_timeout_ms")
    }
    known = config.expected_cluster_id
    return KafkaCluster({**given, **limits}, expected_cluster_id=known, controllers=config.controllers)


def _lines(findings: Sequence[Finding]) -> list[str]:
    width = max(len(finding.subject) for finding in findings)
    lines = []
    for finding, after in zip(findings, (*findings[1:], None), strict=True):
        lines.append(f"{finding.level.value:5}  {finding.subject.ljust(width)}  {finding.sentence}")
        if after is None or after.command != finding.command:  # what helps with several stands below the last
            lines += [f"{' ' * (width + 9)}{command}" for command in finding.command.splitlines()]
    return lines
