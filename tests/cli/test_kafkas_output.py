"""What Kafka's own tool prints is planned from, and the rollback that it tells people to keep is applied."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafka_steward.assignment import Assignment
from kafka_steward.cli import Exit
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.planning.files.formats import read_snapshot
from kafka_steward.planning.spark.job import parse_command_line
from kafka_steward.sandbox import Sandbox
from tests.airflow_home import Connect
from tests.cli.calling import run
from tests.eventually import eventually

pytestmark = pytest.mark.apart

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
BEFORE = [[1, 2], [2, 3], [3, 4]]


@pytest.mark.in_ci("kraft")
def test_the_output_of_generate_is_planned_from_and_the_rollback_of_execute_is_applied(
    sandbox: Sandbox, topic: str, tmp_path: Path, connect: Connect, capsys: pytest.CaptureFixture[str]
) -> None:
    """Since Kafka 4.2, both name the log directories of the replicas, of which each broker has two."""
    conn_id = connect(host=sandbox.bootstrap, extra={"step_interval": 0.5})
    sandbox.create_topics(topic, assignments=dict(enumerate(BEFORE)))
    generated, executed, move = (tmp_path / name for name in ("generated", "executed", "move.json"))

    move.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    topics = ("--topics-to-move-json-file", str(move), "--broker-list", "1,2,3,4")
    generated.write_text(sandbox.kafka_tool(REASSIGN, "--bootstrap-server", sandbox.bootstrap, *topics, "--generate"))
    (tmp_path / "brokers.json").write_text(json.dumps([{"id": broker} for broker in sandbox.brokers]))
    files = ("--current", str(generated), "--brokers", str(tmp_path / "brokers.json"))
    planned = parse_command_line([*files, "--operation", "rebalance", "--out", str(tmp_path / "plan")])
    assert read_snapshot(planned.snapshot).partitions["replicas"].to_pylist() == BEFORE
    assert run("apply", str(generated), "--cluster", conn_id) == Exit.FAILED
    assert "has two assignments, in the lines 2 and 5; keep one of these lines." in capsys.readouterr().err

    move.write_text(reassignment(topic, [4, 2]))
    file = ("--reassignment-json-file", str(move))
    executed.write_text(sandbox.kafka_tool(REASSIGN, "--bootstrap-server", sandbox.bootstrap, *file, "--execute"))
    eventually(lambda: has_replicas(sandbox, topic, (4, 2)), within=60)
    assert run("apply", str(executed), "--cluster", conn_id) == Exit.DONE
    has_replicas(sandbox, topic, (1, 2))
    note = f'names a log directory (KIP-113) for {topic}-0 on broker 1; it is taken as "any"'
    assert (note in capsys.readouterr().err) is ("disk-" in executed.read_text())

    (held,) = (each for each in disks(sandbox, 2) if (each / f"{topic}-0").exists())
    (other,) = set(disks(sandbox, 2)) - {held}
    move.write_text(reassignment(topic, [4, 2], "any", str(other)))
    assert run("apply", str(move), "--cluster", conn_id) == Exit.FAILED
    assert f'for {topic}-0 on broker 2, which has it in "{held}"' in capsys.readouterr().err
    move.write_text(reassignment(topic, [1, 2], "any", str(held)))
    assert run("apply", str(move), "--cluster", conn_id) == Exit.DONE
    assert "already has its target replicas; nothing was changed." in capsys.readouterr().out


def reassignment(topic: str, replicas: list[int], *log_dirs: str) -> str:
    named = {"log_dirs": log_dirs} if log_dirs else {}
    return json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": replicas, **named}]})


def disks(sandbox: Sandbox, broker: int) -> list[Path]:
    return [sandbox.folder / f"broker-{broker}" / name for name in ("disk-1", "disk-2")]


def has_replicas(sandbox: Sandbox, topic: str, expected: Assignment) -> None:
    with KafkaCluster({"bootstrap_servers": sandbox.bootstrap}) as cluster:
        partition = min(cluster.snapshot([topic]).partitions.items())[1]
    assert (partition.replicas, partition.reassigning) == (expected, False)
