"""Who may change which node in ZooKeeper, when we have credentials: ours are ours, Kafka's stay Kafka's.

With a digest, what we create may be read by everyone and changed by us alone. What was created before, without one, is
still open to everyone: it is closed when a process first opens the journal. Children are closed before their parent, so
that a parent is closed says the same of all below it, and the next process looks at the roots only.

Two nodes are not ours: `/admin`, where Kafka keeps nodes of its own, and `/admin/reassign_partitions`, which Kafka
changes and deletes while it carries it out. They have Kafka's list, or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from kazoo.exceptions import NoAuthError, NodeExistsError, NoNodeError
from kazoo.security import ACL, OPEN_ACL_UNSAFE, Permissions, make_acl, make_digest_acl
from kazoo.security import Id as Identity

from kafka_steward.journal import paths

__all__ = ["ClosedNodes", "EnsuredPath", "is_hidden", "kafkas_model", "our_acl"]

_ADMIN = "/admin"
_ROOTS = (
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
#: Requests that are under way at once.
_AT_ONCE = 500
#: So many nodes are closed at one opening, and no deeper ones than this; whoever opens the journal next goes on.
_MOST, _DEEPEST = 50_000, 12


def our_acl(digest: str | None) -> list[ACL] | None:
    """The list for what is ours: who made it may do everything, everyone else may read. None: everyone may do all."""
    if not digest:
        return None
    user, _, password = digest.partition(":")
    return [make_digest_acl(user, password, all=True), make_acl("world", "anyone", read=True)]


def kafkas_model(path: str) -> str | None:
    """The node whose list `path` must be created with, because Kafka changes and deletes it; None when it is ours."""
    return _ADMIN if path == paths.REASSIGN_PARTITIONS else None


def is_hidden(acls: Sequence[ACL]) -> bool:
    """Whether ZooKeeper has put `x` for a digest, as it does for clients that may not change the list."""
    return any(acl.id.scheme == "digest" and acl.id.id.endswith(":x") for acl in acls)


class EnsuredPath:
    """A node that is created if it is missing, with those above it. As an answer of kazoo's, it is waited for."""

    def __init__(self, client: Any, path: str) -> None:
        self._client, self._path = client, path

    def get(self, timeout: float) -> None:
        """Create it. Each request is answered within `timeout` seconds, or raises what kazoo raises."""
        names = self._path.strip("/").split("/")
        for depth in range(1, len(names) + 1):
            path = "/" + "/".join(names[:depth])
            # As Kafka makes /admin where it has no credentials: it puts nodes of its own there.
            acl = OPEN_ACL_UNSAFE if path == _ADMIN else None
            with suppress(NodeExistsError):
                self._client.create_async(path, acl=acl).get(timeout=timeout)


class ClosedNodes:
    """Our nodes, none of which everyone may change any more. As an answer of kazoo's, it is waited for."""

    def __init__(self, client: Any, acl: Sequence[ACL], most: int = _MOST) -> None:
        self._client, self._acl, self._may = client, list(acl), most
        self._left = 0
        self._timeout = 0.0

    def get(self, timeout: float) -> int:
        """Close what is open; returns how many nodes stay open. Raises what kazoo raises."""
        self._timeout = timeout
        self._close(_ROOTS)
        return self._left

    def _close(self, wanted: Sequence[str]) -> None:
        """Close those of `wanted` that are open, each after what is below it."""
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
        """What was answered to each; None for a node that is gone, or that is not ours to change."""
        return [self._answer(each) for each in asked]

    def _answer(self, asked: Any) -> Any:
        with suppress(NoNodeError, NoAuthError):
            return asked.get(timeout=self._timeout)
        return None


def _is_open(acls: Sequence[ACL]) -> bool:
    return any(acl.id == _EVERYONE and acl.perms & _CHANGES for acl in acls)
