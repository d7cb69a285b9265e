"""The name by which a process holds a lock, and whether a process of this machine that had one is dead."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import uuid
from contextlib import suppress
from functools import cache
from pathlib import Path

__all__ = ["is_dead", "process_name"]

_PROC = Path("/proc")
_NAME = re.compile(r"(?P<host>.+):(?P<pid>[0-9]+):(?P<place>[0-9a-f]{8})[0-9a-f]{8}")


def process_name() -> str:
    """Host and process id for people; then where process ids mean the same; and a random part, new with each call."""
    return f"{platform.node()}:{os.getpid()}:{_place()}{uuid.uuid4().hex[:8]}"


def is_dead(name: str) -> bool:
    """Whether `name` is that of a process of this machine which has ended. False whenever that cannot be known."""
    found = _NAME.fullmatch(name)
    if not found or found["host"] != platform.node() or found["place"] != _place() or _place() == _NOWHERE:
        return False
    pid = int(found["pid"])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return _is_zombie(pid)


#: Where the system does not tell which process ids are the same: no process of it is ever taken for dead.
_NOWHERE = "00000000"


@cache
def _place() -> str:
    """This boot of this machine, and this namespace of process ids: two containers may share the host's name."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text()
        namespace = (_PROC / "self/ns/pid").readlink()
    except OSError:
        return _NOWHERE
    return hashlib.sha256(f"{boot}{namespace}".encode()).hexdigest()[:8]


def _is_zombie(pid: int) -> bool:
    """Killed, and its parent has not asked for it yet."""
    with suppress(OSError):
        # The name in brackets may hold anything; the state comes after the last bracket.
        return (_PROC / f"{pid}/stat").read_text().rpartition(")")[2].split()[0] in {"Z", "X"}
    return False
