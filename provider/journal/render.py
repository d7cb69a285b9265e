"""The audit trail and a plan's progress as plain-text tables: functions from rows to cells or lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from kafka_steward.assignment import counted
from kafka_steward.escaping import printable, utc_text
from kafka_steward.journal.audit import StoredAuditRecord
from kafka_steward.journal.columns import AUDIT_TABLE, MOVES_TABLE, TableColumns
from kafka_steward.journal.records import MoveRow, MoveState, PlanRecord, status_text

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
    return _described_table(AUDIT_TABLE, rows)


def moves_table(rows: Sequence[MoveRow]) -> Table:
    """Return a plan's moves and their states as a table with one line per partition."""
    return _described_table(MOVES_TABLE, rows)


def plans_table(records: Sequence[PlanRecord]) -> Table:
    """Return plans as a table with one line per plan."""
    return _build_table(_PLANS, [_plan_cells(record) for record in records])


def plan_lines(record: PlanRecord, rows: Sequence[MoveRow]) -> list[str]:
    """Return a summary of one plan: operation and status, partitions per state, times, throttle, and reason."""
    states = Counter(row.state for row in rows)
    by_state = ", ".join(f"{states[state]} {state.value}" for state in MoveState if states[state])
    partitions = counted(record.partitions, "partition") if record.partitions else "nothing to move"
    cancelled = " and being cancelled" if record.cancel is not None and not record.status.finished else ""
    status = status_text(record.status.value, record.reason)
    lines = [
        f"plan {record.digest[:12]}: {record.operation}, {status}{cancelled}, {partitions}",
        *([f"  partitions: {by_state or 'none'}"] if record.partitions else []),
        f"  published {utc_text(record.published_ms)}, last stepped {utc_text(record.stepped_ms)}",
    ]
    if record.throttle is not None:
        rate = f"{record.throttle:,} bytes/s into each broker" if record.throttle else "none"
        lines.append(f"  throttle {rate}, set by a user")
    reason = _reason_text(record)
    return lines + ([f"  {reason}"] if reason else [])


def _plan_cells(record: PlanRecord) -> tuple[str, ...]:
    when, digest = utc_text(record.published_ms), record.digest[:12]
    status, partitions = status_text(record.status.value, record.reason), str(record.partitions)
    return (when, digest, record.operation, status, partitions, _reason_text(record), str(record.who))


def _reason_text(record: PlanRecord) -> str:
    """Return the reason of a plan, before it the rollback of it that has not ended, or that a person ended."""
    if record.rolled_back_by is None or record.rolled_back:
        return record.reason
    return f"its rollback is plan {record.rolled_back_by[:12]}; {record.reason}"


def _described_table(columns: TableColumns, rows: Sequence[Any]) -> Table:
    headings = tuple(heading for heading, _ in columns)
    return _build_table(headings, [tuple(text(row) for _, text in columns) for row in rows])


def _build_table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Table:
    # External text may contain line breaks and terminal escape codes: neither may break the table.
    return Table(columns, [tuple(map(printable, row)) for row in rows])


def _truncate_line(line: str) -> str:
    return line if len(line) <= _WIDEST else f"{line[: _WIDEST - 3]}..."
