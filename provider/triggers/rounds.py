"""Periodic checks of the watch of one cluster, in addition to the detection of failed brokers."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from kafka_steward.triggers.metrics import emit_health
from kafka_steward.triggers.telling import Teller, bell_of, gauge
from kafka_steward.triggers.thread import ClusterThread

if TYPE_CHECKING:
    from kafka_steward.cluster.health import Copies
    from kafka_steward.hooks.steward import Opened

__all__ = ["HealthRound", "JoinRound", "NewcomerRound", "Round"]

#: Seconds after which a setting that disabled a check is read again.
OFF_S = 60.0
#: The result of one check: the event to emit, if any, and the seconds until the next check.
Looked = tuple[dict[str, Any] | None, float]


class Round(ABC):
    """A periodic check in the given thread. It never ends, and raises nothing."""

    FAILING: ClassVar[str]
    WHAT: ClassVar[str]

    def __init__(self, conn_id: str, thread: ClusterThread, say: Callable[..., None]) -> None:
        self.conn_id = conn_id
        self.teller = Teller(conn_id, say, failing=self.FAILING, what=self.WHAT)
        self._thread = thread

    async def run(self, bells: asyncio.Queue[dict[str, Any]]) -> None:
        """Check until cancelled; put events into the queue `bells`."""
        while True:
            try:
                bell, pause_s = await self._thread.ask(self._look)
            except Exception as error:  # noqa: BLE001 - no error may end the watch
                pause_s = self.teller.complain(error)
            else:
                self.teller.fine()
                if bell is not None:
                    bells.put_nowait(bell)
            await self.wait(pause_s)

    def _look(self, opened: Opened) -> Looked:
        looked = self.look(opened)
        opened.journal.note_look(self.FAILING.removesuffix("_failing"))
        return looked

    @abstractmethod
    def look(self, opened: Opened) -> Looked:
        """Run one check, in the thread."""

    async def wait(self, seconds: float) -> None:
        """Wait until the next check."""
        await asyncio.sleep(seconds)


class JoinRound(Round):
    """Emits an event when a live broker can take pending replicas (KIP-409).

    Kafka is not polled while neither a pending replica nor a deferred partition request exists.
    """

    FAILING = "joining_failing"
    WHAT = "look for brokers that joined"
    RINGS: ClassVar[str] = "broker-joined"

    def look(self, opened: Opened) -> Looked:
        """Check, and reconcile the pending replicas."""
        from kafka_steward.execution.filling.joining import look_for_joined
        from kafka_steward.journal.audit import Who

        joined = look_for_joined(opened.cluster, opened.journal, opened.settings, Who(task_id="watch"))
        gauge("owed_replicas", self.conn_id, 0 if joined is None else joined.owed)
        if joined is None:
            return None, opened.settings.watch_interval
        self.teller.say(joined.sentence, about=joined.sentence)
        bell = bell_of(opened, joined.now_ms, joined.due)
        return bell if joined.due else None, opened.settings.watch_interval


class NewcomerRound(Round):
    """Emits an event while a live broker is empty, until a run has claimed it; after the fill (KIP-409)."""

    FAILING = "newcomers_failing"
    WHAT = "look for new brokers"
    RINGS: ClassVar[str] = "broker-new"

    def look(self, opened: Opened) -> Looked:
        """Check, and record the empty brokers."""
        from kafka_steward.execution.filling.newcomers import look_for_newcomers

        found = look_for_newcomers(opened.cluster, opened.journal, opened.settings)
        self.teller.say(found.sentence, about=found.sentence)
        bell = bell_of(opened, found.now_ms, found.due)
        return bell if found.due else None, opened.settings.watch_interval


class HealthRound(Round):
    """Measures the cluster's health (KIP-352), as metrics and as rows for plots. Emits no event.

    Runs in a thread of its own: a stalled broker must not keep the watch from detecting the failure of another one.
    """

    FAILING = "health_failing"
    WHAT = "measure the cluster's health"

    def __init__(self, conn_id: str, thread: ClusterThread, say: Callable[..., None]) -> None:
        super().__init__(conn_id, thread, say)
        self._before: Copies | None = None

    def look(self, opened: Opened) -> Looked:
        """Measure, emit the metrics, and store the rows."""
        from kafka_steward.execution.watching.examining import examine

        every_s = opened.settings.health_interval
        if not every_s:
            return None, OFF_S
        health, self._before = examine(opened.cluster, opened.journal, self._before)
        emit_health(self.conn_id, health.measures)
        if opened.journal.health is not None:
            days_ms = int(opened.settings.health_retention * 86_400_000)
            opened.journal.health.keep(health.measures, every_ms=int(every_s * 1000), retention_ms=days_ms)
        return None, every_s

    def close(self) -> None:
        """Close the connections."""
        self._thread.close()
