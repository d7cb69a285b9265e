"""The columns of the audit trail and of a plan's moves, described once for every output.

JSON and CSV have one column for each fact, as `AUDIT` and `MOVES` list them. A table for people joins some of them in
one cell, as `AUDIT_TABLE` and `MOVES_TABLE` do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, NamedTuple

from kafka_steward.escaping import iso_time, utc_text
from kafka_steward.journal.audit import Actor, AuditRecord, StoredAuditRecord
from kafka_steward.journal.records import MoveRow


class Column(NamedTuple):
    """A column of JSON and CSV: its name, and how its value is read from a row.

    With `any_json` a CSV file of the page has the value as JSON, so that a text and a number differ.
    """

    name: str
    value: Callable[[Any], Any]
    any_json: bool = False


def _read(path: str, *names: str) -> Iterator[Column]:
    return (Column(name, attrgetter(f"{path}.{name}")) for name in names)


AUDIT: tuple[Column, ...] = (
    Column("when", lambda row: iso_time(row.when_ms)),
    Column("completed", lambda row: iso_time(row.completed_ms)),
    Column("action", attrgetter("entry.action.value")),
    Column("code", lambda row: None if row.entry.code is None else row.entry.code.value),
    *_read("entry", "plan", "chunk", "topic", "partition", "broker"),
    Column("attempt", attrgetter("entry.submission")),
    Column("before", attrgetter("entry.before"), any_json=True),
    Column("after", attrgetter("entry.after"), any_json=True),
    Column("reason", attrgetter("entry.reason")),
    Column("outcome", attrgetter("outcome.value")),
    Column("detail", attrgetter("detail")),
    *_read("entry.who", *(part.name for part in fields(Actor))),
)

MOVES: tuple[Column, ...] = (
    *_read("move", "topic", "partition"),
    Column("before", lambda row: list(row.move.before)),
    Column("after", lambda row: list(row.move.after)),
    Column("chunk", attrgetter("move.chunk")),
    Column("state", attrgetter("state.value")),
    Column("detail", attrgetter("detail")),
    Column("submitted", lambda row: iso_time(row.submitted_ms)),
    Column("settled", lambda row: iso_time(row.settled_ms)),
)


def audit_facts(row: StoredAuditRecord) -> dict[str, Any]:
    """Return one row of the audit trail, in full, as plain values."""
    return {column.name: column.value(row) for column in AUDIT}


def move_facts(row: MoveRow) -> dict[str, Any]:
    """Return one move of a plan and its state as plain values."""
    return {column.name: column.value(row) for column in MOVES}


def _audit_subject(row: StoredAuditRecord) -> str:
    entry: AuditRecord = row.entry
    if entry.topic is not None:
        return entry.topic if entry.partition is None else f"{entry.topic}-{entry.partition}"
    if entry.broker is not None:
        return f"broker {entry.broker}"
    return "" if entry.chunk is None else f"chunk {entry.chunk}"


def _format_change(before: Any, after: Any) -> str:
    if before is None and after is None:
        return ""
    return f"{_format_value(before)} -> {_format_value(after)}"


def _format_value(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, list | tuple):
        return f"[{','.join(_format_value(element) for element in value)}]"
    if isinstance(value, dict):
        return ", ".join(f"{key}={_format_value(inner)}" for key, inner in value.items())
    return str(value)


#: The headings of a table for people, each with the text of its cell.
TableColumns = Sequence[tuple[str, Callable[[Any], str]]]

AUDIT_TABLE: TableColumns = (
    ("when", lambda row: utc_text(row.when_ms)),
    ("action", attrgetter("entry.action.value")),
    ("partition", _audit_subject),
    ("before -> after", lambda row: _format_change(row.entry.before, row.entry.after)),
    ("outcome", lambda row: f"{row.outcome.value}: {row.detail}" if row.detail else row.outcome.value),
    ("reason", attrgetter("entry.reason")),
    ("who", lambda row: str(row.entry.who)),
)

MOVES_TABLE: TableColumns = (
    ("chunk", lambda row: str(row.move.chunk)),
    ("partition", lambda row: str(row.move.topic_partition)),
    ("before -> after", lambda row: _format_change(row.move.before, row.move.after)),
    ("state", attrgetter("state.value")),
    ("detail", attrgetter("detail")),
)
