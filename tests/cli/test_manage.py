"""verify, throttle and abandon, on a simulated cluster; and what verify says of each partition."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace

import pytest

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.cli import Exit
from kafka_steward.cli.manage import overall_exit, partition_statuses
from kafka_steward.cluster.state import Partition
from kafka_steward.execution.move_recovery import HIDDEN
from kafka_steward.journal.records import MoveRow, MoveState, PlanRecord, PlanStatus
from tests.cli.scene import CLUSTER, Scene

MOVE = Move("t", 0, (1, 2, 3), (4, 2, 3), 0, 0, "given")
RATE = "follower.replication.throttled.rate"
W, S, C, D = MoveState.WAITING, MoveState.SUBMITTED, MoveState.COMPLETED, MoveState.DROPPED
RUNNING, DONE, CANCELLED, BACK = PlanStatus.RUNNING, PlanStatus.COMPLETED, PlanStatus.CANCELLED, PlanStatus.ROLLED_BACK
COMPLETED = "Reassignment of partition t-0 is completed."
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
            "Reassignment of partition t-0 cannot be verified: the partition no longer exists",
        ),
        (CANCELLED, D, (1, 2, 3), Exit.DONE, "Reassignment of partition t-0 was rolled back."),
        (CANCELLED, C, (4, 2, 3), Exit.DONE, COMPLETED),
        (CANCELLED, D, (1, 3, 2), Exit.FAILED, "replica set is 1,3,2 rather than 1,2,3."),
        (BACK, C, (1, 2, 3), Exit.DONE, "Reassignment of partition t-0 was rolled back."),
        (BACK, C, (4, 2, 3), Exit.FAILED, "replica set is 4,2,3 rather than 1,2,3."),
        (PlanStatus.ABANDONED, S, "moving", Exit.UNFINISHED, "Reassignment of partition t-0 is still in progress."),
        (PlanStatus.ABANDONED, W, (1, 3, 2), Exit.FAILED, ASTRAY),
    ],
)
def test_each_partition_is_told(status: PlanStatus, state: MoveState, now: object, code: Exit, sentence: str) -> None:
    replicas = now if isinstance(now, tuple) else (1, 2, 3, 4)
    adding = (4,) if now == "moving" else ()
    partition = Partition("t", 0, replicas, frozenset(replicas), replicas[0], adding=adding)
    found = {} if now is None else {TopicPartition("t", 0): partition}
    row = MoveRow(MOVE, state=state, detail="why." if state is D else "")
    (standing,) = partition_statuses(PlanRecord("d", "c", "apply", status=status), [row], found)
    assert standing.code is code
    assert sentence in standing.sentence
    assert overall_exit([standing]) is code


def test_a_topic_that_was_created_anew_is_told() -> None:
    row = MoveRow(replace(MOVE, topic_id="id1"), state=C)
    anew = Partition("t", 0, (4, 2, 3), frozenset({4}), 4, "id2")
    (standing,) = partition_statuses(PlanRecord("d", "c", "apply", status=DONE), [row], {anew.topic_partition: anew})
    assert standing.code is Exit.FAILED
    assert standing.sentence.endswith("t-0 cannot be verified: its topic was deleted and re-created.")


def test_a_topic_that_we_may_not_describe_is_not_told_to_be_gone() -> None:
    (standing,) = partition_statuses(PlanRecord("d", "c", "apply", status=DONE), [MoveRow(MOVE, state=C)], {}, {"t"})
    assert standing.code is Exit.FAILED
    assert standing.sentence.endswith(f"t-0 cannot be verified: {HIDDEN}.")


def test_what_is_in_progress_counts_before_what_failed() -> None:
    rows = [MoveRow(MOVE, state=state) for state in (W, C)]
    moved = Partition("t", 0, (1, 2, 3), frozenset({1}), 1)
    told = partition_statuses(PlanRecord("d", "c", "apply", status=RUNNING), rows, {moved.topic_partition: moved})
    assert [each.code for each in told] == [Exit.UNFINISHED, Exit.FAILED]
    assert overall_exit(told) is Exit.UNFINISHED


@pytest.fixture
def flying(scene: Scene, capsys: pytest.CaptureFixture[str]) -> Scene:
    """A throttled plan of one partition in flight and one that waits for it; nobody steps it."""
    scene.interfere = lambda _: os.kill(os.getpid(), signal.SIGINT)
    assert scene.call("apply", scene.file("t-0: 423", "t-1: 241"), "--throttle", "10") == 130
    scene.interfere = lambda _: None
    assert scene.simulator.broker_settings[4] == {RATE: "10"}
    capsys.readouterr()
    return scene


def test_verify_of_a_plan_in_the_middle(flying: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert flying.call("verify") == 3
    told = capsys.readouterr()
    assert "Reassignment of partition t-0 is still in progress.\n" in told.out
    assert told.err == f"2 of 2 partitions of plan {flying.plan.digest[:12]} do not have their target replicas.\n"
    assert flying.simulator.broker_settings[4] == {RATE: "10"}


def test_the_throttle_of_a_plan_is_changed(flying: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    digest = flying.plan.digest
    assert flying.call("throttle", digest[:8], "3k", "--reason", "the night is quiet") == 0
    told = f"Plan {digest[:12]}: 3000 bytes per second into one broker, from its next step on.\n"
    assert capsys.readouterr().out == told
    assert flying.plan.throttle == 3000
    (entry,) = [row.entry for row in flying.journal.audit.rows(plan=digest) if row.entry.after == {"throttle": 3000}]
    assert (entry.reason, entry.before) == ("throttle: the night is quiet", 10)
    capsys.readouterr()
    assert flying.call("status") == 0
    assert "  throttle 3,000 bytes/s into each broker, set by a user\n" in capsys.readouterr().out
    assert entry.who.person
    rates: list[dict[str, str]] = []
    flying.interfere = lambda _: rates.append(dict(flying.simulator.broker_settings[4]))
    # Whatever the connection says: it has no throttle.
    assert flying.call("resume", digest[:8]) == 0
    assert rates[0] == {RATE: "3000"}
    assert flying.simulator.broker_settings[4] == {}
    assert flying.call("throttle", digest[:8], "0", "--reason", "late") == 1
    assert "has already ended" in capsys.readouterr().err


def test_a_rate_that_resume_is_given_holds_for_the_plan(flying: Scene) -> None:
    rates: list[dict[str, str]] = []
    flying.interfere = lambda _: rates.append(dict(flying.simulator.broker_settings[4]))
    assert flying.call("resume", "--throttle", "900") == 0
    assert rates[0] == {RATE: "900"}
    assert flying.plan.throttle == 900
    assert flying.simulator.broker_settings[4] == {}


def test_an_abandoned_plan_is_settled_by_verify(flying: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    digest = flying.plan.digest
    assert flying.call("abandon", digest[:8], "--reason", "nobody wants it") == 0
    told = capsys.readouterr()
    assert told.out == f"Plan {digest[:12]} was abandoned: nobody wants it\n"
    assert f"airflow kafka-steward verify {digest[:12]} --cluster {CLUSTER}" in told.err
    assert flying.journal.slot.holders() == ()
    assert flying.call("verify") == 3
    assert f"Throttles of plan {digest[:12]} are still set; verify again." in capsys.readouterr().err
    assert flying.simulator.broker_settings[4] == {RATE: "10"}
    flying.simulator.run(200)
    assert flying.call("verify", "-o", "json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["status"], told["throttles_released"], told["throttles_unreleased"]) == ("abandoned", [digest], [])
    assert [move["sentence"] for move in told["moves"]] == [COMPLETED, COMPLETED.replace("t-0", "t-1")]
    assert flying.simulator.broker_settings[4] == {}


def test_there_may_be_nothing_to_verify(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert scene.call("verify") == 1
    assert "holds no plan, so there is nothing to verify." in capsys.readouterr().err


def test_a_plan_in_full(flying: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert flying.call("show", flying.plan.digest[:8]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"plan {flying.plan.digest[:12]}: apply, running, 2 partitions"
    assert any("[1,2,3] -> [4,2,3]" in line and "submitted" in line for line in lines)
    assert flying.call("show", flying.plan.digest, "-o", "csv") == 0
    assert 't,0,"[1, 2, 3]","[4, 2, 3]",0,submitted' in capsys.readouterr().out
    assert flying.call("plans", "-o", "csv") == 0
    assert flying.plan.digest in capsys.readouterr().out
