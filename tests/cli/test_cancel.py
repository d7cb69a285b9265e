"""cancel, and resuming what a cancel has begun, on a simulated cluster."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from getpass import getuser

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cli.foreground import Foreground
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.execution.moves.in_flight import record_external_in_flight
from kafka_steward.execution.plans.cancel import consume_cancel_signal, send_cancel_signal
from kafka_steward.execution.plans.lifecycle import change_plan_throttle, request_cancel
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.plans.slot import claim_slot
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.throttles.rates import ThrottleSide
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.journal.audit import Action, Actor
from kafka_steward.journal.kip_documents import CancelRequest, InFlight
from kafka_steward.journal.records import MoveState, PlanRecord, PlanStatus
from kafka_steward.sandbox import Sandbox
from kafka_steward.settings import Settings
from tests.airflow_home import Connect
from tests.cli.airflow_command import assignments, call
from tests.cli.scene import CLUSTER, Scene
from tests.eventually import eventually
from tests.present import present
from tests.simulated_plan import move

BEFORE = [(1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 3, 2)]
ALL = ("t-0: 423", "t-1: 241", "t-2: 412", "t-3: 342")


def interrupt_at(scene: Scene, pause: int) -> Callable[[int], None]:
    begun = scene.pauses
    return lambda now: os.kill(os.getpid(), signal.SIGINT) if now == begun + pause else None


@pytest.fixture
def half(scene: Scene, capsys: pytest.CaptureFixture[str]) -> Scene:
    """A plan of which one partition, the smallest, has arrived, and three are in flight; nobody steps it."""
    scene.simulator.topics[TopicPartition("t", 0)].size = 50
    scene.simulator.topics[TopicPartition("t", 0)].held = dict.fromkeys((1, 2, 3), 50)
    scene.interfere = interrupt_at(scene, 2)
    assert scene.call("apply", scene.file(*ALL)) == 130
    scene.interfere = lambda _: None
    assert len(scene.simulator.reassignments()) == 3
    capsys.readouterr()
    return scene


def test_what_is_pending_is_cancelled(half: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert half.call("cancel", "--reason", "traffic peak") == 0
    assert half.replicas() == [(4, 2, 3), *BEFORE[1:]]
    assert half.plan.status is PlanStatus.CANCELLED
    told = capsys.readouterr()
    became = f"cancelled by {getuser()} (traffic peak); 1 of 4 moves had completed, and stays"
    assert told.out.splitlines() == [
        "t-1: [2, 4, 1] back to [2, 3, 1]",
        "t-2: [4, 1, 2] back to [3, 1, 2]",
        "t-3: [3, 4, 2] back to [1, 3, 2]",
        f"Plan {half.plan.digest[:12]} was {became}.",
    ]
    assert f"\n  airflow kafka-steward cancel {half.plan.digest[:12]} --scope plan --cluster {CLUSTER}" in told.err


def test_all_of_it_is_taken_back(half: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    digest = half.plan.digest
    assert half.call("cancel", digest[:8], "--scope", "plan", "--reason", "wrong racks") == 0
    assert half.replicas() == BEFORE
    undone = half.journal.plans.get(digest)
    assert undone is not None
    assert undone.status is PlanStatus.ROLLED_BACK
    assert half.journal.plans.unfinished() == []
    assert f"Plan {digest[:12]} was rolled back by plan" in capsys.readouterr().out


def test_a_cancel_beside_which_another_asks_for_a_rollback_does_not_say_that_completed_moves_stay(
    half: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    digest, begun = half.plan.digest, half.pauses

    def ask(pause: int) -> None:
        if pause == begun + 1:
            request_cancel(half.journal, digest, who=Actor(person="ada"), reason="racks", scope="plan")

    half.interfere = ask
    assert half.call("cancel", "--reason", "traffic peak") == 0
    assert half.replicas() == BEFORE
    told = capsys.readouterr()
    assert f"Plan {digest[:12]} was rolled back by plan" in told.out
    assert "Completed moves stay" not in told.err


def test_a_plan_that_is_complete_is_taken_back(scene: Scene) -> None:
    assert scene.call("apply", scene.file(*ALL)) == 0
    digest = scene.plan.digest
    assert scene.call("cancel", digest, "--scope", "plan", "--reason", "wrong racks") == 0
    assert scene.replicas() == BEFORE


@pytest.mark.parametrize("resumed", [True, False])
@pytest.mark.parametrize("pause", range(1, 6))
def test_a_cancel_that_was_interrupted_is_resumed_or_repeated(
    half: Scene, capsys: pytest.CaptureFixture[str], pause: int, resumed: bool
) -> None:
    digest = half.plan.digest
    half.interfere = interrupt_at(half, pause)
    code = half.call("cancel", "--scope", "plan", "--reason", "wrong racks")
    half.interfere = lambda _: None
    if code == 130:
        assert f"\n  airflow kafka-steward resume {digest[:12]} --cluster {CLUSTER}\n" in capsys.readouterr().err
        again = ["resume"] if resumed else ["cancel", "--scope", "plan", "--reason", "wrong racks"]
        assert half.call(*again) == 0
    else:
        assert code == 0
    assert half.replicas() == BEFORE
    assert half.journal.slot.holders() == ()


def test_what_someone_else_changed_since_is_left_alone_and_reported(
    half: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    half.simulator.topics[TopicPartition("t", 0)].replicas = (3, 2, 4)
    again = f"cancel {half.plan.digest[:12]} --scope plan"
    assert half.call("cancel", "--scope", "plan", "--reason", "wrong racks") == 1
    assert half.replicas() == [(3, 2, 4), *BEFORE[1:]]
    err = capsys.readouterr().err
    assert "t-0 was left alone: " in err
    assert f"once its reason is gone, by the same command:\n  airflow kafka-steward {again}" in err


def test_what_someone_else_changes_after_it_went_back_is_named(half: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    digest = half.plan.digest
    assert half.call("cancel", digest, "--scope", "plan", "--reason", "wrong racks") == 0
    half.simulator.topics[TopicPartition("t", 1)].replicas = (1, 3, 4)
    capsys.readouterr()
    assert half.call("cancel", digest, "--scope", "plan") == 0
    told = capsys.readouterr()
    since = "has changed since it went back: someone else changed its replicas to [1, 3, 4]"
    assert told.err.splitlines()[-1] == f"t-1 {since}"
    assert "t-1: " not in told.out
    assert half.call("cancel", digest, "--scope", "plan", "--output", "json") == 0
    found = json.loads(capsys.readouterr().out)["found"]
    assert [each["why"] for each in found["changed_since"]] == ["someone else changed its replicas to [1, 3, 4]"]
    begin = f"3 of 4 partitions that plan {digest[:12]} had started to move are exactly as before"
    assert found["sentence"] == f"{begin}; 1 partition that had gone back changed since."
    assert not found["as_before"]


HINT = "What was left alone can be reverted later"


def test_what_a_rollback_leaves_alone_of_a_topic_made_anew_is_counted_wherever_it_is_said(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    """Anew with its originals, anew in flight, and deleted in flight."""
    for topic, size in (("anew", 10), ("flying", 1000), ("gone", 1000)):
        scene.simulator.create(topic, [(1, 2)], size=size)
    scene.interfere = interrupt_at(scene, 2)
    targets = scene.file("anew-0: 32", "flying-0: 42", "gone-0: 42", "t-1: 241")
    assert scene.call("apply", targets) == 130
    scene.interfere = lambda _: None
    digest = scene.plan.digest
    assert {str(name) for name in scene.simulator.reassignments()} == {"flying-0", "gone-0", "t-1"}
    for topic in ("anew", "flying", "gone"):
        scene.simulator.delete(topic)
    for topic in ("anew", "flying"):
        scene.simulator.create(topic, [(1, 2)])
    capsys.readouterr()
    assert scene.call("cancel", "--scope", "plan", "--reason", "wrong racks") == 1
    told = capsys.readouterr()
    named = [line for line in told.err.splitlines() if "was left alone: " in line]
    deleted = "was left alone: its topic was deleted"
    assert named == [f"anew-0 {deleted} and re-created", f"flying-0 {deleted} and re-created", f"gone-0 {deleted}"]
    undone = scene.journal.plans.get(digest)
    assert undone is not None
    assert (undone.status, undone.not_rolled_back) == (PlanStatus.CANCELLED, 3)
    assert undone.reason == f"reverted in part by plan {str(undone.rolled_back_by)[:12]}, 3 partitions left alone"
    assert f"Plan {digest[:12]} was {undone.reason}." in told.err
    assert "has its original replicas" not in told.err + told.out
    assert told.out.splitlines() == ["t-1: [2, 4, 1] back to [2, 3, 1]"]
    assert HINT not in told.err, "nothing of it can ever come back"
    assert scene.call("show", digest) == 0
    shown = capsys.readouterr().out
    assert "3 partitions left alone" in shown
    assert shown.partition("\nleft alone by the rollback:\n")[2].splitlines() == [
        "  anew-0: its topic was deleted and re-created",
        "  flying-0: its topic was deleted and re-created",
        "  gone-0: its topic was deleted",
    ]
    assert scene.call("show", str(undone.rolled_back_by), "--output", "json") == 0
    assert [each["topic"] for each in json.loads(capsys.readouterr().out)["left_alone"]] == ["anew", "flying", "gone"]
    assert scene.call("verify", digest) == 1
    told = capsys.readouterr()
    assert "do not have their original replicas." in told.err
    seen = [line for line in told.out.splitlines() if "cannot be verified" in line]
    clauses = [each.partition(" was left alone: ")[2] for each in named]
    assert sorted(line.partition("cannot be verified: ")[2] for line in seen) == sorted(f"{why}." for why in clauses)
    assert scene.call("plans") == 0
    listed = capsys.readouterr().out
    assert "3 partitions left alone" in listed
    assert ("  cancelled, reverted in part  " in listed, ", cancelled, reverted in part, " in shown) == (True, True)


@pytest.mark.parametrize("when", ["in flight", "restored"])
def test_of_a_topic_that_is_gone_nobody_says_that_it_has_its_original_replicas(
    scene: Scene, capsys: pytest.CaptureFixture[str], when: str
) -> None:
    scene.simulator.create("gone", [(1, 2)], size=1000)
    scene.interfere = interrupt_at(scene, 2)
    assert scene.call("apply", scene.file("gone-0: 42")) == 130
    scene.interfere = lambda _: None
    if when == "restored":
        assert scene.call("cancel", "--reason", "wrong racks") == 0
    scene.simulator.delete("gone")
    capsys.readouterr()
    digest = scene.plan.digest
    assert scene.call("cancel", digest, "--scope", "plan", "--reason", "wrong racks") == 1
    told = capsys.readouterr().err
    assert f"gone-0 was left alone: its topic was deleted\nPlan {digest[:12]} was not reverted: its partition" in told
    assert HINT not in told
    assert scene.call("show", digest) == 0
    before = "moved none" if when == "restored" else "failed: 0 of 1 partition moved"
    assert f"not reverted: its partition was left alone, and it had {before}\n" in capsys.readouterr().out


def delete(scene: Scene) -> None:
    scene.simulator.delete("t")


def take_over(scene: Scene) -> None:
    scene.simulator.alter({TopicPartition("t", number): (3, 1) for number in range(3)})


#: How a plan of three partitions fails, and what its outcome says of it.
FAILS: dict[str, tuple[Callable[[Scene], None], str]] = {
    "deleted": (delete, "0 of 3 partitions moved, 3 dropped."),
    "taken over": (take_over, "0 of 3 partitions moved, 3 taken over by other reassignments."),
}


@pytest.mark.parametrize("how", FAILS)
def test_a_cancel_of_a_plan_that_had_failed_says_that_it_had_and_what_was_left_alone(
    scene: Scene, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    fail, outcome = FAILS[how]
    scene.simulator.bandwidth = 1
    scene.interfere = lambda pause: fail(scene) if pause == 1 else None
    assert scene.call("apply", scene.file(*ALL[:3])) == 1
    digest = scene.plan.digest
    capsys.readouterr()
    assert scene.call("cancel", digest) == 1
    refused = f"Plan {digest[:12]} cannot be cancelled: it has already ended: Plan {digest[:12]} has failed: {outcome}"
    assert refused in capsys.readouterr().err
    assert scene.call("cancel", digest, "--scope", "plan") == 1
    why = "not reverted: all 3 partitions were left alone, and it had failed: 0 of 3 partitions moved"
    assert f"Plan {digest[:12]} was {why}." in capsys.readouterr().err
    plan = present(scene.journal.plans.get(digest))
    assert (plan.status, plan.reason) == (PlanStatus.FAILED, why)


@pytest.mark.parametrize("how", FAILS)
def test_a_cancel_that_finds_its_plan_failed_says_how_and_that_nothing_was_left_to_cancel(
    scene: Scene, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    fail, outcome = FAILS[how]
    scene.simulator.bandwidth = 1
    scene.interfere = interrupt_at(scene, 2)
    assert scene.call("apply", scene.file(*ALL[:3])) == 130
    scene.interfere = lambda _: None
    fail(scene)
    capsys.readouterr()
    code, told = scene.call("cancel", "--reason", "why"), "".join(capsys.readouterr())
    said = f"Plan {scene.plan.digest[:12]} has failed: {outcome} Its cancel by {getuser()} (why) found nothing of it in"
    assert f"{said} flight or waiting.\n" in told
    named = [f"t-{number} was left alone: someone else reassigned the partition\n" in told for number in range(3)]
    assert (code, named) == ((1, [True] * 3) if how == "taken over" else (0, [False] * 3))
    assert scene.plan.status is PlanStatus.FAILED


def test_a_plan_that_failed_before_it_had_begun_is_not_called_rolled_back(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    record = PlanRecord("c" * 64, scene.simulator.cluster_id, "apply")
    scene.journal.plans.publish(record, [move(f"t-{number}", "13", "42") for number in range(3)])
    claim_slot(scene.journal, record, Actor())
    assert scene.call("resume", "cccc") == 1
    capsys.readouterr()
    assert scene.call("cancel", "cccc", "--scope", "plan") == 0
    why = "not reverted: there was nothing to revert, and it had failed: 0 of 3 partitions moved"
    assert f"Plan cccccccccccc was {why}." in capsys.readouterr().out
    (plan,) = scene.journal.plans.latest(9)
    assert (plan.digest, plan.status, plan.cancel) == (record.digest, PlanStatus.FAILED, None)


def test_of_a_cancelled_plan_of_which_nothing_had_moved_there_is_nothing_to_revert(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the command, and by the signal of KIP-236."""
    scene.simulator.bandwidth = 1
    scene.interfere = interrupt_at(scene, 1)
    assert scene.call("apply", scene.file(*ALL[:2])) == 130
    scene.interfere = lambda _: None
    digest = scene.plan.digest
    assert scene.call("cancel", "--reason", "why") == 0
    assert "t-1: [2, 4, 1] back to [2, 3, 1]\n" in capsys.readouterr().out
    cancelled = scene.plan
    assert scene.call("cancel", digest, "--scope", "plan") == 0
    said = f"Plan {digest[:12]} was not reverted: there was nothing to revert, and it had moved none.\n"
    assert capsys.readouterr() == (said, "")
    assert scene.journal.plans.latest(9) == [cancelled], "no rollback is left, and the status stays"
    send_cancel_signal(scene.journal, CancelRequest(digest, "plan"), Actor())
    outcome = present(consume_cancel_signal(scene.simulator, scene.journal, Actor()))
    assert (outcome.plans, outcome.sentences) == ((), (said.removesuffix("\n"),))
    assert scene.journal.plans.latest(9) == [cancelled]
    assert scene.call("cancel", digest) == 0
    assert " back to " not in capsys.readouterr().out, "the first cancel returned them"


