"""Approval: asked for, bound to one digest, and demanded before a plan is published and before a move begins."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_steward.assignment import Move, MoveReason
from kafka_steward.errors import PlanError
from kafka_steward.execution.approval_request import make_approval_request
from kafka_steward.execution.document_repair import repair_documents
from kafka_steward.execution.lifecycle import request_cancel, resume_plan
from kafka_steward.execution.moves import HoldReason
from kafka_steward.execution.plan_report import plan_summary
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.publishing import (
    approval_exemption,
    approve_plan,
    publish_plan,
    refuse_unapproved,
    reject_plan,
)
from kafka_steward.execution.runner import PlanRunner
from kafka_steward.journal import paths
from kafka_steward.journal.plans import Approval
from kafka_steward.journal.records import PlanRecord, PlanStatus
from kafka_steward.journal.store import Journal
from kafka_steward.settings import Settings
from tests.builders import cluster, plan_with, snapshot_of
from tests.simulated_plan import WHO, delete, memory_journal, move, overwrite, plan_of, simulated
from tests.simulator import Simulator

DIGEST = "3f2a91c0" * 8
OTHER = "77b1d2ee" * 8
YES = Approval(DIGEST, "ann", "looks right", 5)


@pytest.fixture
def journal() -> Journal:
    return memory_journal(Simulator.of("1a 2b 3c", "t: 123"))


def test_the_first_approval_of_a_digest_counts_and_a_retry_changes_nothing(journal: Journal) -> None:
    assert approve_plan(journal, YES, WHO) == refuse_unapproved(journal, DIGEST) == YES
    (row,) = journal.audit.rows(plan=DIGEST)
    assert (row.entry.action.value, row.entry.who.person, row.entry.who.dag_id) == ("approve", "ann", "heal")
    assert row.entry.after["answered_ms"] == 5
    with pytest.raises(PlanError, match="Plan 77b1d2ee77b1 was not submitted: it is not approved"):
        refuse_unapproved(journal, OTHER)
    again = approve_plan(journal, Approval(DIGEST, "bob", "me too", 9), WHO)
    assert (again.person, refuse_unapproved(journal, DIGEST).person) == ("ann", "ann")
    assert [row.entry.who.person for row in journal.audit.rows(plan=DIGEST)] == ["ann", "bob"]
    approve_plan(journal, YES, replace(WHO, try_number=2))
    assert len(journal.audit.rows(plan=DIGEST)) == 2


@pytest.mark.parametrize("text", ["", "yes", "{}", Approval(OTHER, "ann").to_json()])
def test_what_is_no_approval_of_this_plan_approves_nothing(journal: Journal, text: str) -> None:
    journal.tree.create(paths.approval(DIGEST), text)
    with pytest.raises(PlanError, match="it is not approved"):
        refuse_unapproved(journal, DIGEST)
    assert approve_plan(journal, YES, WHO) == refuse_unapproved(journal, DIGEST) == YES


def test_a_rejection_is_told_and_approves_nothing(journal: Journal) -> None:
    reject_plan(journal, DIGEST, WHO, person=None, reason="nobody answered")
    (row,) = journal.audit.rows(plan=DIGEST)
    assert (row.entry.action.value, row.entry.who.person, row.entry.reason) == (
        "reject", None, "rejected: nobody answered",
    )  # fmt: skip
    with pytest.raises(PlanError):
        refuse_unapproved(journal, DIGEST)


def test_a_plan_is_published_only_with_its_own_approval() -> None:
    simulator, journal = simulated("1a 2b 3c 4a", "t: 123 231")
    plan = plan_of(simulator, [move("t-0", "123", "423")], operation="rebalance")

    def publish() -> PlanRecord:
        return publish_plan(ClusterContext(simulator, journal, Settings(), WHO), plan, require_approval=True)

    with pytest.raises(PlanError, match="it is not approved"):
        publish()
    assert (journal.plans.get(plan.digest), journal.slot.holders()) == (None, ())
    approve_plan(journal, Approval(plan.digest, "ann"), WHO)
    assert publish().digest == plan.digest


@pytest.mark.parametrize(
    ("moves", "unattended", "above", "without"),
    [
        ([move("t-0", "12", "34", size=5)], True, 10, "a scheduled run moves 10 bytes; approval is required above 10"),
        ([move("t-0", "12", "34", size=5), move("t-1", "12", "13", size=1)], True, 10, ""),
        ([], True, None, ""),
        ([], True, 0, "a scheduled run moves 0 bytes; approval is required above 0"),
        ([move("t-0", "12", "34", size=5)], False, 10, ""),
        ([replace(move("t-0", "12", "13"), size_bytes=None)], True, 10, ""),
        (
            [replace(move("t-0", "12", "21"), size_bytes=None)],
            True,
            10,
            "a scheduled run moves 0 bytes; approval is required above 10",
        ),
    ],
)
def test_only_a_small_plan_of_a_scheduled_run_goes_without_a_person(
    moves: list[Move], unattended: bool, above: int | None, without: str
) -> None:
    assert approval_exemption(moves, unattended=unattended, approve_above=above) == without


ONE_AT_A_TIME = Settings(throttle=0, max_in_per_broker=1, max_attempts=3)


def published() -> tuple[Simulator, Journal, str]:
    """Two partitions, one after the other, of a plan that was approved."""
    simulator, journal = simulated("1a 2b 3c 4a", "t: 123 231")
    moves = [move("t-0", "123", "423"), move("t-1", "231", "431", position=1)]
    plan = plan_of(simulator, moves, operation="rebalance")
    approve_plan(journal, Approval(plan.digest, "ann"), WHO)
    record = publish_plan(ClusterContext(simulator, journal, ONE_AT_A_TIME, WHO), plan, require_approval=True)
    assert record.needs_approval
    return simulator, journal, plan.digest


def test_what_flies_lands_and_nothing_begins_while_the_approval_is_gone() -> None:
    simulator, journal, digest = published()
    runner = PlanRunner(ClusterContext(simulator, journal, ONE_AT_A_TIME, WHO), digest)
    runner.step()
    delete(journal, paths.approval(digest))
    for _ in range(12):
        simulator.tick()
        progress = runner.step()
    assert (progress.status, progress.completed, progress.waiting) == (PlanStatus.RUNNING, 1, 1)
    assert [held.code for held in progress.held] == [HoldReason.NOT_APPROVED]
    assert f"plan {digest[:12]} is not approved" in progress.sentence
    resume_plan(journal, digest, WHO)
    assert PlanRunner(ClusterContext(simulator, journal, ONE_AT_A_TIME, WHO), digest).step().in_flight == 0
    approve_plan(journal, Approval(digest, "bob"), WHO)
    assert runner.step().in_flight == 1


def test_a_cancel_needs_no_approval() -> None:
    simulator, journal, digest = published()
    runner = PlanRunner(ClusterContext(simulator, journal, ONE_AT_A_TIME, WHO), digest)
    runner.step()
    delete(journal, paths.approval(digest))
    request_cancel(journal, digest, who=WHO, reason="enough")
    for _ in range(5):
        progress = runner.step()
    assert progress.status is PlanStatus.CANCELLED
    assert simulator.topics[next(iter(simulator.topics))].replicas == (1, 2, 3)


def test_a_record_that_is_made_anew_still_needs_its_approval() -> None:
    _, journal, digest = published()
    overwrite(journal, paths.plan(digest), "{")
    assert repair_documents(journal, WHO)
    record = journal.plans.get(digest)
    assert record is not None
    assert record.needs_approval


def test_a_plan_that_was_published_without_the_demand_needs_none() -> None:
    simulator, journal = simulated("1a 2b 3c 4a", "t: 123")
    plan = plan_of(simulator, [move("t-0", "123", "423")], operation="apply")
    record = publish_plan(ClusterContext(simulator, journal, ONE_AT_A_TIME, WHO), plan)
    assert not record.needs_approval
    assert PlanRunner(ClusterContext(simulator, journal, ONE_AT_A_TIME, WHO), plan.digest).step().in_flight == 1


SNAPSHOT = cluster("1a 2b 3b 4", "a_b: 123 123")
MOVES = [Move("a_b", n, (1, 2, 3), (1, 2, 4), 0, n, MoveReason.BALANCE, size_bytes=1_500) for n in range(20)]


@pytest.mark.parametrize(
    ("operation", "states", "what"),
    [
        ("drain", {3: "draining"}, "drain broker 3"),
        ("drain", {4: "draining", 3: "draining"}, "drain brokers 3, 4"),
        ("heal", {2: "failed", 3: "draining"}, "heal broker 2"),
        ("expand", {4: "new"}, "expand broker 4"),
        ("rebalance", {4: "new"}, "rebalance"),
    ],
)
def test_the_subject_names_the_cluster_the_brokers_and_the_cost(
    operation: str, states: dict[int, str], what: str
) -> None:
    rows = [{**row, "state": states.get(row["broker"], "live")} for row in SNAPSHOT.brokers.to_pylist()]
    snapshot = snapshot_of(rows, SNAPSHOT.partitions.to_pylist())
    proof = {"operation": operation, "replicas_moved": 20, "bytes_moved": 30_000}
    request = make_approval_request(
        plan_with(DIGEST, proof, MOVES), snapshot, connection="production", requested_by="ann"
    )
    assert request.subject == f"production: {what}: move 20 replicas, 30.0 kB?"


def test_a_single_replica_and_a_proof_without_bytes() -> None:
    plan = plan_with(DIGEST, {"operation": "apply", "replicas_moved": 1, "bytes_moved": None}, MOVES[:1])
    assert make_approval_request(plan, SNAPSHOT, connection="c", requested_by="ann").subject == (
        "c: apply: move 1 replica, 0 B?"
    )


def test_the_page_says_who_asked_and_lists_few_moves_above_the_buttons() -> None:
    plan = plan_with(DIGEST, {"operation": "apply", "replicas_moved": 20, "bytes_moved": 0}, MOVES)
    request = make_approval_request(plan, SNAPSHOT, connection="p_1", requested_by="*ann*")
    head, _, page = request.body.partition("\n\n")
    assert head == "Cluster: connection **p\\_1**. Requested by \\*ann\\*."
    assert page == plan_summary(plan, SNAPSHOT, moves_shown=8)
    assert page.count("| 1, 2, 3 | 1, 2, 4 |") == 8
    assert page.endswith("… and 12 more.")
