"""Two locks. The slot belongs to a plan until it ends; the step lock belongs to a process for one step.

The slot never expires: a plan whose processes all died still owns the cluster, and whoever steps it next goes on. The
step lock lives 60 s by the journal's clock, so that a killed process holds nobody up for longer; one that was killed on
this machine, for 10 s, in which Kafka has done what it was asked last. A process that was paused beyond that and wakes
up finds by `Fence.check` that another one took over: its claim, the lock's fencing token, is not the current one any
more, and every fenced write compares it.

Neither node is ever deleted. A node that is deleted and created anew begins at version 0 again, so that a late delete
or change of version 0 would hit another process's lock: a version compares only for as long as the node lives.
"""

from __future__ import annotations

from dataclasses import replace
from types import TracebackType
from typing import Protocol

from kafka_steward.errors import (
    DocumentError,
    JournalError,
    LockLost,
    SlotTaken,
)
from kafka_steward.journal import paths
from kafka_steward.journal.changes import put
from kafka_steward.journal.process import is_dead
from kafka_steward.journal.records import Lock, Ownership
from kafka_steward.journal.tree import Node, Tree

__all__ = ["DEAD_MS", "LIFE_MS", "Fence", "Guard", "Slot", "StepLock"]

#: How long a step lock lives without being renewed, in milliseconds.
LIFE_MS = 60_000
#: The same when the process that has it is known to be dead.
DEAD_MS = 10_000
#: How often a change is tried again when others change the same node.
_TRIES = 10


