"""The part of the watch that carries documents out: when it looks, when it emits an event, and that it never dies."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kazoo.client import KazooClient

from kafka_steward.document_api.document_plans import PollResult
from kafka_steward.errors import JournalUnreachable
from kafka_steward.execution.watch.failure_detector import DetectionResult
from kafka_steward.hooks.session import ClusterSession
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.journal import paths
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from kafka_steward.journal.zookeeper.watcher import CONTROLLER
from kafka_steward.settings import Settings
from kafka_steward.triggers.base import ClusterWorker
from kafka_steward.triggers.cluster_watch import ClusterWatch
from kafka_steward.triggers.documents import POLL_S, DocumentCheck
from kafka_steward.triggers.loops import CheckLoop, EventQueues, WatchRole
from kafka_steward.triggers.watch import WatchTrigger
from tests.eventually import eventually
from tests.journal.zookeeper import ZooKeeperServer
from tests.protocol.simulated_watch import Yard

Look = tuple[dict[str, Any] | None, PollResult, float]


class End(BaseException):
    """The script is over."""


class Script:
    """Stands in for the thread: each look is the next one of a list."""

    check: DocumentCheck

    def __init__(self, *looks: Look | BaseException) -> None:
        self.looks = [*looks, End()]

    async def submit(self, _: Any) -> list[tuple[DocumentCheck, Look]]:
        look = self.looks.pop(0)
        if isinstance(look, BaseException):
            raise look
        return [(self.check, look)]

    async def call_without_session(self, _: Any) -> None:
        pass

    def close(self) -> None:
        pass


def loop_of(script: Script, said: list[str]) -> CheckLoop:
    script.check = DocumentCheck("kafka", lambda line, *rest: said.append(line % rest), lambda: None)
    worker: Any = script  # asks nothing but the script
    return CheckLoop(worker, [script.check], EventQueues(), WatchRole())


def run(loop: CheckLoop) -> list[Any]:
    async def listen() -> list[Any]:
        events = loop._events.add("request")
        with pytest.raises(End):
            await asyncio.wait_for(loop.run(), 20)
        return [events.get_nowait() for _ in range(events.qsize())]

    return asyncio.run(listen())


def look(*sentences: str, event: dict[str, Any] | None = None) -> Look:
    return event, PollResult(sentences=list(sentences)), 0.01


def test_each_sentence_is_logged_once_and_each_event_emitted() -> None:
    said: list[str] = []
    events = run(loop_of(Script(look("a"), look("a", "b", event={"request": {"at_ms": 1}}), look("b")), said))
    assert (said, events) == (["a", "b"], [{"at_ms": 1}])


def test_what_is_refused_is_a_warning_and_the_rest_is_not() -> None:
    yard = Yard()
    yard.ask("t-0 29")
    yard.ask("t-0 12")
    found = yard.look()
    logged: list[tuple[str, str]] = []

    def log(level: str, line: str, *rest: object) -> None:
        logged.append((level, line % rest))

    check = DocumentCheck("kafka", partial(log, "info"), lambda: None, log_warning=partial(log, "warning"))
    check.report(found)
    assert [level for level, _ in logged] == ["warning", "info"]
    assert "asks to move t-0 to [2, 9]: refused, the cluster has no broker 9." in logged[0][1]


def test_a_change_in_zookeeper_wakes_both_loops_from_the_thread_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[CheckLoop] = []
    monkeypatch.setattr(CheckLoop, "wake", lambda loop: woken.extend([loop]))
    watch = ClusterWatch("kafka", log=print, log_error=print)

    async def name_a_change() -> None:
        running = asyncio.create_task(watch._watch_documents())
        await asyncio.to_thread(eventually, lambda: _assert_equal(len(watch.checks), 6), every=0.01)
        check = watch.checks[-1]
        assert isinstance(check, DocumentCheck)
        woken.clear()
        await asyncio.to_thread(check._on_znode_change, paths.REASSIGN_QUEUE)
        await asyncio.sleep(0)
        running.cancel()
        watch.close()

    asyncio.run(name_a_change())
    assert [loop.checks[0].KIND for loop in woken] == ["failures", "documents"]


@pytest.mark.parametrize(("result_s", "pause_s"), [(None, POLL_S), (0.01, 0.01), (3600.0, POLL_S)])
def test_the_next_look_is_when_the_documents_say_and_at_the_latest_after_the_usual_time(
    monkeypatch: pytest.MonkeyPatch, result_s: float | None, pause_s: float
) -> None:
    result = PollResult(pause_s=result_s)
    monkeypatch.setattr(
        "kafka_steward.triggers.documents.DocumentController", lambda *_, **__: SimpleNamespace(poll=lambda: result)
    )
    access = SimpleNamespace(conn_id="kafka", zookeeper=None, settings=Settings())
    opened = ClusterSession(cast("Any", access), cast("Any", None), Yard().journal)
    assert DocumentCheck("kafka", print, lambda: None).poll(opened) == (None, result, pause_s)


def test_an_error_is_said_once_and_the_next_look_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_steward.triggers.reporting._BACK_OFF_S", 0.01)
    said: list[str] = []
    away = JournalUnreachable("The journal does not answer.")
    run(loop_of(Script(away, away, look("a")), said))
    assert said == [
        "The watch of kafka cannot execute the documents, and tries again: The journal does not answer.",
        "The watch of kafka works again.",
        "a",
    ]


def test_a_change_of_controller_is_said_and_the_first_reading_is_not() -> None:
    said: list[str] = []
    script = Script()
    loop_of(script, said)
    script.check._on_znode_change(paths.REASSIGN_QUEUE)
    script.check._on_znode_change(CONTROLLER)  # the one that there was
    assert said == []
    script.check._on_znode_change(CONTROLLER)
    assert said == ["The controller of the cluster changed; all documents are read again."]


#: What anyone, or Kafka, creates in ZooKeeper for the watch to look at once.
AWAITED = (
    paths.REASSIGN_CANCEL,
    f"{paths.REQUEST_PREFIX}0000000000",
    paths.REASSIGN_QUEUE,
    paths.CANCEL_IN_PROGRESS,
    paths.REASSIGN_PARTITIONS,
    paths.rolling_bounce(3),
    "/brokers/ids/3",
    CONTROLLER,
)


class Looks:
    """Stands in for what looks at documents and at brokers: each look finds what there is in ZooKeeper."""

    def __init__(self, client: KazooClient) -> None:
        self._client = client
        self.found: dict[str, set[str]] = {}

    def look_of(self, kind: str, answer: object) -> Callable[..., SimpleNamespace]:
        def poll(**_: object) -> object:
            self.found[kind] = {path for path in AWAITED if self._client.exists(path)}
            return answer

        return lambda *_, **__: SimpleNamespace(poll=poll)

    def both_found(self, path: str) -> None:
        assert [path in self.found[kind] for kind in ("documents", "brokers")] == [True, True]


@pytest.mark.process
def test_each_change_in_zookeeper_is_looked_at_at_once_by_both_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    with ZooKeeperServer() as server, shell(server) as client:
        looks = Looks(client)
        trigger, said = watch_of(server, looks, monkeypatch)

        async def listen() -> None:
            async for _ in trigger.run():
                raise AssertionError("nothing is emitted")

        async def create_each() -> None:
            running = asyncio.create_task(listen())
            try:
                for path in AWAITED:
                    await asyncio.to_thread(client.create, path, b"{}", makepath=True)
                    await asyncio.to_thread(eventually, partial(looks.both_found, path), every=0.05)
            finally:
                running.cancel()
                await trigger.cleanup()

        asyncio.run(create_each())
    assert said == ["All live.", "The controller of the cluster changed; all documents are read again."]


def watch_of(server: ZooKeeperServer, looks: Looks, monkeypatch: pytest.MonkeyPatch) -> tuple[WatchTrigger, list[str]]:
    """A watch with this ZooKeeper, which looks by itself only each hour; and what it says."""
    hour_s = 3600.0
    verdict = DetectionResult((), (), {}, (), (), (), outage=False, sentence="All live.", now_ms=1)
    monkeypatch.setattr("kafka_steward.triggers.documents._NOTIFIED_POLL_S", hour_s)
    monkeypatch.setattr("kafka_steward.triggers.checks._poll_interval_s", lambda _: hour_s)
    monkeypatch.setattr("kafka_steward.triggers.documents.DocumentController", looks.look_of("documents", PollResult()))
    monkeypatch.setattr("kafka_steward.triggers.checks.FailureDetector", looks.look_of("brokers", verdict))
    journal = Yard().journal
    access = SimpleNamespace(conn_id="kafka", zookeeper=ZooKeeperOptions(server.hosts), settings=Settings())
    cluster = SimpleNamespace(cluster_id=journal.cluster_id, close=lambda: None, live_brokers=dict)
    monkeypatch.setattr(
        StewardHook, "open", lambda _: ClusterSession(cast("Any", access), cast("Any", cluster), journal)
    )
    said: list[str] = []
    trigger = WatchTrigger("kafka", event="cancel")

    def record(line: str, *rest: object) -> None:
        said.append(line % rest)

    watch = trigger._watch
    watch._detection.checks = [watch.failures]
    watch._loops = [watch._detection]
    watch.failures.reporter._log = watch._log = record
    return trigger, said


@contextmanager
def shell(server: ZooKeeperServer) -> Iterator[KazooClient]:
    """A session of someone else's."""
    client = KazooClient(hosts=server.hosts)
    client.start(timeout=90)
    client.ensure_path("/brokers/ids")
    yield client
    client.stop()
    client.close()


