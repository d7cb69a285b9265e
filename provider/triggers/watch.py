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
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from kafka_steward.triggers.base import ClusterWorker
from kafka_steward.triggers.periodic import (
    BrokerFailureCheck,
    BrokerJoinCheck,
    ClusterHealthCheck,
    EmptyBrokerCheck,
    PeriodicCheck,
)

if TYPE_CHECKING:
    from kafka_steward.triggers.documents import DocumentCheck
    from kafka_steward.triggers.reporting import Outage


@functools.cache
def freeze_gc() -> None:
    """Freeze all existing objects, so that only new ones are collected. Call it once modules are loaded; runs once."""
    gc.freeze()


#: The events that a watch may emit, one for each watch: a DAG that is scheduled on one must not start for another.
EVENTS = (BrokerFailureCheck.EVENT, BrokerJoinCheck.EVENT, EmptyBrokerCheck.EVENT, "request", "cancel")

Check = TypeVar("Check", bound=PeriodicCheck[Any])

#: Seconds between two reports of the age of each part's last successful check.
_AGES_REPORTED_EVERY_S = 10.0

#: The further checks of the watch for each event: one health check is enough for a cluster.
_KINDS: Mapping[str, tuple[type[PeriodicCheck[Any]], ...]] = {
    BrokerFailureCheck.EVENT: (ClusterHealthCheck,),
    BrokerJoinCheck.EVENT: (BrokerJoinCheck,),
    EmptyBrokerCheck.EVENT: (EmptyBrokerCheck,),
}
#: The further checks of a watch that emits no event, and is the only one of its cluster.
ALL_KINDS = (ClusterHealthCheck, BrokerJoinCheck, EmptyBrokerCheck)


class ClusterWatch:
    """The periodic checks of one cluster, for the trigger and for `airflow kafka-steward watch`.

    It always checks for failed brokers and executes documents; `kinds` are the further checks. `event` is the event
    that is put into the queue; empty: none, and no check records a broker as announced. With `outage`, all checks
    report an error that they share once.
    """

    def __init__(
        self,
        conn_id: str,
        overrides: Mapping[str, Any],
        *,
        event: str,
        kinds: Collection[type[PeriodicCheck[Any]]],
        log: Callable[..., None],
        log_error: Callable[..., None],
        log_warning: Callable[..., None] | None = None,
        outage: Outage | None = None,
    ) -> None:
        self._conn_id, self._overrides, self._event = conn_id, overrides, event
        self._log, self._log_error, self._outage = log, log_error, outage
        self._log_warning = log_warning
        worker = ClusterWorker(conn_id, overrides)
        self.failures = self._create_check(BrokerFailureCheck, worker)
        self.checks: list[PeriodicCheck[Any]] = [self.failures]
        if ClusterHealthCheck in kinds:
            self.checks.append(self._create_check(ClusterHealthCheck, ClusterWorker(conn_id, overrides)))
        self.checks += [
            self._create_check(kind, worker) for kind in (BrokerJoinCheck, EmptyBrokerCheck) if kind in kinds
        ]
        self._loops: list[asyncio.Task[None]] = []

    async def run(self, events: asyncio.Queue[dict[str, Any]]) -> None:
        """Check until cancelled; put events into the queue `events`."""
        watches = [check.run(events) for check in self.checks]
        watches += [self._watch_documents(events), self._report_ages()]
        self._loops = [asyncio.create_task(watch) for watch in watches]
        try:
            await asyncio.gather(*self._loops)  # none of them ends, unless by an error, which is raised
        finally:
            await self._end_loops()

    async def close(self) -> None:
        """Stop the checks after their current polls, which are not waited for, and close the connections."""
        await self._end_loops()
        for check in self.checks:
            check.close()

    def _create_check(self, kind: type[Check], worker: ClusterWorker) -> Check:
        emits = bool(self._event) and self._event == kind.EVENT
        check = kind(self._conn_id, worker, self._log, log_error=self._log_error, emits=emits)
        check.reporter.share(self._outage)
        return check

    async def _end_loops(self) -> None:
        for task in self._loops:
            task.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)

    async def _watch_documents(self, events: asyncio.Queue[dict[str, Any]]) -> None:
        # Imported in a thread: loading the Kafka, SQL and ZooKeeper clients would block the triggerer's loop too long.
        module = await asyncio.to_thread(importlib.import_module, "kafka_steward.triggers.documents")
        freeze_gc()
        documents: DocumentCheck = module.DocumentCheck(
            self._conn_id,
            self._overrides,
            self._event,
            self._log,
            self.failures.wake,
            log_error=self._log_error,
            log_warning=self._log_warning,
        )
        documents.reporter.share(self._outage)
        self.checks.append(documents)
        await documents.run(events)

    async def _report_ages(self) -> None:
        """Report the ages in a task of its own, so that a stalled check is reported too."""
        while True:
            for check in self.checks:
                check.reporter.report_age()
            await asyncio.sleep(_AGES_REPORTED_EVERY_S)


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
        self._watch = ClusterWatch(
            conn_id,
            self.overrides,
            event=self.event,
            kinds=_KINDS.get(self.event, ()),
            log=self.log.info,
            log_error=self.log.error,
            log_warning=self.log.warning,
        )

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and keywords, which also identify the watch."""
        keywords: dict[str, Any] = {"conn_id": self.conn_id, "overrides": self.overrides}
        emitted = {} if self.event == EVENTS[0] else {"event": self.event}
        return f"{__name__}.{type(self).__name__}", keywords | emitted

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one TriggerEvent per due event, with the payload of `event_payload`."""
        events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        watch = asyncio.create_task(self._watch.run(events))
        event = asyncio.create_task(events.get())
        try:
            while True:
                await asyncio.wait({event, watch}, return_when=asyncio.FIRST_COMPLETED)
                if not event.done():
                    await watch  # it has ended, which should never happen: raise its error
                yield TriggerEvent(event.result())
                event = asyncio.create_task(events.get())
        finally:
            event.cancel()
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)

    async def cleanup(self) -> None:
        """Stop the checks, and close the connections."""
        await self._watch.close()  # Airflow cancels the consumer of `run`; `run` itself may not have been cancelled yet
