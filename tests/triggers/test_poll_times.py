"""Each loop of the watch records in the journal that its poll succeeded, and when: people and `status` read the age."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import sqlalchemy as sa
from airflow.sdk.observability import stats

from kafka_steward.errors import ClusterUnreachable
from kafka_steward.hooks.steward import ClusterSession
from kafka_steward.journal import paths
from kafka_steward.journal.sql.history import PollTimes
from kafka_steward.journal.store import open_journal
from kafka_steward.settings import Settings
from kafka_steward.triggers.base import ClusterWorker
from kafka_steward.triggers.documents import DocumentCheck
from kafka_steward.triggers.periodic import (
    BrokerFailureCheck,
    BrokerJoinCheck,
    ClusterHealthCheck,
    EmptyBrokerCheck,
    PeriodicCheck,
)
from tests.protocol.simulated_watch import document
from tests.simulator import Simulator

Poll = Callable[[ClusterSession], object]


def documents() -> Poll:
    return DocumentCheck("kafka", {}, ["request"], lambda *_: None, lambda: None)._poll_and_record


def rounds(kind: type[PeriodicCheck[Any]]) -> Poll:
    return kind("kafka", ClusterWorker("kafka", {}), lambda *_: None)._poll_and_record


POLLS: dict[str, Callable[[], Poll]] = {
    "failures": lambda: rounds(BrokerFailureCheck),
    "documents": documents,
    "health": lambda: rounds(ClusterHealthCheck),
    "joined_brokers": lambda: rounds(BrokerJoinCheck),
    "empty_brokers": lambda: rounds(EmptyBrokerCheck),
}
each_poll = pytest.mark.parametrize("kind", POLLS)


@dataclass
class Watched:
    """A simulated cluster, and a journal in a file, opened on the host db-7 as a trigger opens them."""

    simulator: Simulator
    opened: ClusterSession
    file: Path

    def rows(self) -> list[dict[str, Any]]:
        looks = self.opened.journal.poll_times
        assert isinstance(looks, PollTimes)
        return looks.rows()

    def age(self, ms: int) -> None:
        engine = sa.create_engine(f"sqlite:///{self.file}")
        with engine.begin() as connection:
            connection.execute(sa.text("UPDATE steward_look SET at_ms = at_ms - :ms"), {"ms": ms})
        engine.dispose()


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    monkeypatch.setattr(stats, "gauge", lambda *_, **__: None)
    simulator, file = Simulator.of("1a 2b 3c", "t: 12"), tmp_path / "journal.db"
    access = SimpleNamespace(conn_id="kafka", zookeeper=None, settings=Settings())
    with open_journal(f"sqlite:///{file}", simulator.cluster_id, host="db-7") as journal:
        yield Watched(simulator, ClusterSession(cast("Any", access), cast("Any", simulator), journal), file)


@each_poll
def test_a_poll_that_succeeds_is_recorded_with_its_host_and_its_time(kind: str, watched: Watched) -> None:
    before_ms = watched.opened.journal.now_ms()
    POLLS[kind]()(watched.opened)
    (row,) = watched.rows()
    after_ms = watched.opened.journal.now_ms()
    assert (row["kind"], row["host"]) == (kind, "db-7")
    assert before_ms <= row["at_ms"] <= after_ms
    watched.age(5_000_000)
    (row,) = watched.rows()
    assert 5_000_000 <= row["age_ms"] <= 5_000_000 + watched.opened.journal.now_ms() - before_ms


@each_poll
def test_a_poll_that_fails_is_not_recorded(kind: str, watched: Watched) -> None:
    poll = POLLS[kind]()
    watched.simulator.reachable = False
    # Without these documents, the poll of the documents and the poll for joined brokers ask Kafka nothing.
    watched.opened.journal.tree.create("/steward/pending_replicas/t/0", '{"version": 1, "replicas": [1, 2, -1]}')
    watched.opened.journal.tree.create_sequential(paths.REQUEST_PREFIX, document(["t-0 23"]))
    with pytest.raises(ClusterUnreachable):
        poll(watched.opened)
    assert watched.rows() == []
