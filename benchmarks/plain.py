"""The heal by `PlanRunner` in a plain loop: no Airflow."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.stages import Stages, ask_until
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.execution.effects import elect_preferred_leaders
from kafka_steward.execution.failure_detector import FailureDetector
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.progress import Progress
from kafka_steward.execution.publishing import publish_plan
from kafka_steward.execution.runner import PlanRunner, run_to_end
from kafka_steward.execution.snapshot import take_snapshot
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.planning.files.formats import read_plan
from kafka_steward.sandbox import Sandbox
from kafka_steward.settings import Settings

VICTIM = 2
_WHO = Actor(person="benchmark")


def heal(sandbox: Sandbox, folder: Path, partitions: int, settings: Settings) -> Stages:
    """Kill a broker and heal its partitions."""
    stages = Stages("Runner in a loop", sandbox.mode, partitions)
    url = f"sqlite:///{folder}/journal.db"
    with (
        KafkaCluster({"bootstrap_servers": sandbox.bootstrap.split(",")}) as cluster,
        open_journal(url, cluster.cluster_id) as journal,
    ):
        sandbox.kill(VICTIM)
        _detect(stages, cluster, journal, settings)
        _plan(stages, cluster, journal, folder)
        _carry_out(stages, cluster, journal, folder, settings)
        with stages.stage("elect"):
            elect_preferred_leaders(cluster, journal, who=_WHO)
    stages.plan_warm_s = _plan_in_warm_session(folder)
    return stages


def _detect(stages: Stages, cluster: KafkaCluster, journal: Journal, settings: Settings) -> None:
    detector = FailureDetector(cluster, journal, settings, _WHO)
    with stages.stage("detect"):
        ask_until(lambda: detector.poll().failed or None, within_s=60, every_s=settings.watch_interval)


def _plan(stages: Stages, cluster: KafkaCluster, journal: Journal, folder: Path) -> None:
    with stages.stage("snapshot"):
        take_snapshot(cluster, str(folder / "snapshot"), failed={VICTIM}, now_ms=journal.now_ms())
    with stages.stage("plan"):
        command = [sys.executable, "-m", "kafka_steward.planning.spark.job", "--operation", "heal"]
        command += ["--snapshot", str(folder / "snapshot"), "--out", str(folder / "plan")]
        subprocess.run(command, check=True, capture_output=True, timeout=300)


def _plan_in_warm_session(folder: Path) -> float:
    """Plan the snapshot twice in one session, and return the seconds of the second time."""
    command = [sys.executable, "-m", "benchmarks.planner_speed", "--child", "heal"]
    command += ["--snapshot", str(folder / "snapshot"), "--out", str(folder / "again")]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    return float(json.loads(done.stdout.splitlines()[-1])["seconds"][1])


def _carry_out(stages: Stages, cluster: KafkaCluster, journal: Journal, folder: Path, settings: Settings) -> None:
    plan = read_plan(str(folder / "plan"))
    stages.replicas_moved = plan.proof["replicas_moved"]
    runner = PlanRunner(ClusterContext(cluster, journal, settings, _WHO), plan.digest)
    began = time.monotonic()

    def report(progress: Progress) -> None:
        if not progress.waiting:
            stages.seconds.setdefault("submit", time.monotonic() - began)

    publish_plan(ClusterContext(cluster, journal, settings, _WHO), plan)
    run_to_end(runner, time.sleep, interval_s=lambda: settings.step_interval, report=report)
    stages.seconds["catch up"] = time.monotonic() - began - stages.seconds["submit"]
