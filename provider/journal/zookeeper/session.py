"""Requests to ZooKeeper, and the access control lists of the journal's nodes.

There is one connection, with a time limit for each request; errors are one-line messages.

With digest credentials, the nodes that we create are readable by everyone and writable by us alone. Nodes that were
created earlier without credentials are writable by everyone: they are closed when a process first opens the journal.
Children are closed before their parent. A closed parent therefore implies that all nodes below it are closed, and the
next process checks the roots only.

Two nodes are not ours: `/admin`, where Kafka keeps nodes of its own, and `/admin/reassign_partitions`, which Kafka
changes and deletes while it executes it. They have Kafka's ACL, or none.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
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
from kazoo.security import ACL, OPEN_ACL_UNSAFE, Permissions, make_acl, make_digest_acl
from kazoo.security import Id as Identity

from kafka_steward.errors import JournalError, JournalUnreachable, SettingError
from kafka_steward.journal import paths
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions

_ADMIN = "/admin"

#: The nodes under which our documents and the KIPs' are.
ROOTS = (
    "/steward",
    paths.FAILED_BROKERS,
    paths.ROLLING_BOUNCE,
    paths.REASSIGN_CANCEL,
    paths.CANCEL_IN_PROGRESS,
    paths.REASSIGNMENT_REQUESTS,
    paths.REASSIGN_QUEUE,
    paths.REASSIGN_CHUNKS,
    paths.REASSIGNMENTS,
)

_EVERYONE = Identity("world", "anyone")

_CHANGES = Permissions.WRITE | Permissions.CREATE | Permissions.DELETE | Permissions.ADMIN

#: The depth of the paths of single documents; below them there are many.
_SINGLE_DEPTH = 2

#: The number of concurrent requests.
_AT_ONCE = 500

#: The attempts to connect for which a request's time-out has room. A server that is just starting may accept a
#: connection and never answer on it, for which kazoo waits as long as it lets a session last. More attempts would make
#: sessions shorter: kazoo drops a connection, and all that was sent on it, after six tenths of one without an answer.
_ATTEMPTS = 2

#: The longest wait in seconds between two attempts. kazoo's own doubles each time, up to an hour: a connection that
#: nobody uses meanwhile would be away for as long again as the server was.
_LONGEST_WAIT_S = 1.0

#: The limits, per opening, on the number and depth of nodes to close; the next opening of the journal continues.
_MOST, _DEEPEST = 50_000, 12


def our_acl(digest: str | None) -> list[ACL] | None:
    """Return the ACL of our nodes: all rights for the creator, read for others. None without a digest: open to all."""
    if not digest:
        return None
    user, _, password = digest.partition(":")
    return [make_digest_acl(user, password, all=True), make_acl("world", "anyone", read=True)]


def acl_template_path(path: str) -> str | None:
    """Return the node whose ACL `path` must have because Kafka changes and deletes it; None if `path` is ours."""
    return _ADMIN if path == paths.REASSIGN_PARTITIONS else None


def has_hidden_digest(acls: Sequence[ACL]) -> bool:
    """Return whether ZooKeeper replaced a digest by `x`, as it does for clients that may not change the ACL."""
    return any(acl.id.scheme == "digest" and acl.id.id.endswith(":x") for acl in acls)


class EnsurePathRequest:
    """A node to create if it is missing, with its parents. It has the `get` of a kazoo async result."""

    def __init__(self, client: Any, path: str) -> None:
        self._client, self._path = client, path

    def get(self, timeout: float) -> None:
        """Create the node. Each request completes within `timeout` seconds, or raises kazoo's error."""
        names = self._path.strip("/").split("/")
        for depth in range(1, len(names) + 1):
            path = "/" + "/".join(names[:depth])
            # Kafka without credentials creates /admin with the same ACL: it adds nodes of its own below it.
            acl = OPEN_ACL_UNSAFE if path == _ADMIN else None
            try:
                self._client.create_async(path, acl=acl).get(timeout=timeout)
            except NodeExistsError:
                continue
            except NoAuthError:
                # ZooKeeper checks the right to create before it looks whether the node exists already.
                if self._client.exists_async(path).get(timeout=timeout) is None:
                    raise


