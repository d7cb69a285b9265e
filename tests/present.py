"""What a test expects to be there."""

from __future__ import annotations

from typing import TypeVar

__all__ = ["present"]

_T = TypeVar("_T")


def present(value: _T | None) -> _T:
    """Return the value, which must not be None."""
    assert value is not None
    return value
