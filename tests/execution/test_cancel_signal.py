"""KIP-236's cancel signal means the same whoever reads it first: everything that is pending, whoever began it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.state import Snapshot
from kafka_steward.errors import ClusterUnreachable, KafkaRefused
from kafka_steward.execution.cancel_signal import consume_cancel_signal
from kafka_steward.execution.lifecycle import abandon_plan
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.publishing import publish_plan
from kafka_steward.execution.runner import PlanRunner
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action
from kafka_steward.journal.kip_documents import InFlight
from kafka_steward.journal.records import PlanStatus
from tests.protocol.simulated_watch import WATCH, Yard, document
from tests.simulated_plan import WHO, move, plan_of
from tests.simulator import Simulator

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
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
        assert (self.yard.journal.slot.holders()[-1:], self.yard.flying()) == ((self.second,), ["t-1", "t-2"])
        self._reader = reader

    def read(self, cluster: Any = None) -> None:
        self.yard.journal.tree.create(SIGNAL, "")
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
        return self.yard.journal.tree.get(SIGNAL)


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
    assert str(T0) not in scene.yard.flying()
    told = [row.entry for row in scene.yard.journal.audit.rows(action=Action.CANCEL) if row.entry.topic == "t"]
    (ours,) = [entry for entry in told if entry.partition == 0]
    assert ours.reason == f"external reassignment: {SIGNAL} was created"
    (heard,) = [row.entry for row in scene.yard.journal.audit.rows() if row.entry.after == "cancel signal"]
    assert "The external reassignment of t-0 to [3, 5] is back at [1, 2]." in heard.reason


def test_what_came_by_the_old_route_goes_back_to_what_it_names_and_is_skipped_without(scene: Scene) -> None:
    names = TopicPartition("u", 0), TopicPartition("u", 1)
    scene.yard.simulator.alter(dict.fromkeys(names, (3, 5)))
    asked = '{"version":1,"partitions":[{"topic":"u","partition":0,"replicas":[3,5],"original_replicas":[2,1]},'
    asked += '{"topic":"u","partition":1,"replicas":[3,5]}]}'
    scene.yard.journal.tree.create(paths.REASSIGN_PARTITIONS, asked)
    scene.read()
    assert scene.yard.replicas("u-0") == (2, 1)
    assert scene.yard.flying().count("u-1") == 1
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


def test_an_abandoned_plan_of_which_nothing_flies_stays_as_it_is() -> None:
    yard = Yard()
    digest = publish(yard, move("t-1", "231", "234"))
    abandon_plan(yard.journal, digest, WHO, "enough")
    yard.journal.tree.create(SIGNAL, "")
    yard.look()
    record = yard.journal.plans.get(digest)
    assert record is not None
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
    assert str(T0) not in scene.yard.flying()


def test_one_who_dies_before_the_order_is_restored_leaves_that_to_the_next(scene: Scene) -> None:
    scene.yard.simulator.alter({T0: (3, 5)})
    note = InFlight((2, 1), (3, 5), legacy=True, top=2)
    scene.yard.journal.tree.create(paths.reassignment(T0), note.to_json())
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


class Slow:
    """A cluster that goes on showing what it showed at first."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator, self._shown = simulator, simulator.snapshot()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._simulator, name)

    def snapshot(self, _: Collection[str] | None = None) -> Snapshot:
        return self._shown

    def cancel(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, KafkaRefused | None]:
        return dict.fromkeys(partitions)


def test_a_cancel_whose_end_is_not_seen_is_looked_after_for_half_a_minute() -> None:
    yard = Yard()
    yard.simulator.alter({T0: (3, 5)})
    slow = Slow(yard.simulator)
    yard.journal.tree.create(SIGNAL, "")
    watch = yard.new_watch(slow)
    assert watch.poll().pause_s == 0.5
    yard.simulator.now_ms += 29_000
    assert consume_cancel_signal(slow, yard.journal, WATCH) is None
    assert yard.journal.tree.get(SIGNAL) is not None
    yard.simulator.now_ms += 2_000
    outcome = consume_cancel_signal(slow, yard.journal, WATCH)
    assert outcome is not None
    (said,) = outcome.sentences
    assert said.endswith(" is being cancelled, and Kafka still lists it.")
    assert yard.journal.tree.get(SIGNAL) is None


def test_a_reassignment_that_a_request_is_to_change_is_ours(scene: Scene) -> None:
    wanted: Assignment = (5, 3, 2)
    scene.yard.journal.tree.create_sequential(paths.REQUEST_PREFIX, document([f"t-1 {''.join(map(str, wanted))}"]))
    scene.read()
    scene.yard.run()
    told = [row.entry for row in scene.yard.journal.audit.rows(action=Action.CANCEL) if row.entry.partition == 1]
    assert not [entry for entry in told if entry.reason.startswith("someone else's")]
