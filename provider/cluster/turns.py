"""Large answers of a process one after the other, so that many clusters in one triggerer do not hold up its event loop.

Reading the partitions of a large cluster keeps Python busy, in kafka-python's thread and in ours. One such reading
barely delays other threads; ten at once do, since each gets its slice before the event loop has its own again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["in_turn"]

#: Seconds that a reading waits for the ones before it. Then it goes ahead: a cluster that hangs holds up no other.
PATIENCE_S = 3.0
_turn = threading.Lock()


@contextmanager
def in_turn(patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Wait until no other thread of this process is within, for `patience_s` at most."""
    mine = _turn.acquire(timeout=patience_s)
    try:
        yield
    finally:
        if mine:
            _turn.release()
