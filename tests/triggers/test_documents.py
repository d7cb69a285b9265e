"""The part of the watch that carries documents out: when it looks, when it rings, and that it never dies."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafka_steward.errors import JournalUnreachable
from kafka_steward.hooks.steward import Opened, StewardHook
from kafka_steward.journal import paths
from kafka_steward.journal.zk_options import ZooKeeperOptions
from kafka_steward.journal.zk_watch import CONTROLLER
from kafka_steward.protocol.driving import Looked
from kafka_steward.protocol.heard import Ears
from kafka_steward.settings import Settings
from kafka_steward.triggers.documents import POLL_S, DocumentLoop
from kafka_steward.triggers.watch import WatchTrigger
from tests.protocol.yard import Yard

Look = tuple[dict[str, Any] | None, Looked, float]


class End(BaseException):
    """The script is over."""


class Script:
    """Stands in for the thread: each look is the next one of a list."""

    def __init__(self, *looks: Look | BaseException) -> None:
        self.looks = [*looks, End()]

    async def ask(self, _: Any) -> Look:
        look = self.looks.pop(0)
        if isinstance(look, BaseException):
            raise look
        return look

    def close(self) -> None:
        pass


def loop_of(script: Script, said: list[str], nudged: Callable[[], None] = lambda: None) -> DocumentLoop:
    loop = DocumentLoop("kafka", {}, "request", lambda line, *rest: said.append(line % rest), nudged)
    loop._thread = script  # type: ignore[assignment]  # asks nothing but the script
    return loop


def run(loop: DocumentLoop) -> list[Any]:
    async def listen() -> list[Any]:
        bells: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        with pytest.raises(End):
            await asyncio.wait_for(loop.run(bells), 20)
        return [bells.get_nowait() for _ in range(bells.qsize())]

    return asyncio.run(listen())


def look(*sentences: str, bell: dict[str, Any] | None = None) -> Look:
    return bell, Looked(sentences=list(sentences), pause_s=0.01), POLL_S


def test_each_sentence_is_said_once_and_each_bell_rung() -> None:
    said: list[str] = []
    bells = run(loop_of(Script(look("a"), look("a", "b", bell={"at_ms": 1}), look("b")), said))
    assert (said, bells) == (["a", "b"], [{"at_ms": 1}])


def test_an_error_is_said_once_and_the_next_look_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_steward.triggers.telling._BACK_OFF_S", 0.01)
    said: list[str] = []
    away = JournalUnreachable("The journal does not answer.")
    run(loop_of(Script(away, away, look("a")), said))
    assert said == [
        "The watch of kafka cannot carry out documents, and tries again: The journal does not answer.",
        "The watch of kafka works again.",
        "a",
    ]


def test_what_zookeeper_tells_wakes_both_loops_and_a_new_controller_is_told() -> None:
    said: list[str] = []
    nudges: list[int] = []
    slow = Looked(), 30.0
    loop = loop_of(Script((None, *slow), look("woken")), said, lambda: nudges.append(1))

    async def listen() -> None:
        running = asyncio.create_task(loop.run(asyncio.Queue()))
        await asyncio.sleep(0.1)
        assert said == []
        loop._changed(CONTROLLER)
        loop._changed(CONTROLLER)
        with pytest.raises(End):
            await asyncio.wait_for(running, 20)

    asyncio.run(listen())
    assert said == ["The controller of the cluster changed; everything is read anew.", "woken"]
    assert nudges


def test_closed_in_the_middle_of_settling_in_it_listens_to_zookeeper_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    settling, closing, ended = threading.Event(), threading.Event(), threading.Event()

    class Session:
        def __init__(self, *_: object) -> None:
            settling.set()
            assert closing.wait(20)

        def close(self) -> None:
            ended.set()

    access = SimpleNamespace(zookeeper=ZooKeeperOptions("127.0.0.1:1"), settings=Settings())
    yard = Yard()
    opened = Opened(cast("Any", access), cast("Any", SimpleNamespace(close=lambda: None)), yard.journal)
    monkeypatch.setattr("kafka_steward.triggers.documents.TreeWatch", Session)
    monkeypatch.setattr(StewardHook, "open", lambda _: opened)
    monkeypatch.setattr("kafka_steward.triggers.documents.Protocol", lambda *_, **__: None)

    async def closed_too_early() -> None:
        loop = DocumentLoop("kafka", {}, "request", lambda *_: None, lambda: None)
        running = asyncio.create_task(loop.run(asyncio.Queue()))
        assert await asyncio.to_thread(settling.wait, 20)
        running.cancel()
        loop.close()
        closing.set()

    asyncio.run(closed_too_early())
    assert ended.wait(20)


@pytest.mark.parametrize(("rings", "document"), [("cancel", "signal"), ("request", "request")])
def test_a_document_is_heard_once_by_whoever_listens_for_its_kind(rings: str, document: str) -> None:
    yard = Yard()
    ears = {kind: Ears(yard.journal) for kind in ("cancel", "request")}
    assert not ears[rings].heard(rings)
    if document == "signal":
        yard.journal.tree.create(paths.CANCEL_IN_PROGRESS, "")
    else:
        yard.ask("t-0 23")
    yard.look()
    yard.simulator.tick()
    assert [ears[rings].heard(rings), ears[rings].heard(rings)] == [True, False]
    assert not ears["cancel" if rings == "request" else "request"].heard("cancel" if rings == "request" else "request")


def test_two_watches_of_a_cluster_are_told_apart_by_what_they_ring_for() -> None:
    plain, cancel = WatchTrigger("kafka"), WatchTrigger("kafka", rings="cancel")
    assert plain.serialize()[1] == {"conn_id": "kafka", "overrides": {}}
    assert cancel.serialize()[1] == {"conn_id": "kafka", "overrides": {}, "rings": "cancel"}


def test_a_failure_rings_only_the_watch_that_is_for_it() -> None:
    trigger = WatchTrigger("kafka", rings="cancel")
    bells: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    verdict = SimpleNamespace(due=(3,), down=(3,), sentence="", now_ms=1)
    trigger._tell = lambda *_: None  # type: ignore[method-assign]  # what is told is tested elsewhere

    async def one_look() -> None:
        looks = [("c", verdict, 0.0), End()]

        async def ask(question: Any) -> Any:
            found = looks.pop(0)
            if isinstance(found, BaseException):
                raise found
            return found

        trigger._thread.ask = ask  # type: ignore[method-assign]  # stands in for the thread
        with pytest.raises(End):
            await trigger._watch_failures(bells)

    asyncio.run(one_look())
    assert bells.empty()
