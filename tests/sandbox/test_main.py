"""`python -m kafka_steward.sandbox` as a person meets it: one JSON line, a clean end, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafka_steward.sandbox.client import unready_brokers
from tests.eventually import eventually
from tests.sandbox.processes import alive, descendants, listening, restore_ctrl_c

pytestmark = pytest.mark.process

COMMAND = [sys.executable, "-m", "kafka_steward.sandbox"]
MODES = [pytest.param(mode, marks=getattr(pytest.mark, mode)) for mode in ("kraft", "zookeeper")]


@contextmanager
def foreground(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        yield process, json.loads(line)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.in_ci("kraft")
def test_the_json_line_describes_the_running_cluster_and_sigterm_leaves_nothing(mode: str) -> None:
    with foreground("--mode", mode, "--brokers", "2", "--racks", "2") as (process, known):
        assert sorted(known) == ["bootstrap", "brokers", "mode", "zookeeper"]
        assert known["mode"] == mode
        assert [(broker["id"], broker["rack"]) for broker in known["brokers"]] == [(1, "a"), (2, "b")]
        addresses = {broker["id"]: f"127.0.0.1:{broker['port']}" for broker in known["brokers"]}
        assert known["bootstrap"] == ",".join(addresses.values())
        assert unready_brokers(addresses) == []
        children = descendants(process.pid)
        assert {broker["pid"] for broker in known["brokers"]} < children
        assert _hosts(children) == {"127.0.0.1"}

        process.send_signal(signal.SIGTERM)
        rest, said = process.communicate(timeout=300)
    assert process.returncode == 0
    assert rest == ""
    assert said.splitlines()[-1] == "ended"
    assert not [pid for pid in children if alive(pid)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.in_ci("zookeeper")
def test_nothing_survives_when_the_parent_is_killed(mode: str, tmp_path: Path) -> None:
    with foreground("--mode", mode, "--brokers", "1", "--folder", str(tmp_path)) as (process, _):
        children = descendants(process.pid)
        assert len(children) == 2
        process.kill()
        eventually(lambda: _all_dead(children), within=10)


@pytest.mark.kraft
def test_ctrl_c_while_it_starts_ends_it_cleanly(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "--folder", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=restore_ctrl_c,  # noqa: PLW1509 - no thread of ours runs
    )
    eventually(lambda: _some(tmp_path.glob("broker-*.log")), every=0.05)
    children = descendants(process.pid)
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    assert printed == b""
    # The kernel ends what its parent left, a moment later.
    eventually(lambda: _all_dead(children), within=10)


@pytest.mark.zookeeper
@pytest.mark.ci
def test_a_zookeeper_that_dies_is_said_with_the_end_of_its_log() -> None:
    with foreground("--mode", "zookeeper", "--brokers", "1") as (process, known):
        (service,) = descendants(process.pid) - {broker["pid"] for broker in known["brokers"]}
        os.kill(service, signal.SIGKILL)
        _, said = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "zookeeper ended with code -9; the end of" in said


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--brokers", "0"], "A sandbox has 1 to 64 brokers in 1 to 26 racks, not 0 in 3."),
        (
            ["--folder", "tests"],
            "The folder tests is not empty, and a sandbox needs an empty folder: choose another one.",
        ),
    ],
)
def test_what_cannot_be_is_one_sentence(arguments: list[str], sentence: str) -> None:
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == sentence
    assert done.stdout == ""


def test_help_teaches() -> None:
    printed = subprocess.run([*COMMAND, "--help"], capture_output=True, text=True, timeout=300, check=True).stdout
    for word in ("--mode", "--brokers", "--racks", "JSON", "Ctrl-C", "examples:"):
        assert word in printed


def _hosts(pids: set[int]) -> set[str]:
    return {host for host, _ in listening(pids)}


def _all_dead(pids: set[int]) -> None:
    assert not [pid for pid in pids if alive(pid)]


def _some(paths: Iterator[Path]) -> None:
    assert any(paths)
