"""Operators executed on a simulated Kafka: connection, settings and parameters are read as in a task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafka_steward.airflow_versions import stats
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.journal.audit import Action
from kafka_steward.journal.store import Journal
from tests.airflow_home import Connect
from tests.simulated_plan import lose, memory_journal
from tests.simulator import Simulator

__all__ = ["Cluster", "MakeCluster", "gauges", "make_cluster"]

CONN_ID = "kafka_test"


class Cluster(Simulator):
    """A simulator behind the connection `kafka_test`, with a journal in memory; `opened` counts open connections."""

    journal: Journal
    opened = 0

    @property
    def zookeeper_mode(self) -> bool:
        return self.mode == "zookeeper"

    def close(self) -> None:
        self.opened -= 1

    def lose(self, *brokers: int) -> None:
        """Kill brokers; they stay known to the journal, and on KRaft they are registered no more."""
        lose(self, self.journal, *brokers)
        self.unregistered |= set(brokers)

    def replicas(self) -> dict[str, tuple[int, ...]]:
        return {str(name): partition.replicas for name, partition in self.topics.items()}

    def noted(self, action: Action) -> list[tuple[str | None, str | None]]:
        """Topic, and the task on whose behalf, of each row of the audit trail with this action."""
        return [(row.entry.topic, row.entry.who.task_id) for row in self.journal.audit.rows(action=action)]


class MakeCluster:
    """Make the cluster of a test; the keywords are settings of its Airflow connection."""

    def __init__(self, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
        self._connect, self._monkeypatch = connect, monkeypatch
        self.made: list[Cluster] = []

    def __call__(self, brokers: str, *topics: str, mode: str = "zookeeper", **settings: Any) -> Cluster:
        cluster = Cluster.of(brokers, *topics, mode=mode)
        assert isinstance(cluster, Cluster)
        cluster.journal = memory_journal(cluster)
        cluster.journal.conn_id = CONN_ID
        self._connect(CONN_ID, extra={"throttle": 0, **settings})

        def connected(_: StewardHook) -> Cluster:
            cluster.opened += 1
            return cluster

        self._monkeypatch.setattr(StewardHook, "cluster", connected)
        self._monkeypatch.setattr(StewardHook, "journal", lambda *_, **__: cluster.journal)
        self.made.append(cluster)
        return cluster


@pytest.fixture
def make_cluster(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeCluster]:
    make = MakeCluster(connect, monkeypatch)
    yield make
    assert [cluster.opened for cluster in make.made] == [0] * len(make.made), "a task left a connection open"


@pytest.fixture
def gauges(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[float, Any]]:
    """The gauges that were set, by name: value and tags."""
    values: dict[str, tuple[float, Any]] = {}
    monkeypatch.setattr(stats, "gauge", lambda name, value, tags=None: values.update({name: (value, tags)}))
    return values
