"""The trigger of the watch of one cluster: it runs while a DAG that is scheduled on its asset is unpaused.

It emits due events, and executes the requests in the KIPs' documents by itself.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from kafka_steward.triggers.base import freeze_gc

if TYPE_CHECKING:
    from kafka_steward.triggers.cluster_watch import ClusterWatch


#: The events that a watch may emit, one for each watch: a DAG that is scheduled on one must not start for another.
EVENTS = (
    *("broker-failed", "broker-joined", "broker-new", "request", "cancel"),
    *("broker-imbalanced", "disk-full", "demoted-leads", "alert"),
)


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
    repeated at the same interval until a run claims it. "broker-imbalanced", "disk-full" and "demoted-leads": a broker
    leads far more than the others, has a full volume, or is demoted and is to lead something new; repeated after a day
    (kafka_steward.execution.watch.imbalance). "request": such a document was accepted. "cancel": a signal requested
    the cancel of a plan. "alert": people are to be notified of something; repeated until a run has done so
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
        self._leaving: Callable[[], Coroutine[Any, Any, None]] | None = None

    @functools.cached_property
    def _watch(self) -> ClusterWatch:
        from kafka_steward.triggers.cluster_watch import ClusterWatch

        log = self.log
        return ClusterWatch(self.conn_id, log=log.info, log_error=log.error, log_warning=log.warning)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and keywords, which also identify the watch."""
        return f"{__name__}.{type(self).__name__}", {"conn_id": self.conn_id, "event": self.event}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one TriggerEvent per due event, with the payload of `event_payload`."""
        # In a thread: to load the Kafka, SQL and ZooKeeper clients would block the triggerer's loop for too long.
        await asyncio.to_thread(importlib.import_module, "kafka_steward.triggers.cluster_watch")
        freeze_gc("watch")
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
