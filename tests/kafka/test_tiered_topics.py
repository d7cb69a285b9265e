"""Topics with remote storage on real brokers: a new replica copies what is planned (KIP-405, KIP-1023)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.execution.plans.snapshot import take_snapshot
from kafka_steward.execution.tiered import BEGINS_LATE, find_begun_late
from kafka_steward.planning.files.formats import read_snapshot
from kafka_steward.sandbox import Sandbox, start
from kafka_steward.sandbox.artifacts import locked_jars, parse_lock
from tests.eventually import eventually
from tests.kafka.cluster_contract import same

#: Kafka's own remote storage in a local folder, which its tests use.
LOCK = Path(__file__).with_name("tiered-storage.lock")
NAME = TopicPartition("orders", 0)
SEGMENT, LOCAL, ALL = 1_048_576, 8_000_000, 20_000_000

pytestmark = [pytest.mark.kraft, pytest.mark.slow]


def settings(folder: Path, *, begins_late: bool) -> dict[str, str]:
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
        "rsm.config.dir": str(folder / "remote"),
        "remote.log.manager.task.interval.ms": "500",
        "log.retention.check.interval.ms": "1000",
        "log.initial.task.delay.ms": "500",
        BEGINS_LATE: str(begins_late).lower(),
    }


@pytest.fixture(params=[False, True], ids=["from the local start", "after what is tiered"])
def tiered(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Sandbox, bool]]:
    jars = locked_jars(parse_lock(LOCK.read_text()))
    properties = settings(tmp_path, begins_late=request.param)
    with start("kraft", brokers=3, properties=properties, heap_mb=384, more_jars=jars) as sandbox:
        configs = {"remote.storage.enable": "true", "segment.bytes": str(SEGMENT), "local.retention.bytes": str(LOCAL)}
        sandbox.create_topics("orders", assignments={0: [1, 2]}, configs={**configs, "file.delete.delay.ms": "1000"})
        sandbox.fill("orders", ALL)
        yield sandbox, request.param


def test_what_a_new_replica_copies_is_planned_and_one_that_has_just_begun_is_not_made_leader(
    tiered: tuple[Sandbox, bool], tmp_path: Path
) -> None:
    sandbox, begins_late = tiered
    with KafkaCluster({"bootstrap_servers": sandbox.bootstrap}) as cluster:

        def on(broker: int) -> int:
            return cluster.log_sizes({broker: [NAME]}).get((NAME, broker), 0)

        def is_tiered() -> None:
            assert on(1) <= LOCAL + 2 * SEGMENT
            start_ = cluster.log_starts({1: [NAME]})[NAME, 1]
            assert start_.end - start_.tiered < (start_.end - start_.local) / 2, "most of it is in remote storage"

        eventually(is_tiered, within=60)
        take_snapshot(cluster, f"{tmp_path}/snapshot", failed=(), now_ms=1)
        rows = read_snapshot(f"{tmp_path}/snapshot").partitions.to_pylist()
        (planned,) = [row["bytes"] for row in rows if row["topic"] == "orders"]
        assert cluster.alter({NAME: (3, 1)}) == {NAME: None}
        eventually(lambda: same(cluster.snapshot(["orders"]).partitions[NAME].isr, {1, 3}), within=60)
        copied = on(3)
        assert abs(planned - copied) <= 1.5 * SEGMENT
        assert copied < ALL / 2
        assert (copied < on(1) / 2) == begins_late
        late = find_begun_late(cluster, cluster.snapshot(["orders"]), [NAME])
        assert late.keys() == ({NAME} if begins_late else set())
