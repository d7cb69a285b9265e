"""The name with which a process holds a lock, and a liveness check of a lock holder on this machine."""

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
    """Return a new name: host, process id, a hash of boot and pid namespace, and a random part, new with each call."""
    return f"{platform.node()}:{os.getpid()}:{_host_boot_id()}{uuid.uuid4().hex[:8]}"


def is_dead(name: str) -> bool:
    """Return whether `name` belongs to a process of this machine that has ended. False if that is unknown."""
    found = _NAME.fullmatch(name)
    if (
        not found
        or found["host"] != platform.node()
        or found["place"] != _host_boot_id()
        or _host_boot_id() == _UNKNOWN_BOOT
    ):
        return False
    pid = int(found["pid"])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
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
