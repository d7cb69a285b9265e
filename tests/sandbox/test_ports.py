"""Ports are picked before servers bind them: until then, no other process may be given the same."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kafka_steward.sandbox import cluster_layout
from kafka_steward.sandbox.cluster_layout import pick_ports

pytestmark = pytest.mark.process

_PICK = """
from kafka_steward.sandbox import cluster_layout
cluster_layout._LOWEST, cluster_layout._first_ephemeral_port = {lowest}, lambda: {lowest} + 3
print(len(cluster_layout.pick_ports({count})))
"""


def picked_elsewhere(lowest: int, count: int) -> subprocess.CompletedProcess[str]:
    script = _PICK.format(lowest=lowest, count=count)
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)


def test_no_other_process_is_given_a_port_that_one_has_picked_and_not_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    lowest = pick_ports(1)[0] + 1
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
