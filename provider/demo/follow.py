"""What is going on, as the journal and Airflow's REST API tell it: the demo asks, and never acts."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

from kafka_steward.errors import StewardError
from kafka_steward.journal import paths
from kafka_steward.journal.documents import FailedBroker
from kafka_steward.journal.moves import MoveRow, MoveState
from kafka_steward.journal.open import Journal
from kafka_steward.journal.records import PlanRecord
from kafka_steward.sandbox.airflow import AirflowSilent, LocalAirflow

__all__ = [
    "DemoFailed",
    "Moving",
    "failure_of",
    "heal_run",
    "latest_heal",
    "moving",
    "proof",
    "running_task",
    "succeeded",
    "wait_for",
]

Answer = TypeVar("Answer")
_DAG = "heal"
_POLL_S = 0.3


class DemoFailed(StewardError, RuntimeError):
    """The demo did not get where it should; the message says where it stopped and why."""


@dataclass(frozen=True)
class Moving:
    """How far a plan is: partitions settled and in all, bytes settled and in all, the chunk that is under way."""

    settled: int
    partitions: int
    settled_bytes: int
    bytes: int
    in_flight: int
    chunk: int
    chunks: int


def wait_for(
    question: Callable[[], Answer | None], *, within_s: float, what: str, meanwhile: Callable[[], None] = lambda: None
) -> Answer:
    """Ask until there is an answer. Raises DemoFailed, naming `what`, after `within_s` seconds.

    An api-server that is too busy to answer is asked again.
    """
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        with contextlib.suppress(AirflowSilent):
            if (answer := question()) is not None:
                return answer
            meanwhile()
        time.sleep(_POLL_S)
    raise DemoFailed(f"The demo waited {within_s:.0f} s for {what}, in vain.")


def failure_of(journal: Journal, broker: int) -> FailedBroker | None:
    """The entry that the watch wrote for a dead broker."""
    node = journal.tree.get(paths.failed_broker(broker))
    return FailedBroker.from_node(node) if node else None


def latest_heal(journal: Journal, broker: int) -> PlanRecord | None:
    """The newest plan that heals `broker`."""
    return next((record for record in journal.plans.latest(5) if broker in record.failed_brokers), None)


def moving(rows: list[MoveRow]) -> Moving:
    """Sum a plan's rows."""
    settled = [row for row in rows if row.state.settled]
    waiting = [row.move.chunk for row in rows if not row.state.settled]
    chunks = max((row.move.chunk for row in rows), default=-1) + 1
    return Moving(
        settled=len(settled),
        partitions=len(rows),
        settled_bytes=sum(row.move.size_bytes or 0 for row in settled),
        bytes=sum(row.move.size_bytes or 0 for row in rows),
        in_flight=sum(row.state is MoveState.SUBMITTED for row in rows),
        chunk=min(waiting, default=chunks - 1) + 1,
        chunks=chunks,
    )


def heal_run(airflow: LocalAirflow) -> dict[str, Any] | None:
    """The newest run of the DAG that was not skipped through."""
    runs = airflow.api("GET", f"/api/v2/dags/{_DAG}/dagRuns?order_by=-id&limit=1")["dag_runs"]
    return runs[0] if runs else None


def running_task(airflow: LocalAirflow, run_id: str) -> str:
    """The task that a run is in, e.g. `plan`. Raises DemoFailed when one has failed for good."""
    path = f"/api/v2/dags/{_DAG}/dagRuns/{quote(run_id, safe='')}/taskInstances"
    tasks = airflow.api("GET", path)["task_instances"]
    failed = [task["task_id"] for task in tasks if task["state"] in {"failed", "upstream_failed"}]
    if failed:
        raise DemoFailed(f"The task {failed[0]} of the DAG {_DAG} failed; its log is under {airflow.home}/logs.")
    active = [task["task_id"] for task in tasks if task["state"] in {"running", "deferred", "queued", "up_for_retry"}]
    return active[0] if active else ""


def succeeded(airflow: LocalAirflow) -> bool | None:
    """True once the newest run has succeeded. Raises DemoFailed when a task of it failed for good."""
    run = heal_run(airflow)
    if run is None or run["state"] == "success":
        return True if run else None
    running_task(airflow, run["dag_run_id"])
    return None


def proof(airflow: LocalAirflow, run_id: str) -> dict[str, Any]:
    """What the plan of a run moves, and the lower bound, as the task `plan` returned it."""
    path = f"/api/v2/dags/{_DAG}/dagRuns/{quote(run_id, safe='')}/taskInstances/plan/xcomEntries/return_value"
    value: dict[str, Any] = airflow.api("GET", path)["value"]
    return value
