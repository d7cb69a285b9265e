"""The demo's course: a cluster with data, a broker that fails, and the heal by Kafka Steward.

Its environment is a real Kafka cluster, a real Airflow, topics with data, and one DAG file. From the failure on, the
demo only polls the journal and Airflow's REST API, and never acts.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.state import Snapshot
from kafka_steward.demo.screen import (
    Bar,
    Screen,
    broker_table,
    cluster_table,
    count_under_replicated,
    merged_audit_table,
)
from kafka_steward.errors import StewardError
from kafka_steward.execution.plans.report import summarize_outcome
from kafka_steward.journal import paths
from kafka_steward.journal.kip_documents import FailedBroker
from kafka_steward.journal.mailbox import read_one
from kafka_steward.journal.records import MoveRow, MoveState, PlanRecord
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.sandbox import Sandbox
from kafka_steward.sandbox.airflow import AirflowDag, AirflowSilent, LocalAirflow
from kafka_steward.sandbox.artifacts import find_or_install_java

CONNECTION = "kafka_steward_default"

#: The complete DAG file that a user writes.
DAG_FILE = """\
from airflow_provider_kafka_steward.dags import heal

heal_cluster = heal()
"""

_TOPICS = ("clicks", "orders", "payments")
_PARTITIONS = 24
_BYTES = 40_000_000
_MEGABYTE = 1_000_000

_VICTIM = 2
_POLL_S = 0.3
_DETECTED_WITHIN_S = 60.0
_PLANNED_WITHIN_S = 300.0
_HEALED_WITHIN_S = 600.0

#: The states of a task that is under way.
_ACTIVE = {"running", "deferred", "queued", "up_for_retry"}

_Answer = TypeVar("_Answer")


class DemoFailed(StewardError, RuntimeError):
    """The demo did not reach its goal; the message states where it stopped and why."""


@dataclass(frozen=True)
class DemoSetup:
    """The environment of the demo. `grace_s` is the time in seconds until a missing broker counts as failed."""

    screen: Screen
    sandbox: Sandbox
    heal: AirflowDag
    journal_url: str
    grace_s: float


@contextlib.contextmanager
def demo_folder(*, keep: bool) -> Iterator[Path]:
    """Yield a folder for all files of the demo, which is removed at the end; after a failure it keeps the logs."""
    path = Path(tempfile.gettempdir()) / f"kafka-steward-demo-{secrets.token_hex(8)}"
    try:
        path.mkdir(mode=0o700)
        yield path
    except StewardError:
        raise
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    if not keep:
        shutil.rmtree(path, ignore_errors=True)


def create_airflow(home: Path, bootstrap: str, **settings: Any) -> tuple[LocalAirflow, str]:
    """Return an Airflow that is configured for the cluster, not started yet, and the URL of its journal.

    `settings` are those of the cluster, by their names.
    """
    journal_url = f"sqlite:///{home}/journal.db"
    extra = {
        "journal": journal_url,
        "workspace": str(home / "workspace"),
        # Nobody asked how full this disk is.
        "min_free": 0,
        **settings,
    }
    connection = {"conn_type": "kafka_steward", "host": bootstrap, "extra": extra}
    # A task that is killed removes nothing: what it leaves goes with the demo's folder.
    temporary = home / "tmp"
    environment = {"JAVA_HOME": str(find_or_install_java().home), "TMPDIR": str(temporary)}
    airflow = LocalAirflow(home, connections={CONNECTION: connection}, environment=environment)
    temporary.mkdir(parents=True)
    airflow.dags.mkdir(parents=True)
    (airflow.dags / "heal.py").write_text(DAG_FILE)
    return airflow, journal_url


def create_topics(sandbox: Sandbox) -> str:
    """Create the topics and fill them; return a summary."""
    for topic in _TOPICS:
        sandbox.create_topics(topic, partitions=_PARTITIONS, replication_factor=3)
        sandbox.fill(topic, _BYTES)
    sandbox.wait_replicated(_TOPICS)
    return (
        f"{', '.join(_TOPICS)}: {len(_TOPICS) * _PARTITIONS} partitions, replication factor 3, "
        f"{len(_TOPICS) * _BYTES // 1_000_000} MB of data"
    )


@dataclass(frozen=True)
class DemoResult:
    """The result of the demo; its string form is the demo's last line."""

    broker: int
    partitions: int
    replicas_moved: int
    lower_bound: int
    under_replicated: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"healed broker={self.broker} partitions={self.partitions} replicas_moved={self.replicas_moved} "
            f"lower_bound={self.lower_bound} under_replicated={self.under_replicated} seconds={self.seconds:.1f}"
        )


