"""status, plans, show and audit, called as Airflow calls them: what they say, and what they leave out."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.cli import Exit, direct
from kafka_steward.cli.manage import overall_exit, partition_statuses
from kafka_steward.cli.show import late_step_lines
from kafka_steward.cluster.state import Partition, Snapshot
from kafka_steward.execution.cluster_queries import HIDDEN
from kafka_steward.execution.plans.progress_rows import proof_summary, report_publication
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.plans.snapshot import take_snapshot
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.watch.failure_detector import FailureDetector
from kafka_steward.execution.watch.health import check_health, health_message
from kafka_steward.execution.watch.observation import broker_reports
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Actor, AuditRecord
from kafka_steward.journal.observed import BrokerReport, PartitionRate
from kafka_steward.journal.records import MoveRow, MoveState, PlanRecord, PlanStatus
from kafka_steward.journal.sql.database import open_database
from kafka_steward.journal.sql.plan_reports import PlanReports
from kafka_steward.journal.sql.plans import PlanTable
from kafka_steward.journal.sql.watch_reports import WatchReports
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.planning.files.formats import read_snapshot
from kafka_steward.sandbox import Sandbox
from kafka_steward.settings import Settings
from tests.airflow_home import Connect
from tests.cli.airflow_command import begin
from tests.cli.calling import run
from tests.cli.scene import CLUSTER, Scene, new_scene
from tests.documents import create_document
from tests.local_plan import plan_with
from tests.simulated_plan import move, plan_of


@pytest.mark.parametrize("words", [["status"], ["plans"], ["audit"], ["show", "beef"]], ids=lambda words: words[0])
def test_a_failure_is_one_sentence_and_an_exit_code(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*words, "--cluster", "nowhere") == 1
    error = capsys.readouterr().err
    assert error.startswith("There is no Airflow connection nowhere;")
    assert error.count("\n") == 1


@pytest.mark.in_ci("kraft")
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


@pytest.mark.in_ci("kraft")
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
    opened = "SET value = json_object('first_ms', :ms), at_ms = :ms + 60000 WHERE noun = 'openings'"
    execute(tmp_path, f"UPDATE steward_state {opened}", ms=NOVEMBER_MS)
    lines = [line for line in status(recorded, capsys) if line.startswith("opened on:")]
    assert lines == ["opened on: db-7, last 2025-11-21T08:01:00.000+00:00"]
    first, last = "2025-11-21T08:00:00.000+00:00", "2025-11-21T08:01:00.000+00:00"
    assert facts(recorded, capsys)["hosts"] == [{"host": "db-7", "first": first, "last": last}]


def test_status_says_how_long_ago_each_kind_of_poll_was_and_on_which_host(
    recorded: Scene, journal: Journal, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "watched: never; no watch has polled this journal" in status(recorded, capsys)
    journal.record_poll("failures")
    execute(tmp_path, "UPDATE steward_state SET at_ms = at_ms - 5000000 WHERE noun = 'polls'")
    (line,) = [line for line in status(recorded, capsys) if line.startswith("watched:")]
    found = re.fullmatch(r"watched: failures, ([0-9]+) s ago on db-7", line)
    assert found is not None, line
    assert 5000 <= int(found[1]) < 5600
    (look,) = facts(recorded, capsys)["polls"]
    assert (look["kind"], look["host"]) == ("failures", "db-7")
    assert 5000 <= look["seconds"] < 5600


def test_status_names_what_producers_bring_into_brokers_and_the_hottest_partitions(
    scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not [line for line in status(scene, capsys) if "bytes in" in line or "hottest" in line]
    reports = scene.journal.watch_reports = WatchReports(
        open_database(f"sqlite:///{tmp_path}/journal.db", "c1", "db-7")
    )
    reports.replace_brokers([BrokerReport(1, leader_bytes_in=2_000_000, follower_bytes_in=500_000), BrokerReport(2)])
    reports.put_rates([PartitionRate("t", 0, None, 1_500_000, ((1, 3_000_000),)), PartitionRate("t", 1, None, 7)], [])
    lines = status(scene, capsys)
    assert "bytes in: broker 1 2,000,000 bytes/s as leader, 500,000 bytes/s as follower" in lines
    assert "hottest partitions: t-0 1,500,000 bytes/s, t-1 7 bytes/s" in lines
    found = facts(scene, capsys)
    assert found["bytes_in"] == [{"broker": 1, "as_leader": 2_000_000, "as_follower": 500_000}]
    hot = {"topic": "t", "partition": 0, "bytes_per_s": 1_500_000, "highest_hour": 3_000_000}
    assert found["hottest_partitions"][0] == hot


def test_status_of_a_journal_without_a_database_names_no_host_and_no_poll(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [line for line in status(scene, capsys) if line.startswith(("opened on:", "watched:"))]
    assert lines == ["watched: never; no watch has polled this journal"]


def test_status_names_the_failed_log_directories_of_live_brokers(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    assert facts(scene, capsys)["failed_log_dirs"] == []
    scene.simulator.failed_dirs[3] = ["/disk-2", "/disk-3"]
    assert facts(scene, capsys)["failed_log_dirs"] == [{"broker": 3, "paths": ["/disk-2", "/disk-3"]}]
    assert "log directory /disk-2 and /disk-3 of broker 3 has failed" in status(scene, capsys)


def test_a_topic_whose_deletion_is_pending_is_counted_nowhere_and_named(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    before = facts(scene, capsys)
    scene.simulator.create("gone", [(1, 4), (2, 3)])
    scene.simulator.kill(4)
    scene.simulator.deletions = {"gone": {1, 4}}
    said = "Topic gone: its deletion is pending; it ends when broker 4 is back."
    after = facts(scene, capsys)
    assert (after["partitions"], after["pending_deletions"]) == (before["partitions"], [said])
    assert status(scene, capsys).count(said) == 1
    assert scene.call("partitions", "--topic", "gone") == 1
    health, _ = check_health(scene.simulator, scene.journal)
    assert said in health_message(health)


@pytest.mark.parametrize("shown", [True, False])
def test_what_a_reassignment_still_moves_of_a_topic_whose_deletion_is_pending_is_counted(
    scene: Scene, capsys: pytest.CaptureFixture[str], *, shown: bool
) -> None:
    gone = TopicPartition("gone", 0)
    scene.simulator.create("gone", [(1, 2), (2, 3)])
    scene.simulator.alter({gone: (1, 4)})
    scene.simulator.kill(4)
    scene.simulator.deletions = {"gone": {1, 2, 4}}
    scene.simulator.unshown = set() if shown else {"gone"}
    assert facts(scene, capsys)["reassigning"] == 1
    health, _ = check_health(scene.simulator, scene.journal)
    assert health.reassigning == (gone,)
    assert health.measures["reassigning_partitions"] == 1
    assert scene.call("partitions", "--reassigning-partitions") == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("gone ")]
    assert line.endswith("being reassigned")


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


def test_status_says_that_failed_disks_alone_are_an_outage_and_which_report_overrules_it(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.settings["heal_failed_disks"] = True
    scene.simulator.create("u", [(3, 1), (4, 1)])
    for broker, number in ((3, 0), (4, 1)):
        scene.simulator.fail_disk(broker, TopicPartition("u", number))
    told = status(scene, capsys)
    assert "outage: True" in told
    (why,) = [line for line in told if "have failed log directories: " in line]
    assert why.startswith("Brokers 3 and 4 have failed log directories: 2 of 4 brokers, more than max_failed_fraction")
    assert why.endswith(
        f"report disks that will not return: airflow kafka-steward failed 3 --disk DIR --cluster {CLUSTER}."
    )
    assert scene.call("plan", "heal") == 0
    assert f"The DAG would not start now; this plan does not wait. {why}" in capsys.readouterr().err


def test_status_shows_the_rates_for_all_brokers_and_what_dead_brokers_hold(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    def apart() -> list[str]:
        return [line for line in status(scene, capsys) if line.startswith(("set for all brokers", "dead brokers hold"))]

    assert apart() == []
    scene.simulator.broker_defaults[RATE] = "30"
    scene.simulator.create("u", [(4,), (4, 1)])
    scene.simulator.kill(4)
    scene.simulator.kill(3)
    assert apart() == [
        f"set for all brokers: {RATE} 30 bytes/s",
        "dead brokers hold replicas: broker 3: 4 partitions; broker 4: 2 partitions, 1 of them without a leader",
    ]
    held = [
        (each["broker"], each["partitions"], each["without_a_leader"])
        for each in facts(scene, capsys)["dead_brokers_hold"]
    ]
    assert held == [(3, 4, 0), (4, 2, 1)]


def test_without_a_connection_no_outage_by_settings_that_nobody_has_set_is_stated(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(direct, "KafkaCluster", lambda _: scene.simulator)
    monkeypatch.setattr(scene.simulator, "close", lambda: None, raising=False)
    for broker in (2, 3, 4):
        scene.simulator.kill(broker)
    assert "counts as an outage" in "\n".join(status(scene, capsys))
    assert run("status", "--bootstrap-server", "b1:9092") == 0
    assert "outage" not in (out := capsys.readouterr().out)
    assert "dead brokers: 2, 3\n" in out
    assert run("plan", "heal", "--bootstrap-server", "b1:9092") in (0, 1)
    assert "The DAG would" not in capsys.readouterr().err


@pytest.mark.parametrize("mode", ["kraft", "zookeeper"])
def test_status_counts_partitions_without_a_leader_which_with_zookeeper_are_not_under_replicated(
    scene: Scene, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    scene.simulator.mode = mode
    scene.simulator.create("u", [(4,), (4,)])
    scene.simulator.kill(4)
    assert "without a leader: 2" in status(scene, capsys)


@pytest.mark.parametrize("mode", ["kraft", "zookeeper"])
def test_status_and_the_watch_name_a_rack_of_which_no_broker_is_live(
    recorded: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    scene = recorded
    scene.simulator.create("u", [(1, 2), (4, 3)])
    scene.simulator.mode = mode
    scene.journal.watch_reports = WatchReports(open_database(f"sqlite:///{tmp_path}/journal.db", "c1", "db-7"))
    health, _ = check_health(scene.simulator, scene.journal)
    scene.journal.watch_reports.replace_brokers(broker_reports(health))
    for broker in (1, 4):
        scene.simulator.kill(broker)
    assert "brokers are down (no broker of rack a is live)" in status(scene, capsys)
    verdict = FailureDetector(scene.simulator, scene.journal, Settings(), Actor()).poll()
    assert verdict.sentence.startswith("Brokers 1 and 4 are down (no broker of rack a is live)")


def test_a_request_that_cannot_be_read_is_among_the_documents_that_cannot(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    path = f"{paths.REASSIGNMENT_REQUESTS}/by-hand"
    create_document(scene.journal.mailbox, path, "{")
    lines = status(scene, capsys)
    assert f"documents that cannot be read: {path}" in lines
    assert any(line.endswith("to be refused, because it cannot be read") for line in lines)


def record_rows(scene: Scene, count: int) -> None:
    for number in range(count):
        scene.journal.audit.record(
            AuditRecord(Action.PAUSE, "why", plan=f"{number:064d}", attempt=number, who=Actor(person="ann"))
        )


def test_a_table_says_that_there_may_be_more_and_programs_get_every_row(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    record_rows(scene, 60)
    assert scene.call("audit") == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 51
    assert printed.err == (
        "These are the newest 50; only some with --action or --person, more with --limit, all of them with --output "
        "json.\n"
    )
    assert scene.call("audit", "--output", "json") == 0
    printed = capsys.readouterr()
    assert (len(json.loads(printed.out)), printed.err) == (60, "")
    assert scene.call("audit", "--output", "csv", "--limit", "7") == 0
    assert len(capsys.readouterr().out.splitlines()) == 8


def test_an_action_and_a_person_are_found_among_the_rows_of_a_plans_throttles(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    for second, (action, reason, person) in enumerate(
        [(Action.APPROVE, "yes", "ann"), (Action.REQUEST, "faster", "bob"), (Action.REQUEST, "slower", "ann")]
    ):
        scene.journal.audit.record(AuditRecord(action, reason, plan="a" * 64, attempt=second, who=Actor(person=person)))
    for number in range(60):
        scene.journal.audit.record(AuditRecord(Action.THROTTLE, "why", plan="a" * 64, broker=number))

    def reasons(*words: str) -> list[str]:
        capsys.readouterr()
        assert scene.call("audit", *words, "--output", "json") == 0
        return [row["reason"] for row in json.loads(capsys.readouterr().out)]

    assert reasons("--action", "approve") == ["yes"]
    assert reasons("--person", "ann") == ["yes", "slower"]
    assert reasons("--person", "ann", "--limit", "1") == ["slower"]
    assert reasons("--person", "ann", "--action", "request", "--limit", "5") == ["slower"]
    assert scene.call("audit", "--person", "ann") == 0
    printed = capsys.readouterr()
    assert (len(printed.out.splitlines()), printed.err) == (3, "")


def test_an_action_that_is_none_is_a_usage_error_and_help_names_all(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scene.call("audit", "--action", "aprove") == 2
    said = capsys.readouterr().err
    assert "argument --action: " in said
    assert "'aprove'" in said
    assert scene.call("audit", "--help") == 0
    help_text = " ".join(capsys.readouterr().out.split())
    for action in Action:
        assert f" {action.value}" in help_text.partition("--action ACTION")[2]


def test_attempt_is_shown_for_submissions_of_partitions_alone(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """Requests and elections are told apart by the second of their time, which is no number of attempts."""
    partition: dict[str, Any] = {"plan": "a" * 64, "topic": "t", "partition": 0}
    for action, attempt, about in (
        (Action.SUBMIT, 2, partition),
        (Action.ELECT, 1_795_718_400, partition),
        (Action.REQUEST, 1_795_718_400, {"plan": "a" * 64}),
        (Action.THROTTLE, 1, {"plan": "a" * 64, "broker": 3}),
        (Action.PENDING, 0, {"topic": "t", "partition": 0}),
    ):
        scene.journal.audit.record(AuditRecord(action, "why", attempt=attempt, **about))
    assert scene.call("audit", "--output", "json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["attempt"] for row in rows] == [2, None, None, None, None]
    assert scene.call("audit", "--output", "csv") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["attempt"] for row in rows] == ["2", "", "", "", ""]


@pytest.mark.parametrize("words", [("audit", "--topic", "nope"), ("plans",)])
def test_nothing_found_is_said(scene: Scene, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    assert scene.call(*words) == 0
    assert capsys.readouterr().err.startswith("There is no ")


@pytest.mark.parametrize(
    ("status", "stepped_s", "said"),
    [
        (PlanStatus.RUNNING, 100, False),
        (PlanStatus.RUNNING, 175, True),
        (PlanStatus.PUBLISHED, 175, True),
        (PlanStatus.STUCK, 900, False),
        (PlanStatus.PREEMPTED, 900, False),
    ],
)
def test_a_plan_that_no_process_steps_is_named_with_the_seconds(status: PlanStatus, stepped_s: int, said: bool) -> None:
    now_ms = 1_000_000_000
    record = PlanRecord("d" * 64, "c1", "heal", status=status, stepped_ms=now_ms - stepped_s * 1000)
    lines = late_step_lines(record, now_ms, Settings.of({"step_interval": 40, "min_free": 0}))
    assert lines == (
        [f"  no process has stepped it for {stepped_s} s: look at the triggerer and the workers, or resume it"]
        if said
        else []
    )


def test_a_file_with_several_faults_is_refused_with_all_of_them(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scene.call("apply", scene.file("t-0: 129", "t-1: 231", "t-9: 123", "nope-0: 123")) == 1
    said = capsys.readouterr().err
    for words in ("t-0 is refused: the cluster has no broker 9", "the partition t-9", "the topic nope"):
        assert words in said
    assert "t-1" not in said


MOVE = Move("t", 0, (1, 2, 3), (4, 2, 3), 0, 0, "given")
RATE = "follower.replication.throttled.rate"
W, S, C, D = MoveState.WAITING, MoveState.SUBMITTED, MoveState.COMPLETED, MoveState.DROPPED
RUNNING, DONE, CANCELLED, BACK = PlanStatus.RUNNING, PlanStatus.COMPLETED, PlanStatus.CANCELLED, PlanStatus.ROLLED_BACK
COMPLETED = "Reassignment of partition t-0 is completed."


def snapshot_of(*partitions: Partition) -> Snapshot:
    return Snapshot("c", 0, {}, {each.topic_partition: each for each in partitions})


ASTRAY = "There is no active reassignment of partition t-0, but replica set is 1,3,2 rather than 4,2,3."


@pytest.mark.parametrize(
    ("status", "state", "now", "code", "sentence"),
    [
        (RUNNING, C, (4, 2, 3), Exit.DONE, COMPLETED),
        (RUNNING, S, "moving", Exit.UNFINISHED, "Reassignment of partition t-0 is still in progress."),
        (RUNNING, W, (1, 2, 3), Exit.UNFINISHED, "Reassignment of partition t-0 has not started."),
        (DONE, C, (1, 3, 2), Exit.FAILED, ASTRAY),
        (DONE, D, (4, 2, 3), Exit.DONE, COMPLETED),
        (DONE, D, (1, 2, 3), Exit.FAILED, "Reassignment of partition t-0 was not executed: why."),
        (
            DONE,
            C,
            None,
            Exit.FAILED,
            "Reassignment of partition t-0 cannot be verified: its topic was deleted.",
        ),
        (CANCELLED, D, (1, 2, 3), Exit.DONE, "t-0 had not begun: it was not moved, and has its original replicas."),
        (CANCELLED, C, (4, 2, 3), Exit.DONE, COMPLETED),
        (CANCELLED, D, (1, 3, 2), Exit.FAILED, "replica set is 1,3,2 rather than 1,2,3."),
        (BACK, C, (1, 2, 3), Exit.DONE, "Reassignment of partition t-0 was rolled back."),
        (BACK, C, (4, 2, 3), Exit.FAILED, "replica set is 4,2,3 rather than 1,2,3."),
        (PlanStatus.ABANDONED, S, "moving", Exit.UNFINISHED, "Reassignment of partition t-0 is still in progress."),
        (PlanStatus.ABANDONED, W, (1, 3, 2), Exit.FAILED, ASTRAY),
    ],
)
def test_each_partition_has_a_status(
    status: PlanStatus, state: MoveState, now: object, code: Exit, sentence: str
) -> None:
    replicas = now if isinstance(now, tuple) else (1, 2, 3, 4)
    adding = (4,) if now == "moving" else ()
    partition = Partition("t", 0, replicas, frozenset(replicas), replicas[0], adding=adding)
    found = snapshot_of() if now is None else snapshot_of(partition)
    row = MoveRow(MOVE, state=state, detail="why." if state is D else "")
    (standing,) = partition_statuses(PlanRecord("d", "c", "apply", status=status), [row], found)
    assert standing.code is code
    assert sentence in standing.sentence
    assert overall_exit([standing]) is code


@pytest.mark.parametrize("status", [CANCELLED, BACK])
def test_of_a_move_that_may_have_begun_it_is_said_that_it_was_rolled_back(status: PlanStatus) -> None:
    found = snapshot_of(Partition("t", 0, (1, 2, 3), frozenset({1, 2, 3}), 1))
    row, record = MoveRow(MOVE, state=D, attempt=1), PlanRecord("d", "c", "apply", status=status)
    (begun,) = partition_statuses(record, [row], found)
    assert begun.sentence == "Reassignment of partition t-0 was rolled back."
    (refused,) = partition_statuses(record, [replace(row, refused=1)], found)
    assert "t-0 had not begun: it was not moved, and has its original" in refused.sentence


def test_a_recreated_topic_is_named() -> None:
    row = MoveRow(replace(MOVE, topic_id="id1"), state=C)
    anew = Partition("t", 0, (4, 2, 3), frozenset({4}), 4, "id2")
    (standing,) = partition_statuses(PlanRecord("d", "c", "apply", status=DONE), [row], snapshot_of(anew))
    assert standing.code is Exit.FAILED
    assert standing.sentence.endswith("t-0 cannot be verified: its topic was deleted and re-created.")


def test_a_topic_that_we_may_not_describe_is_not_reported_as_gone() -> None:
    record, hidden = PlanRecord("d", "c", "apply", status=DONE), replace(snapshot_of(), hidden=frozenset("t"))
    (standing,) = partition_statuses(record, [MoveRow(MOVE, state=C)], hidden)
    assert standing.code is Exit.FAILED
    assert standing.sentence.endswith(f"t-0 cannot be verified: {HIDDEN}.")


def test_what_is_in_progress_counts_before_what_failed() -> None:
    rows = [MoveRow(MOVE, state=state) for state in (W, C)]
    moved = Partition("t", 0, (1, 2, 3), frozenset({1}), 1)
    told = partition_statuses(PlanRecord("d", "c", "apply", status=RUNNING), rows, snapshot_of(moved))
    assert [each.code for each in told] == [Exit.UNFINISHED, Exit.FAILED]
    assert overall_exit(told) is Exit.UNFINISHED


@pytest.fixture
def in_flight(scene: Scene, capsys: pytest.CaptureFixture[str]) -> Scene:
    """A throttled plan of one partition in flight and one that waits for it; nobody steps it."""
    scene.interfere = lambda _: os.kill(os.getpid(), signal.SIGINT)
    assert scene.call("apply", scene.file("t-0: 423", "t-1: 241"), "--throttle", "10") == 130
    scene.interfere = lambda _: None
    assert scene.simulator.broker_settings[4] == {RATE: "10"}
    capsys.readouterr()
    return scene


def test_verify_of_a_plan_in_the_middle(in_flight: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert in_flight.call("verify") == 3
    told = capsys.readouterr()
    assert "Reassignment of partition t-0 is still in progress.\n" in told.out
    assert told.err == f"2 of 2 partitions of plan {in_flight.plan.digest[:12]} do not have their target replicas.\n"
    assert in_flight.simulator.broker_settings[4] == {RATE: "10"}


def test_the_throttle_of_a_plan_is_changed(in_flight: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    digest = in_flight.plan.digest
    assert in_flight.call("throttle", digest[:8], "300k", "--reason", "the night is quiet") == 0
    told = f"Plan {digest[:12]}: 300,000 bytes/s into one broker, from its next step on.\n"
    assert capsys.readouterr().out == told
    assert in_flight.plan.throttle == 300_000
    rows = in_flight.journal.audit.rows(plan=digest)
    (entry,) = [row.entry for row in rows if row.entry.after == {"throttle": 300_000}]
    assert (entry.reason, entry.before) == ("throttle: the night is quiet", 10)
    capsys.readouterr()
    assert in_flight.call("status") == 0
    assert "  throttle 300,000 bytes/s into each broker, set by a user\n" in capsys.readouterr().out
    assert entry.who.person
    rates: list[dict[str, str]] = []
    in_flight.interfere = lambda _: rates.append(dict(in_flight.simulator.broker_settings[4]))
    # Whatever the connection says: it has no throttle.
    assert in_flight.call("resume", digest[:8]) == 0
    assert rates[0] == {RATE: "300000"}
    assert in_flight.simulator.broker_settings[4] == {}
    assert in_flight.call("throttle", digest[:8], "0", "--reason", "late") == 1
    assert "has already ended" in capsys.readouterr().err


def test_a_new_throttle_is_at_most_what_rates_of_others_allow_which_no_step_has_seen(
    in_flight: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    simulator, digest = in_flight.simulator, in_flight.plan.digest
    simulator.broker_settings[4][RATE] = "1"
    assert in_flight.call("throttle", digest, "100M") == 0
    at_most = (
        f"at most 100,000,000 bytes/s into one broker, from its next step on, because broker 4 has {RATE} 1 byte/s"
    )
    assert at_most in capsys.readouterr().out
    simulator.reachable = False
    assert in_flight.call("throttle", digest, "90M") == 0, "the cluster need not respond"
    assert "90,000,000 bytes/s into one broker" in capsys.readouterr().out


def test_a_stricter_rate_of_somebody_is_named_wherever_the_rate_of_the_plan_is(
    in_flight: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    digest, why = in_flight.plan.digest, "do not apply there; to end that: kafka-configs.sh --bootstrap-server"
    in_flight.simulator.broker_settings[4][RATE] = "2"
    PlanRunner(
        ClusterContext(in_flight.simulator, in_flight.journal, Settings(throttle=10, min_free=0), Actor()), digest
    ).step()
    capsys.readouterr()
    assert in_flight.call("throttle", digest, "3k", "--reason", "too slow") == 0
    told = capsys.readouterr().out
    at_most = "at most 3,000 bytes/s into one broker, from its next step on, because broker 4 has"
    assert f"{at_most} {RATE} 2 bytes/s, set by someone else: this plan's 3,000 bytes/s {why} 127.0.0.1:9001," in told
    assert "3,000 bytes/s limit nothing" in told
    stored = f"Broker 4 has {RATE} 2 bytes/s, set by someone else: this plan's 10 bytes/s {why} 127.0.0.1:9001,"
    assert stored in in_flight.plan.reason
    for words in (["show", digest], ["status"]):
        assert in_flight.call(*words) == 0
        out = capsys.readouterr().out
        assert (out.count("set by someone else"), "HOST:PORT" in out) == (1, False)
    line = f"  Broker 4 has {RATE} 2 bytes/s, set by someone else: this plan's 3,000 bytes/s {why} "
    in_flight.journal.plans.update(in_flight.plan, reason=f"Somebody wrote {RATE} here.")
    # Only `status` asks the cluster which brokers are live.
    for words, servers in ((["show", digest], "kafka:9092 -"), (["status"], "127.0.0.1:9001,127.0.0.1:9002 -")):
        assert in_flight.call(*words) == 0
        assert [each.startswith(line + servers) for each in capsys.readouterr().out.splitlines()].count(True) == 1
        assert in_flight.call(*words, "--output", "json") == 0
        (named,) = json.loads(capsys.readouterr().out)["external_rates"]
        assert {**named, "plan": digest} == {
            "plan": digest, "broker": 4, "key": RATE, "bytes_per_s": 2, "for_all_brokers": False,
        }  # fmt: skip


def test_a_plan_that_leaves_a_lost_partition_shows_which_brokers_to_bring_back(
    scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulator = scene.simulator
    simulator.create("lost", [(2, 3)])
    simulator.kill(2)
    simulator.kill(3)
    take_snapshot(simulator, f"{tmp_path}/snapshot", failed=(2, 3), now_ms=0)
    left = [{"topic": "lost", "partition": 0, "reason": "all_replicas_lost"}]
    plan = plan_of(simulator, [move("t-0", "123", "143")], unplaced=left)
    database = open_database(f"sqlite:///{tmp_path}/journal.db", simulator.cluster_id, "here")
    scene.journal.plan_reports = PlanReports(database)
    PlanTable(database).insert(scene.journal.plans.publish(PlanRecord(plan.digest, "simulated", "heal"), plan.moves))
    report_publication(
        ClusterContext(simulator, scene.journal, Settings(), Actor()), plan, read_snapshot(f"{tmp_path}/snapshot")
    )
    assert scene.call("show", plan.digest, "--output", "json") == 0
    (one,) = json.loads(capsys.readouterr().out)["not_planned"]
    assert (one["brokers"], "bring back its broker 3 with its data" in one["sentence"]) == ([3], True)
    assert scene.call("show", plan.digest) == 0
    assert "bring back its broker 3 with its data" in capsys.readouterr().out


def test_what_a_plan_leaves_is_shown_with_the_reason_and_what_to_do(
    scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pinned: list[dict[str, Any]] = [{"topic": "x", "partition": 7, "reason": "excluded"}]
    pinned += [{"topic": "moving", "partition": number, "reason": "in_flight"} for number in range(120)]
    strange = [{"topic": "../a", "partition": 1, "reason": "r"}, {"topic": "a", "partition": "-1"}, 5]
    unplaced = [{"topic": "wide", "partition": 0, "reason": "too_few_brokers"}]
    rack_left = {"counts": {"budget": 2}, "first": [{"topic": "u", "partition": 0, "reason": "budget"}]}
    proof: dict[str, Any] = {"unplaced": unplaced, "pinned": pinned, "rack_left": rack_left}
    plan = plan_of(scene.simulator, [move("t-0", "123", "423")], **proof)
    database = open_database(f"sqlite:///{tmp_path}/journal.db", scene.simulator.cluster_id, "here")
    reports = PlanReports(database)
    scene.journal.plan_reports = reports
    record = PlanRecord(plan.digest, scene.simulator.cluster_id, "heal")
    PlanTable(database).insert(scene.journal.plans.publish(record, plan.moves))
    for more, lines in (
        ({"unplaced": strange, "pinned": 3, "rack_left": {"counts": 4}}, []),
        ({}, plan.proof["unplaced"]),
    ):
        found = proof_summary(plan_with(plan.digest, {**plan.proof, **more}, []))
        reports.put_proof(plan.digest, found, conn_id=None)
        assert scene.call("show", plan.digest, "--output", "json") == 0
        assert [each["topic"] for each in json.loads(capsys.readouterr().out)["not_planned"]][:1] == [
            each["topic"] for each in lines
        ]
    assert scene.call("show", plan.digest) == 0
    told = capsys.readouterr().out.partition("left as they are:\n")[2].splitlines()
    assert told[0] == (
        "  wide-0: too few brokers may hold its replicas; start or add brokers, or lower its replication factor"
    )
    assert told[1].startswith(
        "  moving-0: a reassignment of it is in flight; make another plan when that has ended, or"
    )
    racks = "Not spread over the racks as well as can be, and left: u-0 and 1 more (max_moves or max_bytes leaves it to"
    assert (len(told), told[-3:]) == (103, ["  ... and 22 more", "", f"{racks} a later plan)."])


def test_a_rate_that_resume_is_given_holds_for_the_plan(in_flight: Scene) -> None:
    rates: list[dict[str, str]] = []
    in_flight.interfere = lambda _: rates.append(dict(in_flight.simulator.broker_settings[4]))
    assert in_flight.call("resume", "--throttle", "900") == 0
    assert rates[0] == {RATE: "900"}
    assert in_flight.plan.throttle == 900
    assert in_flight.simulator.broker_settings[4] == {}


def test_an_abandoned_plan_is_settled_by_verify(in_flight: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    digest = in_flight.plan.digest
    assert in_flight.call("abandon", digest[:8], "--reason", "nobody wants it") == 0
    told = capsys.readouterr()
    assert told.out == f"Plan {digest[:12]} was abandoned: nobody wants it\n"
    assert f"airflow kafka-steward verify {digest[:12]} --cluster {CLUSTER}" in told.err
    assert in_flight.journal.slot.holders() == ()
    assert in_flight.call("verify") == 3
    assert f"Throttles of plan {digest[:12]} are still set; verify again." in capsys.readouterr().err
    assert in_flight.simulator.broker_settings[4] == {RATE: "10"}
    in_flight.simulator.run(200)
    assert in_flight.call("verify", "-o", "json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["status"], told["throttles_released"], told["throttles_unreleased"]) == ("abandoned", [digest], [])
    assert [move["sentence"] for move in told["moves"]] == [COMPLETED, COMPLETED.replace("t-0", "t-1")]
    assert in_flight.simulator.broker_settings[4] == {}


def test_there_may_be_nothing_to_verify(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert scene.call("verify") == 1
    assert "holds no plan, so there is nothing to verify." in capsys.readouterr().err


def test_without_a_plan_the_newest_that_has_not_ended_is_shown_else_the_newest(
    in_flight: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    older, newer = in_flight.plan.digest, "f" * 64
    ended = replace(in_flight.plan, digest=newer, status=PlanStatus.COMPLETED, published_ms=10**15, chunks=())
    in_flight.journal.plans.publish(ended, [])
    assert in_flight.call("show") == 0
    shown = capsys.readouterr()
    assert shown.err == f"No plan is named; {older[:12]} is the newest that has not ended.\n"
    assert older[:12] in shown.out
    assert in_flight.call("abandon", older) == 0
    capsys.readouterr()
    assert in_flight.call("show") == 0
    assert capsys.readouterr().err == f"No plan is named; {newer[:12]} is the newest.\n"


def test_there_may_be_nothing_to_show(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert scene.call("show") == 1
    assert "holds no plan, so there is nothing to show" in capsys.readouterr().err


def test_a_plan_in_full(in_flight: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert in_flight.call("show", in_flight.plan.digest[:8]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"plan {in_flight.plan.digest[:12]}: apply, running, 2 partitions"
    assert any("[1,2,3] -> [4,2,3]" in line and "submitted" in line for line in lines)
    assert in_flight.call("show", in_flight.plan.digest, "-o", "csv") == 0
    assert 't,0,"[1, 2, 3]","[4, 2, 3]",0,submitted' in capsys.readouterr().out
    assert in_flight.call("plans", "-o", "csv") == 0
    assert in_flight.plan.digest in capsys.readouterr().out


def test_health_is_in_numbers_and_a_cluster_that_is_not_well_has_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = new_scene(monkeypatch, tmp_path)
    assert scene.call("health", "--output", "json") == Exit.DONE
    assert json.loads(capsys.readouterr().out)["above_limit"] == []
    scene.simulator.kill(1)
    assert scene.call("health", "--output", "json") == Exit.FAILED
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    behind = sum(each.under_replicated for each in scene.simulator.snapshot().partitions.values())
    assert found["under_replicated_partitions"] == len(found["named"]["under_replicated"]) == behind > 0
    assert "Broker 1 is down." in found["sentence"]
    assert "A healthy cluster has none of these: under replicated partitions" in printed.err
    assert found["under_replicated_partitions.2"] > 0
    assert scene.call("health") == Exit.FAILED
    assert "partitions.2" not in capsys.readouterr().out


def test_a_file_is_shown_without_a_cluster_and_beside_what_a_cluster_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = new_scene(monkeypatch, tmp_path)
    (first, second, *_) = scene.replicas()
    path = scene.file({"topic": "t", "partition": 0, "replicas": [*first[1:], first[0]]}, "t-1: 9", "t-77: 12")
    assert run("show", path, "--output", "json") == Exit.DONE
    alone = json.loads(capsys.readouterr().out)
    assert [row["replicas"] for row in alone] == [[*first[1:], first[0]], [9], [1, 2]]
    assert scene.call("show", path, "--output", "json") == Exit.DONE
    printed = capsys.readouterr()
    rows = json.loads(printed.out)
    assert [row["change"] for row in rows] == ["order", "replicas", "there is no such partition"]
    assert [row["now"] for row in rows] == [[*first], [*second], []]
    assert printed.err == "2 of 3 partitions would change; 1 does not exist.\n"


def test_a_file_with_faults_is_refused_with_all_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "reassignment.json"
    entries = [{"topic": "t", "partition": 0, "replicas": [1, 1]}, {"topic": "t", "partition": -1, "replicas": [1]}]
    path.write_text(json.dumps({"version": 1, "partitions": entries}))
    assert run("show", str(path)) == Exit.FAILED
    said = capsys.readouterr().err
    assert "t-0" in said
    assert "-1" in said
