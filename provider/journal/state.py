"""Our own state: small frozen dataclasses, a row of the database for each, by its noun and its key.

Only Kafka Steward writes these rows. So they need no check field by field: a row that cannot be read was written by
hand or by another version, and its reader gets an error that names the row. A change compares the row that its
caller has read. A row that was deleted and written again is another one.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, Generic, Protocol, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import JournalError, VersionConflict
from kafka_steward.escaping import printable

K = TypeVar("K")
T = TypeVar("T")

#: The key of a noun of which there is one row.
ONLY = ""


@dataclass(frozen=True)
class Noun(Generic[K, T]):
    """What rows of a kind are about: the name in the table, the dataclass of their values, and the form of their keys.

    `parse_key` makes a key of its text, which is what `str` makes of it.
    """

    name: str
    kind: type[T]
    parse_key: Callable[[str], Any] = str

    def decode(self, text: str) -> T:
        """Return the value of its text. Raises ValueError, TypeError, KeyError and AttributeError."""
        value: T = _decoder(cast("Any", self.kind))(json.loads(text))
        return value


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row as it is stored. `created_id` is never used again, `revision` counts the changes since it was created.

    `at_ms` is the time of the last change by the database's clock, in milliseconds since 1970.
    """

    noun: str
    key: str
    text: str
    created_id: int
    revision: int
    at_ms: int

    def is_same(self, other: StoredRow | None) -> bool:
        """Return whether `other` is this row, unchanged."""
        return other is not None and (self.created_id, self.revision) == (other.created_id, other.revision)


class State(Protocol):
    """The rows of one cluster. Every method may raise JournalUnreachable; every change is atomic and durable."""

    def now_ms(self) -> int:
        """Return the time of the database's clock, which is the journal's clock."""

    def select(self, wanted: Collection[tuple[str, str | None]]) -> list[StoredRow]:
        """Return the rows with one of these nouns and keys, sorted by both; a key of None stands for all."""

    def everything(self) -> list[StoredRow]:
        """Return the rows of all nouns."""

    def write(self, noun: str, texts: Mapping[str, str], seen: Mapping[str, StoredRow]) -> list[StoredRow] | None:
        """Insert rows, or change those in `seen`, all or none; None if one of them is not as it was seen.

        `seen` has no other keys than `texts`.
        """

    def renew(self, row: StoredRow, text: str) -> StoredRow | None:
        """Change a row that still has its text, however often it was renewed; None if it has another, or is gone."""

    def delete(self, noun: str, rows: Sequence[StoredRow]) -> bool:
        """Delete rows of a noun, all or none; False if one of them was changed or deleted since it was read."""

    def purge(self, noun: str, before_ms: int) -> None:
        """Delete the rows of a noun that were changed last before this time."""

    def one_read(self, *, again: bool = False) -> AbstractContextManager[None]:
        """Let the reads of this thread in the block be answered by one request, as in `Mailbox.one_read`."""


@dataclass(frozen=True, slots=True)
class Row(Generic[K, T]):
    """A row that was read: its key, its value, and the row as it is stored."""

    key: K
    value: T
    stored: StoredRow

    @property
    def at_ms(self) -> int:
        """The time of its last change, in milliseconds since 1970."""
        return self.stored.at_ms


