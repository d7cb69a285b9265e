"""Plans, moves and the audit trail as plain values, for programs: nothing cut, times in ISO 8601 (UTC)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kafka_steward.escaping import moment

if TYPE_CHECKING:
    from kafka_steward.journal.audit import AuditRow
    from kafka_steward.journal.moves import MoveRow
    from kafka_steward.journal.records import PlanRecord

__all__ = ["audit_facts", "look_facts", "move_facts", "opening_facts", "plan_facts"]


def plan_facts(record: PlanRecord) -> dict[str, Any]:
    """A plan's record."""
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
    """One partition of a plan, and how far it is."""
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


def audit_facts(row: AuditRow) -> dict[str, Any]:
    """One row of the audit trail, in full."""
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
    """A host that opened the journal, and when it did so first and last."""
    return {"host": row["host"], "first": _time(row["first_ms"]), "last": _time(row["last_ms"])}


def look_facts(row: Mapping[str, Any]) -> dict[str, Any]:
    """When a watch last looked for one kind of thing, and where: `seconds` ago."""
    told = {"kind": row["kind"], "host": row["host"], "last": _time(row["at_ms"])}
    return {**told, "seconds": row["age_ms"] / 1000}


def _time(ms: int | None) -> str | None:
    found = moment(ms) if ms else None
    return None if found is None else found.isoformat(timespec="milliseconds")
