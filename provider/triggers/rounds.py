"""What the watch of one cluster does in rounds of its own, beside the look for failed brokers."""

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

#: Seconds after which a setting that switched a round off is looked at again.
OFF_S = 60.0
#: What one look gives: a bell to ring, if any, and the seconds until the next look.
Looked = tuple[dict[str, Any] | None, float]


class Round(ABC):
    """Looks, again and again, in the given thread. Never ends, and raises nothing."""

    FAILING: ClassVar[str]
    WHAT: ClassVar[str]

    def __init__(self, conn_id: str, thread: ClusterThread, say: Callable[..., None]) -> None:
        self.conn_id = conn_id
        self.teller = Teller(conn_id, say, failing=self.FAILING, what=self.WHAT)
        self._thread = thread

    async def run(self, bells: asyncio.Queue[dict[str, Any]]) -> None:
        """Look until cancelled; what is to be rung goes to `bells`."""
        while True:
            try:
                bell, pause_s = await self._thread.ask(self._look)
            except Exception as error:  # noqa: BLE001 - whatever it is, a watch that has died is worse
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
        """One look, in the thread."""

    async def wait(self, seconds: float) -> None:
        """Until the next look."""
        await asyncio.sleep(seconds)


class JoinRound(Round):
    """Rings when replicas are owed that a live broker can take (KIP-409); while nothing is owed, Kafka is not asked."""

    FAILING = "joining_failing"
    WHAT = "look for brokers that joined"
    RINGS: ClassVar[str] = "broker-joined"

    def look(self, opened: Opened) -> Looked:
        """Look, and keep the book of debts up to date."""
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
    """Rings when a live broker holds nothing, until a run has taken it up; after the fill (KIP-409)."""

    FAILING = "newcomers_failing"
    WHAT = "look for new brokers"
    RINGS: ClassVar[str] = "broker-new"

    def look(self, opened: Opened) -> Looked:
        """Look, and write down who is new."""
        from kafka_steward.execution.filling.newcomers import look_for_newcomers

        found = look_for_newcomers(opened.cluster, opened.journal, opened.settings)
        self.teller.say(found.sentence, about=found.sentence)
        bell = bell_of(opened, found.now_ms, found.due)
        return bell if found.due else None, opened.settings.watch_interval


class HealthRound(Round):
    """Measures the cluster's health (KIP-352): as metrics, and as rows for plots. Rings for nothing.

    In a thread of its own: a broker that hangs must not keep the watch from seeing that another one has died.
    """

    FAILING = "health_failing"
    WHAT = "measure the cluster's health"

    def __init__(self, conn_id: str, thread: ClusterThread, say: Callable[..., None]) -> None:
        super().__init__(conn_id, thread, say)
        self._before: Copies | None = None

    def look(self, opened: Opened) -> Looked:
        """Look, emit, and keep."""
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
