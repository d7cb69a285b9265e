"""The page about a plan is made once, beside the plan, and is shown only as it was made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from kafka_steward.errors import PlanError
from kafka_steward.execution.plan_report import plan_summary
from kafka_steward.operators.plan_folders import (
    PAGE,
    read_plan_page,
    read_task_plan,
    read_task_snapshot,
    write_plan_page,
)
from kafka_steward.operators.review import ReviewPlanOperator
from tests.airflow_home import context
from tests.operators.test_approve import Page, asked, drained, page
from tests.operators.test_workflow import Desk, asking, desk

__all__ = ["desk", "page"]


def show(made: dict[str, Any], snapshot: dict[str, str]) -> None:
    ReviewPlanOperator(task_id="show", plan=made, snapshot=snapshot, conn_id="kafka_test").execute(context())


def path_of(made: dict[str, Any]) -> Path:
    return Path(made["uri"]) / PAGE


def test_the_task_that_plans_writes_the_page_that_is_reviewed_and_approved(
    desk: Desk, page: Page, capsys: pytest.CaptureFixture[str]
) -> None:
    made, snapshot = drained(desk)
    text = plan_summary(read_task_plan(made), read_task_snapshot(snapshot))
    assert read_plan_page(made) == path_of(made).read_text() == text
    show(made, snapshot)
    assert text in capsys.readouterr().out
    asked(asking(made, snapshot))
    assert page.body.endswith(f"\n\n{text}")


def test_a_run_without_a_plan_has_no_page(desk: Desk) -> None:
    made = desk.plan(desk.snapshot(), operation="expand")
    assert (made["uri"], made["page_digest"]) == (None, None)


@pytest.mark.parametrize("written", [True, False])
def test_a_plan_without_a_page_is_shown_as_before(
    desk: Desk, page: Page, capsys: pytest.CaptureFixture[str], written: bool
) -> None:
    made, snapshot = drained(desk)
    text = path_of(made).read_text()
    if written:
        del made["page_digest"]
        path_of(made).write_text("of an unknown origin")
    else:
        path_of(made).unlink()
    assert read_plan_page(made) is None
    show(made, snapshot)
    assert text in capsys.readouterr().out
    asked(asking(made, snapshot))
    assert page.body.endswith(f"\n\n{text}")


def test_a_page_that_was_edited_is_refused_before_it_is_shown(desk: Desk, page: Page) -> None:
    made, snapshot = drained(desk)
    path_of(made).write_text(path_of(made).read_text().replace("B |", "kB |"))
    sentence = rf"^The page review\.md of the plan at {made['uri']} was edited after it was made; make a new plan\.$"
    with pytest.raises(PlanError, match=sentence):
        show(made, snapshot)
    with pytest.raises(AirflowFailException, match=sentence):
        asking(made, snapshot).execute(context())
    assert page.asked == 0


def test_a_page_that_is_no_text_is_refused(desk: Desk) -> None:
    made, _ = drained(desk)
    path_of(made).write_bytes(b"\xff")
    with pytest.raises(PlanError, match=r"is corrupt: review\.md is not in the expected format"):
        read_plan_page(made)


def test_the_page_of_another_plan_is_refused(desk: Desk) -> None:
    made, snapshot = drained(desk)
    desk.simulator.tick()
    other, _ = drained(desk)
    path_of(made).write_text(path_of(other).read_text())
    for forged in (made, {**made, "page_digest": other["page_digest"]}):
        with pytest.raises(PlanError, match="was edited after it was made"):
            show(forged, snapshot)


def test_a_person_is_asked_about_the_plan_even_when_the_page_was_replaced_with_its_digest(
    desk: Desk, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, snapshot = drained(desk)
    text, plan = path_of(made).read_text(), read_task_plan(made)
    with monkeypatch.context() as forging:
        forging.setattr("kafka_steward.execution.plan_report.plan_summary", lambda *_, **__: "Moves nothing.")
        forged = {**made, "page_digest": write_plan_page(made["uri"], plan, read_task_snapshot(snapshot))}
    assert read_plan_page(forged) == "Moves nothing."
    asked(asking(forged, snapshot))
    assert page.body.endswith(f"\n\n{text}")
