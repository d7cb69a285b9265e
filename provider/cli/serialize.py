"""Serialize plans, moves and the audit trail to plain values for programs: untruncated, times in ISO 8601 (UTC)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kafka_steward.escaping import moment

if TYPE_CHECKING:
    from kafka_steward.journal.audit import StoredAuditRecord
    from kafka_steward.journal.moves import MoveRow
    from kafka_steward.journal.records import PlanRecord

__all__ = ["audit_facts", "look_facts", "move_facts", "opening_facts", "plan_facts"]


def plan_facts(record: PlanRecord) -> dict[str, Any]:
    """Return a plan's record as plain values."""
    return {
        "plan": record.digest,
        "operation": record.operation,
        "status": record.status.value,
        "partitions": record.partitions,
        "left": record.left,
        "failed_brokers": list(record.failed_brokers),
        "throttle": record.throttle,
        "published": _time(record.published_ms),
        "stepped": _time(record.stepped_ms),
        "reason": record.reason,
        "who": str(record.who),
    }


def move_facts(row: MoveRow) -> dict[str, Any]:
    """Return one move of a plan and its state as plain values."""
    move = row.move
    return {
        "topic": move.topic,
        "partition": move.partition,
        "before": list(move.before),
        "after": list(move.after),
        "chunk": move.chunk,
        "state": row.state.value,
        "detail": row.detail,
        "submitted": _time(row.submitted_ms),
        "settled": _time(row.settled_ms),
    }


def audit_facts(row: StoredAuditRecord) -> dict[str, Any]:
    """Return one row of the audit trail, in full, as plain values."""
    entry = row.entry
    told = ("action", "plan", "chunk", "topic", "partition", "broker", "attempt", "before", "after", "reason")
    return {
        "when": _time(row.when_ms),
        "completed": _time(row.completed_ms),
        **{name: getattr(entry, name) for name in told},
        "action": entry.action.value,
        "code": None if entry.code is None else entry.code.value,
        "outcome": row.outcome.value,
        "detail": row.detail,
        **asdict(entry.who),
    }


def opening_facts(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a host that opened the journal, and the times when it first and last did so."""
    return {"host": row["host"], "first": _time(row["first_ms"]), "last": _time(row["last_ms"])}


def look_facts(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the kind, host and time of a watch's last poll of one kind; `seconds` is its age."""
    told = {"kind": row["kind"], "host": row["host"], "last": _time(row["at_ms"])}
    return {**told, "seconds": row["age_ms"] / 1000}


def _time(ms: int | None) -> str | None:
    found = moment(ms) if ms else None
    return None if found is None else found.isoformat(timespec="milliseconds")
