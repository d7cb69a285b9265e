"""Runner of a command that ends when its parent does: `python die_with_parent.py PARENT_PID COMMAND...`.

The kernel is requested to send SIGKILL when the parent's spawning thread ends. The command then replaces this process,
so that the process id stays the same. A `preexec_fn` would do it too, but may deadlock in a process that has threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    """Replace this process with `command`, unless `parent` has ended already."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        sys.exit(f"prctl failed: {os.strerror(ctypes.get_errno())}")
    # The parent may have ended before the request was made: then the signal would never be sent.
    if os.getppid() != parent:
        sys.exit("the parent ended first")
    os.execvp(command[0], command)  # noqa: S606 - becoming the command is the purpose


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
