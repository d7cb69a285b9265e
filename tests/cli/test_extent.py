"""What `audit`, `plans` and `status` leave out, and that they say so; and all faults of a file at once."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from kafka_steward.cli.show import late_step_lines
from kafka_steward.journal.audit import Action, Actor, AuditRecord
from kafka_steward.journal.records import PlanRecord, PlanStatus
from kafka_steward.settings import Settings
from tests.cli.scene import Scene


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


def test_attempt_is_told_for_submissions_of_partitions_alone(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
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
    lines = late_step_lines(record, now_ms, Settings.of({"step_interval": 40}))
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
    for words in ("t-0 names broker 9, which is not live", "the partition t-9", "the topic nope"):
        assert words in said
    assert "t-1" not in said
