"""`airflow kafka-steward`, called as Airflow calls it."""

from __future__ import annotations

import argparse
import json

import pytest
from airflow.cli.cli_config import ActionCommand

from kafka_steward.cli import get_kafka_steward_commands
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.journal.audit import Action, Entry
from kafka_steward.sandbox import Sandbox
from tests.airflow_home import Connect

(GROUP,) = get_kafka_steward_commands()


def run(*words: str) -> None:
    name, *rest = words
    (command,) = [command for command in GROUP.subcommands if command.name == name]
    assert isinstance(command, ActionCommand)
    parser = argparse.ArgumentParser()
    for argument in command.args:
        argument.add_to_parser(parser)
    command.func(parser.parse_args(rest))


@pytest.mark.parametrize("name", ["status", "plans", "audit"])
def test_a_failure_is_one_sentence_and_an_exit_code(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(name, "--conn-id", "nowhere")
    assert ended.value.code == 1
    error = capsys.readouterr().err
    assert error.startswith("There is no Airflow connection nowhere;")
    assert error.count("\n") == 1


def test_status_of_a_cluster(connect: Connect, sandbox: Sandbox, capsys: pytest.CaptureFixture[str]) -> None:
    conn_id = connect(host=sandbox.bootstrap)
    run("status", "--conn-id", conn_id)
    lines = capsys.readouterr().out.splitlines()
    assert "live brokers: 1, 2, 3, 4" in lines
    assert "dead brokers: none" in lines
    run("status", "--conn-id", conn_id, "--json")
    facts = json.loads(capsys.readouterr().out)
    assert (facts["live_brokers"], facts["under_replicated"], facts["plans"]) == ([1, 2, 3, 4], 0, [])


def test_the_audit_trail_can_be_read_while_the_cluster_is_away(
    connect: Connect, sandbox: Sandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    conn_id = connect(host=sandbox.bootstrap)
    with StewardHook(conn_id).open() as opened:
        opened.journal.audit.note(Entry(Action.DETECT, "Broker 3 is gone.", broker=3))
    connect(host=sandbox.bootstrap, extra={"security_protocol": "SSL"})
    run("audit", "--conn-id", conn_id)
    assert "Broker 3 is gone." in capsys.readouterr().out
    run("plans", "--conn-id", conn_id, "--json")
    assert json.loads(capsys.readouterr().out) == []


def test_a_plan_that_is_not_there_is_one_sentence(
    connect: Connect, sandbox: Sandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    conn_id = connect(host=sandbox.bootstrap)
    with pytest.raises(SystemExit):
        run("audit", "--conn-id", conn_id, "--plan", "beef")
    assert "no plan begins with beef; see `plans`." in capsys.readouterr().err
