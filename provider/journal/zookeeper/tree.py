"""The tree in ZooKeeper: a node is a znode, its ids are czxid and mzxid, its times ctime and mtime.

The KIPs define these paths, beside Kafka's own under its chroot. There are two differences from a table. A parent is a
znode too: it is created on demand, is never read as a document, and may still be listed after its last child was
deleted. And -1 means "any version" in ZooKeeper: here it is an ordinary version, which no node has.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from kazoo.exceptions import NoAuthError, NodeExistsError, NoNodeError, NotEmptyError
from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL

from kafka_steward.errors import JournalError, NodeMissing, VersionConflict, WrongCluster
from kafka_steward.journal.document import read_fields
from kafka_steward.journal.one_read import OneRead
from kafka_steward.journal.paths import validate_path
from kafka_steward.journal.tree import MAX_BYTES, Node, encode_data, node_missing_error, version_conflict_error
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


class ZkTree(OneRead[float]):
    """`Documents` in ZooKeeper. Thread-safe, usable in a child process after a fork; it survives the end of a session.

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
        return f"ZkTree({self._options.hosts!r})"

    def require_cluster(self, cluster_id: str) -> None:
        """Raise WrongCluster if this chroot contains another Kafka cluster, or none although `kafkas` requires one."""
        node = self.get(_CLUSTER)
        if node is None:
            self._refuse_without_kafka(cluster_id)
            return
        found = read_fields(_CLUSTER, node.data).text("id")
        if found != cluster_id:
            raise WrongCluster(
                f"{self._options.place} belongs to cluster {found}, and this is {cluster_id}; "
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

    def create(self, path: str, data: str) -> Node:
        """Create a node, as specified by `Documents.create`."""
        self.end_read()
        return self._create_node(validate_path(path), encode_data(path, data))

    def create_all(self, documents: Mapping[str, str]) -> list[str]:
        """Create the missing nodes, as specified by `Documents.create_all`, concurrently."""
        self.end_read()
        left = {validate_path(path): encode_data(path, data) for path, data in documents.items()}
        existing: set[str] = set()
        # One node of each parent shows whether the parent exists, before all others are sent in vain.
        part = list({path.rpartition("/")[0]: path for path in left}.values())
        for _ in range(_TRIES):
            answers = dict(zip(part, self._create_each({path: left[path] for path in part}), strict=True))
            existing |= {path for path, error in answers.items() if isinstance(error, NodeExistsError)}
            # The parents did not exist yet, or another client deleted them while they were empty.
            orphans = [path for path, error in answers.items() if isinstance(error, NoNodeError)]
            self._create_parents({path.rpartition("/")[0] for path in orphans})
            left = {path: data for path, data in left.items() if path not in answers or path in orphans}
            if not left:
                return [path for path in documents if path in existing]
            part = list(left)
        raise JournalError(f"The parents of {next(iter(left))} were deleted {_TRIES} times; try again.")

    def _create_parents(self, parents: Collection[str]) -> None:
        """Create the parents concurrently, after what is above them, of which there is little."""
        for above in sorted({path.rpartition("/")[0] or path for path in parents}):
            self._session.call(partial(EnsurePathRequest, path=above), above)
        self._session.change_each(
            [(path, partial(_request_creation, path, b"", False, None)) for path in sorted(parents)]
        )

    def _create_each(self, documents: Mapping[str, bytes]) -> list[Exception | None]:
        asked = [
            (path, partial(_request_creation, path, data, False, self._kafka_acl(path)))
            for path, data in documents.items()
        ]
        return self._session.change_each(asked)

    def create_sequential(self, prefix: str, data: str) -> Node:
        """Create a numbered node, as specified by `Documents.create_sequential`; ZooKeeper counts per parent."""
        self.end_read()
        return self._create_node(prefix, encode_data(validate_path(f"{prefix}0"), data), sequence=True)

    def get(self, path: str) -> Node | None:
        """Return a node, as specified by `Documents.get`. A znode that is only a parent is not a document."""
        answer = self._result_or_none(partial(self._request_data, path=validate_path(path)), path)
        return None if answer is None else _document_node(path, *answer)

    def set(self, path: str, data: str, *, version: int) -> Node:
        """Change a node, as specified by `Documents.set`."""
        self.end_read()
        encoded = encode_data(validate_path(path), data)
        self._refuse_negative_version(path, version)
        request = lambda client: client.set_async(path, encoded, version)  # noqa: E731
        stat = self._session.call_idempotent(request, path, version, doing="change")
        return _build_node(path, encoded, stat)

    def delete(self, path: str, *, version: int) -> None:
        """Delete a node, as specified by `Documents.delete`, with a deep parent that becomes empty."""
        self.end_read()
        self._refuse_negative_version(validate_path(path), version)
        try:
            self._session.call(lambda client: client.delete_async(path, version), path, version)
        except JournalError as error:
            if not isinstance(error.__cause__, NotEmptyError):
                raise
            for below in self.subtree(path, _BELOW):
                if below.path != path:
                    self._set_aside(below, f"{below.path} is a child of a document; delete it.")
            self._session.call(lambda client: client.delete_async(path, version), path, version)
        self._delete_empty_parents([path.rpartition("/")[0]])

    def delete_all(self, nodes: Sequence[Node]) -> None:
        """Delete the unchanged nodes, as specified by `Documents.delete_all`, concurrently."""
        self.end_read()
        asked = [(node.path, partial(_request_deletion, validate_path(node.path), node.version)) for node in nodes]
        errors = zip(nodes, self._session.change_each(asked), strict=True)
        for node in [node for node, error in errors if isinstance(error, NotEmptyError)]:
            with suppress(NodeMissing, VersionConflict):
                self.delete(node.path, version=node.version)
        self._delete_empty_parents({node.path.rpartition("/")[0] for node in nodes})

    def children(self, path: str) -> list[str]:
        """Return the names of children, as specified by `Documents.children`."""
        return self._child_names(_validate_parent(path))

    def below(self, path: str) -> list[Node]:
        """Return the documents directly below a path, as specified by `Documents.below`.

        All documents are read concurrently: sequential reads would each wait for a round trip to the server.
        """
        nodes = self._read_nodes([f"{path}/{name}" for name in self.children(path)])
        return [node for node in nodes if node is not None]

    def read(self, paths: Sequence[str]) -> list[Node | None]:
        """Return the documents at several paths, as specified by `Documents.read`."""
        return self._read_nodes([validate_path(path) for path in paths])

    def created_ids(self, paths: Sequence[str]) -> list[int | None]:
        """Return the created ids of several documents, as specified by `Documents.created_ids`."""
        stats = self._session.stats([validate_path(path) for path in paths])
        return [None if stat is None else int(stat.czxid) for stat in stats]

    def subtree(self, path: str, most: int) -> list[Node]:
        """Return the documents at and below a path, as specified by `Documents.subtree`.

        One round trip for each level, and one for the documents; if there are more than `most`, one for each node.
        """
        found = [path]
        level = [f"{path}/{name}" for name in self._child_names(path)]
        while level and len(found) + len(level) <= most:
            found += level
            names = zip(level, self._session.children(level), strict=True)
            level = [f"{parent}/{name}" for parent, several in names for name in sorted(several or ())]
        # ZooKeeper deletes no node that has children: of a larger subtree, only nodes with all that is below them.
        found = self._first_complete(path, most) if level else found[::-1]
        return [node for node in self._read_nodes(found) if node is not None]

    def _first_complete(self, path: str, most: int) -> list[str]:
        """Return the first `most` paths at and below `path`, each one after all that are below it."""
        found: list[str] = []
        pending = [(path, False)]  # each path is taken twice: to list its children, and to be found after them
        while pending and len(found) < most:
            each, is_listed = pending.pop()
            if is_listed:
                found.append(each)
                continue
            pending.append((each, True))
            pending += [(f"{each}/{name}", False) for name in sorted(self._child_names(each), reverse=True)]
        return found

    def discard(self, node: Node) -> bool:
        """Delete a node of any name, as specified by `Documents.discard`."""
        self.end_read()
        try:
            self._session.call(lambda client: client.delete_async(node.path, node.version), node.path, node.version)
        except (NodeMissing, VersionConflict):
            return False
        self._delete_empty_parents([node.path.rpartition("/")[0]])
        return True

    def close(self) -> None:
        """Close the connection, as specified by `Documents.close`."""
        self._session.close()

    def _read_nodes(self, paths: Sequence[str]) -> list[Node | None]:
        answers = zip(paths, self._session.read(paths, self._request_data), strict=True)
        return [None if answer is None else _document_node(path, *answer) for path, answer in answers]

    def _request_data(self, client: Any, path: str) -> Any:
        return client.get_async(path) if self._view() is None else self._watched.data(client, path)

    def _request_children(self, client: Any, path: str) -> Any:
        return client.get_children_async(path) if self._view() is None else self._watched.children(client, path)

    def _create_node(self, path: str, data: bytes, *, sequence: bool = False) -> Node:
        for _ in range(_TRIES):
            ask = partial(_request_creation, path, data, sequence, self._kafka_acl(path))
            try:
                created, stat = self._session.call(ask, path)
            except NodeMissing:
                # The parent did not exist yet, or another client deleted it while it was empty.
                self._session.call(partial(EnsurePathRequest, path=path.rpartition("/")[0]), path)
                continue
            return _build_node(created, data, stat)
        raise JournalError(f"The parents of {path} were deleted {_TRIES} times while it was created; try again.")

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

    def _refuse_without_kafka(self, cluster_id: str) -> None:
        if self._options.kafkas:
            raise WrongCluster(
                f"{self._options.place} has no Kafka cluster, and {cluster_id} is a cluster with ZooKeeper; "
                "correct the setting zookeeper: it is the brokers' zookeeper.connect, chroot included."
            )

    def _child_names(self, path: str) -> list[str]:
        try:
            found: list[str] | None = self._result_or_none(partial(self._request_children, path=path), path)
        except JournalError as error:
            # A node of other clients must not hide the rest; one of our own must not be taken for empty.
            if isinstance(error.__cause__, NoAuthError) and path not in ROOTS:
                return []
            raise
        return sorted(found or ())

    def _result_or_none(self, request: Callable[[Any], Any], path: str, *, doing: str = "read") -> Any:
        """Return the answer to a request that may be repeated; None if there is no node at `path`."""
        try:
            return self._session.call_idempotent(request, path, doing=doing)
        except NodeMissing:
            return None

    def _refuse_negative_version(self, path: str, version: int) -> None:
        if version >= 0:
            return
        if self.get(path) is None:
            raise node_missing_error(path)
        raise version_conflict_error(path, version)

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
        errors = self._session.change_each(
            [(parent, partial(_request_deletion, parent, version)) for parent, version in empty]
        )
        return [parent for (parent, _), error in zip(empty, errors, strict=True) if error is None]


def _request_creation(path: str, data: bytes, sequence: bool, acl: list[ACL] | None, client: Any) -> Any:
    return client.create_async(path, data, acl=acl, sequence=sequence, include_data=True)


def _request_deletion(path: str, version: int, client: Any) -> Any:
    return client.delete_async(path, version)


def _validate_parent(path: str) -> str:
    return path if path == "/" else validate_path(path)


def _document_node(path: str, data: bytes | None, stat: ZnodeStat) -> Node | None:
    """Return the node; None for a znode that is only a parent."""
    return None if not data and stat.numChildren else _build_node(path, data or b"", stat)


def _build_node(path: str, data: bytes, stat: ZnodeStat) -> Node:
    # Data that is not UTF-8 was written by another client: the parser of the document raises the error.
    text = data.decode(errors="replace")[: MAX_BYTES + 1]
    return Node(path, text, stat.version, stat.czxid, stat.mzxid, stat.ctime, stat.mtime)
