"""A full disk of a real broker is relieved: what is above the threshold moves to other brokers, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.state import Directory
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.plans.snapshot import take_snapshot
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.watch.imbalance import find_full_brokers
from kafka_steward.journal.store import open_journal
from kafka_steward.planning.checker.check import check
from kafka_steward.planning.files.formats import read_snapshot
from kafka_steward.sandbox.cluster import SmallDisk, can_mount, start
from kafka_steward.settings import Settings
from tests.eventually import eventually
from tests.local_plan import plan_folder
from tests.simulated_plan import WHO
from tests.stepping import to_the_end

pytestmark = [pytest.mark.ci, pytest.mark.skipif(not can_mount(), reason="this process may not mount a file system")]

MB = 1_000_000
FULL = 4


def directories(cluster: KafkaCluster) -> list[Directory]:
    return [each for dirs in cluster.log_dirs([1, 2, 3, 4]).values() for each in dirs.directories]


def used(directory: Directory) -> float:
    assert directory.total_bytes
    assert directory.usable_bytes is not None
    return 1 - directory.usable_bytes / directory.total_bytes


@pytest.mark.parametrize(
    "mode", [pytest.param(mode, marks=getattr(pytest.mark, mode)) for mode in ("kraft", "zookeeper")]
)
def test_what_a_disk_holds_above_the_threshold_moves_and_nothing_else(mode: str, tmp_path: Path) -> None:
    disk = SmallDisk(bytes=100 * MB, used=95 * MB)
    with start(mode, brokers=4, racks=1, small_disks={FULL: disk}) as sandbox:
        sandbox.create_topics("t", assignments={number: [FULL, 1 + number % 3] for number in range(8)})
        sandbox.fill("t", 6 * MB)
        settings = Settings(throttle=0, min_free=0)
        with (
            KafkaCluster({"bootstrap_servers": sandbox.bootstrap}) as cluster,
            open_journal(f"sqlite:///{tmp_path}/journal.db", cluster.cluster_id) as journal,
        ):

            def fullest() -> Directory:
                found = max(directories(cluster), key=used)
                assert sum(found.replica_bytes.values()) > 2 * MB
                return found

            full = eventually(fullest, within=30)
            others = max(used(each) for each in directories(cluster) if each.path != full.path)
            if others > 0.96:
                pytest.skip("the disk of this machine is as full as the small one")
            limit = round(used(full) - 0.012, 4)
            assert find_full_brokers(cluster.log_dirs([1, 2, 3, 4]), limit) == (FULL,)
            uri = str(tmp_path / "snapshot")
            take_snapshot(cluster, uri, failed=(), now_ms=1, min_free=0.0)
            snapshot = read_snapshot(uri)
            plan = plan_folder(uri, tmp_path / "plan", "relieve", {"max_used": limit})
            assert check(snapshot, plan).problems == []
            names = {move.topic_partition for move in plan.moves}
            assert names < set(full.replica_bytes)
            assert all(FULL in move.removing for move in plan.moves)
            before = {name: each.replicas for name, each in cluster.snapshot().partitions.items()}
            context = ClusterContext(cluster, journal, settings, WHO)
            record = publish_plan(context, plan, snapshot=snapshot)
            progress = to_the_end(PlanRunner(context, record.digest))
            assert progress.completed == len(names), progress.sentence
            after = {name: each.replicas for name, each in cluster.snapshot().partitions.items()}
            assert {name for name in after if after[name] != before[name]} == names

            def relieved() -> None:
                assert find_full_brokers(cluster.log_dirs([FULL]), limit) == ()

            # Kafka deletes logs that have left a while later.
            eventually(relieved, within=90)