def test_closed_in_the_middle_of_settling_in_it_listens_to_zookeeper_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    settling, closing, ended = threading.Event(), threading.Event(), threading.Event()

    class Session:
        def __init__(self, *_: object) -> None:
            settling.set()
            assert closing.wait(20)

        def close(self) -> None:
            ended.set()

    access = SimpleNamespace(conn_id="kafka", zookeeper=ZooKeeperOptions("127.0.0.1:1"), settings=Settings())
    yard = Yard()
    opened = ClusterSession(cast("Any", access), cast("Any", SimpleNamespace(close=lambda: None)), yard.journal)
    monkeypatch.setattr("kafka_steward.triggers.documents.ZooKeeperWatcher", Session)
    monkeypatch.setattr(StewardHook, "open", lambda _: opened)
    monkeypatch.setattr("kafka_steward.triggers.documents.DocumentController", lambda *_, **__: None)

    async def closed_too_early() -> None:
        check = DocumentCheck("kafka", lambda *_: None, lambda: None)
        loop = CheckLoop(ClusterWorker("kafka", {}), [check], EventQueues(), WatchRole())
        running = asyncio.create_task(loop.run())
        assert await asyncio.to_thread(settling.wait, 20)
        running.cancel()
        loop.close()
        closing.set()

    asyncio.run(closed_too_early())
    assert ended.wait(20)


def _assert_equal(found: object, wanted: object) -> None:
    assert found == wanted
