"""Notification of changes in ZooKeeper as they happen, so that the document controller need not poll all the time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import KazooException, NoAuthError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.handlers.utils import wrap

from kafka_steward.errors import JournalError
from kafka_steward.journal import paths
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from kafka_steward.journal.zookeeper.session import (
    EnsurePathRequest,
    forbidden_error,
    start_client,
    stop_client,
    unreachable_error,
)

if TYPE_CHECKING:
    from typing import Self


#: Kafka's znodes for the controller, and for the live brokers.
CONTROLLER, _BROKERS = "/controller", "/brokers/ids"

_NODES = (
    paths.CANCEL_IN_PROGRESS,
    paths.REASSIGN_CANCEL,
    paths.REASSIGN_QUEUE,
    paths.REASSIGN_PARTITIONS,
    CONTROLLER,
)

_PARENTS = (paths.REASSIGNMENT_REQUESTS, paths.ROLLING_BOUNCE)


class ZooKeeperWatcher:
    """A watch on the KIPs' documents, the brokers and the controller; a context manager. Create it after a fork.

    `on_change` is called with a path after each change of it, on a thread of the client: it must not block. It is also
    called for each path when the watch starts. The watch survives lost sessions and reports missed changes afterwards.
    Raises JournalUnreachable, JournalError for a node that may not be read, and SettingError when the chroot does not
    exist.
    """

    def __init__(self, options: ZooKeeperOptions, on_change: Callable[[str], None]) -> None:
        self._on_change = on_change
        self._created: dict[str, int] = {}
        self._where = options.place
        try:
            self._client = start_client(options)
        except (KazooTimeoutError, KazooException, OSError) as error:
            raise unreachable_error(options, error) from error
        try:
            self._start_watches(options.timeout_s)
        except (KazooTimeoutError, KazooException) as error:
            self.close()
            raise unreachable_error(options, error) from error
        except JournalError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the session and its threads."""
        stop_client(self._client)

    def _start_watches(self, timeout_s: float) -> None:
        for path in _PARENTS:
            try:
                EnsurePathRequest(self._client, path).get(timeout_s)
            except NoAuthError as error:
                raise forbidden_error(self._where, f"create {path}") from error
        # The client's watches read the watched node, and wait for the response without a time limit of their own.
        answer = self._client.handler.async_result()
        self._client.handler.spawn(wrap(answer)(self._watch_all))
        answer.get(timeout=timeout_s)

    def _watch_all(self) -> bool:
        for path in (*_PARENTS, _BROKERS):
            self._watch_data(path, partial(self._on_parent_change, path))
        for path in _NODES:
            self._watch_data(path, partial(self._on_node_change, path))
        return True  # kazoo does not take None as a result

    def _watch_data(self, path: str, changed: Callable[..., None]) -> None:
        try:
            self._client.DataWatch(path, changed)
        except NoAuthError as error:
            raise forbidden_error(self._where, f"read {path}") from error

    def _on_parent_change(self, path: str, _: object, stat: Any, *__: object) -> None:
        # The client's watch on children ends when their parent is deleted: a re-created parent needs a new one.
        if stat is not None and stat.czxid != self._created.get(path):
            self._client.ChildrenWatch(path, partial(self._on_node_change, path))
            self._created[path] = stat.czxid

    def _on_node_change(self, path: str, *_: Any) -> None:
        self._on_change(path)
