"""The tables of what a watch reports: its checks, the brokers, the documents, and the health of the cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

import sqlalchemy as sa

from kafka_steward.journal.observed import BrokerReport, CheckReport, DocumentReport, PartitionRate
from kafka_steward.journal.schema import tables
from kafka_steward.journal.sql.database import Database
from kafka_steward.journal.sql.dialect import now_ms

#: A row of a table, by column.
Columns: TypeAlias = "sa.RowMapping | Mapping[str, Any]"

#: Documents of one kind that are stored; the others are only counted.
MOST_DOCUMENTS = 100
#: Rates of partitions that one transaction writes.
_RATES_AT_ONCE = 2_000
#: Milliseconds for which the report of a host that has ceased to report is kept.
_KEPT_MS = 7 * 86_400_000


def values_of(report: Any) -> dict[str, Any]:
    """Return the fields of a report by name, as its columns take them."""
    return {column.name: getattr(report, column.name) for column in fields(report)}


@dataclass
class WatchReports:
    """The reports of the watches of one cluster, as this process writes them. Any method may raise JournalUnreachable.

    What the database refuses is logged, and never raised.
    """

    database: Database
    _written: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    def put_check(self, report: CheckReport) -> None:
        """Store the last poll of a check by this host, now; delete the reports of hosts that ceased long ago."""
        check, database = tables.watch_check, self.database
        values = values_of(report) | {"host": database.host, "at_ms": now_ms()}
        same = database.cluster_condition(check) & (check.c.kind == report.kind)
        with database.report_transaction(f"The last poll of {report.conn_id}") as connection:
            database.put_row(connection, check, values)
            connection.execute(sa.delete(check).where(same & (check.c.at_ms < now_ms() - _KEPT_MS)))

    def put_failure(self, conn_id: str, kind: str, error: str, *, failures: int) -> None:
        """Store that a poll of a check by this host failed now, the `failures`th in a row; its last state stays."""
        check, database = tables.watch_check, self.database
        # A further failure in a row keeps the time of the first one.
        began = sa.case((check.c.failures > 0, check.c.failing_ms), else_=now_ms())
        key = {"conn_id": conn_id, "kind": kind, "host": database.host}
        mine = sa.and_(database.cluster_condition(check), *(check.c[name] == value for name, value in key.items()))
        failed = {"at_ms": now_ms(), "failures": failures, "error": error}
        with database.report_transaction(f"A failed poll of {conn_id}") as connection:
            changed = connection.execute(sa.update(check).where(mine).values(failed | {"failing_ms": began})).rowcount
            if not changed:
                new = values_of(CheckReport(conn_id, kind, database.host)) | failed | {"failing_ms": now_ms()}
                row = {"cluster_id": database.cluster_id, **new}
                connection.execute(database.dialect.insert_or_ignore(check).values(row))

    def replace_brokers(self, brokers: Sequence[BrokerReport]) -> None:
        """Store the brokers of the last health check, now, in place of those before.

        The sizes of replicas that are unknown now stay as they were, and so do the racks of brokers that are not live:
        with ZooKeeper, Kafka forgets them.
        """
        table, database = tables.broker, self.database
        mine = database.cluster_condition(table)
        with database.report_transaction("The brokers") as connection:
            columns = (table.c.broker, table.c.rack, table.c.replica_bytes, table.c.sized_ms)
            known = {row["broker"]: row for row in connection.execute(sa.select(*columns).where(mine)).mappings()}
            at_ms = connection.execute(sa.select(now_ms())).scalar_one()
            # All of them: a broker that has left the cluster must not stay on the page.
            connection.execute(sa.delete(table).where(mine))
            rows = [_broker_row(broker, known.get(broker.broker, {}), at_ms) for broker in brokers]
            if rows:
                connection.execute(sa.insert(table), [{"cluster_id": database.cluster_id, **row} for row in rows])

    def racks(self) -> dict[int, str]:
        """Return the last known rack of each broker of the last health check."""
        table = tables.broker
        query = sa.select(table.c.broker, table.c.rack).where(self.database.cluster_condition(table))
        with self.database.read_connection() as connection:
            return {broker: rack for broker, rack in connection.execute(query) if rack is not None}

    def rates(self) -> list[PartitionRate]:
        """Return what was kept of the bytes that producers bring into partitions."""
        query = sa.select(tables.rate).where(self.database.cluster_condition(tables.rate))
        with self.database.read_connection() as connection:
            return [rate_from_row(row) for row in connection.execute(query).mappings()]

    def hottest(self, most: int) -> list[PartitionRate]:
        """Return the partitions into which most bytes come, the first one first; idle ones are left out."""
        with self.database.read_connection() as connection:
            return read_hottest(connection, self.database.cluster_id, most)

    def bytes_in(self) -> dict[int, tuple[int, int]]:
        """Return what producers bring into each broker, as leader and as follower, as of the last health check."""
        table = tables.broker
        query = sa.select(table.c.broker, table.c.leader_bytes_in, table.c.follower_bytes_in).order_by(table.c.broker)
        known = self.database.cluster_condition(table) & table.c.leader_bytes_in.is_not(None)
        with self.database.read_connection() as connection:
            return {broker: (led, followed) for broker, led, followed in connection.execute(query.where(known))}

    def put_rates(self, changed: Sequence[PartitionRate], gone: Sequence[PartitionRate]) -> None:
        """Store rates in place of those before of the same partitions, and delete those of others.

        Each transaction has a part of them: other writers must not wait for all.
        """
        table = tables.rate
        this = (table.c.topic == sa.bindparam("of_topic")) & (table.c.partition == sa.bindparam("of_partition"))
        delete = sa.delete(table).where(self.database.cluster_condition(table) & this)
        cluster = {"cluster_id": self.database.cluster_id}
        rows = [(rate, True) for rate in changed] + [(name, False) for name in gone]
        for start in range(0, len(rows), _RATES_AT_ONCE):
            some = rows[start : start + _RATES_AT_ONCE]
            with self.database.report_transaction("The bytes into partitions") as connection:
                keys = [{"of_topic": row.topic, "of_partition": row.partition} for row, _ in some]
                connection.execute(delete, keys)
                new = [cluster | values_of(row) for row, stays in some if stays]
                if new:
                    connection.execute(sa.insert(table), new)

    def put_documents(self, by_kind: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Store the documents of each kind that have changed since this process stored them last."""
        changed = {kind: documents for kind, documents in by_kind.items() if self._written.get(kind) != documents}
        if not changed:
            return
        with self.database.report_transaction("The documents") as connection:
            for kind, documents in changed.items():
                values = {"kind": kind, "at_ms": now_ms(), "count": len(documents)}
                values["documents"] = [dict(document) for document in documents[:MOST_DOCUMENTS]]
                self.database.put_row(connection, tables.document, values)
            self._written |= changed


