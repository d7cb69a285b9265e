"""A journal with many plans that have ended, and what its database does in a block of code."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import sqlalchemy as sa

from kafka_steward.journal.observed import ApprovalState
from kafka_steward.journal.records import PlanRecord, PlanStatus
from kafka_steward.journal.schema import tables
from kafka_steward.journal.sql.database import Database
from kafka_steward.journal.sql.mailbox import SqlMailbox
from kafka_steward.journal.store import Journal

__all__ = ["Cost", "add_ended_plans", "cost_of"]

_AGO_MS = 2 * 3_600_000


def add_ended_plans(journal: Journal, count: int, *, approved: bool = False) -> None:
    """Insert so many plans of one move, which ended two hours ago: records, moves, audit rows, and maybe approvals."""
    at_ms, cluster_id, database = journal.now_ms() - _AGO_MS, journal.cluster_id, _database(journal)
    records = [_record(cluster_id, number, at_ms - number) for number in range(count)]
    approval = {"approval": ApprovalState.APPROVED, "answered_by": "ada"} if approved else {}
    with database.write_transaction() as connection:
        _insert(connection, tables.plan, [_plan_row(record) | approval for record in records])
        _insert(connection, tables.plan_move, [_move_row(record) for record in records])
        for action in ("submit", "settle"):
            _insert(connection, tables.audit, [_audit_row(record, action) for record in records])


def _record(cluster_id: str, number: int, at_ms: int) -> PlanRecord:
    return PlanRecord(
        hashlib.sha256(f"plan {number}".encode()).hexdigest(),
        cluster_id,
        "heal",
        PlanStatus.COMPLETED,
        failed_brokers=(1,),
        partitions=1,
        published_ms=at_ms,
        stepped_ms=at_ms,
    )


def _insert(connection: sa.Connection, table: sa.Table, rows: Sequence[dict[str, Any]]) -> None:
    if rows:
        connection.execute(sa.insert(table), rows)


def _plan_row(record: PlanRecord) -> dict[str, Any]:
    values = {each.name: getattr(record, each.name) for each in fields(record)}
    times = dict.fromkeys(("began_ms", "ended_ms", "modified_ms"), record.stepped_ms)
    return values | times | {"listed_ms": record.published_ms}


def _move_row(record: PlanRecord) -> dict[str, Any]:
    where = {"cluster_id": record.cluster_id, "plan": record.digest, "topic": "t", "partition": 0}
    moved = {"before": (1, 2, 3), "after": (4, 2, 3), "chunk": 0, "position": 0, "purpose": "broker_failed"}
    state = {"state": "completed", "detail": "", "attempt": 1, "isr_seen": True, "stage": 0, "unacknowledged": False}
    times = {"submitted_ms": record.published_ms, "settled_ms": record.stepped_ms}
    return {**where, **moved, **state, **times, "refused": 0}


def _audit_row(record: PlanRecord, action: str) -> dict[str, Any]:
    where = {"cluster_id": record.cluster_id, "plan": record.digest, "chunk": 0, "topic": "t", "partition": 0}
    what = {"action": action, "attempt": 1, "reason": "broker 1 failed", "outcome": "done", "detail": ""}
    return {**where, "broker": None, **what, "when_ms": record.published_ms, "completed_ms": record.stepped_ms}


@dataclass
class Cost:
    """The SQL statements of a block, and the instructions that SQLite's virtual machine executed for them.

    Each row that a statement reads takes some instructions, also if it is not returned.
    """

    statements: int = 0
    instructions: int = 0


@contextmanager
def cost_of(journal: Journal | None = None) -> Iterator[Cost]:
    """Count what this thread has the database of a journal in SQLite do in the block, or all databases."""
    cost, engine, thread = Cost(), sa.Engine if journal is None else _database(journal).engine, threading.get_ident()

    def count_instruction() -> int:
        cost.instructions += 1
        return 0

    def count_statement(*_: Any) -> None:
        cost.statements += threading.get_ident() == thread

    def begin(connection: Any, *_: Any) -> None:
        if threading.get_ident() == thread:
            connection.set_progress_handler(count_instruction, 1)

    def end(connection: Any, *_: Any) -> None:
        connection.set_progress_handler(None, 1)

    listeners = (("checkout", begin), ("checkin", end), ("before_cursor_execute", count_statement))
    for name, listener in listeners:
        sa.event.listen(engine, name, listener)
    try:
        yield cost
    finally:
        for name, listener in listeners:
            sa.event.remove(engine, name, listener)


def _database(journal: Journal) -> Database:
    mailbox = journal.mailbox
    assert isinstance(mailbox, SqlMailbox)
    return mailbox.database
