"""Common parts of the triggers: connections that follow edits of the Airflow connection, and a thread that owns them.

One thread per trigger: a stalled cluster blocks neither the triggerer's event loop nor another trigger.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from airflow.triggers.base import BaseTrigger, TriggerEvent

from kafka_steward.errors import StewardError

if TYPE_CHECKING:
    from kafka_steward.hooks.session import ClusterSession
    from kafka_steward.hooks.steward import StewardHook


T = TypeVar("T")

#: An event within about 6 s of the deferral costs the task a try: the executor still reports the deferred worker. The
#: time counts from the trigger's start, also in a triggerer that took it over: it has no clock of the worker's.
FIRST_EVENT_AFTER_S = 10.0
#: Seconds between two lookups of the Airflow connection.
REREAD_S = 60.0


@functools.cache
def freeze_gc(loaded: str) -> None:  # noqa: ARG001 - the key of the cache
    """Freeze all existing objects, so that only new ones are collected. Runs once for each name of what is `loaded`.

    A full collection visits every object and blocks the interpreter meanwhile: with Airflow loaded, for 190 to 860 ms,
    in which no trigger of the process runs. Importing Kafka's, SQL's and ZooKeeper's clients in a thread allocates
    enough objects to cause some, and so does a watch of thousands of partitions.
    """
    gc.freeze()


class FreshConnections:
    """The connections of one cluster. They are opened at the first call of `current`, and again after `close`.

    `hook` returns a new hook, which looks up the Airflow connection and takes the connections in use, if any;
    `connect` opens it. Every `reread_s` seconds `current` compares the Airflow connection with the one in use. If it
    was edited, all connections are opened again. `clock` counts seconds. Not thread-safe.
    """

    def __init__(
        self,
        hook: Callable[[ClusterSession | None], StewardHook],
        connect: Callable[[StewardHook], AbstractContextManager[ClusterSession]],
        *,
        reread_s: float = REREAD_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hook, self._connect = hook, connect
        self._reread_s, self._clock = reread_s, clock
        self._opened: ClusterSession | None = None
        self._leaving = ExitStack()
        self._read_s = 0.0

    def current(self) -> ClusterSession:
        """Return the open connections as the Airflow connection describes them. Raises the errors of `connect`."""
        if self._opened is None:
            return self._open_session(self._hook(None))
        if self._clock() - self._read_s >= self._reread_s:
            self._read_s, hook = self._clock(), self._hook(self._opened)
            if _is_edited(hook, self._opened):
                self.close()
                return self._open_session(hook)
        return self._opened

    def run_if_open(self, call: Callable[[ClusterSession], object]) -> None:
        """Call `call` with the open connections, if they are open; an outage is ignored."""
        if self._opened is not None:
            with suppress(StewardError, OSError):
                call(self._opened)

    def close(self) -> None:
        """Close the connections. Harmless when called twice."""
        self._opened = None
        with suppress(StewardError, OSError):
            self._leaving.close()

    def _open_session(self, hook: StewardHook) -> ClusterSession:
        self._opened, self._read_s = self._leaving.enter_context(self._connect(hook)), self._clock()
        return self._opened


def _is_edited(hook: StewardHook, opened: ClusterSession) -> bool:
    # Airflow's API may be unreachable, or the connection deleted or unreadable: working connections must stay open.
    with suppress(Exception):
        return hook.access != opened.access
    return False


class ClusterWorker:
    """A thread that owns one cluster's connections. They are opened at the first call and re-opened after an error.

    The Airflow connection is looked up in the thread as well, and again every `reread_s` seconds. If it was edited, all
    connections are re-opened between two calls. A journal other than `journal`, the `ClusterSession.origin` of the
    waiting task, is rejected. `clock` counts seconds.
    """

    def __init__(
        self,
        conn_id: str,
        overrides: Mapping[str, Any],
        *,
        journal: Mapping[str, Any] | None = None,
        reread_s: float = REREAD_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._conn_id, self._overrides, self._journal = conn_id, dict(overrides), journal
        self._reread_s, self._clock = reread_s, clock
        self._state: _WorkerState | None = None
        #: What `close` calls with the open connections before it closes them.
        self.before_close: list[Callable[[ClusterSession], object]] = []

    async def submit(self, call: Callable[[ClusterSession], T]) -> T:
        """Return the result of `call`, called in the thread. If it raises, close all connections and re-raise."""
        if self._state is None:
            # Before the thread loads the clients: a collection during that would visit all of Airflow.
            freeze_gc("airflow")
            executor = ThreadPoolExecutor(1, thread_name_prefix=f"kafka-steward-{self._conn_id}")
            self._state = _WorkerState(executor, self._create_connections())
        # Airflow assigns log lines to triggers by context variables.
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._state.executor, context.run, self._call_with_session, self._state, call)

    async def call_without_session(self, call: Callable[[StewardHook], object]) -> None:
        """Call `call` in the thread with a new hook, and open nothing for it. Raises nothing."""
        if self._state is not None:
            context, loop = contextvars.copy_context(), asyncio.get_running_loop()
            with suppress(Exception):  # the journal may be what does not answer
                await loop.run_in_executor(self._state.executor, context.run, lambda: call(self._create_hook(None)))

    def close(self) -> None:
        """End the thread after its current call, without waiting for it. Does no harm when called twice.

        A later `submit` gets a new thread and new connections, because the old thread may still be using its own.
        """
        state, self._state = self._state, None
        if state is not None:
            for call in self.before_close:
                state.executor.submit(state.connections.run_if_open, call)
            state.executor.submit(state.connections.close)
            state.executor.shutdown(wait=False)

    def _call_with_session(self, state: _WorkerState, call: Callable[[ClusterSession], T]) -> T:
        try:
            return call(state.connections.current())
        except BaseException:
            state.connections.close()
            raise

    def _create_connections(self) -> FreshConnections:
        return FreshConnections(
            self._create_hook, lambda hook: closing(hook.open()), reread_s=self._reread_s, clock=self._clock
        )

    def _create_hook(self, _: ClusterSession | None) -> StewardHook:
        from kafka_steward.hooks.steward import StewardHook

        freeze_gc("clients")
        return StewardHook(self._conn_id, self._overrides, self._journal)


@dataclass(frozen=True)
class _WorkerState:
    """One thread, and the connections that only this thread uses."""

    executor: ThreadPoolExecutor
    connections: FreshConnections


class ClusterTrigger(BaseTrigger):
    """A trigger that works on the cluster behind `conn_id` in a thread, and fires once.

    `overrides` are settings as strings and numbers. `journal` is the task's `ClusterSession.origin`.
    """

    #: The names of the constructor's arguments, which are attributes too.
    KEYWORDS: ClassVar[tuple[str, ...]]

    def __init__(self, conn_id: str, overrides: Mapping[str, Any] | None, journal: Mapping[str, Any] | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow leaves it untyped
        self.conn_id = conn_id
        self.overrides = dict(overrides or {})
        self.journal = journal
        self._thread = ClusterWorker(conn_id, self.overrides, journal=journal)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and keywords, enough to rebuild the trigger in any triggerer."""
        path = f"{type(self).__module__}.{type(self).__name__}"
        return path, {name: getattr(self, name) for name in self.KEYWORDS}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Work to the end, then yield one event with the payload."""
        began_s = time.monotonic()
        payload = await self.payload()
        await self._wait(FIRST_EVENT_AFTER_S - (time.monotonic() - began_s))
        yield TriggerEvent(payload)

    @abstractmethod
    async def payload(self) -> dict[str, Any]:
        """Work to the end; return the payload of the event."""

    async def cleanup(self) -> None:
        """Close the connections, and nothing else."""
        self._thread.close()

    async def _wait(self, seconds: float) -> None:
        if seconds > 0:
            await asyncio.sleep(seconds)