def play_demo(setup: DemoSetup) -> DemoResult:
    """Kill a broker, show the heal, and return the result. Raises DemoFailed with one message."""
    with (
        KafkaCluster({"bootstrap_servers": setup.sandbox.bootstrap.split(",")}) as cluster,
        open_journal(setup.journal_url, cluster.cluster_id) as journal,
    ):
        began_ms, before = journal.now_ms(), cluster.snapshot()
        _kill_broker(setup, before)
        killed = time.monotonic()
        _show_detection(setup, journal, killed)
        record, proof = _show_planning(setup, journal)
        dead = cluster.snapshot()
        _show_moving(setup.screen, journal, record)
        _show_end_of_run(setup)
        after = cluster.snapshot()
        left = count_under_replicated(after)
        if left or _VICTIM in after.hosting_brokers:
            raise DemoFailed(f"The plan {record.digest[:12]} ended, and {left} partitions are under-replicated.")
        seconds = time.monotonic() - killed
        outcome = summarize_outcome(journal.plans.rows(record.digest))
        trail = journal.audit.rows(since_ms=began_ms)
        setup.screen.print_table(
            f"The audit trail of this run ({len(trail)} rows, similar rows merged; times in UTC)",
            merged_audit_table(trail),
        )
        setup.screen.print_table("Brokers, before and after", broker_table(before, after))
        moments = [("before", before), ("broker dead", dead), ("healed", after)]
        setup.screen.print_table("The cluster", cluster_table(moments))
        placed, bound = outcome.replicas_placed, proof["lower_bound"]
        return DemoResult(_VICTIM, outcome.moved, placed, bound, left, seconds)


def _kill_broker(setup: DemoSetup, before: Snapshot) -> None:
    held = [partition for partition in before.partitions.values() if _VICTIM in partition.replicas]
    led = sum(partition.leader == _VICTIM for partition in held)
    process = setup.sandbox.brokers[_VICTIM].pid
    setup.sandbox.kill(_VICTIM)
    setup.screen.print_step(
        "kill", f"broker {_VICTIM} (process {process}) got SIGKILL: it held {len(held)} replicas and led {led}"
    )


def _show_detection(setup: DemoSetup, journal: Journal, killed: float) -> None:
    failure = _wait_for(
        lambda: read_failure(journal, _VICTIM),
        within_s=_DETECTED_WITHIN_S,
        what=f"broker {_VICTIM} to be detected as down",
    )
    screen = setup.screen
    screen.print_step(
        "detected", f"{time.monotonic() - killed:.1f} s after the kill; first seen is written in the journal"
    )
    screen.print_step("grace", f"{setup.grace_s:.0f} s for it to return (the default is 30 min)")
    due_ms = failure.failure_timestamp_ms + int(setup.grace_s * 1000)
    with screen.show_bar("") as bar:
        while (left_ms := due_ms - journal.now_ms()) > 0:
            bar.show(setup.grace_s * 1000 - left_ms, setup.grace_s * 1000, "waiting for the broker")
            time.sleep(0.2)


def _show_planning(setup: DemoSetup, journal: Journal) -> tuple[PlanRecord, Mapping[str, Any]]:
    run = _wait_for(setup.heal.latest_run, within_s=_PLANNED_WITHIN_S, what="a run of heal")
    setup.screen.print_step("due", "the DAG heal runs")
    with setup.screen.show_bar("plan") as bar:
        record = _wait_for(
            lambda: next((plan for plan in journal.plans.latest(5) if _VICTIM in plan.failed_brokers), None),
            within_s=_PLANNED_WITHIN_S,
            what="a plan",
            meanwhile=lambda: bar.show(0, 0, _current_task(setup.heal, run["dag_run_id"])),
        )
    proof = setup.heal.task_result(run["dag_run_id"], "plan")
    setup.screen.print_step(
        "plan",
        f"{proof['replicas_moved']} replicas to place, {proof['lower_bound']} is the fewest possible, "
        f"{len(record.chunks)} chunks; digest {record.digest[:12]}",
    )
    return record, proof


