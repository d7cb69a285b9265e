"""What people are told, and that they are told once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import DownstreamTasksSkipped

from kafka_steward.assignment import Move, MoveReason
from kafka_steward.cluster.state import Broker, Partition, Snapshot
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.journal.kip_documents import CancelRequest
from kafka_steward.journal.records import MoveRow, MoveState, PlanRecord, PlanStatus
from kafka_steward.operators.report import ReportPlanOperator
from kafka_steward.operators.review import ReviewPlanOperator
from tests.airflow_home import context

PLAN = {"uri": "/plan", "digest": "3f2a91c0" * 8, "replicas_moved": 6, "lower_bound": 6, "partitions": 5, "unplaced": 0}


class People:
    """Remembers what they were told."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.sentences: list[str] = []

    def __call__(self, told: Any) -> None:
        self.events.append(told["kafka_steward"]["event"])
        self.sentences.append(told["kafka_steward"]["sentence"])


def reviewing(plan: dict[str, Any], **more: Any) -> ReviewPlanOperator:
    return ReviewPlanOperator(task_id="review", plan=plan, dag=DAG("heal", schedule=None), **more)


def told(mode: str, unplaced: int) -> People:
    people = People()
    plan = {**PLAN, "unplaced": unplaced}
    operator = reviewing(plan, mode=mode, on_not_healable=people)
    try:
        operator.execute(context())
    except DownstreamTasksSkipped:
        assert mode == "report"
    else:
        assert mode == "heal"
    return people


def test_a_report_tells_what_cannot_be_healed_and_a_heal_leaves_it_to_its_end() -> None:
    assert told("heal", unplaced=2).events == []
    assert told("report", unplaced=0).events == []
    people = told("report", unplaced=2)
    assert people.events == ["not_healable"]
    assert "moves 6 replicas of 5 partitions; no plan can move fewer than 6." in people.sentences[0]
    assert people.sentences[0].endswith("2 partitions cannot be placed; proof.json says why. It is at /plan.")


def test_a_heal_goes_on_with_an_empty_plan() -> None:
    empty = {**PLAN, "replicas_moved": 0, "lower_bound": 0, "partitions": 0}
    assert reviewing(empty, mode="heal").execute(context())["stop"] == ""
    with pytest.raises(DownstreamTasksSkipped):
        reviewing(empty).execute(context())


@pytest.mark.parametrize(
    ("isr", "status", "event", "end"),
    [
        ({1, 2}, PlanStatus.COMPLETED, "healed", "Every partition of the cluster is fully replicated."),
        ({1}, PlanStatus.COMPLETED, "not_healable", "under-replicated, 1 that this plan left. Dead brokers: 2."),
        ({1, 2}, PlanStatus.CANCELLED, "not_healable", "Dead brokers: none."),
    ],
)
def test_the_report_at_the_end(
    monkeypatch: pytest.MonkeyPatch, isr: set[int], status: PlanStatus, event: str, end: str
) -> None:
    cancelled, left = status is PlanStatus.CANCELLED, 2 - len(isr)
    record = PlanRecord("3f2a", "c", "heal", status=status, cancel=CancelRequest(person="ann", reason="not now"))
    people = People()
    facts = heal_reported(monkeypatch, people, snapshot_of(1, isr), record, left=left)
    became = "Plan 3f2a was cancelled by ann (not now); none of its 0 moves had completed."
    begins = f"Not all of broker 3 was healed. {became}"
    assert facts["sentence"].startswith(begins if cancelled else "Healed broker 3: 6 replicas of 5 partitions moved. ")
    assert facts["sentence"].endswith(end)
    assert people.events == [event]


def test_a_heal_whose_replacement_leads_nothing_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    record = PlanRecord("3f2a", "c", "heal", status=PlanStatus.COMPLETED)
    rows = [MoveRow(Move("orders", 0, (1, 3), (1, 2), 0, 0, MoveReason.BROKER_FAILED), MoveState.COMPLETED)]
    facts = heal_reported(monkeypatch, People(), snapshot_of(4, {1, 2}), record, rows=rows)
    assert "fully replicated. Leaders are uneven: broker 2 leads 0 of its share of 2, because" in facts["sentence"]


@pytest.mark.parametrize(
    ("reverted", "sentence"),
    [
        (
            {"status": PlanStatus.ROLLED_BACK, "rolled_back_by": "77ab", "not_taken_back": 0},
            ", and rolled back by plan 77ab: its partitions have their original replicas.",
        ),
        (
            {"status": PlanStatus.CANCELLED, "rolled_back_by": "77ab", "not_taken_back": 1},
            ", and reverted by plan 77ab, except for 1 partitions.",
        ),
        (
            {"status": PlanStatus.CANCELLED},
            "; 1 of 1 moves had completed, and are still to be reverted. 1 partitions were moved.",
        ),
    ],
    ids=["rolled back", "reverted in part", "not reverted yet"],
)
def test_what_a_rollback_reverted_is_not_reported_as_moved(
    monkeypatch: pytest.MonkeyPatch, reverted: dict[str, Any], sentence: str
) -> None:
    cancel = CancelRequest(scope="plan", person="ann", reason="not now")
    record = PlanRecord("3f2a", "c", "rebalance", cancel=cancel, **reverted)
    rows = [MoveRow(Move("orders", 0, (1, 3), (1, 2), 0, 0, MoveReason.BALANCE), MoveState.COMPLETED)]
    journal_of(monkeypatch, snapshot_of(1, {1, 2}), record, rows)
    people = People()
    report = ReportPlanOperator(
        task_id="report", plan=PLAN, submitted={"digest": "3f2a", "status": record.status.value}, on_done=people
    )
    facts = report.execute(context())
    assert facts["sentence"] == f"Plan 3f2a was cancelled by ann (not now){sentence}"
    assert (people.events, people.sentences) == (["done"], [facts["sentence"]])


def snapshot_of(partitions: int, isr: set[int]) -> Snapshot:
    brokers = {number: Broker(number, "h", 1, fenced=number not in isr) for number in (1, 2)}
    found = [Partition("orders", number, (1, 2), frozenset(isr), 1) for number in range(partitions)]
    return Snapshot("c", 1, brokers, {each.topic_partition: each for each in found})


def heal_reported(
    monkeypatch: pytest.MonkeyPatch,
    people: People,
    snapshot: Snapshot,
    record: PlanRecord,
    *,
    left: int = 0,
    rows: Sequence[MoveRow] = (),
) -> dict[str, Any]:
    journal_of(monkeypatch, snapshot, record, rows)
    report = ReportPlanOperator(
        task_id="report", verify="heal", brokers=[3], plan=PLAN, submitted={"partitions": 5, "left": left},
        on_done=people, on_not_healable=people,
    )  # fmt: skip
    return report.execute(context())


def journal_of(
    monkeypatch: pytest.MonkeyPatch, snapshot: Snapshot, record: PlanRecord, rows: Sequence[MoveRow]
) -> None:
    """Let the hook open a journal with one plan, and a cluster in the state of `snapshot`."""
    opened = SimpleNamespace(
        cluster=SimpleNamespace(snapshot=lambda: snapshot),
        journal=SimpleNamespace(
            audit=SimpleNamespace(rows=lambda **_: []),
            plans=SimpleNamespace(
                get=lambda digest: None if digest == record.rolled_back_by else record, rows=lambda _: rows
            ),
        ),
    )
    monkeypatch.setattr(StewardHook, "open", lambda _: nullcontext(opened))
