"""Invalid documents are moved aside and made anew; a plan of which rows are missing does not go on."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import DocumentError, PlanError
from kafka_steward.execution.document_repair import repair_documents
from kafka_steward.execution.failure_detector import FailureDetector
from kafka_steward.execution.lifecycle import Scope, resume_plan
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.publishing import publish_plan
from kafka_steward.execution.runner import PlanRunner
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action
from kafka_steward.journal.listing import QUARANTINE, QuarantinedDocument
from kafka_steward.journal.records import PlanStatus, SlotOwnership
from kafka_steward.settings import Settings
from tests.cancelling import undo_of
from tests.present import present
from tests.protocol.simulated_watch import Yard
from tests.simulated_plan import FOLLOWERS, RATE, WHO, World, memory_journal, move, overwrite, plan_of, simulated
from tests.simulator import Simulator

INVALID = ["", "{", "[]", '{"version":1}', '{"version":"one"}', "\ud800".encode("utf-8", "replace").decode(), "null"]


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


def places(world: World) -> list[str]:
    return [
        paths.SLOT,
        paths.STEP_LOCK,
        paths.plan(world.digest),
        paths.lease("broker", "4", RATE),
        paths.lease("topic", "t", FOLLOWERS),
    ]


@pytest.mark.parametrize("text", INVALID)
@pytest.mark.parametrize("which", range(5), ids=["slot", "lock", "plan", "rate", "list"])
def test_the_plan_goes_on_and_leaves_nothing_behind(world: World, which: int, text: str) -> None:
    path = places(world)[which]
    overwrite(world.journal, path, text)
    progress = world.step()
    if progress.waits_for_person:
        assert "re-created from its rows" in progress.sentence
        resume_plan(world.journal, world.digest, WHO)
    assert world.run().status is PlanStatus.COMPLETED
    assert [world.replicas(f"t-{n}") for n in range(3)] == [(4, 2, 3), (4, 3, 1), (3, 4, 2)]
    assert world.throttles() == ["4:70"]
    assert (world.leases(), world.journal.slot.holders()) == ([], ())
    (name,) = world.journal.tree.children(QUARANTINE)
    node = present(world.journal.tree.get(f"{QUARANTINE}/{name}"))
    kept = present(world.journal.tree.get(f"{QUARANTINE}/{name}/text"))
    assert (QuarantinedDocument.from_node(node).path, kept.data) == (path, text)
    (row,) = world.journal.audit.rows(action=Action.REPAIR)
    assert path in row.entry.reason


@pytest.mark.parametrize("which", range(5), ids=["slot", "lock", "plan", "rate", "list"])
def test_it_is_taken_back_all_the_same(world: World, which: int) -> None:
    overwrite(world.journal, places(world)[which], "{")
    undo = undo_of(world, settings=Settings(throttle=900))
    for _ in range(30):
        progress = undo.step()
        if progress.ended:
            break
        world.simulator.tick()
    assert progress.ended
    assert [world.replicas(f"t-{n}") for n in range(3)] == [(1, 2, 3), (2, 3, 1), (3, 1, 2)]
    assert world.throttles() == ["4:70"]


def test_a_rollback_is_known_as_one_and_its_plan_as_taken_back_by_it(world: World) -> None:
    undo = undo_of(world, settings=Settings(throttle=900))
    while undo.rollback is None:
        undo.step()
        world.simulator.tick()
    before = world.journal.plans.get(undo.rollback), world.journal.plans.get(world.digest)
    for digest in (undo.rollback, world.digest):
        overwrite(world.journal, paths.plan(digest), "{")
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
    overwrite(yard.journal, paths.plan(before.digest), "{")
    repair_documents(yard.journal, WHO)
    after = present(yard.journal.plans.get(before.digest))
    assert (after.sources, after.extra) == (before.sources, before.extra)


@pytest.mark.parametrize("which", range(5), ids=["slot", "lock", "plan", "rate", "list"])
def test_the_watch_looks_on(world: World, which: int) -> None:
    overwrite(world.journal, places(world)[which], "{")
    assert FailureDetector(world.simulator, world.journal, world.settings, WHO).poll().down == ()


def test_an_invalid_document_of_a_second_version_is_recreated(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SlotOwnership, "VERSION", 2)
    overwrite(world.journal, paths.SLOT, '{"version":2,"plan":7}')
    assert len(repair_documents(world.journal, WHO)) == 1
    assert world.journal.slot.holders() == (world.digest,)
    overwrite(world.journal, paths.SLOT, '{"version":3,"plan":7}')
    assert repair_documents(world.journal, WHO) == []


def test_a_document_of_a_newer_release_is_left_alone(world: World) -> None:
    overwrite(world.journal, paths.SLOT, '{"version":2,"plan":"x"}')
    assert repair_documents(world.journal, WHO) == []
    with pytest.raises(DocumentError, match="was written by a newer Kafka Steward"):
        world.step()
    assert world.journal.tree.children(QUARANTINE) == []


def test_a_lease_that_was_released_is_not_recreated(world: World) -> None:
    world.run()
    assert world.leases() == []
    world.journal.tree.create(paths.lease("broker", "4", RATE), "invalid text")
    assert len(repair_documents(world.journal, WHO)) == 1
    assert world.leases() == []


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


@pytest.mark.parametrize("record", ["kept", "invalid"])
def test_it_is_not_stepped_although_what_is_left_of_it_is_done(losing: World, record: str) -> None:
    lose(losing, "t-1")
    if record == "invalid":
        overwrite(losing.journal, paths.plan(losing.digest), "{")
        repair_documents(losing.journal, WHO)
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


def test_a_record_that_is_made_anew_without_any_row_keeps_the_number_of_its_moves(losing: World) -> None:
    for name in ("t-0", "t-1"):
        lose(losing, name)
    overwrite(losing.journal, paths.plan(losing.digest), "{")
    repair_documents(losing.journal, WHO)
    with pytest.raises(PlanError, match=r"moves 2 partitions, and the journal at memory has 0 rows"):
        losing.new_runner().step()


def test_a_rollback_that_is_made_anew_keeps_the_number_of_its_moves(losing: World) -> None:
    undo = undo_of(losing)
    losing.run(between=losing.simulator.run)
    while undo.rollback is None:
        undo.step()
    losing.digest = undo.rollback
    lose(losing, "t-1")
    overwrite(losing.journal, paths.plan(losing.digest), "{")
    repair_documents(losing.journal, WHO)
    with pytest.raises(PlanError, match=SENTENCE):
        losing.new_runner().step()


@pytest.mark.parametrize("lost", [1, 2], ids=["one row", "every row"])
def test_a_plan_that_documents_asked_for_keeps_the_number_of_its_moves_when_it_is_made_anew(lost: int) -> None:
    yard = Yard("t: 123 231")
    yard.ask("t-0 423", "t-1 431")
    yard.look()
    (plan,) = yard.journal.plans.unfinished()
    table: Any = yard.journal.plans._table
    for name in sorted(table._plans[plan.digest])[-lost:]:
        del table._plans[plan.digest][name]
    overwrite(yard.journal, paths.plan(plan.digest), "{")
    yard.simulator.run()
    repair_documents(yard.journal, WHO)
    with pytest.raises(PlanError, match=rf"moves 2 partitions, and the journal at memory has {2 - lost} rows of it"):
        PlanRunner(ClusterContext(yard.simulator, yard.journal, yard.settings, WHO), plan.digest).step()