def test_a_plan_that_is_undone_before_a_move_has_completed_leaves_no_empty_rollback(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.simulator.bandwidth = 1
    scene.interfere = interrupt_at(scene, 1)
    assert scene.call("apply", scene.file("t-1: 241")) == 130
    scene.interfere = lambda _: None
    capsys.readouterr()
    assert scene.call("cancel", "--scope", "plan") == 0
    (plan,) = scene.journal.plans.latest(9)
    assert (plan.status, plan.rolled_back_by, plan.not_rolled_back) == (PlanStatus.ROLLED_BACK, None, 0)
    assert capsys.readouterr().out.splitlines() == [
        "t-1: [2, 4, 1] back to [2, 3, 1]",
        f"Plan {plan.digest[:12]} was rolled back, with nothing left to revert.",
    ]


def test_while_reassignments_are_disabled_an_ended_plan_is_not_rolled_back_and_nothing_is_recorded(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scene.call("apply", scene.file(*ALL)) == 0
    ended = scene.plan
    assert scene.call("disable", "--reason", "racks") == 0
    capsys.readouterr()
    words, rows = ("cancel", ended.digest, "--scope", "plan"), len(scene.journal.audit.rows())
    assert scene.call(*words) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith(f"Reassignments are disabled by {getuser()} since ")
    assert f"(racks), so plan {ended.digest[:12]} is not rolled back, and nothing was changed; enable" in said[0]
    again = f"  airflow kafka-steward cancel {ended.digest[:12]} --scope plan --even-if-disabled --cluster {CLUSTER}"
    assert said[1:] == [f"  airflow kafka-steward enable --cluster {CLUSTER}", again]
    assert (scene.journal.plans.latest(9), len(scene.journal.audit.rows())) == ([ended], rows)
    assert scene.call(*words, "--even-if-disabled") == 0
    assert scene.replicas() == BEFORE


@pytest.mark.parametrize("form", ["table", "json"])
def test_while_reassignments_are_disabled_what_is_in_flight_goes_back_and_the_rollback_waits(
    half: Scene, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    digest = half.plan.digest
    assert half.call("disable", "--reason", "racks") == 0
    capsys.readouterr()
    for words in (["cancel", digest, "--scope", "plan"], ["resume", digest], ["cancel", digest, "--scope", "plan"]):
        assert half.call(*words, "--output", form) == 3
        assert half.replicas() == [(4, 2, 3), *BEFORE[1:]]
        said = capsys.readouterr().err
        rollback = half.plan.digest
        assert f"\nPlan {digest[:12]} has ended. Its rollback, plan {rollback[:12]}, of 1 partition waits: re" in said
        assert "(racks). Enable them and resume it, or roll back all the same:\n  airflow kafka-steward enable" in said
        assert f"\n  airflow kafka-steward resume {digest[:12]} " in said
        assert f"\n  airflow kafka-steward cancel {digest[:12]} --scope plan --even-if-disabled " in said
    assert half.call("resume", half.plan.digest, "--output", form) == 3
    assert " of 1 partition waits: " in capsys.readouterr().err, "also by the digest of the rollback"
    assert half.call("enable") == 0
    assert half.call("resume", digest) == 0
    assert half.replicas() == BEFORE


def test_while_reassignments_are_disabled_a_cancel_of_everything_does_not_wait_for_rollbacks(
    half: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    assert half.call("disable", "--reason", "racks") == 0
    assert half.call("cancel", "--all", "--scope", "plan") == 3
    assert half.replicas() == [(4, 2, 3), *BEFORE[1:]]
    assert f"Its rollback, plan {half.plan.digest[:12]}, of 1 partition waits: re" in capsys.readouterr().err


@pytest.mark.parametrize("where", ["before", "in flight"])
def test_an_interrupted_rollback_is_named_as_what_has_not_ended(
    scene: Scene, capsys: pytest.CaptureFixture[str], where: str
) -> None:
    assert scene.call("apply", scene.file(*ALL)) == 0
    ended = scene.plan.digest
    if where == "before":
        other = PlanRecord("c" * 64, scene.simulator.cluster_id, "drain")
        scene.journal.plans.publish(other, [move("t-0", "423", "413")])
        claim_slot(scene.journal, other, Actor())
    scene.simulator.bandwidth = 1
    scene.interfere = interrupt_at(scene, 1)
    capsys.readouterr()
    assert scene.call("cancel", ended, "--scope", "plan") == 130
    said = capsys.readouterr().err
    rollback = present(scene.journal.plans.get(ended)).rolled_back_by
    resume = f"\n  airflow kafka-steward resume {ended[:12]} --cluster {CLUSTER}\n"
    if rollback is None:
        assert where == "before"
        assert f"Plan {ended[:12]} has ended, and its rollback has not begun. Continue it:{resume}" in said
    else:
        begin = f"Plan {ended[:12]} has ended; its rollback, plan {rollback[:12]}, has not ended. Moves in flight"
        assert f"{begin} continue in Kafka. Resume the rollback, or cancel it:{resume}" in said
        assert f"\n  airflow kafka-steward cancel {rollback[:12]} --cluster {CLUSTER}\n" in said


def test_of_a_plan_with_nothing_in_flight_nothing_is_said_to_continue(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    record = PlanRecord("c" * 64, scene.simulator.cluster_id, "apply")
    scene.journal.plans.publish(record, [move("t-0", "123", "423")])
    claim_slot(scene.journal, record, Actor())
    scene.simulator.kill(4)
    scene.interfere = interrupt_at(scene, 1)
    assert scene.call("resume", "cccc") == 130
    assert "\nPlan cccccccccccc has not ended. Resume the plan, or cancel it:\n" in capsys.readouterr().err


def test_of_a_plan_whose_rollback_was_cancelled_it_is_shown_what_was_taken_back_and_by_which_plan(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scene.call("apply", scene.file(*ALL)) == 0
    digest = scene.plan.digest
    scene.simulator.topics[TopicPartition("t", 0)].size = 50
    scene.simulator.topics[TopicPartition("t", 0)].held = dict.fromkeys((4, 2, 3), 50)
    scene.interfere = interrupt_at(scene, 2)
    assert scene.call("cancel", digest, "--scope", "plan") == 130
    scene.interfere = lambda _: None
    rollback = scene.plan.digest
    scene.call("cancel", rollback)
    capsys.readouterr()
    assert scene.replicas()[0] == BEFORE[0]
    assert scene.call("show", digest) == 0
    shown = capsys.readouterr().out
    back = [line for line in shown.splitlines() if f"taken back by plan {rollback[:12]}" in line]
    assert len(back) == sum(now == was for now, was in zip(scene.replicas(), BEFORE, strict=True)) < 4
    assert shown.count(f"  its rollback is plan {rollback[:12]}; ") == 1
    assert scene.call("plans") == 0
    assert f"  its rollback is plan {rollback[:12]}; " in capsys.readouterr().out


def test_a_rollback_of_which_nothing_went_back_says_so(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert scene.call("apply", scene.file(*ALL)) == 0
    digest = scene.plan.digest
    capsys.readouterr()
    for broker in (1, 3):
        scene.simulator.kill(broker)
    assert scene.call("cancel", digest, "--scope", "plan") == 1
    told = capsys.readouterr()
    assert told.err.count(" was left alone: its original broker") == 4
    assert f"\nPlan {digest[:12]} was not reverted: all 4 partitions were left alone.\n{HINT}" in told.err
    for words in (["show", digest], ["plans"]):
        assert scene.call(*words) == 0
        assert "not reverted: all 4 partitions were left alone" in capsys.readouterr().out
    assert (scene.plan.rolls_back, scene.plan.status) == (digest, PlanStatus.FAILED)
    assert "[--------------------]   0% of 4 partitions" in told.err
    assert scene.call("verify", digest) == 1
    said = " The rollback left it with the target of the plan: its original broker"
    assert capsys.readouterr().out.count(said) == 4
    for broker in (1, 3):
        scene.simulator.restart(broker)
    assert scene.call("cancel", digest, "--scope", "plan") == 0
    assert scene.replicas() == BEFORE


def test_a_stuck_plan_is_cancelled(scene: Scene) -> None:
    scene.interfere = lambda pause: scene.simulator.kill(4) if pause == 1 else None
    scene.simulator.bandwidth = 1
    assert scene.call("apply", scene.file(*ALL)) == 3
    assert scene.call("cancel", "--scope", "plan", "--reason", "broker 4 died") == 0
    assert scene.replicas() == BEFORE
    assert scene.journal.slot.holders() == ()


def test_an_ended_plan_has_nothing_pending(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.call("apply", scene.file("t-0: 423"))
    capsys.readouterr()
    assert scene.call("cancel", scene.plan.digest, "--reason", "x") == 1
    error = capsys.readouterr().err
    assert error.startswith(f"Plan {scene.plan.digest[:12]} cannot be cancelled: it has already ended")
    assert "resume" not in error


@pytest.mark.parametrize("words", [[], ["--reason", "  "]], ids=["none", "empty"])
def test_a_reason_may_be_left_out(half: Scene, words: list[str]) -> None:
    assert half.call("cancel", *words) == 0
    told = half.journal.audit.rows(plan=half.plan.digest, action=Action.REQUEST)
    assert [row.entry.reason for row in told] == ["cancel: no reason was given"]


def test_a_plan_that_is_unknown(half: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    found = "In the journal of cluster simulated, no plan begins with beef; see"
    for words in ("show", "audit --plan", "resume", "cancel --reason x", "abandon --reason x"):
        assert half.call(*words.split(), "beef") == 1
        assert f"{found} `airflow kafka-steward plans --cluster {CLUSTER}`." in capsys.readouterr().err
    assert half.plan.cancel is None


def test_what_someone_took_over_in_flight_is_named_and_fails_the_cancel(
    half: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    digest = half.plan.digest
    half.simulator.alter({TopicPartition("t", 1): (3, 1, 4)})
    assert half.call("cancel", digest[:8], "--scope", "plan", "--reason", "wrong racks") == 1
    told = capsys.readouterr().err
    assert "t-1 was left alone: someone else changed its replicas to [3, 1, 4" in told
    assert f"Plan {digest[:12]} was reverted in part by plan" in told
    assert "rolled back" not in told


def test_the_rate_that_cancel_is_given_is_that_of_the_rollback(half: Scene) -> None:
    change_plan_throttle(half.journal, half.plan.digest, 20, Actor(), "peak hour")
    assert half.call("cancel", "--scope", "plan", "--throttle", "77k", "--reason", "wrong racks") == 0
    assert (half.plan.operation, half.plan.throttle) == ("rollback", 77_000)


def die_after_the_request(_: Foreground, act: Callable[[], object], *, stays: str) -> None:
    assert "Ctrl-C stops" in stays
    act()
    raise KeyboardInterrupt


@pytest.mark.parametrize("words", [["--scope", "plan"], ["--all"]])
@pytest.mark.parametrize("first", ["cancel", "rollback", "nothing"])
def test_no_move_begins_at_the_old_rate_if_a_cancel_is_killed(
    half: Scene, monkeypatch: pytest.MonkeyPatch, words: list[str], first: str
) -> None:
    """The rate is there with the request, or before it, also in an ended plan and in a rollback that has begun."""
    digest = half.plan.digest
    with monkeypatch.context() as killed:
        killed.setattr("kafka_steward.cli.foreground.Foreground.retry", die_after_the_request)
        if first == "cancel":
            assert half.call("cancel", "--scope", "plan") == 130
        elif first == "rollback":
            request_cancel(half.journal, digest, who=Actor(), reason="why", scope="plan")
            settings, cluster = Settings(throttle=10, min_free=0), half.simulator
            for _ in range(4):
                PlanRunner(ClusterContext(cluster, half.journal, settings, Actor()), digest).step()
                cluster.tick()
        assert half.call("cancel", *words, "--throttle", "77k") == 130
    (plan,) = half.journal.plans.unfinished()
    assert (plan.operation == "rollback", plan.throttle) == (first == "rollback", 77_000)
    assert plan.cancel is not None or first == "rollback"
    (row,) = [row for row in half.journal.audit.rows(plan=plan.digest) if row.entry.after == {"throttle": 77_000}]
    assert (row.entry.action, row.entry.reason) == (Action.REQUEST, "throttle: requested with the cancel")


def test_a_plan_that_has_ended_keeps_its_rate_until_it_is_rolled_back(scene: Scene) -> None:
    assert scene.call("apply", scene.file(*ALL), "--throttle", "10") == 0
    ended = scene.plan
    assert scene.call("cancel", ended.digest, "--throttle", "77k") == 1
    assert scene.plan == ended
    assert scene.call("cancel", ended.digest, "--scope", "plan", "--throttle", "77k") == 0
    assert {plan.throttle for plan in scene.journal.plans.latest(9)} == {77_000}


def test_a_throttle_that_waits_for_a_dead_broker_is_named(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.interfere = interrupt_at(scene, 1)
    assert scene.call("apply", scene.file("t-0: 423"), "--throttle", "10") == 130
    scene.interfere = lambda _: None
    scene.simulator.kill(4)
    assert scene.call("cancel", "--reason", "it died") == 0
    said = "The throttle of broker 4 is released on return, by the watch, the next run of heal, or the command verify."
    assert said in capsys.readouterr().err
    scene.simulator.restart(4)
    assert scene.call("cancel", scene.plan.digest, "--reason", "it died") == 0
    assert "The throttle of broker 4" not in capsys.readouterr().err
    assert scene.simulator.broker_settings[4] == {}


def test_an_order_that_someone_elses_cancel_lost_fails_the_cancel(
    half: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    half.simulator.cancel([TopicPartition("t", 1)])
    assert half.call("cancel", "--reason", "traffic peak") == 1
    assert "t-1 was left alone: someone else cancelled it; its replicas are [2, 1, 3]" in capsys.readouterr().err
    again = ["cancel", half.plan.digest, "--reason", "traffic peak", "--restore-order"]
    assert half.call(*again) == 0
    assert half.replicas() == [(4, 2, 3), *BEFORE[1:]]


def test_what_a_rule_of_kip_236_forbids_is_named_and_fails_the_cancel(
    half: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    half.simulator.topics[TopicPartition("t", 1)].isr = {4}
    assert half.call("cancel", "--reason", "traffic peak") == 1
    told = capsys.readouterr()
    assert "t-1 was not cancelled: KIP-236: none of the original replicas is in sync" in told.err
    assert "t-2: [4, 1, 2] back to [3, 1, 2]\n" in told.out
    assert "t-1" not in told.out


def test_what_cannot_be_seen_to_be_as_before_fails_the_cancel(half: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    half.simulator.mute = {4}
    assert half.call("cancel", "--reason", "traffic peak") == 1
    told = capsys.readouterr()
    assert "t-1 is not as it was: broker 4 does not report whether it still has a log of it" in told.err
    assert "back to" not in told.out
    waits = f"Plan {half.plan.digest[:12]} has ended. Waiting, for 300 s at most, until all is as it was before: t-1: "
    assert told.err.count(waits) == 1, "at the first look, and once"


def test_programs_get_each_partition_too(half: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert half.call("cancel", "--reason", "traffic peak", "--output", "json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["status"], facts["found"]["as_before"]) == ("cancelled", True)
    assert facts["found"]["returned"][0] == {"topic": "t", "partition": 1, "target": [2, 4, 1], "originals": [2, 3, 1]}


# Everything


def test_all_cancels_every_plan_and_what_others_have_in_flight(half: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    first = half.plan.digest
    half.journal.plans.publish(replace(half.plan, digest="e" * 64, chunks=()), [move("u-0", "12", "23")])
    half.simulator.create("u", [(1, 2)])
    half.simulator.alter({TopicPartition("u", 0): (4, 3)})
    assert half.call("cancel", "--all", "--reason", "fire") == 0
    assert half.replicas() == [(4, 2, 3), *BEFORE[1:]]
    assert (half.replicas("u"), half.simulator.reassignments()) == ([(1, 2)], {})
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "The external reassignment of u-0 to [4, 3] is back at [1, 2]."
    by = f"was cancelled by {getuser()} (fire);"
    assert f"Plan {first[:12]} {by} 1 of 4 moves had completed, and stays." in told
    assert f"Plan {'e' * 12} {by} its only move had not completed." in told
    assert {each.status for each in half.journal.plans.latest(5)} == {PlanStatus.CANCELLED}
    (entry,) = [row.entry for row in half.journal.audit.rows(action=Action.CANCEL) if row.entry.topic == "u"]
    assert entry.reason == "external reassignment: fire"


def test_what_others_have_in_flight_and_may_not_be_cancelled_is_named(
    half: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    half.simulator.create("u", [(1,)])
    half.simulator.alter({TopicPartition("u", 0): (4,)})
    half.simulator.topics[TopicPartition("u", 0)].isr = {4}
    assert half.call("cancel", "--all", "--output", "json") == 1
    told = capsys.readouterr()
    assert "The external reassignment of u-0 to [4] was not cancelled: KIP-236: none of the" in told.err
    facts = json.loads(told.out)
    assert [plan["status"] for plan in facts["plans"]] == ["cancelled"]
    (one,) = facts["external"]
    assert (one["topic"], one["partition"], one["target"], one["state"]) == ("u", 0, [4], "skipped")


def test_when_nothing_is_under_way_there_is_nothing_to_cancel(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert scene.call("cancel", "--all") == 0
    assert capsys.readouterr().out == "No plan is in progress, so nothing was cancelled.\n"


def test_what_others_moved_long_ago_is_not_named(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (0, 1):
        noted = InFlight((9, 1), scene.replicas()[number])
        record_external_in_flight(scene.journal.mailbox, {TopicPartition("t", number): noted})
    assert scene.call("cancel", "--all") == 0
    assert capsys.readouterr().out == "No plan is in progress, so nothing was cancelled.\n"


def test_a_plan_and_all_are_not_said_together(half: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert half.call("cancel", half.plan.digest, "--all") == 2
    assert capsys.readouterr().err == "Name a plan, or give --all; not both.\n"
    assert half.plan.cancel is None


ASSIGNED = {0: (1, 2, 3), 1: (2, 3, 1)}
#: Bytes per second. A broker fetches 1 MB at once, and then pauses until its quota's window of 11 s has passed:
#: 15 MB need minutes, and the command a minute at most, however slow the machine is.
RATE = 10_000


@pytest.mark.in_ci("kraft")
def test_all_that_is_pending_goes_back_and_is_named(sandbox: Sandbox, connect: Connect, topic: str) -> None:
    ours, theirs = f"{topic}-ours", f"{topic}-theirs"
    sandbox.create_topics([ours, theirs], assignments=ASSIGNED)
    sandbox.fill(ours, 30_000_000)
    sandbox.fill(theirs, 30_000_000)
    conn_id = connect(host=sandbox.bootstrap, extra={"bootstrap_timeout_ms": 10_000, "throttle": RATE})
    with StewardHook(conn_id).open() as opened, _throttled(opened.cluster, theirs):
        digest = "d" * 64
        record = PlanRecord(digest, opened.cluster.cluster_id, "apply", who=Actor(person="ada"))
        opened.journal.plans.publish(record, [move(f"{ours}-0", "123", "423", size=15_000_000)])
        runner = PlanRunner(
            ClusterContext(opened.cluster, opened.journal, opened.settings, Actor(person="ada")), digest
        )
        runner.step()
        assert [row.state for row in opened.journal.plans.rows(digest)] == [MoveState.SUBMITTED]
        # Not before: with ZooKeeper, a broker applies a throttle late, and copies all until then. A step waits for it.
        _begin_theirs(opened.cluster, theirs)
        listed = opened.cluster.snapshot([theirs]).partitions[TopicPartition(theirs, 1)]
        kept = [broker for broker in listed.replicas if broker not in listed.adding]
        done = call("cancel", "--all", "--reason", "fire", "--cluster", conn_id)
        assert done.returncode == 0, (done.stdout, done.stderr)
        assert done.stdout.splitlines() == [
            f"The external reassignment of {theirs}-1 to [4, 1, 3] is back at {kept}.",
            f"{ours}-0: [4, 2, 3] back to [1, 2, 3]",
            f"Plan {digest[:12]} was cancelled by {getuser()} (fire); its only move had not completed.",
        ]
        assert not opened.cluster.reassignments()
        # The command asks until Kafka shows the end of all cancels: that is one request.
        requests = opened.journal.audit.rows(plan=digest, action=Action.REQUEST)
        assert [(row.entry.reason, row.entry.who.person) for row in requests] == [("cancel: fire", getuser())]
    assert assignments(sandbox, topic) == {ours: ASSIGNED, theirs: {**ASSIGNED, 1: tuple(kept)}}


def _begin_theirs(cluster: KafkaCluster, topic: str) -> None:
    assert cluster.alter({TopicPartition(topic, 1): (4, 1, 3)}) == {TopicPartition(topic, 1): None}

    def in_flight() -> None:
        assert cluster.snapshot([topic]).partitions[TopicPartition(topic, 1)].reassigning

    eventually(in_flight, within=30)


@contextmanager
def _throttled(cluster: KafkaCluster, topic: str) -> Iterator[None]:
    """Slow down what arrives at broker 4, as somebody else would: the rate must not outlive a test that fails."""
    _throttle(cluster, topic, str(RATE))
    try:
        yield
    finally:
        _throttle(cluster, topic, None)


def _throttle(cluster: KafkaCluster, topic: str, rate: str | None) -> None:
    op = ConfigOp.SET if rate else ConfigOp.DELETE
    cluster.change_topic_configs(
        {topic: [ConfigChange(ThrottleSide.FOLLOWER.replicas_key, op, "1:4" if rate else None)]}
    )
    cluster.change_broker_configs({4: [ConfigChange(ThrottleSide.FOLLOWER.rate_key, op, rate)]})
