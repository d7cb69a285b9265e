"""The missing rights on a cluster with ACLs, each named: nothing is changed to find them."""

from __future__ import annotations

import pytest

from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.doctor.findings import Commands, Finding, Level
from kafka_steward.doctor.kafka import inspect_cluster
from kafka_steward.errors import ClusterError
from tests.eventually import eventually
from tests.secured import Secured, rights_of

pytestmark = pytest.mark.slow
ME = Commands("kafka_production", "broker1:9092", "me")


def inspected(secured: Secured, *names: str) -> dict[str, Finding]:
    with KafkaCluster(secured.config(secured.principal(*(entry for name in names for entry in rights_of(name))))) as it:
        found = eventually(lambda: inspect_cluster(it, ME, throttled=True), within=30, errors=(ClusterError,))
    return {each.subject: each for each in found}


def test_for_a_principal_that_may_only_read_the_rights_to_grant_are_named(secured: Secured) -> None:
    secured.sandbox.create_topics("doctor", partitions=1)
    found = inspected(secured, "look")
    assert found["rights"].level is Level.FAULT
    for words in (
        "We may not move replicas: ",
        "grant our principal Alter on the cluster",
        "We may not throttle brokers: ",
        "grant our principal AlterConfigs on the cluster",
        "We may not throttle topics: ",
        "grant our principal AlterConfigs on every topic",
    ):
        assert words in found["rights"].sentence
    assert [line.rpartition(" --operation ")[2] for line in found["rights"].command.splitlines()] == [
        "Alter --cluster",
        "AlterConfigs --cluster",
        "AlterConfigs --topic '*'",
    ]
    assert found["hidden topics"].level is Level.OK


def test_who_may_move_lacks_nothing(secured: Secured) -> None:
    secured.sandbox.create_topics("doctored", partitions=1)
    assert inspected(secured, "move", "look")["rights"].level is Level.OK
