"""disable, enable, bounce, queue and watch, on a simulated cluster."""

from __future__ import annotations

import json
import os
import signal

import pytest

from kafka_steward.cli.exits import Exit
from kafka_steward.journal import paths
from tests.cli.scene import Scene
from tests.protocol.yard import document


def test_disable_and_enable(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert scene.call("disable", "--reason", "moving racks") == Exit.DONE
    assert "what is in flight is let finish" in capsys.readouterr().out
    assert scene.journal.tree.get(paths.REASSIGN_CANCEL) is not None
    assert scene.call("enable", "--output", "json") == Exit.DONE
    assert json.loads(capsys.readouterr().out)["enabled"] is True
    assert scene.journal.tree.get(paths.REASSIGN_CANCEL) is None
    assert scene.call("disable") == Exit.USAGE


@pytest.mark.parametrize(("words", "lasts_ms"), [((), None), (("--for", "2h"), 7_200_000), (("--for", "90s"), 90_000)])
def test_bounce(scene: Scene, words: tuple[str, ...], lasts_ms: int | None) -> None:
    assert scene.call("bounce", "3", *words) == Exit.DONE
    node = scene.journal.tree.get(paths.rolling_bounce(3))
    assert node is not None
    written = json.loads(node.data)
    assert written.get("expiry") == (None if lasts_ms is None else written["timestamp"] + lasts_ms)


@pytest.mark.parametrize("words", [("x",), ("3", "--for", "soon"), ("3", "--for", "0s"), ()])
def test_what_is_no_bounce(scene: Scene, words: tuple[str, ...]) -> None:
    assert scene.call("bounce", *words) == Exit.USAGE


def test_the_queue(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    file = scene.folder / "more.json"
    file.write_text(document(["t-0 423"]))
    assert scene.call("queue", "add", str(file)) == Exit.DONE
    assert scene.call("queue", "add", str(file)) == Exit.FAILED
    assert "/admin/reassign_partitions_queue exists" in capsys.readouterr().err
    assert scene.call("queue", "list", "--output", "json") == Exit.DONE
    assert json.loads(capsys.readouterr().out) == [{"topic": "t", "partition": 0, "replicas": [4, 2, 3]}]
    assert scene.call("queue", "remove") == Exit.DONE
    assert scene.call("queue", "list") == Exit.DONE
    assert capsys.readouterr().out.endswith("partition  replicas\n")
    assert scene.call("queue", "remove") == Exit.DONE
    assert scene.call("queue", "add", "/nowhere/x.json") == Exit.FAILED


def test_watch_carries_documents_out_until_it_is_interrupted(
    scene: Scene, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, partition = next(iter(scene.simulator.topics.items()))
    target = (*partition.replicas[1:], partition.replicas[0])
    scene.journal.tree.create(
        f"{paths.REASSIGNMENT_REQUESTS}/by-hand", document([f"{name} {''.join(map(str, target))}"])
    )

    def interfere(pauses: int) -> None:
        if scene.simulator.topics[name].replicas == target:
            os.kill(os.getpid(), signal.SIGINT)

    scene.interfere = interfere
    assert scene.call("watch") == Exit.INTERRUPTED
    assert "asked for by /admin/reassignment_requests/by-hand" in capsys.readouterr().out
