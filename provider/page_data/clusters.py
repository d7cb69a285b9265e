"""The clusters of a journal: each with its state in one word, and one with all checks of its watch."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import sqlalchemy as sa

from kafka_steward.journal.hosts import POLLS
from kafka_steward.journal.observed import CheckReport, CheckState, PlanReport, ProgressReport
from kafka_steward.journal.records import KNOWN_CLUSTERS, NO_CLUSTER, PlanStatus
from kafka_steward.journal.schema import tables
from kafka_steward.journal.sql.dialect import now_ms
from kafka_steward.journal.sql.plan_reports import plan_from_row, progress_from_row, without_details
from kafka_steward.journal.sql.watch_reports import check_from_row
from kafka_steward.page_data.reader import JournalReader

#: Milliseconds without a report of its watch after which a cluster counts as unwatched. Reports come once a minute.
UNWATCHED_MS = 180_000

#: The most connections of which the clusters are read.
_MOST_CONNECTIONS = 1_000

#: The check of the watch that finds failed brokers.
FAILURES = "failures"


class ClusterState(StrEnum):
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
    order = list(ClusterState)
    return tuple(
        sorted(
            _summaries(reader, None),
            key=lambda summary: (order.index(summary.state), summary.conn_ids, summary.cluster_id),
        )
    )


def cluster(reader: JournalReader, cluster_id: str) -> ClusterSummary | None:
    """Return one cluster; None if the journal has none with this id."""
    return next(iter(_summaries(reader, cluster_id)), None)


def _summaries(reader: JournalReader, cluster_id: str | None) -> list[ClusterSummary]:
    """Return the clusters, or one, by a fixed number of statements in one transaction."""

    def of(table: sa.Table) -> sa.ColumnElement[bool]:
        # The ids of all clusters, where all are shown: every index begins with the id.
        ids = sa.select(tables.journal.c.cluster_id)
        return table.c.cluster_id.in_(ids) if cluster_id is None else table.c.cluster_id == cluster_id

    journal, check, state, plan = tables.journal, tables.watch_check, tables.state, tables.plan
    broker, document = tables.broker, tables.document
    facts: dict[str, dict[str, Any]] = defaultdict(dict)
    with reader.connection() as opened:
        at_ms = int(opened.execute(sa.select(now_ms())).scalar_one())
        ids = opened.execute(sa.select(journal.c.cluster_id).where(of(journal))).scalars().all()
        lists: tuple[tuple[str, sa.Select[Any], Callable[[sa.RowMapping], Any]], ...] = (
            ("checks", sa.select(check).where(of(check)), check_from_row),
            ("polls", sa.select(state).where(of(state) & (state.c.noun == POLLS.name)), _poll),
            ("plans", _unfinished_plans().where(of(plan)), _running_plan),
        )
        for name, query, read in lists:
            for row in opened.execute(query).mappings():
                of_cluster = facts[row["cluster_id"]]
                of_cluster[name] = (*of_cluster.get(name, ()), read(row))
        for conn_id, id_ in _connections(opened):
            facts[id_]["conn_ids"] = (*facts[id_].get("conn_ids", ()), conn_id)
        live = sa.func.sum(sa.case((broker.c.live, 1), else_=0))
        disabled = (document.c.kind == "disabled") & of(document)
        asked = (plan.c.approval == "asked") & plan.c.status.is_(None) & (plan.c.expires_ms > at_ms) & of(plan)
        values: tuple[tuple[sa.Select[Any], Callable[..., dict[str, Any]]], ...] = (
            (_latest_health().where(of(journal)), _health_facts),
            (
                sa.select(broker.c.cluster_id, sa.func.count(), live).where(of(broker)).group_by(broker.c.cluster_id),
                lambda count, alive: {"brokers": int(count), "live_brokers": int(alive)},
            ),
            (
                sa.select(document.c.cluster_id, document.c.documents).where(disabled),
                lambda documents: {"switch": Switch(**documents[0])} if documents else {},
            ),
            (
                sa.select(plan.c.cluster_id, sa.func.count()).where(asked).group_by(plan.c.cluster_id),
                lambda count: {"approvals": int(count)},
            ),
        )
        for query, facts_of in values:
            for id_, *columns in opened.execute(query):
                facts[id_] |= facts_of(*columns)
    return [_judge(ClusterSummary(id_, at_ms, **facts[id_])) for id_ in ids]


def _poll(row: sa.RowMapping) -> Poll:
    poll = POLLS.decode(row["value"])
    return Poll(poll.kind, poll.host, row["at_ms"])


def _connections(opened: sa.Connection) -> Iterator[tuple[str, str]]:
    """Yield the connections in the rows by which the hook knows clusters again, with the ids of their clusters."""
    state = tables.state.c
    mine = (state.cluster_id == NO_CLUSTER) & (state.noun == KNOWN_CLUSTERS.name)
    for text in opened.execute(sa.select(state.value).where(mine).limit(_MOST_CONNECTIONS)).scalars():
        known = KNOWN_CLUSTERS.decode(text)
        yield known.conn_id, known.cluster_id


def _unfinished_plans() -> sa.Select[Any]:
    plan, progress = tables.plan, tables.progress
    joined = plan.outerjoin(progress, (progress.c.cluster_id == plan.c.cluster_id) & (progress.c.plan == plan.c.digest))
    columns = [column.label(f"progress_{column.name}") for column in progress.c if column.name != "series"]
    unfinished = [status for status in PlanStatus if not status.finished]
    first = (PlanStatus.STUCK, PlanStatus.RUNNING, PlanStatus.PUBLISHED)
    order = sa.case(*((plan.c.status == status, place) for place, status in enumerate(first)), else_=len(first))
    query = sa.select(*without_details(), *columns).select_from(joined).where(plan.c.status.in_(unfinished))
    return query.order_by(order, plan.c.listed_ms.desc())


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


def _health_facts(measured_ms: int | None, text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    counts = json.loads(text)
    names = ("under_replicated", "under_min_isr", "offline", "reassigning")
    known = {name: counts.get(f"{name}_partitions") for name in names}
    whole = {name: None if count is None else int(count) for name, count in known.items()}
    return {"measured_ms": measured_ms, "counts": counts, **whole}


def _judge(summary: ClusterSummary) -> ClusterSummary:
    """Return the summary with what its checks and plans say together."""
    checks = sorted(summary.checks, key=lambda check: -check.at_ms)
    of_brokers = [check for check in checks if check.kind == FAILURES]
    failures = next((check for check in of_brokers if not check.failures), of_brokers[0] if of_brokers else None)
    failing = _failing(checks, summary.polls)
    known = replace(
        summary,
        checks=tuple(checks),
        conn_ids=tuple(sorted({*summary.conn_ids, *(check.conn_id for check in checks)})),
        polled_ms=max((poll.at_ms for poll in summary.polls if poll.kind == FAILURES), default=None),
        failed_brokers=() if failures is None else failures.brokers,
        due_ms=None if failures is None else failures.due_ms,
        sentence=failing.error if failing else failures.sentence if failures else "",
        failures=0 if failing is None else failing.failures,
    )
    return replace(known, state=_state(known, failures, failing))


def _failing(checks: Sequence[CheckReport], polls: Sequence[Poll]) -> CheckReport | None:
    """Return the report of a check that fails and that no other host has made since."""
    for check in checks:
        since = max((poll.at_ms for poll in polls if poll.kind == check.kind), default=0)
        if check.failures and check.failing_ms is not None and since <= check.failing_ms:
            return check
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


def _state(summary: ClusterSummary, failures: CheckReport | None, failing: CheckReport | None) -> ClusterState:
    reported_ms = max([*(check.at_ms for check in summary.checks), *(poll.at_ms for poll in summary.polls)], default=0)
    running = [plan.plan for plan in summary.plans if plan.plan.status is PlanStatus.RUNNING]
    by_check = None if failures is None else _BY_CHECK.get(failures.state)
    conditions = {
        ClusterState.UNWATCHED: summary.now_ms - reported_ms > UNWATCHED_MS,
        ClusterState.FAILING: failing is not None,
        ClusterState.OUTAGE: by_check is ClusterState.OUTAGE,
        ClusterState.OFFLINE: bool(summary.offline),
        ClusterState.STUCK: any(plan.plan.status is PlanStatus.STUCK for plan in summary.plans),
        ClusterState.FAILED: by_check is ClusterState.FAILED,
        ClusterState.WAITING: by_check is ClusterState.WAITING,
        ClusterState.HEALING: by_check is ClusterState.HEALING or any(plan.operation == "heal" for plan in running),
        ClusterState.MOVING: bool(running),
        ClusterState.DEGRADED: bool(summary.under_replicated or summary.counts.get("pending_replicas")),
        ClusterState.DISABLED: summary.switch is not None,
    }
    return next((state for state, holds in conditions.items() if holds), ClusterState.HEALTHY)
