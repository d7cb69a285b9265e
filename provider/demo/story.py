"""The demo's course: a cluster with data, a broker that fails, and the heal by Kafka Steward.

Its environment is a real Kafka cluster, a real Airflow, topics with data, and one DAG file.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.state import Snapshot
from kafka_steward.demo import follow
from kafka_steward.demo.screen import (
    BROKER_COLUMNS,
    TRAIL_COLUMNS,
    Bar,
    Screen,
    broker_rows,
    cluster_rows,
    trail_rows,
    under_replicated,
)
from kafka_steward.errors import StewardError
from kafka_steward.journal.records import PlanRecord
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.sandbox import Sandbox
from kafka_steward.sandbox.airflow import AirflowDag, LocalAirflow
from kafka_steward.sandbox.artifacts import java

CONNECTION = "kafka_steward_default"

#: The complete DAG file that a user writes.
DAG_FILE = """\
# Airflow reads only those DAG files that name it, so this line stays.
from kafka_steward.dags import heal
heal_cluster = heal()
"""

_TOPICS = ("clicks", "orders", "payments")

_PARTITIONS = 24

_BYTES = 40_000_000


@dataclass(frozen=True)
class Scene:
    """The environment of the demo. `grace_s` is the time in seconds until a missing broker counts as failed."""

    sandbox: Sandbox
    airflow: LocalAirflow
    heal: AirflowDag
    journal_url: str
    grace_s: float


@contextmanager
def folder(*, keep: bool) -> Iterator[Path]:
    """Yield a folder for all files of the demo, which is removed at the end; after a failure it keeps the logs."""
    path = Path(tempfile.mkdtemp(prefix="kafka-steward-demo-"))
    try:
        yield path
    except StewardError:
        raise
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    if not keep:
        shutil.rmtree(path, ignore_errors=True)


def airflow_in(home: Path, bootstrap: str, *, grace_s: float, throttle: int) -> tuple[LocalAirflow, str]:
    """Return an Airflow that is configured for the cluster, not started yet, and the URL of its journal."""
    journal_url = f"sqlite:///{home}/journal.db"
    extra = {
        "journal": journal_url,
        "workspace": str(home / "workspace"),
        "heal_failure_interval": grace_s,
        "heal_chunk_size": 12,
        "throttle": throttle,
    }
    connection = {"conn_type": "kafka_steward", "host": bootstrap, "extra": extra}
    airflow = LocalAirflow(home, connections={CONNECTION: connection}, environment={"JAVA_HOME": str(java().home)})
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


_MEGABYTE = 1_000_000

_DETECTED_WITHIN_S = 60.0

_PLANNED_WITHIN_S = 300.0

_HEALED_WITHIN_S = 600.0


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


def play(scene: Scene, screen: Screen, victim: int) -> DemoResult:
    """Kill `victim`, show the heal, and return the result. Raises DemoFailed with one message."""
    with ExitStack() as stack:
        cluster = stack.enter_context(KafkaCluster({"bootstrap_servers": scene.sandbox.bootstrap.split(",")}))
        journal = stack.enter_context(open_journal(scene.journal_url, cluster.cluster_id))
        began_ms, before = journal.now_ms(), cluster.snapshot()
        killed = _kill(scene, screen, before, victim)
        _show_detection(scene, screen, journal, victim, killed)
        record, proof = _show_planning(scene, screen, journal, victim)
        dead = cluster.snapshot()
        _show_moving(screen, journal, record)
        _show_end_of_run(scene, screen)
        after = cluster.snapshot()
        ending = _ending(victim, record, proof, after, time.monotonic() - killed)
        _show_trail(screen, journal, began_ms)
        _show_tables(screen, [("before", before), ("broker dead", dead), ("healed", after)])
        return ending


def _kill(scene: Scene, screen: Screen, before: Snapshot, victim: int) -> float:
    held = [partition for partition in before.partitions.values() if victim in partition.replicas]
    led = sum(partition.leader == victim for partition in held)
    process = scene.sandbox.brokers[victim].pid
    scene.sandbox.kill(victim)
    screen.step("kill", f"broker {victim} (process {process}) got SIGKILL: it held {len(held)} replicas and led {led}")
    return time.monotonic()


def _show_detection(scene: Scene, screen: Screen, journal: Journal, victim: int, killed: float) -> None:
    failure = follow.wait_for(
        lambda: follow.failure_of(journal, victim), within_s=_DETECTED_WITHIN_S, what=f"broker {victim} to be missed"
    )
    screen.step("detected", f"{time.monotonic() - killed:.1f} s after the kill; first seen is written in the journal")
    screen.step("grace", f"{scene.grace_s:.0f} s for it to come back (the default is 30 min)")
    due_ms = failure.failure_timestamp_ms + int(scene.grace_s * 1000)
    with screen.bar("") as bar:
        while (left_ms := due_ms - journal.now_ms()) > 0:
            bar.show(scene.grace_s * 1000 - left_ms, scene.grace_s * 1000, "waiting for the broker")
            time.sleep(0.2)


def _show_planning(scene: Scene, screen: Screen, journal: Journal, victim: int) -> tuple[PlanRecord, Mapping[str, Any]]:
    run = follow.wait_for(lambda: follow.latest_run(scene.heal), within_s=_PLANNED_WITHIN_S, what="a run of heal")
    screen.step("due", "the DAG heal runs")
    with screen.bar("plan") as bar:
        record = follow.wait_for(
            lambda: follow.latest_heal(journal, victim),
            within_s=_PLANNED_WITHIN_S,
            what="a plan",
            meanwhile=lambda: bar.show(0, 0, follow.running_task(scene.heal, run["dag_run_id"])),
        )
    proof = scene.heal.returned(run["dag_run_id"], "plan")
    screen.step(
        "plan",
        f"{proof['replicas_moved']} replicas to place, {proof['lower_bound']} is the fewest possible, "
        f"{len(record.chunks)} chunks; digest {record.digest[:12]}",
    )
    return record, proof


def _show_moving(screen: Screen, journal: Journal, record: PlanRecord) -> None:
    began = time.monotonic()
    with screen.bar("move") as bar:
        follow.wait_for(
            lambda: _ended(journal, record.digest, bar, began),
            within_s=_HEALED_WITHIN_S,
            what="the plan to be carried out",
        )
    ended = journal.plans.get(record.digest)
    reason = ended.reason if ended else ""
    screen.step("moved", f"in {time.monotonic() - began:.1f} s: {reason}")


def _ended(journal: Journal, digest: str, bar: Bar, began: float) -> PlanRecord | None:
    now = follow.moving(journal.plans.rows(digest))
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


def _show_end_of_run(scene: Scene, screen: Screen) -> None:
    with screen.bar("check") as bar:
        follow.wait_for(
            lambda: follow.succeeded(scene.heal),
            within_s=_HEALED_WITHIN_S,
            what="the DAG run to end",
            meanwhile=lambda: bar.show(0, 0, "every replica in the ISR, preferred leaders elected"),
        )
    screen.step("whole", "every replica is in its ISR, preferred leaders lead, and the DAG run succeeded")


def _ending(victim: int, record: PlanRecord, proof: Mapping[str, Any], after: Snapshot, seconds: float) -> DemoResult:
    left = under_replicated(after)
    if left or victim in after.hosting:
        raise follow.DemoFailed(f"The plan {record.digest[:12]} ended, and {left} partitions are under-replicated.")
    return DemoResult(victim, record.partitions, proof["replicas_moved"], proof["lower_bound"], left, seconds)


def _show_trail(screen: Screen, journal: Journal, since_ms: int) -> None:
    trail = journal.audit.rows(since_ms=since_ms)
    screen.table(
        f"The audit trail of this run ({len(trail)} rows, neighbours drawn together)", TRAIL_COLUMNS, trail_rows(trail)
    )


def _show_tables(screen: Screen, moments: list[tuple[str, Snapshot]]) -> None:
    screen.table("Brokers, before and after", BROKER_COLUMNS, broker_rows(moments[0][1], moments[-1][1]))
    columns = ("", "under-replicated", "offline", "racks of the narrowest partition")
    screen.table("The cluster", columns, cluster_rows(moments))
