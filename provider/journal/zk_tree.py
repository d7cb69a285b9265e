"""The tree on ZooKeeper's own: a node is a znode, its ids are czxid and mzxid, its times ctime and mtime.

The KIPs put their documents here, beside Kafka's own under its chroot. Two things differ from a table. A parent is a
znode too: it is made on demand, never read as a document, and may still be listed when nothing is below it any more.
And -1 is ZooKeeper's "any version": here it is a version like any other, which no node has.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from functools import partial
from typing import Any

from kazoo.exceptions import NoAuthError, NotEmptyError
from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL

from kafka_steward.errors import JournalError, NodeMissing, VersionConflict, WrongCluster
from kafka_steward.journal.fields import read_object
from kafka_steward.journal.paths import checked_path
from kafka_steward.journal.quarantine import move_aside
from kafka_steward.journal.tree import MAX_BYTES, Node, checked_data
from kafka_steward.journal.zk_acls import ClosedNodes, EnsuredPath, is_hidden, kafkas_model, our_acl
from kafka_steward.journal.zk_options import ZooKeeperOptions
from kafka_steward.journal.zk_session import ZkSession, conflict, missing

__all__ = ["ZkTree"]

#: Written to ask for the time: the server's clock is the modified time of what it has just written.
_CLOCK = "/steward/clock"
#: Where Kafka writes its cluster's id.
_CLUSTER = "/cluster/id"
#: Deeper parents than this are deleted when they become empty; a sequence's parent, which counts, is never that deep.
_KEPT_DEPTH = 2
#: How often a create is tried again because its parent was deleted in between.
_TRIES = 5
#: What this process has closed: process, servers and chroot, and the list that was given.
_closed: set[tuple[int, str, ACL]] = set()
_log = logging.getLogger(__name__)
#: How many nodes that others put below a document are moved aside before it is deleted.
_BELOW = 50


class ZkTree:
    """A `Tree` on ZooKeeper. Safe in threads, and in a child after fork; outlives its sessions."""

    def __init__(self, options: ZooKeeperOptions) -> None:
        self._options = options
        self._session = ZkSession(options)

    def __repr__(self) -> str:
        return f"ZkTree({self._options.hosts!r})"

    def refuse_unless(self, cluster_id: str) -> None:
        """Raise WrongCluster when Kafka keeps another cluster here, under this chroot; or none, and it should."""
        node = self.get(_CLUSTER)
        if node is None:
            self._refuse_nothing(cluster_id)
            return
        found = read_object(_CLUSTER, node.data).text("id")
        if found != cluster_id:
            raise WrongCluster(
                f"ZooKeeper at {self._options.hosts} keeps the cluster {found}, and this is {cluster_id}; "
                "mend the setting zookeeper: it is the brokers' zookeeper.connect, chroot included."
            )

    def close_open_nodes(self) -> None:
        """With credentials: let nobody else change what was created here without any. Once in each process."""
        acl = our_acl(self._options.digest)
        if acl is None or (key := (os.getpid(), self._options.hosts, acl[0])) in _closed:
            return
        left = self._session.call(lambda client: ClosedNodes(client, acl))
        _closed.add(key)
        if left:
            _log.warning(
                "%d nodes of the journal in ZooKeeper at %s stay open to everyone: they are too many for once, or "
                "their access list is not ours to change; see to their lists, or open the journal again.",
                left,
                self._options.hosts,
            )

    def now_ms(self) -> int:
        """ZooKeeper's clock."""
        try:
            stat: ZnodeStat = self._session.repeat(lambda client: client.set_async(_CLOCK, b""))
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
            data, stat = self._session.repeat(lambda client: client.get_async(checked_path(path)))
        except NodeMissing:
            return None
        return _document(path, data, stat)

    def set(self, path: str, data: str, *, version: int) -> Node:
        """As `Tree.set`."""
        encoded = checked_data(checked_path(path), data)
        self._refuse_wildcard(path, version)
        stat = self._session.call(lambda client: client.set_async(path, encoded, version), path, version)
        return _node(path, encoded, stat)

    def delete(self, path: str, *, version: int) -> None:
        """As `Tree.delete`. Parents deep in the tree go with their last child."""
        self._refuse_wildcard(checked_path(path), version)
        try:
            self._session.call(lambda client: client.delete_async(path, version), path, version)
        except JournalError as error:
            if not isinstance(error.__cause__, NotEmptyError):
                raise
            # Whoever put something below a document must not keep it from ever going.
            for below in self.subtree(path, _BELOW):
                if below.path != path:
                    move_aside(self, below, f"{below.path} lies below a document; delete it.", None)
            self._session.call(lambda client: client.delete_async(path, version), path, version)
        self._prune(path.rpartition("/")[0])

    def children(self, path: str) -> list[str]:
        """As `Tree.children`."""
        return self._names(_parent(path))

    def below(self, path: str) -> list[Node]:
        """As `Tree.below`. All are asked for at once: one after the other, each would wait for the server's answer."""
        wanted = [f"{path}/{name}" for name in self.children(path)]
        answers = zip(wanted, self._session.read(wanted), strict=True)
        nodes = (_document(each, *answer) for each, answer in answers if answer is not None)
        return [node for node in nodes if node is not None]

    def read(self, paths: Sequence[str]) -> list[Node | None]:
        """As `Tree.read`."""
        wanted = [checked_path(path) for path in paths]
        answers = zip(wanted, self._session.read(wanted), strict=True)
        return [None if answer is None else _document(path, *answer) for path, answer in answers]

    def subtree(self, path: str, most: int) -> list[Node]:
        """As `Tree.subtree`."""
        found = [path]
        for parent in found:  # grows meanwhile: the parents before what is below them
            if len(found) < most:
                found += [f"{parent}/{name}" for name in self._names(parent)][: most - len(found)]
        answers = zip(found, self._session.read(found), strict=True)
        nodes = [_document(each, *answer) for each, answer in answers if answer is not None]
        return [node for node in reversed(nodes) if node is not None]

    def discard(self, node: Node) -> bool:
        """As `Tree.discard`."""
        try:
            self._session.call(lambda client: client.delete_async(node.path, node.version), node.path, node.version)
        except (NodeMissing, VersionConflict):
            return False
        self._prune(node.path.rpartition("/")[0])
        return True

    def close(self) -> None:
        """As `Tree.close`."""
        self._session.close()

    def _create(self, path: str, data: bytes, *, sequence: bool = False) -> Node:
        for _ in range(_TRIES):
            ask = partial(_creation, path, data, sequence, self._kafkas_acl(path))
            try:
                created, stat = self._session.call(ask, path)
            except NodeMissing:
                # Nothing was there yet, or someone deleted the empty parent.
                self._session.call(partial(EnsuredPath, path=path.rpartition("/")[0]), path)
                continue
            return _node(created, data, stat)
        raise JournalError(f"The parents of {path} were deleted {_TRIES} times while it was created; try again.")

    def _kafkas_acl(self, path: str) -> list[ACL] | None:
        """The access list that Kafka needs at `path`; None for one that is ours."""
        model = kafkas_model(path)
        if model is None:
            return None
        try:
            acls, _ = self._session.repeat(lambda client: client.get_acls_async(model))
        except NodeMissing:
            return None
        if is_hidden(acls):
            raise JournalError(
                f"{path} cannot be created so that Kafka could change it: ZooKeeper hides who may change {model}; "
                "give our user all rights there, or set submission to admin."
            )
        return list(acls)

    def _refuse_nothing(self, cluster_id: str) -> None:
        if self._options.kafkas:
            raise WrongCluster(
                f"ZooKeeper at {self._options.hosts} keeps no Kafka cluster, and {cluster_id} is kept in a ZooKeeper; "
                "mend the setting zookeeper: it is the brokers' zookeeper.connect, chroot included."
            )

    def _names(self, path: str) -> list[str]:
        try:
            found: list[str] = self._session.repeat(lambda client: client.get_children_async(path))
        except NodeMissing:
            return []
        except JournalError as error:
            if isinstance(error.__cause__, NoAuthError):
                return []
            raise
        return sorted(found)

    def _refuse_wildcard(self, path: str, version: int) -> None:
        if version >= 0:
            return
        if self.get(path) is None:
            raise missing(path)
        raise conflict(path, version)

    def _prune(self, parent: str) -> None:
        while parent.count("/") > _KEPT_DEPTH and self._deleted_if_empty(parent):
            parent = parent.rpartition("/")[0]

    def _deleted_if_empty(self, parent: str) -> bool:
        try:
            data, stat = self._session.call(lambda client: client.get_async(parent))
            if not data and not stat.numChildren:
                self._session.call(lambda client: client.delete_async(parent, stat.version), parent)
                return True
        except JournalError:
            return False  # in use again, gone already, or not to be reached: the document itself is deleted
        return False


def _creation(path: str, data: bytes, sequence: bool, acl: list[ACL] | None, client: Any) -> Any:
    return client.create_async(path, data, acl=acl, sequence=sequence, include_data=True)


def _parent(path: str) -> str:
    return path if path == "/" else checked_path(path)


def _document(path: str, data: bytes | None, stat: ZnodeStat) -> Node | None:
    """The node; None for a znode that is only a parent."""
    return None if not data and stat.numChildren else _node(path, data or b"", stat)


def _node(path: str, data: bytes, stat: ZnodeStat) -> Node:
    # What is not UTF-8 is someone else's garbage: its reader says so, in words.
    text = data.decode(errors="replace")[: MAX_BYTES + 1]
    return Node(path, text, stat.version, stat.czxid, stat.mzxid, stat.ctime, stat.mtime)
