"""The watch of one cluster: it runs while a DAG that is scheduled on its asset is unpaused, and emits due events.

It also executes the requests in the KIPs' documents by itself.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from weakref import WeakKeyDictionary

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from kafka_steward.triggers.alerts import AlertCheck, AlertLoop, JournalWorker
from kafka_steward.triggers.base import ClusterWorker, freeze_gc
from kafka_steward.triggers.checks import (
    BrokerFailureCheck,
    BrokerJoinCheck,
    Check,
    ClusterHealthCheck,
    EmptyBrokerCheck,
)
from kafka_steward.triggers.loops import CheckLoop, DetectionLoop, EventQueues, WatchRole

if TYPE_CHECKING:
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

Kind = TypeVar("Kind", bound=Check[Any])

#: Seconds between two reports of the age of each part's last successful check.
_AGES_REPORTED_EVERY_S = 10.0


class ClusterWatch:
    """The watch of one cluster, for the triggers and for `airflow kafka-steward watch`.

    It makes all checks and executes documents, unless another watch of the cluster does; for alerts it looks while
    somebody listens to them. No check records a broker as announced whose event nobody listens to. With `outage`, all
    checks report an error that they share once. One event loop may use it.
    """

    def __init__(
        self,
        conn_id: str,
        *,
        log: Callable[..., None],
        log_error: Callable[..., None],
        log_warning: Callable[..., None] | None = None,
        outage: Outage | None = None,
    ) -> None:
        self._conn_id, self._log, self._log_error, self._log_warning = conn_id, log, log_error, log_warning
        self._outage = outage
        self._events, self._role = EventQueues(), WatchRole()
        self.failures = self._create(BrokerFailureCheck)
        checks: list[Check[Any]] = [self._create(BrokerJoinCheck), self._create(EmptyBrokerCheck)]
        alerts = self._create(AlertCheck)
        self._detection = DetectionLoop(
            ClusterWorker(conn_id, {}),
            self.failures,
            checks,
            self._events,
            role=self._role,
            on_change=self._change_role,
        )
        self._loops: list[CheckLoop] = [
            self._detection,
            # Apart, because a stalled broker must not keep the watch from detecting the failure of another one.
            CheckLoop(ClusterWorker(conn_id, {}), [self._create(ClusterHealthCheck)], self._events, self._role),
            AlertLoop(JournalWorker(conn_id, {}), [alerts], self._events, self._role),
        ]
        alerts.watched = lambda: self.checks

    @property
    def checks(self) -> list[Check[Any]]:
        """All checks; that of the documents once it runs."""
        return [check for loop in self._loops for check in loop.checks]

    def listen(self, event: str) -> asyncio.Queue[dict[str, Any]]:
        """Return a queue for the payloads of one of EVENTS."""
        queue = self._events.add(event)
        self._detection.wake()
        self._reconsider()
        return queue

    def leave(self, event: str, queue: asyncio.Queue[dict[str, Any]]) -> bool:
        """Give a queue of `listen` back. Return whether anybody listens still."""
        self._events.remove(event, queue)
        return bool(self._events.events)

    async def run(self) -> None:
        """Check until cancelled, and publish events to those who listen."""
        running = [asyncio.create_task(loop.run()) for loop in self._loops]
        running += [asyncio.create_task(self._watch_documents()), asyncio.create_task(self._report_ages())]
        try:
            await asyncio.gather(*running)  # none of them ends, unless by an error, which is raised
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def close(self) -> None:
        """Close the connections after the current polls, which are not waited for."""
        for loop in self._loops:
            loop.close()

    def _change_role(self) -> None:
        for check in self.checks:
            check.reporter.restart(rests=not self._role.leads)
        self._reconsider()

    def _reconsider(self) -> None:
        for loop in self._loops:
            loop.reconsider()

    def _poll_after_change(self) -> None:
        """Poll the brokers and the documents, whose loop is the last one, at once after a change in ZooKeeper."""
        self._detection.wake()
        self._loops[-1].wake()

    def _create(self, kind: type[Kind], *more: Any, **options: Any) -> Kind:
        logs = {"log_error": self._log_error, "log_warning": self._log_warning}
        check = kind(self._conn_id, self._log, *more, **logs, **options)
        check.reporter.share(self._outage)
        return check

    async def _watch_documents(self) -> None:
        # Imported in a thread: loading the Kafka, SQL and ZooKeeper clients would block the triggerer's loop too long.
        module = await asyncio.to_thread(importlib.import_module, "kafka_steward.triggers.documents")
        freeze_gc("documents")
        loop = asyncio.get_running_loop()
        check = self._create(module.DocumentCheck, lambda: loop.call_soon_threadsafe(self._poll_after_change))
        documents = CheckLoop(ClusterWorker(self._conn_id, {}), [check], self._events, self._role)
        self._loops.append(documents)
        await documents.run()

    async def _report_ages(self) -> None:
        """Report the ages in a task of its own, so that a stalled check is reported too."""
        while True:
            for loop in self._loops if self._role.leads else ():
                for check in loop.checks if loop.is_needed else ():
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
        await asyncio.gather(self.task, return_exceptions=True)
        self.watch.close()


class WatchTrigger(BaseEventTrigger):
    """Polls the cluster behind `conn_id` every `watch_interval`, and maintains the entries of KIP-46 in its journal.

    In a separate thread it executes the requests in KIP-236's documents. `event` selects the event that it emits. All
    triggers of a cluster share one watch, whose settings are those of the connection.

    "broker-failed": a failure is due; again every `heal_retry_interval` until a plan heals it. Airflow may duplicate or
    drop trigger events, so consumers read the state from the cluster, not from the event. "broker-joined": a live
    broker can take pending replicas (KIP-409); repeated at the same interval. "broker-new": a live broker is empty;
    repeated at the same interval until a run claims it. "request": such a document was accepted. "cancel": a signal
    requested the cancel of a plan. "alert": people are to be told of something; repeated until a run has told them
    (kafka_steward.execution.watch.alerts).

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
