"""Periodic checks of the watch of one cluster, in addition to the detection of failed brokers."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from kafka_steward.triggers.progress import emit_health
from kafka_steward.triggers.reporting import WatchReporter, event_of, gauge
from kafka_steward.triggers.worker import ClusterWorker

if TYPE_CHECKING:
    from kafka_steward.cluster.health import CopiedBytes
    from kafka_steward.hooks.steward import ClusterSession


#: Seconds after which a setting that disabled a check is read again.
OFF_S = 60.0
#: The result of one check: the event to emit, if any, and the seconds until the next check.
CheckOutcome = tuple[dict[str, Any] | None, float]


class PeriodicCheck(ABC):
    """A periodic check in a thread. It never ends, and raises nothing."""

    FAILING: ClassVar[str]
    WHAT: ClassVar[str]

    def __init__(
        self,
        conn_id: str,
        thread: ClusterWorker,
        log: Callable[..., None],
        *,
        log_error: Callable[..., None] | None = None,
    ) -> None:
        self.conn_id = conn_id
        self.reporter = WatchReporter(conn_id, log, failing=self.FAILING, what=self.WHAT, log_error=log_error)
        self._thread = thread

    async def run(self, events: asyncio.Queue[dict[str, Any]]) -> None:
        """Check until cancelled; put events into the queue `events`."""
        while True:
            try:
                event, pause_s = await self._thread.submit(self._poll)
            except Exception as error:  # noqa: BLE001 - no error may end the watch
                pause_s = self.reporter.error(error)
            else:
                self.reporter.ok()
                if event is not None:
                    events.put_nowait(event)
            await self.wait(pause_s)

    def _poll(self, opened: ClusterSession) -> CheckOutcome:
        result = self.poll(opened)
        opened.journal.note_poll(self.FAILING.removesuffix("_failing"))
        return result

    @abstractmethod
    def poll(self, opened: ClusterSession) -> CheckOutcome:
        """Run one check, in the thread."""

    async def wait(self, seconds: float) -> None:
        """Wait until the next check."""
        await asyncio.sleep(seconds)


class BrokerJoinCheck(PeriodicCheck):
    """Emits an event when a live broker can take pending replicas (KIP-409).

    Kafka is not polled while neither a pending replica nor a deferred partition request exists.
    """

    FAILING = "joining_failing"
    WHAT = "check for brokers that joined"
    EVENT: ClassVar[str] = "broker-joined"

    def poll(self, opened: ClusterSession) -> CheckOutcome:
        """Check, and reconcile the pending replicas."""
        from kafka_steward.execution.broker_joins import poll_joined
        from kafka_steward.journal.audit import Actor

        joined = poll_joined(opened.cluster, opened.journal, opened.settings, Actor(task_id="watch"))
        gauge("owed_replicas", self.conn_id, 0 if joined is None else joined.owed)
        if joined is None:
            return None, opened.settings.watch_interval
        self.reporter.log_once(joined.sentence, about=joined.sentence)
        event = event_of(opened, joined.now_ms, joined.due)
        return event if joined.due else None, opened.settings.watch_interval


class EmptyBrokerCheck(PeriodicCheck):
    """Emits an event while a live broker is empty, until a run has claimed it; after the fill (KIP-409)."""

    FAILING = "newcomers_failing"
    WHAT = "check for empty brokers"
    EVENT: ClassVar[str] = "broker-new"

    def poll(self, opened: ClusterSession) -> CheckOutcome:
        """Check, and record the empty brokers."""
        from kafka_steward.execution.broker_joins import poll_empty_brokers

        found = poll_empty_brokers(opened.cluster, opened.journal, opened.settings)
        self.reporter.log_once(found.sentence, about=found.sentence)
        event = event_of(opened, found.now_ms, found.due)
        return event if found.due else None, opened.settings.watch_interval


class HealthPeriodicCheck(PeriodicCheck):
    """Measures the cluster's health (KIP-352), as metrics and as rows for plots. Emits no event.

    Runs in a thread of its own: a stalled broker must not keep the watch from detecting the failure of another one.
    """

    FAILING = "health_failing"
    WHAT = "measure the cluster's health"

    def __init__(
        self,
        conn_id: str,
        thread: ClusterWorker,
        log: Callable[..., None],
        *,
        log_error: Callable[..., None] | None = None,
    ) -> None:
        super().__init__(conn_id, thread, log, log_error=log_error)
        self._before: CopiedBytes | None = None

    def poll(self, opened: ClusterSession) -> CheckOutcome:
        """Measure, emit the metrics, and store the rows."""
        from kafka_steward.execution.health import check_health

        every_s = opened.settings.health_interval
        if not every_s:
            return None, OFF_S
        health, self._before = check_health(opened.cluster, opened.journal, self._before)
        emit_health(self.conn_id, health.measures)
        if opened.journal.health is not None:
            days_ms = int(opened.settings.health_retention * 86_400_000)
            opened.journal.health.keep(health.measures, every_ms=int(every_s * 1000), retention_ms=days_ms)
        return None, every_s

    def close(self) -> None:
        """Close the connections."""
        self._thread.close()
