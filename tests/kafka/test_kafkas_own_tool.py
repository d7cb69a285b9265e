"""The files that the planner writes are what Kafka's own tool takes: a plan is executed by it, and taken back."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.execution.snapshot import take_snapshot
from kafka_steward.journal.store import Journal
from kafka_steward.planning.spark.job import parse_command_line, write_reassignments
from kafka_steward.sandbox import Sandbox
from tests.eventually import eventually
from tests.local_plan import plan_folder

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
BEFORE = {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2), 3: (1, 3, 2)}


@pytest.mark.in_ci("kraft")
def test_plan_json_is_carried_out_by_kafkas_own_tool_and_plan_rollback_json_takes_it_back(
    sandbox: Sandbox, cluster: KafkaCluster, journal: Journal, topic: str, tmp_path: Path
) -> None:
    sandbox.create_topics(topic, assignments=BEFORE)
    take_snapshot(cluster, f"{tmp_path}/snapshot", failed=(), now_ms=journal.now_ms())
    this = {"include": [re.escape(topic)]}
    plan = plan_folder(f"{tmp_path}/snapshot", f"{tmp_path}/plan", "rebalance", this)
    assert plan.moves
    folders = ["--snapshot", f"{tmp_path}/snapshot", "--out", f"{tmp_path}/plan"]
    write_reassignments(parse_command_line([*folders, "--operation", "rebalance", "--json", f"{tmp_path}/plan.json"]))

    asked = carried_out(sandbox, tmp_path / "plan.json")
    assert asked == {move.topic_partition: move.after for move in plan.moves}
    before = {TopicPartition(topic, number): replicas for number, replicas in BEFORE.items()}
    assert replicas(cluster, topic) == before | asked

    asked = carried_out(sandbox, tmp_path / "plan.rollback.json")
    assert asked == {move.topic_partition: move.before for move in plan.moves}
    assert replicas(cluster, topic) == before


def carried_out(sandbox: Sandbox, file: Path) -> dict[TopicPartition, Assignment]:
    """Execute a file to the end; return what it asks for."""
    given = ("--bootstrap-server", sandbox.bootstrap, "--reassignment-json-file", str(file))
    asked = {
        TopicPartition(one["topic"], one["partition"]): tuple(one["replicas"])
        for one in json.loads(file.read_text())["partitions"]
    }
    assert "Successfully started partition reassignment" in sandbox.kafka_tool(REASSIGN, *given, "--execute")

    def all_complete() -> None:
        told = sandbox.kafka_tool(REASSIGN, *given, "--verify")
        assert {str(name) for name in asked} == set(re.findall(r"Reassignment of partition (\S+) is completed", told))

    eventually(all_complete, within=60)
    return asked


def replicas(cluster: KafkaCluster, topic: str) -> dict[TopicPartition, Assignment]:
    return {name: each.replicas for name, each in cluster.snapshot([topic]).partitions.items()}
