"""How documents become plans, and the plans of a journal as documents see them: which are theirs, and when to wait."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.document_api.document_plans import DocumentPlans, blocked_reason, publish_document_plan
from kafka_steward.document_api.partition_rules import ActiveReassignment
from kafka_steward.document_api.request_documents import read_requests
from kafka_steward.document_api.request_intake import PartialCancel, RequestIntake, active_reassignments
from kafka_steward.errors import ClusterUnreachable, LockLost
from kafka_steward.execution.moves.in_flight import record_external_in_flight
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Actor
from kafka_steward.journal.kip_documents import CancelRequest, InFlight
from kafka_steward.journal.mailbox import read_one
from kafka_steward.journal.records import MoveState, PlanRecord, PlanStatus
from tests.documents import change_document
from tests.present import present
from tests.protocol.simulated_watch import WATCH, Yard, document
from tests.protocol.test_signal import Late
from tests.simulated_plan import move
from tests.simulator import Simulator

REQUEST, QUEUE = "/admin/reassignment_requests/request_0000000000@3", "/admin/reassign_partitions_queue@5"


def asked(yard: Yard, name: str, *sources: str, legacy: bool = False) -> PlanRecord:
    """Publish what documents asked for, a second after what was before."""
    yard.simulator.tick()
    before, after = {"t-0": ("12", "23"), "t-1": ("231", "234"), "t-2": ("312", "314")}[name]
    return publish_document_plan(
        yard.journal, [move(name, before, after)], sources=set(sources), legacy=legacy, who=WATCH
    )


def other(yard: Yard) -> str:
    """Publish a plan of a DAG, which gets the cluster."""
    yard.simulator.tick()
    plan = yard.publish([move("t-1", "231", "235")], operation="rebalance")
    return plan.digest


def read(yard: Yard) -> DocumentPlans:
    plans = DocumentPlans(yard.journal)
    plans.read_unfinished()
    return plans


def end(yard: Yard, record: PlanRecord, **changes: Any) -> None:
    yard.journal.plans.update(present(yard.journal.plans.get(record.digest)), status=PlanStatus.CANCELLED, **changes)


def test_what_documents_requested_and_what_others_did_are_distinguished_the_oldest_first(yard: Yard) -> None:
    rebalance = other(yard)
    first = asked(yard, "t-0", REQUEST, "/b@4")
    second = asked(yard, "t-2", QUEUE, legacy=True)
    plans = read(yard)
    assert [(plan.digest, plan.sources, plan.legacy) for plan in plans.requested] == [
        (first.digest, tuple(sorted([REQUEST, "/b@4"])), False),
        (second.digest, (QUEUE,), True),
    ]
    assert [record.digest for record in plans.others] == [rebalance]


def test_the_same_documents_by_another_route_or_with_another_target_are_another_plan(yard: Yard) -> None:
    digests = {
        asked(yard, "t-0", REQUEST).digest,
        asked(yard, "t-0", QUEUE).digest,
        asked(yard, "t-0", REQUEST, legacy=True).digest,
        asked(yard, "t-1", REQUEST).digest,
    }
    again = asked(yard, "t-0", REQUEST)
    assert len(digests) == 4
    assert again.digest in digests
    assert len(yard.journal.plans.latest(9)) == 4


def test_what_one_release_published_the_next_one_knows_again(yard: Yard) -> None:
    """By its digest: a process that dies between plan and document is gone on with after an upgrade, too."""
    moves = [replace(move("t-0", "12", "23"), topic_id="id-1")]
    record = publish_document_plan(yard.journal, moves, sources=[REQUEST], legacy=False, who=WATCH)
    assert (yard.journal.cluster_id, record.digest) == (
        "simulated",
        "8ce3e46439719b32b2e2eb986d807f73e26c028f61e3500d055565f119e89d89",
    )


def test_plans_of_different_partitions_share_the_slot_and_one_of_the_same_waits(yard: Yard) -> None:
    records = [asked(yard, name, source) for name, source in (("t-0", REQUEST), ("t-1", REQUEST), ("t-0", QUEUE))]
    assert yard.journal.slot.holders() == (records[0].digest, records[1].digest)
    assert yard.journal.slot.preempted_plans() == ()


def test_a_document_is_known_as_long_as_its_plan_is(yard: Yard) -> None:
    record = asked(yard, "t-0", REQUEST)
    asked(yard, "t-1", QUEUE)
    plans = read(yard)
    assert [plans.executes_document(each) for each in (REQUEST, QUEUE, "/b@4")] == [True, True, False]
    end(yard, record)
    plans.read_unfinished()
    assert [plan.sources for plan in plans.requested] == [(QUEUE,)]
    assert [plans.executes_document(each) for each in (REQUEST, QUEUE, "/b@4")] == [True, True, False]
    yard.simulator.tick()
    yard.journal.plans.purge(yard.simulator.now_ms)
    plans.read_unfinished()
    assert (plans.executes_document(REQUEST), plans.executes_document(QUEUE)) == (False, True)


@pytest.mark.parametrize(
    ("cancel", "rolls_back"), [(None, False), (CancelRequest(), False), (CancelRequest(scope="plan"), True)]
)
def test_a_rollback_that_was_requested_is_reported_once_the_plan_has_ended(
    yard: Yard, cancel: CancelRequest | None, rolls_back: bool
) -> None:
    record = yard.journal.plans.update(asked(yard, "t-0", REQUEST), cancel=cancel)
    plans = read(yard)
    assert not plans.pop_rollback_requested()
    end(yard, record)
    end(yard, asked(yard, "t-1", QUEUE))  # another that ends beside it, and was not asked for
    plans.read_unfinished()
    assert [plans.pop_rollback_requested(), plans.pop_rollback_requested()] == [rolls_back, False]


def test_documents_wait_while_a_heal_has_the_slot_and_only_then(yard: Yard) -> None:
    heal = yard.publish([move("t-1", "231", "235")], failed=(1,))
    why = f"plan {heal.digest[:12]} (heal) holds the plan slot until it ends"
    assert blocked_reason(yard.journal, read(yard)) == why
    assert blocked_reason(yard.journal, DocumentPlans(yard.journal)) == "", "of plans that were not read"
    yard.journal.slot.release(heal.digest)
    assert blocked_reason(yard.journal, read(yard)) == ""


def test_documents_wait_while_eight_plans_of_theirs_are_under_way(yard: Yard) -> None:
    for number in range(8):
        assert blocked_reason(yard.journal, read(yard)) == ""
        asked(yard, "t-0", f"/b@{number}")
    assert blocked_reason(yard.journal, read(yard)) == "8 plans that documents requested are in progress"


def test_whoever_does_it_is_in_the_record(yard: Yard) -> None:
    who = Actor(task_id="watch", person="ada")
    by_hand = "/admin/reassignment_requests/me@home@7"
    sources = [QUEUE, REQUEST, by_hand]
    record = publish_document_plan(yard.journal, [move("t-0", "12", "23")], sources=sources, legacy=False, who=who)
    expected = PlanRecord(
        record.digest,
        yard.journal.cluster_id,
        "apply",
        reason=f"requested by {QUEUE[:-2]}, {by_hand[:-2]}, {REQUEST[:-2]}",
        who=who,
        partitions=1,
        published_ms=yard.simulator.now_ms,
        stepped_ms=yard.simulator.now_ms,
        chunks=record.chunks,
        sources=(QUEUE, by_hand, REQUEST),
    )
    assert record == expected


T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def active(yard: Yard) -> dict[TopicPartition, ActiveReassignment]:
    plans = DocumentPlans(yard.journal)
    plans.read_unfinished()
    return active_reassignments(yard.journal, plans)


def test_what_is_in_flight_or_waits_is_read_from_its_plan_and_what_others_began_from_its_record() -> None:
    yard = Yard(max_in_flight=2)
    yard.ask("t-0 23", "t-1 234", legacy=True)
    record_external_in_flight(yard.journal.mailbox, {T2: InFlight((3, 1, 2), (3, 4, 5), legacy=True, top=3)})
    yard.simulator.alter({T2: (3, 4, 5)})
    yard.look()
    (record,) = yard.journal.plans.unfinished()
    assert yard.in_flight() == ["t-0", "t-2"]
    waits = f"plan {record.digest[:12]} has the same target, and has not submitted it: its turn has not come"
    assert active(yard) == {
        T0: ActiveReassignment((2, 3), (1, 2), legacy=True, plan=record.digest),
        T1: ActiveReassignment((2, 3, 4), (2, 3, 1), legacy=True, plan=record.digest, waits=waits),
        T2: ActiveReassignment((3, 4, 5), (3, 1, 2), legacy=True),
    }
    yard.journal.plans.set_move_states(record.digest, [T1], MoveState.DROPPED, fence=None)
    assert active(yard).keys() == {T0, T2}, "what is settled is not under way"


def test_moves_are_divided_into_chunks_of_the_setting() -> None:
    yard = Yard("t: 12 12 12 12 12", heal_chunk_size=2, max_in_flight=1)
    yard.ask(*(f"t-{number} 13" for number in range(5)))
    yard.look()
    (record,) = yard.journal.plans.unfinished()
    moves = [row.move for row in yard.journal.plans.rows(record.digest)]
    assert [(each.partition, each.chunk, each.position) for each in moves] == [(n, n // 2, n % 2) for n in range(5)]
    topic_id = yard.simulator.topics[T0].topic_id
    assert {(each.before, each.after, each.purpose, each.topic_id) for each in moves} == {
        ((1, 2), (1, 3), "given", topic_id)
    }
    assert len(record.chunks) == 3


@pytest.mark.parametrize(("told", "sizes"), [(True, [100, 7, None]), (False, [None, None, None])])
def test_the_size_of_each_is_that_on_its_leader_where_that_is_reported(told: bool, sizes: list[int | None]) -> None:
    yard = Yard(max_in_flight=1)
    if not told:
        yard.simulator.log_dirs = Mock(side_effect=ClusterUnreachable("Broker 1 does not answer."))  # type: ignore[method-assign]
    yard.simulator.topics[T1].held = {2: 7, 3: 8, 1: 9}  # broker 2 leads it
    del yard.simulator.topics[T2].held[3]  # which leads it
    yard.ask("t-0 23", "t-1 234", "t-2 314")
    yard.look()
    (record,) = yard.journal.plans.unfinished()
    assert [row.move.size_bytes for row in yard.journal.plans.rows(record.digest)] == sizes


class Silent:
    """A cluster that is asked for nothing but its snapshot and what is in flight."""

    def __init__(self, simulator: Simulator) -> None:
        self.snapshot, self.reassignments = simulator.snapshot, simulator.reassignments


def test_where_nothing_can_be_read_no_topic_is_asked_for(yard: Yard) -> None:
    yard.protocol = yard.new_watch(Silent(yard.simulator))
    yard.journal.mailbox.append(paths.REQUEST_PREFIX, "[]")
    assert len(yard.look().sentences) == 1


def test_what_someone_corrects_while_it_is_refused_is_theirs(yard: Yard) -> None:
    node = yard.journal.mailbox.append(paths.REQUEST_PREFIX, "[]")
    papers, _ = read_requests(yard.journal.mailbox)
    corrected = change_document(yard.journal.mailbox, node.path, document(["t-0 23"]))
    admitted = RequestIntake(yard.simulator, yard.journal, yard.settings, WATCH).accept(
        papers, DocumentPlans(yard.journal)
    )
    fault = f"{node.path} holds a list where an object is expected; correct or delete it."
    assert admitted.sentences == [f"{node.path} was not executed: {fault}"]
    assert read_one(yard.journal.mailbox, node.path) == corrected


# Taking partitions out of a plan again


def withdrawn(yard: Yard, cluster: Any, fence: Any, *partitions: TopicPartition) -> dict[TopicPartition, str]:
    (record,) = yard.journal.plans.unfinished()
    withdrawal = PartialCancel(cluster, yard.journal, record.digest, why="not wanted", who=WATCH, fence=fence)
    return withdrawal.run(partitions)


def test_only_what_is_to_come_out_comes_out(yard: Yard) -> None:
    yard.ask("t-0 23", "t-1 234")
    yard.look()
    with yard.journal.step_lock("here") as fence:
        assert withdrawn(yard, yard.simulator, fence, T0) == {}
    (record,) = yard.journal.plans.unfinished()
    assert [row.state for row in yard.journal.plans.rows(record.digest)] == [MoveState.DROPPED, MoveState.SUBMITTED]
    assert (yard.replicas("t-0"), yard.in_flight()) == ((1, 2), ["t-1"])


def test_a_cancel_that_the_cluster_does_not_show_yet_is_waited_for(yard: Yard) -> None:
    yard.ask("t-0 23", "t-1 234")
    yard.look()
    with yard.journal.step_lock("here") as fence:
        assert withdrawn(yard, Late(yard.simulator, 10**6), fence, T0) == {T0: "its cancel is in progress"}


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
    assert yard.in_flight() == ["t-0"]
    assert yard.journal.audit.rows(action=Action.CANCEL) == []
