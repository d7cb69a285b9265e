"""status, plans, show and audit, called as Airflow calls them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from kafka_steward.hooks.steward import StewardHook
from kafka_steward.journal.audit import Action, AuditRecord
from kafka_steward.journal.store import open_journal
from kafka_steward.sandbox import Sandbox
from tests.airflow_home import Connect
from tests.cli.airflow_command import begin
from tests.cli.calling import run


@pytest.mark.parametrize("words", [["status"], ["plans"], ["audit"], ["show", "beef"]], ids=lambda words: words[0])
def test_a_failure_is_one_sentence_and_an_exit_code(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*words, "--cluster", "nowhere") == 1
    error = capsys.readouterr().err
    assert error.startswith("There is no Airflow connection nowhere;")
    assert error.count("\n") == 1


def test_status_of_a_cluster(connect: Connect, sandbox: Sandbox, capsys: pytest.CaptureFixture[str]) -> None:
    conn_id = connect(host=sandbox.bootstrap)
    assert run("status", "--conn-id", conn_id) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "live brokers: 1, 2, 3, 4" in lines
    assert "dead brokers: none" in lines
    assert "watched: never; no watch has polled this journal" in lines
    with StewardHook(conn_id).open() as opened:
        opened.journal.record_poll("failures")
    run("status", "--conn-id", conn_id)
    assert "watched: failures, " in (told := capsys.readouterr().out)
    assert "never" not in told
    run("status", "--cluster", conn_id, "--output", "json")
    facts = json.loads(capsys.readouterr().out)
    assert (facts["live_brokers"], facts["under_replicated"], facts["plans"]) == ([1, 2, 3, 4], 0, [])
    run("status", "--cluster", conn_id, "--output", "csv")
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert row["live_brokers"] == "[1, 2, 3, 4]"


def test_the_audit_trail_can_be_read_while_the_cluster_is_away(
    connect: Connect, sandbox: Sandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    conn_id = connect(host=sandbox.bootstrap)
    with StewardHook(conn_id).open() as opened:
        opened.journal.audit.record(AuditRecord(Action.DETECT, "Broker 3 is down.", broker=3))
    connect(host=sandbox.bootstrap, extra={"security_protocol": "SSL"})
    run("audit", "--cluster", conn_id)
    assert "Broker 3 is down." in capsys.readouterr().out
    run("audit", "--cluster", conn_id, "--since", "1h", "-o", "json")
    assert [row["broker"] for row in json.loads(capsys.readouterr().out)] == [3]
    run("audit", "--cluster", conn_id, "--since", "2100-01-01", "-o", "json")
    assert json.loads(capsys.readouterr().out) == []
    run("plans", "--cluster", conn_id, "--output", "json")
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.parametrize("words", [["audit", "--plan", "beef"], ["show", "beef"]], ids=lambda words: words[0])
def test_a_plan_that_is_not_there_is_one_sentence(
    words: list[str], connect: Connect, sandbox: Sandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words, "--cluster", connect(host=sandbox.bootstrap)) == 1
    assert "no plan begins with beef; see `plans`." in capsys.readouterr().err


@pytest.mark.parametrize("since", ["yesterday", "2x", "2026-13-01"])
def test_a_moment_that_is_none_is_a_usage_error(since: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("audit", "--since", since) == 2
    assert (
        f"'{since}' is neither a duration like 2h (s, m, h, d) nor a time like 2026-11-21T08:00"
        in capsys.readouterr().err
    )


@pytest.mark.process
def test_a_reader_that_has_seen_enough_is_no_fault(connect: Connect, tmp_path: Path) -> None:
    conn_id = connect(extra={"cluster_id": "c1"})
    with open_journal(f"sqlite:///{tmp_path}/journal.db", "c1") as journal:
        records = [AuditRecord(Action.DETECT, f"Broker {at} is down.", broker=at) for at in range(2000)]
        journal.audit.record_intent(records)
    process = begin("audit", "--limit", "2000", "--cluster", conn_id)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline().startswith("when")
    process.stdout.close()
    assert process.wait(180) == 1
    assert process.stderr.read() == ""
