"""Requests to ZooKeeper: one connection, bounded waiting, and errors in one sentence."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import Auth

from kafka_steward.errors import (
    JournalError,
    JournalUnreachable,
    NodeExists,
    NodeMissing,
    SettingError,
    VersionConflict,
)
from kafka_steward.journal.zk_acls import our_acl
from kafka_steward.journal.zk_options import ZooKeeperOptions

__all__ = ["ZkSession", "conflict", "missing", "start_client", "stop_client"]

#: So many reads are on their way at once: a server answers them well within the time-out.
_AT_ONCE = 500


class ZkSession:
    """A connection that is made when it is first needed, and anew after a time-out or a fork.

    Sessions may end and begin again: nothing here is bound to one, neither a watch nor an ephemeral node.
    """

    def __init__(self, options: ZooKeeperOptions) -> None:
        self._options = options
        self._client: Any = None
        self._pid = os.getpid()
        self._opening = threading.Lock()

    def call(self, ask: Callable[[Any], Any], path: str = "", version: int = 0) -> Any:
        """One request, answered within the time-out. `ask` makes it; `path` and `version` are for the sentence.

        Raises NodeExists, NodeMissing, VersionConflict, JournalError, SettingError when the chroot or a certificate is
        not there, and JournalUnreachable: whether a change was made is then unknown, but it is made no later.
        """
        with _in_words(self._options, path, version):
            client = self._connected()
            try:
                return ask(client).get(timeout=self._options.timeout_s)
            except KazooTimeoutError:
                # Requests wait in line for the connection to come back: ours must not be made by then.
                self._drop(client)
                raise

    def repeat(self, ask: Callable[[Any], Any]) -> Any:
        """A request that may be made twice, such as a read: made again when a session ended under it."""
        try:
            return self.call(ask)
        except JournalUnreachable as error:
            if not isinstance(error.__cause__, ConnectionLoss | SessionExpiredError | ConnectionClosedError):
                raise
            self._drop(self._client)
            return self.call(ask)

    def read(self, paths: Sequence[str]) -> list[Any]:
        """Data and stat of each path, all asked for at once; None for one that is gone."""
        found: list[Any] = []
        for start in range(0, len(paths), _AT_ONCE):
            found += self.repeat(partial(_Answers.of, paths[start : start + _AT_ONCE]))
        return found

    def close(self) -> None:
        """End the connection. Harmless when called twice."""
        with self._opening:
            client, self._client = self._client, None
            if client is not None and self._pid == os.getpid():
                stop_client(client)

    def _drop(self, client: Any) -> None:
        with self._opening:
            if self._client is client:
                self._client = None
        if client is not None:
            stop_client(client)

    def _connected(self) -> Any:
        with self._opening:
            if self._pid != os.getpid():
                # The parent's session is still the parent's: forget it without closing.
                self._client, self._pid = None, os.getpid()
            if self._client is None:
                self._client = start_client(self._options)
            return self._client


class _Answers:
    """Many requests under way, as one; a node that is gone is answered by None."""

    def __init__(self, asked: Sequence[Any]) -> None:
        self._asked = asked

    @classmethod
    def of(cls, paths: Sequence[str], client: Any) -> _Answers:
        """Ask for the data of each."""
        return cls([client.get_async(path) for path in paths])

    def get(self, timeout: float) -> list[Any]:
        """All answers. Raises what kazoo raises for the first that fails."""
        deadline = time.monotonic() + timeout
        return [self._answer(each, max(0.0, deadline - time.monotonic())) for each in self._asked]

    def _answer(self, asked: Any, timeout: float) -> Any:
        try:
            return asked.get(timeout=timeout)
        except (NoNodeError, NoAuthError):
            return None  # gone, or somebody's who lets nobody read it: it must not hide the others


class _NoSecrets(logging.Filter):
    """Keeps out of every log what kazoo says of the credentials that it sends, and of a session's password."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log it."""
        given = record.args if isinstance(record.args, tuple) else ()
        return record.levelno >= logging.DEBUG and not any(isinstance(each, Auth) for each in given)


#: Beside kazoo's own, so that other clients in this process log as they like.
_log = logging.getLogger("kazoo.client.steward")
_log.addFilter(_NoSecrets())


def start_client(options: ZooKeeperOptions) -> Any:
    """A connected kazoo client, under the chroot. Raises what kazoo raises.

    Raises SettingError when the chroot does not exist: a misspelled one would be a new, empty journal.
    """
    client = KazooClient(
        hosts=options.servers,
        timeout=options.timeout_s,
        auth_data=[("digest", options.digest)] if options.digest else None,
        default_acl=our_acl(options.digest),
        logger=_log,
        **options.kazoo_tls(),
    )
    try:
        client.start(timeout=options.timeout_s)
        if options.chroot:
            _enter(client, options)
    except BaseException:
        stop_client(client)
        raise
    return client


def _enter(client: Any, options: ZooKeeperOptions) -> None:
    try:
        found = client.exists_async(options.chroot).get(timeout=options.timeout_s)
    except ValueError as error:  # a path that cannot be one
        raise SettingError(f"The setting zookeeper is {options.hosts}, whose chroot is no path ({error}).") from error
    if found is None:
        raise SettingError(
            f"The chroot {options.chroot} does not exist in ZooKeeper at {options.servers}; mend the setting "
            "zookeeper, which is the brokers' zookeeper.connect, or create that node if no Kafka is to be there."
        )
    client.chroot = options.chroot


def stop_client(client: Any) -> None:
    """End a client's session and threads."""
    client.stop()
    client.close()


def missing(path: str) -> NodeMissing:
    """The error for a node that is gone."""
    return NodeMissing(f"{path} does not exist any more; read again before changing it.")


def conflict(path: str, version: int) -> VersionConflict:
    """The error for a node that someone changed."""
    return VersionConflict(f"{path} was changed since version {version} was read; read it again.")


@contextmanager
def _in_words(options: ZooKeeperOptions, path: str, version: int) -> Iterator[None]:
    where = f"ZooKeeper at {options.hosts}"
    try:
        yield
    except NodeExistsError as error:
        raise NodeExists(f"{path} exists already; read it before changing it.") from error
    except NoNodeError as error:
        raise missing(path) from error
    except BadVersionError as error:
        raise conflict(path, version) from error
    except NotEmptyError as error:
        raise JournalError(f"{path} has others below it and cannot be deleted; delete those first.") from error
    except (NoAuthError, AuthFailedError) as error:
        raise JournalError(
            f"{where} does not let us change {path or 'the journal'}; mend the credentials, or the access list there."
        ) from error
    except (KazooTimeoutError, KazooException, OSError) as error:
        words = str(error) or type(error).__name__
        raise JournalUnreachable(f"{where} does not answer ({words}); try again when it does.") from error
