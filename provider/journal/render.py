"""The audit trail and a plan's progress as plain tables for people: rows in, cells or lines out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from kafka_steward.escaping import printable, utc
from kafka_steward.journal.audit import AuditRow, Entry
from kafka_steward.journal.moves import MoveRow, MoveState
from kafka_steward.journal.records import PlanRecord

__all__ = ["Table", "audit_table", "moves_table", "plan_lines", "plans_table"]

_AUDIT = ("when", "action", "partition", "before -> after", "outcome", "reason", "who")
_MOVES = ("chunk", "partition", "before -> after", "state", "detail")
_PLANS = ("published", "plan", "operation", "status", "partitions", "reason", "who")
#: Longer texts are cut in the middle of a table; the last column never is.
_WIDEST = 70


class Table(NamedTuple):
    """Headings, and rows of as many cells. Each cell is one printable line."""

    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]

    def lines(self) -> list[str]:
        """Aligned text; long cells are cut, except in the last column."""
        cut = [self.columns, *((*(_cut(cell) for cell in row[:-1]), row[-1]) for row in self.rows)]
        widths = [max(len(row[column]) for row in cut) for column in range(len(self.columns))]
        lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cut)
        return [line.rstrip() for line in lines]


def audit_table(rows: Sequence[AuditRow]) -> Table:
    """The audit trail, a row each. Times are UTC."""
    return _table(_AUDIT, [_audit_cells(row) for row in rows])


def moves_table(rows: Sequence[MoveRow]) -> Table:
    """What a plan moves and how far each partition is, a row per partition."""
    return _table(_MOVES, [_move_cells(row) for row in rows])


def plans_table(records: Sequence[PlanRecord]) -> Table:
    """Plans, a row each."""
    return _table(_PLANS, [_plan_cells(record) for record in records])


def plan_lines(record: PlanRecord, rows: Sequence[MoveRow]) -> list[str]:
    """Where one plan stands, in a few lines: what it is, how many partitions are in which state, and why."""
    states = Counter(row.state for row in rows)
    counted = ", ".join(f"{states[state]} {state.value}" for state in MoveState if states[state])
    lines = [
        f"plan {record.digest[:12]}: {record.operation}, {record.status.value}, {record.partitions} partitions",
        f"  partitions: {counted or 'none'}",
        f"  published {utc(record.published_ms)}, last stepped {utc(record.stepped_ms)}",
    ]
    if record.throttle is not None:
        rate = f"{record.throttle:,} bytes/s into each broker" if record.throttle else "none"
        lines.append(f"  throttle {rate}, as a person asked for it")
    return lines + ([f"  {record.reason}"] if record.reason else [])


def _audit_cells(row: AuditRow) -> tuple[str, ...]:
    entry = row.entry
    outcome = f"{row.outcome.value}: {row.detail}" if row.detail else row.outcome.value
    change = _change(entry.before, entry.after)
    return (utc(row.when_ms), entry.action.value, _subject(entry), change, outcome, entry.reason, str(entry.who))


def _move_cells(row: MoveRow) -> tuple[str, ...]:
    move = row.move
    change = _change(move.before, move.after)
    return (str(move.chunk), str(move.topic_partition), change, row.state.value, row.detail)


def _plan_cells(record: PlanRecord) -> tuple[str, ...]:
    when, digest = utc(record.published_ms), record.digest[:12]
    status, partitions = record.status.value, str(record.partitions)
    return (when, digest, record.operation, status, partitions, record.reason, str(record.who))


def _subject(entry: Entry) -> str:
    if entry.topic is not None:
        return entry.topic if entry.partition is None else f"{entry.topic}-{entry.partition}"
    if entry.broker is not None:
        return f"broker {entry.broker}"
    return "" if entry.chunk is None else f"chunk {entry.chunk}"


def _change(before: Any, after: Any) -> str:
    if before is None and after is None:
        return ""
    return f"{_value(before)} -> {_value(after)}"


def _value(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, list | tuple):
        return f"[{','.join(_value(each) for each in value)}]"
    if isinstance(value, dict):
        return ", ".join(f"{key}={_value(each)}" for key, each in value.items())
    return str(value)


def _table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Table:
    return Table(columns, [tuple(_line(cell) for cell in row) for row in rows])


def _cut(line: str) -> str:
    return line if len(line) <= _WIDEST else f"{line[: _WIDEST - 3]}..."


def _line(text: str) -> str:
    # Words from outside may hold line ends and terminal codes: neither may break the table.
    return printable(text)
