"""An open cluster and its open journal."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Self

from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.hooks.cluster_config import ClusterConfig
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.store import Journal
from kafka_steward.settings import Settings


@dataclass(frozen=True)
class ClusterSession:
    """An open cluster and its open journal. As a context manager it closes both."""

    access: ClusterConfig
    cluster: KafkaCluster
    journal: Journal
    _close_callbacks: ExitStack = field(default_factory=ExitStack, init=False, repr=False, compare=False)

    @property
    def settings(self) -> Settings:
        """The cluster's settings."""
        return self.access.settings

    @property
    def origin(self) -> dict[str, str] | None:
        """The identity of the journal, for a process that resumes the work: `{"id", "place"}`, without a password.

        None for a journal without an identity.
        """
        return None if self.journal.identity is None else self.journal.identity.to_json()

    def context(self, actor: Actor) -> ClusterContext:
        """Return the context of changes by `actor`."""
        return ClusterContext(self.cluster, self.journal, self.settings, actor)

    def add_close_callback(self, close: Callable[[], None]) -> None:
        """Call `close` before the connections are closed: dependent resources are closed first."""
        self._close_callbacks.callback(close)

    def close(self) -> None:
        """Close the cluster's connections and the journal's."""
        with ExitStack() as closing:
            closing.callback(self.journal.close)
            closing.callback(self.cluster.close)
            closing.enter_context(self._close_callbacks)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
