"""A plan as its own run sees it: a cancel ends it, and a rollback is waited for and carried out, whoever asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.execution.lifecycle import Scope, request_cancel
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.progress import Progress, cancel_outcome_message
from kafka_steward.execution.rollback import find_unfinished_cancels
from kafka_steward.execution.runner import PlanRunner
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.kip_documents import CancelRequest
from kafka_steward.journal.records import MoveRow, MoveState, PlanRecord, PlanStatus
from kafka_steward.settings import Settings
from tests.cancelling import CancelRunner
from tests.simulated_plan import WHO, World, memory_journal, move
from tests.simulator import Simulator

ANN = Actor(person="ann")


@pytest.fixture
def world() -> World:
    """Two moves, of which the first has arrived and the second flies."""
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231", size=1000)
    simulator.topics[TopicPartition("t", 0)].size = 50
    moves = [move("t-0", "123", "423", size=50), move("t-1", "231", "431", position=1, size=1000)]
    made = World(simulator, memory_journal(simulator), moves, settings=Settings(throttle=80), auto_generated=False)
    made.step()
    simulator.tick(3)
    made.step()
    assert list(made.states().values()) == ["completed", "submitted"]
    return made


def run(world: World) -> PlanRunner:
    return PlanRunner(ClusterContext(world.simulator, world.journal, Settings(throttle=5000), WHO), world.digest)


def to_the_end(world: World, stepper: PlanRunner) -> Progress:
    for _ in range(60):
        progress = stepper.step()
        if progress.ended:
            return progress
        world.simulator.tick()
    raise AssertionError(progress.sentence)


def ask(world: World, scope: Scope) -> None:
    request_cancel(world.journal, world.digest, who=ANN, reason="wrong racks", scope=scope)


def test_a_plan_that_nobody_cancels_ends_as_by_its_runner(world: World) -> None:
    progress = to_the_end(world, run(world))
    assert (progress.status, progress.digest) == (PlanStatus.COMPLETED, world.digest)
    assert progress.sentence == f"Plan {world.digest[:12]} is complete: 2 of 2 partitions moved."


def test_a_cancel_ends_it_and_says_who_and_why(world: World) -> None:
    ask(world, "pending")
    progress = to_the_end(world, run(world))
    assert progress.status is PlanStatus.CANCELLED
    told = f"Plan {world.digest[:12]} was cancelled by ann (wrong racks); 1 of 2 moves had completed, and stay."
    assert progress.sentence == told


@pytest.mark.parametrize("beside", [False, True], ids=["whoever asked has died", "whoever asked steps it too"])
def test_a_rollback_is_carried_out_to_its_end(world: World, beside: bool) -> None:
    ask(world, "plan")
    stepper = run(world)
    other = CancelRunner(
        world.simulator, world.journal, world.digest, Settings(throttle=5000), ANN, scope="plan", reason="wrong racks"
    )
    for _ in range(60):
        if beside:
            other.step()
        progress = stepper.step()
        if progress.ended:
            break
        world.simulator.tick()
    assert (progress.status, progress.digest) == (PlanStatus.ROLLED_BACK, world.digest)
    assert [world.replicas(name) for name in ("t-0", "t-1")] == [(1, 2, 3), (2, 3, 1)]
    assert find_unfinished_cancels(world.journal) == []
    record = world.journal.plans.get(world.digest)
    assert record is not None
    rollback = (record.rolled_back_by or "")[:12]
    told = (
        f"cancelled by ann (wrong racks), and rolled back by plan {rollback}: its partitions have their original "
        "replicas."
    )
    assert progress.sentence == f"Plan {world.digest[:12]} was {told}"


def test_a_rollback_that_left_something_alone_says_so(world: World) -> None:
    ask(world, "plan")
    world.simulator.topics[TopicPartition("t", 0)].replicas = (3, 2, 4)
    progress = to_the_end(world, run(world))
    assert progress.status is PlanStatus.CANCELLED
    assert progress.sentence.endswith(", except for 1 partitions.")


@pytest.mark.parametrize(
    ("record", "told"),
    [
        ({"status": PlanStatus.COMPLETED}, ""),
        ({"status": PlanStatus.ABANDONED}, ""),
        ({"cancel": None}, "Plan dddddddddddd was cancelled; 1 of 2 moves had completed, and stay."),
        (
            {"cancel": CancelRequest(reason="why")},
            "Plan dddddddddddd was cancelled (why); 1 of 2 moves had completed, and stay.",
        ),
        (
            {"cancel": CancelRequest(scope="plan", person="ann")},
            "Plan dddddddddddd was cancelled by ann; 1 of 2 moves had completed, and are still to be reverted.",
        ),
    ],
)
def test_what_became_of_a_plan(record: dict[str, Any], told: str) -> None:
    made = PlanRecord("d" * 64, "one", "apply", status=PlanStatus.CANCELLED)
    rows = [
        MoveRow(move("t-0", "123", "423"), MoveState.COMPLETED),
        MoveRow(move("t-1", "231", "431", position=1), MoveState.DROPPED),
    ]
    assert cancel_outcome_message(replace(made, **record), rows) == told


def test_of_a_plan_whose_rollback_was_ended_itself_it_says_so() -> None:
    made = PlanRecord("d" * 64, "one", "apply", status=PlanStatus.COMPLETED)
    rollback = PlanRecord("e" * 64, "one", "rollback", status=PlanStatus.CANCELLED, reason="Someone wants it so.")
    assert cancel_outcome_message(made, [], rollback) == (
        "The rollback of plan dddddddddddd was itself cancelled or abandoned: Someone wants it so."
    )
