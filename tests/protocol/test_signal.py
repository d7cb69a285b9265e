"""KIP-236's cancel signal, and what others start while reassignments are switched off, simulated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import Snapshot
from kafka_steward.document_api.controller import DocumentController
from kafka_steward.document_api.document_plans import PollResult
from kafka_steward.errors import PlanError
from kafka_steward.execution.in_flight_records import record_external_in_flight
from kafka_steward.execution.plan_resolution import resolve_plan
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.publishing import publish_plan
from kafka_steward.execution.runner import PlanRunner
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action
from kafka_steward.journal.kip_documents import InFlight
from kafka_steward.journal.records import PlanStatus
from tests.protocol.simulated_watch import WATCH, Yard, partition
from tests.simulated_plan import WHO, move, plan_of
from tests.simulator import Simulator

T0 = TopicPartition("t", 0)


def test_an_empty_signal_cancels_all_that_is_pending_and_goes() -> None:
    yard = Yard()
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


def test_it_cancels_a_dags_plan_that_nobody_steps() -> None:
    yard = Yard()
    plan = plan_of(yard.simulator, [move("t-1", "231", "234")], operation="rebalance")
    publish_plan(ClusterContext(yard.simulator, yard.journal, yard.settings, WHO), plan)
    PlanRunner(ClusterContext(yard.simulator, yard.journal, yard.settings, WHO), plan.digest).step()
    yard.journal.tree.create(paths.CANCEL_IN_PROGRESS, f'{{"plan": "{plan.digest}", "person": "ada"}}')
    yard.run()
    assert yard.replicas("t-1") == (2, 3, 1)
    record = yard.journal.plans.get(plan.digest)
    assert record is not None
    assert record.status is PlanStatus.CANCELLED


def test_with_the_scope_of_a_plan_what_is_complete_goes_back_too() -> None:
    yard = Yard(max_in_flight=1)
    plan = plan_of(yard.simulator, [move("t-0", "12", "23"), move("t-1", "231", "234", position=1)], operation="apply")
    publish_plan(ClusterContext(yard.simulator, yard.journal, yard.settings, WHO), plan)
    runner = PlanRunner(ClusterContext(yard.simulator, yard.journal, yard.settings, WHO), plan.digest)
    for _ in range(6):
        runner.step()
        yard.simulator.tick()
    assert yard.replicas("t-0") == (2, 3)
    yard.journal.tree.create(paths.CANCEL_IN_PROGRESS, f'{{"plan": "{plan.digest}", "scope": "plan"}}')
    yard.run()
    assert (yard.replicas("t-0"), yard.replicas("t-1")) == ((1, 2), (2, 3, 1))


def test_a_signal_that_a_step_heard_before_the_watch_did_takes_back_what_is_complete_too() -> None:
    yard = Yard()
    yard.ask("t-0 23", "t-1 234")
    yard.look()
    (record,) = yard.journal.plans.unfinished()
    runner = PlanRunner(ClusterContext(yard.simulator, yard.journal, yard.settings, WHO), record.digest)
    while yard.simulator.snapshot().partitions[T0].replicas != (2, 3):
        yard.simulator.tick()
    yard.journal.tree.create(paths.CANCEL_IN_PROGRESS, '{"scope": "plan"}')
    runner.step()
    assert yard.journal.tree.get(paths.CANCEL_IN_PROGRESS) is None
    yard.run()
    assert (yard.replicas("t-0"), yard.replicas("t-1")) == ((1, 2), (2, 3, 1))


def test_a_signal_that_comes_while_the_watch_steps_a_plan_is_left_to_its_next_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    yard = Yard()
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
def test_a_signal_with_nothing_to_cancel_goes_and_is_told(text: str) -> None:
    yard = Yard()
    yard.journal.tree.create(paths.CANCEL_IN_PROGRESS, text)
    (said,) = yard.run()
    assert "there was nothing to cancel" in said or "there is no such plan" in said
    assert yard.journal.tree.get(paths.CANCEL_IN_PROGRESS) is None


@pytest.mark.parametrize("who", ["the watch", "a step"])
def test_one_that_cannot_be_read_cancels_and_is_kept(who: str) -> None:
    yard = Yard()
    plan = plan_of(yard.simulator, [move("t-1", "231", "234")], operation="apply")
    publish_plan(ClusterContext(yard.simulator, yard.journal, yard.settings, WHO), plan)
    runner = PlanRunner(ClusterContext(yard.simulator, yard.journal, yard.settings, WHO), plan.digest)
    runner.step()
    yard.journal.tree.create(paths.CANCEL_IN_PROGRESS, '{"plan": ')
    _ = runner.step() if who == "a step" else yard.look()
    assert yard.quarantined() == [(paths.CANCEL_IN_PROGRESS, '{"plan": ')]
    assert yard.journal.tree.get(paths.CANCEL_IN_PROGRESS) is None
    yard.run()
    assert yard.replicas("t-1") == (2, 3, 1)


def foreign(yard: Yard, target: tuple[int, ...], originals: tuple[int, ...] | None) -> None:
    yard.simulator.alter({T0: target})
    record_external_in_flight(yard.journal.tree, T0, InFlight(originals, target, legacy=True, top=2))


def test_what_came_by_the_old_route_goes_back_to_its_originals_in_order() -> None:
    yard = Yard()
    foreign(yard, (3, 2), (1, 2))
    yard.journal.tree.create(paths.CANCEL_IN_PROGRESS, "")
    yard.look()
    assert yard.replicas("t-0") == (1, 2)
    assert yard.record("t-0") is None


def test_without_original_replicas_the_cancel_is_skipped() -> None:
    yard = Yard()
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


def test_what_others_start_while_it_is_off_is_told_once() -> None:
    yard = Yard()
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


def test_another_switch_is_another_beginning() -> None:
    yard = Yard()
    off(yard)
    yard.simulator.alter({T0: (3, 2)})
    node = yard.journal.tree.get(paths.REASSIGN_CANCEL)
    assert node is not None
    yard.journal.tree.delete(node.path, version=node.version)
    off(yard)
    assert yard.look().sentences == []


def test_the_watch_names_itself_in_the_trail() -> None:
    yard = Yard()
    yard.ask("t-0 23")
    yard.run()
    assert {row.entry.who for row in yard.journal.audit.rows(action=Action.SUBMIT)} == {WATCH}
    assert partition("t-0") == T0


def test_a_run_that_the_signal_started_means_the_plan_that_was_cancelled_though_it_has_ended() -> None:
    yard = Yard()
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
