"""The download cache, outside the work tree, and the lock that lets one process at a time fill a part of it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_folder() -> Path:
    """Return the cache folder, created if missing.

    It is $KAFKA_STEWARD_CACHE, or kafka-steward under $XDG_CACHE_HOME, or ~/.cache/kafka-steward.
    """
    chosen = os.environ.get("KAFKA_STEWARD_CACHE")
    base = os.environ.get("XDG_CACHE_HOME")
    folder = Path(chosen) if chosen else (Path(base) if base else Path.home() / ".cache") / "kafka-steward"
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


@contextmanager
def exclusive(name: str) -> Iterator[Path]:
    """Hold the cache's lock `name`, waiting for other processes; yield the cache folder. Released on any exit."""
    folder = cache_folder()
    with (folder / f"{name}.flock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield folder
