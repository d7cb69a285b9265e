"""Each fault of doctor has the command that helps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_steward.cli.airflow_state import AirflowState, DagFacts, airflow_findings
from kafka_steward.cli.probe import ProbeDag, ProbeRun, run_findings, unusable_dag
from kafka_steward.cluster.state import BrokerLogDirs, Directory
from kafka_steward.doctor.commands import Commands
from kafka_steward.doctor.findings import Finding, Level
from kafka_steward.doctor.journal import journal_finding, watch_finding
from kafka_steward.doctor.kafka import (
    MOVE,
    cordon_findings,
    describe_cluster,
    hidden_finding,
    right_finding,
    service_findings,
)
from kafka_steward.doctor.spark import java_finding
from kafka_steward.doctor.workspace import Probe, probe_finding
from kafka_steward.errors import KafkaRefused
from tests.simulator import Simulator

ME = Commands("kafka_production", "broker1:9092", "me")
HERE = Probe("/w", "a", marked=True)


def faults() -> list[Finding]:
    simulator = Simulator.of("1a 2b", "t: 1")
    whole = simulator.snapshot()
    failed = BrokerLogDirs({}, directories=(Directory("/data/1"), Directory("/data/2", error=56)))
    balanced = service_findings(whole, ME, balances_itself=True)
    disks = cordon_findings(whole, {1: failed, 2: BrokerLogDirs({})}, ME)
    managed = service_findings(replace(whole, cluster_id="lkc-1"), ME, balances_itself=False)
    simulator.kill(1)
    return [
        describe_cluster(simulator.snapshot(), "4.3", ME, zookeeper_mode=False),
        *balanced,
        *managed,
        *disks,
        right_finding({MOVE: KafkaRefused(31, "no", "No.")}, ME),
        hidden_finding({"secret": (1,)}, ME),
        journal_finding("sqlite:////a", [], executor="CeleryExecutor", shared_needed=True),
        watch_finding([], [], ME),
        watch_finding([{"kind": "failures", "host": "a", "age_ms": 1}], [], ME),
        java_finding(None, None),
        java_finding(Path("/java"), "11.0.2"),
        *airflow_findings(AirflowState(alive={"TriggererJob": False, "SchedulerJob": False}), "x"),
        *airflow_findings(AirflowState((DagFacts("heal", paused=True, heals=True),), {"a.py": "No."}), "x")[1:],
        *run_findings("probe", "r", ProbeRun("running", "deferred"), "/w"),
        *run_findings("probe", "r", ProbeRun("failed", "failed"), "/w"),
        probe_finding("worker", replace(HERE, problem="No."), "/w"),
        probe_finding("worker", HERE, "/elsewhere"),
        probe_finding("worker", replace(HERE, marked=False), "/w"),
        *filter(None, (unusable_dag(None, "x"), unusable_dag(ProbeDag("probe", paused=True), "x"))),
    ]


@pytest.mark.parametrize("finding", faults(), ids=lambda each: each.subject)
def test_a_fault_has_a_command_that_helps(finding: Finding) -> None:
    assert finding.level is Level.FAULT
    assert finding.sentence.endswith(".")
    assert finding.command.strip()


def test_each_process_that_is_not_alive_is_started_by_a_line_of_its_own() -> None:
    state = AirflowState(alive={"TriggererJob": False, "SchedulerJob": True, "DagProcessorJob": False})
    assert airflow_findings(state, "x")[0].command.splitlines() == ["airflow triggerer", "airflow dag-processor"]


def test_a_disk_that_failed_is_healed_by_the_command() -> None:
    failed = BrokerLogDirs({}, directories=(Directory("/data/1"), Directory("/data/my disk", error=56)))
    (found,) = cordon_findings(Simulator.of("1a", "t: 1").snapshot(), {1: failed}, ME)
    assert found.command == "airflow kafka-steward failed 1 --disk '/data/my disk' --cluster kafka_production"
