"""ZooKeeper access control lists for the journal's nodes, if there are credentials; Kafka's own nodes keep their ACLs.

With digest credentials, the nodes that we create are readable by everyone and writable by us alone. Nodes that were
created earlier without credentials are writable by everyone: they are closed when a process first opens the journal.
Children are closed before their parent. A closed parent therefore implies that all nodes below it are closed, and the
next process checks the roots only.

Two nodes are not ours: `/admin`, where Kafka keeps nodes of its own, and `/admin/reassign_partitions`, which Kafka
changes and deletes while it executes it. They have Kafka's ACL, or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from kazoo.exceptions import NoAuthError, NodeExistsError, NoNodeError
from kazoo.security import ACL, OPEN_ACL_UNSAFE, Permissions, make_acl, make_digest_acl
from kazoo.security import Id as Identity

from kafka_steward.journal import paths

__all__ = ["ROOTS", "ClosedNodes", "EnsuredPath", "is_hidden", "kafkas_model", "our_acl"]

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
#: The number of concurrent requests.
_AT_ONCE = 500
#: The limits, per opening, on the number and depth of nodes to close; the next opening of the journal continues.
_MOST, _DEEPEST = 50_000, 12


def our_acl(digest: str | None) -> list[ACL] | None:
    """Return the ACL of our nodes: all rights for the creator, read for others. None without a digest: open to all."""
    if not digest:
        return None
    user, _, password = digest.partition(":")
    return [make_digest_acl(user, password, all=True), make_acl("world", "anyone", read=True)]


def kafkas_model(path: str) -> str | None:
    """Return the node whose ACL `path` must have because Kafka changes and deletes it; None if `path` is ours."""
    return _ADMIN if path == paths.REASSIGN_PARTITIONS else None


def is_hidden(acls: Sequence[ACL]) -> bool:
    """Return whether ZooKeeper replaced a digest by `x`, as it does for clients that may not change the ACL."""
    return any(acl.id.scheme == "digest" and acl.id.id.endswith(":x") for acl in acls)


class EnsuredPath:
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


class ClosedNodes:
    """The closing of our nodes to other clients. It has the `get` of a kazoo async result."""

    def __init__(self, client: Any, acl: Sequence[ACL], most: int = _MOST) -> None:
        self._client, self._acl, self._may = client, list(acl), most
        self._left = 0
        self._timeout = 0.0

    def get(self, timeout: float) -> int:
        """Close the open nodes; return the number of nodes that stay open. Raises kazoo's errors."""
        self._timeout = timeout
        self._close(ROOTS)
        return self._left

    def _close(self, wanted: Sequence[str]) -> None:
        """Close the open nodes among `wanted`, each after the nodes below it."""
        for start in range(0, len(wanted), _AT_ONCE):
            batch = wanted[start : start + _AT_ONCE]
            answers = self._answers([self._client.get_acls_async(path) for path in batch])
            opened = [
                (path, found[1])
                for path, found in zip(batch, answers, strict=True)
                if found is not None and _is_open(found[0])
            ]
            whole = [path for path, stat in opened if self._is_closed_below(path, stat) and self._may_close()]
            changed = self._answers([self._client.set_acls_async(path, self._acl) for path in whole])
            self._left += len(opened) - sum(answer is not None for answer in changed)

    def _is_closed_below(self, path: str, stat: Any) -> bool:
        if not stat.numChildren:
            return True
        if path.count("/") >= _DEEPEST:
            return False
        left = self._left
        names = self._answer(self._client.get_children_async(path)) or []
        self._close([f"{path}/{name}" for name in names])
        return self._left == left

    def _may_close(self) -> bool:
        self._may -= 1
        return self._may >= 0

    def _answers(self, asked: Sequence[Any]) -> list[Any]:
        """Return the result of each request; None for a node that is missing or that we may not change."""
        return [self._answer(each) for each in asked]

    def _answer(self, asked: Any) -> Any:
        with suppress(NoNodeError, NoAuthError):
            return asked.get(timeout=self._timeout)
        return None


def _is_open(acls: Sequence[ACL]) -> bool:
    return any(acl.id == _EVERYONE and acl.perms & _CHANGES for acl in acls)
