"""Two locks: a plan holds the plan slot until it ends; a process holds the step lock for one step.

The plan slot never expires: a plan whose processes have all crashed still holds it, and the next process that steps the
plan resumes it. The step lock expires after 60 s by the journal's clock, so a killed process blocks others no longer
than that. If the holder is known to be dead because it ran on this machine, the lock expires after 10 s, the time in
which Kafka completes the last request. A process that was suspended for longer detects by `Fence.check` that another
process took over: its fencing token is not the current one any more, and every fenced write
compares the token.

The holder's name contains host, boot and process id, so that a dead holder on this machine is recognised.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import time
import uuid
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

from kafka_steward.errors import JournalError, LockLost, SlotTaken
from kafka_steward.journal.state import ONLY, Noun, Row, Rows, State, read_together

_PROC = Path("/proc")

_NAME = re.compile(r"(?P<host>.+):(?P<pid>[0-9]+):(?P<place>[0-9a-f]{8})[0-9a-f]{8}")


def new_holder_name() -> str:
    """Return a new name for a holder of the step lock: no two steps ever share one.

    It consists of host, process id, a hash of boot and pid namespace, and a random part.
    """
    return f"{platform.node()}:{os.getpid()}:{_host_boot_id()}{uuid.uuid4().hex[:8]}"


def is_dead_process(name: str) -> bool:
    """Return whether `name` belongs to a process of this machine that has ended. False if that is unknown."""
    # Of another boot or another pid namespace, a process id says nothing.
    parts = _NAME.fullmatch(name)
    if (
        not parts
        or parts["host"] != platform.node()
        or parts["place"] != _host_boot_id()
        or _host_boot_id() == _UNKNOWN_BOOT
    ):
        return False
    pid = int(parts["pid"])
    try:
        # Signal 0 is not sent: it only shows whether the process exists.
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False  # it exists and belongs to another user, or the number is no process id of this system
    return _is_zombie(pid)


#: The hash if the system does not identify its boot and pid namespace: no process is then considered dead.
_UNKNOWN_BOOT = "00000000"


@cache
def _host_boot_id() -> str:
    """Return a hash of this machine's boot id and the pid namespace: two containers may have the same host name."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text()
        namespace = (_PROC / "self/ns/pid").readlink()
    except OSError:
        return _UNKNOWN_BOOT
    return hashlib.sha256(f"{boot}{namespace}".encode()).hexdigest()[:8]


def _is_zombie(pid: int) -> bool:
    """Return whether the process was killed and its parent has not reaped it yet."""
    with suppress(OSError):
        # The name in parentheses may contain any character; the state comes after the last parenthesis.
        return (_PROC / f"{pid}/stat").read_text().rpartition(")")[2].split()[0] in {"Z", "X"}
    return False


#: The time to live of a step lock without renewal, in milliseconds.
TTL_MS = 60_000

#: The time to live if the holder is known to be dead.
DEAD_MS = 10_000

#: The number of attempts at a change when other processes change the same row.
_TRIES = 10


@dataclass(frozen=True)
class SlotClaims:
    """The plans that hold the plan slot, the one that has held it longest first, and the preempted plans.

    The most recently preempted plan is the last one.
    """

    holders: tuple[str, ...] = ()
    preempted: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lock:
    """The process that steps a plan, None after it has released the lock, and the time to live after each renewal.

    `fencing_token` counts the acquisitions of the lock.
    """

    owner: str | None
    ttl_ms: int
    fencing_token: int


SLOT: Noun[str, SlotClaims] = Noun("slot", SlotClaims)
STEP_LOCK: Noun[str, Lock] = Noun("step_lock", Lock)


class PlanSlot:
    """The plan slot: it stores the digests of the plans that may submit moves. Their partitions differ."""

    def __init__(self, state: State) -> None:
        self._rows = Rows(state, SLOT)

    def holders(self) -> tuple[str, ...]:
        """Return the digests of the plans that hold the slot, the first of them first; empty if it is free."""
        return self._read()[1].holders

    def preempted_plans(self) -> tuple[str, ...]:
        """Return the digests of the preempted plans, the most recently preempted last."""
        return self._read()[1].preempted

    def acquire(self, digest: str, *, beside: Collection[str] = ()) -> None:
        """Acquire the slot for a plan, which may have it together with the plans `beside`.

        A holder may acquire it again. Raises SlotTaken, naming a holder beside which the plan may not have it.
        """

        def taken(now: SlotClaims) -> SlotClaims:
            if digest in now.holders:
                return now
            holder = next((held for held in now.holders if held not in beside), None)
            if holder is not None:
                raise SlotTaken(holder, f"Plan {digest[:12]} cannot start")
            return SlotClaims((*now.holders, digest), _without(now.preempted, digest))

        self._update(taken)

    def preempt_with(self, digest: str) -> tuple[str, ...]:
        """Preempt the holders for a plan of higher priority, such as a heal; the previous holders wait.

        Returns the digests of the preempted plans. A waiting plan gets the slot back by `release`.
        """
        preempted: tuple[str, ...] = ()

        def taken(now: SlotClaims) -> SlotClaims:
            nonlocal preempted
            preempted = _without(now.holders, digest)
            # The first holder waits last, and so gets the slot back first.
            return SlotClaims((digest,), _without((*now.preempted, *reversed(now.holders)), digest))

        self._update(taken)
        return preempted

    def release(self, digest: str) -> str | None:
        """Release a plan's claim, whether it holds the slot or waits; a free slot goes to the last waiting plan.

        Returns the first holder from now on, None if the slot is free. Does nothing if the plan has no claim.
        """
        released = self._update(lambda now: SlotClaims(_without(now.holders, digest), _without(now.preempted, digest)))
        return next(iter(released.holders), None)

    def _update(self, change: Callable[[SlotClaims], SlotClaims]) -> SlotClaims:
        for _ in range(_TRIES):
            row, now = self._read()
            changed = change(now)
            # In the same write: after a crash in between, the slot would be free while a preempted plan waits for it.
            if not changed.holders:
                changed = SlotClaims(changed.preempted[-1:], changed.preempted[:-1])
            if changed == now or self._rows.put(ONLY, changed, row) is not None:
                return changed
        raise JournalError(f"The plan slot was changed by other processes {_TRIES} times in a row; try again.")

    def _read(self) -> tuple[Row[str, SlotClaims] | None, SlotClaims]:
        row = self._rows.get(ONLY)
        return row, SlotClaims() if row is None else row.value


