"""Who looks dies, simulated: KIP-236's three cases of a new controller, KIP-46's option 2, and every other moment."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.document_api.controller import DocumentController
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.watch.failure_detector import DetectionResult, FailureDetector
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action
from kafka_steward.journal.mailbox import read_one
from kafka_steward.journal.records import MoveState, PlanStatus
from kafka_steward.journal.store import Journal
from tests.crash import Died, Faults
from tests.documents import create_document, delete_document
from tests.present import present
from tests.protocol.simulated_watch import WATCH, Yard, document
from tests.rings import one_in
from tests.simulated_plan import WHO, heal_moves, journal_over, plan_of

T0 = TopicPartition("t", 0)


def test_case_1_reassign_partitions_was_created_while_nobody_looked() -> None:
    yard = Yard(zookeeper=True, mode="zookeeper")
    create_document(
        yard.journal.mailbox,
        paths.REASSIGN_PARTITIONS,
        '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2,3],"original_replicas":[1,2]}]}',
    )
    yard.simulator.alter({T0: (2, 3)})  # as Kafka does by itself
    yard.new_watch().poll()
    record = present(yard.record("t-0"))
    assert (record.legacy, record.original_replicas, record.replicas, record.top) == (True, (1, 2), (2, 3), 2)
    yard.simulator.run()
    delete_document(yard.journal.mailbox, paths.REASSIGN_PARTITIONS)
    yard.new_watch().poll()
    assert yard.record("t-0") is None


def test_case_2_requests_were_created_while_nobody_looked(yard: Yard) -> None:
    yard.ask("t-0 23")
    yard.ask("t-1 234")
    yard.ask("t-0 24")
    yard.protocol = yard.new_watch()
    yard.run()
    assert (yard.replicas("t-0"), yard.replicas("t-1")) == ((2, 4), (2, 3, 4))


@pytest.mark.parametrize("kind", ["dies before", "dies after"])
def test_case_3_what_was_in_flight_is_gone_on_with(kind: str) -> None:
    counted = Faults()
    wrapped(two_of_one_plan(), counted).poll()
    yard = two_of_one_plan()
    with pytest.raises(Died):
        wrapped(yard, Faults(counted.calls.index("cluster.alter"), kind)).poll()
    in_flight = present(yard.record("t-0"))
    assert (in_flight.original_replicas, in_flight.replicas) == ((1, 2), (2, 3))
    assert yard.in_flight() == ([] if kind == "dies before" else ["t-0"])
    yard.simulator.tick(61)  # the step lock runs out
    yard.protocol = yard.new_watch()
    yard.run()
    assert (yard.replicas("t-0"), yard.replicas("t-1")) == ((2, 3), (2, 3, 4))
    assert [record.status for record in yard.journal.plans.latest(5)] == [PlanStatus.COMPLETED]
    assert yard.journal.mailbox.children(paths.REASSIGNMENTS) == []
    assert yard.simulator.broker_settings[3] == {}  # the throttle of the watch that died is given back


def two_of_one_plan() -> Yard:
    """A request for two partitions, of which one at a time is in flight."""
    yard = Yard(max_in_flight=1, throttle=10)
    yard.ask("t-0 23", "t-1 234")
    return yard


@pytest.mark.parametrize("legacy_first", [True, False])
def test_a_later_source_never_overrides_an_earlier_one_of_the_other_route(legacy_first: bool) -> None:
    yard = Yard(zookeeper=True, mode="zookeeper")
    if legacy_first:
        create_document(yard.journal.mailbox, paths.REASSIGN_PARTITIONS, document(["t-0 23"]))
        yard.simulator.alter({T0: (2, 3)})
        yard.look()
        yard.ask("t-0 24")
        said = yard.new_watch().poll().sentences
        assert "refused, it is already being reassigned by another API, /admin/reassign_partitions." in said[0]
    else:
        yard.ask("t-0 24")
        yard.look()
        create_document(yard.journal.mailbox, paths.REASSIGN_PARTITIONS, document(["t-0 23"]))
        said = yard.new_watch().poll().sentences
        assert "t-0 is also requested by /admin/reassign_partitions, and a request is already reassigning" in said[-1]
    record = present(yard.record("t-0"))
    assert (record.legacy, record.replicas) == ((True, (2, 3)) if legacy_first else (False, (2, 4)))


def test_a_partition_that_waits_in_a_plan_is_not_written_down_for_the_old_route() -> None:
    yard = Yard(zookeeper=True, mode="zookeeper", max_in_flight=1)
    yard.ask("t-0 24", "t-1 234")
    yard.look()
    assert (yard.in_flight(), yard.record("t-1")) == (["t-0"], None)  # it waits, and nothing is noted of it yet
    create_document(yard.journal.mailbox, paths.REASSIGN_PARTITIONS, document(["t-1 235"]))
    said = yard.new_watch().poll().sentences
    assert "t-1 is also requested by /admin/reassign_partitions, and a request is already reassigning" in said[-1]
    assert yard.record("t-1") is None
    yard.run()
    assert yard.replicas("t-1") == (2, 3, 4)


def test_option_2_the_entry_beside_its_unfinished_plan_is_deleted_by_the_watch() -> None:
    counted = Faults()
    publish_heal(due(), counted)
    yard = due()
    with pytest.raises(Died):
        publish_heal(yard, Faults(counted.calls.index("mailbox.delete"), "dies before"))
    assert read_one(yard.journal.mailbox, paths.failed_broker(3)) is not None
    assert yard.journal.mailbox.children(paths.REASSIGN_CHUNKS) != []
    verdict = detect(yard)
    assert (verdict.handled, verdict.failed) == ((3,), ())
    assert read_one(yard.journal.mailbox, paths.failed_broker(3)) is None
    assert [record.status.finished for record in yard.journal.plans.latest(5)] == [False]


def due() -> Yard:
    """Broker 3 is gone for longer than its grace period, and nothing heals it yet."""
    yard = Yard("t: 123 231", heal_failure_interval=10)
    yard.simulator.kill(3)
    detect(yard)
    yard.simulator.tick(10)
    assert detect(yard).due == (3,)
    return yard


def detect(yard: Yard) -> DetectionResult:
    return FailureDetector(yard.simulator, yard.journal, yard.settings, WATCH).poll()


def publish_heal(yard: Yard, faults: Faults) -> None:
    plan = plan_of(yard.simulator, heal_moves(yard.simulator, 3, 4), failed=[3])
    publish_plan(ClusterContext(yard.simulator, through(yard, faults), yard.settings, WHO), plan)


def test_option_2_died_after_the_chunks_and_before_the_failed_entry_was_deleted() -> None:
    yard = Yard("t: 123 231")
    yard.simulator.kill(3)
    first = yard.publish(heal_moves(yard.simulator, 3, 4), failed=[3])
    create_document(
        yard.journal.mailbox, paths.failed_broker(3), '{"failure_timestamp": 1}'
    )  # as if it had not been deleted
    runner = yard.runner(first.digest)
    while not runner.step().ended:
        yard.simulator.tick()
    again = plan_of(yard.simulator, list(first.moves), failed=[3], snapshot_digest="another")
    again = replace(again, digest="b" * 64)
    publish_plan(yard.context, again)
    yard.runner(again.digest).step()
    assert {row.state for row in yard.journal.plans.rows(again.digest)} == {MoveState.SATISFIED}
    assert yard.journal.audit.rows(plan=again.digest, action=Action.SUBMIT) == []
    assert read_one(yard.journal.mailbox, paths.failed_broker(3)) is None


def scene() -> Yard:
    """A reassignment is in flight, another document supersedes it, a queue waits, and there is invalid text."""
    yard = Yard(max_in_flight=2)
    yard.ask("t-0 23")
    yard.look()
    yard.ask("t-0 24", "t-1 234")
    yard.journal.mailbox.append(paths.REQUEST_PREFIX, "{")
    create_document(yard.journal.mailbox, paths.REASSIGN_QUEUE, document(["t-2 345"]))
    return yard


def wrapped(yard: Yard, faults: Faults) -> DocumentController:
    """A watch whose cluster and tree die at one call."""
    return DocumentController(faults.around("cluster", yard.simulator), through(yard, faults), yard.settings, WATCH)


def through(yard: Yard, faults: Faults) -> Journal:
    """The yard's journal, whose tree, state and tables die at one call."""
    journal = yard.journal
    mailbox = faults.around("mailbox", journal.mailbox)
    moves, audit = faults.around("moves", journal.plans._table), faults.around("audit", journal.audit._table)
    tables = moves, audit, faults.around("plans", journal.plans._plans)
    return journal_over(journal.cluster_id, mailbox, faults.around("state", journal.state), *tables)


