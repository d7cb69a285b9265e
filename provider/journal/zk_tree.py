"""The tree on ZooKeeper's own: a node is a znode, its ids are czxid and mzxid, its times ctime and mtime.

The KIPs put their documents here, beside Kafka's own under its chroot. Two things differ from a table. A parent is a
znode too: it is made on demand, never read as a document, and may still be listed when nothing is below it any more.
And -1 is ZooKeeper's "any version": here it is a version like any other, which no node has.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionClosedError,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL, make_acl, make_digest_acl

from kafka_steward.errors import JournalError, JournalUnreachable, NodeExists, NodeMissing, VersionConflict
from kafka_steward.journal.paths import checked_path
from kafka_steward.journal.tree import Node, checked_data
from kafka_steward.journal.zk_options import ZooKeeperOptions

__all__ = ["ZkTree"]

#: Written to ask for the time: the server's clock is the modified time of what it has just written.
_CLOCK = "/steward/clock"
#: Deeper parents than this are deleted when they become empty; a sequence's parent, which counts, is never that deep.
_KEPT_DEPTH = 2
#: How often a create is tried again because its parent was deleted in between.
_TRIES = 5


class ZkTree:
    """A `Tree` on ZooKeeper. Safe in threads, and in a child after fork; outlives its sessions."""

    def __init__(self, options: ZooKeeperOptions) -> None:
        self._options = options
        self._client: Any = None
        self._pid = os.getpid()
        self._opening = threading.Lock()

    def __repr__(self) -> str:
        return f"ZkTree({self._options.hosts!r})"

    def now_ms(self) -> int:
        """ZooKeeper's clock."""
        try:
            stat: ZnodeStat = self._call(lambda client: client.set_async(_CLOCK, b""))
        except NodeMissing:
            return self._create(_CLOCK, b"").modified_ms
        return int(stat.mtime)

    def create(self, path: str, data: str) -> Node:
        """As `Tree.create`."""
        return self._create(checked_path(path), checked_data(path, data))

    def create_sequential(self, prefix: str, data: str) -> Node:
        """As `Tree.create_sequential`: ZooKeeper counts per parent."""
        return self._create(prefix, checked_data(checked_path(f"{prefix}0"), data), sequence=True)

    def get(self, path: str) -> Node | None:
        """As `Tree.get`. A znode that is only a parent is no document."""
        try:
            data, stat = self._call(lambda client: client.get_async(checked_path(path)))
        except NodeMissing:
            return None
        if not data and stat.numChildren:
            return None
        return _node(path, data or b"", stat)

    def set(self, path: str, data: str, *, version: int) -> Node:
        """As `Tree.set`."""
        encoded = checked_data(checked_path(path), data)
        self._refuse_wildcard(path, version)
        stat = self._call(lambda client: client.set_async(path, encoded, version), path, version)
        return _node(path, encoded, stat)

    def delete(self, path: str, *, version: int) -> None:
        """As `Tree.delete`. Parents deep in the tree go with their last child."""
        self._refuse_wildcard(checked_path(path), version)
        self._call(lambda client: client.delete_async(path, version), path, version)
        self._prune(path.rpartition("/")[0])

    def children(self, path: str) -> list[str]:
        """As `Tree.children`."""
        try:
            found: list[str] = self._call(lambda client: client.get_children_async(_parent(path)))
        except NodeMissing:
            return []
        return sorted(found)

    def close(self) -> None:
        """As `Tree.close`."""
        with self._opening:
            client, self._client = self._client, None
            if client is not None and self._pid == os.getpid():
                _stop(client)

    def _create(self, path: str, data: bytes, *, sequence: bool = False) -> Node:
        for _ in range(_TRIES):
            try:
                created, stat = self._call(
                    lambda client: client.create_async(path, data, sequence=sequence, makepath=True, include_data=True),
                    path,
                )
            except NodeMissing:
                continue  # someone deleted the empty parent in between
            return _node(created, data, stat)
        raise JournalError(f"The parents of {path} were deleted {_TRIES} times while it was created; try again.")

    def _refuse_wildcard(self, path: str, version: int) -> None:
        if version >= 0:
            return
        if self.get(path) is None:
            raise _missing(path)
        raise _conflict(path, version)

    def _prune(self, parent: str) -> None:
        while parent.count("/") > _KEPT_DEPTH and self._deleted_if_empty(parent):
            parent = parent.rpartition("/")[0]

    def _deleted_if_empty(self, parent: str) -> bool:
        try:
            data, stat = self._call(lambda client: client.get_async(parent))
            if not data and not stat.numChildren:
                self._call(lambda client: client.delete_async(parent, stat.version), parent)
                return True
        except JournalError:
            return False  # in use again, gone already, or not to be reached: the document itself is deleted
        return False

    def _call(self, ask: Callable[[Any], Any], path: str = "", version: int = 0) -> Any:
        """One request, answered within the time-out. `ask` makes it; `path` and `version` are for the sentence."""
        with _in_words(self._options, path, version):
            client = self._connected()
            try:
                return ask(client).get(timeout=self._options.timeout_s)
            except KazooTimeoutError:
                # Requests wait in line for the connection to come back: ours must not be made by then.
                self._drop(client)
                raise

    def _drop(self, client: Any) -> None:
        with self._opening:
            if self._client is client:
                self._client = None
        _stop(client)

    def _connected(self) -> Any:
        with self._opening:
            if self._pid != os.getpid():
                # The parent's session is still the parent's: forget it without closing.
                self._client, self._pid = None, os.getpid()
            if self._client is None:
                self._client = _start(self._options)
            return self._client


