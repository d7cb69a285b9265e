"""`python -m benchmarks.joining`: seconds from a broker joining to the last pending replica being in sync (KIP-409).

With one of three brokers away, and on KRaft unregistered, a topic is created with replication factor 3: each partition
gets two replicas, and one is pending. Then the broker is started. The clock begins when Kafka lists it as live; then a
plain loop, or the watch and the `fill` DAG in a real Airflow, look who can take the pending replicas, take a snapshot,
plan (a Spark job of its own), carry it out, and remove the records of pending replicas.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.given import WHO
from benchmarks.joining_by_dag import fill_by_dag
from benchmarks.report import table, write_between
from benchmarks.stages import Stages, ask_until
from benchmarks.ways import bounded
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.execution.plans.drive import DrivePolicy, run_to_end
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.plans.snapshot import take_snapshot
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.topics.creation import TopicSpec, create_topic
from kafka_steward.execution.topics.pending import list_pending, reconcile_pending, target_replication_factors
from kafka_steward.execution.watch.broker_joins import poll_joined_brokers
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.planning.files.formats import read_plan
from kafka_steward.sandbox import Sandbox, start
from kafka_steward.settings import Settings
from tests.lost_brokers import lose

_BROKERS, _JOINING = 3, 3
_TOPIC = "orders"
_LONGEST_S = 900.0
_PARTS = ("look", "snapshot", "plan", "fill", "settle")


def main() -> None:
    options = _parser().parse_args()
    rows = []
    for mode in options.modes:
        for way in options.ways:
            rows.append(_joined(mode, way, options.partitions, options.megabytes))
            print(rows[-1], flush=True)
    text = _table(rows, options.megabytes)
    print(text)
    if options.write:
        write_between("joining", text)


def _joined(mode: str, way: str, partitions: int, megabytes: int) -> Stages:
    with tempfile.TemporaryDirectory() as name, start(mode=mode, brokers=_BROKERS, racks=_BROKERS) as sandbox:
        create = partial(_create, sandbox, partitions, megabytes)
        if way == "airflow":
            stages = Stages("DAG in Airflow", mode, partitions)
            throttle = Settings().throttle
            fill_by_dag(sandbox, Path(name), stages, joining=_JOINING, throttle=throttle, create=create)
            return stages
        stages = Stages("Runner in a loop", mode, partitions)
        with _opened(sandbox, Path(name)) as (cluster, journal):
            create(cluster, journal)
        # Brokers end with the thread that starts them, so it is the loop that gets a thread of its own.
        with ThreadPoolExecutor(1) as pool:
            filling = pool.submit(_fill, sandbox, Path(name), stages)
            sandbox.restart(_JOINING)
            filling.result(timeout=_LONGEST_S)
        return stages


@contextmanager
def _opened(sandbox: Sandbox, folder: Path) -> Iterator[tuple[KafkaCluster, Journal]]:
    with (
        KafkaCluster({"bootstrap_servers": sandbox.bootstrap.split(",")}) as cluster,
        open_journal(f"sqlite:///{folder}/journal.db", cluster.cluster_id) as journal,
    ):
        yield cluster, journal


def _create(sandbox: Sandbox, partitions: int, megabytes: int, cluster: KafkaCluster, journal: Journal) -> None:
    """A topic of which one replica of each partition is pending."""
    sandbox.create_topics(f"{_TOPIC}-before", replication_factor=_BROKERS)  # by which the broker is known
    lose(sandbox, _JOINING)
    ask_until(lambda: _JOINING not in cluster.live_brokers() or None, within_s=120)
    wanted = TopicSpec(_TOPIC, partitions, _BROKERS, {"min.insync.replicas": "2"})
    made = create_topic(cluster, journal, wanted, allowed=True, who=WHO)
    if made.pending != partitions:
        raise RuntimeError(made.sentence)
    sandbox.wait_replicated([_TOPIC])
    sandbox.fill(_TOPIC, megabytes * 1_000_000)


def _fill(sandbox: Sandbox, folder: Path, stages: Stages) -> None:
    settings = Settings(min_free=0)
    with _opened(sandbox, folder) as (cluster, journal):
        ask_until(lambda: _JOINING in cluster.live_brokers() or None, within_s=120)
        with stages.stage("look"):
            ask_until(lambda: _is_due(cluster, journal, settings), within_s=120, every_s=settings.watch_interval)
        with stages.stage("snapshot"):
            snapshot = cluster.snapshot()
            wanted = target_replication_factors(list_pending(journal, snapshot), snapshot, ())
            take_snapshot(cluster, str(folder / "snapshot"), failed=(), now_ms=journal.now_ms(), targets=wanted)
        with stages.stage("plan"):
            command = [sys.executable, "-m", "kafka_steward.planning.spark.job", "--operation", "fill"]
            command += ["--snapshot", str(folder / "snapshot"), "--out", str(folder / "plan")]
            subprocess.run(command, check=True, capture_output=True, timeout=300)
        with stages.stage("fill"):
            plan = read_plan(str(folder / "plan"))
            stages.replicas_moved = plan.proof["replicas_moved"]
            publish_plan(ClusterContext(cluster, journal, settings, WHO), plan)
            runner = PlanRunner(ClusterContext(cluster, journal, settings, WHO), plan.digest)
            run_to_end(runner.step, bounded(_LONGEST_S), DrivePolicy(interval_s=lambda: settings.step_interval))
        with stages.stage("settle"):
            settled = reconcile_pending(cluster, journal, cluster.snapshot(), WHO)
    if len(settled) != stages.partitions or not all(debt.is_obsolete for debt in settled):
        raise RuntimeError(f"{sum(not debt.is_obsolete for debt in settled)} partitions still have a pending replica.")


def _is_due(cluster: KafkaCluster, journal: Journal, settings: Settings) -> bool | None:
    looked = poll_joined_brokers(cluster, journal, settings, WHO)
    return (looked is not None and bool(looked.due)) or None


def _table(rows: Sequence[Stages], megabytes: int) -> str:
    head = ["mode", "by", "partitions", "MB", "pending", *_PARTS, "sum"]
    lines = [
        [row.mode, row.way, str(row.partitions), str(megabytes), str(row.replicas_moved)]
        + [f"{seconds:.1f}" for seconds in (*(row.seconds[part] for part in _PARTS), row.total)]
        for row in rows
    ]
    return table(head, lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.joining", description=__doc__)
    parser.add_argument("--modes", nargs="+", default=["kraft", "zookeeper"], choices=["kraft", "zookeeper"])
    parser.add_argument("--ways", nargs="+", default=["loop", "airflow"], choices=["loop", "airflow"])
    parser.add_argument("--partitions", type=int, default=60)
    parser.add_argument("--megabytes", type=int, default=60, help="in the whole topic")
    parser.add_argument("--write", action="store_true", help="put the table into docs/benchmarks.md")
    return parser


if __name__ == "__main__":
    main()
