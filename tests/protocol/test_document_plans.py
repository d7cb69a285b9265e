"""The plans of a journal as documents see them: which they asked for, which not, and when they must wait."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.document_api.document_plans import (
    DocumentPlans,
    blocked_reason,
    has_legacy_source,
    partitions_of_others,
    publish_document_plan,
)
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.publishing import publish_plan
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.kip_documents import CancelRequest
from kafka_steward.journal.records import PlanRecord, PlanStatus
from tests.protocol.simulated_watch import WATCH, Yard
from tests.simulated_plan import WHO, move, plan_of

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
    plan = plan_of(yard.simulator, [move("t-1", "231", "235")], operation="rebalance")
    publish_plan(ClusterContext(yard.simulator, yard.journal, yard.settings, WHO), plan)
    return plan.digest


def read(yard: Yard) -> DocumentPlans:
    plans = DocumentPlans(yard.journal)
    plans.read_unfinished()
    return plans


def end(yard: Yard, record: PlanRecord, **changes: Any) -> None:
    found = yard.journal.plans.get(record.digest)
    assert found is not None
    yard.journal.plans.update(found, status=PlanStatus.CANCELLED, **changes)


def test_what_documents_asked_for_and_what_others_did_are_told_apart_the_oldest_first() -> None:
    yard = Yard()
    rebalance = other(yard)
    first = asked(yard, "t-0", REQUEST, "/b@4")
    second = asked(yard, "t-2", QUEUE, legacy=True)
    plans = read(yard)
    assert [(plan.digest, plan.sources, has_legacy_source(plan)) for plan in plans.requested] == [
        (first.digest, frozenset({REQUEST, "/b@4"}), False),
        (second.digest, frozenset({QUEUE}), True),
    ]
    assert [record.digest for record in plans.others] == [rebalance]


def test_the_same_documents_by_another_route_or_with_another_target_are_another_plan() -> None:
    yard = Yard()
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


def test_what_one_release_published_the_next_one_knows_again() -> None:
    """By its digest: a process that dies between plan and document is gone on with after an upgrade, too."""
    yard = Yard()
    moves = [replace(move("t-0", "12", "23"), topic_id="id-1")]
    record = publish_document_plan(yard.journal, moves, sources=[REQUEST], legacy=False, who=WATCH)
    assert (yard.journal.cluster_id, record.digest) == (
        "simulated",
        "8ce3e46439719b32b2e2eb986d807f73e26c028f61e3500d055565f119e89d89",
    )


def test_plans_of_different_partitions_share_the_slot_and_one_of_the_same_waits() -> None:
    yard = Yard()
    records = [asked(yard, name, source) for name, source in (("t-0", REQUEST), ("t-1", REQUEST), ("t-0", QUEUE))]
    assert yard.journal.slot.holders() == (records[0].digest, records[1].digest)
    assert yard.journal.slot.preempted_plans() == ()


def test_a_document_is_known_as_long_as_its_plan_is() -> None:
    yard = Yard()
    record = asked(yard, "t-0", REQUEST)
    asked(yard, "t-1", QUEUE)
    plans = read(yard)
    assert (plans.executes_document(REQUEST), plans.executes_document(QUEUE), plans.executes_document("/b@4")) == (
        True,
        True,
        False,
    )
    end(yard, record)
    plans.read_unfinished()
    assert [plan.sources for plan in plans.requested] == [{QUEUE}]
    assert (plans.executes_document(REQUEST), plans.executes_document(QUEUE), plans.executes_document("/b@4")) == (
        True,
        True,
        False,
    )
    yard.simulator.tick()
    yard.journal.plans.purge(yard.simulator.now_ms)
    plans.read_unfinished()
    assert (plans.executes_document(REQUEST), plans.executes_document(QUEUE)) == (False, True)


def test_what_has_ended_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    yard = Yard()
    end(yard, asked(yard, "t-0", REQUEST))
    running = asked(yard, "t-1", QUEUE)
    plans = read(yard)
    seen: list[str] = []
    real = yard.journal.plans.get

    def get(digest: str) -> PlanRecord | None:
        seen.append(digest)
        return real(digest)

    monkeypatch.setattr(yard.journal.plans, "get", get)
    plans.read_unfinished()
    assert seen == [running.digest]


@pytest.mark.parametrize("text", ["{", '{"version": 9}'])
def test_a_record_that_cannot_be_read_hides_no_other(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    yard = Yard()
    children = yard.journal.tree.children
    monkeypatch.setattr(yard.journal.tree, "children", lambda path: [*children(path), "deleted-meanwhile"])
    yard.journal.tree.create(paths.plan("0"), text)
    yard.journal.tree.create(paths.plan("f" * 64), text)
    record = asked(yard, "t-0", REQUEST)
    assert [plan.digest for plan in read(yard).requested] == [record.digest]


@pytest.mark.parametrize("garbled", [None, 7, [REQUEST], {}])
def test_where_a_record_does_not_say_which_documents_none_is_known(garbled: Any) -> None:
    yard = Yard()
    record = asked(yard, "t-0", REQUEST, legacy=True)
    yard.journal.plans.update(record, extra={"asked": garbled})
    (plan,) = read(yard).requested
    assert (plan.digest, plan.sources, has_legacy_source(plan)) == (record.digest, frozenset(), False)


@pytest.mark.parametrize(
    ("cancel", "rolls_back"),
    [(None, False), (CancelRequest(), False), (CancelRequest(scope="plan"), True)],
)
def test_a_rollback_that_was_asked_for_is_told_once_the_plan_has_ended(
    cancel: CancelRequest | None, rolls_back: bool
) -> None:
    yard = Yard()
    record = yard.journal.plans.update(asked(yard, "t-0", REQUEST), cancel=cancel)
    plans = read(yard)
    assert not plans.pop_rollback_requested()
    end(yard, record)
    end(yard, asked(yard, "t-1", QUEUE))  # another that ends beside it, and was not asked for
    plans.read_unfinished()
    assert [plans.pop_rollback_requested(), plans.pop_rollback_requested()] == [rolls_back, False]


def test_documents_start_beside_a_plan_of_a_dag_but_for_its_partitions() -> None:
    yard = Yard()
    rebalance = other(yard)
    asked(yard, "t-0", REQUEST)
    plans = read(yard)
    assert blocked_reason(yard.journal, plans) == ""
    assert partitions_of_others(yard.journal, plans) == {
        TopicPartition("t", 1): f"t-1 is moved by plan {rebalance[:12]} (rebalance) until it ends"
    }


def test_documents_wait_while_a_heal_has_the_slot_and_only_then() -> None:
    yard = Yard()
    heal = plan_of(yard.simulator, [move("t-1", "231", "235")], failed=(1,))
    publish_plan(ClusterContext(yard.simulator, yard.journal, yard.settings, WHO), heal)
    why = f"plan {heal.digest[:12]} (heal) holds the plan slot until it ends"
    assert blocked_reason(yard.journal, read(yard)) == why
    assert blocked_reason(yard.journal, DocumentPlans(yard.journal)) == "", "of plans that were not read"
    yard.journal.slot.release(heal.digest)
    assert blocked_reason(yard.journal, read(yard)) == ""


def test_documents_wait_while_eight_plans_of_theirs_are_under_way() -> None:
    yard = Yard()
    for number in range(8):
        assert blocked_reason(yard.journal, read(yard)) == ""
        asked(yard, "t-0", f"/b@{number}")
    assert blocked_reason(yard.journal, read(yard)) == "8 plans that documents requested are in progress"


def test_whoever_does_it_is_in_the_record() -> None:
    yard = Yard()
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
        extra={"asked": {"sources": [QUEUE, by_hand, REQUEST], "legacy": False}},
    )
    assert replace(record, source=None) == expected
