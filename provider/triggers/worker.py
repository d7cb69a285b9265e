"""One thread per trigger: a stalled cluster blocks neither the triggerer's event loop nor another trigger."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from kafka_steward.hooks.fresh import REREAD_S, FreshConnections

if TYPE_CHECKING:
    from kafka_steward.hooks.steward import ClusterSession, StewardHook


T = TypeVar("T")


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

    async def submit(self, call: Callable[[ClusterSession], T]) -> T:
        """Return the result of `call`, called in the thread. If it raises, close all connections and re-raise."""
        if self._state is None:
            executor = ThreadPoolExecutor(1, thread_name_prefix=f"kafka-steward-{self._conn_id}")
            self._state = _WorkerState(executor, self._connections())
        # Airflow assigns log lines to triggers by context variables.
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._state.executor, context.run, self._call, self._state, call)

    def close(self) -> None:
        """End the thread after its current call, without waiting for it. Does no harm when called twice.

        A later `submit` gets a new thread and new connections, because the old thread may still be using its own.
        """
        state, self._state = self._state, None
        if state is not None:
            state.executor.submit(state.connections.close)
            state.executor.shutdown(wait=False)

    def _call(self, state: _WorkerState, call: Callable[[ClusterSession], T]) -> T:
        try:
            return call(state.connections.now())
        except BaseException:
            state.connections.close()
            raise

    def _connections(self) -> FreshConnections:
        return FreshConnections(
            self._hook, lambda hook: closing(hook.open()), reread_s=self._reread_s, clock=self._clock
        )

    def _hook(self, _: ClusterSession | None) -> StewardHook:
        from kafka_steward.hooks.steward import StewardHook

        return StewardHook(self._conn_id, self._overrides, self._journal)


@dataclass(frozen=True)
class _WorkerState:
    """One thread, and the connections that only this thread uses."""

    executor: ThreadPoolExecutor
    connections: FreshConnections
