"""A connection to the sandbox's cluster, and a journal of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.execution.throttles.rates import ThrottleSide
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.sandbox import Sandbox


@pytest.fixture
def cluster(sandbox: Sandbox) -> Iterator[KafkaCluster]:
    with KafkaCluster({"bootstrap_servers": sandbox.bootstrap}) as cluster:
        yield cluster


@pytest.fixture
def clears_rates(sandbox: Sandbox, cluster: KafkaCluster) -> Iterator[None]:
    """Delete the rates of all brokers after the test."""
    yield
    clear = [ConfigChange(side.rate_key, ConfigOp.DELETE) for side in ThrottleSide]
    cluster.change_broker_configs(dict.fromkeys(sandbox.brokers, clear))


@pytest.fixture
def journal(cluster: KafkaCluster, tmp_path: Path) -> Iterator[Journal]:
    with open_journal(f"sqlite:///{tmp_path}/journal.db", cluster.cluster_id) as journal:
        yield journal
