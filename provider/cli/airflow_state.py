"""Read Airflow's own database: which of our DAGs it has, and which of its processes are alive.

A command of Airflow reads that database, as Airflow's own commands do; a task may not.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from airflow.jobs.job import Job, JobState
from airflow.models.dag import DagModel, DagTag
from airflow.models.errors import ParseImportError
from airflow.models.serialized_dag import SerializedDagModel
from airflow.utils.session import create_session
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from kafka_steward.doctor.findings import Finding, Level
from kafka_steward.errors import StewardError

#: The tag of every workflow's DAG.
TAG = "kafka-steward"
#: The task that only a heal has.
_HEALS = "FindFailuresOperator"
#: By what each process does for us. The triggerer comes first, because without it nothing else happens.
_PROCESSES = {
    "TriggererJob": ("triggerer", "the watch polls there"),
    "SchedulerJob": ("scheduler", "it starts runs"),
    "DagProcessorJob": ("dag-processor", "it reads DAG files"),
}
#: Import errors that a sentence names; the rest is only counted.
_NAMED = 2


@dataclass(frozen=True, slots=True)
class DagFacts:
    """A DAG of ours for the cluster: whether it heals, and whether it is paused."""

    dag_id: str
    paused: bool
    heals: bool = False


@dataclass(frozen=True)
class AirflowState:
    """DAGs of one cluster, import errors of files that use Kafka Steward, and the age of each process' heartbeat.

    `alive` maps the job types of Airflow to whether one of that type is alive.
    """

    dags: Sequence[DagFacts] = ()
    import_errors: Mapping[str, str] = field(default_factory=dict)
    alive: Mapping[str, bool] = field(default_factory=dict)


class AirflowUnreadable(StewardError, RuntimeError):
    """Airflow's own database cannot be read."""


def read_airflow_state(conn_id: str) -> AirflowState:
    """Read the state from Airflow's database. Raises AirflowUnreadable."""
    try:
        with create_session() as session:
            return AirflowState(_read_dags(session, conn_id), _read_import_errors(session), _read_processes(session))
    except SQLAlchemyError as error:
        words = str(getattr(error, "orig", None) or error).strip().split("\n")[0]
        raise AirflowUnreadable(
            f"Airflow's database cannot be read ({words}); `airflow db check` says more."
        ) from error


def _read_dags(session: object, conn_id: str) -> list[DagFacts]:
    tagged = select(DagModel).join(DagTag, DagTag.dag_id == DagModel.dag_id).where(DagTag.name == TAG)
    dags = []
    for dag in session.scalars(tagged.where(~DagModel.is_stale).order_by(DagModel.dag_id)):  # type: ignore[attr-defined]
        stored = SerializedDagModel.get(dag.dag_id, session=session)  # type: ignore[arg-type]
        text = json.dumps(stored.data if stored is not None else {})
        # The DAG's own id may be its author's: that it works on this cluster is said by its tasks.
        if json.dumps(conn_id) in text:
            dags.append(DagFacts(dag.dag_id, bool(dag.is_paused), _HEALS in text))
    return dags


def _read_import_errors(session: object) -> dict[str, str]:
    rows = session.scalars(select(ParseImportError).order_by(ParseImportError.filename))  # type: ignore[attr-defined]
    traces = {str(row.filename): str(row.stacktrace or "") for row in rows}
    return {name: _last_line(trace) for name, trace in traces.items() if "kafka_steward" in trace}


def _last_line(trace: str) -> str:
    lines = [line.strip() for line in trace.splitlines() if line.strip()]
    return re.sub(r"^kafka_steward\.errors\.\w+: ", "", lines[-1]) if lines else "no message"


def _read_processes(session: object) -> dict[str, bool]:
    running = select(Job).where(Job.state == JobState.RUNNING, Job.job_type.in_(_PROCESSES))
    alive = dict.fromkeys(_PROCESSES, False)
    for job in session.scalars(running):  # type: ignore[attr-defined]
        alive[job.job_type] = alive[job.job_type] or job.is_alive()
    return alive


def airflow_findings(state: AirflowState, conn_id: str) -> list[Finding]:
    """Return the findings about Airflow's processes and the DAGs of the cluster behind `conn_id`."""
    return [_process_finding(state.alive), *_import_error_findings(state.import_errors), *_dag_findings(state, conn_id)]


def _process_finding(alive: Mapping[str, bool]) -> Finding:
    dead = [_PROCESSES[kind] for kind, is_alive in alive.items() if not is_alive]
    if dead:
        sentence = "; ".join(f"no {name} is alive, and {why}" for name, why in dead)
        helps = "\n".join(f"airflow {name}" for name, _ in dead)
        return Finding("airflow", Level.FAULT, f"{sentence[0].upper()}{sentence[1:]}.", helps)
    return Finding("airflow", Level.OK, f"Alive: {', '.join(_PROCESSES[kind][0] for kind in alive)}.")


def _import_error_findings(errors: Mapping[str, str]) -> list[Finding]:
    named = "; ".join(f"{name}: {words}" for name, words in list(errors.items())[:_NAMED])
    more = f" And {len(errors) - _NAMED} more." if len(errors) > _NAMED else ""
    return [Finding("dag files", Level.FAULT, f"{named}{more}", "airflow dags list-import-errors")] if errors else []


def _dag_findings(state: AirflowState, conn_id: str) -> list[Finding]:
    healing = [dag for dag in state.dags if dag.heals]
    if not healing:
        sentence = (
            f"Airflow has no DAG that heals the cluster of {conn_id}. A file in the DAG folder with these two lines is "
            f"one: `from airflow_provider_kafka_steward.dags import heal` and `heal_it = heal(conn_id={conn_id!r})`."
        )
        return [Finding("dags", Level.FAULT, sentence, "airflow dags reserialize")]
    paused = [dag.dag_id for dag in state.dags if dag.paused]
    names = ", ".join(f"{dag.dag_id}{' (paused)' if dag.paused else ''}" for dag in state.dags)
    if all(dag.paused for dag in healing):
        first = healing[0].dag_id
        sentence = f"The DAG {first} is paused, so that nothing is detected or healed. DAGs: {names}."
        return [Finding("dags", Level.FAULT, sentence, f"airflow dags unpause {shlex.quote(first)}")]
    sentence = f"DAGs of this cluster: {names}."
    if paused:
        return [Finding("dags", Level.NOTE, sentence, f"airflow dags unpause {shlex.quote(paused[0])}")]
    return [Finding("dags", Level.OK, sentence)]