def _show_moving(screen: Screen, journal: Journal, record: PlanRecord) -> None:
    began = time.monotonic()
    with screen.show_bar("move") as bar:
        ended = _wait_for(
            lambda: _poll_plan(journal, record.digest, bar, began),
            within_s=_HEALED_WITHIN_S,
            what="the plan to be executed",
        )
    screen.print_step("moved", f"in {time.monotonic() - began:.1f} s: {ended.reason}")


def _poll_plan(journal: Journal, digest: str, bar: Bar, began: float) -> PlanRecord | None:
    now = count_moves(journal.plans.rows(digest))
    speed = now.settled_bytes / (time.monotonic() - began)
    left = f", {(now.bytes - now.settled_bytes) / speed:.0f} s left" if speed else ""
    bar.show(
        now.settled,
        now.partitions,
        f"chunk {now.chunk}/{now.chunks}  {now.settled}/{now.partitions} partitions in sync, {now.in_flight} catching "
        f"up, {now.settled_bytes / _MEGABYTE:.0f}/{now.bytes / _MEGABYTE:.0f} MB{left}",
    )
    record = journal.plans.get(digest)
    return record if record and record.status.finished else None


def _show_end_of_run(setup: DemoSetup) -> None:
    with setup.screen.show_bar("check") as bar:
        _wait_for(
            lambda: has_run_succeeded(setup.heal),
            within_s=_HEALED_WITHIN_S,
            what="the DAG run to end",
            meanwhile=lambda: bar.show(0, 0, "every replica in the ISR, preferred leaders elected"),
        )
    setup.screen.print_step("healed", "every replica is in its ISR, preferred leaders lead, and the DAG run succeeded")


@dataclass(frozen=True)
class MoveTotals:
    """Progress of a plan: settled and total partitions, settled and total bytes, and the current chunk."""

    settled: int
    partitions: int
    settled_bytes: int
    bytes: int
    in_flight: int
    chunk: int
    chunks: int


def count_moves(rows: list[MoveRow]) -> MoveTotals:
    """Return the totals of a plan's rows."""
    settled = [row for row in rows if row.state.settled]
    waiting = [row.move.chunk for row in rows if not row.state.settled]
    chunks = max((row.move.chunk for row in rows), default=-1) + 1
    return MoveTotals(
        settled=len(settled),
        partitions=len(rows),
        settled_bytes=sum(row.move.size_bytes or 0 for row in settled),
        bytes=sum(row.move.size_bytes or 0 for row in rows),
        in_flight=sum(row.state is MoveState.SUBMITTED for row in rows),
        chunk=min(waiting, default=chunks - 1) + 1,
        chunks=chunks,
    )


def _wait_for(
    question: Callable[[], _Answer | None],
    *,
    within_s: float,
    what: str,
    meanwhile: Callable[[], None] = lambda: None,
) -> _Answer:
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
    raise DemoFailed(f"The demo waited {within_s:.0f} s for {what} without success.")


def read_failure(journal: Journal, broker: int) -> FailedBroker | None:
    """Return the entry that the watch wrote for a dead broker."""
    node = read_one(journal.mailbox, paths.failed_broker(broker))
    return FailedBroker.from_node(node) if node else None


def _current_task(heal: AirflowDag, run_id: str) -> str:
    """Return the current task of a run, e.g. `task plan`. Raises DemoFailed when a task has failed without a retry."""
    states = {task["task_id"]: task["state"] for task in heal.list_tasks(run_id)}
    failed = [task for task, state in states.items() if state in {"failed", "upstream_failed"}]
    if failed:
        raise DemoFailed(f"The task {failed[0]} failed. The end of its log: {heal.task_log(run_id, failed[0])[-1500:]}")
    active = next((task for task, state in states.items() if state in _ACTIVE), None)
    return f"task {active}" if active else "Airflow starts the next task"


def has_run_succeeded(heal: AirflowDag) -> bool | None:
    """Return True once the newest run has succeeded, else None. Raises DemoFailed when one of its tasks has failed."""
    run = heal.latest_run()
    if run is None or run["state"] == "success":
        return True if run else None
    _current_task(heal, run["dag_run_id"])
    return None
