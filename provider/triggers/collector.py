"""Exclusion of the triggerer's loaded modules from Python's garbage collection.

A full collection visits every object and blocks the interpreter meanwhile: with Airflow loaded, for 190 to 860 ms, in
which no trigger of the process runs. A watch of thousands of partitions allocates enough objects to cause some.
"""

from __future__ import annotations

import functools
import gc

__all__ = ["freeze_gc"]


@functools.cache
def freeze_gc() -> None:
    """Freeze all existing objects, so that only new ones are collected. Call it once modules are loaded; runs once."""
    gc.freeze()
