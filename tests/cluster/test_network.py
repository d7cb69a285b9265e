"""What we rely on in kafka-python's network layer, which is no interface: on a real cluster, through our module."""

from __future__ import annotations

import ast
import threading
from collections.abc import Iterator

import kafka.errors
import pytest

from kafka_steward.cluster.connection import LOG_DIRS_TIMEOUT, validate_config
from kafka_steward.cluster.network import Network
from kafka_steward.cluster.requests import log_dirs_request, metadata_request
from kafka_steward.sandbox import Sandbox
from tests.sources import ROOT

_METADATA, _DESCRIBE_QUORUM = 3, 55


def connect(servers: str, **config: object) -> Network:
    network = Network()
    given = validate_config({"bootstrap_servers": servers, **config})
    try:
        network.connect({name: value for name, value in given.items() if name != LOG_DIRS_TIMEOUT})
    except BaseException:
        network.close()
        raise
    return network


@pytest.fixture
def network(sandbox: Sandbox) -> Iterator[Network]:
    opened = connect(sandbox.bootstrap)
    yield opened
    opened.close()


@pytest.mark.project
def test_no_other_module_knows_the_network_layer() -> None:
    importing = {
        path.name
        for path in (ROOT / "provider").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kafka.net")
    }
    assert importing == {"network.py"}


def test_it_knows_the_cluster_its_brokers_and_their_versions(network: Network, sandbox: Sandbox) -> None:
    assert network.cluster_id
    ports = {broker: each.port for broker, each in sandbox.brokers.items()}
    assert {node.node_id: node.port for node in network.nodes} == ports
    assert {node.address for node in network.nodes} == set(sandbox.bootstrap.split(","))
    assert network.bootstrap_addresses == set(sandbox.bootstrap.split(","))
    assert network.answering_server in network.bootstrap_addresses
    versions = network.api_versions()
    assert versions is not None
    assert versions[_METADATA][1] >= 9
    assert (_DESCRIBE_QUORUM in versions) == (sandbox.mode == "kraft")
    assert network.kafka_version()[:2] == tuple(map(int, sandbox.version.split(".")[:2]))
    assert network.least_loaded_node() in sandbox.brokers


def test_a_broker_has_versions_of_its_own_while_it_is_connected(network: Network) -> None:
    answers = network.send_to_each({1: log_dirs_request}, 10_000)
    assert answers[1].error_code == 0
    assert network.api_versions(1) == network.api_versions()
    assert network.api_versions(99) is None
    assert network.kafka_version(1) == network.kafka_version(99) == network.kafka_version()
    assert network.reached


def test_what_a_broker_does_not_answer_is_an_error_of_kafka_python(network: Network, sandbox: Sandbox) -> None:
    assert network.send(metadata_request(()), 1, 10_000).controller_id is not None
    sandbox.kill(2)
    answers = network.send_to_each(dict.fromkeys((1, 2, 99), log_dirs_request), 3000)
    assert answers[1].error_code == 0
    assert isinstance(answers[2], kafka.errors.KafkaConnectionError)
    assert isinstance(answers[99], kafka.errors.UnknownBrokerIdError)
    assert isinstance(network.failures[2], kafka.errors.KafkaConnectionError)
    with pytest.raises(kafka.errors.UnknownBrokerIdError):
        network.send(metadata_request(()), 99, 3000)
    sandbox.restart(2)
    network.refresh_nodes(10_000)
    assert 2 in {node.node_id for node in network.nodes}


def test_a_paused_broker_costs_its_own_time_only(network: Network, sandbox: Sandbox) -> None:
    network.send_to_each(dict.fromkeys(sandbox.brokers, log_dirs_request), 10_000)
    sandbox.pause(3)
    answers = network.send_to_each(dict.fromkeys((1, 3), log_dirs_request), 1500)
    assert answers[1].error_code == 0
    assert isinstance(answers[3], kafka.errors.KafkaTimeoutError | kafka.errors.RequestTimedOutError)


def test_a_closed_client_leaves_no_thread_whether_it_connected_or_not(sandbox: Sandbox) -> None:
    before = set(threading.enumerate())
    connect(sandbox.bootstrap).close()
    with pytest.raises(kafka.errors.KafkaError):
        connect("127.0.0.1:1", bootstrap_timeout_ms=900)
    assert not [thread for thread in set(threading.enumerate()) - before if thread.is_alive()]
