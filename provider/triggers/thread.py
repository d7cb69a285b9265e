"""One thread per trigger: a stalled cluster blocks neither the triggerer's event loop nor another trigger."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from kafka_steward.errors import StewardError

if TYPE_CHECKING:
    from kafka_steward.hooks.steward import Opened, StewardHook

__all__ = ["ClusterThread"]

T = TypeVar("T")


class ClusterThread:
    """A thread that owns one cluster's connections. They are opened at the first call and re-opened after an error.

    The Airflow connection is looked up in the thread as well, and again every `reread_s` seconds. If it was edited, all
    connections are re-opened between two calls. A journal other than `journal`, the `Opened.origin` of the waiting
    task, is rejected. `clock` counts seconds.
    """

    def __init__(
        self,
        conn_id: str,
        overrides: Mapping[str, Any],
        *,
        journal: Mapping[str, Any] | None = None,
        reread_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._conn_id, self._overrides, self._journal = conn_id, dict(overrides), journal
        self._reread_s, self._clock = reread_s, clock
        self._line: _Line | None = None

    async def ask(self, question: Callable[[Opened], T]) -> T:
        """Return the result of `question`, called in the thread. If it raises, close all connections and re-raise."""
        if self._line is None:
            self._line = _Line(ThreadPoolExecutor(1, thread_name_prefix=f"kafka-steward-{self._conn_id}"))
        # Airflow assigns log lines to triggers by context variables.
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._line.executor, context.run, self._answer, self._line, question)

    def close(self) -> None:
        """End the thread after its current call, without waiting for it. Does no harm when called twice.

        A later call of `ask` gets a new thread and new connections, because the old thread may still be using its own.
        """
        line, self._line = self._line, None
        if line is not None:
            line.executor.submit(line.disconnect)
            line.executor.shutdown(wait=False)

    def _answer(self, line: _Line, question: Callable[[Opened], T]) -> T:
        try:
            return question(self._connect(line))
        except BaseException:
            line.disconnect()
            raise

    def _connect(self, line: _Line) -> Opened:
        from kafka_steward.hooks.steward import StewardHook

        hook = StewardHook(self._conn_id, self._overrides, self._journal)
        if line.opened is not None and self._clock() - line.read_s >= self._reread_s:
            line.read_s = self._clock()
            if _edited(hook, line.opened):
                line.disconnect()
        if line.opened is None:
            line.opened, line.read_s = hook.open(), self._clock()
        return line.opened


@dataclass
class _Line:
    """One thread, and the connections that only this thread uses."""

    executor: ThreadPoolExecutor
    opened: Opened | None = None
    read_s: float = 0.0

    def disconnect(self) -> None:
        """Close the connections, in the thread."""
        opened, self.opened = self.opened, None
        if opened is not None:
            with suppress(StewardError, OSError):
                opened.close()


def _edited(hook: StewardHook, opened: Opened) -> bool:
    # Airflow's API may be unreachable, or the connection deleted or unreadable: working connections must stay open.
    with suppress(Exception):
        return hook.access != opened.access
    return False
