"""Log directories of real brokers: one that fails is named and healed, cordoned ones get nothing (KIP-1066)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.errors import ClusterError
from kafka_steward.execution.failure_detector import FailureDetector
from kafka_steward.execution.health import check_health
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.publishing import publish_plan
from kafka_steward.execution.runner import PlanRunner
from kafka_steward.execution.snapshot import take_snapshot
from kafka_steward.journal.store import open_journal
from kafka_steward.planning.files.formats import cordoned_brokers, read_snapshot
from kafka_steward.sandbox import Sandbox, start
from kafka_steward.settings import Settings
from tests.eventually import eventually
from tests.local_plan import plan_folder
from tests.simulated_plan import WHO
from tests.stepping import to_the_end

HEALING = Settings(heal_failure_interval=0, heal_failed_disks=True, min_free=0)


@pytest.fixture(
    params=[pytest.param("kraft", marks=pytest.mark.kraft), pytest.param("zookeeper", marks=pytest.mark.zookeeper)]
)
def own(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """A cluster of one's own: what is done to its disks is not undone."""
    with start(request.param, brokers=4) as sandbox:
        yield sandbox


@pytest.mark.in_ci("kraft")
def test_a_log_directory_that_fails_is_named_and_healed(own: Sandbox, tmp_path: Path) -> None:
    own.create_topics("t", partitions=6, assignments={number: [1, 2, 3] for number in range(6)})
    with (
        KafkaCluster({"bootstrap_servers": own.bootstrap}) as cluster,
        open_journal(f"sqlite:///{tmp_path}/journal.db", cluster.cluster_id) as journal,
    ):
        disk = str(own.folder / "broker-1" / "disk-2")
        held = next(each for each in cluster.log_dirs([1])[1].directories if each.path == disk).replica_bytes
        assert held
        break_disk(own, disk)
        eventually(lambda: failed(cluster, disk), within=60)

        def offline() -> set[TopicPartition]:
            names = set(cluster.snapshot().offline_on_live_brokers.get(1, ()))
            assert names == set(held)
            return names

        lost = eventually(offline, within=60, errors=(ClusterError,))
        health, _ = check_health(cluster, journal)
        assert (health.failed_log_dirs, health.measures["failed_log_dirs"]) == ({1: (disk,)}, 1)
        verdict = FailureDetector(cluster, journal, HEALING, WHO).poll()
        assert (verdict.due, verdict.down, verdict.disks) == ((1,), (), {1: (disk,)})

        uri = str(tmp_path / "snapshot")
        take_snapshot(cluster, uri, failed=verdict.failed, now_ms=1, failed_disks_of=verdict.failed)
        plan = plan_folder(uri, tmp_path / "plan")
        assert {move.topic_partition for move in plan.moves} == lost
        record = publish_plan(ClusterContext(cluster, journal, HEALING, WHO), plan, snapshot=read_snapshot(uri))
        progress = to_the_end(PlanRunner(ClusterContext(cluster, journal, HEALING, WHO), record.digest))
        assert progress.completed == len(lost), progress.sentence

        def whole() -> None:
            snapshot = cluster.snapshot()
            assert {1 in each.replicas for name, each in snapshot.partitions.items() if name in lost} == {False}
            assert not any(each.under_replicated for each in snapshot.partitions.values())

        eventually(whole, within=60)
        assert FailureDetector(cluster, journal, HEALING, WHO).poll().failed == ()


def break_disk(sandbox: Sandbox, disk: str) -> None:
    """Take the directory away under the broker, and let the broker write into it: it finds a file there."""
    # At once, or the broker writes a checkpoint into what is being removed.
    Path(disk).rename(f"{disk}-taken-away")
    Path(disk).write_text("a disk that has failed")
    for number in range(2):  # one of them is put there
        with KafkaCluster({"bootstrap_servers": sandbox.bootstrap}) as cluster:
            cluster.create_topic(f"probe-{number}", 2, 1, assignments=[(1,), (1,)])


def failed(cluster: KafkaCluster, disk: str) -> None:
    assert cluster.directories([1])[1].failed_paths == (disk,)


@pytest.mark.kraft
@pytest.mark.ci
def test_a_broker_whose_directories_are_all_cordoned_gets_nothing(tmp_path: Path) -> None:
    with start("kraft", brokers=4) as own:
        own.create_topics("t", partitions=6, assignments={number: [1, 2, 3] for number in range(6)})
        with (
            KafkaCluster({"bootstrap_servers": own.bootstrap}) as cluster,
            open_journal(f"sqlite:///{tmp_path}/journal.db", cluster.cluster_id) as journal,
        ):
            first = str(own.folder / "broker-4" / "disk-1")
            cordon(cluster, first)

            def one() -> None:
                dirs = cluster.log_dirs([4])[4]
                assert {each.path: each.cordoned for each in dirs.directories}[first]
                assert not dirs.cordoned

            eventually(one, within=30)
            cordon(cluster, "*")

            def all_of_them() -> None:
                assert cluster.directories([4])[4].cordoned

            eventually(all_of_them, within=30)
            health, _ = check_health(cluster, journal)
            assert health.cordoned == (4,)
            uri = str(tmp_path / "snapshot")
            take_snapshot(cluster, uri, failed=(), now_ms=1)
            assert cordoned_brokers(read_snapshot(uri).brokers) == [4]
            plan = plan_folder(uri, tmp_path / "plan", "rebalance")
            assert all(not move.adding for move in plan.moves)
            assert plan.proof["options"]["exclude_brokers"] == [4]


def cordon(cluster: KafkaCluster, directories: str) -> None:
    change = ConfigChange("cordoned.log.dirs", ConfigOp.SET, directories)
    assert cluster.change_broker_configs({4: [change]}) == {4: None}
