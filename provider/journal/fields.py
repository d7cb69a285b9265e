"""Reading a JSON object field by field: a sentence for whatever is wrong, and unknown fields kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

from kafka_steward.assignment import Assignment
from kafka_steward.errors import DocumentError

__all__ = ["COMPACT", "SPACED", "Fields", "read_object", "render"]

#: How Kafka writes JSON to ZooKeeper, and how KIP-236 prints it.
COMPACT = (",", ":")
#: How KIP-46 prints its documents.
SPACED = (", ", ": ")

T = TypeVar("T")


def read_object(path: str, text: str, *, newest: int = 1) -> Fields:
    """The fields of the document `text`, found at `path`.

    Raises DocumentError unless it is a JSON object whose `version`, if it has one, is at most `newest`.
    """
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"{path} does not hold JSON ({_brief(error)}); mend or delete it.") from error
    fields = Fields(path, value)
    version = fields.peek("version")
    if isinstance(version, int) and version > newest:
        raise DocumentError(
            f"{path} was written by a newer Kafka Steward (version {version}; this one reads up to {newest}); "
            "upgrade this one."
        )
    return fields


def render(values: Mapping[str, Any], extra: Mapping[str, Any], separators: tuple[str, str] = COMPACT) -> str:
    """JSON of the values that are not None, followed by the fields that someone else added."""
    known = {key: value for key, value in values.items() if value is not None}
    return json.dumps({**known, **extra}, separators=separators)


class Fields:
    """The fields of one JSON object. Each is taken once; `rest()` is what was left."""

    def __init__(self, path: str, value: Any) -> None:
        self._path = path
        if not isinstance(value, dict):
            self.refuse(f"holds {_kind(value)} where an object belongs")
        self._values: dict[str, Any] = dict(value)

    def refuse(self, what: str) -> NoReturn:
        """Raise DocumentError: path, what is wrong, and what to do."""
        raise DocumentError(f"{self._path} {what}; mend or delete it.")

    def peek(self, key: str) -> Any:
        """A field as it is, left in place; None when there is none."""
        return self._values.get(key)

    def rest(self) -> dict[str, Any]:
        """The fields that nobody took: someone else's, to be written back."""
        return self._values

    def maybe(self, key: str, take: Callable[[str], T]) -> T | None:
        """The field by `take`; None when it is absent or null."""
        if self._values.get(key) is None:
            self._values.pop(key, None)
            return None
        return take(key)

    def integer(self, key: str, low: int = 0) -> int:
        """A whole number of at least `low`."""
        value = self._take(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            self.refuse(f"has {key!r} = {_shown(value)} where a whole number of at least {low} belongs")
        return value

    def text(self, key: str) -> str:
        """A string."""
        value = self._take(key)
        if not isinstance(value, str):
            self.refuse(f"has {key!r} = {_shown(value)} where a string belongs")
        return value

    def flag(self, key: str) -> bool:
        """True or false."""
        value = self._take(key)
        if not isinstance(value, bool):
            self.refuse(f"has {key!r} = {_shown(value)} where true or false belongs")
        return value

    def brokers(self, key: str) -> Assignment:
        """A list of different broker ids, in order."""
        value = self._list(key)
        if not all(isinstance(each, int) and not isinstance(each, bool) and each >= 0 for each in value):
            self.refuse(f"has {key!r} = {_shown(value)} where a list of broker ids belongs")
        if len(set(value)) < len(value):
            self.refuse(f"names a broker twice in {key!r} = {_shown(value)}")
        return tuple(value)

    def replicas(self, key: str) -> Assignment:
        """A list of different broker ids, and of KIP-409's placeholders -1, -2, … for replicas that are owed."""
        value = self._list(key)
        if not all(isinstance(each, int) and not isinstance(each, bool) for each in value):
            self.refuse(f"has {key!r} = {_shown(value)} where a list of broker ids and placeholders belongs")
        if len(set(value)) < len(value):
            self.refuse(f"names a broker twice in {key!r} = {_shown(value)}")
        return tuple(value)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings."""
        value = self._list(key)
        if not all(isinstance(each, str) for each in value):
            self.refuse(f"has {key!r} = {_shown(value)} where a list of strings belongs")
        return tuple(value)

    def objects(self, key: str) -> list[Fields]:
        """A list of objects, each to be read in turn."""
        return [Fields(f"{self._path}, {key}[{place}]", each) for place, each in enumerate(self._list(key))]

    def object(self, key: str) -> Fields:
        """An object within this one."""
        return Fields(f"{self._path}, {key}", self._take(key))

    def _list(self, key: str) -> list[Any]:
        value = self._take(key)
        if not isinstance(value, list):
            self.refuse(f"has {key!r} = {_shown(value)} where a list belongs")
        return value

    def _take(self, key: str) -> Any:
        if key not in self._values:
            self.refuse(f"has no {key!r}")
        return self._values.pop(key)


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _kind(value: Any) -> str:
    kinds = {list: "a list", str: "a string", bool: "a truth value", int: "a number", float: "a number"}
    return kinds.get(type(value), "nothing")


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _brief(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)
