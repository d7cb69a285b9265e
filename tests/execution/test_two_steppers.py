"""Two processes step one plan: Airflow does start two. The one that wakes up late changes nothing."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Any

import pytest

from kafka_steward.errors import JournalError
from kafka_steward.execution.failure_detector import FailureDetector
from kafka_steward.journal.audit import Action
from kafka_steward.settings import Settings
from tests.crash import Faults
from tests.crash_environment import LOCK_TICKS, Place
from tests.gate import Gate
from tests.rings import one_in
from tests.simulated_plan import WHO, heal_moves, plan_of
from tests.simulator import Simulator


def place(**rules: Any) -> Place:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231", "u: 312")
    simulator.kill(1)
    moves = heal_moves(simulator, 1, 4)
    return Place(
        simulator, moves, Settings(max_in_per_broker=2, **rules), plan_of(simulator, moves, failed=(1,))
    ).published()


def to_the_end(at: Place) -> None:
    other = at.runner(Faults())
    for _ in range(20):
        if other.step().ended:
            return
        at.simulator.tick()
    raise AssertionError("not ended")


def steps_taken(rules: dict[str, Any], steps: int) -> list[str]:
    """The calls of so many steps, undisturbed: the points at which a stepper can be stopped."""
    gate, quiet = Gate(), place(**rules)
    first = quiet.runner(gate)
    for _ in range(steps):
        first.step()
        quiet.simulator.tick()
    return gate.calls


def state_of(at: Place) -> tuple[Any, ...]:
    simulator = at.simulator
    replicas = {name: each.replicas for name, each in simulator.topics.items()}
    rows = [(row.topic_partition, row.state) for row in at.stores[1].rows(at.plan.digest)]
    return replicas, simulator.topic_settings, simulator.broker_settings, rows


@pytest.mark.parametrize("rules", [{"throttle": 0}, {"throttle": 90}], ids=["unthrottled", "throttled"])
def test_a_stepper_that_was_stopped_beyond_its_lock_changes_nothing(rules: dict[str, Any]) -> None:
    calls = steps_taken(rules, 3)
    for at, call in list(enumerate(calls))[:: one_in(5)]:
        here = place(**rules)

        def meanwhile(here: Place = here) -> None:
            here.simulator.now_ms += LOCK_TICKS * 1000
            to_the_end(here)

        gate = Gate(at, meanwhile)
        slow = here.runner(gate)
        for _ in range(3):
            with suppress(JournalError):
                slow.step()
            here.simulator.tick()
        to_the_end(here)
        # Stopped between reading the fence and changing a throttle, it does change that: and it is owed from then on.
        FailureDetector(*here.process(Faults()), here.settings, WHO).poll()
        verify(here, call)


def verify(at: Place, call: str) -> None:
    """Every partition is at its target, no change was made twice, and no throttle is left."""
    for move in at.moves:
        assert at.simulator.topics[move.topic_partition].replicas == move.after, call
        assert not at.simulator.topics[move.topic_partition].reassigning, call
    # Taken out of a list that is not there, an entry leaves an empty one.
    assert not any(entries for of in at.simulator.topic_settings.values() for entries in of.values()), call
    assert not any(at.simulator.broker_settings.values()), call
    rows = at.stores[2]._rows
    settled = [(row.entry.topic, row.entry.partition) for row in rows if row.entry.action is Action.SETTLE]
    assert len(settled) == len(set(settled)) == len(at.moves), call


def test_a_live_stepper_beside_another_does_nothing_at_any_point() -> None:
    calls = steps_taken({"throttle": 0}, 2)
    for at in range(len(calls)):
        here = place(throttle=0)
        seen: list[Any] = []

        def meanwhile(here: Place = here, seen: list[Any] = seen) -> None:
            before = state_of(here)
            progress = here.runner(Faults()).step()
            seen.append((progress.busy, state_of(here) == before))

        slow = here.runner(Gate(at, meanwhile))
        for _ in range(2):
            slow.step()
            here.simulator.tick()
        busy, unchanged = seen[0]
        # Before it holds the lock, or after it gave it back, the other one may step: then this one is the busy one.
        assert unchanged or not busy, calls[at]
        to_the_end(here)
        verify(here, calls[at])


def test_a_step_that_reads_the_settings_of_many_topics_keeps_its_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = [f"topic-{at}: 123" for at in range(2_500)]
    simulator = Simulator.of("1a 2b 3c 4a", *topics)
    simulator.kill(1)
    moves = heal_moves(simulator, 1, 4, chunk_size=500)
    here = Place(simulator, moves, Settings(), plan_of(simulator, moves, failed=(1,))).published()
    read, meanwhile = simulator.topic_configs, []

    def slowly(topics: Collection[str], names: Collection[str], **more: bool) -> dict[str, dict[str, str]]:
        if "min.insync.replicas" in names:
            simulator.now_ms += 40 * len(topics)
            with monkeypatch.context() as quick:
                quick.setattr(simulator, "topic_configs", read)
                meanwhile.append(here.runner(Faults()).step().busy)
        return read(topics, names, **more)

    monkeypatch.setattr(simulator, "topic_configs", slowly)
    assert not here.runner(Faults()).step().busy
    assert meanwhile == [True, True, True]
