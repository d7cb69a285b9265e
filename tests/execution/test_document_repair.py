"""Garbled documents: moved aside whole, made anew, and whoever meets them goes on."""

from __future__ import annotations

import pytest

from kafka_steward.errors import DocumentError
from kafka_steward.execution.document_repair import repair_documents
from kafka_steward.execution.failure_detector import FailureDetector
from kafka_steward.execution.lifecycle import resume_plan
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action
from kafka_steward.journal.listing import QUARANTINE, QuarantinedDocument
from kafka_steward.journal.records import PlanStatus, SlotOwnership
from kafka_steward.settings import Settings
from tests.cancelling import CancelRunner
from tests.protocol.simulated_watch import Yard
from tests.simulated_plan import FOLLOWERS, RATE, WHO, World, memory_journal, move
from tests.simulator import Simulator

GARBAGE = ["", "{", "[]", '{"version":1}', '{"version":"one"}', "\ud800".encode("utf-8", "replace").decode(), "null"]


@pytest.fixture
def world() -> World:
    """One partition is done, one flies, throttled, and one waits; broker 4 had a rate of its own."""
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


def garble(world: World, path: str, text: str) -> None:
    node = world.journal.tree.get(path)
    assert node is not None
    world.journal.tree.set(path, text, version=node.version)


def places(world: World) -> list[str]:
    return [
        paths.SLOT,
        paths.STEP_LOCK,
        paths.plan(world.digest),
        paths.lease("broker", "4", RATE),
        paths.lease("topic", "t", FOLLOWERS),
    ]


def status(world: World) -> PlanStatus:
    record = world.journal.plans.get(world.digest)
    assert record is not None
    return record.status


@pytest.mark.parametrize("text", GARBAGE)
@pytest.mark.parametrize("which", range(5), ids=["slot", "lock", "plan", "rate", "list"])
def test_the_plan_goes_on_and_leaves_nothing_behind(world: World, which: int, text: str) -> None:
    path = places(world)[which]
    garble(world, path, text)
    progress = world.step()
    if progress.waits_for_person:
        assert "re-created from its rows" in progress.sentence
        resume_plan(world.journal, world.digest, WHO)
    assert world.run().status is PlanStatus.COMPLETED
    assert [world.replicas(f"t-{n}") for n in range(3)] == [(4, 2, 3), (4, 3, 1), (3, 4, 2)]
    assert world.throttles() == ["4:70"]
    assert (world.borrowed(), world.journal.slot.holders()) == ([], ())
    (name,) = world.journal.tree.children(QUARANTINE)
    node = world.journal.tree.get(f"{QUARANTINE}/{name}")
    kept = world.journal.tree.get(f"{QUARANTINE}/{name}/text")
    assert node is not None
    assert kept is not None
    assert (QuarantinedDocument.from_node(node).path, kept.data) == (path, text)
    (row,) = world.journal.audit.rows(action=Action.REPAIR)
    assert path in row.entry.reason


@pytest.mark.parametrize("which", range(5), ids=["slot", "lock", "plan", "rate", "list"])
def test_it_is_taken_back_all_the_same(world: World, which: int) -> None:
    garble(world, places(world)[which], "{")
    undo = CancelRunner(
        world.simulator, world.journal, world.digest, Settings(throttle=900), WHO, scope="plan", reason="x"
    )
    for _ in range(30):
        progress = undo.step()
        if progress.ended:
            break
        world.simulator.tick()
    assert progress.ended
    assert [world.replicas(f"t-{n}") for n in range(3)] == [(1, 2, 3), (2, 3, 1), (3, 1, 2)]
    assert world.throttles() == ["4:70"]


def test_a_rollback_is_known_as_one_and_its_plan_as_taken_back_by_it(world: World) -> None:
    undo = CancelRunner(
        world.simulator, world.journal, world.digest, Settings(throttle=900), WHO, scope="plan", reason="x"
    )
    while undo.rollback is None:
        undo.step()
        world.simulator.tick()
    before = world.journal.plans.get(undo.rollback), world.journal.plans.get(world.digest)
    for digest in (undo.rollback, world.digest):
        garble(world, paths.plan(digest), "{")
        repair_documents(world.journal, WHO)
    after = world.journal.plans.get(undo.rollback), world.journal.plans.get(world.digest)
    assert [(each.operation, each.extra, each.rolled_back_by, each.left) for each in after if each] == [
        (each.operation, each.extra, each.rolled_back_by, each.left) for each in before if each
    ]
    assert len([each for each in after if each]) == 2


def test_documents_that_asked_for_a_plan_are_known_and_not_carried_out_again() -> None:
    yard = Yard("t: " + " ".join(["12"] * 25))
    for at in range(25):
        yard.ask(f"t-{at} 23")
    yard.look()
    (before,) = yard.journal.plans.unfinished()
    assert len(before.sources) > 20
    node = yard.journal.tree.get(paths.plan(before.digest))
    assert node is not None
    yard.journal.tree.set(node.path, "{", version=node.version)
    repair_documents(yard.journal, WHO)
    after = yard.journal.plans.get(before.digest)
    assert after is not None
    assert (after.sources, after.extra) == (before.sources, before.extra)


@pytest.mark.parametrize("which", range(5), ids=["slot", "lock", "plan", "rate", "list"])
def test_the_watch_looks_on(world: World, which: int) -> None:
    garble(world, places(world)[which], "{")
    assert FailureDetector(world.simulator, world.journal, world.settings, WHO).poll().down == ()


def test_a_garbled_document_of_a_known_second_version_is_made_anew(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SlotOwnership, "VERSION", 2)
    garble(world, paths.SLOT, '{"version":2,"plan":7}')
    assert len(repair_documents(world.journal, WHO)) == 1
    assert world.journal.slot.holders() == (world.digest,)
    garble(world, paths.SLOT, '{"version":3,"plan":7}')
    assert repair_documents(world.journal, WHO) == []


def test_a_document_of_a_newer_release_is_left_alone(world: World) -> None:
    garble(world, paths.SLOT, '{"version":2,"plan":"x"}')
    assert repair_documents(world.journal, WHO) == []
    with pytest.raises(DocumentError, match="was written by a newer Kafka Steward"):
        world.step()
    assert world.journal.tree.children(QUARANTINE) == []


def test_what_was_given_back_already_is_not_borrowed_anew(world: World) -> None:
    world.run()
    assert world.borrowed() == []
    world.journal.tree.create(paths.lease("broker", "4", RATE), "garbage")
    assert len(repair_documents(world.journal, WHO)) == 1
    assert world.borrowed() == []
