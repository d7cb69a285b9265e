"""`doctor --probe`: a run of the DAG `probe`, and what its worker and the triggerer found.

A command of Airflow starts the run in Airflow's own database, as `airflow dags trigger` does.
"""

from __future__ import annotations

import secrets
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow.api.common.trigger_dag import trigger_dag
from airflow.models.dag import DagModel, DagTag
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from airflow.utils.types import DagRunTriggeredByType
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from kafka_steward.cli.airflow_state import AirflowUnreadable
from kafka_steward.cluster_tag import cluster_tag, workflow_tag
from kafka_steward.doctor.findings import Commands, Finding, Level
from kafka_steward.doctor.planning import Probe, marked_workspace, probe_finding
from kafka_steward.errors import PlanError
from kafka_steward.hooks.cluster_config import ClusterConfig

#: Seconds within which a worker and the triggerer have to answer, and between two looks.
_WITHIN_S, _EVERY_S = 120.0, 1.0
_TASK = "probe"
_PARTS = ("worker", "triggerer")


@dataclass(frozen=True, slots=True)
class ProbeDag:
    """The DAG `probe` of a cluster."""

    dag_id: str
    paused: bool


@dataclass(frozen=True, slots=True)
class ProbeRun:
    """The state of a run, and of its task; `found` is what the task returned when it has succeeded."""

    state: str
    task_state: str = ""
    result: Mapping[str, Any] | None = None


def probe_parts(config: ClusterConfig, commands: Commands) -> Sequence[Finding]:
    """Run the DAG `probe`, wait for its end, and return what a worker and the triggerer found."""
    try:
        dag = _find_probe_dag(config.conn_id)
        unusable = unusable_dag(dag, config.conn_id)
        if dag is None or unusable is not None:
            return [unusable] if unusable is not None else []
        run_id = f"doctor__{secrets.token_hex(8)}"
        with marked_workspace(config.workspace) as marker:
            _start_run(dag.dag_id, run_id, marker)
            ended = _wait_for_end(dag.dag_id, run_id)
    except PlanError as error:
        return [Finding("worker", Level.FAULT, f"Nothing was tried: {error}", commands.steward("doctor"))]
    except (AirflowUnreadable, SQLAlchemyError) as error:
        words = str(error).strip().split("\n")[0]
        return [Finding("worker", Level.FAULT, f"Airflow's database did not answer: {words}", "airflow db check")]
    return run_findings(dag.dag_id, run_id, ended, config.workspace)


def unusable_dag(dag: ProbeDag | None, conn_id: str) -> Finding | None:
    """Return why no run can be started; None if one can."""
    if dag is None:
        sentence = (
            f"Airflow has no DAG that probes the workspace of {conn_id}; a file in the DAG folder with these two lines "
            "is one: `from airflow_provider_kafka_steward.dags import probe` and "
            f"`probe_it = probe(conn_id={conn_id!r})`."
        )
        return Finding("worker", Level.FAULT, sentence, "airflow dags reserialize")
    if dag.paused:
        command = f"airflow dags unpause {shlex.quote(dag.dag_id)}"
        return Finding("worker", Level.FAULT, f"The DAG {dag.dag_id} is paused, so that no worker was asked.", command)
    return None


def run_findings(dag_id: str, run_id: str, run: ProbeRun, uri: str) -> Sequence[Finding]:
    """Return what a run found, or how far it came."""
    if run.result is not None:
        return [probe_finding(part, Probe.from_json(run.result[part]), uri) for part in _PARTS]
    command = f"airflow tasks states-for-dag-run {shlex.quote(dag_id)} {run_id}"
    # The task waits in the triggerer when the worker has answered.
    part = "triggerer" if run.task_state == "deferred" else "worker"
    if run.state == "failed":
        sentence = f"The run {run_id} of {dag_id} failed; the log of its task {_TASK} says why."
    else:
        how_far = run.task_state or "not scheduled"
        sentence = f"No {part} answered within {_WITHIN_S:.0f} s: the task {_TASK} of {dag_id} is {how_far}."
    return [Finding(part, Level.FAULT, sentence, command)]


def _find_probe_dag(conn_id: str) -> ProbeDag | None:
    def tagged(tag: str) -> Any:
        return DagModel.dag_id.in_(select(DagTag.dag_id).where(DagTag.name == tag))

    wanted = select(DagModel).where(tagged(workflow_tag("probe")), tagged(cluster_tag(conn_id)), ~DagModel.is_stale)
    with create_session() as session:
        dag = session.scalars(wanted.order_by(DagModel.is_paused, DagModel.dag_id)).first()
        return None if dag is None else ProbeDag(dag.dag_id, bool(dag.is_paused))


def _start_run(dag_id: str, run_id: str, marker: str) -> None:
    trigger_dag(dag_id, triggered_by=DagRunTriggeredByType.CLI, run_id=run_id, conf={"marker": marker})


def _wait_for_end(dag_id: str, run_id: str) -> ProbeRun:
    deadline_s = time.monotonic() + _WITHIN_S
    while True:
        run = _read_run(dag_id, run_id)
        if run.state in ("success", "failed") or time.monotonic() > deadline_s:
            return run
        time.sleep(_EVERY_S)


def _read_run(dag_id: str, run_id: str) -> ProbeRun:
    run = select(DagRun.state).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)
    task = select(TaskInstance.state).where(TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id)
    with create_session() as session:
        state, task_state = session.scalar(run), session.scalar(task)
        if state != "success":
            return ProbeRun(str(state or ""), str(task_state or ""))
        result = session.scalars(
            XComModel.get_many(run_id=run_id, key="return_value", task_ids=_TASK, dag_ids=dag_id)
        ).first()
        return ProbeRun("success", str(task_state), None if result is None else XComModel.deserialize_value(result))
