"""The watch's own part: when it rings, and that it never dies. The detector is scripted here."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.observability import stats

from kafka_steward.errors import ClusterUnreachable
from kafka_steward.execution.failure_detector import DetectionResult
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.settings import Settings
from kafka_steward.triggers import periodic, watch
from kafka_steward.triggers.reporting import WatchReporter
from kafka_steward.triggers.watch import WatchTrigger
from tests.eventually import eventually


def verdict(*due: int, failed: Sequence[int] = (), sentence: str = "All live.") -> DetectionResult:
    return DetectionResult(
        due=due, failed=tuple(failed) or due, waiting={}, handled=(), cleared=(),
        down=tuple(failed) or due, outage=False,
        sentence=sentence, now_ms=1_000,
    )  # fmt: skip


class End(BaseException):
    """The script is over."""


class Scripted(WatchTrigger):
    """Looks through a script; a wait costs no time."""

    def __init__(self, script: Sequence[DetectionResult | BaseException]) -> None:
        super().__init__("kafka")
        self.script = [*script, End()]
        self.waits: list[float] = []
        failures = self._watch.failures
        self._watch._update_checks = self.only_look_for_failures  # type: ignore[method-assign]
        failures._worker = self  # type: ignore[assignment]  # stands in for the thread: asks only the script
        failures.wait = self.wait  # type: ignore[method-assign]
        self._watch._watch_documents = self._watch_documents  # type: ignore[method-assign]

    def only_look_for_failures(self) -> None:
        self._watch.failures.emits = True
        if self._watch._ended is not None:
            self._watch._begin(self._watch.failures)

    async def call_without_session(self, _: Any) -> None:
        pass

    async def submit(self, _: Any) -> tuple[dict[str, Any] | None, DetectionResult, float]:
        look = self.script.pop(0)
        if isinstance(look, BaseException):
            raise look
        return {"brokers": list(look.due), "at_ms": look.now_ms} if look.due else None, look, 2.0

    def close(self) -> None:
        """Nothing was opened."""

    async def _watch_documents(self) -> None:
        await asyncio.Event().wait()

    async def wait(self, seconds: float) -> None:
        self.waits.append(seconds)


def rung(script: Sequence[DetectionResult | BaseException]) -> tuple[list[Any], Scripted]:
    trigger, events = Scripted(script), []

    async def listen() -> None:
        async for event in trigger.run():
            events.append(event.payload)  # noqa: PERF401 - what was rung before the end is kept

    with pytest.raises(End):
        asyncio.run(listen())
    return events, trigger


def test_it_rings_only_when_a_failure_is_due() -> None:
    events, trigger = rung([verdict(), verdict(failed=[3]), verdict(3), verdict(failed=[3]), verdict(3, 4)])
    assert events == [
        {"brokers": [3], "at_ms": 1_000},
        {"brokers": [3, 4], "at_ms": 1_000},
    ]
    assert trigger.waits == [2.0] * 5


def test_a_grace_period_that_runs_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    rung([replace(verdict(sentence=f"{left} s left."), waiting={3: 9_000}, now_ms=left) for left in (3, 2, 1)])
    logged = capsys.readouterr().out
    assert [left for left in (3, 2, 1) if f"{left} s left." in logged] == [3]


@pytest.mark.parametrize("error", [ClusterUnreachable("Nobody answers."), ZeroDivisionError("a defect of ours")])
def test_an_error_is_logged_once_and_backs_off(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    events, trigger = rung([*[error] * 8, verdict(3)])
    assert events == [{"brokers": [3], "at_ms": 1_000}]
    assert trigger.waits == [2, 4, 8, 16, 32, 60, 60, 60, 2.0]
    logged = capsys.readouterr().out
    assert logged.count(f"The watch of kafka cannot check for failed brokers, and tries again: {error}") == 1
    assert logged.count("The watch of kafka works again.") == 1


def test_errors_raise_a_gauge_and_success_lowers_it(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, int]] = []
    monkeypatch.setattr(stats, "gauge", lambda name, value, **_: told.append((name, value)))
    rung([ClusterUnreachable("x"), ClusterUnreachable("x"), verdict(failed=[3])])
    assert [each for each in told if each[0] != "kafka_steward.watch.age"] == [
        ("kafka_steward.watch.failing", 1),
        ("kafka_steward.watch.failing", 2),
        ("kafka_steward.watch.failing", 0),
        ("kafka_steward.watch.failed_brokers", 1),
        ("kafka_steward.watch.failed_log_dirs", 0),
        ("kafka_steward.watch.due_brokers", 1),
    ]


def test_the_age_of_a_look_grows_while_it_hangs_and_while_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, int] = {}
    monkeypatch.setattr(stats, "gauge", lambda name, value, **_: told.update({name: value}))
    seconds = 0.0
    teller = WatchReporter("kafka", lambda *_: None, failing="documents_failing", what="look", clock=lambda: seconds)
    for seconds in (7.9, 100.0):
        teller.report_age()
        assert told["kafka_steward.watch.documents_age"] == int(seconds)
    teller.report_error(ClusterUnreachable("x"))
    teller.report_age()
    assert told["kafka_steward.watch.documents_age"] == 100
    teller.record_success()
    teller.report_age()
    assert told["kafka_steward.watch.documents_age"] == 0


def test_a_watch_whose_looks_all_hang_still_tells_their_age(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, int] = {}
    monkeypatch.setattr(stats, "gauge", lambda name, value, **_: told.update({name: value}))
    monkeypatch.setattr(watch, "_AGES_REPORTED_EVERY_S", 0.01)
    hanging = threading.Event()
    monkeypatch.setattr(StewardHook, "open", lambda _: hanging.wait(60))
    trigger = WatchTrigger("kafka", event="broker-joined")
    gauges = {f"kafka_steward.watch.{part}age" for part in ("", "documents_", "joined_brokers_")}

    async def listen() -> None:
        async for _ in trigger.run():
            raise AssertionError("nothing rings")

    def assert_told() -> None:
        assert gauges <= told.keys()

    async def until_told() -> None:
        running = asyncio.create_task(listen())
        try:
            await asyncio.to_thread(eventually, assert_told, every=0.05)
        finally:
            running.cancel()
            await trigger.cleanup()
            hanging.set()

    asyncio.run(until_told())


def test_failed_log_directories_are_counted_with_those_that_nobody_names(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, int] = {}
    monkeypatch.setattr(stats, "gauge", lambda name, value, **_: told.update({name: value}))
    rung([replace(verdict(), disks={1: ("/a", "/b"), 4: ()})])
    assert told["kafka_steward.watch.failed_log_dirs"] == 3


@pytest.mark.parametrize(
    ("told", "interval_s"),
    [
        ({1: {"broker.session.timeout.ms": "9000"}}, 2.0),
        ({1: {"broker.session.timeout.ms": "9000", "zookeeper.session.timeout.ms": "6000"}}, 1.5),
        ({}, 2.0),
    ],
)
def test_it_looks_four_times_per_session_timeout(told: dict[int, dict[str, str]], interval_s: float) -> None:
    cluster = SimpleNamespace(live_brokers=lambda: {2: None, 1: None}, broker_configs=lambda *_: told)
    opened = SimpleNamespace(cluster=cluster, settings=Settings.of({"watch_interval": 2}))
    assert periodic._poll_interval_s(opened) == interval_s  # type: ignore[arg-type]  # as far as it is read
