"""What a person sees while a plan is stepped, and what is waited out."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any, NoReturn

import pytest

from kafka_steward.cli.foreground import RetryingRunner, bar_text, open_progress_bar
from kafka_steward.errors import JournalUnreachable, PlanError
from kafka_steward.execution.progress import Progress, progress_of
from kafka_steward.journal.records import PlanRecord, PlanStatus
from tests.cli.scene import CLUSTER, Scene

NOTHING = progress_of(PlanRecord("d" * 64, "c", "apply"), [])
HALF = replace(
    NOTHING, partitions_total=60, partitions_settled=12, in_flight=5, bytes_total=8_000_000_000,
    bytes_done=1_230_000_000, bytes_per_s=48_100_000.0, eta_s=141.0,
)  # fmt: skip
DOWN = JournalUnreachable("The journal does not answer.")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "12 of 60 partitions, 1.2 of 8.0 GB at 48.1 MB/s, 2 min 21 s left."),
        ({"eta_s": 8000.0}, "12 of 60 partitions, 1.2 of 8.0 GB at 48.1 MB/s, 2 h 13 min left."),
        ({"bytes_per_s": None, "eta_s": None}, "12 of 60 partitions, 1.2 of 8.0 GB."),
        ({"bytes_total": 0, "bytes_per_s": None, "eta_s": 4.0}, "12 of 60 partitions, 4 s left."),
        ({"in_flight": 0, "eta_s": None, "sentence": "Why."}, "12 of 60 partitions, 1.2 of 8.0 GB at 48.1 MB/s. Why."),
    ],
)
def test_what_stands_beside_the_bar(changes: dict[str, Any], text: str) -> None:
    assert bar_text(replace(HALF, **changes)) == text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with open_progress_bar() as report:
        report(replace(HALF, sentence="t-0 [held] is held.", in_flight=0))
    assert "12 of 60 partitions, 1.2 of 8.0 GB" in terminal.getvalue()
    assert "\x1b[" in terminal.getvalue()


class Flaky:
    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def step(self) -> Progress:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]  # a test gives what it likes


def never(given: object) -> NoReturn:
    pytest.fail(f"it waits, or says something: {given}")


def test_what_passes_is_waited_out_and_told_once() -> None:
    waits: list[float] = []
    said: list[str] = []
    patient = RetryingRunner(Flaky(DOWN, DOWN, HALF, DOWN, HALF), waits.append, said.append)
    assert (patient.step(), patient.step()) == (HALF, HALF)
    assert waits == [5.0] * 3
    assert said == [f"{DOWN} Trying again; Ctrl-C stops, and the plan stays unchanged."] * 2


def test_what_does_not_pass_is_raised_at_once() -> None:
    with pytest.raises(PlanError):
        RetryingRunner(Flaky(PlanError("No.")), never, never).step()


def test_patience_ends() -> None:
    waits: list[float] = []
    with pytest.raises(JournalUnreachable):
        RetryingRunner(Flaky(*[DOWN] * 100), waits.append, lambda _: None).step()
    assert sum(waits) == 115


def test_a_plan_that_makes_way_for_a_heal_is_waited_for() -> None:
    preempted = replace(HALF, status=PlanStatus.PREEMPTED, sentence="It made way for the heal.")
    progress = RetryingRunner(Flaky(preempted), never, never).step()
    assert (progress.ended, progress.waits_for_person) == (False, False)
    assert bar_text(progress).endswith("left. It made way for the heal.")


def test_a_journal_that_stays_away_ends_it_with_the_way_on(
    scene: Scene, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(pause: int) -> None:
        if pause == 1:
            monkeypatch.setattr(scene.journal, "step_lock", fails)

    def fails() -> None:
        raise DOWN

    scene.interfere = gone
    assert scene.call("apply", scene.file("t-0: 423")) == 1
    error = capsys.readouterr().err
    assert error.count(str(DOWN)) == 2
    assert f"\n  airflow kafka-steward resume {scene.plan.digest[:12]} --cluster {CLUSTER}\n" in error
