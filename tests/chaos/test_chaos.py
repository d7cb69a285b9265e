"""Chaos on the simulated cluster: some seeds at each run, many in `make slow`, thousands in `make chaos`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kafka_steward.assignment import Operation
from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.execution.throttles import leases
from tests.chaos.__main__ import Failure, main, shrink
from tests.chaos.invariants import sentence_fault
from tests.chaos.schedule import AT_A_CALL, BETWEEN_STEPS, DIRT, STEPS, WITHIN_A_STEP, Schedule, draw
from tests.chaos.simulated import Outcome, carry_out
from tests.rings import tried
from tests.simulator import Simulator

#: Seconds of `make slow` that are for new seeds, and the first of these.
SLOW_MINUTES, SLOW_SEED = 0.8, 500_000


@pytest.mark.parametrize("seed", range(tried(160)))
def test_whatever_happens_to_a_plan_its_invariants_hold(seed: int) -> None:
    outcome = carry_out(draw(seed))
    assert outcome.broken == (), Failure(seed, tuple(range(len(draw(seed).events))), ()).command


def test_a_seed_gives_the_same_schedule_and_the_same_trace_each_time() -> None:
    for seed in range(3):
        assert draw(seed) == draw(seed)
        assert carry_out(draw(seed)).trace == carry_out(draw(seed)).trace
    assert carry_out(draw(1)).trace != carry_out(draw(2)).trace


def test_schedules_have_everything_that_may_happen() -> None:
    schedules = [draw(seed) for seed in range(400)]
    kinds = {event.kind for schedule in schedules for event in schedule.events}
    assert kinds == BETWEEN_STEPS.keys() | AT_A_CALL.keys() | WITHIN_A_STEP.keys()
    assert {kind for schedule in schedules for kind in schedule.scene.dirt} == {*DIRT}
    assert all(0 <= event.step < STEPS for schedule in schedules for event in schedule.events)
    # What happens to a call has one to happen to.
    assert all(event.call is not None for each in schedules for event in each.events if event.kind in AT_A_CALL)


def test_a_failing_schedule_is_shrunk_to_the_events_that_it_needs() -> None:
    schedule = next(each for each in map(draw, range(100)) if len(each.events) > 6)
    needed = {schedule.events[1], schedule.events[4]}

    def carry(tried_one: Schedule) -> Outcome:
        return Outcome(("it broke: 1",) if needed <= {*tried_one.events} else (), "")

    kept, outcome = shrink(schedule, carry)
    assert (kept, outcome.broken) == ((1, 4), ("it broke: 1",))
    command = Failure(schedule.seed, kept, outcome.broken).command
    assert command == f".venv/bin/python -m tests.chaos --seed {schedule.seed} --keep 1,4"
    assert Failure(3, (), ()).command.endswith("--seed 3 --keep none")


def test_another_broken_invariant_is_not_what_a_schedule_is_shrunk_to() -> None:
    schedule = next(each for each in map(draw, range(100)) if len(each.events) > 3)
    whole = len(schedule.events)

    def carry(tried_one: Schedule) -> Outcome:
        return Outcome(("leases are left: a",) if len(tried_one.events) == whole else ("the slot is held: b",), "")

    assert shrink(schedule, carry)[0] == tuple(range(whole))


def throttled_drain() -> Schedule:
    """A plan that copies with a throttle, on a clean cluster, and nothing happens."""
    scenes = ((each, each.scene) for each in map(draw, range(1000)))
    wanted = (
        each for each, scene in scenes if scene.operation is Operation.DRAIN and scene.throttle and not scene.dirt
    )
    return next(wanted).keeping(())


def test_a_throttle_that_stays_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def keeps_lists(cluster: Simulator, changes: Mapping[str, Sequence[ConfigChange]]) -> Any:
        kept = {
            topic: [change for change in several if change.op in (ConfigOp.SET, ConfigOp.APPEND)]
            for topic, several in changes.items()
        }
        return change(cluster, kept)

    change = Simulator.change_topic_configs
    schedule = throttled_drain()
    assert carry_out(schedule).broken == ()
    monkeypatch.setattr(Simulator, "change_topic_configs", keeps_lists)
    assert "throttles: the lists are" in carry_out(schedule).broken[0]


def test_a_process_that_ends_with_a_traceback_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object, **__: object) -> None:
        raise OverflowError("too large")

    monkeypatch.setattr(leases.ThrottleLeases, "acquire", breaks)
    assert any("OverflowError: too large" in sentence for sentence in carry_out(throttled_drain()).broken)


@pytest.mark.parametrize(
    ("sentence", "fault"),
    [
        ("Plan 1 is complete.", ""),
        ("", "it is empty"),
        ("broker None died", "it has 'None'"),
        ("see /steward/plans/1", "it has '/steward/'"),
        ("two\nlines", r"it has '\n'"),
    ],
)
def test_a_sentence_for_people_is_judged(sentence: str, fault: str) -> None:
    assert sentence_fault(sentence) == fault


def test_a_seed_is_replayed_with_the_events_that_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "5", "--keep", "none"]) == 0
    said = capsys.readouterr().out
    assert f"trace {carry_out(draw(5).keeping(())).trace[:16]}" in said
    assert "Nothing is broken." in said


@pytest.mark.slow
def test_many_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", str(SLOW_SEED), "--minutes", str(SLOW_MINUTES), "--workers", "2"]) == 0
    print(capsys.readouterr().out)
