"""How documents become plans: what is known to be under way, how their moves are divided, and what they are worth."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.document_api.document_plans import DocumentPlans
from kafka_steward.document_api.request_documents import read_requests
from kafka_steward.document_api.request_intake import PartialCancel, RequestIntake, active_reassignments
from kafka_steward.document_api.request_rules import ActiveReassignment
from kafka_steward.errors import ClusterUnreachable, LockLost
from kafka_steward.execution.in_flight_records import record_external_in_flight
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action
from kafka_steward.journal.kip_documents import InFlight
from kafka_steward.journal.records import MoveState
from tests.protocol.simulated_watch import WATCH, Yard, document
from tests.simulator import Simulator

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def flights(yard: Yard) -> dict[TopicPartition, ActiveReassignment]:
    plans = DocumentPlans(yard.journal)
    plans.read_unfinished()
    return active_reassignments(yard.journal, plans)


def test_what_flies_and_what_waits_is_told_by_its_plan_and_what_others_began_by_its_record() -> None:
    yard = Yard(max_in_flight=2)
    yard.ask("t-0 23", "t-1 234", legacy=True)
    record_external_in_flight(yard.journal.tree, T2, InFlight((3, 1, 2), (3, 4, 5), legacy=True, top=3))
    yard.simulator.alter({T2: (3, 4, 5)})
    yard.look()
    (record,) = yard.journal.plans.unfinished()
    assert yard.flying() == ["t-0", "t-2"]
    assert flights(yard) == {
        T0: ActiveReassignment((2, 3), (1, 2), legacy=True, plan=record.digest),
        T1: ActiveReassignment((2, 3, 4), (2, 3, 1), legacy=True, plan=record.digest),
        T2: ActiveReassignment((3, 4, 5), (3, 1, 2), legacy=True),
    }


def test_what_is_settled_is_not_under_way() -> None:
    yard = Yard(max_in_flight=1)
    yard.ask("t-0 23", "t-1 234")
    yard.look()
    (record,) = yard.journal.plans.unfinished()
    yard.journal.plans.set_move_states(record.digest, [T1], MoveState.DROPPED, fence=None)
    assert flights(yard) == {T0: ActiveReassignment((2, 3), (1, 2), plan=record.digest)}


def test_moves_are_divided_into_chunks_of_the_setting() -> None:
    yard = Yard("t: 12 12 12 12 12", heal_chunk_size=2, max_in_flight=1)
    yard.ask(*(f"t-{number} 13" for number in range(5)))
    yard.look()
    (record,) = yard.journal.plans.unfinished()
    moves = [row.move for row in yard.journal.plans.rows(record.digest)]
    assert [(each.partition, each.chunk, each.position) for each in moves] == [
        (0, 0, 0),
        (1, 0, 1),
        (2, 1, 0),
        (3, 1, 1),
        (4, 2, 0),
    ]
    topic_id = yard.simulator.topics[T0].topic_id
    assert {(each.before, each.after, each.purpose, each.topic_id) for each in moves} == {
        ((1, 2), (1, 3), "given", topic_id)
    }
    assert len(record.chunks) == 3


class Unsized:
    """A cluster that does not tell how large its partitions are."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator

    def __getattr__(self, name: str) -> Any:
        return getattr(self._simulator, name)

    def log_dirs(self, _: object) -> Any:
        raise ClusterUnreachable("Broker 1 does not answer.")


@pytest.mark.parametrize(("told", "sizes"), [(True, [100, 7, None]), (False, [None, None, None])])
def test_what_each_is_worth_is_what_its_leader_has_where_that_is_told(told: bool, sizes: list[int | None]) -> None:
    yard = Yard(max_in_flight=1)
    if not told:
        yard.protocol = yard.new_watch(Unsized(yard.simulator))
    yard.simulator.topics[T1].held = {2: 7, 3: 8, 1: 9}  # broker 2 leads it
    yard.simulator.topics[T2].leader = None
    yard.ask("t-0 23", "t-1 234", "t-2 314")
    yard.look()
    (record,) = yard.journal.plans.unfinished()
    assert [row.move.size_bytes for row in yard.journal.plans.rows(record.digest)] == sizes


class Silent:
    """A cluster that is asked for nothing but its snapshot and what is in flight."""

    def __init__(self, simulator: Simulator) -> None:
        self.snapshot, self.reassignments = simulator.snapshot, simulator.reassignments


def test_where_nothing_can_be_read_no_topic_is_asked_for() -> None:
    yard = Yard()
    yard.protocol = yard.new_watch(Silent(yard.simulator))
    yard.journal.tree.create_sequential(paths.REQUEST_PREFIX, "[]")
    assert len(yard.look().sentences) == 1


def test_what_someone_mends_while_it_is_refused_is_theirs() -> None:
    yard = Yard()
    node = yard.journal.tree.create_sequential(paths.REQUEST_PREFIX, "[]")
    papers, _ = read_requests(yard.journal.tree)
    mended = yard.journal.tree.set(node.path, document(["t-0 23"]), version=0)
    admitted = RequestIntake(yard.simulator, yard.journal, yard.settings, WATCH).accept(
        papers, DocumentPlans(yard.journal)
    )
    fault = f"{node.path} holds a list where an object is expected; correct or delete it."
    assert admitted.sentences == [f"{node.path} was not executed: {fault}"]
    assert yard.journal.tree.get(node.path) == mended


# Taking partitions out of a plan again


class NeverHears:
    """A cluster that goes on showing what was cancelled."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator, self._shown = simulator, simulator.snapshot()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._simulator, name)

    def snapshot(self, _: object = None) -> Any:
        return self._shown


def withdrawn(yard: Yard, cluster: Any, fence: Any, *partitions: TopicPartition) -> dict[TopicPartition, str]:
    (record,) = yard.journal.plans.unfinished()
    withdrawal = PartialCancel(cluster, yard.journal, record.digest, why="not wanted", who=WATCH, fence=fence)
    return withdrawal.run(partitions)


def test_only_what_is_to_come_out_comes_out() -> None:
    yard = Yard()
    yard.ask("t-0 23", "t-1 234")
    yard.look()
    with yard.journal.step_lock("here") as fence:
        assert withdrawn(yard, yard.simulator, fence, T0) == {}
    (record,) = yard.journal.plans.unfinished()
    assert [row.state for row in yard.journal.plans.rows(record.digest)] == [MoveState.DROPPED, MoveState.SUBMITTED]
    assert (yard.replicas("t-0"), yard.flying()) == ((1, 2), ["t-1"])


def test_a_cancel_that_the_cluster_does_not_show_yet_is_waited_for() -> None:
    yard = Yard()
    yard.ask("t-0 23", "t-1 234")
    yard.look()
    with yard.journal.step_lock("here") as fence:
        assert withdrawn(yard, NeverHears(yard.simulator), fence, T0) == {T0: "its cancel is in progress"}


def test_who_lost_the_lock_takes_nothing_out() -> None:
    yard = Yard(max_in_flight=1)
    yard.ask("t-0 23", "t-1 234")
    yard.look()
    (record,) = yard.journal.plans.unfinished()
    before = yard.journal.plans.rows(record.digest)
    late = yard.journal.step_lock("late").acquire()
    late.release()
    with yard.journal.step_lock("next"):
        for name in (T0, T1):
            with pytest.raises(LockLost):
                withdrawn(yard, yard.simulator, late, name)
    assert yard.journal.plans.rows(record.digest) == before
    assert yard.flying() == ["t-0"]
    assert yard.journal.audit.rows(action=Action.CANCEL) == []
