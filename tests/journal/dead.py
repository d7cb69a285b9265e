"""A process that held a lock and was killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_SCRIPT = "from kafka_steward.journal.locks import new_holder_name; print(new_holder_name(), flush=True); input()"


@contextmanager
def dead_process() -> Iterator[str]:
    """The name of a process, which lives within the block and is a zombie after it, until Python collects it."""
    process = subprocess.Popen(
        [sys.executable, "-c", _SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        process.communicate()
