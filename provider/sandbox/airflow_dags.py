"""One DAG of a local Airflow, over its REST API: unpause it, trigger it, read its runs, tasks and logs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from kafka_steward.sandbox.airflow import AirflowFailed, LocalAirflow

__all__ = ["AirflowDag"]

_EVERY_S = 0.5
_ENDED = frozenset({"success", "failed"})


class AirflowDag:
    """The DAG `dag_id` of `airflow`, with the permissions of `user`. Every method may raise AirflowFailed."""

    def __init__(self, airflow: LocalAirflow, dag_id: str, *, user: str = "admin") -> None:
        self.dag_id = dag_id
        self._airflow = airflow
        self._user = user

    def unpause(self, *, within_s: float = 180.0) -> None:
        """Wait until the dag-processor has found the DAG, and unpause it."""
        deadline = time.monotonic() + within_s
        while not self._known():
            if time.monotonic() > deadline:
                errors = self._api("GET", "/api/v2/importErrors")["import_errors"]
                raise AirflowFailed(f"The DAG {self.dag_id} was not found in {self._airflow.dags}: {errors}")
            time.sleep(_EVERY_S)
        self._api("PATCH", self._path(), {"is_paused": False})
        self._airflow.reread_dags()

    def trigger(self, conf: Mapping[str, Any] | None = None) -> str:
        """Start a run; return its id."""
        answer = self._api("POST", self._path("dagRuns"), {"logical_date": None, "conf": dict(conf or {})})
        return str(answer["dag_run_id"])

    def runs(self) -> list[dict[str, Any]]:
        """Return the DAG's runs, oldest first, as in the REST API."""
        runs: list[dict[str, Any]] = self._api("GET", self._path("dagRuns") + "?order_by=run_after&limit=100")[
            "dag_runs"
        ]
        return runs

    def run(self, run_id: str) -> dict[str, Any]:
        """Return one run."""
        run: dict[str, Any] = self._api("GET", self._path("dagRuns", run_id))
        return run

    def wait(self, run_id: str, *, within_s: float = 300.0) -> dict[str, Any]:
        """Wait until a run has succeeded or failed; return the run."""
        deadline = time.monotonic() + within_s
        while (run := self.run(run_id))["state"] not in _ENDED:
            if time.monotonic() > deadline:
                states = {task["task_id"]: task["state"] for task in self.tasks(run_id)}
                raise AirflowFailed(f"{self.dag_id}, {run_id} is {run['state']} after {within_s:.0f} s: {states}")
            time.sleep(_EVERY_S)
        return run

    def tasks(self, run_id: str) -> list[dict[str, Any]]:
        """Return the task instances of a run."""
        answer = self._api("GET", self._path("dagRuns", run_id, "taskInstances"))
        tasks: list[dict[str, Any]] = answer["task_instances"]
        return tasks

    def log(self, run_id: str, task_id: str, attempt: int = 1) -> str:
        """Return the log of one try of a task, a line per event."""
        path = self._path("dagRuns", run_id, "taskInstances", task_id, "logs", str(attempt))
        content = self._api("GET", path + "?full_content=true")["content"]
        return "\n".join(str(line["event"]) if isinstance(line, dict) else str(line) for line in content)

    def returned(self, run_id: str, task_id: str) -> Any:
        """Return a task's result: its XCom `return_value`."""
        return self._api("GET", self._path("dagRuns", run_id, "taskInstances", task_id, "xcomEntries", "return_value"))[
            "value"
        ]

    def _known(self) -> bool:
        known = self._api("GET", f"/api/v2/dags?dag_id_pattern={quote(self.dag_id)}&exclude_stale=true")["dags"]
        return any(dag["dag_id"] == self.dag_id for dag in known)

    def _api(self, method: str, path: str, body: Any = None) -> Any:
        return self._airflow.api(method, path, body, user=self._user)

    def _path(self, *below: str) -> str:
        return "/".join(["/api/v2/dags", *(quote(part, safe="") for part in (self.dag_id, *below))])
