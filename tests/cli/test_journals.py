"""Journals that cannot be used, that go away in the middle, and that are copied."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from kafka_steward.hooks.steward import ClusterIdPin, StewardHook
from kafka_steward.journal.audit import Action, Actor, AuditRecord
from kafka_steward.journal.records import PlanRecord
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from tests.airflow_home import NOWHERE, Connect
from tests.cli.calling import run
from tests.cli.scene import new_scene
from tests.journal.zookeeper import ZooKeeperServer
from tests.postgres import PostgresServer

LOOKS = [["plans"], ["show", "beef"], ["audit"], ["abandon", "beef", "--reason", "x"]]
DRIVES = [["status"], ["resume"], ["cancel", "--reason", "x"], ["verify"]]


def one_sentence(capsys: pytest.CaptureFixture[str]) -> str:
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "Traceback" not in error
    return error


def remembered(conn_id: str, journal: str, cluster_id: str) -> None:
    """The journal knows the cluster behind this connection, which does not answer."""
    access = StewardHook(conn_id).access
    ClusterIdPin(journal).set(access, cluster_id)


@pytest.mark.parametrize("words", [*LOOKS, *DRIVES], ids=lambda words: words[0])
def test_a_sqlite_journal_of_another_host(
    connect: Connect, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    open_journal(f"sqlite:///{tmp_path}/journal.db", "c1", host="elsewhere").close()
    assert run(*words, "--cluster", connect()) == 1
    assert "elsewhere" in one_sentence(capsys)


@pytest.mark.parametrize("words", [*LOOKS, *DRIVES], ids=lambda words: words[0])
def test_postgresql_does_not_answer(connect: Connect, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    conn_id = connect(extra={"journal": f"postgresql://steward:secret@{NOWHERE}/steward"})
    assert run(*words, "--cluster", conn_id) == 1
    assert "secret" not in one_sentence(capsys)


@pytest.mark.process
def test_zookeeper_does_not_answer(
    connect: Connect, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_steward.hooks.cluster_config.ZooKeeperOptions", partial(ZooKeeperOptions, timeout_s=1))
    conn_id = connect(extra={"zookeeper": NOWHERE})
    remembered(conn_id, f"sqlite:///{tmp_path}/journal.db", "c1")
    assert run("plans", "--cluster", conn_id) == 1
    assert NOWHERE in one_sentence(capsys)


Outage = tuple[Journal, Callable[[], None], Callable[[], None]]


@pytest.fixture(params=["postgres", "zookeeper"])
def outage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Outage]:
    """A journal, and how to stop and start the server that keeps it."""
    server: PostgresServer | ZooKeeperServer = request.getfixturevalue(request.param)
    if isinstance(server, PostgresServer):
        journal = open_journal(server.new_database(), "c1")
    else:
        options = ZooKeeperOptions(server.at(tmp_path.name), timeout_s=3)
        journal = open_journal(f"sqlite:///{tmp_path}/rows.db", "c1", zookeeper=options)
    with journal:
        yield journal, server.stop, server.start


@pytest.mark.process
def test_a_journal_that_goes_and_comes_back_holds_a_plan_up_and_ends_none(
    outage: Outage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal, stop, start = outage
    scene = new_scene(monkeypatch, tmp_path, journal)

    def interfere(pause: int) -> None:
        if pause == 1:
            stop()
        elif pause == 2:
            start()

    scene.interfere = interfere
    assert scene.call("apply", scene.file("t-0: 423", "t-1: 241")) == 0
    assert scene.replicas()[:2] == [(4, 2, 3), (2, 4, 1)]
    assert "Trying again; Ctrl-C stops, and the plan stays unchanged." in capsys.readouterr().err
    assert journal.slot.holders() == ()


@pytest.mark.process
def test_a_journal_is_copied_to_another_backend(
    connect: Connect, tmp_path: Path, postgres: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = f"sqlite:///{tmp_path}/journal.db", postgres.new_database()
    source = connect("kafka_old", extra={"journal": old, "cluster_id": "c1"})
    target = connect("kafka_new", extra={"journal": new, "cluster_id": "c1"})
    with open_journal(old, "c1") as journal:
        journal.audit.record(AuditRecord(Action.DETECT, "Broker 3 is down.", broker=3, who=Actor(person="ann")))
    assert run("journal", "copy", "--cluster", source, "--to", target, "-o", "json") == 0
    assert json.loads(capsys.readouterr().out) == {"plans": 0, "documents": 0, "audit_rows": 1}
    assert run("audit", "--cluster", target) == 0
    assert "Broker 3 is down." in capsys.readouterr().out
    assert run("journal", "copy", "--cluster", source, "--to", target) == 1
    assert "was copied to postgresql" in one_sentence(capsys)


def test_a_copied_journal_is_opened_by_no_verb_until_it_is_paired(
    connect: Connect, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = connect("kafka_old", extra={"cluster_id": "c1"})
    target = connect("kafka_new", extra={"journal": f"sqlite:///{tmp_path}/new.db", "cluster_id": "c1"})
    with open_journal(f"sqlite:///{tmp_path}/journal.db", "c1") as journal:
        journal.audit.record(AuditRecord(Action.DETECT, "Broker 3 is down.", broker=3))
    assert run("journal", "copy", "--cluster", source, "--to", target) == 0
    assert (
        "From now on only the copy can be opened: set the journal of kafka_old to that of kafka_new."
        in capsys.readouterr().out
    )
    for words in (["plans"], ["audit"], ["abandon", "beef", "--reason", "x"], ["journal", "copy", "--to", target]):
        assert run(*words, "--cluster", source) == 1
        refusal = one_sentence(capsys)
        assert f"was copied to sqlite:///{tmp_path}/new.db on the host " in refusal
        assert "or, to return to this journal without the records that the copy has gained since, run " in refusal
    assert run("audit", "--cluster", target) == 0
    assert "Broker 3 is down." in capsys.readouterr().out
    assert run("journal", "pair", "--cluster", source) == 0
    assert run("audit", "--cluster", source) == 0
    assert "Broker 3 is down." in capsys.readouterr().out


def test_old_rows_are_archived(connect: Connect, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conn_id, file = connect(extra={"cluster_id": "c1"}), tmp_path / "audit.jsonl"
    with open_journal(f"sqlite:///{tmp_path}/journal.db", "c1") as journal:
        journal.audit.record(AuditRecord(Action.DETECT, "Broker 3 is down.", broker=3))
    assert run("journal", "archive", str(file), "--before", "1h", "--cluster", conn_id) == 0
    assert "0 rows" in capsys.readouterr().out
    file.unlink()
    assert run("journal", "archive", str(file), "--before", "2100-01-01", "--cluster", conn_id) == 0
    assert "rows of the audit trail were moved to" in capsys.readouterr().out
    assert json.loads(file.read_text().splitlines()[0])["reason"] == "Broker 3 is down."
    assert run("journal", "archive", str(file), "--before", "2100-01-01", "--cluster", conn_id) == 1
    assert "nothing was deleted" in one_sentence(capsys)


def test_a_copy_stays_with_its_own_cluster(
    connect: Connect, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = connect("kafka_old", extra={"cluster_id": "c1"})
    target = connect("kafka_new", extra={"journal": f"sqlite:///{tmp_path}/new.db", "cluster_id": "c2"})
    assert run("journal", "copy", "--cluster", source, "--to", target) == 1
    assert "c1 and c2" in one_sentence(capsys)
    assert run("journal", "copy", "--cluster", source, "--to", source) == 1
    assert "cannot be copied onto itself" in one_sentence(capsys)


def test_a_plan_of_another_cluster_is_unknown(
    connect: Connect, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_journal(f"sqlite:///{tmp_path}/journal.db", "c2") as journal:
        journal.plans.publish(PlanRecord("beef" * 16, "c2", "apply"), [])
    conn_id = connect(extra={"cluster_id": "c1"})
    for words in (["show"], ["audit", "--plan"], ["abandon", "--reason", "x"]):
        assert run(*words, "beef" * 16, "--cluster", conn_id) == 1
        assert one_sentence(capsys).startswith("In the journal of cluster c1, no plan begins with beefbeef")