class Slot:
    """Which plan owns the cluster, by digest."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def owner(self) -> str | None:
        """The digest of the plan that owns the cluster; None when none does."""
        return self._read()[1].plan

    def paused(self) -> tuple[str, ...]:
        """Digests of the plans that made way for the owner, the last one last."""
        return self._read()[1].paused

    def take(self, digest: str) -> None:
        """Give a free cluster to a plan; the owner may take it again. Raises SlotTaken, which names the owner."""
        for _ in range(_TRIES):
            node, now = self._read()
            if now.plan == digest:
                return
            if now.plan is not None:
                raise _taken(now.plan, digest)
            if self._write(node, replace(now, plan=digest)):
                return
        raise _restless()

    def yield_to(self, digest: str) -> str | None:
        """Give the cluster to a plan that goes first, such as a heal; the owner until now waits.

        Returns the digest that was paused, None if none was. The plan that waits gets the cluster back by `free`.
        """
        for _ in range(_TRIES):
            node, now = self._read()
            waiting = _without((*now.paused, now.plan), digest)
            if now.plan == digest or self._write(node, replace(now, plan=digest, paused=waiting)):
                return waiting[-1] if waiting else None
        raise _restless()

    def free(self, digest: str) -> str | None:
        """End a plan's claim, be it owner or waiting: the last one that waits gets the cluster back.

        Returns the owner from now on, None when the cluster is free. Harmless when the plan claims nothing.
        """
        for _ in range(_TRIES):
            node, now = self._read()
            claims = _without((*now.paused, now.plan), digest)
            freed = replace(now, plan=claims[-1] if claims else None, paused=claims[:-1])
            if freed == now or self._write(node, freed):
                return freed.plan
        raise _restless()

    def _read(self) -> tuple[Node | None, Ownership]:
        node = self._tree.get(paths.SLOT)
        return node, Ownership() if node is None else Ownership.from_node(node)

    def _write(self, node: Node | None, ownership: Ownership) -> bool:
        return put(self._tree, paths.SLOT, node, ownership.to_json()) is not None


def _without(claims: tuple[str | None, ...], digest: str) -> tuple[str, ...]:
    return tuple(each for each in claims if each is not None and each != digest)


def _taken(owner: str, digest: str) -> SlotTaken:
    return SlotTaken(
        owner,
        f"Plan {digest[:12]} cannot start: the cluster belongs to plan {owner[:12]} until that one ends; "
        "wait for it, cancel it, or abandon it.",
    )


def _restless() -> JournalError:
    return JournalError(f"{paths.SLOT} was changed by others {_TRIES} times in a row; try again.")


class Guard(Protocol):
    """Keeps the token where fenced rows are written, if that is not where the lock is."""

    def admit(self, token: int) -> None:
        """Let only writes with this token through from now on."""

    def check(self, token: int) -> None:
        """Raise LockLost unless this token is let through."""


class Fence:
    """Proof that a process still steps. `check` before each Kafka call and within each journal write.

    `token` grows with each process that takes the lock.
    """

    def __init__(self, tree: Tree, claim: Lock, created_id: int, guard: Guard | None = None) -> None:
        self._tree = tree
        self._claim = claim
        self._created_id = created_id
        self._guard = guard

    @property
    def token(self) -> int:
        """Counts the processes that ever took the lock."""
        return self._claim.claim

    def check(self) -> None:
        """Read the lock again; renew it when half its life is over. Raises LockLost when another process has it."""
        node = self._held()
        if self._guard is not None:
            self._guard.check(self.token)
        if self._tree.now_ms() - node.modified_ms <= self._claim.life_ms // 2:
            return
        if put(self._tree, paths.STEP_LOCK, node, node.data) is None:
            raise _lost(self._tree)

    def release(self) -> None:
        """Give the lock back, if it is still ours."""
        try:
            node = self._held()
        except LockLost:
            return
        # Should another process be quicker, the lock is its own, and stays so.
        put(self._tree, paths.STEP_LOCK, node, replace(self._claim, owner=None).to_json())

    def _held(self) -> Node:
        node = self._tree.get(paths.STEP_LOCK)
        if node is None or node.created_id != self._created_id or _lock(node) != self._claim:
            raise _lost(self._tree)
        return node


class StepLock:
    """The right to step, for one process. As a context manager it yields the `Fence`.

    `owner` names the process for people: host and process id.
    """

    def __init__(self, tree: Tree, owner: str, *, life_ms: int = LIFE_MS, guard: Guard | None = None) -> None:
        self._tree = tree
        self._owner = owner
        self._life_ms = life_ms
        self._guard = guard
        self._fence: Fence | None = None

    def acquire(self) -> Fence:
        """Take the lock, or take it over once its life is over. Raises LockLost while another process has it."""
        node = self._tree.get(paths.STEP_LOCK)
        last = 0 if node is None else self._claim_to_follow(node)
        claim = Lock(self._owner, self._life_ms, last + 1)
        taken = put(self._tree, paths.STEP_LOCK, node, claim.to_json())
        if taken is None:
            raise LockLost("Another process was quicker to step the plan; this one does nothing now, and tries again.")
        if self._guard is not None:
            self._guard.admit(claim.claim)
        return Fence(self._tree, claim, taken.created_id, self._guard)

    def _claim_to_follow(self, node: Node) -> int:
        held = Lock.from_node(node)
        life_ms = min(held.life_ms, DEAD_MS) if held.owner is not None and is_dead(held.owner) else held.life_ms
        left_ms = node.modified_ms + life_ms - self._tree.now_ms()
        # More than its life away means that the clock was set back since: then it is no more alive than expired.
        if held.owner is not None and 0 < left_ms <= 2 * life_ms:
            raise LockLost(
                f"The plan is being stepped by {held.owner}; "
                f"if that process is dead, another may step in {left_ms / 1000:.0f} s."
            )
        return held.claim

    def __enter__(self) -> Fence:
        self._fence = self.acquire()
        return self._fence

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._fence is not None:
            self._fence.release()


def _lock(node: Node) -> Lock | None:
    """What the node says; None when someone garbled it: then nobody holds it."""
    try:
        return Lock.from_node(node)
    except DocumentError:
        return None


def _lost(tree: Tree) -> LockLost:
    node = tree.get(paths.STEP_LOCK)
    held = None if node is None else _lock(node)
    owner = None if held is None else held.owner
    by = "was given back" if owner is None else f"was taken over by {owner}"
    return LockLost(f"The step lock {by}: this process must change nothing more; the other one goes on with the plan.")
