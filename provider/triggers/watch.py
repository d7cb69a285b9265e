"""The watch of one cluster: it runs while a DAG that listens is unpaused, and rings when a broker's failure is due."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.sdk.observability import stats
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from kafka_steward.triggers.thread import ClusterThread

if TYPE_CHECKING:
    from kafka_steward.execution.detector import Verdict
    from kafka_steward.hooks.steward import Opened

__all__ = ["WatchTrigger"]

#: Seconds before the first new look after an error; doubled by each further one.
_BACK_OFF_S = 2.0
_LONGEST_BACK_OFF_S = 60.0
#: Kafka's settings for how long a silent broker counts as live, in milliseconds: KRaft's, ZooKeeper's.
_SESSION_TIMEOUTS = ("broker.session.timeout.ms", "zookeeper.session.timeout.ms")


class WatchTrigger(BaseEventTrigger):
    """Looks at the cluster behind `conn_id` every `watch_interval`, and keeps the entries of KIP-46 in its journal.

    Fires only when a failure is due, and again every `heal_retry_interval` until a plan heals it: Airflow doubles some
    events and swallows others, so an event is a bell, and whoever hears it reads the cluster. Never ends, and raises
    nothing: Airflow would start it anew every 2 s and show nobody why.
    """

    def __init__(
        self,
        conn_id: str,
        overrides: Mapping[str, Any] | None = None,
        **_: Any,  # a trigger outlives an upgrade: keywords of other versions are accepted
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow leaves it untyped
        self.conn_id = conn_id
        self.overrides = dict(overrides or {})
        self._thread = ClusterThread(conn_id, self.overrides)
        self._interval: tuple[Opened, float] | None = None
        self._said: object = None
        self._failures = 0

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and keywords: also what tells one watch from another."""
        return f"{__name__}.{type(self).__name__}", {"conn_id": self.conn_id, "overrides": self.overrides}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """One event per announcement: `{"cluster_id": str, "brokers": [ids], "at_ms": int}`."""
        while True:
            try:
                cluster_id, verdict, pause_s = await self._thread.ask(self._look)
            except Exception as error:  # noqa: BLE001 - whatever it is, a dead watch is worse: see the class
                pause_s = self._complain(error)
            else:
                self._tell(verdict)
                if verdict.due:
                    yield TriggerEvent(
                        {"cluster_id": cluster_id, "brokers": list(verdict.due), "at_ms": verdict.now_ms}
                    )
            await self._wait(pause_s)

    async def cleanup(self) -> None:
        """Close the connections."""
        self._thread.close()

    def _look(self, opened: Opened) -> tuple[str, Verdict, float]:
        from kafka_steward.execution.detector import Detector  # noqa: PLC0415 - DAG files are parsed without Kafka
        from kafka_steward.journal.audit import Who  # noqa: PLC0415

        if self._interval is None or self._interval[0] is not opened:
            self._interval = opened, _interval_s(opened)
        verdict = Detector(opened.cluster, opened.journal, opened.settings, Who(task_id="watch")).look()
        return opened.cluster.cluster_id, verdict, self._interval[1]

    def _tell(self, verdict: Verdict) -> None:
        if self._failures:
            self.log.info("The watch of %s works again.", self.conn_id)
        self._failures = 0
        # Not the sentence: it counts the seconds of the grace period down.
        self._say(verdict.sentence, about=replace(verdict, due=(), sentence="", now_ms=0))
        self._gauge("failing", 0)
        self._gauge("failed_brokers", len(verdict.down))

    def _complain(self, error: Exception) -> float:
        """Say it once, count it for whoever watches the gauge, and return the seconds until the next look."""
        self._failures += 1
        self._gauge("failing", self._failures)
        pause_s = min(_LONGEST_BACK_OFF_S, _BACK_OFF_S * 2.0 ** min(self._failures - 1, 10))
        sentence = f"The watch of {self.conn_id} cannot look, and tries again: {error}"
        self._say(sentence, about=sentence)
        return pause_s

    def _say(self, sentence: str, *, about: object) -> None:
        if about != self._said:
            self.log.info("%s", sentence)
            self._said = about

    def _gauge(self, name: str, value: int) -> None:
        stats.gauge(f"kafka_steward.watch.{name}", value, tags={"conn_id": self.conn_id})

    async def _wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def _interval_s(opened: Opened) -> float:
    # Two bounces within one grace period must be seen as such: four looks per session time-out (KIP-46).
    told = opened.cluster.broker_configs(sorted(opened.cluster.live_brokers())[:1], _SESSION_TIMEOUTS)
    sessions_s = [
        int(configs[name]) / 1000 for configs in told.values() for name in _SESSION_TIMEOUTS if name in configs
    ]
    return min([opened.settings.watch_interval, *(session_s / 4 for session_s in sessions_s)])