@dataclass(frozen=True)
class Rows(Generic[K, T]):
    """The rows of one noun. Every method may raise JournalUnreachable, and JournalError for an unreadable row."""

    state: State
    noun: Noun[K, T]

    def get(self, key: K) -> Row[K, T] | None:
        """Return the row with this key; None if there is none."""
        return next(iter(self._select(str(key))), None)

    def all(self) -> list[Row[K, T]]:
        """Return all rows, sorted by their keys."""
        return sorted(self._select(None), key=lambda row: cast("Any", row.key))

    def put(self, key: K, value: T, seen: Row[K, T] | None) -> Row[K, T] | None:
        """Write a row, which is as it was `seen`; return None if somebody else has written or deleted it since."""
        return self._write({key: value}, {} if seen is None else {key: seen}).get(key)

    def put_all(self, values: Mapping[K, T], seen: Mapping[K, Row[K, T]]) -> dict[K, Row[K, T]]:
        """Write rows, all or none. Raises VersionConflict if one is not as it was `seen`."""
        written = self._write(values, {key: row for key, row in seen.items() if key in values})
        if len(written) < len(values):
            raise self._conflict(values)
        return written

    def delete(self, row: Row[K, T]) -> bool:
        """Delete a row; return False if it was changed or deleted since it was read."""
        return self.state.delete(self.noun.name, [row.stored])

    def delete_all(self, rows: Sequence[Row[K, T]]) -> None:
        """Delete rows, all or none. Raises VersionConflict if one was changed or deleted since it was read."""
        if rows and not self.state.delete(self.noun.name, [row.stored for row in rows]):
            raise self._conflict([row.key for row in rows])

    def renew(self, row: Row[K, T], value: T | None = None) -> Row[K, T] | None:
        """Write a row again, or another value into it; return None if it has another value by now, or was deleted."""
        stored = self.state.renew(row.stored, row.stored.text if value is None else encode(value))
        return None if stored is None else Row(row.key, row.value if value is None else value, stored)

    def read(self, stored: StoredRow) -> Row[K, T]:
        """Return a row as it was stored. Raises JournalError."""
        try:
            return Row(self.noun.parse_key(stored.key), self.noun.decode(stored.text), stored)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise JournalError(
                f"The row {printable(stored.key)} of {stored.noun} in the journal's table steward_state cannot be "
                f"read ({printable(str(error))[:200]}): another version or a person wrote it; correct or delete it."
            ) from error

    def _select(self, key: str | None) -> list[Row[K, T]]:
        return [self.read(row) for row in self.state.select([(self.noun.name, key)])]

    def _write(self, values: Mapping[K, T], seen: Mapping[K, Row[K, T]]) -> dict[K, Row[K, T]]:
        keys = {str(key): key for key in values}
        texts = {text: encode(values[key]) for text, key in keys.items()}
        known = {row.stored.key: row.stored for row in seen.values()}
        written = self.state.write(self.noun.name, texts, known) if texts else []
        return {keys[row.key]: Row(keys[row.key], values[keys[row.key]], row) for row in written or ()}

    def _conflict(self, keys: Collection[K]) -> VersionConflict:
        named = str(min(keys, key=str))
        return VersionConflict(f"{self.noun.name} {named} was changed since it was read; read it again.")


def parse_partition(key: str) -> TopicPartition:
    """Return the partition of a key that is one."""
    topic, _, number = key.rpartition("-")
    return TopicPartition(topic, int(number))


def read_together(state: State, *nouns: Noun[Any, Any]) -> list[list[Row[Any, Any]]]:
    """Return all rows of each of these nouns, by one request."""
    stored = state.select([(noun.name, None) for noun in nouns])
    return [[Rows(state, noun).read(row) for row in stored if row.noun == noun.name] for noun in nouns]


def encode(value: Any) -> str:
    """Return the JSON text of a value."""
    return json.dumps(dataclasses.asdict(value))


@cache
def _decoder(hint: Any) -> Callable[[Any], Any]:
    """Return the function that makes a value of this type of its JSON value."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in {Union, UnionType}:
        inner = _decoder(next(member for member in args if member is not type(None)))
        return lambda value: None if value is None else inner(value)
    if origin is tuple:
        item = _decoder(args[0])
        return lambda values: tuple(map(item, values))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        item = _decoder(args[1])
        return lambda values: {key: item(value) for key, value in values.items()}
    if dataclasses.is_dataclass(hint):
        hints = get_type_hints(hint)
        make = cast("type[Any]", hint)
        return lambda values: make(**{name: _decoder(hints[name])(value) for name, value in values.items()})
    return hint if isinstance(hint, type) and issubclass(hint, Enum) else lambda value: value
