"""The clusters of a journal: each with its state in one word, and one with all checks of its watch."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import sqlalchemy as sa

from kafka_steward.journal.observed import CheckReport, CheckState, PlanReport, ProgressReport
from kafka_steward.journal.records import PlanStatus
from kafka_steward.journal.schema import tables
from kafka_steward.journal.sql.dialect import now_ms
from kafka_steward.journal.sql.plan_reports import plan_from_row, progress_from_row, without_details
from kafka_steward.journal.sql.watch_reports import check_from_row
from kafka_steward.page_data.reader import JournalReader

#: Milliseconds without a report of its watch after which a cluster counts as unwatched. Reports come once a minute.
UNWATCHED_MS = 180_000

#: The key of the tree under which the hook stores the ids of clusters, and the most of them that are read.
_CONNECTIONS, _MOST_CONNECTIONS = "connections", 1_000

#: The check of the watch that finds failed brokers.
FAILURES = "failures"


class ClusterState(str, Enum):
    """The state of a cluster in one word, the one that needs a person most."""

    #: No watch has reported for three minutes: nothing here is current.
    UNWATCHED = "unwatched"
    #: The watch reports errors: it cannot reach Kafka, for instance.
    FAILING = "failing"
    #: Too many brokers have failed at once: nothing is healed.
    OUTAGE = "outage"
    #: Partitions have no leader.
    OFFLINE = "offline"
    #: A plan is stuck, and needs a person.
    STUCK = "stuck"
    #: A broker has failed, and is not healed: healing is disabled or called off.
    FAILED = "failed"
    #: A broker has failed, and its grace period runs, or its heal is about to begin.
    WAITING = "waiting"
    #: A plan heals a failed broker.
    HEALING = "healing"
    #: Another plan runs.
    MOVING = "moving"
    #: Partitions are under-replicated, or replicas are pending.
    DEGRADED = "degraded"
    #: Reassignments are disabled (KIP-236); nothing else is wrong.
    DISABLED = "disabled"
    HEALTHY = "healthy"


@dataclass(frozen=True, slots=True)
class Switch:
    """Reassignments are disabled since `since_ms`; by whom and why, None if that is unknown."""

    since_ms: int
    person: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class RunningPlan:
    """An unfinished plan with its progress; None before its first step."""

    plan: PlanReport
    progress: ProgressReport | None = None


@dataclass(frozen=True, slots=True)
class ClusterSummary:
    """One cluster. What is unknown is None: the health before the first health check, the rest before the first poll.

    `conn_ids` are the Airflow connections by which it was opened, or whose watches report it. `sentence` is that of the
    check for failed brokers, or the error of the watch. `due_ms` is the time at which the first grace period ends.
    `polled_ms` is the last successful check for failed brokers. `failures` counts the polls of a check that have failed
    in a row. `plans` are the unfinished plans, stuck and running ones first. `counts` are named as in docs/metrics.md.
    """

    cluster_id: str
    now_ms: int
    conn_ids: tuple[str, ...] = ()
    state: ClusterState = ClusterState.UNWATCHED
    sentence: str = ""
    failed_brokers: tuple[int, ...] = ()
    due_ms: int | None = None
    brokers: int | None = None
    live_brokers: int | None = None
    under_replicated: int | None = None
    under_min_isr: int | None = None
    offline: int | None = None
    reassigning: int | None = None
    measured_ms: int | None = None
    polled_ms: int | None = None
    failures: int = 0
    switch: Switch | None = None
    plans: tuple[RunningPlan, ...] = ()
    approvals: int = 0
    checks: tuple[CheckReport, ...] = ()
    polls: tuple[Poll, ...] = ()
    counts: Mapping[str, float] = field(default_factory=dict)

    @property
    def poll_age_ms(self) -> int | None:
        """The milliseconds since the last successful check for failed brokers."""
        return None if self.polled_ms is None else max(0, self.now_ms - self.polled_ms)

    @property
    def running(self) -> RunningPlan | None:
        """The unfinished plan to show first."""
        return self.plans[0] if self.plans else None


@dataclass(frozen=True, slots=True)
class Poll:
    """The last successful poll of one kind on one host."""

    kind: str
    host: str
    at_ms: int


def fleet(reader: JournalReader) -> tuple[ClusterSummary, ...]:
    """Return all clusters of the journal, those that need a person first, then by connection and id."""
    found = _summaries(reader, None)
    order = list(ClusterState)
    return tuple(sorted(found, key=lambda each: (order.index(each.state), each.conn_ids, each.cluster_id)))


def cluster(reader: JournalReader, cluster_id: str) -> ClusterSummary | None:
    """Return one cluster; None if the journal has none with this id."""
    return next(iter(_summaries(reader, cluster_id)), None)


def _summaries(reader: JournalReader, cluster_id: str | None) -> list[ClusterSummary]:
    """Return the clusters, or one, by a fixed number of statements in one transaction."""

    def of(table: sa.Table) -> sa.ColumnElement[bool]:
        # The ids of all clusters, where all are shown: every index begins with the id.
        return table.c.cluster_id.in_(_cluster_ids()) if cluster_id is None else table.c.cluster_id == cluster_id

    with reader.connection() as opened:
        at_ms = int(opened.execute(sa.select(now_ms())).scalar_one())
        ids = opened.execute(_cluster_ids().where(of(tables.journal))).scalars().all()
        found = {each: ClusterSummary(each, at_ms) for each in ids}
        parts: tuple[tuple[str, Iterable[tuple[str, Any]]], ...] = (
            ("checks", _grouped(opened, sa.select(tables.watch_check).where(of(tables.watch_check)), check_from_row)),
            ("polls", _grouped(opened, sa.select(tables.poll).where(of(tables.poll)), _poll)),
            ("plans", _grouped(opened, _unfinished_plans().where(of(tables.plan)), _running_plan)),
        )
        for name, rows in parts:
            found |= {each: replace(found[each], **{name: several}) for each, several in rows if each in found}
        found |= _with_connections(found, opened.execute(_connections()).scalars().all())
        found |= _with_counts(found, opened.execute(_latest_health().where(of(tables.journal))).all())
        found |= _with_brokers(found, opened.execute(_broker_counts().where(of(tables.broker))).all())
        found |= _with_switches(found, opened.execute(_switches().where(of(tables.document))).all())
        found |= _with_approvals(found, opened.execute(_asked(at_ms).where(of(tables.plan))).all())
    return [_judge(each) for each in found.values()]


def _cluster_ids() -> sa.Select[Any]:
    return sa.select(tables.journal.c.cluster_id)


def _connections() -> sa.Select[Any]:
    """Return the query of the documents by which the hook knows clusters again."""
    node = tables.node
    below = (node.c.path > "/steward/connections/") & (node.c.path < "/steward/connections0")
    return sa.select(node.c.data).where((node.c.cluster_id == _CONNECTIONS) & below).limit(_MOST_CONNECTIONS)


def _with_connections(found: Mapping[str, ClusterSummary], texts: Sequence[str]) -> dict[str, ClusterSummary]:
    named: dict[str, set[str]] = defaultdict(set)
    for text in texts:
        with suppress(ValueError, RecursionError):
            document = json.loads(text)
            if isinstance(document, dict) and isinstance(document.get("conn_id"), str):
                named[str(document.get("cluster_id"))].add(document["conn_id"])
    return {each: replace(found[each], conn_ids=tuple(sorted(names))) for each, names in named.items() if each in found}


def _grouped(opened: sa.Connection, query: sa.Select[Any], read: Any) -> list[tuple[str, tuple[Any, ...]]]:
    groups: dict[str, list[Any]] = defaultdict(list)
    for row in opened.execute(query).mappings():
        groups[row["cluster_id"]].append(read(row))
    return [(cluster_id, tuple(rows)) for cluster_id, rows in groups.items()]


def _poll(row: sa.RowMapping) -> Poll:
    return Poll(row["kind"], row["host"], row["at_ms"])


def _unfinished_plans() -> sa.Select[Any]:
    plan, progress = tables.plan, tables.progress
    joined = plan.outerjoin(progress, (progress.c.cluster_id == plan.c.cluster_id) & (progress.c.plan == plan.c.digest))
    columns = [column.label(f"progress_{column.name}") for column in progress.c if column.name != "series"]
    unfinished = [status for status in PlanStatus if not status.finished]
    return (
        sa.select(*without_details(), *columns)
        .select_from(joined)
        .where(plan.c.status.in_(unfinished))
        .order_by(_running_first(plan.c.status), plan.c.listed_ms.desc())
    )


def _running_first(status: sa.ColumnElement[Any]) -> sa.ColumnElement[int]:
    order = (PlanStatus.STUCK, PlanStatus.RUNNING, PlanStatus.PUBLISHED)
    return sa.case(*((status == each, place) for place, each in enumerate(order)), else_=len(order))


def _running_plan(row: sa.RowMapping) -> RunningPlan:
    progress = {name.removeprefix("progress_"): row[name] for name in row if name.startswith("progress_")}
    return RunningPlan(
        plan_from_row(row), None if progress["plan"] is None else progress_from_row({**progress, "series": ()})
    )


def _latest_health() -> sa.Select[Any]:
    """Return the query of the last health check of each cluster, with NULL for one without.

    Each value is the first that an index has, however many health checks are stored: a join may read all of them.
    """
    journal, health = tables.journal, tables.health
    mine = health.c.cluster_id == journal.c.cluster_id
    values = [
        sa.select(column).where(mine).order_by(health.c.at_ms.desc()).limit(1).scalar_subquery().label(column.name)
        for column in (health.c.at_ms, health.c.measures)
    ]
    return sa.select(journal.c.cluster_id, *values)


def _with_counts(found: Mapping[str, ClusterSummary], rows: Sequence[Any]) -> dict[str, ClusterSummary]:
    changed = {}
    for cluster_id, at_ms, text in rows:
        if cluster_id not in found or text is None:
            continue
        counts = json.loads(text)
        changed[cluster_id] = replace(
            found[cluster_id],
            measured_ms=at_ms,
            counts=counts,
            under_replicated=_whole(counts.get("under_replicated_partitions")),
            under_min_isr=_whole(counts.get("under_min_isr_partitions")),
            offline=_whole(counts.get("offline_partitions")),
            reassigning=_whole(counts.get("reassigning_partitions")),
        )
    return changed


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


def _broker_counts() -> sa.Select[Any]:
    broker = tables.broker
    live = sa.func.sum(sa.case((broker.c.live, 1), else_=0))
    return sa.select(broker.c.cluster_id, sa.func.count(), live).group_by(broker.c.cluster_id)


def _with_brokers(found: Mapping[str, ClusterSummary], rows: Sequence[Any]) -> dict[str, ClusterSummary]:
    return {
        cluster_id: replace(found[cluster_id], brokers=int(count), live_brokers=int(live))
        for cluster_id, count, live in rows
        if cluster_id in found
    }


def _switches() -> sa.Select[Any]:
    document = tables.document
    return sa.select(document.c.cluster_id, document.c.documents).where(document.c.kind == "disabled")


def _with_switches(found: Mapping[str, ClusterSummary], rows: Sequence[Any]) -> dict[str, ClusterSummary]:
    return {
        cluster_id: replace(found[cluster_id], switch=Switch(**documents[0]))
        for cluster_id, documents in rows
        if documents and cluster_id in found
    }


def _asked(at_ms: int) -> sa.Select[Any]:
    plan = tables.plan
    waits = (plan.c.approval == "asked") & plan.c.status.is_(None) & (plan.c.expires_ms > at_ms)
    return sa.select(plan.c.cluster_id, sa.func.count()).where(waits).group_by(plan.c.cluster_id)


def _with_approvals(found: Mapping[str, ClusterSummary], rows: Sequence[Any]) -> dict[str, ClusterSummary]:
    return {each: replace(found[each], approvals=int(count)) for each, count in rows if each in found}


def _judge(found: ClusterSummary) -> ClusterSummary:
    """Return the summary with what its checks and plans say together."""
    checks = sorted(found.checks, key=lambda each: -each.at_ms)
    failures = next((each for each in checks if each.kind == FAILURES and not each.failures), None)
    failures = failures or next((each for each in checks if each.kind == FAILURES), None)
    failing = _failing(checks, found.polls)
    known = replace(
        found,
        checks=tuple(checks),
        conn_ids=tuple(sorted({*found.conn_ids, *(each.conn_id for each in checks)})),
        polled_ms=max((each.at_ms for each in found.polls if each.kind == FAILURES), default=None),
        failed_brokers=() if failures is None else failures.brokers,
        due_ms=None if failures is None else failures.due_ms,
        sentence="" if failures is None else failures.sentence,
        failures=0 if failing is None else failing.failures,
    )
    if failing is not None:
        known = replace(known, sentence=failing.error)
    return replace(known, state=_state(known, failures, failing))


def _failing(checks: Sequence[CheckReport], polls: Sequence[Poll]) -> CheckReport | None:
    """Return the report of a check that fails and that no other host has made since."""
    for each in checks:
        since = max((poll.at_ms for poll in polls if poll.kind == each.kind), default=0)
        if each.failures and each.failing_ms is not None and since <= each.failing_ms:
            return each
    return None


#: The state of a cluster by that of its check for failed brokers.
_BY_CHECK = {
    CheckState.OUTAGE: ClusterState.OUTAGE,
    CheckState.NOT_HEALED: ClusterState.FAILED,
    CheckState.CALLED_OFF: ClusterState.FAILED,
    CheckState.GRACE_PERIOD: ClusterState.WAITING,
    CheckState.DUE: ClusterState.WAITING,
    CheckState.HANDLED: ClusterState.HEALING,
}


def _state(found: ClusterSummary, failures: CheckReport | None, failing: CheckReport | None) -> ClusterState:
    heard_ms = max([*(each.at_ms for each in found.checks), *(each.at_ms for each in found.polls)], default=0)
    running = [each.plan for each in found.plans if each.plan.status is PlanStatus.RUNNING]
    by_check = None if failures is None else _BY_CHECK.get(failures.state)
    conditions = {
        ClusterState.UNWATCHED: found.now_ms - heard_ms > UNWATCHED_MS,
        ClusterState.FAILING: failing is not None,
        ClusterState.OUTAGE: by_check is ClusterState.OUTAGE,
        ClusterState.OFFLINE: bool(found.offline),
        ClusterState.STUCK: any(each.plan.status is PlanStatus.STUCK for each in found.plans),
        ClusterState.FAILED: by_check is ClusterState.FAILED,
        ClusterState.WAITING: by_check is ClusterState.WAITING,
        ClusterState.HEALING: by_check is ClusterState.HEALING or any(each.operation == "heal" for each in running),
        ClusterState.MOVING: bool(running),
        ClusterState.DEGRADED: bool(found.under_replicated or found.counts.get("pending_replicas")),
        ClusterState.DISABLED: found.switch is not None,
    }
    return next((state for state, holds in conditions.items() if holds), ClusterState.HEALTHY)
