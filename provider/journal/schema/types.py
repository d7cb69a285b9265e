"""Column types: how the values of the journal's records are stored, so that rows are read and written by field name."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.types import TypeDecorator, TypeEngine

from kafka_steward.journal.sql.dialect import NAME

#: Characters that are kept of a text, unless said otherwise.
_LONGEST = 10_000


class Stored(TypeDecorator[Any]):
    """A column type that stores `write` of a value, in a column of the type `base`; `read` makes the value again.

    Without `read`, the stored value is the value.
    """

    impl = sa.Text
    cache_ok = True

    def __init__(
        self,
        write: Callable[[Any], Any],
        read: Callable[[Any], Any] | None = None,
        base: TypeEngine[Any] | None = None,
    ) -> None:
        super().__init__()
        self.write = write
        self.read = read
        self.base = base or sa.Text()

    def load_dialect_impl(self, dialect: sa.Dialect) -> TypeEngine[Any]:  # noqa: ARG002 - SQLAlchemy's signature
        """Return the base type, with its variants."""
        return self.base

    def bind_processor(self, dialect: sa.Dialect) -> Callable[[Any], Any]:  # noqa: ARG002 - SQLAlchemy's signature
        """Return the function for what is stored of a value: the base types need none of their own."""
        return self.write

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> Callable[[Any], Any] | None:  # noqa: ARG002 - the same
        """Return the function for the value that was stored, if it needs one."""
        return self.read


def clean_text(most: int | None = _LONGEST) -> Stored:
    """Return the type of a text that may quote others, as every database stores it, and cut to `most` characters."""
    return Stored(partial(_clean, most=most))


def member(kind: type[Enum]) -> Stored:
    """Return the type of a member of `kind`, which is stored by its value; None is NULL."""
    members: dict[Any, Any] = {None: None} | {each.value: each for each in kind}
    return Stored(lambda value: None if value is None else kind(value).value, members.__getitem__)


def _clean(text: str | None, most: int | None) -> str | None:
    # PostgreSQL stores no NUL, and no database stores half a surrogate pair; Kafka's messages may contain both.
    return None if text is None else text[:most].replace("\x00", "").encode(errors="replace").decode()


#: Any JSON value; None is NULL.
JSON = Stored(
    lambda value: None if value is None else json.dumps(value, sort_keys=True),
    lambda text: None if text is None else json.loads(text),
)
#: Broker ids, in order, as a JSON list.
BROKERS = Stored(json.dumps, lambda text: tuple(json.loads(text)))
#: A name and a number in a key, where '' and -1 represent None, because NULLs never compare equal.
NAME_OR_NONE = Stored(lambda name: _clean(name or "", _LONGEST), lambda text: text or None, NAME)
NUMBER_OR_NONE = Stored(
    lambda number: -1 if number is None else number,
    lambda number: None if number == -1 else number,
    sa.BigInteger(),
)
