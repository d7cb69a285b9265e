from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from kafka_steward.journal.process import is_dead, process_name
from tests.eventually import eventually
from tests.journal.dead import dead_process

pytestmark = pytest.mark.process


def test_each_name_is_another_and_begins_with_host_and_process() -> None:
    one, other = process_name(), process_name()
    assert one != other
    assert one.startswith(f"{platform.node()}:")


def test_a_killed_process_is_dead() -> None:
    with dead_process() as name:
        assert not is_dead(name)
    assert is_dead(name)


def test_a_killed_process_is_dead_before_its_parent_collects_it() -> None:
    script = "from kafka_steward.journal.process import process_name; print(process_name(), flush=True)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        name = process.stdout.readline().strip()

        def ended() -> None:
            assert is_dead(name)

        eventually(ended, within=20)


@pytest.mark.parametrize("change", ["elsewhere:{pid}:{mark}", "{host}:{pid}:ffffffff{tail}", "a", "a:b:c", ""])
def test_of_what_is_not_known_nothing_is_said(change: str) -> None:
    with dead_process() as name:
        host, pid, mark = name.rsplit(":", 2)
    assert not is_dead(change.format(host=host, pid=pid, mark=mark, tail=mark[8:]))
