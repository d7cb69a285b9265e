"""The audit trail and a plan's progress as plain-text tables: functions from rows to cells or lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from kafka_steward.assignment import counted
from kafka_steward.escaping import printable, utc_text
from kafka_steward.journal.audit import AuditRecord, StoredAuditRecord
from kafka_steward.journal.records import MoveRow, MoveState, PlanRecord

_AUDIT = ("when", "action", "partition", "before -> after", "outcome", "reason", "who")
_MOVES = ("chunk", "partition", "before -> after", "state", "detail")
_PLANS = ("published", "plan", "operation", "status", "partitions", "reason", "who")
#: The maximum width of a cell: longer texts are truncated, except in the last column.
_WIDEST = 70


class Table(NamedTuple):
    """Column headings, and rows with one cell per column. Each cell is one printable line."""

    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]

    def lines(self) -> list[str]:
        """Return the table as aligned lines; long cells are truncated, except in the last column."""
        cut = [self.columns, *((*(_truncate_line(cell) for cell in row[:-1]), row[-1]) for row in self.rows)]
        widths = [max(len(row[column]) for row in cut) for column in range(len(self.columns))]
        lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cut)
        return [line.rstrip() for line in lines]


def audit_table(rows: Sequence[StoredAuditRecord]) -> Table:
    """Return the audit trail as a table with one line per row. Times are in UTC."""
    return _build_table(_AUDIT, [_audit_cells(row) for row in rows])


def moves_table(rows: Sequence[MoveRow]) -> Table:
    """Return a plan's moves and their states as a table with one line per partition."""
    return _build_table(_MOVES, [_move_cells(row) for row in rows])


def plans_table(records: Sequence[PlanRecord]) -> Table:
    """Return plans as a table with one line per plan."""
    return _build_table(_PLANS, [_plan_cells(record) for record in records])


def plan_lines(record: PlanRecord, rows: Sequence[MoveRow]) -> list[str]:
    """Return a summary of one plan: operation and status, partitions per state, times, throttle, and reason."""
    states = Counter(row.state for row in rows)
    by_state = ", ".join(f"{states[state]} {state.value}" for state in MoveState if states[state])
    partitions = counted(record.partitions, "partition") if record.partitions else "nothing to move"
    cancelled = " and being cancelled" if record.cancel is not None and not record.status.finished else ""
    lines = [
        f"plan {record.digest[:12]}: {record.operation}, {record.status.value}{cancelled}, {partitions}",
        *([f"  partitions: {by_state or 'none'}"] if record.partitions else []),
        f"  published {utc_text(record.published_ms)}, last stepped {utc_text(record.stepped_ms)}",
    ]
    if record.throttle is not None:
        rate = f"{record.throttle:,} bytes/s into each broker" if record.throttle else "none"
        lines.append(f"  throttle {rate}, set by a user")
    return lines + ([f"  {record.reason}"] if record.reason else [])


def _audit_cells(row: StoredAuditRecord) -> tuple[str, ...]:
    entry = row.entry
    outcome = f"{row.outcome.value}: {row.detail}" if row.detail else row.outcome.value
    change = _format_change(entry.before, entry.after)
    return (
        utc_text(row.when_ms),
        entry.action.value,
        _audit_subject(entry),
        change,
        outcome,
        entry.reason,
        str(entry.who),
    )


def _move_cells(row: MoveRow) -> tuple[str, ...]:
    move = row.move
    change = _format_change(move.before, move.after)
    return (str(move.chunk), str(move.topic_partition), change, row.state.value, row.detail)


def _plan_cells(record: PlanRecord) -> tuple[str, ...]:
    when, digest = utc_text(record.published_ms), record.digest[:12]
    status, partitions = record.status.value, str(record.partitions)
    return (when, digest, record.operation, status, partitions, record.reason, str(record.who))


def _audit_subject(entry: AuditRecord) -> str:
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
        return f"[{','.join(_format_value(each) for each in value)}]"
    if isinstance(value, dict):
        return ", ".join(f"{key}={_format_value(each)}" for key, each in value.items())
    return str(value)


def _build_table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Table:
    return Table(columns, [tuple(_printable_cell(cell) for cell in row) for row in rows])


def _truncate_line(line: str) -> str:
    return line if len(line) <= _WIDEST else f"{line[: _WIDEST - 3]}..."


def _printable_cell(text: str) -> str:
    # External text may contain line breaks and terminal escape codes: neither may break the table.
    return printable(text)
