"""The brokers of a cluster as of the last health check, with their announced restarts."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from kafka_steward.journal.observed import BrokerReport
from kafka_steward.journal.schema import tables
from kafka_steward.journal.sql.watch_reports import broker_from_row
from kafka_steward.page_data.reader import JournalReader


@dataclass(frozen=True, slots=True)
class Restart:
    """A restart that was announced at `announced_ms`, and lasts until `until_ms`; None without a stated time."""

    broker: int
    announced_ms: int
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Brokers:
    """The brokers by id, as of `measured_ms`; None before the first health check."""

    measured_ms: int | None
    rows: tuple[BrokerReport, ...]
    restarts: tuple[Restart, ...]

    def by_rack(self) -> dict[str | None, tuple[BrokerReport, ...]]:
        """Return the brokers by rack, in the order of the racks; those without one come last."""
        racks = sorted({each.rack for each in self.rows}, key=lambda rack: (rack is None, rack or ""))
        return {rack: tuple(each for each in self.rows if each.rack == rack) for rack in racks}


def brokers(reader: JournalReader, cluster_id: str) -> Brokers:
    """Return the brokers of a cluster."""
    broker, document = tables.broker, tables.document
    restarts = (document.c.cluster_id == cluster_id) & (document.c.kind == "restarts")
    with reader.connection() as opened:
        query = sa.select(broker).where(broker.c.cluster_id == cluster_id).order_by(broker.c.broker)
        rows = tuple(map(broker_from_row, opened.execute(query).mappings()))
        announced = opened.execute(sa.select(document.c.documents).where(restarts)).scalar_one_or_none() or ()
    return Brokers(max((each.at_ms for each in rows), default=None), rows, tuple(Restart(**each) for each in announced))
