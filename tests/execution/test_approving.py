"""Approval: bound to one digest, written down with who and when, and demanded before a plan is published."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_steward.assignment import Move
from kafka_steward.errors import PlanError
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.publishing import (
    approval_exemption,
    approve_plan,
    publish_plan,
    refuse_unapproved,
    reject_plan,
)
from kafka_steward.journal import paths
from kafka_steward.journal.plans import Approval
from kafka_steward.journal.records import PlanRecord
from kafka_steward.journal.store import Journal
from kafka_steward.settings import Settings
from tests.simulated_plan import WHO, memory_journal, move, plan_of
from tests.simulator import Simulator

DIGEST = "3f2a91c0" * 8
OTHER = "77b1d2ee" * 8
YES = Approval(DIGEST, "ann", "looks right", 5)


@pytest.fixture
def journal() -> Journal:
    return memory_journal(Simulator.of("1a 2b 3c", "t: 123"))


def test_the_journal_says_who_approved_which_digest_and_when(journal: Journal) -> None:
    assert approve_plan(journal, YES, WHO) == YES
    assert refuse_unapproved(journal, DIGEST) == YES
    (row,) = journal.audit.rows(plan=DIGEST)
    assert (row.entry.action.value, row.entry.who.person, row.entry.who.dag_id) == ("approve", "ann", "heal")
    assert row.entry.after["answered_ms"] == 5


def test_the_first_approval_counts_and_a_retry_changes_nothing(journal: Journal) -> None:
    approve_plan(journal, YES, WHO)
    again = approve_plan(journal, Approval(DIGEST, "bob", "me too", 9), WHO)
    assert (again.person, refuse_unapproved(journal, DIGEST).person) == ("ann", "ann")
    assert [row.entry.who.person for row in journal.audit.rows(plan=DIGEST)] == ["ann", "bob"]
    approve_plan(journal, YES, replace(WHO, try_number=2))
    assert len(journal.audit.rows(plan=DIGEST)) == 2


def test_an_approval_holds_for_no_other_digest(journal: Journal) -> None:
    approve_plan(journal, YES, WHO)
    with pytest.raises(PlanError, match="Plan 77b1d2ee77b1 was not submitted: it is not approved"):
        refuse_unapproved(journal, OTHER)


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
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231")
    journal = memory_journal(simulator)
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
