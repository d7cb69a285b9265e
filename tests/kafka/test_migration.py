"""A cluster in migration from ZooKeeper to KRaft (KIP-866): a KRaft controller, and brokers in ZooKeeper mode."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from kafka_steward.assignment import Assignment
from kafka_steward.cli import Exit
from kafka_steward.cluster.client import MIGRATION, KafkaCluster
from kafka_steward.sandbox import Sandbox, start
from kafka_steward.sandbox.cluster_layout import pick_ports
from tests.airflow_home import Connect, connect
from tests.cli.airflow_command import assignments, written
from tests.cli.calling import run
from tests.eventually import eventually

__all__ = ["connect"]

pytestmark = [pytest.mark.zookeeper, pytest.mark.ci]

_CONTROLLER = 3000


@pytest.fixture
def migrating() -> Iterator[tuple[Sandbox, KazooClient]]:
    """Three brokers, and a client of their ZooKeeper."""
    (port,) = pick_ports(1)
    quorum = {
        "controller.quorum.voters": f"{_CONTROLLER}@127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        MIGRATION: "true",
    }
    with ExitStack() as ends:
        # The release of KRaft begins with the last one of ZooKeeper.
        sandbox = ends.enter_context(
            start("zookeeper", brokers=3, properties={**quorum, "inter.broker.protocol.version": "3.9"})
        )
        with KafkaCluster({"bootstrap_servers": sandbox.bootstrap}) as cluster:
            cluster_id = cluster.cluster_id
        controller = {
            **quorum,
            "process.roles": "controller",
            "node.id": _CONTROLLER,
            "listeners": f"CONTROLLER://127.0.0.1:{port}",
            "log.dirs": sandbox.folder / "migration",
            "zookeeper.connect": sandbox.zookeeper,
        }
        config = sandbox.folder / "migration.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in controller.items()))
        sandbox._jvm.run("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(config))
        ends.callback(sandbox._jvm.start("migration", "kafka.Kafka", str(config)).kill)
        client = ends.enter_context(closing(KazooClient(hosts=sandbox.zookeeper)))
        client.start(timeout=30)
        ends.callback(client.stop)

        def taken_over() -> None:
            assert f'"brokerid":{_CONTROLLER},'.encode() in client.get("/controller")[0]
            assert client.exists("/migration")

        eventually(taken_over, within=60)
        yield sandbox, client


def test_it_is_said_and_moves_are_submitted_by_the_admin_api_alone(
    migrating: tuple[Sandbox, KazooClient], connect: Connect, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sandbox, zookeeper = migrating
    sandbox.create_topics("t", assignments={0: (1, 2)})
    extra = {"bootstrap_timeout_ms": 10_000, "step_interval": 0.3, "max_attempts": 2}
    conn_id = connect(host=sandbox.bootstrap, extra=extra)

    def apply(target: Assignment) -> tuple[int, str]:
        code = run("apply", written(tmp_path / "wanted.json", {"t": {0: target}}), "--cluster", conn_id)
        return code, "".join(capsys.readouterr())

    assert run("status", "--cluster", conn_id) == Exit.DONE
    assert "ZooKeeper (in migration to KRaft)" in capsys.readouterr().out
    for target in ((3, 2), (2, 3)):
        code, printed = apply(target)
        assert (code, assignments(sandbox, "t")) == (Exit.DONE, {"t": {0: target}}), printed

    legacy = {"journal": f"sqlite:///{tmp_path}/legacy.db", "zookeeper": sandbox.zookeeper, "submission": "legacy"}
    connect(host=sandbox.bootstrap, extra={**extra, **legacy})
    code, printed = apply((1, 3))
    assert code == Exit.UNFINISHED, printed
    assert f"the cluster is in migration to KRaft ({MIGRATION}), whose controller does not read" in printed
    assert zookeeper.exists("/admin/reassign_partitions") is None
    assert assignments(sandbox, "t") == {"t": {0: (2, 3)}}
