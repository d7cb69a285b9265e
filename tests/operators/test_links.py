"""The link of each task to its plan: on the operators that have a plan, and an address that nothing can break."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from airflow.sdk import BaseOperator
from airflow.sdk.types import TaskInstanceKey

from kafka_steward.dags import apply, cancel, heal, rebalance, throttle
from kafka_steward.operators.cancel import CancelReassignmentOperator
from kafka_steward.operators.leaders import ElectLeadersOperator
from kafka_steward.operators.links import PlanLink
from kafka_steward.operators.report import ReportPlanOperator
from kafka_steward.operators.submit import SubmitReassignmentOperator
from kafka_steward.provider_info import get_provider_info

DIGEST = "3f2a91c0" * 8
HERE = TaskInstanceKey("heal", "submit", "manual__1")
#: What a connection or a digest may be called by someone who means harm.
HOSTILE = "a&digest=0000000#x?<script>\"'%2e/../é\u202e\ud800 b"


def link_of(task: BaseOperator) -> str:
    (link,) = task.operator_extra_links
    return link.get_link(task, ti_key=HERE)


@pytest.mark.parametrize(
    ("dag", "linked"),
    [
        (heal, {"plan", "submit", "report"}),
        (rebalance, {"plan", "show_plan", "approve", "submit", "report"}),
        (apply, {"plan", "show_plan", "approve", "submit", "report"}),
        (cancel, {"cancel", "elect_leaders"}),
        (throttle, {"throttle"}),
    ],
)
def test_each_task_that_makes_or_carries_out_a_plan_links_to_it(dag: Any, linked: set[str]) -> None:
    tasks = dag().tasks
    assert {
        task.task_id for task in tasks if any(isinstance(each, PlanLink) for each in task.operator_extra_links)
    } == (linked)


def test_airflow_knows_the_link() -> None:
    assert get_provider_info()["extra-links"] == [f"{PlanLink.__module__}.{PlanLink.__name__}"]


def test_a_task_links_to_the_plan_in_the_result_that_it_is_given() -> None:
    task = ReportPlanOperator(task_id="report", conn_id="kafka_east", plan={"uri": "/plan", "digest": DIGEST})
    assert link_of(task) == f"/kafka-steward/plan?conn=kafka_east&digest={DIGEST}"
    assert link_of(ElectLeadersOperator(task_id="elect", conn_id="kafka_east", plan=DIGEST)) == link_of(task)


def test_the_plan_that_a_task_has_found_counts_more_than_the_beginning_of_a_digest() -> None:
    task = CancelReassignmentOperator(task_id="cancel", conn_id="kafka_east", plan=DIGEST[:8])
    assert link_of(task).endswith(f"digest={DIGEST[:8]}")
    task.linked_plan = DIGEST
    assert link_of(task).endswith(f"digest={DIGEST}")


@pytest.mark.parametrize(
    "plan", [None, "", "/workspace/plan", {"digest": None, "uri": None}, {"uri": "/x"}, 3, HOSTILE]
)
def test_a_task_without_a_plan_links_to_nothing(plan: Any) -> None:
    assert link_of(SubmitReassignmentOperator(task_id="submit", plan=plan)) == ""


def test_no_connection_breaks_out_of_the_address() -> None:
    task = SubmitReassignmentOperator(task_id="submit", conn_id=HOSTILE, plan={"digest": DIGEST})
    link = link_of(task)
    assert link.isascii()
    assert link.isprintable()
    assert not set("<>\"' ") & set(link)
    parts = urlsplit(link)
    assert (parts.scheme, parts.netloc, parts.path, parts.fragment) == ("", "", "/kafka-steward/plan", "")
    assert parse_qs(parts.query) == {"conn": [HOSTILE.replace("\ud800", "?")], "digest": [DIGEST]}


@pytest.mark.parametrize(
    ("base_url", "path"),
    [("", ""), ("http://airflow.example.com", ""), ("https://a.example.com/team/airflow/", "/team/airflow")],
)
def test_airflow_below_a_path_is_linked_below_it(monkeypatch: pytest.MonkeyPatch, base_url: str, path: str) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", base_url)
    task = SubmitReassignmentOperator(task_id="submit", conn_id="c", plan={"digest": DIGEST})
    assert link_of(task) == f"{path}/kafka-steward/plan?conn=c&digest={DIGEST}"
