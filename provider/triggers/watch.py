"""The watch of one cluster: it runs while a DAG that is scheduled on its asset is unpaused, and emits due events.

It also executes the requests in the KIPs' documents by itself.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from weakref import WeakKeyDictionary

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from kafka_steward.triggers.alerts import AlertCheck, JournalWorker
from kafka_steward.triggers.base import ClusterWorker
from kafka_steward.triggers.collector import freeze_gc
from kafka_steward.triggers.periodic import (
    BrokerFailureCheck,
    BrokerJoinCheck,
    ClusterHealthCheck,
    EmptyBrokerCheck,
    EventQueues,
    PeriodicCheck,
)

if TYPE_CHECKING:
    from kafka_steward.triggers.documents import DocumentCheck
    from kafka_steward.triggers.reporting import Outage


#: The events that a watch may emit, one for each watch: a DAG that is scheduled on one must not start for another.
EVENTS = (
    BrokerFailureCheck.EVENT,
    BrokerJoinCheck.EVENT,
    EmptyBrokerCheck.EVENT,
    "request",
    "cancel",
    AlertCheck.EVENT,
)

Check = TypeVar("Check", bound=PeriodicCheck[Any])

#: Seconds between two reports of the age of each part's last successful check.
_AGES_REPORTED_EVERY_S = 10.0

#: The further checks of the watch for each event: one health check is enough for a cluster.
_KINDS: Mapping[str, tuple[type[PeriodicCheck[Any]], ...]] = {
    BrokerFailureCheck.EVENT: (ClusterHealthCheck,),
    BrokerJoinCheck.EVENT: (BrokerJoinCheck,),
    EmptyBrokerCheck.EVENT: (EmptyBrokerCheck,),
    AlertCheck.EVENT: (AlertCheck, ClusterHealthCheck),
}
#: The further checks of a watch that emits no event, and is the only one of its cluster.
ALL_KINDS = (ClusterHealthCheck, BrokerJoinCheck, EmptyBrokerCheck)


class ClusterWatch:
    """The periodic checks of one cluster, for the triggers and for `airflow kafka-steward watch`.

    It always checks for failed brokers and executes documents; `kinds` are the further checks, beside those that the
    events need that somebody listens to. No check records a broker as announced whose event nobody listens to. With
    `outage`, all checks report an error that they share once. One event loop may use it.
    """

    def __init__(
        self,
        conn_id: str,
        *,
        log: Callable[..., None],
        log_error: Callable[..., None],
        log_warning: Callable[..., None] | None = None,
        kinds: Collection[type[PeriodicCheck[Any]]] = (),
        outage: Outage | None = None,
    ) -> None:
        self._conn_id, self._kinds = conn_id, frozenset(kinds)
        self._log, self._log_error, self._outage = log, log_error, outage
        self._log_warning = log_warning
        self._worker = ClusterWorker(conn_id, {})
        self.failures = self._create_check(BrokerFailureCheck)
        self.checks: list[PeriodicCheck[Any]] = [self.failures]
        self._events = EventQueues()
        self._documents: DocumentCheck | None = None
        self._loops: dict[object, asyncio.Task[None]] = {}
        self._ended: asyncio.Future[None] | None = None

    def listen(self, event: str) -> asyncio.Queue[dict[str, Any]]:
        """Return a queue for the payloads of one of EVENTS. The checks of the event begin if they do not run yet."""
        queue = self._events.add(event)
        self._update_checks()
        return queue

    def leave(self, event: str, queue: asyncio.Queue[dict[str, Any]]) -> bool:
        """Give a queue of `listen` back. Return whether anybody listens still."""
        self._events.remove(event, queue)
        self._update_checks()
        return bool(self._events.events)

    async def run(self) -> None:
        """Check until cancelled, and publish events to those who listen."""
        self._ended = asyncio.get_running_loop().create_future()
        self._begin(self._watch_documents)
        self._begin(self._report_ages)
        self._update_checks()
        try:
            await self._ended  # none of them ends, unless by an error, which is raised
        finally:
            await self._end_loops()

    async def close(self) -> None:
        """Stop the checks after their current polls, which are not waited for, and close the connections."""
        await self._end_loops()
        for check in self.checks:
            check.close()

    def _update_checks(self) -> None:
        """Create and begin the checks that are needed, end the others, and state which events they emit."""
        events = self._events.events
        needed = {BrokerFailureCheck, *self._kinds, *(kind for event in events for kind in _KINDS.get(event, ()))}
        there = {type(check) for check in self.checks}
        self.checks += [self._create_check(kind) for kind in (*ALL_KINDS, AlertCheck) if kind in needed - there]
        for check in self.checks:
            check.listen_for(events)
            if self._ended is None or check is self._documents:
                continue
            if type(check) in needed:
                self._begin(check)
            elif check in self._loops:
                self._loops.pop(check).cancel()

    def _begin(self, what: PeriodicCheck[Any] | Callable[[], Coroutine[Any, Any, None]]) -> None:
        if what in self._loops:
            return
        work = what.run(self._events) if isinstance(what, PeriodicCheck) else what()
        self._loops[what] = asyncio.create_task(work)
        self._loops[what].add_done_callback(self._on_loop_end)

    def _on_loop_end(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or self._ended is None or self._ended.done():
            return
        error = task.exception()
        if error is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(error)

    def _create_check(self, kind: type[Check]) -> Check:
        # Apart, because a stalled broker must not keep the watch from detecting the failure of another one.
        worker = ClusterWorker(self._conn_id, {}) if kind is ClusterHealthCheck else self._worker
        worker = JournalWorker(self._conn_id, {}) if kind is AlertCheck else worker
        check = kind(self._conn_id, worker, self._log, log_error=self._log_error, emits=False, leased=True)
        check.reporter.share(self._outage)
        if isinstance(check, AlertCheck):
            check.others = self.checks
        return check

    async def _end_loops(self) -> None:
        loops = list(self._loops.values())
        self._loops = {}
        for task in loops:
            task.cancel()
        await asyncio.gather(*loops, return_exceptions=True)

    async def _watch_documents(self) -> None:
        # Imported in a thread: loading the Kafka, SQL and ZooKeeper clients would block the triggerer's loop too long.
        module = await asyncio.to_thread(importlib.import_module, "kafka_steward.triggers.documents")
        freeze_gc("documents")
        self._documents = documents = module.DocumentCheck(
            self._conn_id,
            self._events.events,
            self._log,
            self.failures.wake,
            log_error=self._log_error,
            log_warning=self._log_warning,
            leased=True,
        )
        documents.reporter.share(self._outage)
        self.checks.append(documents)
        await documents.run(self._events)

    async def _report_ages(self) -> None:
        """Report the ages in a task of its own, so that a stalled check is reported too."""
        while True:
            for check in self.checks:
                if check in self._loops or check is self._documents:
                    check.reporter.report_age()
            await asyncio.sleep(_AGES_REPORTED_EVERY_S)


class SharedWatch:
    """The one watch of a cluster in this process, for all triggers with the same connection."""

    #: By event loop: the watches that run, by connection.
    _running: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, SharedWatch]]] = WeakKeyDictionary()

    def __init__(self, key: str, watch: ClusterWatch) -> None:
        self._key, self.watch = key, watch
        self.task = asyncio.create_task(watch.run())

    @classmethod
    def join(cls, key: str, watch: ClusterWatch) -> SharedWatch:
        """Return the watch that runs with this key; if none does, run `watch`."""
        running = cls._running.setdefault(asyncio.get_running_loop(), {})
        if key not in running or running[key].task.done():
            running[key] = cls(key, watch)
        return running[key]

    async def leave(self, event: str, queue: asyncio.Queue[dict[str, Any]]) -> None:
        """Give a queue of `listen` back. The last one to leave ends the watch."""
        if self.watch.leave(event, queue):
            return
        running = self._running.get(asyncio.get_running_loop(), {})
        if running.get(self._key) is self:
            del running[self._key]  # before anything is waited for: who comes meanwhile runs a watch of its own
        self.task.cancel()
        await self.watch.close()
        await asyncio.gather(self.task, return_exceptions=True)


class WatchTrigger(BaseEventTrigger):
    """Polls the cluster behind `conn_id` every `watch_interval`, and maintains the entries of KIP-46 in its journal.

    In a separate thread it executes the requests in KIP-236's documents. `event` selects the event that it emits. All
    triggers of a cluster share one watch, whose settings are those of the connection.

    "broker-failed": a failure is due; again every `heal_retry_interval` until a plan heals it. Airflow may duplicate or
    drop trigger events, so consumers read the state from the cluster, not from the event. "broker-joined": a live
    broker can take pending replicas (KIP-409); repeated at the same interval. "broker-new": a live broker is empty;
    repeated at the same interval until a run claims it. "request" and "cancel": such a document was accepted. "alert":
    people are to be told of something; repeated until a run has told them (kafka_steward.execution.alerts).

    The trigger never ends, and raises nothing: Airflow would restart it every 2 s without showing the reason.
    """

    def __init__(
        self,
        conn_id: str,
        event: str = EVENTS[0],
        **_: Any,  # a trigger outlives an upgrade: keywords of other versions are accepted
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow leaves it untyped
        self.conn_id = conn_id
        self.event = event
        self._watch = ClusterWatch(conn_id, log=self.log.info, log_error=self.log.error, log_warning=self.log.warning)
        self._leaving: Callable[[], Coroutine[Any, Any, None]] | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and keywords, which also identify the watch."""
        return f"{__name__}.{type(self).__name__}", {"conn_id": self.conn_id, "event": self.event}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one TriggerEvent per due event, with the payload of `event_payload`."""
        shared = SharedWatch.join(self.conn_id, self._watch)
        events = shared.watch.listen(self.event)
        self._leaving = functools.partial(shared.leave, self.event, events)
        event = asyncio.create_task(events.get())
        try:
            while True:
                await asyncio.wait({event, shared.task}, return_when=asyncio.FIRST_COMPLETED)
                if not event.done():
                    await asyncio.shield(shared.task)  # it has ended, which should never happen: raise its error
                payload, event = event.result(), asyncio.create_task(events.get())
                yield TriggerEvent(payload)
        finally:
            if event.done() and not event.cancelled():
                events.put_nowait(event.result())  # for the next listener
            event.cancel()
            await self.cleanup()

    async def cleanup(self) -> None:
        """Stop listening; the last listener of a watch stops the checks, and closes the connections."""
        # Airflow cancels the consumer of `run`; `run` itself may not have been cancelled yet.
        leave, self._leaving = self._leaving, None
        if leave is not None:
            await leave()
