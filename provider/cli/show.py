"""Read-only verbs for a cluster, its plans and its audit trail: status, plans, show, audit.

Values for programs are untruncated, with times in ISO 8601 (UTC).
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from kafka_steward.cli.verb import CommandContext
from kafka_steward.escaping import utc_datetime
from kafka_steward.execution.failures import is_outage
from kafka_steward.execution.plan_resolution import find_plan_by_prefix
from kafka_steward.hooks.steward import ClusterSession
from kafka_steward.journal.audit import StoredAuditRecord
from kafka_steward.journal.listing import list_unreadable
from kafka_steward.journal.records import APPROVALS, FAILED_BROKERS, WRITTEN, MoveRow, PlanRecord
from kafka_steward.journal.render import audit_table, moves_table, plan_lines, plans_table


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
        "published": _iso_time(record.published_ms),
        "stepped": _iso_time(record.stepped_ms),
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
        "submitted": _iso_time(row.submitted_ms),
        "settled": _iso_time(row.settled_ms),
    }


def audit_facts(row: StoredAuditRecord) -> dict[str, Any]:
    """Return one row of the audit trail, in full, as plain values."""
    entry = row.entry
    columns = ("action", "plan", "chunk", "topic", "partition", "broker", "attempt", "before", "after", "reason")
    return {
        "when": _iso_time(row.when_ms),
        "completed": _iso_time(row.completed_ms),
        **{name: getattr(entry, name) for name in columns},
        "action": entry.action.value,
        "code": None if entry.code is None else entry.code.value,
        "outcome": row.outcome.value,
        "detail": row.detail,
        **asdict(entry.who),
    }


def time_argument_ms(time: int | datetime, now_ms: int) -> int:
    """Return a time argument, milliseconds ago or a point in time, as milliseconds since 1970."""
    return now_ms - time if isinstance(time, int) else int(time.timestamp() * 1000)


def _iso_time(ms: int | None) -> str | None:
    found = utc_datetime(ms) if ms else None
    return None if found is None else found.isoformat(timespec="milliseconds")


#: The facts for which `status` prints separate lines.
_APART = ("plans", "hosts", "looks")


def show_status(call: CommandContext) -> None:
    """Print the state of the cluster and its unfinished plans."""
    with call.hook.open() as opened:
        facts, stored = _status_facts(opened), opened.journal.plans
        lines = [
            f"{name.replace('_', ' ')}: {_value_text(value)}" for name, value in facts.items() if name not in _APART
        ]
        lines += [f"opened on: {each['host']}, last {each['last']}" for each in facts["hosts"]]
        looks = [f"watched: {each['kind']}, {each['seconds']:.0f} s ago on {each['host']}" for each in facts["looks"]]
        lines += looks or ["watched: never; no watch has polled this journal"]
        for record in stored.unfinished():
            lines += plan_lines(record, stored.existing_rows(record.digest))
        call.out.print_facts(facts, lines)


def _status_facts(opened: ClusterSession) -> dict[str, Any]:
    snapshot, journal = opened.cluster.snapshot(), opened.journal
    dead = snapshot.hosting_brokers - snapshot.live
    openings = [] if journal.openings is None else journal.openings.rows()
    looks = [] if journal.poll_times is None else journal.poll_times.rows()
    return {
        "cluster_id": snapshot.cluster_id,
        "mode": "ZooKeeper" if opened.cluster.zookeeper_mode else "KRaft",
        "live_brokers": sorted(snapshot.live),
        "dead_brokers": sorted(dead),
        "outage": is_outage(len(dead), len(snapshot.live | snapshot.hosting_brokers), opened.settings),
        "failures_written_down": [each.key[0] for each in FAILED_BROKERS.list_valid(journal.tree)],
        "documents_that_cannot_be_read": [each.path for each in list_unreadable(journal.tree, (*WRITTEN, APPROVALS))],
        "partitions": len(snapshot.partitions),
        "under_replicated": sum(partition.under_replicated for partition in snapshot.partitions.values()),
        "reassigning": len(snapshot.reassigning),
        "plans": [record.digest for record in journal.plans.unfinished()],
        "journal": (opened.origin or {}).get("place"),
        "hosts": [
            {"host": row["host"], "first": _iso_time(row["first_ms"]), "last": _iso_time(row["last_ms"])}
            for row in openings
        ],
        "looks": [
            {
                "kind": row["kind"],
                "host": row["host"],
                "last": _iso_time(row["at_ms"]),
                "seconds": row["age_ms"] / 1000,
            }
            for row in looks
        ],
    }


def list_plans(call: CommandContext) -> None:
    """Print the newest plans."""
    with call.journal() as journal:
        records = journal.plans.latest(call.arguments.limit)
        call.out.print_rows([plan_facts(record) for record in records], plans_table(records))


def show_plan(call: CommandContext) -> None:
    """Print one plan with its moves."""
    with call.journal() as journal:
        record = find_plan_by_prefix(journal, call.arguments.plan)
        rows = journal.plans.rows(record.digest)
    moves = [move_facts(row) for row in rows]
    if call.out.form == "csv":
        call.out.print_rows(moves, moves_table(rows))
    else:
        lines = [*plan_lines(record, rows), "", *moves_table(rows).lines()]
        call.out.print_facts({**plan_facts(record), "moves": moves}, lines)


def list_audit_rows(call: CommandContext) -> None:
    """Print rows of the audit trail."""
    given = call.arguments
    with call.journal() as journal:
        plan = find_plan_by_prefix(journal, given.plan).digest if given.plan else None
        since_ms = None if given.since is None else time_argument_ms(given.since, journal.now_ms())
        rows = journal.audit.rows(plan=plan, topic=given.topic, since_ms=since_ms, limit=given.limit)
    call.out.print_rows([audit_facts(row) for row in rows], audit_table(rows))


def _value_text(value: Any) -> str:
    return (", ".join(str(item) for item in value) or "none") if isinstance(value, list) else str(value)
