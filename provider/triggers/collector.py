"""Python's garbage collector, kept off what a triggerer has loaded.

A full collection goes through every object and holds the interpreter meanwhile: with Airflow loaded, 190 to 860 ms,
in which no trigger of the process gets a turn. A watch of thousands of partitions makes enough objects to cause some.
"""

from __future__ import annotations

import functools
import gc

__all__ = ["spare_what_is_loaded"]


@functools.cache
def spare_what_is_loaded() -> None:
    """Leave to the collector only what is made from now on; once in a process, when its modules are loaded."""
    gc.freeze()