class CloseNodesRequest:
    """The closing of our nodes to other clients. It has the `get` of a kazoo async result."""

    def __init__(self, client: Any, acl: Sequence[ACL], most: int = _MOST) -> None:
        self._client, self._acl, self._may = client, list(acl), most
        self._left = 0
        self._timeout = 0.0

    def get(self, timeout: float) -> int:
        """Close the open nodes; return the number of nodes that stay open. Raises kazoo's errors."""
        self._timeout = timeout
        self._close_nodes(ROOTS)
        return self._left

    def _close_nodes(self, wanted: Sequence[str]) -> None:
        """Close the open nodes among `wanted`, each after the nodes below it."""
        for start in range(0, len(wanted), _AT_ONCE):
            batch = wanted[start : start + _AT_ONCE]
            answers = self._results_or_none([self._client.get_acls_async(path) for path in batch])
            opened = [
                (path, answer[1])
                for path, answer in zip(batch, answers, strict=True)
                if answer is not None and any(acl.id == _EVERYONE and acl.perms & _CHANGES for acl in answer[0])
            ]
            whole = [path for path, stat in opened if self._is_closed_below(path, stat) and self._spend_allowance()]
            changed = self._results_or_none([self._client.set_acls_async(path, self._acl) for path in whole])
            self._left += len(opened) - sum(answer is not None for answer in changed)

    def _is_closed_below(self, path: str, stat: Any) -> bool:
        if not stat.numChildren:
            return True
        if path.count("/") >= _DEEPEST:
            return False
        left = self._left
        names = self._result_or_none(self._client.get_children_async(path)) or []
        self._close_nodes([f"{path}/{name}" for name in names])
        return self._left == left

    def _spend_allowance(self) -> bool:
        self._may -= 1
        return self._may >= 0

    def _results_or_none(self, asked: Sequence[Any]) -> list[Any]:
        """Return the result of each request; None for a node that is missing or that we may not change."""
        return [self._result_or_none(request) for request in asked]

    def _result_or_none(self, asked: Any) -> Any:
        with suppress(NoNodeError, NoAuthError):
            return asked.get(timeout=self._timeout)
        return None


class ZkSession:
    """A connection that is opened on first use, and opened again after a time-out or a fork.

    Sessions may end and be replaced: nothing here depends on one, neither a watch nor an ephemeral node.
    """

    def __init__(self, options: ZooKeeperOptions) -> None:
        self._options = options
        self._client: Any = None
        self._pid = os.getpid()
        self._opening = threading.Lock()

    def call(self, ask: Callable[[Any], Any], path: str = "", *, doing: str = "change") -> Any:
        """Send one request and return its result within the time-out.

        `ask` makes the request; `path` and `doing` are for error messages. Raises JournalError, SettingError when the
        chroot or a certificate does not exist, and JournalUnreachable: it is then unknown whether a change was made,
        but it is not made later.
        """
        with _translate_errors(self._options, path, doing):
            client = self._connected_client()
            try:
                return ask(client).get(timeout=self._options.timeout_s)
            except KazooTimeoutError:
                # kazoo queues requests until the connection is restored: ours must not be sent then.
                self._drop_client(client)
                raise

    def call_idempotent(self, ask: Callable[[Any], Any], path: str = "", *, doing: str = "read") -> Any:
        """Send a request that may be executed twice, such as a read; send it again if the session ended during it."""
        try:
            return self.call(ask, path, doing=doing)
        except JournalUnreachable as error:
            if not isinstance(error.__cause__, ConnectionLoss | SessionExpiredError | ConnectionClosedError):
                raise
            self._drop_client(self._client)
            return self.call(ask, path, doing=doing)

    def read_each(self, paths: Sequence[str], request: Callable[[str, Any], Any]) -> list[Any]:
        """Send the request for each path concurrently; return the results, None for a node that does not exist."""
        asked = [(path, partial(request, path)) for path in paths]
        return [self._found(path, answer) for path, answer in _send_each(asked, self.call_idempotent)]

    def stats(self, paths: Sequence[str]) -> list[Any]:
        """Return the stat of each path, read concurrently; None for a node that does not exist."""
        return self.read_each(paths, lambda path, client: client.exists_async(path))

    def change_each(
        self, changes: Sequence[tuple[str, Callable[[Any], Any]]], *, may_repeat: bool = False
    ) -> list[Any]:
        """Send the changes of these paths concurrently; return the result of each, or kazoo's error.

        The error is one of `EXPECTED`, but not that of a missing right. Raises what `call` raises for that and for any
        other: some changes may have been made then. With `may_repeat` they are sent again if the session ended.
        """
        call = partial(self.call_idempotent if may_repeat else self.call, doing="change")
        return [self._allowed(f"change {path}", answer) for path, answer in _send_each(changes, call)]

    def _found(self, path: str, answer: Any) -> Any:
        if isinstance(answer, NoAuthError) and path.count("/") <= _SINGLE_DEPTH:
            return self._allowed(f"read {path}", answer)
        return None if isinstance(answer, Exception) else answer  # one of many must not hide the others

    def _allowed(self, what: str, answer: Any) -> Any:
        if isinstance(answer, NoAuthError):
            raise forbidden_error(self._options.place, what) from answer
        return answer

    def close(self) -> None:
        """Close the connection. Harmless when called twice."""
        with self._opening:
            client, self._client = self._client, None
            if client is not None and self._pid == os.getpid():
                stop_client(client)

    def _drop_client(self, client: Any) -> None:
        with self._opening:
            if self._client is client:
                self._client = None
        if client is not None:
            stop_client(client)

    def _connected_client(self) -> Any:
        with self._opening:
            if self._pid != os.getpid():
                # The session belongs to the parent process: drop the reference without closing it.
                self._client, self._pid = None, os.getpid()
            if self._client is None:
                self._client = start_client(self._options)
            return self._client


