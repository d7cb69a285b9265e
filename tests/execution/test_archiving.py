"""A look moves plans that ended an hour ago out of what each look reads, unless something may still be made of them."""

from __future__ import annotations

import pytest

from kafka_steward.execution.failure_detector import FailureDetector
from kafka_steward.execution.lifecycle import request_cancel
from kafka_steward.execution.rollback import find_unfinished_cancels
from kafka_steward.journal import paths
from kafka_steward.journal.records import ASKED, PlanStatus
from kafka_steward.settings import Settings
from tests.simulated_plan import WHO, World, memory_journal, move
from tests.simulator import Simulator

HOUR_MS = 3_600_000


@pytest.fixture
def world() -> World:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123")
    return World(simulator, memory_journal(simulator), [move("t-0", "123", "423")], auto_generated=False)


def look(world: World) -> list[str]:
    """The plans that are polled after a look."""
    FailureDetector(world.simulator, world.journal, Settings(), WHO).poll()
    return world.journal.tree.children(paths.PLANS)


def test_after_an_hour_an_ended_plan_is_polled_no_more(world: World) -> None:
    world.run()
    assert look(world) == [world.digest]
    world.simulator.now_ms += HOUR_MS + 1
    assert look(world) == []
    assert world.journal.plans.latest(1)[0].status is PlanStatus.COMPLETED


def test_one_that_has_not_ended_is_polled_for_ever(world: World) -> None:
    world.simulator.now_ms += 24 * HOUR_MS
    assert look(world) == [world.digest]


def test_one_that_is_to_be_rolled_back_is_polled_until_it_is(world: World) -> None:
    world.run()
    request_cancel(world.journal, world.digest, who=WHO, reason="wrong", scope="plan")
    world.simulator.now_ms += HOUR_MS + 1
    assert look(world) == [world.digest]
    assert [record.digest for record in find_unfinished_cancels(world.journal)] == [world.digest]


def test_one_that_ended_long_ago_can_be_rolled_back(world: World) -> None:
    world.run()
    world.simulator.now_ms += HOUR_MS + 1
    assert look(world) == []
    request_cancel(world.journal, world.digest, who=WHO, reason="wrong", scope="plan")
    assert [record.digest for record in find_unfinished_cancels(world.journal)] == [world.digest]


def test_one_of_which_a_document_is_left_is_polled_until_it_is_gone(world: World) -> None:
    path = f"{paths.REQUEST_PREFIX}0000000001"
    node = world.journal.tree.create(path, "{}")
    record = world.journal.plans.get(world.digest)
    assert record is not None
    world.journal.plans.update(record, extra={ASKED: {"sources": [f"{path}@{node.created_id}"], "legacy": False}})
    world.run()
    world.simulator.now_ms += HOUR_MS + 1
    assert world.digest in look(world)
    kept = world.journal.tree.get(path)
    if kept is not None:
        world.journal.tree.delete(path, version=kept.version)
    assert look(world) == []


@pytest.mark.parametrize("asked", [5, {"sources": 5}, {"sources": "x"}, {"sources": ["no path", 7, None]}, None])
def test_what_somebody_wrote_into_a_record_holds_up_no_look(world: World, asked: object) -> None:
    record = world.journal.plans.get(world.digest)
    assert record is not None
    world.journal.plans.update(record, extra={ASKED: asked})
    world.run()
    world.simulator.now_ms += HOUR_MS + 1
    assert look(world) == []
