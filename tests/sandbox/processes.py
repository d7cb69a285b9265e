"""What runs on this machine, and what it listens on, read from /proc."""

from __future__ import annotations

import contextlib
import ipaddress
import signal
import struct
from collections.abc import Collection
from pathlib import Path

LISTEN = "0A"


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    with contextlib.suppress(OSError, IndexError):
        return _stat(pid)[0] != "Z"
    return False


def restore_ctrl_c() -> None:
    """For a child, before it runs: a shell that starts the tests in the background has SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def descendants(pid: int) -> set[int]:
    """All processes below one, at this moment."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int(_stat(int(entry.name))[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def listening(pids: Collection[int]) -> set[tuple[str, int]]:
    """The (address, port) pairs that these processes accept TCP connections on."""
    inodes = {inode for pid in pids for inode in _sockets(pid)}
    return {place for table in ("tcp", "tcp6") for inode, place in _listeners(table) if inode in inodes}


def _stat(pid: int) -> list[str]:
    # The second field is the command's name in brackets, and may hold anything.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _sockets(pid: int) -> set[str]:
    found: set[str] = set()
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            # A descriptor may be closed between the listing and the look.
            with contextlib.suppress(OSError):
                found.add(str(entry.readlink()))
    return {link[len("socket:[") : -1] for link in found if link.startswith("socket:[")}


def _listeners(table: str) -> list[tuple[str, tuple[str, int]]]:
    path = Path(f"/proc/net/{table}")
    rows = [line.split() for line in path.read_text().splitlines()[1:]] if path.exists() else []
    return [(row[9], _place(row[1])) for row in rows if row[3] == LISTEN]


def _place(text: str) -> tuple[str, int]:
    address, port = text.split(":")
    # The kernel prints the address as 32-bit words in the machine's byte order.
    words = [int(address[start : start + 8], 16) for start in range(0, len(address), 8)]
    packed = b"".join(struct.pack("=I", word) for word in words)
    known = ipaddress.ip_address(packed)
    # A JVM's IPv4 listener is an IPv6 one on a mapped address.
    mapped = known.ipv4_mapped if isinstance(known, ipaddress.IPv6Address) else None
    return str(mapped or known), int(port, 16)
