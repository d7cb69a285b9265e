"""The heal in a plain loop, without Airflow: by `PlanRunner`, and by what a plan could be carried out with instead."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.carrying_out import BareRequests, KafkasTool, Way, Work
from benchmarks.stages import Stages, ask_until
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.execution.effects import elect_preferred_leaders
from kafka_steward.execution.moves.progress import Progress
from kafka_steward.execution.plans.drive import DrivePolicy, run_to_end
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.plans.snapshot import take_snapshot
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.watch.failure_detector import FailureDetector
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.planning.files.formats import PlanFolder, read_plan
from kafka_steward.sandbox import Sandbox
from kafka_steward.settings import Settings

VICTIM = 2
_WHO = Actor(person="benchmark")
_TOOL_LIMIT_S = 300.0


def heal(sandbox: Sandbox, folder: Path, partitions: int, settings: Settings, way: str) -> Stages:
    """Kill a broker and heal its partitions; `way` is a key of `WAYS`."""
    name, carry_out = WAYS[way]
    stages = Stages(name, sandbox.mode, partitions)
    url = f"sqlite:///{folder}/journal.db"
    with (
        KafkaCluster({"bootstrap_servers": sandbox.bootstrap.split(",")}) as cluster,
        open_journal(url, cluster.cluster_id) as journal,
    ):
        sandbox.kill(VICTIM)
        _detect(stages, cluster, journal, settings)
        _plan(stages, cluster, journal, folder)
        plan = read_plan(str(folder / "plan"))
        stages.replicas_moved = plan.proof["replicas_moved"]
        context = ClusterContext(cluster, journal, settings, _WHO)
        carry_out(_Heal(sandbox, folder, cluster, context), plan, stages)
        with stages.stage("elect"):
            elect_preferred_leaders(cluster, journal, who=_WHO)
    if carry_out is _by_runner:
        stages.plan_warm_s = _plan_in_warm_session(folder)
    return stages


@dataclass(frozen=True)
class _Heal:
    sandbox: Sandbox
    folder: Path
    cluster: KafkaCluster
    context: ClusterContext


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
    """Plan the snapshot three times in one session, and return the seconds of the third time.

    The session has two Python workers, which take turns, and each imports the planner for its first plan.
    """
    command = [sys.executable, "-m", "benchmarks.planner_speed", "--child", "heal", "--times", "3"]
    command += ["--snapshot", str(folder / "snapshot"), "--out", str(folder / "again")]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    return float(json.loads(done.stdout.splitlines()[-1])["seconds"][-1])


def _by_runner(heal: _Heal, plan: PlanFolder, stages: Stages) -> None:
    runner = PlanRunner(heal.context, plan.digest)
    began = time.monotonic()

    def report(progress: Progress) -> None:
        if not progress.waiting:
            stages.seconds.setdefault("submit", time.monotonic() - began)

    publish_plan(heal.context, plan)
    run_to_end(
        runner.step, time.sleep, DrivePolicy(interval_s=lambda: heal.context.settings.step_interval, report=report)
    )
    stages.seconds["catch up"] = time.monotonic() - began - stages.seconds["submit"]


def _by_bare_requests(heal: _Heal, plan: PlanFolder, stages: Stages) -> None:
    way = BareRequests(heal.cluster)
    _carry_out_at_once(way, plan, stages, throttle=heal.context.settings.throttle)


def _by_kafkas_tool(heal: _Heal, plan: PlanFolder, stages: Stages) -> None:
    way = KafkasTool(heal.sandbox, heal.cluster, heal.folder, _TOOL_LIMIT_S)
    # With a throttle it fails while a broker of the plan is dead: it sets a rate on every broker of the plan.
    _carry_out_at_once(way, plan, stages, throttle=0)


def _carry_out_at_once(way: Way, plan: PlanFolder, stages: Stages, *, throttle: int) -> None:
    stages.seconds["catch up"] = way.timed(Work("heal", (), throttle), plan.moves).seconds


#: How the plan may be carried out, by name: the name in the table, and the function.
WAYS: Mapping[str, tuple[str, Callable[[_Heal, PlanFolder, Stages], None]]] = {
    "plain": ("Runner in a loop", _by_runner),
    "bare": ("bare requests", _by_bare_requests),
    "tool": ("kafka-reassign-partitions", _by_kafkas_tool),
}