def calls_of_a_look() -> int:
    faults = Faults()
    wrapped(scene(), faults).poll()
    return len(faults.calls)


@pytest.mark.parametrize("kind", ["dies before", "dies after"])
def test_whoever_looks_may_die_at_any_call(kind: str) -> None:
    dies_at(kind, range(0, calls_of_a_look(), one_in(87)))


def dies_at(kind: str, calls: range) -> None:
    for at in calls:
        yard = scene()
        try:
            wrapped(yard, Faults(at, kind)).poll()
        except Died:
            yard.simulator.tick(61)  # the step lock runs out
        yard.protocol = yard.new_watch()
        yard.run(80)
        where = f"{kind} call {at}"
        assert [yard.replicas(f"t-{n}") for n in range(3)] == [(2, 4), (2, 3, 4), (3, 4, 5)], where
        assert yard.requests() == [], where
        assert read_one(yard.journal.mailbox, paths.REASSIGN_QUEUE) is None, where
        assert yard.journal.slot.holders() == (), where
        assert yard.journal.mailbox.children(paths.REASSIGNMENTS) == [], where
        # The plan whose moves were all replaced by a later request is cancelled.
        ended = {record.status for record in yard.journal.plans.latest(9)}
        assert PlanStatus.COMPLETED in ended <= {PlanStatus.COMPLETED, PlanStatus.CANCELLED}, where