def _without(claims: tuple[str, ...], digest: str) -> tuple[str, ...]:
    return tuple(claim for claim in claims if claim != digest)


class Fence:
    """Proof that a process holds the step lock. Call `check` before each Kafka call and within each journal write.

    `token` increases each time that the lock is acquired.
    """

    def __init__(self, rows: Rows[str, Lock], row: Row[str, Lock]) -> None:
        self._rows = rows
        self._row = row
        self._renewed_s = time.monotonic()

    @property
    def token(self) -> int:
        """The fencing token: the number of times that the lock was acquired."""
        return self._row.value.fencing_token

    @property
    def now_ms(self) -> int:
        """The journal's time when the lock was acquired or last checked: a clock that costs no request."""
        return self._row.at_ms

    def check(self) -> None:
        """Renew the lock, which succeeds only while this process holds it. Raises LockLost otherwise.

        One conditional change both proves the claim and begins a whole time to live for what follows. It compares the
        claim, and not the last renewal, which may have been rolled back, or been made without an answer.
        """
        renewed = self._rows.renew(self._row)
        if renewed is None:
            row = self._rows.get(ONLY)
            by = "was released" if row is None or row.value.owner is None else f"was acquired by {row.value.owner}"
            raise LockLost(
                f"The step lock {by}: this process must change nothing more; the plan continues in the other process."
            )
        self._row = renewed
        self._renewed_s = time.monotonic()

    def check_after_wait(self) -> None:
        """Do what `check` does if the last renewal is a third of the time to live ago: after a request that took long.

        Raises LockLost.
        """
        if (time.monotonic() - self._renewed_s) * 1000 >= TTL_MS / 3:
            self.check()

    def release(self) -> None:
        """Release the lock if this process still holds it."""
        # Only while the lock is ours: one that was lost belongs to its next holder.
        self._rows.renew(self._row, replace(self._row.value, owner=None))


class StepLock:
    """The step lock for one process. As a context manager it yields the `Fence`.

    `owner` names the process in messages: host and process id.
    """

    def __init__(self, state: State, owner: str, *, ttl_ms: int = TTL_MS) -> None:
        self._rows = Rows(state, STEP_LOCK)
        self._owner = owner
        self._ttl_ms = ttl_ms
        self._seen: list[Row[str, Lock] | None] = []
        self._fence: Fence | None = None

    def read_with_lock(self, *nouns: Noun[Any, Any]) -> list[list[Row[Any, Any]]]:
        """Read all rows of some nouns together with the lock, before it is acquired.

        Nobody else has stepped since then if the lock is acquired next: each acquisition changes the lock's row.
        """
        lock, *rows = read_together(self._rows.state, STEP_LOCK, *nouns)
        self._seen = [next(iter(lock), None)]
        return rows

    def acquire(self) -> Fence:
        """Acquire the lock if it is free or expired. Raises LockLost while another process holds it."""
        row = self._seen.pop() if self._seen else self._rows.get(ONLY)
        last = 0 if row is None else self._token_if_free(row)
        # A new token even after a release: what the last holder may still write with its own is refused.
        taken = self._rows.put(ONLY, Lock(self._owner, self._ttl_ms, last + 1), row)
        if taken is None:
            raise LockLost("Another process acquired the step lock first; this one does nothing now, and retries.")
        return Fence(self._rows, taken)

    def _token_if_free(self, row: Row[str, Lock]) -> int:
        held = row.value
        if held.owner is None:
            return held.fencing_token
        ttl_ms = min(held.ttl_ms, DEAD_MS) if is_dead_process(held.owner) else held.ttl_ms
        left_ms = row.at_ms + ttl_ms - self._rows.state.now_ms()
        # An expiry further away than the time to live means that the clock was set back: the lock counts as expired.
        if 0 < left_ms <= 2 * ttl_ms:
            raise LockLost(
                f"The plan is being stepped by {held.owner}; "
                f"if that process is dead, its lock expires in {left_ms / 1000:.0f} s."
            )
        return held.fencing_token

    def __enter__(self) -> Fence:
        self._fence = self.acquire()
        return self._fence

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._fence is not None:
            self._fence.release()
