"""A simulated cluster behind a connection, so that verbs run in milliseconds; waiting is what makes its time pass."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_steward.assignment import Assignment
from kafka_steward.errors import StewardError
from kafka_steward.hooks.session import ClusterSession
from kafka_steward.journal.records import PlanRecord
from kafka_steward.journal.store import Journal
from kafka_steward.settings import Settings
from tests.cli.calling import run
from tests.simulated_plan import memory_journal
from tests.simulator import Simulator

CLUSTER = "kafka_simulated"


@dataclass
class Scene:
    """`wait` is called with each pause of a loop: time passes, and a test may interfere."""

    simulator: Simulator
    journal: Journal
    folder: Path
    #: The journals of other connections of the same cluster, by their ids.
    others: dict[str, Journal] = field(default_factory=dict)
    down: StewardError | None = None
    pauses: int = 0
    session: Any = None
    settings: dict[str, Any] = field(default_factory=lambda: {"throttle": 0})
    interfere: Callable[[int], None] = field(default=lambda _: None)

    def hook(self, conn_id: str, overrides: Mapping[str, Any] | None = None, origin: Any = None) -> Any:
        """What a StewardHook gives the verbs."""
        del origin
        settings = Settings.of(overrides or {}, self.settings)
        return SimpleNamespace(
            conn_id=conn_id,
            access=SimpleNamespace(conn_id=conn_id, client={}, bootstrap="kafka:9092"),
            open=lambda: self._opened(settings),
            journal=partial(self._opened_journal, self.others.get(conn_id, self.journal)),
            cluster_id=lambda: self.simulator.cluster_id,
        )

    @contextmanager
    def _opened(self, settings: Settings) -> Any:
        if self.down is not None:
            raise self.down
        workspace = f"{self.folder}/workspace"
        access: Any = SimpleNamespace(conn_id=CLUSTER, workspace=workspace, zookeeper=None, settings=settings)
        cluster: Any = self.simulator
        yield ClusterSession(access, cluster, self.journal)

    @contextmanager
    def _opened_journal(self, journal: Journal, cluster_id: str, *, compare: bool = True) -> Any:
        del compare  # the journal is open already
        assert cluster_id == self.simulator.cluster_id
        yield journal

    def wait(self, seconds: float) -> None:
        if seconds:
            self.pauses += 1
            self.simulator.tick()
            self.interfere(self.pauses)

    async def submit(self, call: Callable[[Any], Any]) -> Any:
        """What the threads of the watch do, here in one thread: nothing changes in the middle of a poll."""
        await asyncio.sleep(0)
        if self.session is None:
            self.session = self.hook(CLUSTER).open().__enter__()
        try:
            return call(self.session)
        except StewardError:
            self.session = None  # as the threads do, which open their connections again after an error
            raise

    async def wait_for_check(self, seconds: float) -> None:
        """A pause of one check of the watch."""
        self.wait(seconds)
        await asyncio.sleep(0)

    def call(self, *words: str) -> int:
        return run(*words, "--cluster", CLUSTER)

    def file(self, *partitions: Any, **fields: Any) -> str:
        """A reassignment: `"t-0: 124"` for a partition, or an entry as it stands."""
        path = self.folder / "reassignment.json"
        path.write_text(json.dumps({"version": 1, "partitions": [_entry(each) for each in partitions], **fields}))
        return str(path)

    def replicas(self, topic: str = "t") -> list[Assignment]:
        names = sorted(name for name in self.simulator.topics if name.topic == topic)
        return [self.simulator.topics[name].replicas for name in names]

    @property
    def plan(self) -> PlanRecord:
        """The newest plan."""
        return self.journal.plans.latest(1)[0]


def _entry(each: Any) -> Any:
    if not isinstance(each, str):
        return each
    name, _, digits = each.partition(": ")
    topic, _, number = name.rpartition("-")
    return {"topic": topic, "partition": int(number), "replicas": [int(digit) for digit in digits]}


def new_scene(monkeypatch: pytest.MonkeyPatch, folder: Path, journal: Journal | None = None) -> Scene:
    """Four brokers, one topic of four partitions; with `journal`, one whose cluster id the simulator takes on."""
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231 312 132", size=300)
    if journal is not None:
        simulator.cluster_id = journal.cluster_id
    scene = Scene(simulator, journal or memory_journal(simulator), folder)
    scene.journal.conn_id = CLUSTER
    monkeypatch.setattr("kafka_steward.hooks.steward.StewardHook", scene.hook)
    monkeypatch.setattr("kafka_steward.cli.foreground.sleep", scene.wait)
    monkeypatch.setattr("kafka_steward.triggers.base.ClusterWorker.submit", lambda _, call: scene.submit(call))
    # The clock of the simulator goes on, and that of this process does not.
    monkeypatch.setattr("kafka_steward.triggers.loops._DECIDED_EVERY_S", 0.0)
    monkeypatch.setattr("kafka_steward.triggers.loops.CheckLoop.wait", lambda _, seconds: scene.wait_for_check(seconds))
    return scene
