"""All loops of the watch of one cluster, and their events. Loaded when a watch runs, not when DAG files are parsed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from kafka_steward.triggers.alerts import AlertCheck, AlertLoop, JournalWorker
from kafka_steward.triggers.base import ClusterWorker
from kafka_steward.triggers.checks import (
    BrokerFailureCheck,
    BrokerJoinCheck,
    Check,
    ClusterHealthCheck,
    EmptyBrokerCheck,
)
from kafka_steward.triggers.documents import DocumentCheck
from kafka_steward.triggers.loops import CheckLoop, DetectionLoop, EventQueues, WatchRole

if TYPE_CHECKING:
    from kafka_steward.triggers.reporting import Outage

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
        loop = asyncio.get_running_loop()
        check = self._create(DocumentCheck, lambda: loop.call_soon_threadsafe(self._poll_after_change))
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
