"""What ZooKeeper knows about a cluster at once: which brokers have a session, and which one is the controller.

Only clusters in ZooKeeper mode have it. Nothing is ever written: the Admin API does all that is needed on them, and an
outside write to the znodes that Kafka watches can cost the controller its watch (KAFKA-9478).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from kafka_steward.errors import ClusterUnreachable, DocumentError

__all__ = ["BrokerSession", "BrokerWatch"]

_BROKERS, _CONTROLLER, _CLUSTER = "/brokers/ids", "/controller", "/cluster/id"
#: kazoo reports each lost connection and each retry; what matters is in `connected`.
_LOG = logging.getLogger("kafka_steward.kazoo")
_LOG.setLevel(logging.CRITICAL)


@dataclass(frozen=True, slots=True)
class BrokerSession:
    """A broker's registration: ZooKeeper's session that holds it, and since when (ZooKeeper's clock, ms)."""

    broker: int
    session_id: int
    since_ms: int


class BrokerWatch:
    """Watches `/brokers/ids` and `/controller` of one cluster, used as a context manager. Create it after a fork.

    `hosts` is Kafka's `zookeeper.connect`: `host:port,host:port/chroot`. `on_change` is called after each change, on
    one of its threads: it must not block, nor ask for more than the properties. Raises ClusterUnreachable.
    """

    def __init__(self, hosts: str, on_change: Callable[[], None] = lambda: None, *, timeout_s: float = 10.0) -> None:
        self._hosts = hosts
        self._on_change = on_change
        self._brokers: frozenset[int] = frozenset()
        self._controller: int | None = None
        self._timeout_s = timeout_s
        self._client = KazooClient(hosts=hosts, timeout=timeout_s, logger=_LOG)
        self._client.add_listener(self._state_changed)
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> BrokerWatch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the session and the threads."""
        self._client.stop()
        self._client.close()

    @property
    def brokers(self) -> frozenset[int]:
        """The brokers that had a session when ZooKeeper last said so."""
        return self._brokers

    @property
    def controller(self) -> int | None:
        """The controller when ZooKeeper last said so; None while there is none."""
        return self._controller

    @property
    def connected(self) -> bool:
        """Whether what the other properties say is current."""
        return bool(self._client.state == KazooState.CONNECTED)

    def cluster_id(self) -> str:
        """Kafka's id of the cluster, to be held against the brokers' own word. Raises ClusterUnreachable."""
        try:
            return str(_document(_CLUSTER, self._get(_CLUSTER)[0])["id"])
        except (KazooTimeoutError, KazooException) as error:
            raise self._sentence(error) from error

    def sessions(self) -> dict[int, BrokerSession]:
        """The registrations of the live brokers, read now. Raises ClusterUnreachable."""
        sessions = {}
        for broker in sorted(self._brokers):
            try:
                _, stat = self._get(f"{_BROKERS}/{broker}")
            except NoNodeError:
                # Its session ended a moment ago.
                continue
            except (KazooTimeoutError, KazooException) as error:
                raise self._sentence(error) from error
            sessions[broker] = BrokerSession(broker, int(stat.ephemeralOwner), int(stat.ctime))
        return sessions

    def _start(self) -> None:
        try:
            self._client.start(timeout=self._timeout_s)
            # A watch on a node that does not exist would wait for ever, and say nothing.
            self._get(_BROKERS)
            self._client.ChildrenWatch(_BROKERS, self._brokers_changed)
            self._client.DataWatch(_CONTROLLER, self._controller_changed)
        except (KazooTimeoutError, KazooException) as error:
            raise self._sentence(error) from error

    def _get(self, path: str) -> tuple[bytes, Any]:
        """A znode's data and stat. Without the time-out, kazoo would wait until ZooKeeper is back."""
        data, stat = self._client.get_async(path).get(timeout=self._timeout_s)
        return bytes(data or b""), stat

    def _brokers_changed(self, children: list[str]) -> None:
        self._brokers = frozenset(int(child) for child in children if child.isdecimal())
        self._on_change()

    def _controller_changed(self, data: bytes | None, _stat: Any) -> None:
        self._controller = None if data is None else int(_document(_CONTROLLER, data)["brokerid"])
        self._on_change()

    def _state_changed(self, _state: str) -> None:
        self._on_change()

    def _sentence(self, error: Exception) -> ClusterUnreachable:
        if isinstance(error, NoNodeError):
            return ClusterUnreachable(
                f"ZooKeeper at {self._hosts} holds no Kafka cluster; check the path after the last port."
            )
        if isinstance(error, KazooTimeoutError):
            return ClusterUnreachable(
                f"ZooKeeper at {self._hosts} did not answer within {self._timeout_s:g} s; check that it runs."
            )
        return ClusterUnreachable(f"ZooKeeper at {self._hosts} cannot be read ({type(error).__name__}); try again.")


def _document(path: str, data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except ValueError as error:
        raise DocumentError(f"The znode {path} is not JSON; Kafka writes JSON there.") from error
    if not isinstance(document, dict):
        raise DocumentError(f"The znode {path} is not a JSON object; Kafka writes one there.")
    return document