#: The errors of a request that depend on the state of one node.
EXPECTED = (NodeExistsError, NoNodeError, BadVersionError, NotEmptyError, NoAuthError)


class PipelinedRequests:
    """Concurrent requests as one kazoo async result: the result of each, or its error."""

    def __init__(self, requests: Sequence[Callable[[Any], Any]], client: Any) -> None:
        self._asked = [request(client) for request in requests]

    def get(self, timeout: float) -> list[Any]:
        """Return all results within `timeout` seconds. Raises kazoo's first error that is not one of `EXPECTED`."""
        deadline = time.monotonic() + timeout
        return [_result_or_error(request, max(0.0, deadline - time.monotonic())) for request in self._asked]


def _result_or_error(asked: Any, timeout: float) -> Any:
    try:
        return asked.get(timeout=timeout)
    except EXPECTED as error:
        return error


def _send_each(
    requests: Sequence[tuple[str, Callable[[Any], Any]]], call: Callable[..., list[Any]]
) -> Iterator[tuple[str, Any]]:
    """Send the requests about these paths, so many at once; yield the path and the answer of each."""
    for start in range(0, len(requests), _AT_ONCE):
        sent = requests[start : start + _AT_ONCE]
        answers = call(partial(PipelinedRequests, [request for _, request in sent]))
        yield from zip((path for path, _ in sent), answers, strict=True)


class _SecretsFilter(logging.Filter):
    """A filter that removes kazoo's records about the credentials that it sends, and about a session's password."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log the record."""
        given = record.args if isinstance(record.args, tuple) else ()
        return record.levelno >= logging.DEBUG and not any(isinstance(argument, Auth) for argument in given)


#: A separate logger, so that the filter does not affect other kazoo clients in this process.
_log = logging.getLogger("kazoo.client.steward")

_log.addFilter(_SecretsFilter())


def start_client(options: ZooKeeperOptions) -> Any:
    """Return a connected kazoo client, under the chroot. Raises kazoo's errors.

    Raises SettingError when the chroot does not exist: a misspelled one would be a new, empty journal.
    """
    client = KazooClient(
        hosts=options.servers,
        timeout=options.timeout_s / _ATTEMPTS,
        connection_retry={"max_tries": -1, "max_delay": _LONGEST_WAIT_S},
        auth_data=[("digest", options.digest)] if options.digest else None,
        default_acl=our_acl(options.digest),
        logger=_log,
        **options.kazoo_tls(),
    )
    try:
        client.start(timeout=options.timeout_s)
        if options.chroot:
            _enter_chroot(client, options)
    except BaseException:
        stop_client(client)
        raise
    return client


def _enter_chroot(client: Any, options: ZooKeeperOptions) -> None:
    try:
        stat = client.exists_async(options.chroot).get(timeout=options.timeout_s)
    except ValueError as error:  # an invalid path
        raise SettingError(
            f"The setting zookeeper is {options.hosts}, whose chroot is not a path ({error})."
        ) from error
    except NoAuthError as error:
        raise forbidden_error(f"ZooKeeper at {options.servers}", f"read the chroot {options.chroot}") from error
    if stat is None:
        raise SettingError(
            f"The chroot {options.chroot} does not exist in ZooKeeper at {options.servers}; correct the setting "
            "zookeeper, which is the brokers' zookeeper.connect, or create that node if no Kafka cluster uses it."
        )
    # Only now: the look for the chroot itself must not be below it.
    client.chroot = options.chroot


def stop_client(client: Any) -> None:
    """Stop a client's session and threads."""
    client.stop()
    client.close()


@contextmanager
def _translate_errors(options: ZooKeeperOptions, path: str, doing: str) -> Iterator[None]:
    try:
        yield
    except NoNodeError as error:
        raise JournalError(f"{path} no longer exists; try again.") from error
    except (NoAuthError, AuthFailedError) as error:
        raise forbidden_error(options.place, f"{doing} {path or 'the journal'}") from error
    except (KazooTimeoutError, KazooException, OSError) as error:
        raise unreachable_error(options, error) from error


def unreachable_error(options: ZooKeeperOptions, error: Exception) -> JournalUnreachable:
    """Return the error for a request that was not answered."""
    words = str(error) or type(error).__name__
    return JournalUnreachable(f"{options.place} does not answer ({words}); retry when it does.")


def forbidden_error(where: str, what: str) -> JournalError:
    """Return the error for a request that an access list does not allow; `what` names the request and its node."""
    return JournalError(
        f"{where} does not let us {what}; correct the credentials, or the ACL of the node or of its parent, as "
        "docs/permissions.md says."
    )
