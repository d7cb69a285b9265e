"""The journal comes back older than Kafka: what its plan has submitted since is the plan's all the same."""

from __future__ import annotations

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.execution.moves.in_flight import record_in_flight
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.watch.upkeep import run_chores
from kafka_steward.journal.records import MoveState, PlanStatus
from kafka_steward.settings import Settings
from tests.cancelling import undo_of
from tests.simulated_plan import FOLLOWERS, WHO, World, memory_journal, move
from tests.simulator import Simulator

MOVES = [move("t-0", "123", "423", size=1000), move("t-1", "231", "431", position=1, size=1000)]
RULES = Settings(throttle=300, abandoned_after=20, heal_failure_interval=-1)


@pytest.fixture(params=["kraft", "zookeeper"])
def world(request: pytest.FixtureRequest) -> World:
    """A plan both of whose moves are in flight, with its throttles, while all of its rows say that they wait.

    Where the documents are in ZooKeeper, they are newer than the rows.
    """
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231", size=1000, bandwidth=100, mode=request.param)
    made = World(simulator, memory_journal(simulator), MOVES, settings=RULES, auto_generated=False)
    simulator.alter({each.topic_partition: each.after for each in MOVES})
    simulator.topic_settings.setdefault("t", {})[FOLLOWERS] = "7:9,0:4,1:4"
    if request.param == "zookeeper":
        record_in_flight(made.journal.mailbox, made.digest, MOVES)
    return made


def look(world: World) -> None:
    run_chores(ClusterContext(world.simulator, world.journal, RULES, WHO))


def test_what_is_in_flight_counts_as_submitted_and_as_moved(world: World) -> None:
    world.step()
    assert world.states() == {"t-0": "submitted", "t-1": "submitted"}
    found = [row.entry.reason for row in world.journal.audit.rows(plan=world.digest) if row.entry.action == "submit"]
    assert len(found) == 2
    assert all("an older copy of the journal was restored" in reason for reason in found)
    progress = world.run()
    assert (progress.status, progress.completed) == (PlanStatus.COMPLETED, 2)
    look(world)
    world.simulator.run()
    assert [world.replicas(name) for name in ("t-0", "t-1")] == [(4, 2, 3), (4, 3, 1)]


def test_its_throttles_are_removed_at_its_end_and_those_of_others_stay(world: World) -> None:
    world.run()
    assert (world.throttles(), world.leases()) == (["t:7:9"], [])


def test_it_is_cancelled_with_its_plan(world: World) -> None:
    undo = undo_of(world)
    for _ in range(10):
        undo.step()
        world.simulator.tick()
    assert [world.replicas(name) for name in ("t-0", "t-1")] == [(1, 2, 3), (2, 3, 1)]
    assert not world.simulator.reassignments()


def test_what_is_done_stays_where_the_plan_has_put_it(world: World) -> None:
    world.simulator.run()
    assert world.run().status is PlanStatus.COMPLETED
    look(world)
    world.simulator.run()
    assert [world.replicas(name) for name in ("t-0", "t-1")] == [(4, 2, 3), (4, 3, 1)]


def test_in_zookeeper_a_reassignment_that_no_document_names_is_somebody_elses() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231", size=1000, bandwidth=100, mode="zookeeper")
    made = World(simulator, memory_journal(simulator), MOVES, settings=RULES, auto_generated=False)
    simulator.alter({TopicPartition("t", 0): (4, 2, 3)})
    made.step()
    assert made.states() == {"t-0": "held", "t-1": "submitted"}


def test_another_targets_reassignment_is_somebody_elses(world: World) -> None:
    world.simulator.cancel([TopicPartition("t", 0)])
    world.simulator.alter({TopicPartition("t", 0): (4, 3, 2)})
    world.step()
    assert world.states() == {"t-0": "held", "t-1": "submitted"}


def test_the_watch_takes_nothing_back_that_its_plan_found_at_the_target(world: World) -> None:
    world.simulator.run()
    world.journal.plans.set_move_states(
        world.digest, [each.topic_partition for each in MOVES], MoveState.SATISFIED, "there", fence=None
    )
    assert world.run().status is PlanStatus.COMPLETED
    record_in_flight(world.journal.mailbox, world.digest, MOVES)
    look(world)
    world.simulator.run()
    assert [world.replicas(name) for name in ("t-0", "t-1")] == [(4, 2, 3), (4, 3, 1)]
