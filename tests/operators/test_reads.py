"""A process reads and verifies each snapshot and each plan once, however many parts of it use them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import pyarrow as pa
import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from kafka_steward.operators.plan import PlanReassignmentOperator
from kafka_steward.operators.rebalance import PlanRebalanceOperator
from kafka_steward.operators.review import ReviewPlanOperator
from kafka_steward.planning.files.storage import Folder
from kafka_steward.planning.spark import job
from tests.airflow_home import context
from tests.operators.test_approve import Page, asked, page
from tests.operators.test_workflow import Desk, asking, desk, responded, submit

__all__ = ["desk", "page"]

SNAPSHOT, PLAN = "partitions.parquet", "plan.parquet"


class Reads:
    """The Parquet files that a process reads, by name."""

    def __init__(self) -> None:
        self._read = Counter[str]()
        self._elsewhere: int | None = None

    def note(self, name: str) -> None:
        if get_ident() != self._elsewhere:
            self._read[name] += 1

    @contextmanager
    def of_another_process(self) -> Iterator[None]:
        """Let this thread play another process; the task's other threads go on reading."""
        self._elsewhere = get_ident()
        yield
        self._elsewhere = None

    def of(self, task: Callable[[], Any]) -> dict[str, int]:
        """What this task reads."""
        self._read.clear()
        task()
        return {name: count for name, count in self._read.items() if name != "brokers.parquet"}


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch, desk: Desk) -> Reads:
    found = Reads()
    read_table, submitted = Folder.read_table, SparkSubmitOperator.execute

    def read(self: Folder, name: str) -> pa.Table:
        found.note(name)
        return read_table(self, name)

    def execute(self: SparkSubmitOperator, where: Any) -> None:
        with found.of_another_process():
            submitted(self, where)

    monkeypatch.setattr(Folder, "read_table", read)
    monkeypatch.setattr(SparkSubmitOperator, "execute", execute)
    return found


@pytest.mark.parametrize("kind", [PlanReassignmentOperator, PlanRebalanceOperator])
def test_a_task_that_plans_reads_the_snapshot_and_its_plan_once(desk: Desk, reads: Reads, kind: type[Any]) -> None:
    more = {"request": {"operation": "rebalance"}} if kind is PlanRebalanceOperator else {}
    operator = kind(task_id="plan", snapshot=desk.snapshot(), conn_id="kafka_test", **more)
    assert reads.of(lambda: operator.execute(context())) == {SNAPSHOT: 1, PLAN: 1}


def test_a_task_with_nothing_to_plan_reads_the_snapshot_once(desk: Desk, reads: Reads) -> None:
    snapshot = desk.snapshot()
    assert reads.of(lambda: desk.plan(snapshot, operation="expand")) == {SNAPSHOT: 1}


def test_a_review_reads_neither_the_snapshot_nor_the_plan(desk: Desk, reads: Reads) -> None:
    snapshot = desk.snapshot(4)
    made = desk.plan(snapshot, operation="drain", brokers=[4])
    show = ReviewPlanOperator(task_id="show", plan=made, snapshot=snapshot, conn_id="kafka_test")
    assert reads.of(lambda: show.execute(context())) == {}


def test_whoever_approves_and_whoever_submits_reads_the_snapshot_and_the_plan_once(
    desk: Desk, reads: Reads, page: Page
) -> None:
    snapshot = desk.snapshot(4)
    made = desk.plan(snapshot, operation="drain", brokers=[4])
    assert reads.of(lambda: asked(asking(made, snapshot))) == {SNAPSHOT: 1, PLAN: 1}
    asking(made, snapshot).execute_complete(context(), responded("Approve"), digest=made["digest"])
    assert reads.of(lambda: submit(desk, made, snapshot)) == {SNAPSHOT: 1, PLAN: 1}


def test_the_command_that_checks_a_plan_reads_the_snapshot_and_the_plan_once(desk: Desk, reads: Reads) -> None:
    snapshot = desk.snapshot(4)
    made = desk.plan(snapshot, operation="drain", brokers=[4])
    request = job.parse_command_line(["--check", "--snapshot", snapshot["uri"], "--out", made["uri"]])
    assert reads.of(lambda: job.print_verdict(request)) == {SNAPSHOT: 1, PLAN: 1}
