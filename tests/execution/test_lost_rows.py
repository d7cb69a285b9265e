"""A plan of which rows are missing does not go on, and neither does one of which a document of ours was changed."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import JournalError, PlanError
from kafka_steward.execution.plans.lifecycle import Scope
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.journal.records import THROTTLE_LEASES, LeaseKey, PlanStatus
from kafka_steward.settings import Settings
from tests.cancelling import undo_of
from tests.present import present
from tests.simulated_plan import FOLLOWERS, RATE, WHO, World, memory_journal, move, plan_of, simulated
from tests.simulator import Simulator


@pytest.fixture
def world() -> World:
    """One partition is done, one is in flight, throttled, and one waits; broker 4 had a rate of its own."""
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231 312")
    moves = [
        move(f"t-{n}", before, after, position=n, size=100)
        for n, (before, after) in enumerate([("123", "423"), ("231", "431"), ("312", "342")])
    ]
    simulator.broker_settings[4][RATE] = "70"
    rules = Settings(throttle=60, max_in_per_broker=1)
    made = World(simulator, memory_journal(simulator), moves, settings=rules, auto_generated=False)
    made.step()
    simulator.tick(2)
    made.step()
    assert list(made.states().values()) == ["completed", "submitted", "waiting"]
    return made


@pytest.mark.parametrize("key", [LeaseKey("4", RATE), LeaseKey("t", FOLLOWERS)], ids=["rate", "list"])
def test_a_row_that_cannot_be_read_is_named_and_the_plan_goes_on_once_it_is_what_it_was(
    world: World, key: LeaseKey
) -> None:
    rows = world.journal.rows(THROTTLE_LEASES)
    row = present(rows.get(key))
    strange = present(world.journal.state.renew(row.stored, "{"))
    world.simulator.run()
    with pytest.raises(JournalError, match=f"^The row {key} of throttle_leases .* cannot be read"):
        world.run()
    assert world.journal.state.renew(strange, row.stored.text)
    assert world.run().status is PlanStatus.COMPLETED
    assert (world.throttles(), world.leases()) == (["4:70"], [])


SENTENCE = r"moves 2 partitions, and the journal at memory has 1 rows of it; the plan does not continue"
MOVES = [move("t-0", "123", "423"), move("t-1", "231", "431", position=1)]


@pytest.fixture
def losing() -> World:
    """The first move is in flight, and its row remains; that of the second, which waits, can be lost."""
    simulator, journal = simulated("1a 2b 3c 4a", "t: 123 231")
    settings = Settings(throttle=60, max_in_per_broker=1)
    plan = plan_of(simulator, MOVES, operation="apply")
    publish_plan(ClusterContext(simulator, journal, settings, WHO), plan)
    made = World(simulator, journal, MOVES, settings=settings, auto_generated=False, digest=plan.digest)
    made.step()
    return made


def lose(losing: World, name: str) -> None:
    """As a database does that was restored from a backup, or that another host has not."""
    table: Any = losing.journal.plans._table
    topic, _, number = name.rpartition("-")
    del table._plans[losing.digest][TopicPartition(topic, int(number))]


def test_it_is_not_stepped_although_what_is_left_of_it_is_done(losing: World) -> None:
    lose(losing, "t-1")
    losing.simulator.run()
    for runner in (losing.runner, losing.new_runner()):
        with pytest.raises(PlanError, match=SENTENCE):
            runner.step()
    found = losing.record()
    assert (found.status.finished, found.partitions) == (False, 2)


@pytest.mark.parametrize("scope", ["pending", "plan"])
def test_it_is_not_cancelled_and_nothing_of_it_goes_back(losing: World, scope: Scope) -> None:
    lose(losing, "t-1")
    undo = undo_of(losing, scope=scope)
    for _ in range(2):
        with pytest.raises(PlanError, match=SENTENCE):
            undo.step()
        losing.simulator.run()
    assert losing.replicas("t-0") == (4, 2, 3)


def test_what_has_ended_is_not_rolled_back(losing: World) -> None:
    assert losing.run(between=losing.simulator.run).status is PlanStatus.COMPLETED
    lose(losing, "t-1")
    undo = undo_of(losing)
    with pytest.raises(PlanError, match=SENTENCE):
        undo.step()
    assert [losing.replicas(name) for name in ("t-0", "t-1")] == [(4, 2, 3), (4, 3, 1)]
