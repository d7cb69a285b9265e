"""The mailbox in ZooKeeper: a node is a znode, its ids are czxid and mzxid, its times ctime and mtime.

The KIPs define these paths, beside Kafka's own under its chroot. There are two differences from a table. A parent is a
znode too: it is created on demand, is never read as a document, and may still be listed after its last child was
deleted. And -1 means "any version" in ZooKeeper: a node with such a version is never changed.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from kazoo.exceptions import NoAuthError, NoNodeError, NotEmptyError
from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL

from kafka_steward.errors import JournalError, WrongCluster
from kafka_steward.journal.document import read_fields
from kafka_steward.journal.mailbox import MAX_BYTES, Node, encode_data, read_one, read_subtree
from kafka_steward.journal.one_read import OneRead
from kafka_steward.journal.paths import validate_path
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from kafka_steward.journal.zookeeper.session import (
    ROOTS,
    CloseNodesRequest,
    EnsurePathRequest,
    ZkSession,
    acl_template_path,
    has_hidden_digest,
    our_acl,
)
from kafka_steward.journal.zookeeper.watched_reads import EventFlush, WatchedReads

#: Seconds after which a block of reads is answered by requests again: what Kafka takes in a poll must not outdate it.
LIFETIME_S = 5.0

#: The path of Kafka's cluster id.
_CLUSTER = "/cluster/id"

#: Parents that are deeper are deleted when they become empty; a sequence's parent, which counts, is never that deep.
_KEPT_DEPTH = 2

#: The number of attempts at a create whose parent is deleted in between.
_TRIES = 5

#: Trees whose nodes this process has closed: process id, servers with chroot, and our ACL.
_closed: set[tuple[int, str, ACL]] = set()

_log = logging.getLogger(__name__)

#: The maximum number of stray nodes below a document that are quarantined before the document is deleted.
_BELOW = 50


class ZkMailbox(OneRead[float]):
    """A `Mailbox` in ZooKeeper. Thread-safe, usable in a child process after a fork; it survives the end of a session.

    `one_read` makes one request at its beginning, and answers from `watched_reads`. What others changed before that
    request is seen in the block. `set_aside` is given each stray node, which another client created below a document,
    and why it has to go, before the document is deleted; it deletes the node.
    """

    def __init__(self, options: ZooKeeperOptions, set_aside: Callable[[Node, str], object]) -> None:
        super().__init__()
        self._options = options
        self._set_aside = set_aside
        self._session = ZkSession(options)
        self._watched = WatchedReads()

    def __repr__(self) -> str:
        return f"ZkMailbox({self._options.hosts!r})"

    def require_cluster(self, cluster_id: str) -> None:
        """Raise WrongCluster if this chroot contains another Kafka cluster, or none although `kafkas` requires one."""
        node = read_one(self, _CLUSTER)
        if node is None:
            if self._options.kafkas:
                raise WrongCluster(
                    f"{self._options.place} has no Kafka cluster, and {cluster_id} is a cluster with ZooKeeper; "
                    "correct the setting zookeeper: it is the brokers' zookeeper.connect, chroot included."
                )
            return
        owner = read_fields(_CLUSTER, node.data).text("id")
        if owner != cluster_id:
            raise WrongCluster(
                f"{self._options.place} belongs to cluster {owner}, and this is {cluster_id}; "
                "correct the setting zookeeper: it is the brokers' zookeeper.connect, chroot included."
            )

    def revoke_open_access(self) -> None:
        """Revoke others' rights to change nodes that were created without credentials, if we have some now.

        Done once per process.
        """
        acl = our_acl(self._options.digest)
        if acl is None or (key := (os.getpid(), self._options.hosts, acl[0])) in _closed:
            return
        left = self._session.call(lambda client: CloseNodesRequest(client, acl))
        _closed.add(key)
        if left:
            _log.warning(
                "%d nodes of the journal in ZooKeeper at %s stay open to everyone: there are too many to change at "
                "once, or we may not change their ACLs; change their ACLs, or open the journal again.",
                left,
                self._options.hosts,
            )

    def _open_view(self) -> float:
        began_s = time.monotonic()
        # The server that answers us has then received what the others had confirmed before; its events come first.
        self._session.call_idempotent(lambda client: client.sync_async("/"))
        self._session.call(EventFlush)
        return began_s

    def _is_usable(self, view: float) -> bool:
        return time.monotonic() - view < LIFETIME_S

    def children(self, path: str) -> list[str]:
        """Return the names of children, as specified by `Mailbox.children`."""
        try:
            names: list[str] | None = self._result_or_none(partial(self._request_children, path), path)
        except JournalError as error:
            # A node of other clients must not hide the rest; one of our own must not be taken for empty.
            if isinstance(error.__cause__, NoAuthError) and path not in ROOTS:
                return []
            raise
        return sorted(names or ())

    def read(self, paths: Sequence[str]) -> list[Node | None]:
        """Return the documents at several paths, as specified by `Mailbox.read`, concurrently.

        A znode that is only a parent is not a document.
        """
        answers = zip(paths, self._session.read_each(paths, self._request_data), strict=True)
        return [None if answer is None else _document_node(path, *answer) for path, answer in answers]

    def put(self, texts: Mapping[str, str], seen: Collection[Node] = ()) -> dict[str, Node]:
        """Create or change nodes, as specified by `Mailbox.put`; those that are new are created concurrently."""
        # No read after our own change is answered from before it.
        self._here.view = None
        data = {validate_path(path): encode_data(path, text) for path, text in texts.items()}
        known = {node.path: node.version for node in seen}
        written = self._create({path: encoded for path, encoded in data.items() if path not in known})
        changes = [
            (path, partial(_request_change, path, data[path], version))
            for path, version in known.items()
            if version >= 0
        ]
        # Of a change of one version that is sent again, at most one is made.
        answers = zip(changes, self._session.change_each(changes, may_repeat=True), strict=True)
        stats = {path: stat for (path, _), stat in answers if not isinstance(stat, Exception)}
        return written | {path: _build_node(path, data[path], stat) for path, stat in stats.items()}

    def append(self, prefix: str, text: str) -> Node:
        """Create a numbered node, as specified by `Mailbox.append`; ZooKeeper counts per parent."""
        self._here.view = None
        # Never sent again without an answer: a second request would create a second node, with the next number.
        (node,) = self._create({prefix: encode_data(validate_path(f"{prefix}0"), text)}, sequence=True).values()
        return node

    def delete(self, nodes: Sequence[Node]) -> list[Node]:
        """Delete the unchanged nodes, as specified by `Mailbox.delete`, concurrently, with deep parents left empty."""
        self._here.view = None
        gone, parents = self._delete_each([node for node in nodes if node.version >= 0])
        # ZooKeeper deletes no node that has children, and other clients may create some below a document.
        for node in parents:
            for below in read_subtree(self, node.path, _BELOW):
                if below.path != node.path:
                    self._set_aside(below, f"{below.path} is a child of a document; delete it.")
        freed, obstructed = self._delete_each(parents)
        if obstructed:
            raise JournalError(f"{obstructed[0].path} has child nodes and cannot be deleted; delete those first.")
        self._delete_empty_parents({node.path.rpartition("/")[0] for node in nodes})
        return [*gone, *freed]

    def close(self) -> None:
        """Close the connection. Harmless when called twice."""
        self._session.close()

    def _request_data(self, path: str, client: Any) -> Any:
        return client.get_async(path) if self._view() is None else self._watched.data(client, path)

    def _request_children(self, path: str, client: Any) -> Any:
        return client.get_children_async(path) if self._view() is None else self._watched.children(client, path)

    def _create(self, left: Mapping[str, bytes], *, sequence: bool = False) -> dict[str, Node]:
        """Create those of the nodes that do not exist, and the parents that they need; return them."""
        created: dict[str, Node] = {}
        # One node of each parent shows whether the parent exists, before all others are sent in vain.
        part = list({path.rpartition("/")[0]: path for path in left}.values())
        for _ in range(_TRIES):
            asked = [
                (path, partial(_request_creation, path, left[path], sequence, self._kafka_acl(path))) for path in part
            ]
            answers = dict(zip(part, self._session.change_each(asked), strict=True))
            made = {path: answer for path, answer in answers.items() if not isinstance(answer, Exception)}
            created |= {name: _build_node(name, left[path], stat) for path, (name, stat) in made.items()}
            # The parents did not exist yet, or another client deleted them while they were empty.
            orphans = [path for path, answer in answers.items() if isinstance(answer, NoNodeError)]
            self._create_parents({path.rpartition("/")[0] for path in orphans})
            left = {path: data for path, data in left.items() if path not in answers or path in orphans}
            if not left:
                return created
            part = list(left)
        raise JournalError(f"The parents of {next(iter(left))} were deleted {_TRIES} times; try again.")

    def _create_parents(self, parents: Collection[str]) -> None:
        """Create the parents concurrently, after what is above them, of which there is little."""
        for above in sorted({path.rpartition("/")[0] or path for path in parents}):
            self._session.call(partial(EnsurePathRequest, path=above), above)
        self._session.change_each(
            [(path, partial(_request_creation, path, b"", False, None)) for path in sorted(parents)]
        )

    def _delete_each(self, nodes: Sequence[Node]) -> tuple[list[Node], list[Node]]:
        """Return the nodes that were deleted, and those that could not be deleted because they have children."""
        asked = [(node.path, partial(_request_deletion, node.path, node.version)) for node in nodes]
        answers = list(zip(nodes, self._session.change_each(asked), strict=True))
        gone = [node for node, answer in answers if not isinstance(answer, Exception)]
        return gone, [node for node, answer in answers if isinstance(answer, NotEmptyError)]

    def _kafka_acl(self, path: str) -> list[ACL] | None:
        """Return the ACL that Kafka needs at `path`; None if `path` is ours."""
        model = acl_template_path(path)
        if model is None:
            return None
        answer = self._result_or_none(lambda client: client.get_acls_async(model), model)
        if answer is None:
            return None
        acls, _ = answer
        if has_hidden_digest(acls):
            raise JournalError(
                f"{path} cannot be created so that Kafka could change it: ZooKeeper does not show the ACL of "
                f"{model}; grant our user all rights there, or set submission to admin."
            )
        return list(acls)

    def _result_or_none(self, request: Callable[[Any], Any], path: str) -> Any:
        """Return the answer to a request that may be repeated; None if there is no node at `path`."""
        try:
            return self._session.call_idempotent(request, path)
        except JournalError as error:
            if isinstance(error.__cause__, NoNodeError):
                return None
            raise

    def _delete_empty_parents(self, parents: Collection[str]) -> None:
        """Delete those of the parents that have become empty, and then those above them, each level concurrently."""
        # Unreachable, or another client's node: the documents themselves were deleted.
        with suppress(JournalError):
            while level := sorted(parent for parent in parents if parent.count("/") > _KEPT_DEPTH):
                parents = {parent.rpartition("/")[0] for parent in self._delete_if_empty(level)}

    def _delete_if_empty(self, parents: Sequence[str]) -> list[str]:
        """Return those that were deleted; of the others, some are in use again."""
        stats = zip(parents, self._session.stats(parents), strict=True)
        empty = [
            (parent, stat.version)
            for parent, stat in stats
            if stat is not None and not (stat.dataLength or stat.numChildren)
        ]
        answers = self._session.change_each(
            [(parent, partial(_request_deletion, parent, version)) for parent, version in empty]
        )
        return [parent for (parent, _), answer in zip(empty, answers, strict=True) if not isinstance(answer, Exception)]


def _request_creation(path: str, data: bytes, sequence: bool, acl: list[ACL] | None, client: Any) -> Any:
    return client.create_async(path, data, acl=acl, sequence=sequence, include_data=True)


def _request_change(path: str, data: bytes, version: int, client: Any) -> Any:
    return client.set_async(path, data, version)


def _request_deletion(path: str, version: int, client: Any) -> Any:
    return client.delete_async(path, version)


def _document_node(path: str, data: bytes | None, stat: ZnodeStat) -> Node | None:
    """Return the node; None for a znode that is only a parent."""
    return None if not data and stat.numChildren else _build_node(path, data or b"", stat)


def _build_node(path: str, data: bytes, stat: ZnodeStat) -> Node:
    # Data that is not UTF-8 was written by another client: the parser of the document raises the error.
    text = data.decode(errors="replace")[: MAX_BYTES + 1]
    return Node(path, text, stat.version, stat.czxid, stat.mzxid, stat.ctime, stat.mtime)
