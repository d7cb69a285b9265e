"""A log directory on a small file system in memory, which only its broker sees and which ends with it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kafka_steward.sandbox.processes import run_to_end

# In a mount namespace of its own, so that nothing stays mounted, however the broker ends.
_IN_OWN_NAMESPACE = ("unshare", "--mount", "--propagation", "private", "sh", "-c")
# KRaft's brokers refuse a directory without the file meta.properties.
_MOUNT = """\
set -e
mkdir -p "$0"
meta=$(cat "$0"/meta.properties 2> /dev/null || true)
mount -t tmpfs -o size={bytes} tmpfs "$0"
head -c {used} /dev/zero > "$0"/not-kafkas
test -z "$meta" || echo "$meta" > "$0"/meta.properties
exec "$@"
"""
_TRY_S = 10.0


@dataclass(frozen=True, slots=True)
class SmallDisk:
    """A file system of `bytes`, of which `used` are taken by something that is not Kafka's."""

    bytes: int
    used: int = 0

    def mount_command(self, folder: Path) -> tuple[str, ...]:
        """Return a command that mounts it on `folder`, and then runs the command that follows."""
        return (*_IN_OWN_NAMESPACE, _MOUNT.format(bytes=self.bytes, used=self.used), str(folder))


@cache
def can_mount() -> bool:
    """Return whether this process may mount a file system, for which Linux asks for CAP_SYS_ADMIN."""
    command = [*SmallDisk(4096).mount_command(Path("/tmp")), "true"]  # noqa: S108 - nobody else sees it there
    try:
        return run_to_end(command, within_s=_TRY_S).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
