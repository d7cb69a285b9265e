"""A plan that needs an approval begins nothing without it, whoever steps it: the first process, the watch, a resume."""

from __future__ import annotations

from kafka_steward.execution.document_repair import repair_documents
from kafka_steward.execution.lifecycle import request_cancel, resume_plan
from kafka_steward.execution.moves import HoldReason
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.publishing import approve_plan, publish_plan
from kafka_steward.execution.runner import PlanRunner
from kafka_steward.journal import paths
from kafka_steward.journal.plans import Approval
from kafka_steward.journal.records import PlanStatus
from kafka_steward.journal.store import Journal
from kafka_steward.settings import Settings
from tests.simulated_plan import WHO, memory_journal, move, plan_of
from tests.simulator import Simulator

ONE_AT_A_TIME = Settings(throttle=0, max_in_per_broker=1, max_attempts=3)


def published() -> tuple[Simulator, Journal, str]:
    """Two partitions, one after the other, of a plan that was approved."""
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231")
    journal = memory_journal(simulator)
    moves = [move("t-0", "123", "423"), move("t-1", "231", "431", position=1)]
    plan = plan_of(simulator, moves, operation="rebalance")
    approve_plan(journal, Approval(plan.digest, "ann"), WHO)
    record = publish_plan(ClusterContext(simulator, journal, ONE_AT_A_TIME, WHO), plan, require_approval=True)
    assert record.needs_approval
    return simulator, journal, plan.digest


def withdraw(journal: Journal, digest: str) -> None:
    node = journal.tree.get(paths.approval(digest))
    assert node is not None
    journal.tree.delete(node.path, version=node.version)


def test_what_flies_lands_and_nothing_begins_while_the_approval_is_gone() -> None:
    simulator, journal, digest = published()
    runner = PlanRunner(ClusterContext(simulator, journal, ONE_AT_A_TIME, WHO), digest)
    runner.step()
    withdraw(journal, digest)
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
    withdraw(journal, digest)
    request_cancel(journal, digest, who=WHO, reason="enough")
    for _ in range(5):
        progress = runner.step()
    assert progress.status is PlanStatus.CANCELLED
    assert simulator.topics[next(iter(simulator.topics))].replicas == (1, 2, 3)


def test_a_record_that_is_made_anew_still_needs_its_approval() -> None:
    _, journal, digest = published()
    node = journal.tree.get(paths.plan(digest))
    assert node is not None
    journal.tree.set(node.path, "{", version=node.version)
    assert repair_documents(journal, WHO)
    record = journal.plans.get(digest)
    assert record is not None
    assert record.needs_approval


def test_a_plan_that_was_published_without_the_demand_needs_none() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123")
    journal = memory_journal(simulator)
    plan = plan_of(simulator, [move("t-0", "123", "423")], operation="apply")
    record = publish_plan(ClusterContext(simulator, journal, ONE_AT_A_TIME, WHO), plan)
    assert not record.needs_approval
    assert PlanRunner(ClusterContext(simulator, journal, ONE_AT_A_TIME, WHO), plan.digest).step().in_flight == 1
