"""One observation of a cluster: what a tick of the watch asks Kafka, at most once, and only when it is needed.

What the page shows of it is stored here, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeVar

from kafka_steward import __version__
from kafka_steward.cluster.health import Health
from kafka_steward.cluster.state import Broker, BrokerLogDirs, Snapshot
from kafka_steward.errors import ClusterError
from kafka_steward.execution.load.look import BytesIn
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.journal.observed import BrokerReport, CheckReport
from kafka_steward.journal.store import Journal

T = TypeVar("T")


class ObservedCluster:
    """A cluster whose live brokers, metadata and disks are read at most once in a tick, for all deciders together.

    A request that failed is not repeated in the tick either: each decider gets its error. All other requests are
    passed on. It is for those that read; who changes the cluster reads it again.
    """

    def __init__(self, cluster: ClusterPort) -> None:
        self._cluster = cluster
        self._answers: dict[str, Any] = {}

    def begin_tick(self) -> None:
        """Forget what the tick before has read."""
        self._answers = {}

    def live_brokers(self) -> dict[int, Broker]:
        """Return the brokers that serve, as specified by `ClusterPort.live_brokers`."""
        return self._read_once("live_brokers", self._cluster.live_brokers)

    def snapshot(self, topics: Collection[str] | None = None) -> Snapshot:
        """Return brokers and partitions, as specified by `ClusterPort.snapshot`; only a full one is kept."""
        return self._cluster.snapshot(topics) if topics is not None else self._read_once("", self._cluster.snapshot)

    def log_dirs(self, brokers: Collection[int]) -> dict[int, BrokerLogDirs]:
        """Return bytes by replica, and the disks' space, as specified by `ClusterPort.log_dirs`."""
        return self._read_once(f"log_dirs {sorted(brokers)}", lambda: self._cluster.log_dirs(brokers))

    def _read_once(self, name: str, read: Callable[[], T]) -> T:
        if name not in self._answers:
            try:
                self._answers[name] = read()
            except ClusterError as error:
                self._answers[name] = error
        answer: T | ClusterError = self._answers[name]
        if isinstance(answer, ClusterError):
            raise answer
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)


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


def broker_reports(health: Health, produced: Mapping[int, BytesIn] = MappingProxyType({})) -> tuple[BrokerReport, ...]:
    """Return the brokers of a health check, and the bytes that producers bring into each."""
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
            leader_bytes_in=_whole(produced[broker].as_leader) if broker in produced else None,
            follower_bytes_in=_whole(produced[broker].as_follower) if broker in produced else None,
        )
        for broker, load in health.loads.items()
    )


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)
