"""A link that drops every packet, without a word, is noticed in time; real servers, in a network namespace."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

#: Seconds: what is promised.
NOTICED_S = 30
_UNSHARE = ("unshare", "--net")


def _may_cut_links() -> bool:
    tools = all(shutil.which(tool) for tool in ("unshare", "ip", "tc"))
    return tools and subprocess.run([*_UNSHARE, "true"], check=False, capture_output=True).returncode == 0


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.skipif(not _may_cut_links(), reason="only root may make a network namespace, with iproute2 and util-linux")
@pytest.mark.parametrize("server", ["postgres", "zookeeper"])
def test_a_link_that_drops_every_packet_is_noticed_in_time(server: str) -> None:
    command = [*_UNSHARE, sys.executable, "-m", "tests.journal.lost_link", server]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=500)
    assert ended.returncode == 0, ended.stderr[-3000:]
    found = json.loads(ended.stdout.splitlines()[-1])
    print(found)
    assert {name: seconds for name, seconds in found.items() if seconds >= NOTICED_S} == {}
