"""One watch per cluster: triggers of a process share it, and of those of several processes one makes each check."""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafka_steward.airflow_versions import stats
from kafka_steward.execution.watch import lease as watch_lease
from kafka_steward.execution.watch.lease import list_listened_events
from kafka_steward.hooks.session import ClusterSession
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.journal import paths
from kafka_steward.journal.mailbox import read_one
from kafka_steward.journal.records import WATCH_LEASE
from kafka_steward.journal.state import ONLY
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.settings import Settings
from kafka_steward.triggers import documents, loops
from kafka_steward.triggers.checks import BrokerFailureCheck
from kafka_steward.triggers.cluster_watch import ClusterWatch
from kafka_steward.triggers.loops import EventQueues
from kafka_steward.triggers.watch import EVENTS, SharedWatch, WatchTrigger
from tests.eventually import eventually
from tests.present import present
from tests.protocol.simulated_watch import document
from tests.simulator import Simulator

SETTINGS = replace(
    Settings.of({"heal_failure_interval": 0, "heal_retry_interval": 3600}),
    watch_interval=0.02,  # less than one may set
)


@dataclass
class Site:
    """A simulated cluster, and a journal in a file that every session opens for itself."""

    simulator: Simulator
    url: str
    opened: list[ClusterSession] = field(default_factory=list)
    closed: list[ClusterSession] = field(default_factory=list)

    def open(self, hook: StewardHook) -> ClusterSession:
        access = SimpleNamespace(conn_id=hook.conn_id, zookeeper=None, settings=SETTINGS)
        session = ClusterSession(cast("Any", access), cast("Any", self.simulator), self.journal())
        session.add_close_callback(lambda: self.closed.append(session))
        self.opened.append(session)
        return session

    def journal(self) -> Journal:
        return open_journal(self.url, self.simulator.cluster_id)

    def leases(self) -> list[str]:
        with self.journal() as journal:
            lease = [WATCH_LEASE.name for _ in journal.rows(WATCH_LEASE).all()]
            return [*lease, *sorted(list_listened_events(journal))]

    def all_closed(self) -> None:
        assert len(self.closed) == len(self.opened)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231 312 132")
    monkeypatch.setattr(simulator, "close", lambda: None, raising=False)
    found = Site(simulator, f"sqlite:///{tmp_path}/journal.db")

    def open_one(hook: StewardHook) -> ClusterSession:
        return found.open(hook)

    monkeypatch.setattr(StewardHook, "open", open_one)
    monkeypatch.setattr(stats, "gauge", lambda *_, **__: None)
    monkeypatch.setattr(documents, "POLL_S", 0.05)
    return found


