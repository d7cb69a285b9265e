"""What the watch has reported of one cluster: its brokers, the documents of the KIPs, and its health over time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa

from kafka_steward.journal.hosts import POLLS
from kafka_steward.journal.observed import BrokerReport, DocumentReport, PartitionRate
from kafka_steward.journal.records import DEMOTIONS, Demotion
from kafka_steward.journal.schema import tables
from kafka_steward.journal.sql.watch_reports import broker_from_row, documents_from_row, read_hottest
from kafka_steward.page_data.reader import JournalReader

#: The partitions that the page shows of those into which most bytes come.
_HOTTEST = 5


@dataclass(frozen=True, slots=True)
class Restart:
    """A restart that was announced at `announced_ms`, and lasts until `until_ms`; None without a stated time."""

    broker: int
    announced_ms: int
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Brokers:
    """The brokers by id, as of `measured_ms`; None before the first health check. `hottest` are partitions."""

    measured_ms: int | None
    rows: tuple[BrokerReport, ...]
    restarts: tuple[Restart, ...]
    hottest: tuple[PartitionRate, ...] = ()
    demoted: Mapping[int, Demotion] = field(default_factory=dict)

    def by_rack(self) -> dict[str | None, tuple[BrokerReport, ...]]:
        """Return the brokers by rack, in the order of the racks; those without one come last."""
        racks = sorted({broker.rack for broker in self.rows}, key=lambda rack: (rack is None, rack or ""))
        return {rack: tuple(broker for broker in self.rows if broker.rack == rack) for rack in racks}


def brokers(reader: JournalReader, cluster_id: str) -> Brokers:
    """Return the brokers of a cluster."""
    broker, document = tables.broker, tables.document
    restarts = (document.c.cluster_id == cluster_id) & (document.c.kind == "restarts")
    with reader.connection() as opened:
        query = sa.select(broker).where(broker.c.cluster_id == cluster_id).order_by(broker.c.broker)
        rows = tuple(map(broker_from_row, opened.execute(query).mappings()))
        announced = opened.execute(sa.select(document.c.documents).where(restarts)).scalar_one_or_none() or ()
        hottest = tuple(read_hottest(opened, cluster_id, _HOTTEST))
        demoted = _demoted(opened, cluster_id)
    measured_ms = max((report.at_ms for report in rows), default=None)
    return Brokers(measured_ms, rows, tuple(Restart(**restart) for restart in announced), hottest, demoted)


def _demoted(opened: sa.Connection, cluster_id: str) -> dict[int, Demotion]:
    """Return the demotions that are in effect, by broker."""
    state, plan = tables.state.c, tables.plan.c
    mine = sa.select(state.key, state.value).where(state.cluster_id == cluster_id, state.noun == DEMOTIONS.name)
    known = {int(key): DEMOTIONS.decode(text) for key, text in opened.execute(mine).all()}
    named = {digest for one in known.values() for digest in (one.plans[0], one.promoted_by) if digest}
    digests = sa.select(plan.digest).where(plan.cluster_id == cluster_id, plan.digest.in_(named))
    cancelled = set(opened.execute(digests.where(plan.cancel.is_not(None))).scalars()) if named else set()
    return {broker: one for broker, one in known.items() if one.is_in_effect(cancelled)}


#: The kinds of documents, and the fields of each:
#:
#: - disabled: since_ms, person, reason (at most one: reassignments are disabled);
#: - signal: created_ms, plan, scope, person, reason (at most one: nobody has executed it yet);
#: - queue, requests, chunks: name, created_ms, partitions, first, waits, plan, error;
#: - cancels: plan, status, scope, person, reason;
#: - waiting_plans: plan, operation, waits;
#: - restarts: broker, announced_ms, until_ms;
#: - pending_replicas: topic, partition, brokers, missing (KIP-409);
#: - deferred_partitions: topic, count, asked_by.
KINDS = (
    "disabled",
    "signal",
    "queue",
    "requests",
    "chunks",
    "cancels",
    "waiting_plans",
    "restarts",
    "pending_replicas",
    "deferred_partitions",
)


@dataclass(frozen=True, slots=True)
class Documents:
    """The documents by kind, each of `KINDS`. `read_ms` is the time of the watch's last poll of them; None before."""

    read_ms: int | None
    by_kind: Mapping[str, DocumentReport] = field(default_factory=dict)


def documents(reader: JournalReader, cluster_id: str) -> Documents:
    """Return the documents of a cluster."""
    document, state = tables.document, tables.state
    polled = (state.c.cluster_id == cluster_id) & (state.c.noun == POLLS.name) & state.c.key.startswith("documents/")
    with reader.connection() as opened:
        rows = opened.execute(sa.select(document).where(document.c.cluster_id == cluster_id)).mappings().all()
        read_ms = opened.execute(sa.select(sa.func.max(state.c.at_ms)).where(polled)).scalar_one()
    reports = {row["kind"]: documents_from_row(row) for row in rows}
    return Documents(read_ms, {kind: reports.get(kind, DocumentReport(kind)) for kind in KINDS})


#: The measures that a chart shows, as docs/metrics.md names them; the others are by broker.
MEASURES = (
    "under_replicated_partitions",
    "under_min_isr_partitions",
    "offline_partitions",
    "reassigning_partitions",
    "rack_violations",
    "failed_brokers",
    "failed_log_dirs",
    "cordoned_brokers",
    "demoted_brokers",
    "demoted_leaders",
    "pending_replicas",
    "replica_imbalance",
    "leader_imbalance",
)


@dataclass(frozen=True, slots=True)
class HealthSeries:
    """The times of health checks, in milliseconds, and for each measure a value for each time; None if unknown."""

    at_ms: tuple[int, ...] = ()
    values: Mapping[str, Sequence[float | None]] = field(default_factory=dict)


def health_series(reader: JournalReader, cluster_id: str, *, since_ms: int, points: int = 400) -> HealthSeries:
    """Return the health since a time, at most about `points` checks: of each span of time, the last check.

    A peak between two points is not shown.
    """
    health = tables.health
    mine = (health.c.cluster_id == cluster_id) & (health.c.at_ms >= since_ms)
    bounds = sa.select(sa.func.min(health.c.at_ms), sa.func.max(health.c.at_ms)).where(mine)
    with reader.connection() as opened:
        first, last = opened.execute(bounds).one()
        if first is None:
            return HealthSeries()
        span_ms = max(1, -(-(int(last) - int(first) + 1) // max(1, points)))
        span = (health.c.at_ms - int(first)) // span_ms
        latest = sa.select(sa.func.max(health.c.at_ms)).where(mine).group_by(span)
        query = sa.select(health.c.at_ms, health.c.measures).where(mine & health.c.at_ms.in_(latest))
        rows = opened.execute(query.order_by(health.c.at_ms)).all()
    measures = [json.loads(text) for _, text in rows]
    return HealthSeries(
        tuple(int(at_ms) for at_ms, _ in rows),
        {name: tuple(values.get(name) for values in measures) for name in MEASURES},
    )
