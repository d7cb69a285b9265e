"""KIP-236's cancel signal and its switch, and what others start while it is off, simulated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import Snapshot
from kafka_steward.document_api.controller import DocumentController
from kafka_steward.document_api.document_plans import PollResult
from kafka_steward.errors import PlanError, RequestError
from kafka_steward.execution.lifecycle import request_cancel
from kafka_steward.execution.plan_resolution import resolve_plan
from kafka_steward.execution.readiness import disable_reassignment, disabled_reason, enable_reassignment
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Actor
from kafka_steward.journal.records import PlanStatus
from kafka_steward.settings import Settings
from tests.present import present
from tests.protocol.simulated_watch import Yard, foreign
from tests.simulated_plan import WHO, World, memory_journal, move
from tests.simulator import Simulator

T0 = TopicPartition("t", 0)


def test_an_empty_signal_cancels_all_that_is_pending_and_goes(yard: Yard) -> None:
    yard.ask("t-0 23")
    yard.look()
    yard.ask("t-1 234")
    yard.look()
    yard.journal.tree.create(paths.CANCEL_IN_PROGRESS, "")
    assert yard.look().events == {"cancel"}
    yard.run()
    assert (yard.replicas("t-0"), yard.replicas("t-1")) == ((1, 2), (2, 3, 1))
    assert {record.status for record in yard.journal.plans.latest(5)} == {PlanStatus.CANCELLED}
    assert yard.journal.tree.get(paths.CANCEL_IN_PROGRESS) is None
    assert yard.journal.tree.children(paths.REASSIGNMENTS) == []


def test_it_cancels_a_dags_plan_that_nobody_steps(yard: Yard) -> None:
    plan = yard.publish([move("t-1", "231", "234")], operation="rebalance")
    yard.runner(plan.digest).step()
    yard.journal.tree.create(paths.CANCEL_IN_PROGRESS, f'{{"plan": "{plan.digest}", "person": "ada"}}')
    yard.run()
    assert yard.replicas("t-1") == (2, 3, 1)
    assert present(yard.journal.plans.get(plan.digest)).status is PlanStatus.CANCELLED


def test_with_the_scope_of_a_plan_what_is_complete_goes_back_too() -> None:
    yard = Yard(max_in_flight=1)
    plan = yard.publish([move("t-0", "12", "23"), move("t-1", "231", "234", position=1)], operation="apply")
    runner = yard.runner(plan.digest)
    for _ in range(6):
        runner.step()
        yard.simulator.tick()
    assert yard.replicas("t-0") == (2, 3)
    yard.journal.tree.create(paths.CANCEL_IN_PROGRESS, f'{{"plan": "{plan.digest}", "scope": "plan"}}')
    yard.run()
    assert (yard.replicas("t-0"), yard.replicas("t-1")) == ((1, 2), (2, 3, 1))


def test_a_signal_that_a_step_heard_before_the_watch_did_takes_back_what_is_complete_too(yard: Yard) -> None:
    yard.ask("t-0 23", "t-1 234")
    yard.look()
    (record,) = yard.journal.plans.unfinished()
    runner = yard.runner(record.digest)
    while yard.simulator.snapshot().partitions[T0].replicas != (2, 3):
        yard.simulator.tick()
    yard.journal.tree.create(paths.CANCEL_IN_PROGRESS, '{"scope": "plan"}')
    runner.step()
    assert yard.journal.tree.get(paths.CANCEL_IN_PROGRESS) is None
    yard.run()
    assert (yard.replicas("t-0"), yard.replicas("t-1")) == ((1, 2), (2, 3, 1))


def test_a_signal_that_comes_while_the_watch_steps_a_plan_is_left_to_its_next_look(
    yard: Yard,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    yard.ask("t-0 23")
    yard.look()
    yard.simulator.alter({TopicPartition("t", 1): (2, 3, 4)})
    steps = DocumentController._step_plans
    signals = iter([paths.CANCEL_IN_PROGRESS])

    def signalled(watch: DocumentController, looked: PollResult) -> None:
        for path in signals:
            yard.journal.tree.create(path, "")
        steps(watch, looked)

    monkeypatch.setattr(DocumentController, "_step_plans", signalled)
    yard.look()
    assert yard.journal.tree.get(paths.CANCEL_IN_PROGRESS) is not None
    said = [sentence for _ in range(3) for sentence in yard.look().sentences]
    assert [line for line in said if line.startswith("The external reassignment of t-1 to [2, 3, 4] is back")]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"scope": "all"}', '{"plan": "0000"}'])
def test_a_signal_with_nothing_to_cancel_goes_and_is_told(yard: Yard, text: str) -> None:
    yard.journal.tree.create(paths.CANCEL_IN_PROGRESS, text)
    (said,) = yard.run()
    assert "there was nothing to cancel" in said or "there is no such plan" in said
    assert yard.journal.tree.get(paths.CANCEL_IN_PROGRESS) is None


@pytest.mark.parametrize("who", ["the watch", "a step"])
def test_one_that_cannot_be_read_cancels_and_is_kept(yard: Yard, who: str) -> None:
    plan = yard.publish([move("t-1", "231", "234")], operation="apply")
    runner = yard.runner(plan.digest)
    runner.step()
    yard.journal.tree.create(paths.CANCEL_IN_PROGRESS, '{"plan": ')
    _ = runner.step() if who == "a step" else yard.look()
    assert yard.quarantined() == [(paths.CANCEL_IN_PROGRESS, '{"plan": ')]
    assert yard.journal.tree.get(paths.CANCEL_IN_PROGRESS) is None
    yard.run()
    assert yard.replicas("t-1") == (2, 3, 1)


def test_without_original_replicas_the_cancel_is_skipped(yard: Yard) -> None:
    foreign(yard, (3, 2), None)
    yard.journal.tree.create(paths.CANCEL_IN_PROGRESS, "")
    assert "was not cancelled: KIP-236: no original replicas are recorded" in yard.look().sentences[0]
    assert yard.flying() == ["t-0"]


def test_when_no_original_is_in_sync_and_a_new_replica_is_online_the_cancel_is_skipped() -> None:
    yard = Yard("t: 1")
    foreign(yard, (3,), (1,))
    yard.simulator.topics[T0].isr = {3}
    yard.simulator.kill(1)
    yard.journal.tree.create(paths.CANCEL_IN_PROGRESS, "")
    assert "none of the original replicas is in sync" in yard.look().sentences[0]


def test_when_all_are_offline_it_is_cancelled() -> None:
    yard = Yard("t: 1")
    foreign(yard, (3,), (1,))
    yard.simulator.kill(1)
    yard.simulator.kill(3)
    yard.journal.tree.create(paths.CANCEL_IN_PROGRESS, "")
    yard.look()
    assert yard.replicas("t-0") == (1,)


def off(yard: Yard) -> None:
    yard.journal.tree.create(paths.REASSIGN_CANCEL, '{"person": "ada", "reason": "maintenance"}')
    yard.look()


def test_what_others_start_while_it_is_off_is_told_once(yard: Yard) -> None:
    off(yard)
    yard.simulator.alter({T0: (3, 2)})
    (said,) = yard.look().sentences
    assert said.startswith("Someone reassigns t-0 though reassignments are disabled by ada since ")
    assert said.endswith("(maintenance); it is left alone.")
    assert yard.look().sentences == []
    assert yard.new_watch().poll().sentences == []
    assert [row.entry.topic for row in yard.journal.audit.rows(action=Action.EXTERNAL)] == ["t"]
    assert yard.flying() == ["t-0"]


def test_by_parameter_it_is_cancelled_and_its_order_restored() -> None:
    yard = Yard(foreign_while_disabled="cancel")
    off(yard)
    yard.simulator.alter({T0: (3, 2)})
    (said,) = yard.look().sentences
    assert said.endswith("it is cancelled.")
    assert (yard.flying(), yard.replicas("t-0")) == ([], (1, 2))
    yard.simulator.alter({T0: (3, 2)})
    assert len(yard.look().sentences) == 1


class Late:
    """A cluster whose brokers go on showing what was cancelled, for so many snapshots."""

    def __init__(self, simulator: Simulator, snapshots: int) -> None:
        self._simulator, self._left = simulator, snapshots
        self._shown: Snapshot | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._simulator, name)

    def cancel(self, partitions: Any) -> Any:
        self._shown = self._shown or self._simulator.snapshot()
        return self._simulator.cancel(partitions)

    def snapshot(self, topics: Any = None) -> Snapshot:
        if self._shown is None or not self._left:
            return self._simulator.snapshot(topics)
        self._left -= 1
        return self._shown


@pytest.mark.parametrize("snapshots", [1, 2, 9])
@pytest.mark.parametrize("enabled", [False, True])
def test_its_order_is_restored_however_late_brokers_show_the_cancel(snapshots: int, enabled: bool) -> None:
    yard = Yard(foreign_while_disabled="cancel")
    yard.protocol = yard.new_watch(Late(yard.simulator, snapshots))
    off(yard)
    yard.simulator.alter({T0: (3, 2)})
    assert yard.look().pause_s is not None  # it looks again soon
    assert (yard.flying(), yard.replicas("t-0")) == ([], (2, 1))
    if enabled:
        yard.journal.tree.delete(paths.REASSIGN_CANCEL, version=0)
    yard.run()
    assert yard.replicas("t-0") == (1, 2)
    yard.simulator.alter({T0: (2, 1)})  # what someone wants later stays
    yard.run()
    assert yard.replicas("t-0") == (2, 1)


def test_a_cancel_that_is_shown_for_more_than_a_minute_is_not_waited_for_any_more() -> None:
    yard = Yard(foreign_while_disabled="cancel")
    yard.protocol = yard.new_watch(Late(yard.simulator, 10**6))
    off(yard)
    yard.simulator.alter({T0: (3, 2)})
    assert yard.look().pause_s == 0.5
    yard.journal.tree.delete(paths.REASSIGN_CANCEL, version=0)
    yard.simulator.tick(60)
    assert yard.look().pause_s == 0.5
    yard.simulator.tick()
    assert yard.look().pause_s is None


class TooLate:
    """A cluster in which something happens just before a cancel: by default, all that is in flight arrives."""

    def __init__(self, simulator: Simulator, happen: Callable[[Simulator], None] = Simulator.run) -> None:
        self._simulator, self._happen = simulator, happen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._simulator, name)

    def cancel(self, partitions: Any) -> Any:
        self._happen(self._simulator)
        return self._simulator.cancel(partitions)


@pytest.mark.parametrize("mode", ["kraft", "zookeeper"])
def test_one_that_arrives_before_its_cancel_stays_and_its_order_is_not_awaited_for_ever(mode: str) -> None:
    yard = Yard(mode=mode, foreign_while_disabled="cancel")
    yard.protocol = yard.new_watch(TooLate(yard.simulator))
    off(yard)
    yard.simulator.alter({T0: (1, 2, 3)})
    assert yard.look().pause_s is not None
    yard.run(100)
    assert yard.replicas("t-0") == (1, 2, 3)
    assert yard.journal.audit.rows(action=Action.REORDER) == []


@pytest.mark.parametrize("happen", [Simulator.run, lambda simulator: simulator.delete("t")], ids=["moved", "deleted"])
def test_the_order_of_a_partition_that_lost_its_replicas_before_the_cancel_is_not_awaited(
    happen: Callable[[Simulator], None],
) -> None:
    yard = Yard(foreign_while_disabled="cancel")
    yard.protocol = yard.new_watch(TooLate(yard.simulator, happen))
    off(yard)
    yard.simulator.alter({T0: (3, 2)})
    looked = yard.look()
    assert [line.rpartition("; ")[2] for line in looked.sentences] == ["it is cancelled."]
    assert looked.pause_s is None


def test_one_that_would_go_offline_without_its_new_replica_is_not_cancelled() -> None:
    yard = Yard("t: 1 5", mode="zookeeper", foreign_while_disabled="cancel")
    off(yard)
    yard.simulator.alter({T0: (3, 4), TopicPartition("t", 1): (2, 4)})
    yard.simulator.topics[T0].isr = {3}
    yard.simulator.kill(1)
    said = yard.look().sentences
    assert [line.rpartition("; ")[2] for line in said] == [
        "not cancelled: KIP-236: none of the original replicas is in sync, so a cancel would take it offline.",
        "it is cancelled.",
    ]
    assert (yard.flying(), yard.replicas("t-0"), yard.replicas("t-1")) == (["t-0"], (3, 4, 1), (5,))
    assert [row.entry.partition for row in yard.journal.audit.rows(action=Action.CANCEL)] == [1]


@pytest.mark.parametrize("policy", ["report", "cancel"])
def test_what_flew_before_is_let_finish_ours_and_theirs(policy: str) -> None:
    yard = Yard(foreign_while_disabled=policy)
    yard.ask("t-1 234")
    yard.look()
    yard.simulator.alter({T0: (3, 2)})
    off(yard)
    for _ in range(12):
        assert yard.look().sentences == [] or not yard.flying()
        yard.simulator.tick()
    assert (yard.replicas("t-0"), yard.replicas("t-1")) == ((3, 2), (2, 3, 4))


def test_another_switch_is_another_beginning(yard: Yard) -> None:
    off(yard)
    yard.simulator.alter({T0: (3, 2)})
    node = present(yard.journal.tree.get(paths.REASSIGN_CANCEL))
    yard.journal.tree.delete(node.path, version=node.version)
    off(yard)
    assert yard.look().sentences == []


def test_a_run_that_the_signal_started_means_the_plan_that_was_cancelled_though_it_has_ended(yard: Yard) -> None:
    for wanted in ("t-0 23", "t-1 234"):
        yard.ask(wanted)
        yard.look()
        yard.journal.tree.create(paths.CANCEL_IN_PROGRESS, "")
        yard.run()
    last = yard.journal.plans.latest(1)[0]
    assert last.status is PlanStatus.CANCELLED
    assert resolve_plan(yard.journal, None, "cancel", after_signal=True).digest == last.digest
    with pytest.raises(PlanError, match="No plan is in progress"):
        resolve_plan(yard.journal, None, "cancel")
    yard.journal.tree.create(paths.CANCEL_IN_PROGRESS, "")
    yard.run()
    with pytest.raises(PlanError, match="No plan is in progress"):
        resolve_plan(yard.journal, None, "cancel", after_signal=True)


# The switch: nothing starts while it is there, whoever asks, and what runs is let finish

MOVES = [move("t-0", "123", "423"), move("t-1", "123", "143", position=1)]
UNTHROTTLED = Settings(throttle=0)


def world(settings: Settings = UNTHROTTLED) -> World:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 123", bandwidth=30)
    return World(simulator, memory_journal(simulator), MOVES, settings, auto_generated=False)


def test_nothing_starts_while_it_is_off_and_everything_once_it_is_on() -> None:
    place = world()
    told = disable_reassignment(place.journal, who=WHO, reason="the racks are being moved")
    assert told.startswith("Reassignments are disabled by ada since 1970-01-01 00:16:40 UTC (the racks are being")
    for _ in range(150):
        progress = place.step()
    assert progress.status is PlanStatus.RUNNING  # people's choice is no failed attempt
    assert progress.held[0].sentence == (
        "t-0 was not moved: reassignments are disabled for this cluster by ada since 1970-01-01 00:16:40 UTC "
        "(the racks are being moved); to enable them, delete /admin/reassign_cancel."
    )
    assert place.simulator.reassignments() == {}
    assert enable_reassignment(place.journal, who=WHO).startswith(
        "Reassignments are enabled again; they were disabled by ada"
    )
    assert place.run().status is PlanStatus.COMPLETED


def test_what_runs_is_let_finish_and_nothing_more_begins() -> None:
    place = world(replace(UNTHROTTLED, max_in_flight=1))
    place.step()
    assert list(place.simulator.reassignments()) == [TopicPartition("t", 0)]
    place.journal.tree.create(paths.REASSIGN_CANCEL, "")
    for _ in range(10):
        place.simulator.tick()
        place.step()
    assert place.states() == {"t-0": "completed", "t-1": "held"}
    assert "disabled for this cluster by an unnamed user since" in place.row("t-1").detail


def test_a_cancel_works_while_it_is_off() -> None:
    place = world()
    place.step()
    disable_reassignment(place.journal, who=WHO, reason="stop")
    request_cancel(place.journal, place.digest, who=WHO, reason="back")
    assert place.run().status is PlanStatus.CANCELLED
    assert [place.replicas(name) for name in ("t-0", "t-1")] == [(1, 2, 3), (1, 2, 3)]


@pytest.mark.parametrize("garbage", ["", "  ", "{", "[]", '{"version": 9}', "off!"])
def test_whatever_it_holds_its_presence_counts(garbage: str) -> None:
    place = world()
    place.journal.tree.create(paths.REASSIGN_CANCEL, garbage)
    assert disabled_reason(place.journal.tree) == "by an unnamed user since 1970-01-01 00:16:40 UTC"
    place.step()
    assert place.simulator.reassignments() == {}


def test_the_second_to_switch_off_is_told_of_the_first() -> None:
    place = world()
    disable_reassignment(place.journal, who=WHO, reason="first")
    told = disable_reassignment(place.journal, who=Actor(person="bob"), reason="second")
    assert told == "Reassignments are already disabled, by ada since 1970-01-01 00:16:40 UTC (first)."
    enable_reassignment(place.journal, who=WHO)
    assert enable_reassignment(place.journal, who=WHO) == "Reassignments are already enabled."
    assert [row.entry.after for row in place.journal.audit.rows()] == ["disabled", "enabled"]


def test_nobody_switches_off_without_a_reason() -> None:
    with pytest.raises(RequestError, match="Give a reason why reassignments are disabled"):
        disable_reassignment(world().journal, who=WHO, reason=" ")