class Listener:
    """Someone who listens to one trigger, as the triggerer does."""

    def __init__(self, event: str, conn_id: str = "kafka") -> None:
        self.trigger = WatchTrigger(conn_id, event=event)
        self.received: list[Any] = []
        self.task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for event in self.trigger.run():
            self.received.append(event.payload)

    async def stop(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task
        await self.trigger.cleanup()


async def until(assertion: Callable[[], object]) -> None:
    await asyncio.to_thread(eventually, assertion, every=0.02)


def test_listeners_of_one_process_share_one_watch_and_receive_each_event_of_theirs(site: Site) -> None:
    async def scene() -> None:
        # A thread for brokers, one for health and one for documents, with a session each; how many listen is the same.
        listeners = [Listener(event) for event in EVENTS for _ in range(2)]
        await until(lambda: _at_least(len(site.opened), 3))
        site.simulator.kill(3)
        heals = [each for each in listeners if each.trigger.event == "broker-failed"]
        await until(lambda: _all(each.received for each in heals))
        assert [[event["brokers"] for event in each.received] for each in heals] == [[[3]], [[3]]]
        assert len(site.opened) == 3
        assert not any(each.received for each in listeners if each.trigger.event in {"request", "cancel"})
        for each in listeners:
            assert not site.closed
            await each.stop()
        await until(site.all_closed)

    asyncio.run(scene())
    assert site.leases() == []


def test_a_watch_goes_on_when_the_listener_that_began_it_leaves(site: Site) -> None:
    async def scene() -> None:
        first, second = Listener("cancel"), Listener("broker-failed")
        await until(lambda: _at_least(len(site.opened), 3))
        await first.stop()
        site.simulator.kill(3)
        await until(lambda: _all([second.received]))
        await second.stop()
        await until(site.all_closed)
        third = Listener("broker-new")  # and after the last one has left, the next one begins a watch again
        site.simulator.restart(3)
        await until(lambda: _at_least(len(site.opened), 5))
        await third.stop()

    asyncio.run(scene())


def test_a_failure_that_nobody_listens_to_is_kept_for_who_comes_later(site: Site) -> None:
    async def scene() -> None:
        early = Listener("request")
        site.simulator.kill(3)
        await until(lambda: _entered(site, 3))
        late = Listener("broker-failed")
        await until(lambda: _all([late.received]))
        assert late.received[0]["brokers"] == [3]
        assert early.received == []
        await late.stop()
        await early.stop()

    asyncio.run(scene())


def test_other_connections_have_watches_of_their_own() -> None:
    async def scene() -> None:
        one, other, same = (ClusterWatch("k", log=print, log_error=print) for _ in range(3))
        shared = [SharedWatch.join(key, watch) for key, watch in (("a", one), ("b", other), ("a", same))]
        assert [each.watch for each in shared] == [one, other, one]
        for each in shared:
            each.task.cancel()
        await asyncio.gather(*(each.task for each in shared), return_exceptions=True)
        for watch in (one, other, same):
            watch.close()

    asyncio.run(scene())


def test_an_event_that_nobody_took_waits_for_the_next_listener() -> None:
    queues = EventQueues()
    queues.publish("cancel", {"at_ms": 1})
    first = queues.add("cancel")
    assert first.get_nowait() == {"at_ms": 1}
    queues.publish("cancel", {"at_ms": 2})
    queues.remove("cancel", first)
    assert queues.events == frozenset()
    second, third = queues.add("cancel"), queues.add("cancel")
    assert second.get_nowait() == {"at_ms": 2}
    queues.publish("cancel", {"at_ms": 3})
    assert [second.get_nowait(), third.get_nowait()] == [{"at_ms": 3}] * 2
    queues.remove("cancel", second)
    assert queues.add("cancel").empty()


def test_an_event_of_a_poll_during_which_its_listener_leaves_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = ClusterWatch("kafka", log=print, log_error=print)
    detection: Any = watch._detection
    queue = watch.listen("broker-failed")
    monkeypatch.setattr(watch.failures, "report", lambda _: None)

    async def poll(_: object) -> Any:
        watch.leave("broker-failed", queue)
        return [(watch.failures, ({"brokers": [3]}, None, 60.0))]

    detection._worker.submit = poll  # stands in for the thread
    assert asyncio.run(detection.tick()) == 60.0
    assert watch.listen("broker-failed").get_nowait() == {"brokers": [3]}


class Processes:
    """Watches as of several processes: each is one of its own. `polls` says which of them polled for failures."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.polls: list[BrokerFailureCheck] = []
        poll = BrokerFailureCheck.poll

        def noted(check: BrokerFailureCheck, opened: ClusterSession) -> Any:
            self.polls.append(check)
            return poll(check, opened)

        monkeypatch.setattr(BrokerFailureCheck, "poll", noted)
        monkeypatch.setattr(watch_lease, "TTL_MS", 500)
        monkeypatch.setattr(watch_lease, "RENEWED_MS", 100)
        monkeypatch.setattr(watch_lease, "_SOON_S", 0.1)

    def begin(self) -> tuple[ClusterWatch, asyncio.Task[None]]:
        watch = ClusterWatch("kafka", log=lambda *_: None, log_error=lambda *_: None)
        return watch, asyncio.create_task(watch.run())

    async def only(self, watch: ClusterWatch, more: int = 5) -> None:
        """From some moment on, this watch polls and no other."""

        def polled_alone() -> None:
            assert self.polls[-more:] == [watch.failures] * more

        await until(polled_alone)


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Processes:
    return Processes(monkeypatch)


@pytest.mark.parametrize("end", ["stopped", "dead"])
def test_of_two_processes_one_polls_and_the_other_takes_over(site: Site, processes: Processes, end: str) -> None:
    async def scene() -> None:
        one, running = processes.begin()
        await processes.only(one)
        two, waiting = processes.begin()
        await processes.only(one, 20)
        assert two.failures not in processes.polls
        if end == "dead":
            one._detection._worker.before_close.clear()
        running.cancel()
        one.close()
        site.simulator.kill(3)
        await processes.only(two)
        await until(lambda: _entered(site, 3))
        waiting.cancel()
        two.close()
        await asyncio.gather(running, waiting, return_exceptions=True)

    asyncio.run(scene())


def test_an_event_reaches_who_listens_in_a_process_that_stands_by(
    site: Site, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "_PASSED_ON_S", 0.1)
    monkeypatch.setattr(watch_lease, "TTL_MS", 60_000)

    async def scene() -> None:
        one, running = processes.begin()
        await processes.only(one)
        listener = Listener("broker-failed")
        await until(lambda: _at_least(len(site.leases()), 2))
        site.simulator.kill(3)
        await until(lambda: _all([listener.received]))
        assert listener.received[0]["brokers"] == [3]
        assert set(processes.polls) == {one.failures}
        await listener.stop()
        await until(lambda: _at_least(-len(site.leases()), -1))
        running.cancel()
        one.close()
        await asyncio.gather(running, return_exceptions=True)
        await until(site.all_closed)

    asyncio.run(scene())
    assert site.leases() == []


def test_who_stands_by_says_once_who_has_the_watch(
    site: Site, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_lease, "TTL_MS", 60_000)
    said: list[str] = []

    async def scene() -> None:
        one, running = processes.begin()
        await processes.only(one)
        two = ClusterWatch("kafka", log=lambda line, *rest: said.append(line % rest), log_error=print)
        waiting = asyncio.create_task(two.run())
        await until(lambda: _all([said]))
        await processes.only(one, 40)
        running.cancel()
        waiting.cancel()
        one.close()
        two.close()
        await asyncio.gather(running, waiting, return_exceptions=True)

    asyncio.run(scene())
    (sentence,) = [line for line in said if "has the watch" in line]
    assert f"process {os.getpid()} on host {platform.node()}, has the watch until " in sentence


def test_a_document_is_an_event_where_another_process_executed_it(site: Site) -> None:
    def executor() -> str:
        with site.journal() as journal:
            return present(journal.rows(WATCH_LEASE).get(ONLY)).value.owner

    async def scene() -> None:
        one = ClusterWatch("kafka", log=lambda *_: None, log_error=lambda *_: None)
        running = asyncio.create_task(one.run())
        await until(executor)
        before, listener = executor(), Listener("request")
        await until(lambda: _at_least(len(site.opened), 4))
        with site.journal() as journal:
            journal.mailbox.append(paths.REQUEST_PREFIX, document(["t-0 421"]))
        await until(lambda: _all([listener.received]))
        assert executor() == before
        await listener.stop()
        running.cancel()
        one.close()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(scene())


def _at_least(number: int, least: int) -> None:
    assert number >= least


def _entered(site: Site, broker: int) -> None:
    with site.journal() as journal:
        assert read_one(journal.mailbox, paths.failed_broker(broker)) is not None


def _all(found: Any) -> None:
    assert all(found)
