"""The tests' own eyes: if these saw nothing, other tests would pass for the wrong reason."""

from __future__ import annotations

import os
import socket
import subprocess

import pytest

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
