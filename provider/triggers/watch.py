"""The watch of one cluster: it runs while a DAG that is scheduled on its asset is unpaused, and emits due events.

It also executes the requests in the KIPs' documents by itself.

The triggerer's loaded modules are excluded from Python's garbage collection. A full collection visits every object and
blocks the interpreter meanwhile: with Airflow loaded, for 190 to 860 ms, in which no trigger of the process runs. A
watch of thousands of partitions allocates enough objects to cause some.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import importlib
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from kafka_steward.triggers.periodic import BrokerJoinCheck, EmptyBrokerCheck, HealthPeriodicCheck, PeriodicCheck
from kafka_steward.triggers.reporting import WatchReporter, event_of, gauge
from kafka_steward.triggers.worker import ClusterWorker

if TYPE_CHECKING:
    from kafka_steward.execution.detector import DetectionResult, Detector
    from kafka_steward.hooks.steward import ClusterSession
    from kafka_steward.triggers.documents import DocumentLoop


@functools.cache
def freeze_gc() -> None:
    """Freeze all existing objects, so that only new ones are collected. Call it once modules are loaded; runs once."""
    gc.freeze()


#: The events that a watch may emit, one for each watch: a DAG that is scheduled on one must not start for another.
EVENTS = ("broker-failed", "broker-joined", "broker-new", "request", "cancel")

#: Seconds between two reports of the age of each part's last successful check.
_AGES_REPORTED_EVERY_S = 10.0

#: Kafka's settings for the time until an unresponsive broker counts as dead, in milliseconds: KRaft's, ZooKeeper's.
_SESSION_TIMEOUTS = ("broker.session.timeout.ms", "zookeeper.session.timeout.ms")


class WatchTrigger(BaseEventTrigger):
    """Polls the cluster behind `conn_id` every `watch_interval`, and maintains the entries of KIP-46 in its journal.

    In a separate thread it executes the requests in KIP-236's documents. `event` selects the event that it emits.

    "broker-failed": a failure is due; again every `heal_retry_interval` until a plan heals it. Airflow may duplicate or
    drop trigger events, so consumers read the state from the cluster, not from the event. "broker-joined": a live
    broker can take pending replicas (KIP-409); repeated at the same interval. "broker-new": a live broker is empty;
    repeated at the same interval until a run claims it. "request" and "cancel": such a document was accepted.

    The trigger never ends, and raises nothing: Airflow would restart it every 2 s without showing the reason.
    """

    def __init__(
        self,
        conn_id: str,
        overrides: Mapping[str, Any] | None = None,
        event: str = EVENTS[0],
        rings: str | None = None,  # the former name of `event`
        **_: Any,  # a trigger outlives an upgrade: keywords of other versions are accepted
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow leaves it untyped
        self.conn_id = conn_id
        self.overrides = dict(overrides or {})
        self.event = rings or event
        self._thread = ClusterWorker(conn_id, self.overrides)
        self._health = HealthPeriodicCheck(
            conn_id, ClusterWorker(conn_id, self.overrides), self.log.info, log_error=self.log.error
        )
        self._documents: DocumentLoop | None = None
        self._post: _WatchState | None = None
        self._reporter = WatchReporter(
            conn_id, self.log.info, failing="failing", what="check for failed brokers", log_error=self.log.error
        )
        self._reporters = [self._reporter]
        self._wake: asyncio.Event | None = None
        self._loops: list[asyncio.Task[None]] = []

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and keywords, which also identify the watch."""
        keywords: dict[str, Any] = {"conn_id": self.conn_id, "overrides": self.overrides}
        emitted = {} if self.event == EVENTS[0] else {"event": self.event}
        return f"{__name__}.{type(self).__name__}", keywords | emitted

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one TriggerEvent per due event, with the payload of `event_of`."""
        events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._wake = asyncio.Event()
        watches = [self._watch_failures(events), self._watch_documents(events)]
        if self.event == BrokerJoinCheck.EVENT:
            joins = BrokerJoinCheck(self.conn_id, self._thread, self.log.info, log_error=self.log.error)
            watches.append(self._check(joins, events))
        if self.event == EmptyBrokerCheck.EVENT:
            empty = EmptyBrokerCheck(self.conn_id, self._thread, self.log.info, log_error=self.log.error)
            watches.append(self._check(empty, events))
        if self.event == EVENTS[0]:  # one health check is enough for a cluster
            watches.append(self._watch_health(events))
        watches.append(self._report_ages())
        self._loops = loops = [asyncio.create_task(watch) for watch in watches]
        event = asyncio.create_task(events.get())
        try:
            while True:
                await asyncio.wait({event, *loops}, return_when=asyncio.FIRST_COMPLETED)
                if not event.done():
                    await asyncio.gather(*loops)  # a loop has ended, which should never happen: raise its error
                yield TriggerEvent(event.result())
                event = asyncio.create_task(events.get())
        finally:
            event.cancel()
            await self._end_loops()

    async def cleanup(self) -> None:
        """Stop the loops, and close the connections."""
        await self._end_loops()  # Airflow cancels the consumer of `run`; `run` itself may not have been cancelled yet
        self._thread.close()
        self._health.close()
        if self._documents is not None:
            self._documents.close()

    async def _end_loops(self) -> None:
        for task in self._loops:
            task.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)

    async def _watch_failures(self, events: asyncio.Queue[dict[str, Any]]) -> None:
        while True:
            try:
                event, verdict, pause_s = await self._thread.submit(self._poll)
            except Exception as error:  # noqa: BLE001 - no error may end the watch: see the class
                pause_s = self._report_error(error)
            else:
                self._report(verdict)
                if verdict.due and self.event == EVENTS[0]:
                    events.put_nowait(event)
            await self._wait(pause_s)

    async def _watch_documents(self, events: asyncio.Queue[dict[str, Any]]) -> None:
        # Imported in a thread: loading the Kafka, SQL and ZooKeeper clients would block the triggerer's loop too long.
        module = await asyncio.to_thread(importlib.import_module, "kafka_steward.triggers.documents")
        freeze_gc()
        documents: DocumentLoop = module.DocumentLoop(
            self.conn_id, self.overrides, self.event, self.log.info, self._wake_up, log_error=self.log.error
        )
        self._documents = documents
        self._reporters.append(documents.reporter)
        await documents.run(events)

    async def _watch_health(self, events: asyncio.Queue[dict[str, Any]]) -> None:
        await self._check(self._health, events)

    async def _check(self, check: PeriodicCheck, events: asyncio.Queue[dict[str, Any]]) -> None:
        self._reporters.append(check.reporter)
        await check.run(events)

    async def _report_ages(self) -> None:
        """Report the ages in a task of its own, so that a stalled check is reported too."""
        while True:
            for reporter in self._reporters:
                reporter.report_age()
            await asyncio.sleep(_AGES_REPORTED_EVERY_S)

    def _poll(self, opened: ClusterSession) -> tuple[dict[str, Any], DetectionResult, float]:
        if self._post is None or self._post.opened is not opened:
            self._post = _WatchState.at(opened)
        verdict = self._post.detector.poll()
        opened.journal.note_look("failures")
        return event_of(opened, verdict.now_ms, verdict.due), verdict, self._post.interval_s

    def _report(self, verdict: DetectionResult) -> None:
        self._reporter.ok()
        # Without the message, which counts down the seconds of the grace period.
        self._reporter.log_once(verdict.sentence, about=replace(verdict, due=(), sentence="", now_ms=0))
        gauge("failed_brokers", self.conn_id, len(verdict.down))
        gauge("failed_log_dirs", self.conn_id, verdict.failed_log_dirs)

    def _report_error(self, error: Exception) -> float:
        """Log the error once, count it, and return the seconds until the next poll."""
        return self._reporter.error(error)

    def _wake_up(self) -> None:
        """Wake the loops after a change notification from ZooKeeper."""
        if self._wake is not None:
            self._wake.set()

    async def _wait(self, seconds: float) -> None:
        if self._wake is None:
            return
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._wake.wait(), seconds)
        self._wake.clear()


@dataclass(frozen=True)
class _WatchState:
    """State of one connection: re-created after an error."""

    opened: ClusterSession
    detector: Detector
    interval_s: float

    @classmethod
    def at(cls, opened: ClusterSession) -> _WatchState:
        from kafka_steward.execution.detector import Detector
        from kafka_steward.journal.audit import Actor

        detector = Detector(opened.cluster, opened.journal, opened.settings, Actor(task_id="watch"))
        return cls(opened, detector, _interval_s(opened))


def _interval_s(opened: ClusterSession) -> float:
    # Two restarts within one grace period must be detected as two: four polls per session timeout (KIP-46).
    brokers = opened.cluster.broker_configs(sorted(opened.cluster.live_brokers())[:1], _SESSION_TIMEOUTS)
    sessions_s = [
        int(configs[name]) / 1000 for configs in brokers.values() for name in _SESSION_TIMEOUTS if name in configs
    ]
    return min([opened.settings.watch_interval, *(session_s / 4 for session_s in sessions_s)])
