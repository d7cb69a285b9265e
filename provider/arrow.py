"""PyArrow without pandas: it imports pandas with its first value, which takes a task a second or more.

Nothing here takes or makes a pandas object.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from threading import get_ident
from types import ModuleType


class _WithoutPandas(MetaPathFinder):
    """A finder, to be the first one, that does not find pandas for the thread that made it."""

    def __init__(self) -> None:
        self._thread = get_ident()

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:  # noqa: ARG002 - the interface of importlib
        """Raise ImportError for pandas; leave all else to the other finders."""
        if name == "pandas" and get_ident() == self._thread:
            raise ModuleNotFoundError("pandas is left out", name=name)


def leave_out_pandas() -> None:
    """Let PyArrow work in this process without importing pandas.

    Meant for processes that belong to one task. PyArrow looks for pandas once; for a conversion to pandas, it imports
    it even so, but it does not recognise pandas' NaT among the objects of a list afterwards.
    Has no effect if pandas or a value of PyArrow is in use already.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa  # noqa: PLC0415 - DAG files are parsed without it

    finder = _WithoutPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.scalar(0)
    finally:
        sys.meta_path.remove(finder)
