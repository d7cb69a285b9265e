"""The same heal by the DAG, in a real Airflow."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.plain import VICTIM
from benchmarks.stages import Stages, ask_until
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.demo.story import create_airflow, has_run_succeeded, read_failure
from kafka_steward.journal.store import open_journal
from kafka_steward.sandbox import Sandbox
from kafka_steward.sandbox.airflow import AirflowDag

_ENDS_WITHIN_S = 900
#: What the table calls this way.
WAY = "DAG in Airflow"
#: Seconds between two questions whether a run has ended. Each takes the api-server a tenth of a second on a core, which
#: the tasks need; what is measured are the tasks' own times.
_ASKED_EVERY_S = 10
_GRACE_S = 1.0
#: The DAG's tasks until the leaders are elected, by the stage that they are.
_TASKS = {"find_failures": "find", "plan": "plan", "submit": "submit"}


def heal(sandbox: Sandbox, folder: Path, partitions: int, throttle: int) -> Stages:
    """Kill a broker and let the DAG `heal` do the rest; stages are the tasks' own times."""
    stages = Stages(WAY, sandbox.mode, partitions)
    settings = {"heal_failure_interval": _GRACE_S, "throttle": throttle}
    airflow, journal_url = create_airflow(folder / "airflow", sandbox.bootstrap, **settings)
    with airflow, KafkaCluster({"bootstrap_servers": sandbox.bootstrap.split(",")}) as cluster:
        dag = AirflowDag(airflow, "heal")
        dag.unpause()
        with open_journal(journal_url, cluster.cluster_id) as journal:
            time.sleep(15)  # the watch is up: what is measured is detection, not its start
            sandbox.kill(VICTIM)
            with stages.stage("detect"):
                failure = ask_until(lambda: read_failure(journal, VICTIM), within_s=60)
            run = wait_for_success(dag)
            due_s = failure.failure_timestamp_ms / 1000 + _GRACE_S
            stages.seconds["start"] = to_seconds(run["start_date"]) - due_s
            _add_tasks(stages, dag, run)
            stages.replicas_moved = dag.task_result(run["dag_run_id"], "plan")["replicas_moved"]
    return stages


def wait_for_success(dag: AirflowDag) -> dict[str, Any]:
    """Wait until the newest run of the DAG has succeeded; return it. Raises DemoFailed if a task fails."""
    return ask_until(lambda: _ended(dag), within_s=_ENDS_WITHIN_S, every_s=_ASKED_EVERY_S)


def _ended(dag: AirflowDag) -> dict[str, Any] | None:
    run = dag.latest_run()
    return run if run and has_run_succeeded(dag) else None


def _add_tasks(stages: Stages, dag: AirflowDag, run: dict[str, Any]) -> None:
    """Add the tasks' own times, and what passed between them: Airflow's scheduling."""
    tasks = [task for task in dag.list_tasks(run["dag_run_id"]) if task["task_id"] in _TASKS]
    own = {
        _TASKS[task["task_id"]]: to_seconds(task["end_date"]) - to_seconds(task["start_date"])
        for task in sorted(tasks, key=lambda task: str(task["start_date"]))
    }
    whole_s = max(to_seconds(task["end_date"]) for task in tasks) - to_seconds(run["start_date"])
    stages.seconds |= {**own, "schedule": whole_s - sum(own.values())}


def to_seconds(text: str) -> float:
    """Return the seconds since the epoch of a time in Airflow's REST API."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