def _start(options: ZooKeeperOptions) -> Any:
    hosts, slash, chroot = options.hosts.partition("/")
    client = KazooClient(
        hosts=hosts,
        timeout=options.timeout_s,
        auth_data=[("digest", options.digest)] if options.digest else None,
        default_acl=_acl(options),
        **dict(options.tls),
    )
    try:
        client.start(timeout=options.timeout_s)
        if chroot:
            client.ensure_path(slash + chroot)
            client.chroot = slash + chroot
    except BaseException:
        _stop(client)
        raise
    return client


def _stop(client: Any) -> None:
    client.stop()
    client.close()


def _acl(options: ZooKeeperOptions) -> list[ACL] | None:
    """As Kafka's own znodes: who made it may do everything, everyone else may read."""
    if not options.digest:
        return None
    user, _, password = options.digest.partition(":")
    return [make_digest_acl(user, password, all=True), make_acl("world", "anyone", read=True)]


@contextmanager
def _in_words(options: ZooKeeperOptions, path: str, version: int) -> Iterator[None]:
    where = f"ZooKeeper at {options.hosts}"
    try:
        yield
    except NodeExistsError as error:
        raise NodeExists(f"{path} exists already; read it before changing it.") from error
    except NoNodeError as error:
        raise _missing(path) from error
    except BadVersionError as error:
        raise _conflict(path, version) from error
    except NotEmptyError as error:
        raise JournalError(f"{path} has others below it and cannot be deleted; delete those first.") from error
    except (NoAuthError, AuthFailedError) as error:
        raise JournalError(
            f"{where} does not let us change {path or 'the journal'}; mend the credentials, or the access list there."
        ) from error
    except (KazooTimeoutError, ConnectionClosedError, KazooException, OSError) as error:
        words = str(error) or type(error).__name__
        raise JournalUnreachable(f"{where} does not answer ({words}); try again when it does.") from error


def _parent(path: str) -> str:
    return path if path == "/" else checked_path(path)


def _missing(path: str) -> NodeMissing:
    return NodeMissing(f"{path} does not exist any more; read again before changing it.")


def _conflict(path: str, version: int) -> VersionConflict:
    return VersionConflict(f"{path} was changed since version {version} was read; read it again.")


def _node(path: str, data: bytes, stat: ZnodeStat) -> Node:
    # What is not UTF-8 is someone else's garbage: its reader says so, in words.
    text = data.decode(errors="replace")
    return Node(path, text, stat.version, stat.czxid, stat.mzxid, stat.ctime, stat.mtime)
