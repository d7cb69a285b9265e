"""What `status` says beside the plans: an outage, the hosts that opened the journal, and the age of each poll."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from kafka_steward.journal.store import Journal, open_journal
from tests.cli.scene import Scene, new_scene

NOVEMBER_MS = 1_763_712_000_000


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with open_journal(f"sqlite:///{tmp_path}/journal.db", "c1", host="db-7") as journal:
        yield journal


@pytest.fixture
def recorded(journal: Journal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Scene:
    """A simulated cluster whose journal is a database, opened on the host db-7."""
    return new_scene(monkeypatch, tmp_path, journal)


def execute(folder: Path, statement: str, **values: object) -> None:
    engine = sa.create_engine(f"sqlite:///{folder}/journal.db")
    with engine.begin() as connection:
        assert connection.execute(sa.text(statement), values).rowcount == 1
    engine.dispose()


def status(scene: Scene, capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert scene.call("status") == 0
    return capsys.readouterr().out.splitlines()


def facts(scene: Scene, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert scene.call("status", "--output", "json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_status_names_each_host_that_opened_the_journal_and_when(
    recorded: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    execute(tmp_path, "UPDATE steward_opened SET first_ms = :ms, last_ms = :ms + 60000", ms=NOVEMBER_MS)
    lines = [line for line in status(recorded, capsys) if line.startswith("opened on:")]
    assert lines == ["opened on: db-7, last 2025-11-21T08:01:00.000+00:00"]
    first, last = "2025-11-21T08:00:00.000+00:00", "2025-11-21T08:01:00.000+00:00"
    assert facts(recorded, capsys)["hosts"] == [{"host": "db-7", "first": first, "last": last}]


def test_status_says_how_long_ago_each_kind_of_poll_was_and_on_which_host(
    recorded: Scene, journal: Journal, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "watched: never; no watch has polled this journal" in status(recorded, capsys)
    journal.record_poll("failures")
    execute(tmp_path, "UPDATE steward_look SET at_ms = at_ms - 5000000")
    (line,) = [line for line in status(recorded, capsys) if line.startswith("watched:")]
    found = re.fullmatch(r"watched: failures, ([0-9]+) s ago on db-7", line)
    assert found is not None, line
    assert 5000 <= int(found[1]) < 5600
    (look,) = facts(recorded, capsys)["looks"]
    assert (look["kind"], look["host"]) == ("failures", "db-7")
    assert 5000 <= look["seconds"] < 5600


def test_status_of_a_journal_without_a_database_names_no_host_and_no_poll(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [line for line in status(scene, capsys) if line.startswith(("opened on:", "watched:"))]
    assert lines == ["watched: never; no watch has polled this journal"]


@pytest.mark.parametrize(("dead", "outage"), [((), False), ((4,), False), ((3, 4), True)])
def test_status_says_whether_so_many_brokers_are_down_that_it_is_an_outage(
    scene: Scene, capsys: pytest.CaptureFixture[str], dead: tuple[int, ...], *, outage: bool
) -> None:
    scene.simulator.create("u", [(3, 4)])
    for broker in dead:
        scene.simulator.kill(broker)
    lines = status(scene, capsys)
    assert f"outage: {outage}" in lines
    assert f"dead brokers: {', '.join(map(str, dead)) or 'none'}" in lines
    assert facts(scene, capsys)["outage"] is outage
