"""A plan of which rows are missing is neither stepped, cancelled nor called complete, also when its record was lost."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import PlanError
from kafka_steward.execution.document_repair import repair_documents
from kafka_steward.execution.lifecycle import Scope
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.publishing import publish_plan
from kafka_steward.execution.runner import PlanRunner
from kafka_steward.journal import paths
from kafka_steward.journal.records import PlanStatus
from kafka_steward.settings import Settings
from tests.cancelling import CancelRunner
from tests.protocol.simulated_watch import Yard
from tests.simulated_plan import WHO, World, memory_journal, move, plan_of
from tests.simulator import Simulator

SENTENCE = r"moves 2 partitions, and the journal at memory has 1 rows of it; the plan does not continue"
MOVES = [move("t-0", "123", "423"), move("t-1", "231", "431", position=1)]


@pytest.fixture
def world() -> World:
    """The first move is in flight, and its row remains; that of the second, which waits, can be lost."""
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231")
    journal = memory_journal(simulator)
    settings = Settings(throttle=60, max_in_per_broker=1)
    plan = plan_of(simulator, MOVES, operation="apply")
    publish_plan(ClusterContext(simulator, journal, settings, WHO), plan)
    made = World(simulator, journal, MOVES, settings=settings, auto_generated=False, digest=plan.digest)
    made.step()
    return made


def lose(world: World, name: str) -> None:
    """As a database does that was restored from a backup, or that another host has not."""
    table: Any = world.journal.plans._table
    topic, _, number = name.rpartition("-")
    del table._plans[world.digest][TopicPartition(topic, int(number))]


def garble(world: World) -> None:
    node = world.journal.tree.get(paths.plan(world.digest))
    assert node is not None
    world.journal.tree.set(node.path, "{", version=node.version)


@pytest.mark.parametrize("record", ["kept", "garbled"])
def test_it_is_not_stepped_although_what_is_left_of_it_is_done(world: World, record: str) -> None:
    lose(world, "t-1")
    if record == "garbled":
        garble(world)
        repair_documents(world.journal, WHO)
    world.simulator.run()
    for runner in (world.runner, world.new_runner()):
        with pytest.raises(PlanError, match=SENTENCE):
            runner.step()
    found = world.journal.plans.get(world.digest)
    assert found is not None
    assert (found.status.finished, found.partitions) == (False, 2)


@pytest.mark.parametrize("scope", ["pending", "plan"])
def test_it_is_not_cancelled_and_nothing_of_it_goes_back(world: World, scope: Scope) -> None:
    lose(world, "t-1")
    undo = CancelRunner(
        world.simulator, world.journal, world.digest, world.settings, WHO, scope=scope, reason="wrong plan"
    )
    for _ in range(2):
        with pytest.raises(PlanError, match=SENTENCE):
            undo.step()
        world.simulator.run()
    assert world.replicas("t-0") == (4, 2, 3)


def test_what_has_ended_is_not_rolled_back(world: World) -> None:
    assert world.run(between=world.simulator.run).status is PlanStatus.COMPLETED
    lose(world, "t-1")
    undo = CancelRunner(
        world.simulator, world.journal, world.digest, world.settings, WHO, scope="plan", reason="wrong plan"
    )
    with pytest.raises(PlanError, match=SENTENCE):
        undo.step()
    assert [world.replicas(name) for name in ("t-0", "t-1")] == [(4, 2, 3), (4, 3, 1)]


def test_a_record_that_is_made_anew_without_any_row_keeps_the_number_of_its_moves(world: World) -> None:
    for name in ("t-0", "t-1"):
        lose(world, name)
    garble(world)
    repair_documents(world.journal, WHO)
    with pytest.raises(PlanError, match=r"moves 2 partitions, and the journal at memory has 0 rows"):
        world.new_runner().step()


def test_a_rollback_that_is_made_anew_keeps_the_number_of_its_moves(world: World) -> None:
    undo = CancelRunner(
        world.simulator, world.journal, world.digest, world.settings, WHO, scope="plan", reason="wrong plan"
    )
    world.run(between=world.simulator.run)
    while undo.rollback is None:
        undo.step()
    world.digest = undo.rollback
    lose(world, "t-1")
    garble(world)
    repair_documents(world.journal, WHO)
    with pytest.raises(PlanError, match=SENTENCE):
        world.new_runner().step()


@pytest.mark.parametrize("lost", [1, 2], ids=["one row", "every row"])
def test_a_plan_that_documents_asked_for_keeps_the_number_of_its_moves_when_it_is_made_anew(lost: int) -> None:
    yard = Yard("t: 123 231")
    yard.ask("t-0 423", "t-1 431")
    yard.look()
    (plan,) = yard.journal.plans.unfinished()
    table: Any = yard.journal.plans._table
    for name in sorted(table._plans[plan.digest])[-lost:]:
        del table._plans[plan.digest][name]
    node = yard.journal.tree.get(paths.plan(plan.digest))
    assert node is not None
    yard.journal.tree.set(node.path, "{", version=node.version)
    yard.simulator.run()
    repair_documents(yard.journal, WHO)
    with pytest.raises(PlanError, match=rf"moves 2 partitions, and the journal at memory has {2 - lost} rows of it"):
        PlanRunner(ClusterContext(yard.simulator, yard.journal, yard.settings, WHO), plan.digest).step()
