"""Replicas that come one at a time, with a fault at every call: the next process goes on with the next stride."""

from __future__ import annotations

import pytest

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.execution.lifecycle import request_cancel
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.progress import Progress
from kafka_steward.execution.publishing import publish_plan
from kafka_steward.execution.runner import PlanRunner
from kafka_steward.journal.records import MoveState, PlanStatus
from kafka_steward.settings import Settings
from tests.crash import Died, Faults, points
from tests.crash_environment import LOCK_TICKS, Place, persist
from tests.rings import one_in
from tests.simulated_plan import FOLLOWERS, WHO, move, plan_of
from tests.simulator import UNCLEAN, Simulator

T0 = TopicPartition("t", 0)


def staged(*, unclean: bool) -> Place:
    """One replica at a time, or all new ones behind the originals, of which one lags."""
    size = 300 if unclean else 100
    simulator = Simulator.of("1a 2b 3c 4a 5b 6c 7a", "t: 123", size=size)
    moves = [move("t-0", "123", "451" if unclean else "456", size=size)]
    settings = Settings(throttle=100, one_replica_at_a_time=not unclean)
    if unclean:
        simulator.topic_settings["t"][UNCLEAN] = "true"
        simulator.topics[T0].isr.discard(2)
        simulator.topics[T0].held[2] = -2_000
    return Place(simulator, moves, settings, plan_of(simulator, moves, operation="apply"))


def go(place: Place, faults: Faults, *, cancel_at: int | None = None) -> Progress:
    """One process: publish, step to the end, and perhaps ask for a cancel at that tick."""
    cluster, journal = place.process(faults)
    runner, published = PlanRunner(ClusterContext(cluster, journal, place.settings, WHO), place.plan.digest), False

    def step() -> Progress:
        nonlocal published
        if not published:
            publish_plan(ClusterContext(cluster, journal, place.settings, WHO), place.plan)
            published = True
        if cancel_at is not None and place.ticks >= cancel_at:
            record = journal.plans.get(place.plan.digest)
            if record is not None and not record.status.finished and record.cancel is None:
                request_cancel(journal, place.plan.digest, who=WHO, reason="enough")
        return runner.step()

    return persist(place, step)


def verify(place: Place, move: Move) -> None:
    """It ended at one side or the other, and nothing is left behind."""
    (row,) = place.stores[1].rows(place.plan.digest)
    partition = place.simulator.topics[T0]
    assert row.state in {MoveState.COMPLETED, MoveState.DROPPED}
    assert partition.replicas == (move.after if row.state is MoveState.COMPLETED else move.before)
    assert not partition.reassigning
    assert FOLLOWERS not in place.simulator.topic_settings["t"]
    assert not any(place.simulator.broker_settings.values())
    kept = ("/steward/plans/", "/steward/slot", "/steward/step_lock")
    assert [path for path in place.stores[0]._nodes if not path.startswith(kept)] == []


@pytest.mark.parametrize("unclean", [False, True], ids=["one at a time", "unclean elections"])
@pytest.mark.parametrize("cancel_at", [None, 2], ids=["to its end", "cancelled in the middle"])
def test_whatever_dies_or_is_lost_the_next_process_goes_on_with_the_next_stage(
    cancel_at: int | None, *, unclean: bool
) -> None:
    quiet, place = Faults(), staged(unclean=unclean)
    status = go(place, quiet, cancel_at=cancel_at).status
    assert status is (PlanStatus.COMPLETED if cancel_at is None else PlanStatus.CANCELLED)
    verify(place, place.moves[0])
    for at, kind, call in points(quiet.calls, every=one_in(17)):
        place = staged(unclean=unclean)
        try:
            try:
                go(place, Faults(at, kind), cancel_at=cancel_at)
            except Died:
                place.tick(LOCK_TICKS)
                go(place, Faults(), cancel_at=cancel_at)
            verify(place, place.moves[0])
        except AssertionError as error:
            raise AssertionError(f"{kind} call {at}, {call}: {error}") from error
