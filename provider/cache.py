"""The cache of this user on this machine: downloads, and what was prepared once. Deleting it loses nothing but time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_path() -> Path:
    """Return the cache folder, which may not exist.

    It is $KAFKA_STEWARD_CACHE, or kafka-steward under $XDG_CACHE_HOME, or ~/.cache/kafka-steward.
    """
    chosen = os.environ.get("KAFKA_STEWARD_CACHE")
    base = os.environ.get("XDG_CACHE_HOME")
    folder = Path(chosen) if chosen else (Path(base) if base else Path.home() / ".cache") / "kafka-steward"
    return folder.resolve()


def cache_folder() -> Path:
    """Return the cache folder, created if missing. Raises OSError if it cannot be created."""
    folder = cache_path()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def locked_cache(part: str) -> Iterator[Path]:
    """Hold the lock of a `part` of the cache, waiting for other processes; yield the cache folder.

    Raises OSError if the cache cannot be written.
    """
    folder = cache_folder()
    with (folder / f"{part}.flock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield folder
