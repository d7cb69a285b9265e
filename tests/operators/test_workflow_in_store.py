"""The tasks of a workflow whose workspace is in a store of the kind of S3: all read it, and some write there."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_steward.errors import PlanError
from kafka_steward.operators.plan_folders import read_task_plan
from kafka_steward.operators.review import ReviewPlanOperator
from kafka_steward.planning.files.storage import Folder
from tests.airflow_home import context
from tests.object_store import bucket, objects, s3_environment, s3_server
from tests.operators.test_workflow import Desk, approved, desk, report, responded, submit

__all__ = ["bucket", "desk", "s3_environment", "s3_server"]

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture
def in_store(desk: Desk, bucket: str) -> Desk:
    workspace: Any = f"{bucket}/steward"
    desk.folder = workspace
    return desk


def test_a_plan_is_made_shown_approved_submitted_and_reported(in_store: Desk, bucket: str) -> None:
    snapshot = in_store.snapshot(4)
    made = in_store.plan(snapshot, operation="drain", brokers=[4])
    shown = ReviewPlanOperator(task_id="show", plan=made, snapshot=snapshot, conn_id="kafka_test").execute(context())
    answer = approved(made, snapshot, responded("Approve"))
    done = submit(in_store, made, snapshot)
    assert (shown["stop"], answer["approved"], done["status"]) == ("", True, "completed")
    assert "Broker 4" in report(plan=made, review=shown, answer=answer, submitted=done, brokers=[4])["sentence"]
    below = {name.rpartition("/")[2] for name in objects(bucket)}
    tables = {"brokers.parquet", "partitions.parquet", "plan.parquet"}
    assert below == {*tables, "snapshot.json", "proof.json", "review.md"}
    assert made["uri"].startswith(f"{bucket}/steward/")


def test_a_plan_that_was_edited_in_the_store_is_refused(in_store: Desk) -> None:
    snapshot = in_store.snapshot(4)
    made = in_store.plan(snapshot, operation="drain", brokers=[4])
    Folder(made["uri"], "plan").write_text("review.md", "another page")
    with pytest.raises(PlanError, match=r"The page review.md of the plan at s3://.* was edited after it was made"):
        ReviewPlanOperator(task_id="show", plan=made, snapshot=snapshot, conn_id="kafka_test").execute(context())
    proof = Folder(made["uri"], "plan").read_json("proof.json")
    Folder(made["uri"], "plan").write_json("proof.json", {**proof, "replicas_moved": 0})
    with pytest.raises(PlanError, match=r"The plan at s3://.* was edited after it was made: its digest differs"):
        read_task_plan(made)
