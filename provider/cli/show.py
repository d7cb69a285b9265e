"""Read-only verbs for a cluster, its plans and its audit trail: status, plans, show, audit.

Values for programs are untruncated, with times in ISO 8601 (UTC).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow.cli.cli_config import ActionCommand, Arg, positive_int

from kafka_steward.cli.verb import PLAN, CommandContext, Table, moment_ms, time_ago, verb
from kafka_steward.escaping import moment, utc

if TYPE_CHECKING:
    from kafka_steward.hooks.steward import ClusterSession
    from kafka_steward.journal.audit import AuditRecord, StoredAuditRecord
    from kafka_steward.journal.moves import MoveRow
    from kafka_steward.journal.records import PlanRecord


_AUDIT = ("when", "action", "partition", "before -> after", "outcome", "reason", "who")
_MOVES = ("chunk", "partition", "before -> after", "state", "detail")
_PLANS = ("published", "plan", "operation", "status", "partitions", "reason", "who")


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
    columns = ("action", "plan", "chunk", "topic", "partition", "broker", "attempt", "before", "after", "reason")
    return {
        "when": _time(row.when_ms),
        "completed": _time(row.completed_ms),
        **{name: getattr(entry, name) for name in columns},
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
    facts = {"kind": row["kind"], "host": row["host"], "last": _time(row["at_ms"])}
    return {**facts, "seconds": row["age_ms"] / 1000}


def _time(ms: int | None) -> str | None:
    found = moment(ms) if ms else None
    return None if found is None else found.isoformat(timespec="milliseconds")


#: The facts for which `status` prints separate lines.
_APART = ("plans", "hosts", "looks")


def verbs() -> tuple[ActionCommand, ...]:
    """Return the verbs of this module."""
    limit = Arg(("--limit",), help="How many of the newest", type=positive_int(allow_zero=False), default=50)
    chosen = (
        Arg(("--plan",), help="Only this plan: its digest, or the beginning of it"),
        Arg(("--topic",), help="Only this topic"),
        Arg(("--since",), help="Only since then: 30m, 2h, 1d, or 2026-11-21T08:00 (UTC)", type=time_ago),
    )
    trail = ["audit --plan 3f2a91c0 --cluster kafka_production", "audit --topic orders --since 2h --output csv"]
    return (
        verb("status", "How the cluster is, and the plans under way", _status, examples=["status --output json"]),
        verb("plans", "The newest plans", _plans, (limit,), examples=["plans --limit 5 --cluster kafka_production"]),
        verb("show", "One plan, partition by partition", _show, (PLAN,), examples=["show 3f2a91c0"]),
        verb("audit", "What was done, why, and by whom", _audit, (*chosen, limit), examples=trail),
    )


def _status(call: CommandContext) -> None:
    with call.hook.open() as opened:
        facts, plans = _facts(opened), opened.journal.plans
        lines = [f"{name.replace('_', ' ')}: {_text(value)}" for name, value in facts.items() if name not in _APART]
        lines += [f"opened on: {each['host']}, last {each['last']}" for each in facts["hosts"]]
        looks = [f"watched: {each['kind']}, {each['seconds']:.0f} s ago on {each['host']}" for each in facts["looks"]]
        lines += looks or ["watched: never; no watch has looked into this journal"]
        for record in plans.unfinished():
            lines += plan_lines(record, plans.rows_found(record.digest))
        call.out.facts(facts, lines)


def _facts(opened: ClusterSession) -> dict[str, Any]:
    from kafka_steward.execution.failures import is_outage
    from kafka_steward.journal.listing import FAILED_BROKERS, unreadable

    snapshot, journal = opened.cluster.snapshot(), opened.journal
    dead = snapshot.hosting - snapshot.live
    openings = [] if journal.openings is None else journal.openings.rows()
    looks = [] if journal.poll_times is None else journal.poll_times.rows()
    return {
        "cluster_id": snapshot.cluster_id,
        "mode": "ZooKeeper" if opened.cluster.zookeeper_mode else "KRaft",
        "live_brokers": sorted(snapshot.live),
        "dead_brokers": sorted(dead),
        "outage": is_outage(len(dead), len(snapshot.live | snapshot.hosting), opened.settings),
        "failures_written_down": [each.key[0] for each in FAILED_BROKERS.found(journal.tree)],
        "documents_that_cannot_be_read": [each.path for each in unreadable(journal.tree)],
        "partitions": len(snapshot.partitions),
        "under_replicated": sum(partition.under_replicated for partition in snapshot.partitions.values()),
        "reassigning": len(snapshot.reassigning),
        "plans": [record.digest for record in journal.plans.unfinished()],
        "journal": (opened.origin or {}).get("place"),
        "hosts": [opening_facts(row) for row in openings],
        "looks": [look_facts(row) for row in looks],
    }


def _plans(call: CommandContext) -> None:
    with call.hook.journal(call.hook.cluster_id()) as journal:
        records = journal.plans.latest(call.arguments.limit)
        call.out.rows([plan_facts(record) for record in records], plans_table(records))


def _show(call: CommandContext) -> None:
    from kafka_steward.execution.resolve import plan_by_prefix

    with call.hook.journal(call.hook.cluster_id()) as journal:
        record = plan_by_prefix(journal, call.arguments.plan)
        rows = journal.plans.rows(record.digest)
    moves = [move_facts(row) for row in rows]
    if call.out.form == "csv":
        call.out.rows(moves, moves_table(rows))
    else:
        lines = [*plan_lines(record, rows), "", *moves_table(rows).lines()]
        call.out.facts({**plan_facts(record), "moves": moves}, lines)


def _audit(call: CommandContext) -> None:
    from kafka_steward.execution.resolve import plan_by_prefix

    given = call.arguments
    with call.hook.journal(call.hook.cluster_id()) as journal:
        plan = plan_by_prefix(journal, given.plan).digest if given.plan else None
        since_ms = None if given.since is None else moment_ms(given.since, journal.now_ms())
        rows = journal.audit.rows(plan=plan, topic=given.topic, since_ms=since_ms, limit=given.limit)
    call.out.rows([audit_facts(row) for row in rows], audit_table(rows))


def _text(value: Any) -> str:
    return (", ".join(str(item) for item in value) or "none") if isinstance(value, list) else str(value)


def audit_table(rows: Sequence[StoredAuditRecord]) -> Table:
    """Return the audit trail as a table with one line per row. Times are in UTC."""
    return Table.of(_AUDIT, [_audit_cells(row) for row in rows])


def moves_table(rows: Sequence[MoveRow]) -> Table:
    """Return a plan's moves and their states as a table with one line per partition."""
    return Table.of(_MOVES, [_move_cells(row) for row in rows])


def plans_table(records: Sequence[PlanRecord]) -> Table:
    """Return plans as a table with one line per plan."""
    return Table.of(_PLANS, [_plan_cells(record) for record in records])


def plan_lines(record: PlanRecord, rows: Sequence[MoveRow]) -> list[str]:
    """Return a summary of one plan: operation and status, partitions per state, times, throttle, and reason."""
    from kafka_steward.journal.moves import MoveState

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


def _audit_cells(row: StoredAuditRecord) -> tuple[str, ...]:
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


def _subject(entry: AuditRecord) -> str:
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
