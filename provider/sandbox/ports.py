"""Free ports of 127.0.0.1, picked together."""

from __future__ import annotations

import secrets
import socket
from contextlib import ExitStack
from pathlib import Path

__all__ = ["HOST", "pick_ports"]

HOST = "127.0.0.1"
_LOWEST = 10_000
_ATTEMPTS = 1000


def pick_ports(count: int) -> list[int]:
    """Return `count` different free ports.

    They lie below the kernel's ephemeral port range, so that a broker that is down for a while finds its port free when
    it returns.
    """
    highest = _ephemeral_start()
    picked: list[int] = []
    with ExitStack() as held:
        for _ in range(_ATTEMPTS):
            if len(picked) == count:
                return picked
            port = _LOWEST + secrets.randbelow(highest - _LOWEST)
            if _hold(port, held):
                picked.append(port)
    raise OSError(f"found only {len(picked)} of {count} free ports between {_LOWEST} and {highest} on {HOST}")


def _hold(port: int, held: ExitStack) -> bool:
    probe = held.enter_context(socket.socket())
    try:
        probe.bind((HOST, port))
    except OSError:
        return False
    return True


def _ephemeral_start() -> int:
    known = Path("/proc/sys/net/ipv4/ip_local_port_range")
    start = int(known.read_text().split()[0]) if known.exists() else 32_768
    return max(start, _LOWEST + 10_000)
