"""The verb pending: what is missing, by partition, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafka_steward.cli import get_kafka_steward_commands
from kafka_steward.execution.topics import TopicSpec, create_topic
from tests.cli.scene import Scene, new_scene
from tests.simulated_plan import WHO, lose


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Scene:
    """Broker 4 is away; topic `orders` shall have four replicas, and has three."""
    scene = new_scene(monkeypatch, tmp_path)
    scene.simulator.mode = "zookeeper"
    lose(scene.simulator, scene.journal, 4)
    create_topic(scene.simulator, scene.journal, TopicSpec("orders", 2, 4, {}), allowed=True, who=WHO)
    return scene


def test_what_is_pending_is_listed_by_partition(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert scene.call("pending") == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0].split() == ["partition", "has", "pending", "state", "why"]
    assert "orders-0   1, 2, 3  1        open   orders-0 has 3 of 4 replicas." in out
    assert err == "2 replicas are pending, and no live broker can host one; they are added when brokers join.\n"


def test_programs_get_the_kips_placeholders(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.simulator.restart(4)
    assert scene.call("pending", "--topic", "orders", "--output", "json") == 0
    out, err = capsys.readouterr()
    assert json.loads(out)[1] == {
        "topic": "orders",
        "partition": 1,
        "placeholders": [2, 3, 1, -1],
        "replication_factor": 4,
        "pending": 1,
        "state": "open",
        "sentence": "orders-1 has 3 of 4 replicas.",
    }
    assert err == "2 replicas are pending; broker 4 can host some: run the DAG fill.\n"


def test_where_nothing_is_pending_it_says_so(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert scene.call("pending", "--topic", "t", "--output", "json") == 0
    out, err = capsys.readouterr()
    assert (json.loads(out), err) == ([], "No replica is pending.\n")


def test_its_help_says_what_is_pending_and_what_to_do() -> None:
    (pending,) = (verb for verb in get_kafka_steward_commands()[0].subcommands if verb.name == "pending")
    assert all(word in str(pending.description) for word in ("KIP-409", "-1, -2, ...", "the DAG `fill` adds them"))
    assert "airflow kafka-steward pending --topic orders --output json" in str(pending.epilog)
