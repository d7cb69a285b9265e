"""What the submit task does with what the trigger tells it; plans are carried out in test_on_kafka."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from kafka_steward.errors import PlanError
from kafka_steward.journal.records import PlanStatus
from kafka_steward.operators.submit import SubmitReassignmentOperator
from tests.airflow_home import context
from tests.triggers.progress_values import DIGEST, progress


def resumed(ended: bool, status: PlanStatus, on_problem: Any = None, **changes: Any) -> dict[str, Any]:
    told = progress(4, status=status, **changes)
    event = {"ended": ended, "sentence": told.sentence, "progress": told.to_json()}
    task = SubmitReassignmentOperator(task_id="submit", plan="/plan", on_problem=on_problem)
    return task.execute_complete(context(), event)


def test_the_end_is_returned_small() -> None:
    assert resumed(True, PlanStatus.COMPLETED, left=1, sentence="Done.") == {
        "digest": DIGEST,
        "status": "completed",
        "sentence": "Done.",
        "partitions": 4,
        "left": 1,
    }


def test_a_plan_that_waits_for_a_person_fails_for_good() -> None:
    with pytest.raises(AirflowFailException, match="It waits for a person"):
        resumed(False, PlanStatus.STUCK, sentence="It waits for a person.")


def test_a_stall_fails_so_that_a_retry_goes_on() -> None:
    with pytest.raises(AirflowException, match="orders-7 makes no progress") as caught:
        resumed(False, PlanStatus.RUNNING, sentence="orders-7 makes no progress.")
    assert not isinstance(caught.value, AirflowFailException)


@pytest.mark.parametrize(("status", "event"), [(PlanStatus.STUCK, "stuck"), (PlanStatus.RUNNING, "stalled")])
def test_a_problem_that_the_triggerer_found_is_notified(status: PlanStatus, event: str) -> None:
    told: list[Any] = []
    with pytest.raises(AirflowException):
        resumed(False, status, told.append, left=2, sentence="It does not go on.")
    (facts,) = [each["kafka_steward"] for each in told]
    assert facts == {
        "event": event,
        "sentence": "It does not go on.",
        "partitions": 4,
        "digest": DIGEST,
        "status": status.value,
        "left": 2,
    }
    assert resumed(True, PlanStatus.COMPLETED, told.append)["status"] == "completed"
    assert len(told) == 1


def test_a_trigger_that_could_not_step_fails_with_its_sentence() -> None:
    event = {"ended": False, "sentence": "No bootstrap server answers.", "progress": None}
    with pytest.raises(AirflowException, match="No bootstrap server answers"):
        SubmitReassignmentOperator(task_id="submit", plan="/plan").execute_complete(context(), event)


def test_a_killed_task_stops_stepping_and_cancels_nothing() -> None:
    submit = SubmitReassignmentOperator(task_id="submit", plan="/plan", deferrable=False)
    submit._wait_unless_killed(0)
    submit.on_kill()
    with pytest.raises(AirflowException, match="the plan stays in the journal, and clearing the task resumes it"):
        submit._wait_unless_killed(60)


@pytest.mark.parametrize("plan", [None, {"digest": "d"}, 7])
def test_what_is_no_plan_is_named(plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from contextlib import nullcontext

    from kafka_steward.hooks.steward import StewardHook

    monkeypatch.setattr(StewardHook, "open", lambda _: nullcontext(None))
    with pytest.raises(PlanError, match="There is no plan: expected its URI"):
        SubmitReassignmentOperator(task_id="submit", plan=plan).execute(context())
