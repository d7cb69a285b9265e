"""One observation of a cluster: what a tick of the watch asks Kafka, at most once, and only when it is needed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

from kafka_steward.cluster.state import Broker, Snapshot
from kafka_steward.errors import ClusterError
from kafka_steward.execution.ports import ClusterPort

T = TypeVar("T")


class ObservedCluster:
    """A cluster whose live brokers and metadata are read at most once in a tick, for all deciders together.

    A request that failed is not repeated in the tick either: each decider gets its error. All other requests are
    passed on. It is for those that read; who changes the cluster reads it anew.
    """

    def __init__(self, cluster: ClusterPort) -> None:
        self._cluster = cluster
        self._answers: dict[str, Any] = {}

    def begin_tick(self) -> None:
        """Forget what the tick before has read."""
        self._answers = {}

    def live_brokers(self) -> dict[int, Broker]:
        """Return the brokers that serve, as specified by `ClusterPort.live_brokers`."""
        return self._read_once("live_brokers", self._cluster.live_brokers)

    def snapshot(self, topics: Collection[str] | None = None) -> Snapshot:
        """Return brokers and partitions, as specified by `ClusterPort.snapshot`; only a full one is kept."""
        return self._cluster.snapshot(topics) if topics is not None else self._read_once("", self._cluster.snapshot)

    def _read_once(self, name: str, read: Callable[[], T]) -> T:
        if name not in self._answers:
            try:
                self._answers[name] = read()
            except ClusterError as error:
                self._answers[name] = error
        answer: T | ClusterError = self._answers[name]
        if isinstance(answer, ClusterError):
            raise answer
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)
