"""Python's garbage collection in the triggerer, of which what is loaded is excluded.

A full collection visits every object and blocks the interpreter meanwhile: with Airflow loaded, for 190 to 860 ms, in
which no trigger of the process runs. Importing Kafka's, SQL's and ZooKeeper's clients in a thread allocates enough
objects to cause some, and so does a watch of thousands of partitions.
"""

from __future__ import annotations

import functools
import gc


@functools.cache
def freeze_gc(loaded: str) -> None:  # noqa: ARG001 - the key of the cache
    """Freeze all existing objects, so that only new ones are collected. Runs once for each name of what is `loaded`."""
    gc.freeze()
