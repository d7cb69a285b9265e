"""KIP-236's cancel signal and its switch, and what others start while it is off, simulated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.state import Snapshot
from kafka_steward.document_api.controller import DocumentController
from kafka_steward.document_api.document_plans import PollResult
from kafka_steward.errors import ClusterUnreachable, PlanError, RequestError
from kafka_steward.execution.announcements import disable_reassignment, disabled_reason, enable_reassignment
from kafka_steward.execution.plans.cancel import consume_cancel_signal
from kafka_steward.execution.plans.lifecycle import abandon_plan
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.plans.resolution import resolve_plan
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Actor
from kafka_steward.journal.kip_documents import InFlight
from kafka_steward.journal.mailbox import read_one
from kafka_steward.journal.records import PlanStatus
from kafka_steward.settings import Settings
from tests.documents import create_document, delete_document
from tests.present import present
from tests.protocol.simulated_watch import WATCH, Yard, document, foreign
from tests.simulated_plan import WHO, World, memory_journal, move, plan_of
from tests.simulator import Simulator

T0 = TopicPartition("t", 0)


def test_an_empty_signal_cancels_all_that_is_pending_and_goes(yard: Yard) -> None:
    yard.ask("t-0 23")
    yard.look()
    yard.ask("t-1 234")
    yard.look()
    create_document(yard.journal.mailbox, paths.CANCEL_IN_PROGRESS, "")
    assert yard.look().events == {"cancel"}
    yard.run()
    assert (yard.replicas("t-0"), yard.replicas("t-1")) == ((1, 2), (2, 3, 1))
    assert {record.status for record in yard.journal.plans.latest(5)} == {PlanStatus.CANCELLED}
    assert read_one(yard.journal.mailbox, paths.CANCEL_IN_PROGRESS) is None
    assert yard.journal.mailbox.children(paths.REASSIGNMENTS) == []


def test_with_the_scope_of_a_plan_what_is_complete_goes_back_too() -> None:
    yard = Yard(max_in_flight=1)
    plan = yard.publish([move("t-0", "12", "23"), move("t-1", "231", "234", position=1)], operation="apply")
    runner = yard.runner(plan.digest)
    for _ in range(6):
        runner.step()
        yard.simulator.tick()
    assert yard.replicas("t-0") == (2, 3)
    create_document(yard.journal.mailbox, paths.CANCEL_IN_PROGRESS, f'{{"plan": "{plan.digest}", "scope": "plan"}}')
    yard.run()
    assert (yard.replicas("t-0"), yard.replicas("t-1")) == ((1, 2), (2, 3, 1))


def test_with_the_name_of_a_plan_it_means_that_plan_alone(yard: Yard) -> None:
    plan = yard.publish([move("t-1", "231", "234")], operation="apply")
    runner = yard.runner(plan.digest)
    runner.step()
    yard.ask("t-0 23")
    yard.look()
    yard.simulator.alter({TopicPartition("t", 2): (3, 1, 4)})
    create_document(yard.journal.mailbox, paths.CANCEL_IN_PROGRESS, f'{{"plan": "{plan.digest}"}}')
    yard.run()
    yard.simulator.run()
    statuses = {record.digest: record.status for record in yard.journal.plans.latest(5)}
    assert statuses.pop(plan.digest) is PlanStatus.CANCELLED
    assert list(statuses.values()) == [PlanStatus.COMPLETED]
    assert [yard.replicas(f"t-{number}") for number in range(3)] == [(2, 3), (2, 3, 1), (3, 1, 4)]


def test_a_signal_that_a_step_read_before_the_watch_did_rolls_back_what_is_complete_too(yard: Yard) -> None:
    yard.ask("t-0 23", "t-1 234")
    yard.look()
    (record,) = yard.journal.plans.unfinished()
    runner = yard.runner(record.digest)
    while yard.simulator.snapshot().partitions[T0].replicas != (2, 3):
        yard.simulator.tick()
    create_document(yard.journal.mailbox, paths.CANCEL_IN_PROGRESS, '{"scope": "plan"}')
    runner.step()
    assert read_one(yard.journal.mailbox, paths.CANCEL_IN_PROGRESS) is None
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
            create_document(yard.journal.mailbox, path, "")
        steps(watch, looked)

    monkeypatch.setattr(DocumentController, "_step_plans", signalled)
    yard.look()
    assert read_one(yard.journal.mailbox, paths.CANCEL_IN_PROGRESS) is not None
    said = [sentence for _ in range(3) for sentence in yard.look().sentences]
    assert [line for line in said if line.startswith("The external reassignment of t-1 to [2, 3, 4] is back")]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"scope": "all"}', '{"plan": "0000"}'])
def test_a_signal_with_nothing_to_cancel_is_deleted_and_reported(yard: Yard, text: str) -> None:
    create_document(yard.journal.mailbox, paths.CANCEL_IN_PROGRESS, text)
    (said,) = yard.run()
    assert "there was nothing to cancel" in said or "no plan begins with 0000" in said
    assert read_one(yard.journal.mailbox, paths.CANCEL_IN_PROGRESS) is None


@pytest.mark.parametrize("who", ["the watch", "a step"])
def test_one_that_cannot_be_read_cancels_and_is_kept(yard: Yard, who: str) -> None:
    plan = yard.publish([move("t-1", "231", "234")], operation="apply")
    runner = yard.runner(plan.digest)
    runner.step()
    create_document(yard.journal.mailbox, paths.CANCEL_IN_PROGRESS, '{"plan": ')
    _ = runner.step() if who == "a step" else yard.look()
    assert yard.quarantined() == [(paths.CANCEL_IN_PROGRESS, '{"plan": ')]
    assert read_one(yard.journal.mailbox, paths.CANCEL_IN_PROGRESS) is None
    yard.run()
    assert yard.replicas("t-1") == (2, 3, 1)


def test_without_original_replicas_the_cancel_is_skipped(yard: Yard) -> None:
    foreign(yard, (3, 2), None)
    create_document(yard.journal.mailbox, paths.CANCEL_IN_PROGRESS, "")
    assert "was not cancelled: KIP-236: no original replicas are recorded" in yard.look().sentences[0]
    assert yard.in_flight() == ["t-0"]


def test_when_all_are_offline_it_is_cancelled() -> None:
    yard = Yard("t: 1")
    foreign(yard, (3,), (1,))
    yard.simulator.kill(1)
    yard.simulator.kill(3)
    create_document(yard.journal.mailbox, paths.CANCEL_IN_PROGRESS, "")
    yard.look()
    assert yard.replicas("t-0") == (1,)


def off(yard: Yard) -> None:
    create_document(yard.journal.mailbox, paths.REASSIGN_CANCEL, '{"person": "ada", "reason": "maintenance"}')
    yard.look()


def test_what_others_start_while_it_is_off_is_reported_once(yard: Yard) -> None:
    off(yard)
    yard.simulator.alter({T0: (3, 2)})
    (said,) = yard.look().sentences
    assert said.startswith("Someone reassigns t-0 though reassignments are disabled by ada since ")
    assert said.endswith("(maintenance); it is left alone.")
    assert yard.look().sentences == []
    assert yard.new_watch().poll().sentences == []
    assert [row.entry.topic for row in yard.journal.audit.rows(action=Action.EXTERNAL)] == ["t"]
    assert yard.in_flight() == ["t-0"]


def test_by_parameter_it_is_cancelled_and_its_order_restored() -> None:
    yard = Yard(foreign_while_disabled="cancel")
    off(yard)
    yard.simulator.alter({T0: (3, 2)})
    (said,) = yard.look().sentences
    assert said.endswith("it is cancelled.")
    assert (yard.in_flight(), yard.replicas("t-0")) == ([], (1, 2))
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
    seen_at_once = snapshots < 9
    assert (yard.look().pause_s is None) is seen_at_once  # otherwise it looks again soon
    assert (yard.in_flight(), yard.replicas("t-0")) == ([], (1, 2) if seen_at_once else (2, 1))
    if enabled:
        delete_document(yard.journal.mailbox, paths.REASSIGN_CANCEL)
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
    delete_document(yard.journal.mailbox, paths.REASSIGN_CANCEL)
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
    assert yard.look().pause_s is None
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


def test_the_order_that_kafka_refuses_for_good_is_named_and_not_awaited() -> None:
    yard = Yard("t: 41", foreign_while_disabled="cancel")
    off(yard)
    yard.simulator.alter({T0: (2, 1)})
    yard.simulator.unregister(4)
    looked = yard.look()
    assert looked.sentences[-1].startswith(
        "The reassignment of t-0 is cancelled, and its replicas are [1, 4], and Kafka refuses its original ones, "
        "[4, 1], because broker 4 is not registered: "
    )
    assert (looked.pause_s, len(yard.journal.audit.rows(action=Action.REORDER))) == (None, 1)


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
    assert (yard.in_flight(), yard.replicas("t-0"), yard.replicas("t-1")) == (["t-0"], (3, 4, 1), (5,))
    assert [row.entry.partition for row in yard.journal.audit.rows(action=Action.CANCEL)] == [1]


@pytest.mark.parametrize("policy", ["report", "cancel"])
def test_what_was_in_flight_before_is_let_finish_ours_and_theirs(policy: str) -> None:
    yard = Yard(foreign_while_disabled=policy)
    yard.ask("t-1 234")
    yard.look()
    yard.simulator.alter({T0: (3, 2)})
    off(yard)
    for _ in range(12):
        assert yard.look().sentences == [] or not yard.in_flight()
        yard.simulator.tick()
    assert (yard.replicas("t-0"), yard.replicas("t-1")) == ((3, 2), (2, 3, 4))


def test_another_switch_is_another_beginning(yard: Yard) -> None:
    off(yard)
    yard.simulator.alter({T0: (3, 2)})
    node = present(read_one(yard.journal.mailbox, paths.REASSIGN_CANCEL))
    delete_document(yard.journal.mailbox, node.path)
    off(yard)
    assert yard.look().sentences == []


def test_a_run_that_the_signal_started_means_the_plan_that_was_cancelled_though_it_has_ended(yard: Yard) -> None:
    for wanted in ("t-0 23", "t-1 234"):
        yard.ask(wanted)
        yard.look()
        create_document(yard.journal.mailbox, paths.CANCEL_IN_PROGRESS, "")
        yard.run()
    last = yard.journal.plans.latest(1)[0]
    assert last.status is PlanStatus.CANCELLED
    assert resolve_plan(yard.journal, None, "cancel", after_signal=True).digest == last.digest
    with pytest.raises(PlanError, match="No plan is in progress"):
        resolve_plan(yard.journal, None, "cancel")
    create_document(yard.journal.mailbox, paths.CANCEL_IN_PROGRESS, "")
    yard.run()
    found = resolve_plan(yard.journal, None, "cancel", after_signal=True)
    assert found.digest == last.digest, "a signal that cancelled none has started no run"


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
        "(the racks are being moved); to enable them, run airflow kafka-steward enable, or "
        "delete /admin/reassign_cancel."
    )
    assert place.simulator.reassignments() == {}
    assert enable_reassignment(place.journal, who=WHO).startswith(
        "Reassignments are enabled again; they were disabled by ada"
    )
    assert place.run().status is PlanStatus.COMPLETED


@pytest.mark.parametrize("text", ["", "  ", "{", "[]", '{"version": 9}', "off!"])
def test_whatever_it_holds_its_presence_counts(text: str) -> None:
    place = world()
    create_document(place.journal.mailbox, paths.REASSIGN_CANCEL, text)
    assert disabled_reason(place.journal.mailbox) == "by an unnamed user since 1970-01-01 00:16:40 UTC"
    place.step()
    assert place.simulator.reassignments() == {}


def test_the_second_to_disable_reassignments_reads_of_the_first() -> None:
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


# The signal means the same whoever reads it first: everything that is pending, whoever began it

T1 = TopicPartition("t", 1)
SIGNAL = paths.CANCEL_IN_PROGRESS
Reader = Callable[[Any], None]


def publish(yard: Yard, *moves: Any, operation: str = "rebalance", **proof: Any) -> str:
    plan = plan_of(yard.simulator, list(moves), operation=operation, **proof)
    publish_plan(ClusterContext(yard.simulator, yard.journal, yard.settings, WHO), plan)
    return plan.digest


def runner(yard: Yard, digest: str, cluster: Any = None) -> PlanRunner:
    return PlanRunner(ClusterContext(cluster or yard.simulator, yard.journal, yard.settings, WHO), digest)


class Scene:
    """A paused plan, and a heal that took the cluster from it; the watch reads the signal, or a step of one of them."""

    def __init__(self, reader: str) -> None:
        self.yard = Yard("t: 12 231 314", "u: 12 13")
        self.first = publish(self.yard, move("t-1", "231", "235"))
        runner(self.yard, self.first).step()
        self.yard.simulator.kill(4)
        self.second = publish(self.yard, move("t-2", "314", "315"), operation="heal", failed=(4,))
        runner(self.yard, self.second).step()
        assert (self.yard.journal.slot.holders()[-1:], self.yard.in_flight()) == ((self.second,), ["t-1", "t-2"])
        self._reader = reader

    def read(self, cluster: Any = None) -> None:
        create_document(self.yard.journal.mailbox, SIGNAL, "")
        self.read_again(cluster)

    def read_again(self, cluster: Any = None) -> None:
        if self._reader == "the watch":
            self.yard.new_watch(cluster).poll()
        else:
            digest = {"the owner's step": self.second, "the other's step": self.first}[self._reader]
            runner(self.yard, digest, cluster).step()

    def cancelled(self) -> list[bool]:
        records = (self.yard.journal.plans.get(digest) for digest in (self.first, self.second))
        return [record is not None and record.cancel is not None for record in records]

    @property
    def signal(self) -> Any:
        return read_one(self.yard.journal.mailbox, SIGNAL)


@pytest.fixture(params=["the watch", "the owner's step", "the other's step"])
def scene(request: pytest.FixtureRequest) -> Scene:
    return Scene(request.param)


def test_an_empty_signal_means_every_plan(scene: Scene) -> None:
    scene.read()
    assert scene.cancelled() == [True, True]
    assert scene.signal is None
    scene.yard.run()
    assert scene.yard.replicas("t-1") == (2, 3, 1)
    assert scene.yard.replicas("t-2") == (3, 1, 4)
    assert {record.status for record in scene.yard.journal.plans.latest(5)} == {PlanStatus.CANCELLED}
    details = [row.detail for plan in (scene.first, scene.second) for row in scene.yard.journal.plans.rows(plan)]
    assert details == [f"cancelled: {SIGNAL} was created"] * 2


def test_what_others_began_through_the_admin_api_goes_back_to_its_replicas_less_the_adding_ones(scene: Scene) -> None:
    scene.yard.simulator.alter({T0: (3, 5)})
    listed = scene.yard.simulator.snapshot().partitions[T0]
    scene.read()
    assert scene.yard.replicas("t-0") == tuple(each for each in listed.replicas if each not in listed.adding)
    assert str(T0) not in scene.yard.in_flight()
    told = [row.entry for row in scene.yard.journal.audit.rows(action=Action.CANCEL) if row.entry.topic == "t"]
    (ours,) = [entry for entry in told if entry.partition == 0]
    assert ours.reason == f"external reassignment: {SIGNAL} was created"
    (executed,) = [row.entry for row in scene.yard.journal.audit.rows() if row.entry.after == "cancel signal"]
    assert "The external reassignment of t-0 to [3, 5] is back at [1, 2]." in executed.reason


def test_what_came_by_the_old_route_goes_back_to_what_it_names_and_is_skipped_without(scene: Scene) -> None:
    names = TopicPartition("u", 0), TopicPartition("u", 1)
    scene.yard.simulator.alter(dict.fromkeys(names, (3, 5)))
    asked = '{"version":1,"partitions":[{"topic":"u","partition":0,"replicas":[3,5],"original_replicas":[2,1]},'
    asked += '{"topic":"u","partition":1,"replicas":[3,5]}]}'
    create_document(scene.yard.journal.mailbox, paths.REASSIGN_PARTITIONS, asked)
    scene.read()
    assert scene.yard.replicas("u-0") == (2, 1)
    assert scene.yard.in_flight().count("u-1") == 1
    (skipped,) = [row.entry for row in scene.yard.journal.audit.rows(action=Action.SKIP)]
    assert (skipped.topic, skipped.partition) == ("u", 1)


def test_what_someone_took_over_in_flight_goes_back_too(scene: Scene) -> None:
    scene.yard.simulator.alter({T1: (5, 3, 1)})
    scene.read()
    scene.yard.run()
    assert set(scene.yard.replicas("t-1")) == {1, 2, 3}


def test_what_an_abandoned_plan_left_in_flight_goes_back_too(scene: Scene) -> None:
    abandon_plan(scene.yard.journal, scene.first, WHO, "enough")
    if scene._reader == "the other's step":
        scene._reader = "the watch"
    scene.read()
    scene.yard.run()
    assert scene.yard.replicas("t-1") == (2, 3, 1)


def test_an_abandoned_plan_that_has_nothing_in_flight_stays_as_it_is() -> None:
    yard = Yard()
    digest = publish(yard, move("t-1", "231", "234"))
    abandon_plan(yard.journal, digest, WHO, "enough")
    create_document(yard.journal.mailbox, SIGNAL, "")
    yard.look()
    record = present(yard.journal.plans.get(digest))
    assert (record.status, record.cancel) == (PlanStatus.ABANDONED, None)


class Broken:
    """A cluster that does not answer one kind of call, or refuses it."""

    def __init__(self, simulator: Simulator, call: str) -> None:
        self._simulator, self._call = simulator, call

    def __getattr__(self, name: str) -> Any:
        return self._fail if name == self._call else getattr(self._simulator, name)

    def _fail(self, *_: Any, **__: Any) -> Any:
        raise ClusterUnreachable("Kafka does not answer.")


@pytest.mark.parametrize("call", ["snapshot", "cancel"])
def test_while_kafka_does_not_answer_the_plans_are_asked_and_the_signal_stays(scene: Scene, call: str) -> None:
    scene.yard.simulator.alter({T0: (3, 5)})
    broken = Broken(scene.yard.simulator, call)
    if scene._reader == "the watch":
        with pytest.raises(ClusterUnreachable):
            scene.read(broken)
    else:
        scene.read(broken)
    assert scene.cancelled() == [True, True]
    assert scene.signal is not None
    scene.read_again()
    assert scene.signal is None
    assert str(T0) not in scene.yard.in_flight()


def test_one_who_dies_before_the_order_is_restored_leaves_that_to_the_next(scene: Scene) -> None:
    scene.yard.simulator.alter({T0: (3, 5)})
    note = InFlight((2, 1), (3, 5), legacy=True, top=2)
    create_document(scene.yard.journal.mailbox, paths.reassignment(T0), note.to_json())
    broken = Broken(scene.yard.simulator, "alter")
    if scene._reader == "the watch":
        with pytest.raises(ClusterUnreachable):
            scene.read(broken)
    else:
        scene.read(broken)
    assert (scene.yard.replicas("t-0"), scene.signal is None) == ((1, 2), False)
    scene.read_again()
    assert scene.yard.replicas("t-0") == (2, 1)
    assert (scene.signal, scene.yard.record("t-0")) == (None, None)


def test_a_cancel_whose_end_is_not_seen_is_looked_after_for_half_a_minute() -> None:
    yard = Yard()
    yard.simulator.alter({T0: (3, 5)})
    slow = Late(yard.simulator, 10**6)
    create_document(yard.journal.mailbox, SIGNAL, "")
    watch = yard.new_watch(slow)
    assert watch.poll().pause_s == 0.5
    yard.simulator.now_ms += 29_000
    assert consume_cancel_signal(slow, yard.journal, WATCH) is None
    assert read_one(yard.journal.mailbox, SIGNAL) is not None
    yard.simulator.now_ms += 2_000
    outcome = present(consume_cancel_signal(slow, yard.journal, WATCH))
    (said,) = outcome.sentences
    assert said.endswith(" is being cancelled, and Kafka still lists it.")
    assert read_one(yard.journal.mailbox, SIGNAL) is None


def test_a_reassignment_that_a_request_is_to_change_is_ours(scene: Scene) -> None:
    wanted: Assignment = (5, 3, 2)
    scene.yard.journal.mailbox.append(paths.REQUEST_PREFIX, document([f"t-1 {''.join(map(str, wanted))}"]))
    scene.read()
    scene.yard.run()
    told = [row.entry for row in scene.yard.journal.audit.rows(action=Action.CANCEL) if row.entry.partition == 1]
    assert not [entry for entry in told if entry.reason.startswith("external reassignment")]
