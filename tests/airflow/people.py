"""What people do with a run of a workflow over REST: read what they are asked, answer, and read the report."""

from __future__ import annotations

import urllib.parse
from contextlib import suppress
from typing import Any

from kafka_steward.airflow_versions import AWAITING_APPROVAL
from kafka_steward.sandbox.airflow import AirflowFailed
from tests.airflow.conftest import DONE, Desk
from tests.eventually import eventually

__all__ = ["answer", "asked", "ended", "logged", "reported", "respond", "wait_until_parked"]

_LONGEST_S = 600


def asked(desk: Desk, dag_id: str, run_id: str) -> Any:
    """What a person is asked, once they are."""

    def request() -> Any:
        states = desk.tasks(dag_id, run_id)
        assert states.get("approve") in AWAITING_APPROVAL, _failures(desk, dag_id, run_id) or states
        return desk.airflow.call_api("GET", _request(dag_id, run_id))

    return eventually(request, within=_LONGEST_S, every=2, errors=(AirflowFailed,))


def answer(desk: Desk, dag_id: str, run_id: str, option: str, reason: str = "", *, user: str = "ann") -> None:
    """As ann, who may run DAGs and is no administrator; again, where Airflow loses an answer and asks anew."""

    def accepted() -> None:
        state = desk.tasks(dag_id, run_id)["approve"]
        if state in AWAITING_APPROVAL:
            respond(desk, dag_id, run_id, option, reason, user=user)
        # A plan that was rejected is skipped from here on.
        assert state in {"success", "skipped"}, state

    eventually(accepted, within=_LONGEST_S, every=3, errors=(AirflowFailed,))


def respond(desk: Desk, dag_id: str, run_id: str, option: str, reason: str = "", *, user: str = "ann") -> None:
    """Give an answer once, whatever becomes of it."""
    wait_until_parked(desk, run_id)
    body = {"chosen_options": [option], "params_input": {"reason": reason}}
    desk.airflow.call_api("PATCH", _request(dag_id, run_id), body, user=user)


def wait_until_parked(desk: Desk, run_id: str) -> None:
    """Wait until the scheduler knows that the task waits for an answer, or five seconds."""
    # The executor's word that the task was parked comes late, and costs the try of one that goes on before.
    # A scheduler that was killed in between has lost it.
    with suppress(AssertionError):
        eventually(lambda: _assert_parked(desk, run_id), within=5)


def logged(desk: Desk, dag_id: str, run_id: str, task_id: str) -> str:
    """The logs of all tries of a task; one that never began has none."""
    run = urllib.parse.quote(run_id, safe="")
    path = f"/api/v2/dags/{dag_id}/dagRuns/{run}/taskInstances/{task_id}"
    told = []
    for number in range(1, int(desk.airflow.call_api("GET", path)["try_number"]) + 1):
        with suppress(AirflowFailed):
            told.append(desk.log(dag_id, run_id, task_id, number))
    return "\n".join(told)


def ended(desk: Desk, dag_id: str, run_id: str, state: str = "success") -> None:
    """Wait until the run has ended, as it should."""

    def found() -> str:
        now = next(run["state"] for run in desk.runs(dag_id) if run["dag_run_id"] == run_id)
        assert now in DONE, f"{run_id} of {dag_id} is {now}"
        return str(now)

    reached = eventually(found, within=_LONGEST_S, every=2, errors=(AirflowFailed,))
    assert reached == state, _failures(desk, dag_id, run_id)


def reported(desk: Desk, dag_id: str, run_id: str) -> dict[str, Any]:
    """What the last task of a run that succeeded returned."""
    ended(desk, dag_id, run_id)
    return dict(desk.xcom(dag_id, run_id, "report"))


def _request(dag_id: str, run_id: str) -> str:
    run = urllib.parse.quote(run_id, safe="")
    return f"/api/v2/dags/{dag_id}/dagRuns/{run}/taskInstances/approve/-1/hitlDetails"


def _assert_parked(desk: Desk, run_id: str) -> None:
    key = f"task_id='approve', run_id='{run_id}'"
    events = [line for line in desk.airflow.part_log("scheduler").splitlines() if "Received executor event" in line]
    assert any("state success" in line and key in line for line in events), events[-5:]


def _failures(desk: Desk, dag_id: str, run_id: str) -> dict[str, str]:
    states = desk.tasks(dag_id, run_id)
    return {task: desk.log(dag_id, run_id, task)[-2000:] for task, state in states.items() if state == "failed"}
