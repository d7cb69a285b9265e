"""The journal's database, opened for reading: it changes nothing in it, and needs neither Kafka nor ZooKeeper.

A long list is read in pages. A cursor is the place after which the next page begins, as a text for a URL.
"""

from __future__ import annotations

import base64
import json
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import sqlalchemy as sa

from kafka_steward.errors import RequestError
from kafka_steward.journal.sql.database import as_journal_error, open_reading_engine
from kafka_steward.journal.sql.dialect import now_ms

if TYPE_CHECKING:
    from typing import Self

T = TypeVar("T")

#: The most rows of a page.
MOST_ROWS = 500
#: Characters of a cursor.
_LONGEST = 2_000
_LARGEST = 2**63 - 1


@dataclass(frozen=True)
class Page(Generic[T]):
    """Some rows of a longer list. `after` is the cursor of the next page, for a URL; None on the last page."""

    rows: tuple[T, ...]
    after: str | None


class JournalReader:
    """The tables of all clusters of one journal. Thread-safe. Any function that takes it may raise JournalError."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    @contextmanager
    def connection(self) -> Iterator[sa.Connection]:
        """Open a connection in one transaction. Raises JournalUnreachable, or JournalError for a refused statement."""
        try:
            with self._engine.connect() as opened, opened.begin():
                yield opened
        except (sa.exc.DBAPIError, sa.exc.TimeoutError) as error:
            raise as_journal_error(self._engine, error) from error

    def rows(self, query: sa.Select[Any]) -> Sequence[sa.RowMapping]:
        """Return the rows of one query."""
        with self.connection() as opened:
            return opened.execute(query).mappings().all()

    def page(
        self,
        query: sa.Select[Any],
        limit: int,
        read: Callable[[sa.RowMapping], T],
        place: Callable[[T], tuple[int | str, int | str]],
    ) -> Page[T]:
        """Return the first `limit` rows of a query as `read` returns them; `place` returns the keys of its order."""
        limit = min(limit, MOST_ROWS)
        rows = self.rows(query.limit(limit + 1))
        shown = tuple(map(read, rows[:limit]))
        return Page(shown, to_cursor(*place(shown[-1])) if len(rows) > limit else None)

    def now_ms(self) -> int:
        """Return the time of the database's clock, in milliseconds since 1970."""
        with self.connection() as opened:
            return int(opened.execute(sa.select(now_ms())).scalar_one())

    def close(self) -> None:
        """Close all connections. Harmless when called twice."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def open_reader(url: str, *, host: str | None = None) -> JournalReader:
    """Open the journal at an SQLAlchemy URL for reading, as one of its processes on the machine `host`.

    Raises SettingError for an unusable URL, JournalUnreachable if the database does not answer, and JournalError if
    there is no journal yet, if its tables are of another version, or if it belongs to another host.
    """
    return JournalReader(open_reading_engine(url, host or platform.node()))


def to_cursor(*values: int | str) -> str:
    """Return the cursor with these values, the keys of the last row of a page."""
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


def from_cursor(text: str, kinds: Sequence[type[int | str]]) -> tuple[int | str, ...]:
    """Return the values of a cursor, of these kinds. Raises RequestError for any other text."""
    values: Any = None
    if len(text) <= _LONGEST:
        with suppress(ValueError, RecursionError):
            values = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    is_cursor = isinstance(values, list) and [type(value) for value in values] == list(kinds)
    # A database refuses a number that its column cannot hold.
    if not is_cursor or any(isinstance(value, int) and abs(value) > _LARGEST for value in values):
        raise RequestError("This page of the list does not exist; begin at its first page.")
    return tuple(values)
