"""The journal's database, opened for reading: it changes nothing in it, and needs neither Kafka nor ZooKeeper."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import sqlalchemy as sa

from kafka_steward.journal.sql.database import as_journal_error, open_reading_engine
from kafka_steward.journal.sql.dialect import now_ms

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

T = TypeVar("T")


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

    def now_ms(self) -> int:
        """Return the time of the database's clock, in milliseconds since 1970."""
        with self.connection() as opened:
            return int(opened.execute(sa.select(now_ms())).scalar_one())

    def close(self) -> None:
        """Close all connections. Harmless when called twice."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_reader(url: str, *, host: str | None = None) -> JournalReader:
    """Open the journal at an SQLAlchemy URL for reading, as one of its processes on the machine `host`.

    Raises SettingError for an unusable URL, JournalUnreachable if the database does not answer, and JournalError if
    there is no journal yet, if its tables are of another version, or if it belongs to another host.
    """
    return JournalReader(open_reading_engine(url, host or platform.node()))
