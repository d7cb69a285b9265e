"""Who looks dies, simulated: KIP-236's three cases of a new controller, KIP-46's option 2, and every other moment."""

from __future__ import annotations

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.execution.publishing import publish_plan
from kafka_steward.execution.runner import Runner
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action
from kafka_steward.journal.moves import MoveState
from kafka_steward.journal.plans import PlanStatus
from tests.crash import Died, Faults
from tests.protocol.yard import Yard, document
from tests.worlds import WHO, heal_moves, plan_of

T0 = TopicPartition("t", 0)


def test_case_1_reassign_partitions_was_created_while_nobody_looked() -> None:
    yard = Yard(zookeeper=True, mode="zookeeper")
    yard.journal.tree.create(
        paths.REASSIGN_PARTITIONS,
        '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2,3],"original_replicas":[1,2]}]}',
    )
    yard.simulator.alter({T0: (2, 3)})  # as Kafka does by itself
    yard.new_watch().look()
    record = yard.record("t-0")
    assert record is not None
    assert (record.legacy, record.original_replicas, record.replicas, record.top) == (True, (1, 2), (2, 3), 2)
    yard.simulator.run()
    yard.journal.tree.delete(paths.REASSIGN_PARTITIONS, version=0)
    yard.new_watch().look()
    assert yard.record("t-0") is None


def test_case_2_requests_were_created_while_nobody_looked() -> None:
    yard = Yard()
    yard.ask("t-0 23")
    yard.ask("t-1 234")
    yard.ask("t-0 24")
    yard.protocol = yard.new_watch()
    yard.run()
    assert (yard.replicas("t-0"), yard.replicas("t-1")) == ((2, 4), (2, 3, 4))


def test_case_3_what_was_in_flight_is_gone_on_with() -> None:
    yard = Yard()
    yard.ask("t-0 23")
    yard.look()
    yard.simulator.cancel([T0])  # as if the cluster had never heard it
    yard.protocol = yard.new_watch()
    record = yard.record("t-0")
    assert record is not None
    assert record.replicas == (2, 3)
    yard.simulator.tick()
    yard.ask("t-1 234")
    yard.run()
    assert yard.replicas("t-1") == (2, 3, 4)


@pytest.mark.parametrize("legacy_first", [True, False])
def test_a_later_source_never_overrides_an_earlier_one_of_the_other_route(legacy_first: bool) -> None:
    yard = Yard(zookeeper=True, mode="zookeeper")
    if legacy_first:
        yard.journal.tree.create(paths.REASSIGN_PARTITIONS, document(["t-0 23"]))
        yard.simulator.alter({T0: (2, 3)})
        yard.look()
        yard.ask("t-0 24")
        said = yard.new_watch().look().sentences
        assert "refused, it is being reassigned by another route already, /admin/reassign_partitions." in said[0]
    else:
        yard.ask("t-0 24")
        yard.look()
        yard.journal.tree.create(paths.REASSIGN_PARTITIONS, document(["t-0 23"]))
        said = yard.new_watch().look().sentences
        assert "t-0 is asked for by /admin/reassign_partitions too, and is being reassigned by a request" in said[-1]
    record = yard.record("t-0")
    assert record is not None
    assert (record.legacy, record.replicas) == ((True, (2, 3)) if legacy_first else (False, (2, 4)))


def test_option_2_died_after_the_chunks_and_before_the_failed_entry_was_deleted() -> None:
    yard = Yard("t: 123 231")
    yard.simulator.kill(3)
    first = plan_of(yard.simulator, heal_moves(yard.simulator, 3, 4), failed=[3])
    publish_plan(yard.simulator, yard.journal, first, settings=yard.settings, who=WHO)
    yard.journal.tree.create(paths.failed_broker(3), '{"failure_timestamp": 1}')  # as if it had not been deleted
    runner = Runner(yard.simulator, yard.journal, first.digest, yard.settings, WHO)
    while not runner.step().ended:
        yard.simulator.tick()
    again = plan_of(yard.simulator, list(first.moves), failed=[3], snapshot_digest="another")
    again = type(again)("b" * 64, again.proof, again.moves)
    publish_plan(yard.simulator, yard.journal, again, settings=yard.settings, who=WHO)
    Runner(yard.simulator, yard.journal, again.digest, yard.settings, WHO).step()
    assert {row.state for row in yard.journal.plans.rows(again.digest)} == {MoveState.SATISFIED}
    assert yard.journal.audit.rows(plan=again.digest, action=Action.SUBMIT) == []
    assert yard.journal.tree.get(paths.failed_broker(3)) is None


def scene() -> Yard:
    """A reassignment flies, another document supersedes it, a queue waits, and there is garbage."""
    yard = Yard(max_in_flight=2)
    yard.ask("t-0 23")
    yard.look()
    yard.ask("t-0 24", "t-1 234")
    yard.journal.tree.create_sequential(paths.REQUEST_PREFIX, "{")
    yard.journal.tree.create(paths.REASSIGN_QUEUE, document(["t-2 345"]))
    return yard


def wrapped(yard: Yard, faults: Faults) -> object:
    """A watch whose cluster and tree die at one call."""
    from kafka_steward.protocol.live import Protocol
    from tests.protocol.yard import WATCH
    from tests.worlds import journal_over

    journal = yard.journal
    tree = faults.around("tree", journal.tree)
    moves, audit = faults.around("moves", journal.plans._table), faults.around("audit", journal.audit._table)
    dying = journal_over(journal.cluster_id, tree, moves, audit)
    return Protocol(faults.around("cluster", yard.simulator), dying, yard.settings, WATCH)


def calls_of_a_look() -> int:
    faults = Faults()
    wrapped(scene(), faults).look()  # type: ignore[attr-defined]  # a Protocol
    return len(faults.calls)


@pytest.mark.parametrize(("kind", "every"), [("dies before", 7), ("dies after", 7)])
def test_whoever_looks_may_die_at_some_calls(kind: str, every: int) -> None:
    dies_at(kind, range(0, calls_of_a_look(), every))


@pytest.mark.ci
@pytest.mark.parametrize("kind", ["dies before", "dies after"])
def test_whoever_looks_may_die_at_any_call(kind: str) -> None:
    dies_at(kind, range(calls_of_a_look()))


def dies_at(kind: str, calls: range) -> None:
    for at in calls:
        yard = scene()
        try:
            wrapped(yard, Faults(at, kind)).look()  # type: ignore[attr-defined]  # a Protocol
        except Died:
            yard.simulator.tick(61)  # the step lock runs out
        yard.protocol = yard.new_watch()
        yard.run(80)
        where = f"{kind} call {at}"
        assert [yard.replicas(f"t-{n}") for n in range(3)] == [(2, 4), (2, 3, 4), (3, 4, 5)], where
        assert yard.requests() == [], where
        assert yard.journal.tree.get(paths.REASSIGN_QUEUE) is None, where
        assert yard.journal.slot.owner() is None, where
        assert yard.journal.tree.children(paths.REASSIGNMENTS) == [], where
        assert all(record.status is PlanStatus.COMPLETED for record in yard.journal.plans.latest(9)), where
