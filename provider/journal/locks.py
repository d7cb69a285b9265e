"""Two locks. The slot belongs to a plan until it ends; the step lock belongs to a process for one step.

The slot never expires: a plan whose processes all died still owns the cluster, and whoever steps it next goes on. The
step lock lives 60 s by the journal's clock, so that a killed process holds nobody up for longer. A process that was
paused beyond that and wakes up finds by `Fence.check` that another one took over: the lock's modified id is its
fencing token, and every fenced write compares it.
"""

from __future__ import annotations

from types import TracebackType

from kafka_steward.errors import JournalError, LockLost, NodeExists, NodeMissing, SlotTaken, VersionConflict
from kafka_steward.journal import paths
from kafka_steward.journal.records import Lock, Ownership
from kafka_steward.journal.tree import Node, Tree

__all__ = ["LIFE_MS", "Fence", "Slot", "StepLock"]

#: How long a step lock lives without being renewed, in milliseconds.
LIFE_MS = 60_000
#: How often a change is tried again when others change the same node.
_TRIES = 10


class Slot:
    """Which plan owns the cluster, by digest."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def owner(self) -> str | None:
        """The digest of the plan that owns the cluster; None when none does."""
        _, ownership = self._read()
        return None if ownership is None else ownership.plan

    def paused(self) -> tuple[str, ...]:
        """Digests of the plans that made way for the owner, the last one last."""
        _, ownership = self._read()
        return () if ownership is None else ownership.paused

    def take(self, digest: str) -> None:
        """Give a free cluster to a plan; the owner may take it again. Raises SlotTaken, which names the owner."""
        for _ in range(_TRIES):
            node, ownership = self._read()
            if ownership is not None and ownership.plan == digest:
                return
            if ownership is not None:
                raise _taken(ownership.plan, digest)
            try:
                self._write(node, Ownership(digest))
            except (NodeExists, VersionConflict, NodeMissing):
                continue
            return
        raise _restless()

    def yield_to(self, digest: str) -> str | None:
        """Give the cluster to a plan that goes first, such as a heal; the owner until now waits.

        Returns the digest that was paused, None if none was. The plan that waits gets the cluster back by `free`.
        """
        for _ in range(_TRIES):
            node, ownership = self._read()
            if ownership is not None and ownership.plan == digest:
                return ownership.paused[-1] if ownership.paused else None
            waiting = () if ownership is None else (*_without(ownership.paused, digest), ownership.plan)
            try:
                self._write(node, Ownership(digest, waiting))
            except (NodeExists, VersionConflict, NodeMissing):
                continue
            return waiting[-1] if waiting else None
        raise _restless()

    def free(self, digest: str) -> str | None:
        """End a plan's claim, be it owner or waiting: the last one that waits gets the cluster back.

        Returns the owner from now on, None when the cluster is free. Harmless when the plan claims nothing.
        """
        for _ in range(_TRIES):
            node, ownership = self._read()
            if node is None or ownership is None:
                return None
            left = _without((*ownership.paused, ownership.plan), digest)
            if left == (*ownership.paused, ownership.plan):
                return ownership.plan
            try:
                if left:
                    self._write(node, Ownership(left[-1], left[:-1]))
                else:
                    self._tree.delete(node.path, version=node.version)
            except (VersionConflict, NodeMissing):
                continue
            return left[-1] if left else None
        raise _restless()

    def _read(self) -> tuple[Node | None, Ownership | None]:
        node = self._tree.get(paths.SLOT)
        return node, None if node is None else Ownership.from_node(node)

    def _write(self, node: Node | None, ownership: Ownership) -> None:
        if node is None:
            self._tree.create(paths.SLOT, ownership.to_json())
        else:
            self._tree.set(paths.SLOT, ownership.to_json(), version=node.version)


def _without(digests: tuple[str, ...], digest: str) -> tuple[str, ...]:
    return tuple(each for each in digests if each != digest)


def _taken(owner: str, digest: str) -> SlotTaken:
    return SlotTaken(
        owner,
        f"Plan {digest[:12]} cannot start: the cluster belongs to plan {owner[:12]} until that one ends; "
        "wait for it, cancel it, or abandon it.",
    )


def _restless() -> JournalError:
    return JournalError(f"{paths.SLOT} was changed by others {_TRIES} times in a row; try again.")


class Fence:
    """Proof that a process still steps. `check` before each Kafka call and within each journal write."""

    def __init__(self, tree: Tree, node: Node, life_ms: int) -> None:
        self._tree = tree
        self._node = node
        self._life_ms = life_ms

    @property
    def token(self) -> int:
        """Grows with each process that takes the lock, and with each renewal."""
        return self._node.modified_id

    def check(self) -> None:
        """Read the lock again; renew it when half its life is over. Raises LockLost when another process has it."""
        node = self._tree.get(paths.STEP_LOCK)
        if node is None or node.modified_id != self._node.modified_id:
            raise _lost(node)
        if self._tree.now_ms() - node.modified_ms > self._life_ms // 2:
            self._renew()

    def _renew(self) -> None:
        try:
            self._node = self._tree.set(paths.STEP_LOCK, self._node.data, version=self._node.version)
        except (VersionConflict, NodeMissing) as error:
            raise _lost(self._tree.get(paths.STEP_LOCK)) from error

    def release(self) -> None:
        """Give the lock back, if it is still ours."""
        node = self._tree.get(paths.STEP_LOCK)
        if node is None or node.modified_id != self._node.modified_id:
            return
        try:
            self._tree.delete(paths.STEP_LOCK, version=node.version)
        except (VersionConflict, NodeMissing):
            return  # taken over in between: not ours to give back


class StepLock:
    """The right to step, for one process. As a context manager it yields the `Fence`.

    `owner` names the process for people, and must be new for each StepLock: host, process id and a random part.
    """

    def __init__(self, tree: Tree, owner: str, *, life_ms: int = LIFE_MS) -> None:
        self._tree = tree
        self._lock = Lock(owner, life_ms)
        self._fence: Fence | None = None

    def acquire(self) -> Fence:
        """Take the lock, or take it over once its life is over. Raises LockLost while another process has it."""
        node = self._tree.get(paths.STEP_LOCK)
        try:
            if node is None:
                taken = self._tree.create(paths.STEP_LOCK, self._lock.to_json())
            else:
                self._refuse_while_alive(node)
                taken = self._tree.set(paths.STEP_LOCK, self._lock.to_json(), version=node.version)
        except (NodeExists, VersionConflict, NodeMissing) as error:
            raise _lost(self._tree.get(paths.STEP_LOCK)) from error
        return Fence(self._tree, taken, self._lock.life_ms)

    def _refuse_while_alive(self, node: Node) -> None:
        held = Lock.from_node(node)
        left_ms = node.modified_ms + held.life_ms - self._tree.now_ms()
        if held.owner != self._lock.owner and left_ms > 0:
            raise LockLost(
                f"The plan is being stepped by {held.owner}; "
                f"if that process is dead, another may step in {left_ms / 1000:.0f} s."
            )

    def __enter__(self) -> Fence:
        self._fence = self.acquire()
        return self._fence

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._fence is not None:
            self._fence.release()


def _lost(node: Node | None) -> LockLost:
    by = "was released" if node is None else f"was taken over by {Lock.from_node(node).owner}"
    return LockLost(f"The step lock {by}: this process must change nothing more; the other one goes on with the plan.")
