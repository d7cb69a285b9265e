"""Rounds of the watch that ring for brokers, each on a simulated cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_steward.settings import Settings
from kafka_steward.triggers.rounds import JoinRound, NewcomerRound
from kafka_steward.triggers.thread import ClusterThread
from kafka_steward.triggers.watch import WatchTrigger
from tests.simulator import Simulator
from tests.worlds import memory_journal


def test_a_new_broker_is_rung_for_and_said_once() -> None:
    simulator = Simulator.of("1a 2b 3c", "t: 12")
    opened: Any = SimpleNamespace(cluster=simulator, journal=memory_journal(simulator), settings=Settings())
    told: list[str] = []
    watch = NewcomerRound("kafka", ClusterThread("kafka", {}), lambda words, *more: told.append(words % more))
    bell, pause_s = watch.look(opened)
    assert (bell, pause_s) == ({"cluster_id": "simulated", "brokers": [3], "at_ms": simulator.now_ms}, 2.0)
    assert watch.look(opened)[0] is None
    assert sum("Broker 3 has joined." in line for line in told) == 1


@pytest.mark.parametrize("ring", [JoinRound, NewcomerRound])
def test_a_watch_goes_the_rounds_of_what_it_rings_for(ring: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gone: list[str] = []

    async def run(self: Any, bells: Any) -> None:
        gone.append(self.RINGS)
        bells.put_nowait({"brokers": [4]})
        await asyncio.Event().wait()

    async def silent(*_: Any) -> None:
        await asyncio.Event().wait()

    for each in (JoinRound, NewcomerRound):
        monkeypatch.setattr(each, "run", run)
    for name in ("_watch_failures", "_watch_documents", "_watch_health"):
        monkeypatch.setattr(WatchTrigger, name, silent)

    async def first() -> Any:
        events = WatchTrigger("kafka", rings=ring.RINGS).run()
        assert isinstance(events, AsyncGenerator)
        try:
            return await anext(events)
        finally:
            await events.aclose()

    assert asyncio.run(first()).payload == {"brokers": [4]}
    assert gone == [ring.RINGS]
