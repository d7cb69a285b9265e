"""The thread of a trigger: its connections, and what Python's garbage collector is kept off."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest

from kafka_steward.errors import SettingError
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.triggers.base import ClusterWorker
from kafka_steward.triggers.collector import freeze_gc


class Counted:
    """Stands in for an opened cluster; counts."""

    opened: list[Counted]

    access: object = "as it was"

    def __init__(self) -> None:
        self.closed = threading.Event()

    def close(self) -> None:
        self.closed.set()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Counted]:
    made: list[Counted] = []

    def open_one(hook: StewardHook) -> Counted:
        made.append(Counted())
        return made[-1]

    monkeypatch.setattr(StewardHook, "open", open_one)
    return made


def test_it_connects_once_in_a_thread_of_its_own(opened: list[Counted]) -> None:
    async def ask() -> list[Any]:
        thread = ClusterWorker("kafka", {})
        answers = [await thread.submit(lambda one: (one, threading.get_ident())) for _ in range(3)]
        thread.close()
        return answers

    answers = asyncio.run(ask())
    assert len(opened) == 1
    assert {ident for _, ident in answers} != {threading.get_ident()}
    assert len({ident for _, ident in answers}) == 1
    assert opened[0].closed.wait(5)


def test_an_error_closes_and_the_next_question_connects_anew(opened: list[Counted]) -> None:
    async def ask() -> None:
        thread = ClusterWorker("kafka", {})
        with pytest.raises(ValueError, match="once"):
            await thread.submit(raise_once)
        assert opened[0].closed.is_set()
        await thread.submit(lambda _: None)
        thread.close()
        thread.close()

    def raise_once(_: object) -> None:
        raise ValueError("once")

    asyncio.run(ask())
    assert len(opened) == 2


def test_a_cluster_that_hangs_does_not_hold_up_the_loop_nor_the_end(opened: list[Counted]) -> None:
    released = threading.Event()

    async def ask() -> float:
        hanging, other = ClusterWorker("hangs", {}), ClusterWorker("kafka", {})
        stuck = asyncio.ensure_future(hanging.submit(lambda _: released.wait(20)))
        await asyncio.sleep(0)
        began = time.monotonic()
        await other.submit(lambda _: None)
        hanging.close()
        other.close()
        stuck.cancel()
        return time.monotonic() - began

    assert asyncio.run(ask()) < 5
    released.set()
    assert opened[0].closed.wait(5)


def test_a_question_after_the_end_never_shares_the_connections_of_one_that_is_still_asked(
    opened: list[Counted],
) -> None:
    begun, released = threading.Event(), threading.Event()

    def wait(one: Any) -> None:
        begun.set()
        released.wait(20)
        assert not one.closed.is_set(), "closed under it"

    async def ask() -> tuple[Any, Any]:
        thread = ClusterWorker("kafka", {})
        stuck = asyncio.ensure_future(thread.submit(wait))
        await asyncio.to_thread(begun.wait, 5)
        thread.close()
        later: Any = await thread.submit(lambda one: one)
        released.set()
        await stuck
        assert await asyncio.to_thread(opened[0].closed.wait, 5)
        assert not later.closed.is_set()
        thread.close()
        return opened[0], later

    first, later = asyncio.run(ask())
    assert later is not first
    assert later.closed.wait(5)


def test_an_edited_connection_is_used_within_a_minute_and_a_lost_one_ends_nothing(
    opened: list[Counted], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: dict[str, Any] = {"access": "as it was"}

    def access(_: StewardHook) -> Any:
        if said["access"] is None:
            raise SettingError("There is no such connection.")
        return said["access"]

    def open_one(hook: StewardHook) -> Counted:
        opened.append(Counted())
        opened[-1].access = hook.access
        return opened[-1]

    monkeypatch.setattr(StewardHook, "access", property(access))
    monkeypatch.setattr(StewardHook, "open", open_one)
    times = iter(range(0, 3000, 25))

    async def ask() -> None:
        thread = ClusterWorker("kafka", {}, clock=lambda: next(times))
        for edit, connected in [("as it was", 1), (None, 1), ("edited", 2), ("edited", 2)]:
            said["access"] = edit
            for _ in range(4):
                await thread.submit(lambda one: one)
            assert len(opened) == connected
        assert opened[0].closed.is_set()
        thread.close()

    asyncio.run(ask())


@pytest.fixture
def thawing() -> Iterator[None]:
    freeze_gc.cache_clear()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("thawing")
def test_what_is_loaded_is_not_gone_through_again() -> None:
    gc.unfreeze()
    before = len(gc.get_objects())
    freeze_gc("airflow")
    assert len(gc.get_objects()) < before / 10
    assert gc.get_freeze_count() > before / 2


@pytest.mark.usefixtures("thawing")
def test_only_once_so_that_what_later_watches_drop_is_collected() -> None:
    freeze_gc("airflow")
    frozen = gc.get_freeze_count()
    later: list[list[int]] = [[] for _ in range(1000)]
    freeze_gc("airflow")
    assert gc.get_freeze_count() <= frozen
    assert later


@pytest.mark.usefixtures("thawing")
def test_a_thread_that_is_to_load_kafkas_clients_begins_after_that() -> None:
    gc.unfreeze()
    before = len(gc.get_objects())
    worker = ClusterWorker("kafka_test", {})
    worker._create_hook = raising  # type: ignore[method-assign]  # it would connect
    with pytest.raises(ZeroDivisionError):
        asyncio.run(worker.submit(lambda _: None))
    worker.close()
    assert gc.get_freeze_count() > before / 2


def raising(_: object) -> NoReturn:
    raise ZeroDivisionError
