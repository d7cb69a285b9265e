"""Cursors: the place in a list after which the next page begins, as a text for a URL. Validated when it comes back."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

from kafka_steward.errors import RequestError

#: Characters of a cursor.
_LONGEST = 2_000
_LARGEST = 2**63 - 1


def to_cursor(*values: int | str) -> str:
    """Return the cursor with these values, the keys of the last row of a page."""
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


def from_cursor(text: str, kinds: Sequence[type[int | str]]) -> tuple[int | str, ...]:
    """Return the values of a cursor, of these kinds. Raises RequestError for any other text."""
    values = _decode(text) if len(text) <= _LONGEST else None
    if not isinstance(values, list) or [type(value) for value in values] != list(kinds):
        raise RequestError("This page of the list does not exist; begin at its first page.")
    return tuple(values)


def _decode(text: str) -> Any:
    try:
        values = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, RecursionError):
        return None
    numbers = [value for value in values if isinstance(value, int)] if isinstance(values, list) else []
    return values if all(abs(number) <= _LARGEST for number in numbers) else None
