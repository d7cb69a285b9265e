"""One thread per trigger: a cluster that hangs holds up neither the triggerer's event loop nor another trigger."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from kafka_steward.errors import StewardError

if TYPE_CHECKING:
    from kafka_steward.hooks.steward import Opened

__all__ = ["ClusterThread"]

T = TypeVar("T")


class ClusterThread:
    """A thread that holds one cluster's connections, made when first asked and made anew after an error.

    The connection is looked up in the thread as well, so that an edited one is used after the next error.
    """

    def __init__(self, conn_id: str, overrides: Mapping[str, Any]) -> None:
        self._conn_id, self._overrides = conn_id, dict(overrides)
        self._executor: ThreadPoolExecutor | None = None
        self._opened: Opened | None = None

    async def ask(self, question: Callable[[Opened], T]) -> T:
        """The answer of `question`, asked in the thread. Raises what it raises; then all connections are closed."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"kafka-steward-{self._conn_id}")
        # Airflow tells triggers' log lines apart by context variables.
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, context.run, self._answer, question)

    def close(self) -> None:
        """End the thread after what it is doing, without waiting for it. Harmless when called twice."""
        if self._executor is not None:
            self._executor.submit(self._disconnect)
            self._executor.shutdown(wait=False)
            self._executor = None

    def _answer(self, question: Callable[[Opened], T]) -> T:
        try:
            return question(self._connect())
        except BaseException:
            self._disconnect()
            raise

    def _connect(self) -> Opened:
        from kafka_steward.hooks.steward import StewardHook  # noqa: PLC0415 - DAG files are parsed without Kafka

        if self._opened is None:
            self._opened = StewardHook(self._conn_id, self._overrides).open()
        return self._opened

    def _disconnect(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            with suppress(StewardError, OSError):
                opened.close()
