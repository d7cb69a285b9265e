"""Serialized decoding of large responses, so that many clusters in one triggerer do not block its event loop.

Decoding the partitions of a large cluster occupies the interpreter, in kafka-python's thread and in ours. One such
thread barely delays the others. Ten at a time do, since each gets its time slice before the event loop runs again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["limit_concurrent_decoding"]

#: Seconds that a snapshot waits for earlier ones. Then it proceeds, so that a stalled cluster does not block others.
MAX_WAIT_S = 3.0
_turn = threading.Lock()


@contextmanager
def limit_concurrent_decoding(patience_s: float = MAX_WAIT_S) -> Iterator[None]:
    """Enter the context when no other thread of this process is in it, or after `patience_s` seconds at the latest."""
    mine = _turn.acquire(timeout=patience_s)
    try:
        yield
    finally:
        if mine:
            _turn.release()
