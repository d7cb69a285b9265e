from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_steward.journal import locks
from kafka_steward.journal.locks import is_dead_process, new_holder_name
from tests.eventually import eventually
from tests.journal.dead import dead_process

#: More than any process id of Linux, which has 22 bits.
NOBODY = 2**22 + 1


def named(pid: int) -> str:
    """The name of a process of this machine."""
    return new_holder_name().replace(f":{os.getpid()}:", f":{pid}:")


def test_each_name_is_another_and_begins_with_host_and_process() -> None:
    one, other = new_holder_name(), new_holder_name()
    beginning = re.escape(f"{platform.node()}:{os.getpid()}:")
    assert one != other
    assert re.fullmatch(beginning + "[0-9a-f]{16}", one)
    assert one[:-8] == other[:-8]  # where process ids mean the same


def test_this_process_is_not_dead() -> None:
    assert not is_dead_process(new_holder_name())


def test_a_process_that_is_not_there_any_more_is_dead() -> None:
    assert is_dead_process(named(NOBODY))


@pytest.mark.process
def test_a_killed_process_is_dead() -> None:
    with dead_process() as name:
        assert not is_dead_process(name)
    assert is_dead_process(name)


@pytest.mark.process
def test_a_killed_process_is_dead_before_its_parent_collects_it() -> None:
    script = "from kafka_steward.journal.locks import new_holder_name; print(new_holder_name(), flush=True)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        name = child.stdout.readline().strip()

        def ended() -> None:
            assert is_dead_process(name)

        eventually(ended, within=20)


@pytest.mark.parametrize(
    ("stat", "dead"),
    [
        ("7 (python) Z 1 7", True),
        ("7 (python) X 1 7", True),
        ("7 (python) S 1 7", False),
        ("7 (Z) (Z) R 1 7", False),
        ("7 (S) S) Z 1 7", True),
        ("7 (Z S", False),
    ],
)
def test_a_zombie_is_known_by_its_state_whatever_its_name(
    stat: str, dead: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = new_holder_name()
    monkeypatch.setattr(locks, "_PROC", tmp_path)
    (tmp_path / str(os.getpid())).mkdir()
    (tmp_path / str(os.getpid()) / "stat").write_text(stat)
    assert is_dead_process(name) == dead


def test_one_whose_state_is_not_told_is_not_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = new_holder_name()
    monkeypatch.setattr(locks, "_PROC", tmp_path)
    assert not is_dead_process(name)


def test_another_users_process_is_not_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_pid: int, _signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert not is_dead_process(new_holder_name())


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A system that tells neither its boot nor its namespaces."""
    locks._host_boot_id.cache_clear()
    monkeypatch.setattr(locks, "_PROC", tmp_path)
    yield
    locks._host_boot_id.cache_clear()


@pytest.mark.usefixtures("nowhere")
def test_where_it_is_not_told_which_processes_are_meant_none_is_dead() -> None:
    assert not is_dead_process(named(NOBODY))


@pytest.mark.parametrize(
    "change", ["elsewhere:{pid}:{mark}", "{host}:{pid}:ffffffff{tail}", "{host}:{huge}:{mark}", "a", "a:b:c", ""]
)
def test_of_what_is_not_known_nothing_is_said(change: str) -> None:
    host, pid, mark = named(NOBODY).rsplit(":", 2)
    assert not is_dead_process(change.format(host=host, pid=pid, mark=mark, tail=mark[8:], huge=10**30))
