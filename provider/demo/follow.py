"""The state of the demo, read from the journal and Airflow's REST API: the demo only polls, and never acts."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from kafka_steward.errors import StewardError
from kafka_steward.journal import paths
from kafka_steward.journal.kip_documents import FailedBroker
from kafka_steward.journal.moves import MoveRow, MoveState
from kafka_steward.journal.records import PlanRecord
from kafka_steward.journal.store import Journal
from kafka_steward.sandbox.airflow import AirflowDag, AirflowSilent

Answer = TypeVar("Answer")
_ACTIVE = {"running", "deferred", "queued", "up_for_retry"}
_POLL_S = 0.3


class DemoFailed(StewardError, RuntimeError):
    """The demo did not reach its goal; the message states where it stopped and why."""


@dataclass(frozen=True)
class Moving:
    """Progress of a plan: settled and total partitions, settled and total bytes, and the current chunk."""

    settled: int
    partitions: int
    settled_bytes: int
    bytes: int
    in_flight: int
    chunk: int
    chunks: int


def wait_for(
    question: Callable[[], Answer | None],
    *,
    within_s: float,
    what: str,
    meanwhile: Callable[[], None] = lambda: None,
) -> Answer:
    """Poll `question` until it returns a value. Raises DemoFailed, naming `what`, after `within_s` seconds.

    An api-server that is too busy to answer is polled again.
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
    """Return the entry that the watch wrote for a dead broker."""
    node = journal.tree.get(paths.failed_broker(broker))
    return FailedBroker.from_node(node) if node else None


def latest_heal(journal: Journal, broker: int) -> PlanRecord | None:
    """Return the newest plan that heals `broker`."""
    return next((record for record in journal.plans.latest(5) if broker in record.failed_brokers), None)


def moving(rows: list[MoveRow]) -> Moving:
    """Return the totals of a plan's rows."""
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


def latest_run(heal: AirflowDag) -> dict[str, Any] | None:
    """Return the newest run of the DAG, if there is one."""
    runs = heal.runs()
    return runs[-1] if runs else None


def running_task(heal: AirflowDag, run_id: str) -> str:
    """Return the current task of a run, e.g. `task plan`. Raises DemoFailed when a task has failed without a retry."""
    states = {task["task_id"]: task["state"] for task in heal.tasks(run_id)}
    failed = [task for task, state in states.items() if state in {"failed", "upstream_failed"}]
    if failed:
        raise DemoFailed(f"The task {failed[0]} failed. The end of its log: {heal.log(run_id, failed[0])[-1500:]}")
    active = next((task for task, state in states.items() if state in _ACTIVE), None)
    return f"task {active}" if active else "Airflow starts the next task"


def succeeded(heal: AirflowDag) -> bool | None:
    """Return True once the newest run has succeeded, else None. Raises DemoFailed when one of its tasks has failed."""
    run = latest_run(heal)
    if run is None or run["state"] == "success":
        return True if run else None
    running_task(heal, run["dag_run_id"])
    return None