class HealthHistory:
    """The health of one cluster, a row per poll, kept for some days for plots. Any method may raise JournalUnreachable.

    Times are by the journal's clock, in milliseconds since 1970.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add_measures(self, measures: Mapping[str, float], *, every_ms: int, retention_ms: int) -> None:
        """Add a row unless there is one for this interval of `every_ms`; delete rows older than `retention_ms`."""
        mine = self._database.cluster_condition(tables.health)
        with self._database.write_transaction() as connection:
            at_ms = connection.execute(sa.select(now_ms())).scalar_one()
            row = {
                "cluster_id": self._database.cluster_id,
                # The beginning of the interval: a second watch finds the row there, and adds none.
                "at_ms": at_ms - at_ms % max(1, every_ms),
                "measures": json.dumps(dict(measures)),
            }
            connection.execute(self._database.dialect.insert_or_ignore(tables.health), row)
            connection.execute(sa.delete(tables.health).where(mine & (tables.health.c.at_ms < at_ms - retention_ms)))

    def rows(self, *, since_ms: int = 0) -> list[tuple[int, dict[str, float]]]:
        """Return time and measures of each row from `since_ms` on, oldest first."""
        mine = self._database.cluster_condition(tables.health) & (tables.health.c.at_ms >= since_ms)
        query = sa.select(tables.health.c.at_ms, tables.health.c.measures).where(mine).order_by(tables.health.c.at_ms)
        with self._database.read_connection() as connection:
            return [(int(at_ms), json.loads(text)) for at_ms, text in connection.execute(query)]


def _broker_row(report: BrokerReport, known: Columns, at_ms: int) -> dict[str, Any]:
    row = values_of(report) | {"at_ms": at_ms, "sized_ms": at_ms}
    kept = () if report.replica_bytes is not None else ("replica_bytes", "sized_ms")
    row |= {name: known.get(name) for name in kept}
    return row if report.live or report.rack is not None else {**row, "rack": known.get("rack")}


def check_from_row(row: Columns) -> CheckReport:
    """Return the report in a row of `steward_watch_check`."""
    return CheckReport(**{column.name: row[column.name] for column in fields(CheckReport)})


def broker_from_row(row: Columns) -> BrokerReport:
    """Return the report in a row of `steward_broker`."""
    return BrokerReport(**{column.name: row[column.name] for column in fields(BrokerReport)})


def rate_from_row(row: Columns) -> PartitionRate:
    """Return the rate in a row of `steward_rate`."""
    return PartitionRate(**{column.name: row[column.name] for column in fields(PartitionRate)})


def read_hottest(connection: sa.Connection, cluster_id: str, most: int) -> list[PartitionRate]:
    """Return the partitions of a cluster into which most bytes come, the first one first; idle ones are left out."""
    table = tables.rate
    busy = (table.c.cluster_id == cluster_id) & (table.c.bytes_per_s > 0)
    hottest = (table.c.bytes_per_s.desc(), table.c.topic, table.c.partition)
    query = sa.select(table).where(busy).order_by(*hottest).limit(most)
    return [rate_from_row(row) for row in connection.execute(query).mappings()]


def documents_from_row(row: Columns) -> DocumentReport:
    """Return the report in a row of `steward_document`."""
    return DocumentReport(row["kind"], row["at_ms"], row["count"], tuple(row["documents"]))
