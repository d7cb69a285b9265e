"""The reports of the watch for the page: the last poll of each check, and the brokers. Nothing decides by them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from kafka_steward import __version__
from kafka_steward.cluster.health import Health
from kafka_steward.journal.observed import BrokerReport, CheckReport
from kafka_steward.journal.store import Journal

#: Seconds between two reports of a check whose state has not changed.
EVERY_S = 60.0


@dataclass
class CheckRecorder:
    """Writes the last poll of one check: at once when it changes, and otherwise every `EVERY_S` seconds."""

    clock: Callable[[], float] = time.monotonic
    _written: tuple[float, CheckReport] | None = field(default=None, init=False, repr=False)

    def record(self, journal: Journal, report: CheckReport) -> None:
        """Write the report of a successful poll. Raises JournalUnreachable, and no other error."""
        now_s, stated = self.clock(), replace(report, version=__version__)
        recent = self._written is not None and now_s - self._written[0] < EVERY_S and self._written[1] == stated
        if journal.watch_reports is not None and not recent:
            journal.watch_reports.put_check(stated)
            self._written = now_s, stated

    def forget(self) -> None:
        """Write the next report at once: the poll before it has failed, or another watch has made the check."""
        self._written = None


def broker_reports(health: Health) -> tuple[BrokerReport, ...]:
    """Return the brokers of a health check."""
    live, cordoned = frozenset(health.live), frozenset(health.cordoned)
    return tuple(
        BrokerReport(
            broker,
            rack=load.rack,
            live=broker in live,
            cordoned=broker in cordoned,
            replicas=load.replicas,
            leaders=load.leaders,
            under_replicated=health.under_replicated_by_leader.get(broker, 0),
            failed_log_dirs=health.failed_log_dirs.get(broker, ()),
            replica_bytes=load.replica_bytes,
            disk_total=load.total_bytes,
            disk_usable=load.usable_bytes,
            bytes_in=_whole(health.bytes_in.get(broker)),
            bytes_out=_whole(health.bytes_out.get(broker)),
        )
        for broker, load in health.loads.items()
    )


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)
