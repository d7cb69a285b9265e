"""apply and resume, on a simulated cluster, and what a person sees while a plan is stepped."""

from __future__ import annotations

import getpass
import io
import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cli import Exit
from kafka_steward.cli.foreground import bar_text, open_progress_bar, patient
from kafka_steward.errors import ClusterUnreachable, JournalUnreachable, PlanError
from kafka_steward.execution.moves.progress import Progress, progress_of
from kafka_steward.execution.plans.drive import DrivePolicy, call_with_patience, run_to_end
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.throttles.rates import ExternalRate, ThrottleSide
from kafka_steward.journal.audit import Action
from kafka_steward.journal.records import PlanRecord, PlanStatus
from tests.cli.scene import CLUSTER, Scene
from tests.object_store import bucket, objects, s3_environment, s3_server

__all__ = ["bucket", "s3_environment", "s3_server"]

BEFORE = [(1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 3, 2)]
NOT_PUBLISHED = "Interrupted before a plan was published; nothing was changed."
ALL = ("t-0: 423", "t-1: 241", "t-2: 412", "t-3: 342")


def test_a_reassignment_is_carried_out(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert scene.call("apply", scene.file(*ALL)) == 0
    assert scene.replicas() == [(4, 2, 3), (2, 4, 1), (4, 1, 2), (3, 4, 2)]
    plan = scene.plan
    assert (plan.operation, plan.status, plan.who.person) == ("apply", PlanStatus.COMPLETED, getpass.getuser())
    assert {row.entry.who.person for row in scene.journal.audit.rows(plan=plan.digest)} == {getpass.getuser()}
    assert scene.journal.slot.holders() == ()
    said = capsys.readouterr()
    assert said.out == f"Plan {plan.digest[:12]} is complete: 4 of 4 partitions moved.\n"
    assert f"Plan {plan.digest[:12]}: 4 partitions, 4 replicas" in said.err
    assert "[####################] 100% of 4 partitions." in said.err


def test_sizes_that_no_leader_says_are_not_taken_for_nothing(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.simulator.mute = {1, 2, 3}
    scene.interfere = lambda _: scene.simulator.mute.clear()
    assert scene.call("apply", scene.file("t-0: 423", "t-1: 214")) == 0
    assert "0.0 MB to copy, beside 2 partitions whose leaders did not report a size." in capsys.readouterr().err


@pytest.mark.process
@pytest.mark.slow
def test_a_reassignment_is_carried_out_with_the_workspace_in_a_store(scene: Scene, bucket: str) -> None:
    file = scene.file(*ALL)
    workspace: Any = bucket
    scene.folder = workspace
    assert scene.call("apply", file) == 0
    assert scene.plan.status is PlanStatus.COMPLETED
    assert {name.rpartition("/")[2] for name in objects(bucket)} >= {"snapshot.json", "proof.json"}


def test_a_program_reads_how_it_ended(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert scene.call("apply", scene.file("t-0: 423"), "--output", "json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["status"], told["completed"], told["digest"]) == ("completed", 1, scene.plan.digest)


def test_a_partition_without_a_live_replica_is_left_out_and_named_before_anything_is_submitted(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.simulator.create("old", [(4,)])
    scene.simulator.kill(4)
    named = (
        "Left as it is: old-0: no replica of it is live, and moving it would lose its data; bring back its broker 4 "
        "with its data, or delete the topic, if that is not under way already."
    )
    # It was asked for and not done, which a script has to know.
    assert scene.call("apply", scene.file("t-0: 132", "old-0: 2")) == 1
    said = capsys.readouterr().err
    assert said.index(named) < said.index(f"Plan {scene.plan.digest[:12]}: 1 partition, 0 replicas")
    assert scene.plan.status is PlanStatus.COMPLETED
    assert (scene.replicas()[0], scene.replicas("old")) == ((1, 3, 2), [(4,)])

    assert scene.call("apply", scene.file("t-0: 132", "old-0: 2")) == 1
    said = capsys.readouterr().err
    assert named in said
    assert "nothing else has to move; nothing was changed." in said
    assert len(scene.journal.plans.latest(9)) == 1


def test_what_is_where_it_should_be_needs_no_plan(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert scene.call("apply", scene.file("t-0: 123", "t-1: 231")) == 0
    assert "already has its target replicas; nothing was changed." in capsys.readouterr().out
    assert scene.journal.plans.latest(1) == []


def test_a_partition_is_refused_fewer_replicas_than_min_insync_replicas_and_moved_if_it_has_as_few_already(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.simulator.topic_settings["t"]["min.insync.replicas"] = "4"
    assert scene.call("apply", scene.file("t-0: 12")) == 1
    assert capsys.readouterr().err == (
        "The reassignment of t-0 is refused: it would go from 3 to 2 replicas, and min.insync.replicas is 4; ask "
        "for more replicas, or lower min.insync.replicas of its topic.\n"
    )
    assert scene.call("apply", scene.file("t-0: 124", "t-1: 2314")) == 0
    assert scene.replicas()[:2] == [(1, 2, 4), (2, 3, 1, 4)]


WRONG: list[tuple[Any, str]] = [
    (["s-0: 123"], "The reassignment names the topic s, which the cluster does not have."),
    (["t-9: 123"], "The reassignment names the partition t-9, which the cluster does not have."),
    (["t-0: 127"], "The reassignment of t-0 is refused: the cluster has no broker 7; live are 1, 2, 3, 4."),
    (["t-0: 122"], "The reassignment of t-0 names broker 2 twice."),
    (["t-0: 124", "t-0: 134"], "The reassignment lists t-0 twice."),
    (["t-0: "], "The reassignment of t-0 names no broker."),
    ([{"topic": "t"}], 'an entry without topic, partition and replicas: {"topic": "t"}.'),
    ([], "The reassignment lists no partition;"),
    (
        ["t-2: 312"],
        (
            "The partition t-2 is already being reassigned; wait until that has completed, or cancel it first. To "
            "follow it: airflow kafka-steward partitions --reassigning-partitions --topic t --cluster "
            'kafka_simulated; to cancel t-2 alone: echo \'{"version": 1, "partitions": [{"topic": "t", "partition": 2, '
            '"replicas": [4, 1, 2]}]}\' > cancel.json && kafka-reassign-partitions.sh --bootstrap-server '
            "127.0.0.1:9001,127.0.0.1:9002 --cancel --reassignment-json-file cancel.json --preserve-throttles; to "
            "cancel all that is in flight, of plans and of others: airflow kafka-steward cancel "
            "--all --cluster kafka_simulated."
        ),
    ),
    (
        ["t-0: 122", "s-0: 123", {"topic": "t"}, "t-1: 237"],
        (
            "The reassignment of t-0 names broker 2 twice. The reassignment has an entry without topic, partition and "
            'replicas: {"topic": "t"}. The reassignment names the topic s, which the cluster does not have. The '
            "reassignment of t-1 is refused: the cluster has no broker 7; live are 1, 2, 3, 4."
        ),
    ),
]


@pytest.mark.parametrize(("partitions", "sentence"), WRONG, ids=[sentence[:60] for _, sentence in WRONG])
def test_what_is_wrong_is_one_sentence_and_changes_nothing(
    scene: Scene, capsys: pytest.CaptureFixture[str], partitions: Any, sentence: str
) -> None:
    scene.simulator.alter({TopicPartition("t", 2): (4, 1, 2)})
    assert scene.call("apply", scene.file(*partitions)) == 1
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert scene.journal.plans.latest(1) == []
    assert scene.journal.audit.rows() == []
    assert len(scene.simulator.reassignments()) == 1


def test_a_cordoned_broker_keeps_what_it_has_and_is_given_nothing(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.simulator.cordoned |= {1, 4}
    assert scene.call("apply", scene.file("t-0: 423")) == 1
    assert (
        "The reassignment of t-0 is refused: broker 4 is cordoned and receives no replicas; remove its directories "
        "from cordoned.log.dirs, or name another broker."
    ) in capsys.readouterr().err
    # Its order alone may change.
    assert scene.call("apply", scene.file("t-0: 312")) == 0
    assert scene.replicas()[0] == (3, 1, 2)


@pytest.mark.parametrize(("file", "code"), [("t-0: 124", 1), ("t-3: 214", 1), ("t-3: 134", 0), ("t-3: 213", 0)])
def test_a_replica_of_a_dead_broker_stays_or_goes(
    scene: Scene, capsys: pytest.CaptureFixture[str], file: str, code: int
) -> None:
    scene.simulator.topics[TopicPartition("t", 3)].replicas = (1, 3, 4)
    scene.simulator.kill(4)
    assert scene.call("apply", scene.file("t-1: 321", file)) == code
    refused = "is refused: broker 4 is not live; live are 1, 2, 3." in capsys.readouterr().err
    assert (refused, bool(scene.journal.plans.latest(1))) == (bool(code), not code)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "cannot be read: No such file or directory."),
        ("{'version': 1}", "does not contain JSON"),
        ("[1]", "The reassignment is a list;"),
        ('{"version": 2, "partitions": [1]}', "The reassignment has version 2; only version 1 is known."),
        *((text, "does not contain JSON") for text in ("\udcff", "", "[" * 100_000)),
    ],
)
def test_a_file_that_cannot_be_used(
    scene: Scene, capsys: pytest.CaptureFixture[str], text: str | None, sentence: str
) -> None:
    path = scene.folder / "it.json"
    if text is not None:
        path.write_bytes(text.encode(errors="surrogateescape"))
    assert scene.call("apply", str(path)) == 1
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("throttle", ["-1", "fast", "10MB", "1.5M", "0.5", "nan"])
def test_a_throttle_that_is_none_is_a_usage_error(
    scene: Scene, capsys: pytest.CaptureFixture[str], throttle: str
) -> None:
    assert scene.call("apply", scene.file(*ALL), f"--throttle={throttle}") == 2
    assert "is not a number of bytes per second, such as 50000000 or 50M" in capsys.readouterr().err
    assert scene.call("throttle", "beef", throttle) == 2


def test_the_throttle_is_set_while_it_moves(scene: Scene) -> None:
    seen = []
    scene.interfere = lambda _: seen.append(dict(scene.simulator.broker_settings[4]))
    assert scene.call("apply", scene.file(*ALL), "--throttle", "2k") == 0
    assert {"follower.replication.throttled.rate": "2000"} in seen
    assert scene.simulator.broker_settings[4] == {}


def test_a_second_apply_of_a_partition_that_is_moved_names_the_plan_that_moves_it(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    codes = []

    def again(pause: int) -> None:
        if pause == 1:
            capsys.readouterr()
            codes.append(scene.call("apply", scene.file("t-0: 124")))

    scene.interfere = again
    assert scene.call("apply", scene.file(*ALL)) == 0
    assert codes == [1]
    error, owner = capsys.readouterr().err, scene.plan.digest[:12]
    assert f"Nothing was changed: plan {owner} holds the plan slot and moves t-0, too; wait until it ends," in error
    assert f"\n  airflow kafka-steward show {owner} --cluster {CLUSTER}\n" in error
    assert len(scene.journal.plans.latest(5)) == 1


def test_a_second_apply_of_other_partitions_runs_beside_the_first(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    codes, ended = [], []

    def again(pause: int) -> None:
        if pause == 1:
            codes.append(scene.call("apply", scene.file("t-3: 342")))
            ended.append([plan.status for plan in scene.journal.plans.latest(5)])

    scene.simulator.topics[TopicPartition("t", 0)].size = 1_000
    scene.interfere = again
    assert scene.call("apply", scene.file("t-0: 423")) == 0
    assert (codes, ended) == ([0], [[PlanStatus.COMPLETED, PlanStatus.RUNNING]])
    assert scene.replicas() == [(4, 2, 3), *BEFORE[1:3], (3, 4, 2)]
    assert "holds the plan slot" not in capsys.readouterr().err
    assert scene.journal.slot.holders() == ()


def test_of_two_that_publish_at_once_one_is_refused(
    scene: Scene, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other plan was published after this one had looked at the slot, and still moves the partition."""

    def publish_after_the_other(*published: Any, **more: Any) -> PlanRecord:
        monkeypatch.setattr("kafka_steward.cli.execute.publish_plan", publish_plan)
        scene.interfere = lambda _: os.kill(os.getpid(), signal.SIGINT)
        assert scene.call("apply", scene.file("t-0: 423")) == 130
        capsys.readouterr()
        return publish_plan(*published, **more)

    monkeypatch.setattr("kafka_steward.cli.execute.publish_plan", publish_after_the_other)
    assert scene.call("apply", scene.file("t-0: 124")) == 1
    (plan,) = scene.journal.plans.latest(5)
    said = f"was not published: plan {plan.digest[:12]} holds the plan slot and moves t-0, too;"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_plan_is_resumed(
    scene: Scene, capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    handler = signal.getsignal(number)
    scene.interfere = lambda pause: os.kill(os.getpid(), number) if pause == 1 else None
    assert scene.call("apply", scene.file(*ALL)) == 130
    plan = scene.plan
    assert not plan.status.finished
    error = capsys.readouterr().err
    assert f"\n  airflow kafka-steward resume {plan.digest[:12]} --cluster {CLUSTER}\n" in error
    assert f"\n  airflow kafka-steward cancel {plan.digest[:12]} --cluster {CLUSTER}\n" in error
    assert "Traceback" not in error

    assert scene.call("resume") == 0
    assert scene.replicas() == [(4, 2, 3), (2, 4, 1), (4, 1, 2), (3, 4, 2)]
    assert signal.getsignal(number) == handler


def test_a_step_that_has_begun_is_finished_first(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    altered = []
    alter = scene.simulator.alter

    def interrupted(targets: Any, **more: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        altered.append(targets)
        return alter(targets, **more)

    monkeypatch.setattr(scene.simulator, "alter", interrupted)
    assert scene.call("apply", scene.file(*ALL)) == 130
    assert scene.pauses == 0
    assert len(altered[0]) == 4
    assert scene.journal.audit.rows(action=Action.SUBMIT)[0].completed_ms is not None


@pytest.mark.parametrize(
    ("act", "ends"),
    [
        (lambda _: os.kill(os.getpid(), signal.SIGINT), (Exit.INTERRUPTED, NOT_PUBLISHED)),
        (lambda scene: scene.call("disable", "--reason", "racks"), (Exit.FAILED, "Reassignments are disabled")),
    ],
    ids=["interrupted", "disabled"],
)
def test_interrupted_or_disabled_while_it_is_planned_nothing_is_published(
    scene: Scene,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[[Scene], object],
    ends: tuple[Exit, str],
) -> None:
    look = scene.simulator.snapshot
    monkeypatch.setattr(scene.simulator, "snapshot", lambda *given: (act(scene), look(*given))[1])
    assert scene.call("apply", scene.file(*ALL)) == ends[0]
    assert ends[1] in capsys.readouterr().err
    assert scene.journal.plans.latest(1) == []


def test_a_stuck_plan_waits_for_a_person_and_is_resumed(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.interfere = lambda pause: scene.simulator.kill(4) if pause == 1 else None
    scene.simulator.bandwidth = 1
    assert scene.call("apply", scene.file(*ALL)) == 3
    stuck = scene.plan
    assert stuck.status is PlanStatus.STUCK
    error = capsys.readouterr().err
    assert f"\n  airflow kafka-steward resume {scene.plan.digest[:12]} --cluster {CLUSTER}\n" in error
    scene.simulator.restart(4)
    scene.simulator.bandwidth = 100
    assert scene.call("resume", scene.plan.digest[:6]) == 0
    assert scene.plan.status is PlanStatus.COMPLETED


@pytest.mark.parametrize("dead", [(1,), (1, 2)], ids=["one is live and out of sync", "none is live"])
def test_the_order_of_a_partition_without_a_leader_is_changed_and_nothing_is_removed_from_it(
    scene: Scene, capsys: pytest.CaptureFixture[str], dead: tuple[int, ...]
) -> None:
    scene.simulator.create("old", [(1, 2)] * 2, size=100)
    for broker in dead:
        scene.simulator.kill(broker)
    for number in range(2):
        partition = scene.simulator.topics[TopicPartition("old", number)]
        partition.isr, partition.leader = {1}, None
    assert scene.call("apply", scene.file("old-0: 21", "old-1: 2")) == 1
    told = capsys.readouterr().err
    assert scene.replicas("old") == [(2, 1), (1, 2)]
    assert ("Left as it is: old-1: " in told, "Left as it is: old-0: " in told) == (True, False)
    moved = "is complete: 1 of 1 partition moved (1 still not fully replicated: old-0)"
    assert f"{moved}, 1 more partition left by the plan." in scene.plan.reason
    assert scene.call("apply", scene.file("old-0: 12")) == 0
    assert f"{moved}." in capsys.readouterr().out
    assert scene.call("cancel", scene.plan.digest, "--scope", "plan") == 0
    assert scene.replicas("old") == [(2, 1), (1, 2)]


def test_a_plan_that_ended_otherwise_than_asked_for_has_failed(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.interfere = lambda pause: scene.simulator.delete("t") if pause == 1 else None
    assert scene.call("apply", scene.file(*ALL)) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines()[-7:] == [
        scene.plan.reason,
        *(f"t-{number} was not moved: its topic was deleted" for number in range(4)),
        "To show it:",
        f"  airflow kafka-steward show {scene.plan.digest[:12]} --cluster {CLUSTER}",
    ]
    assert told.err.count(scene.plan.reason) == 1
    assert scene.plan.status is PlanStatus.FAILED
    assert "has failed: 0 of 4 partitions moved, 4 dropped." in scene.plan.reason


def test_the_bytes_to_copy_are_those_of_the_progress_also_where_a_replica_that_stays_is_out_of_sync(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.simulator.delete("t")
    scene.simulator.create("t", [(1, 2, 3)], size=2_600_000)
    scene.simulator.bandwidth = 1_000_000
    scene.simulator.topics[TopicPartition("t", 0)].isr.discard(2)
    scene.simulator.topics[TopicPartition("t", 0)].held[2] = 0
    assert scene.call("apply", scene.file("t-0: 42")) == 0
    err = capsys.readouterr().err
    late = "t-0 keeps broker 2, which is not in sync: Kafka completes the move once it is."
    more = "up to 2.6 MB into replicas that stay and are out of sync (t-0)"
    assert f"1 replica, 2.6 MB to copy, and {more}.\nnote: {late}\n" in err
    assert " of 2.6 MB" in err
    proof = json.loads(next(scene.folder.rglob("proof.json")).read_text())
    progress = progress_of(scene.plan, scene.journal.plans.rows(scene.plan.digest))
    assert proof["bytes_moved"] == progress.bytes_total == progress.bytes_done == 2_600_000, "as the page shows them"
    assert "5.2" not in err


def test_a_cluster_that_does_not_answer_is_one_sentence(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.down = ClusterUnreachable("No bootstrap server answers.")
    for words in (["apply", scene.file(*ALL)], ["resume"], ["cancel", "--reason", "x"], ["verify"], ["partitions"]):
        assert scene.call(*words) == 1
        assert capsys.readouterr().err == "No bootstrap server answers.\n"


@pytest.mark.parametrize("words", [["resume"], ["cancel", "--reason", "x"]], ids=lambda words: words[0])
def test_with_nothing_under_way_there_is_nothing_to_do(
    scene: Scene, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert scene.call(*words) == 1
    assert "No plan is in progress on cluster simulated: there is no plan to" in capsys.readouterr().err


def test_an_ended_plan_is_not_resumed(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.call("apply", scene.file("t-0: 423"))
    capsys.readouterr()
    assert scene.call("resume", scene.plan.digest) == 1
    error = capsys.readouterr().err
    assert f"Plan {scene.plan.digest[:12]} has already ended" in error
    assert error.count("\n") == 1


def test_while_reassignments_are_disabled_nothing_is_planned_or_published(
    scene: Scene, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.call("disable", "--reason", "moving racks")
    capsys.readouterr()
    monkeypatch.setattr(scene.simulator, "snapshot", lambda *_: pytest.fail("it was planned"))
    assert scene.call("apply", scene.file(*ALL)) == Exit.FAILED
    told = capsys.readouterr()
    said, hint = told.err.splitlines()
    assert said.startswith(f"Reassignments are disabled by {getpass.getuser()} since ")
    assert "(moving racks), so nothing was changed; wait with --wait, or enable them:" in said
    assert (hint, told.out) == (f"  airflow kafka-steward enable --cluster {CLUSTER}", "")
    assert scene.journal.plans.latest(1) == []


def test_it_waits_until_reassignments_are_enabled(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.call("disable", "--reason", "moving racks")
    published = []

    def interfere(pause: int) -> None:
        if pause == 3:
            published.extend(scene.journal.plans.latest(1))
            scene.call("enable")

    scene.interfere = interfere
    assert scene.call("apply", scene.file(*ALL), "--wait") == Exit.DONE
    assert published == []
    assert scene.plan.status is PlanStatus.COMPLETED
    error = capsys.readouterr().err
    assert error.count("Waiting, because reassignments are disabled by ") == 1
    assert "(moving racks); Ctrl-C stops, and nothing is changed." in error


def test_it_waits_until_another_plan_has_ended(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.interfere = lambda pause: os.kill(os.getpid(), signal.SIGINT) if pause == 1 else None
    assert scene.call("apply", scene.file("t-0: 423")) == Exit.INTERRUPTED
    first = scene.plan
    capsys.readouterr()

    def interfere(pause: int) -> None:
        if pause == 3:
            assert scene.call("resume", first.digest) == Exit.DONE

    scene.interfere = interfere
    assert scene.call("apply", scene.file("t-0: 142"), "--wait") == Exit.DONE
    said = capsys.readouterr().err
    assert f"Waiting, because plan {first.digest[:12]} holds the plan slot and moves t-0, too;" in said
    assert scene.replicas()[0] == (1, 4, 2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_while_it_waits_nothing_is_changed(
    scene: Scene, capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    scene.call("disable", "--reason", "moving racks")
    scene.interfere = lambda _: os.kill(os.getpid(), number)
    assert scene.call("apply", scene.file(*ALL), "--wait") == Exit.INTERRUPTED
    assert NOT_PUBLISHED in capsys.readouterr().err
    assert scene.journal.plans.latest(1) == []
    assert scene.replicas() == BEFORE


def with_directories(name: str, *log_dirs: str) -> dict[str, Any]:
    topic, _, digits = name.partition(": ")
    replicas = [int(digit) for digit in digits]
    return {"topic": "t", "partition": int(topic[2:]), "replicas": replicas, "log_dirs": log_dirs}


def test_the_rollback_that_kafkas_tool_prints_is_carried_out(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    saved = Path(scene.file(*(with_directories(name, *["/disk-1"] * 3) for name in ("t-0: 123", "t-1: 231"))))
    saved = saved.rename(saved.with_name("rollback.json"))
    assert scene.call("apply", scene.file(*ALL)) == 0
    capsys.readouterr()
    output = saved.with_name("executed.txt")
    output.write_text(f"Current partition replica assignment\n\n{saved.read_text()}\n\nSave this to use")
    assert scene.call("apply", str(output)) == 0
    assert scene.replicas()[:2] == BEFORE[:2]
    error = capsys.readouterr().err
    note = 'names a log directory (KIP-113) for t-0 on broker 1, t-1 on broker 3; it is taken as "any"'
    assert note in error
    assert error.index(note) < error.index("Plan ")
    assert scene.call("apply", str(saved)) == 0  # nothing is added any more
    assert "KIP-113" not in capsys.readouterr().err


def test_a_move_within_a_broker_is_refused_before_anything_is_planned(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    file = scene.file(with_directories("t-0: 423", "any", "/disk-1", "/disk-2"))
    assert scene.call("apply", file) == Exit.FAILED
    error = capsys.readouterr().err
    assert 'it names the log directory "/disk-2" (KIP-113) for t-0 on broker 3' in error
    assert error.count("\n") == 1
    assert (scene.journal.plans.latest(1), scene.replicas()) == ([], BEFORE)


NOTHING = progress_of(PlanRecord("d" * 64, "c", "apply"), [])
HALF = replace(
    NOTHING, partitions_total=60, partitions_settled=20, completed=12, dropped=8, in_flight=5, bytes_total=8 * 10**9,
    bytes_done=1_230_000_000, bytes_per_s=48_100_000.0, eta_s=141.0,
)  # fmt: skip
DOWN = JournalUnreachable("The journal does not answer.")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "12 of 60 partitions, 1.2 of 8.0 GB at 48.1 MB/s, 2 min 21 s left."),
        (
            {"throttle": 50_000_000},
            "12 of 60 partitions, 1.2 of 8.0 GB at 48.1 MB/s (at most 50.0 MB/s into each broker), 2 min 21 s left.",
        ),
        ({"eta_s": 8000.0}, "12 of 60 partitions, 1.2 of 8.0 GB at 48.1 MB/s, 2 h 13 min left."),
        ({"bytes_per_s": None, "eta_s": None}, "12 of 60 partitions, 1.2 of 8.0 GB."),
        ({"bytes_total": 0, "bytes_per_s": None, "eta_s": 4.0}, "12 of 60 partitions, 4 s left."),
        ({"in_flight": 0, "eta_s": None, "sentence": "Why."}, "12 of 60 partitions, 1.2 of 8.0 GB at 48.1 MB/s. Why."),
        (
            {"external_rates": (ExternalRate(3, ThrottleSide.FOLLOWER, 10),), "eta_s": None, "sentence": "Why."},
            "12 of 60 partitions, 1.2 of 8.0 GB at 48.1 MB/s. Why.",
        ),
    ],
)
def test_what_stands_beside_the_bar(changes: dict[str, Any], text: str) -> None:
    assert bar_text(replace(HALF, **changes)) == text


@pytest.mark.parametrize(("for_all", "where"), [(False, "broker 3"), (True, "each broker")])
def test_the_strictest_rate_of_others_is_the_limit_that_stands_beside_the_speed(*, for_all: bool, where: str) -> None:
    rates = tuple(ExternalRate(3 + n, ThrottleSide.FOLLOWER, 10**7 * (2 + n), for_all) for n in range(3))
    limited = replace(HALF, throttle=50_000_000, external_rates=rates)
    assert f"MB/s (at most 20.0 MB/s into {where})" in bar_text(limited)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with open_progress_bar() as report:
        report(replace(HALF, sentence="t-0 [held] is held.", in_flight=0))
    assert "12 of 60 partitions, 1.2 of 8.0 GB" in terminal.getvalue()
    assert "\x1b[" in terminal.getvalue()


class Flaky:
    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def step(self) -> Progress:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]  # a test gives what it likes


def never(given: object) -> NoReturn:
    pytest.fail(f"it waits, or says something: {given}")


def test_what_passes_is_waited_out_and_reported_once() -> None:
    waits: list[float] = []
    said: list[str] = []
    flaky, patience = Flaky(DOWN, DOWN, HALF, DOWN, HALF), patient("Ctrl-C stops.", said.append)
    steps = [call_with_patience(flaky.step, waits.append, patience) for _ in range(2)]
    assert steps == [HALF, HALF]
    assert waits == [5.0] * 3
    assert said == [f"{DOWN} Trying again; Ctrl-C stops."] * 2


def test_what_does_not_pass_is_raised_at_once() -> None:
    with pytest.raises(PlanError):
        call_with_patience(Flaky(PlanError("No.")).step, never, patient("", never))


def test_patience_ends() -> None:
    waits: list[float] = []
    with pytest.raises(JournalUnreachable):
        call_with_patience(Flaky(*[DOWN] * 100).step, waits.append, patient("", lambda _: None))
    assert sum(waits) == 115


def test_a_plan_that_makes_way_for_a_heal_is_waited_for() -> None:
    preempted = replace(HALF, status=PlanStatus.PREEMPTED, sentence="It made way for the heal.")
    waits: list[float] = []
    ended = replace(HALF, status=PlanStatus.COMPLETED)
    assert run_to_end(Flaky(preempted, ended).step, waits.append, DrivePolicy(interval_s=lambda: 2)) == ended
    assert len(waits) == 1
    assert bar_text(preempted).endswith("left. It made way for the heal.")


def test_a_journal_that_stays_away_ends_it_with_the_way_on(
    scene: Scene, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(pause: int) -> None:
        if pause == 1:
            monkeypatch.setattr(scene.journal, "step_lock", fails)

    def fails() -> None:
        raise DOWN

    scene.interfere = gone
    assert scene.call("apply", scene.file("t-0: 423")) == 1
    error = capsys.readouterr().err
    assert error.count(str(DOWN)) == 2
    assert f"\n  airflow kafka-steward resume {scene.plan.digest[:12]} --cluster {CLUSTER}\n" in error
