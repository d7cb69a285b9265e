"""The part of the watch that executes the requests in documents, in a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kafka_steward.hooks.steward import Opened
from kafka_steward.journal.audit import Who
from kafka_steward.journal.zk_watch import CONTROLLER, TreeWatch
from kafka_steward.protocol.driving import Looked
from kafka_steward.protocol.heard import Ears
from kafka_steward.protocol.live import Protocol
from kafka_steward.triggers.telling import Teller, bell_of
from kafka_steward.triggers.thread import ClusterThread

__all__ = ["POLL_S", "DocumentLoop"]

#: Seconds between two polls of a journal without change notifications, and of one with them.
POLL_S = 5.0
_TOLD_POLL_S = 30.0


@dataclass
class _Place:
    """State of one connection: re-created after an error."""

    opened: Opened
    protocol: Protocol
    ears: Ears
    poll_s: float


class DocumentLoop:
    """Polls the documents periodically, and at once when ZooKeeper notifies a change; `nudged` is called then too.

    After a controller change everything is re-read: KIP-236 and KIP-46 assign that to the controller's failover.
    """

    def __init__(
        self,
        conn_id: str,
        overrides: Mapping[str, Any],
        rings: str,
        say: Callable[..., None],
        nudged: Callable[[], None],
    ) -> None:
        self._rings = rings
        self._say = say
        self._nudged = nudged
        self._thread = ClusterThread(conn_id, overrides)
        self.teller = Teller(conn_id, say, failing="documents_failing", what="carry out documents")
        self._place: _Place | None = None
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._controllers = 0

    async def run(self, bells: asyncio.Queue[dict[str, Any]]) -> None:
        """Poll until cancelled; never raises an error of a poll."""
        self._loop = asyncio.get_running_loop()
        while True:
            try:
                bell, looked, poll_s = await self._thread.ask(self._look)
            except Exception as error:  # noqa: BLE001 - no error may end the watch
                pause_s = self.teller.complain(error)
            else:
                self.teller.fine()
                self.teller.lines(looked.sentences)
                if bell is not None:
                    bells.put_nowait(bell)
                pause_s = poll_s if looked.pause_s is None else min(poll_s, looked.pause_s)
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._wake.wait(), pause_s)
            self._wake.clear()

    def close(self) -> None:
        """Close the connections, without waiting for them."""
        self._loop = None
        self._thread.close()

    def _look(self, opened: Opened) -> tuple[dict[str, Any] | None, Looked, float]:
        if self._place is None or self._place.opened is not opened:
            self._place = self._settle_in(opened)
        place = self._place
        looked = place.protocol.look()
        rings = self._rings in {"request", "cancel"} and place.ears.heard(self._rings)
        opened.journal.note_look("documents")
        bell = bell_of(opened, opened.journal.now_ms()) if rings else None
        return bell, looked, place.poll_s

    def _settle_in(self, opened: Opened) -> _Place:
        options = opened.access.zookeeper
        who = Who(task_id="watch")
        protocol = Protocol(
            opened.cluster, opened.journal, opened.settings, who, zookeeper=opened.access.zookeeper is not None
        )
        self._controllers = 0
        if options is not None:
            opened.before_closing(TreeWatch(options, self._changed).close)
        return _Place(opened, protocol, Ears(opened.journal), POLL_S if options is None else _TOLD_POLL_S)

    def _changed(self, path: str) -> None:
        # Called on a thread of the ZooKeeper client.
        loop = self._loop
        if path == CONTROLLER:
            self._controllers += 1
            if self._controllers > 1:  # the first notification is the initial state
                self._say("The controller of the cluster changed; everything is read anew.")
        if loop is not None:
            with suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(self._wake_all)

    def _wake_all(self) -> None:
        self._wake.set()
        self._nudged()
