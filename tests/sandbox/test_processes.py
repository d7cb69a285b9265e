"""Processes and ports of this machine: as the tests see them, as they end together, and as ports are picked."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kafka_steward.sandbox import cluster_layout
from kafka_steward.sandbox.cluster_layout import pick_ports
from kafka_steward.sandbox.processes import ProcessGroup, marked_processes
from tests.eventually import eventually
from tests.sandbox.processes import alive, descendants, listening

pytestmark = pytest.mark.process


def test_a_listener_on_every_address_is_seen_as_such() -> None:
    with socket.create_server(("0.0.0.0", 0)) as wide, socket.create_server(("127.0.0.1", 0)) as narrow:  # noqa: S104 - the point
        found = listening([os.getpid()])
        assert ("0.0.0.0", wide.getsockname()[1]) in found  # noqa: S104 - as above
        assert ("127.0.0.1", narrow.getsockname()[1]) in found


def test_a_listener_on_ipv6_is_seen() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        assert ("::1", server.getsockname()[1]) in listening([os.getpid()])


def test_children_of_children_are_seen_and_the_dead_are_not_alive() -> None:
    parent = subprocess.Popen(["bash", "-c", "sleep 60 & echo ready; wait"], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    parent.stdout.readline()
    (child,) = descendants(parent.pid)
    assert {parent.pid, child} <= descendants(os.getpid())
    assert alive(child)
    for pid in (child, parent.pid):
        os.kill(pid, 9)
    parent.wait(timeout=10)
    assert not alive(parent.pid)


#: Ignores SIGTERM, and has a child in a session of its own that does too.
STUBBORN = ["bash", "-c", "trap '' TERM; setsid bash -c \"trap '' TERM; sleep 300\" & sleep 300"]
OWNER = """
import sys, time
from pathlib import Path
from kafka_steward.sandbox.processes import ProcessGroup
ProcessGroup(sys.argv[1]).spawn({command!r}, env={{"PATH": "/usr/bin:/bin"}}, log=Path(sys.argv[2]))
time.sleep(300)
"""


@pytest.fixture
def mark(tmp_path: Path) -> str:
    return f"test:{tmp_path}"


def test_end_ends_what_ignores_it_and_what_it_started(mark: str, tmp_path: Path) -> None:
    group = ProcessGroup(mark)
    group.spawn(STUBBORN, env=dict(os.environ), log=tmp_path / "log")
    try:
        eventually(lambda: _at_least(mark, 3), within=10)
    finally:
        began = time.monotonic()
        group.end(grace_s=0.5)
    assert marked_processes(mark) == []
    assert time.monotonic() - began < 10


def test_nothing_survives_an_owner_that_is_killed(mark: str, tmp_path: Path) -> None:
    script = OWNER.format(command=STUBBORN)
    owner = subprocess.Popen([sys.executable, "-c", script, mark, str(tmp_path / "log")])
    try:
        eventually(lambda: _at_least(mark, 3), within=30)
    finally:
        owner.kill()
        owner.wait(timeout=10)
    eventually(lambda: _none(mark), within=20)


def _at_least(mark: str, count: int) -> None:
    assert len(marked_processes(mark)) >= count


def _none(mark: str) -> None:
    assert marked_processes(mark) == []


_PICK = """
from kafka_steward.sandbox import cluster_layout
cluster_layout._LOWEST, cluster_layout._first_ephemeral_port = {lowest}, lambda: {lowest} + 3
print(len(cluster_layout.pick_ports({count})))
"""


def picked_elsewhere(lowest: int, count: int) -> subprocess.CompletedProcess[str]:
    script = _PICK.format(lowest=lowest, count=count)
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)


def test_no_other_process_is_given_a_port_that_one_has_picked_and_not_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    lowest = 64_001  # above the ports of Linux's clients, and those that other tests pick
    monkeypatch.setattr(cluster_layout, "_LOWEST", lowest)
    monkeypatch.setattr(cluster_layout, "_first_ephemeral_port", lambda: lowest + 3)
    one, other = pick_ports(2)
    assert picked_elsewhere(lowest, 1).stdout == "1\n"
    refused = picked_elsewhere(lowest, 2)
    assert "found only 1 of 2 free ports" in refused.stderr
    (last,) = pick_ports(1)
    assert {one, other, last} == {lowest, lowest + 1, lowest + 2}
    with pytest.raises(OSError, match="found only 0 of 1 free ports"):
        pick_ports(1)
