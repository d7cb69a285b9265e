"""Submitting by /admin/reassign_partitions, simulated: one batch at a time, to live brokers, under the limit."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import SettingError
from kafka_steward.execution.znode_submission import MAX_ZNODE_BYTES, ZnodeReassignmentClient
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.journal import paths
from tests.airflow_home import Connect
from tests.protocol.simulated_watch import Yard, partition

T0, T1 = partition("t-0"), partition("t-1")


def test_a_batch_is_one_node_and_the_next_waits_until_it_is_gone() -> None:
    yard = Yard(mode="zookeeper")
    port = ZnodeReassignmentClient(yard.simulator, yard.journal.tree)
    assert port.alter({T0: (2, 3)}) == {T0: None}
    node = yard.journal.tree.get(paths.REASSIGN_PARTITIONS)
    assert node is not None
    assert json.loads(node.data)["partitions"] == [{"topic": "t", "partition": 0, "replicas": [2, 3]}]
    refusal = port.alter({T1: (2, 3, 4)})[T1]
    assert refusal is not None
    assert "takes one batch at a time, and another is under way" in refusal.message
    yard.journal.tree.delete(node.path, version=0)
    assert port.alter({T1: (2, 3, 4)}) == {T1: None}


def test_while_anything_flies_nothing_is_created() -> None:
    yard = Yard(mode="zookeeper")
    yard.simulator.alter({T0: (2, 3)})
    assert ZnodeReassignmentClient(yard.simulator, yard.journal.tree).alter({T1: (2, 3, 4)})[T1] is not None
    assert yard.journal.tree.get(paths.REASSIGN_PARTITIONS) is None


def test_a_dead_target_is_refused_and_the_rest_is_submitted() -> None:
    yard = Yard(mode="zookeeper")
    yard.simulator.kill(5)
    answers = ZnodeReassignmentClient(yard.simulator, yard.journal.tree).alter({T0: (2, 5), T1: (2, 3, 4)})
    assert answers[T1] is None
    refusal = answers[T0]
    assert refusal is not None
    assert refusal.message == "broker 5 is not live"


def test_a_node_stays_below_zookeepers_limit() -> None:
    yard = Yard(mode="zookeeper")
    many = {TopicPartition("topic-" + "x" * 200, number): (1, 2, 3) for number in range(5_000)}
    answers = ZnodeReassignmentClient(yard.simulator, yard.journal.tree).alter(many)
    node = yard.journal.tree.get(paths.REASSIGN_PARTITIONS)
    assert node is not None
    taken = [name for name, refusal in answers.items() if refusal is None]
    assert len(node.data) <= MAX_ZNODE_BYTES
    assert 3_000 < len(taken) < 5_000
    assert len(json.loads(node.data)["partitions"]) == len(taken)


def test_all_else_is_the_clusters() -> None:
    yard = Yard(mode="zookeeper")
    port = ZnodeReassignmentClient(yard.simulator, yard.journal.tree)
    assert port.cluster_id == yard.simulator.cluster_id
    assert port.snapshot() == yard.simulator.snapshot()


def test_moves_are_submitted_through_the_admin_api_unless_the_connection_says_otherwise(connect: Connect) -> None:
    from kafka_steward.hooks.steward import _select_submission

    cluster: Any = object()
    journal: Any = None
    assert _select_submission(StewardHook(connect()).access, cluster, journal) is cluster


def test_without_a_zookeeper_it_cannot_be_chosen(connect: Connect) -> None:
    from kafka_steward.hooks.steward import _select_submission

    access = StewardHook(connect(extra={"submission": "legacy"})).access
    with pytest.raises(SettingError, match="submits through ZooKeeper, and has no setting zookeeper"):
        _select_submission(access, None, None)  # type: ignore[arg-type]  # neither is looked at
