"""What sentences are tried on: a real cluster, a hand for its documents, a watch that is started and stopped."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.cluster.state import Partition
from kafka_steward.execution.throttles.rates import ThrottleSide
from kafka_steward.journal.store import open_journal
from kafka_steward.sandbox import Sandbox
from kafka_steward.triggers.watch import WatchTrigger
from tests.airflow_home import Connect
from tests.eventually import eventually
from tests.journal.zookeeper import connected
from tests.pace import Deadline
from tests.present import present
from tests.protocol.raw_writers import Hands, KazooHands, SqlHands
from tests.protocol.simulated_watch import document

__all__ = ["SLOW", "Site", "gone", "same", "site"]

#: Slow enough for a move of this many bytes to be seen in flight: Kafka's quota lets 2 MB through at once, and then one
#: every 10 s. Who has seen enough lets it `hurry`.
SLOW, SIZE = {"throttle": 100_000, "step_interval": 0.5}, 6_000_000


class Site:
    """A real cluster, a hand for its documents, and a watch that can be started and stopped.

    `state` is a hand for the journal's database, which has our own documents.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        cluster: KafkaCluster,
        state: SqlHands,
        conn_id: str,
        topic: str,
        *,
        hands: Hands | None = None,
    ) -> None:
        self.sandbox, self.cluster, self.state, self.conn_id, self.topic = sandbox, cluster, state, conn_id, topic
        self.hands = hands or state
        self.said: list[str] = []

    @contextmanager
    def watch(self, *, abandon: bool = False, **overrides: Any) -> Iterator[None]:
        """The trigger, as the triggerer runs it, in a loop of its own."""
        section = {
            f"AIRFLOW__KAFKA_STEWARD__{name.upper()}": str(value) for name, value in {**SLOW, **overrides}.items()
        }
        with patch.dict(os.environ, section):
            yield from self._watching(abandon=abandon)

    def _watching(self, *, abandon: bool) -> Iterator[None]:
        loop = asyncio.new_event_loop()
        trigger = WatchTrigger(self.conn_id)

        def note(line: str, *rest: Any) -> None:
            self.note(line % rest)

        watch = trigger._watch
        watch.failures.reporter._log = watch._log = watch._log_warning = watch._log_error = note

        async def listen() -> None:
            async for _ in trigger.run():
                pass

        task = loop.create_task(listen())
        thread = threading.Thread(target=lambda: _until_cancelled(loop, task))
        thread.start()
        try:
            yield
            if not abandon:
                eventually(self.free, within=60)  # throttles are given back at a plan's end
        finally:
            loop.call_soon_threadsafe(task.cancel)
            limit = Deadline(30)
            while thread.is_alive() and not limit.passed():
                thread.join(0.5)
            assert not thread.is_alive(), "the watch goes on after its cancel"
            loop.run_until_complete(trigger.cleanup())
            loop.close()

    def note(self, line: str) -> None:
        self.said.append(line)
        print(f"{time.time():.1f} {line}")  # a failure shows what was said, and when

    def free(self) -> None:
        """No plan has the cluster."""
        assert all(json.loads(row)["holders"] == [] for row in self.state.rows("slot"))

    def create(self, *replicas: str, large: bool = False) -> None:
        assignments = {number: list(map(int, each)) for number, each in enumerate(replicas)}
        self.sandbox.create_topics(self.topic, assignments=assignments)
        if large:
            self.sandbox.fill(self.topic, SIZE * len(replicas))

    def hurry(self, *brokers: int) -> None:
        """Enough was seen of what is in flight into these brokers, or into any: let it arrive."""
        fast = [ConfigChange(ThrottleSide.FOLLOWER.rate_key, ConfigOp.SET, "100000000")]
        self.cluster.change_broker_configs(dict.fromkeys(brokers or self.sandbox.brokers, fast))

    def document(self, *wanted: str, **more: Any) -> str:
        return document([f"{self.topic}-{each}" for each in wanted], **more)

    def record(self, number: int = 0) -> Any:
        seen = self.hands.get(f"/admin/reassignments/{self.topic}/{number}")
        return None if seen is None else SimpleNamespace(**{**json.loads(seen.data), **vars(seen)})

    def partition(self, number: int = 0) -> Partition:
        return self.cluster.snapshot([self.topic]).partitions[TopicPartition(self.topic, number)]

    def replicas(self, number: int = 0) -> list[int]:
        return list(self.partition(number).replicas)

    def in_flight(self) -> list[int]:
        return sorted(name.partition for name in self.cluster.reassignments() if name.topic == self.topic)

    def eventually_at(self, *replicas: list[int], within: float = 60, hurried: bool = False) -> None:
        def there() -> None:
            if hurried:  # each time: what waited for its turn begins with a throttle of its own
                self.hurry()
            assert [self.replicas(number) for number in range(len(replicas))] == list(replicas)
            assert self.in_flight() == []

        eventually(there, within=within, every=1, errors=(KeyError,))

    def eventually_in_flight(self, number: int, *target: int) -> Any:
        def in_flight() -> Any:
            record = present(self.record(number))
            assert record.replicas == list(target)
            assert number in self.in_flight()
            return record

        return eventually(in_flight, within=90)


def _until_cancelled(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
    with suppress(asyncio.CancelledError):
        loop.run_until_complete(task)


@pytest.fixture
def site(
    sandbox: Sandbox, connect: Connect, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Site]:
    journal = tmp_path / "journal.db"
    with KafkaCluster({"bootstrap_servers": sandbox.bootstrap}) as cluster:
        open_journal(f"sqlite:///{journal}", cluster.cluster_id, compare=False).close()  # its tables
        monkeypatch.setattr("kafka_steward.triggers.documents.POLL_S", 1.0)
        extra = {"journal": f"sqlite:///{journal}", "bootstrap_timeout_ms": 30_000}
        state = SqlHands(journal, cluster.cluster_id)
        if sandbox.zookeeper is None:
            conn_id = connect(host=sandbox.bootstrap, extra=extra)
            yield Site(sandbox, cluster, state, conn_id, topic)
        else:
            with kazoo_hands(sandbox.zookeeper) as hands:
                conn_id = connect(host=sandbox.bootstrap, extra={**extra, "zookeeper": sandbox.zookeeper})
                yield Site(sandbox, cluster, state, conn_id, topic, hands=hands)
        sandbox.restore()  # a dead broker keeps its rate
        clear = [ConfigChange(ThrottleSide.FOLLOWER.rate_key, ConfigOp.DELETE)]
        cluster.change_broker_configs(dict.fromkeys(sandbox.brokers, clear))


@contextmanager
def kazoo_hands(servers: str) -> Iterator[KazooHands]:
    """Hands that leave nothing behind."""
    with connected(servers) as client:
        hands = KazooHands(client)
        hands.sweep()
        try:
            yield hands
        finally:
            hands.sweep()


def gone(hands: Hands, *paths: str) -> Callable[[], None]:
    def check() -> None:
        assert [path for path in paths if hands.get(path) is not None] == []

    return check


def same(found: object, expected: object) -> None:
    assert found == expected
