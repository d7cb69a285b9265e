"""The local Airflow itself: a new DAG file is seen and runs, its parts can be killed, only 127.0.0.1 listens."""

from __future__ import annotations

import os
import signal

import pytest

from kafka_steward.sandbox.airflow import AirflowDag, AirflowFailed, LocalAirflow
from tests.sandbox.processes import descendants, listening

pytestmark = pytest.mark.airflow

DAG_FILE = """
# An Airflow DAG that greets.
import os
from airflow.sdk import DAG, task

with DAG("{dag_id}") as dag:
    @task
    def greet(params=None, dag_run=None):
        print("hello", dag_run.conf["name"], os.environ["GREETING"])
    greet()
"""


def new_dag(airflow: LocalAirflow, dag_id: str, user: str = "admin") -> AirflowDag:
    (airflow.dags / f"{dag_id}.py").write_text(DAG_FILE.format(dag_id=dag_id))
    dag = AirflowDag(airflow, dag_id, user=user)
    dag.unpause()
    return dag


def test_only_the_loopback_address_is_listened_on(airflow: LocalAirflow) -> None:
    found = listening(descendants(os.getpid()))
    assert ("127.0.0.1", int(airflow.url.rpartition(":")[2])) in found
    assert {host for host, _ in found} == {"127.0.0.1"}


@pytest.mark.ci
def test_a_new_dag_file_is_seen_and_a_named_user_runs_it(airflow: LocalAirflow) -> None:
    dag = new_dag(airflow, "greeting", user="ann")
    run_id = dag.trigger({"name": "steward"})
    run = dag.wait_for_run(run_id)
    assert (run["state"], run["triggering_user_name"]) == ("success", "ann")
    assert [known["dag_run_id"] for known in dag.list_runs()] == [run_id]
    assert [(task["task_id"], task["state"]) for task in dag.list_tasks(run_id)] == [("greet", "success")]
    assert "hello steward and welcome" in dag.task_log(run_id, "greet")


def test_what_a_user_may_not_do_is_refused(airflow: LocalAirflow) -> None:
    new_dag(airflow, "guarded")
    with pytest.raises(AirflowFailed, match="answered 403"):
        AirflowDag(airflow, "guarded", user="victor").trigger()


@pytest.mark.ci
def test_a_killed_scheduler_can_be_started_again(airflow: LocalAirflow) -> None:
    dag = new_dag(airflow, "again")
    airflow.signal_part("scheduler", signal.SIGKILL)
    run_id = dag.trigger({"name": "again"})
    airflow.start_part("scheduler")
    assert dag.wait_for_run(run_id, within_s=180)["state"] == "success"
