"""Send functions to executors: by name where our code is installed or on the path, else as a whole.

A pickled function of a module is only its name. An executor behind Spark Connect has our archive in the folder of its
session, and nobody can set its PYTHONPATH. Such an executor gets the function in an envelope, which puts the archive on
the path before it unpickles the function.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from pyspark import cloudpickle

#: cloudpickle has no types.
_pickler: Any = cloudpickle

Mapped = Callable[[Iterable[Any]], Iterator[Any]]

#: Set by the session of a job: the name of the folder with the archive, in the folder of a Spark Connect session.
_archive_folder: str | None = None


def use_archive_of_session(folder: str | None) -> None:
    """Let executors find our code in this folder of their session's files; None where it is on their path."""
    global _archive_folder  # noqa: PLW0603 - a job has one session
    _archive_folder = folder


def ship(function: Mapped) -> Mapped:
    """Return `function` as executors can open it."""
    return function if _archive_folder is None else _in_envelope(_pickler.dumps(function), _archive_folder)


def ship_whole(function: Callable[[Any, Iterable[Any]], Iterator[Any]], given: Any) -> Mapped:
    """Return `function` with its first argument, for executors that may have none of our code."""
    module = sys.modules[function.__module__]
    _pickler.register_pickle_by_value(module)
    try:
        payload = _pickler.dumps(partial(function, given))
    finally:
        _pickler.unregister_pickle_by_value(module)
    return _in_envelope(payload, _archive_folder)


def _in_envelope(payload: bytes, folder: str | None) -> Mapped:
    # A nested function travels whole, whichever module it is in; all that it uses is imported where it runs.
    def run(batches: Iterable[Any]) -> Iterator[Any]:
        import os  # noqa: PLC0415
        import sys  # noqa: PLC0415

        from pyspark import SparkFiles, cloudpickle  # noqa: PLC0415

        place = folder and os.path.join(SparkFiles.getRootDirectory(), folder)  # noqa: PTH118
        if place and place not in sys.path:
            sys.path.insert(0, place)
        yield from cloudpickle.loads(payload)(batches)

    return run
