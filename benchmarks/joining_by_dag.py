"""Pending replicas are filled by the DAG, in a real Airflow."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.in_airflow import to_seconds, wait_for_success
from benchmarks.stages import Stages, ask_until
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.demo.story import create_airflow
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.sandbox import Sandbox
from kafka_steward.sandbox.airflow import AirflowDag

__all__ = ["fill_by_dag"]

_DAG_FILE = """\
from airflow_provider_kafka_steward.dags import fill

fill_cluster = fill()
"""
#: By part, the task that ends it; "look" ends with the start of the run. The first task also takes the snapshot.
_ENDS = {"snapshot": "find_pending", "plan": "plan", "fill": "submit", "settle": "report"}


def fill_by_dag(
    sandbox: Sandbox,
    folder: Path,
    stages: Stages,
    *,
    joining: int,
    throttle: int,
    create: Callable[[KafkaCluster, Journal], None],
) -> None:
    """Create the topic, start Airflow, then the broker, and let the DAG `fill` do the rest."""
    settings = {"heal_failure_interval": -1, "throttle": throttle}
    airflow, journal_url = create_airflow(folder / "airflow", sandbox.bootstrap, **settings)
    (airflow.dags / "heal.py").write_text(_DAG_FILE)
    with (
        KafkaCluster({"bootstrap_servers": sandbox.bootstrap.split(",")}) as cluster,
        open_journal(journal_url, cluster.cluster_id) as journal,
    ):
        create(cluster, journal)
    with airflow:
        dag = AirflowDag(airflow, "fill")
        dag.unpause()
        time.sleep(15)  # the watch is up: what is measured is the joining, not its start
        with ThreadPoolExecutor(1) as pool:
            live = pool.submit(_live_s, sandbox.bootstrap.split(","), joining)
            sandbox.restart(joining)
            live_s = live.result(timeout=300)
        run = wait_for_success(dag)
        _divide(stages, dag, run, live_s)
        stages.replicas_moved = dag.task_result(run["dag_run_id"], "plan")["replicas_moved"]


def _live_s(bootstrap: list[str], broker: int) -> float:
    """When Kafka lists the broker as live."""
    with KafkaCluster({"bootstrap_servers": bootstrap}) as cluster:
        ask_until(lambda: broker in cluster.live_brokers() or None, within_s=300)
        return time.time()


def _divide(stages: Stages, dag: AirflowDag, run: dict[str, Any], live_s: float) -> None:
    ended = {task["task_id"]: task["end_date"] for task in dag.list_tasks(run["dag_run_id"])}
    before_s = to_seconds(run["start_date"])
    stages.seconds["look"] = before_s - live_s
    for part, task in _ENDS.items():
        stages.seconds[part] = to_seconds(ended[task]) - before_s
        before_s = to_seconds(ended[task])
