"""Connections for work that lasts: opened again when the Airflow connection was edited."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import TYPE_CHECKING

from kafka_steward.errors import StewardError

if TYPE_CHECKING:
    from kafka_steward.hooks.steward import ClusterSession, StewardHook


#: Seconds between two lookups of the Airflow connection.
REREAD_S = 60.0


class FreshConnections:
    """The connections of one cluster. They are opened at the first call of `now`, and again after `close`.

    `hook` returns a new hook, which looks up the Airflow connection and takes the connections in use, if any;
    `connect` opens it. Every `reread_s` seconds `now` compares the Airflow connection with the one in use. If it was
    edited, all connections are opened again. `clock` counts seconds. Not thread-safe.
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

    def now(self) -> ClusterSession:
        """Return the open connections as the Airflow connection describes them. Raises the errors of `connect`."""
        if self._opened is None:
            return self._open(self._hook(None))
        if self._clock() - self._read_s >= self._reread_s:
            self._read_s, hook = self._clock(), self._hook(self._opened)
            if _edited(hook, self._opened):
                self.close()
                return self._open(hook)
        return self._opened

    def close(self) -> None:
        """Close the connections. Harmless when called twice."""
        self._opened = None
        with suppress(StewardError, OSError):
            self._leaving.close()

    def _open(self, hook: StewardHook) -> ClusterSession:
        self._opened, self._read_s = self._leaving.enter_context(self._connect(hook)), self._clock()
        return self._opened


def _edited(hook: StewardHook, opened: ClusterSession) -> bool:
    # Airflow's API may be unreachable, or the connection deleted or unreadable: working connections must stay open.
    with suppress(Exception):
        return hook.access != opened.access
    return False
