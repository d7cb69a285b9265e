"""Whatever is asked for of a plan has its row in the audit trail, also within one second and without an effect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.execution.effects import elect_preferred_leaders
from kafka_steward.execution.plans import cancel as cancel_signal
from kafka_steward.execution.plans.approval import approve_plan, reject_plan
from kafka_steward.execution.plans.cancel import consume_cancel_signal, send_cancel_signal
from kafka_steward.execution.plans.lifecycle import abandon_plan, change_plan_throttle, request_cancel, resume_plan
from kafka_steward.execution.plans.slot import claim_slot, release_slot
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Actor, AuditRecord, event_number
from kafka_steward.journal.kip_documents import CancelRequest
from kafka_steward.journal.mailbox import read_one
from kafka_steward.journal.records import Approval, PlanRecord, PlanStatus
from kafka_steward.journal.sql.plans import PlanTable
from kafka_steward.journal.store import Journal
from tests.present import present
from tests.simulated_plan import WHO, move
from tests.simulator import Simulator

ANN, BOB = Actor(person="ann"), Actor(person="bob")
PLAN, HEAL = "a" * 64, "b" * 64


@pytest.fixture
def plan(journal: Journal) -> str:
    journal.plans.publish(PlanRecord(PLAN, journal.cluster_id, "apply"), [move("t-0", "123", "423")])
    return PLAN


def trail(journal: Journal, plan: str = PLAN) -> list[tuple[str, str | None, str]]:
    rows = [row.entry for row in journal.audit.rows(plan=plan)]
    return [(entry.action.value, entry.who.person, entry.reason) for entry in rows]


def test_of_requests_within_one_second_each_has_its_row(journal: Journal, plan: str) -> None:
    change_plan_throttle(journal, plan, 20, ANN, "peak hour")
    change_plan_throttle(journal, plan, 30, BOB, "it takes too long")
    request_cancel(journal, plan, who=ANN, reason="wrong racks")
    request_cancel(journal, plan, who=BOB, reason="all of it", scope="plan")
    assert trail(journal) == [
        ("request", "ann", "throttle: peak hour"),
        ("request", "bob", "throttle: it takes too long"),
        ("request", "ann", "cancel: wrong racks"),
        ("request", "bob", "cancel, and roll back completed moves: all of it"),
    ]


Ask = Callable[[Journal, Actor], object]
ASKED: dict[str, Ask] = {
    "cancel": lambda journal, who: request_cancel(journal, PLAN, who=who, reason="why"),
    "throttle": lambda journal, who: change_plan_throttle(journal, PLAN, 20, who, "why"),
    "approve": lambda journal, who: approve_plan(journal, Approval(PLAN, who.person), who),
    "reject": lambda journal, who: reject_plan(journal, PLAN, who, person=who.person, reason="why"),
}


@pytest.mark.parametrize(
    ("asking", "noted"),
    [
        ((ANN, BOB, BOB), ["ann", "bob", "bob"]),
        ((WHO, replace(WHO, try_number=2), replace(WHO, run_id="another", person="bob")), ["ada", "bob"]),
    ],
    ids=["for what is there already", "in a further try of a task"],
)
@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_each_request_has_a_row_but_that_of_a_further_try(
    journal: Journal, plan: str, ask: Ask, asking: tuple[Actor, ...], noted: list[str]
) -> None:
    for who in asking:
        ask(journal, who)
    assert [who for _, who, _ in trail(journal)] == noted


def test_a_run_that_a_signal_starts_repeats_its_request_and_has_no_second_row(journal: Journal, plan: str) -> None:
    request_cancel(journal, plan, who=ANN, reason="peak")
    request_cancel(journal, plan, who=Actor("cancel", "asset_triggered", "cancel", 1), reason="no reason was given")
    assert trail(journal) == [("request", "ann", "cancel: peak")]


def test_a_task_that_is_cleared_and_has_an_effect_again_has_a_row_again(journal: Journal, plan: str) -> None:
    for rate, who in ((20, WHO), (50, BOB), (20, replace(WHO, try_number=2))):
        change_plan_throttle(journal, plan, rate, who, "why")
    assert [who for _, who, _ in trail(journal)] == ["ada", "bob", "ada"]


def test_a_request_that_one_command_repeats_has_one_row(journal: Journal, plan: str) -> None:
    number = event_number()
    for _ in range(3):
        request_cancel(journal, plan, who=ANN, reason="why", number=number)
    assert trail(journal) == [("request", "ann", "cancel: why")]


def test_each_signal_has_its_row_however_often_it_is_read(
    journal: Journal, plan: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Simulator.of("1a 2b 3c", "t: 123")
    for who in (ANN, BOB):
        send_cancel_signal(journal, CancelRequest(plan=plan, person=who.person, reason="why"), who)
        with monkeypatch.context() as patched:
            patched.setattr(cancel_signal, "delete_or_quarantine", _killed)
            with pytest.raises(KeyboardInterrupt):
                consume_cancel_signal(cluster, journal, Actor(dag_id="watch"))
        consume_cancel_signal(cluster, journal, Actor(dag_id="watch"))
        assert read_one(journal.mailbox, paths.CANCEL_IN_PROGRESS) is None
    signalled = f"The cancel of plan {plan[:12]} is signalled: why."
    assert trail(journal) == [
        ("request", "ann", signalled),
        ("request", "ann", "cancel: why"),
        ("request", "bob", signalled),
        ("request", "bob", "cancel: why"),
    ]


def _killed(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_a_plan_that_is_stuck_and_resumed_again_within_one_second_is_so_in_the_trail(
    journal: Journal, plan: str
) -> None:
    for who in (ANN, BOB):
        journal.plans.update(present(journal.plans.get(plan)), status=PlanStatus.STUCK)
        resume_plan(journal, plan, who, "the disk is empty again")
    assert [(action, who) for action, who, _ in trail(journal)] == [("resume", "ann"), ("resume", "bob")]


def test_a_plan_that_is_preempted_again_within_one_second_is_so_in_the_trail(journal: Journal, plan: str) -> None:
    claim_slot(journal, present(journal.plans.get(plan)), ANN)
    for digest in (HEAL, "c" * 64):
        heal = PlanRecord(digest, journal.cluster_id, "heal", auto_generated=True)
        claim_slot(journal, journal.plans.publish(heal, []), WHO)
        release_slot(journal, digest, WHO)
    assert [action for action, _, _ in trail(journal)] == ["pause", "resume"] * 2


def test_each_election_is_in_the_trail(journal: Journal) -> None:
    cluster = Simulator.of("1a 2b 3c", "t: 123")
    for _ in range(2):
        cluster.topics[TopicPartition("t", 0)].leader = 2
        elect_preferred_leaders(cluster, journal, who=ANN, plan=PLAN)
    assert [(action, who) for action, who, _ in trail(journal)] == [("elect", "ann")] * 2


def test_a_plan_that_ends_after_it_was_abandoned_has_both_rows(journal: Journal, plan: str) -> None:
    abandon_plan(journal, plan, ANN, "enough")
    journal.audit.record(AuditRecord(Action.FINISH, "It ended.", plan=plan))
    assert [reason for _, _, reason in trail(journal)] == [f"Plan {plan[:12]} was abandoned: enough", "It ended."]


def test_the_number_of_an_event_is_no_number_of_a_submission() -> None:
    numbers = {event_number() for _ in range(1000)}
    assert len(numbers) == 1000
    assert event_number("the", 1) == event_number("the", 1) != event_number("the", 2)
    for number in (*numbers, event_number("the", 1)):
        assert number < 2**63
        assert AuditRecord(Action.ELECT, "", plan="p", topic="t", partition=0, attempt=number).submission is None


@pytest.mark.parametrize("ask", [ASKED["cancel"], ASKED["throttle"]], ids=["cancel", "throttle"])
def test_a_request_that_is_killed_before_its_effect_leaves_at_most_a_row_of_its_own(
    journal: Journal, plan: str, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(PlanTable, "change", _killed)
        with pytest.raises(KeyboardInterrupt):
            ask(journal, ANN)
    assert trail(journal) == [], "the row is taken back with the rest"
    ask(journal, BOB)
    assert [who for _, who, _ in trail(journal)] == ["bob"]
