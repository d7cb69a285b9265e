"""The executor of reversals: on a simulated cluster, what it calls, records, and leaves to the next call."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.state import Snapshot
from kafka_steward.errors import ClusterError, KafkaTimeout, LockLost
from kafka_steward.execution.effects import AuditedCalls
from kafka_steward.execution.moves.reversal import Reversal, Verdict
from kafka_steward.execution.moves.reversal import ReversalState as State
from kafka_steward.execution.moves.reversal_execution import ReversalExecutor
from kafka_steward.journal.audit import Action, Outcome
from kafka_steward.journal.locks import Fence
from kafka_steward.journal.store import Journal
from tests.simulated_plan import WHO, memory_journal, move
from tests.simulator import Simulator

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
MOVES = [move("t-0", "123", "423"), move("t-1", "231", "431", position=1)]
REVERSALS = [Reversal(each, "enough", plan="p", attempt=3) for each in MOVES]


@dataclass
class Scene:
    """Two moves in flight, and what takes them back."""

    simulator: Simulator
    journal: Journal

    def run(self, reversals: Iterable[Reversal] = REVERSALS, cluster: Any = None) -> dict[TopicPartition, Verdict]:
        with self.journal.step_lock() as fence:
            return self.executor(fence, cluster).run(reversals)

    def executor(self, fence: Fence | None, cluster: Any = None) -> ReversalExecutor:
        return ReversalExecutor(cluster or self.simulator, AuditedCalls(self.journal.audit, fence), WHO)

    def replicas(self) -> list[Assignment]:
        return [self.simulator.topics[name].replicas for name in (T0, T1)]

    def calls(self) -> list[tuple[str, int | None, Outcome]]:
        rows = self.journal.audit.rows()
        return [(row.entry.action.value, row.entry.partition, row.outcome) for row in rows]


def in_flight(brokers: str = "1a 2b 3c 4a", mode: str = "kraft") -> Scene:
    simulator = Simulator.of(brokers, "t: 123 231", size=1000, mode=mode)
    simulator.alter({each.topic_partition: each.after for each in MOVES})
    return Scene(simulator, memory_journal(simulator))


@pytest.mark.parametrize("mode", ["kraft", "zookeeper"])
def test_what_is_in_flight_is_cancelled_and_its_order_restored(mode: str) -> None:
    scene = in_flight(mode=mode)
    assert {verdict.state for verdict in scene.run().values()} == {State.RESTORED}
    assert (scene.replicas(), scene.simulator.reassignments()) == ([(1, 2, 3), (2, 3, 1)], {})
    assert sorted(scene.calls()) == [
        ("cancel", 0, Outcome.DONE),
        ("cancel", 1, Outcome.DONE),
        ("reorder", 0, Outcome.DONE),
        ("reorder", 1, Outcome.DONE),
    ]
    (cancel,) = [row.entry for row in scene.journal.audit.rows(action=Action.CANCEL) if row.entry.partition == 0]
    assert (cancel.reason, cancel.plan, cancel.attempt, cancel.chunk) == ("enough", "p", 3, 0)
    assert (cancel.before, cancel.after) == ([4, 2, 3], [1, 2, 3])
    (reorder,) = [row.entry for row in scene.journal.audit.rows(action=Action.REORDER) if row.entry.partition == 0]
    assert (reorder.before, reorder.after) == ([2, 3, 1], [1, 2, 3])


def test_one_that_is_not_to_be_cancelled_keeps_no_other_waiting() -> None:
    scene = in_flight()
    scene.simulator.topics[T0].isr = {4}
    verdicts = scene.run()
    assert (verdicts[T0].state, verdicts[T1].state) == (State.CANNOT_CANCEL, State.RESTORED)
    assert list(scene.simulator.reassignments()) == [T0]


def test_one_of_no_plan_has_the_rows_of_no_plan() -> None:
    scene = in_flight()
    scene.run([Reversal(replace(MOVES[0], before=()), "why"), Reversal(MOVES[1], "why", attempt=None)])
    (row,) = scene.journal.audit.rows(action=Action.CANCEL)
    assert (row.entry.plan, row.entry.chunk, row.entry.partition) == ("", None, 1)
    assert row.entry.attempt > 1_000_000_000


def test_what_was_never_answered_is_cancelled_although_nothing_is_seen_of_it() -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231")
    scene = Scene(simulator, memory_journal(simulator))
    assert scene.run([replace(REVERSALS[0], unanswered=True)])[T0].state is State.RESTORED
    assert scene.calls() == [("cancel", 0, Outcome.REFUSED)]  # nothing was in flight


def test_what_arrived_late_is_rolled_back() -> None:
    scene = in_flight()
    scene.simulator.run()
    late = [replace(each, rolls_back=True, attempt=None) for each in REVERSALS]
    assert {verdict.state for verdict in scene.run(late).values()} == {State.RETURNING}
    assert {action for action, _, _ in scene.calls()} == {"roll_back"}
    scene.simulator.run()
    assert {verdict.state for verdict in scene.run(late).values()} == {State.RESTORED}


def test_originals_that_kafka_refuses_for_good_are_named_and_not_asked_for_again() -> None:
    scene = in_flight()
    scene.simulator.unregister(1)
    verdicts = scene.run()
    assert [verdicts[name].state for name in (T0, T1)] == [State.REFUSED, State.REFUSED]
    assert verdicts[T0].replicas == (2, 3, 1)
    assert verdicts[T0].why.startswith(
        "its replicas are [2, 3, 1], and Kafka refuses its original ones, [1, 2, 3], because broker 1 is not "
        "registered: "
    )
    assert len(scene.journal.audit.rows(action=Action.REORDER)) == 2


def test_what_we_may_not_describe_is_left_as_it_is() -> None:
    scene = in_flight()
    scene.simulator.hidden.add("t")
    assert {verdict.state for verdict in scene.run().values()} == {State.HIDDEN}
    assert scene.calls() == []


class Altered:
    """A cluster with one method replaced."""

    def __init__(self, simulator: Simulator, **methods: Any) -> None:
        self._simulator, self._methods = simulator, methods

    def __getattr__(self, name: str) -> Any:
        return self._methods.get(name) or getattr(self._simulator, name)


@pytest.mark.parametrize("polls", [1, 3, 50])
def test_a_cancel_that_brokers_show_late_is_sent_once(polls: int) -> None:
    scene = in_flight()
    shown, left = scene.simulator.snapshot(), [polls]

    def snapshot(topics: Collection[str]) -> Snapshot:
        left[0] -= 1
        return shown if left[0] >= 0 else scene.simulator.snapshot(topics)

    cluster = Altered(scene.simulator, snapshot=snapshot)
    seen = State.STALE if polls > 4 else State.RESTORED
    assert {verdict.state for verdict in scene.run(cluster=cluster).values()} == {seen}
    assert [action for action, _, _ in scene.calls()].count("cancel") == 2
    left[0] = 0
    assert {verdict.state for verdict in scene.run().values()} == {State.RESTORED}


def unanswered(*_: Any, **__: Any) -> Any:
    raise KafkaTimeout("no answer")


@pytest.mark.parametrize("call", ["cancel", "alter", "snapshot"])
@pytest.mark.parametrize("heard", [False, True])
def test_the_next_call_goes_on_where_kafka_did_not_answer(call: str, heard: bool) -> None:
    scene = in_flight()

    def lost(*given: Any, **more: Any) -> Any:
        if heard:
            getattr(scene.simulator, call)(*given, **more)
        unanswered()

    with pytest.raises(ClusterError):
        scene.run(cluster=Altered(scene.simulator, **{call: lost}))
    assert {verdict.state for verdict in scene.run().values()} == {State.RESTORED}
    assert (scene.replicas(), scene.simulator.reassignments()) == ([(1, 2, 3), (2, 3, 1)], {})


@pytest.mark.parametrize("call", ["cancel", "alter"])
def test_each_call_is_recorded_before_it_is_made(call: str) -> None:
    scene = in_flight()
    intended: list[str] = []

    def recorded(*given: Any, **more: Any) -> Any:
        intended.extend(action for action, _, outcome in scene.calls() if outcome is Outcome.INTENDED)
        return getattr(scene.simulator, call)(*given, **more)

    scene.run(cluster=Altered(scene.simulator, **{call: recorded}))
    assert intended == [{"cancel": "cancel", "alter": "reorder"}[call]] * 2


class Retracting:
    """Notes what it is told to retract."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def retract_submissions(self, asked: Mapping[TopicPartition, Assignment]) -> None:
        self.told.append(dict(asked))

    def restore_after_late_cancel(self, partitions: Collection[TopicPartition]) -> None:
        self.told.append(list(partitions))


def run_while_locked(scene: Scene, cluster: Any = None, *, late: bool = False) -> Retracting:
    """Run while another process takes the lock over: before the call, or with `late` during it."""
    retracting = Retracting()
    with scene.journal.step_lock() as fence:
        if not late:
            take_over(scene)
        executor = replace(scene.executor(fence, cluster), retraction=retracting)
        with pytest.raises(LockLost):
            executor.run(REVERSALS)
    return retracting


def take_over(scene: Scene) -> None:
    scene.simulator.now_ms += 10_000_000
    with scene.journal.step_lock("another process"):
        pass


@pytest.mark.parametrize("call", ["cancel", "alter"])
def test_what_was_sent_after_the_lock_was_lost_is_retracted(call: str) -> None:
    scene = in_flight()

    def slow(*given: Any, **more: Any) -> Any:
        take_over(scene)
        return getattr(scene.simulator, call)(*given, **more)

    told = run_while_locked(scene, Altered(scene.simulator, **{call: slow}), late=True).told
    assert told == [{T0: (1, 2, 3), T1: (2, 3, 1)} if call == "alter" else [T0, T1]]


def test_without_the_lock_nothing_is_called() -> None:
    scene = in_flight()
    assert run_while_locked(scene).told == []
    assert len(scene.simulator.reassignments()) == 2


def test_putting_back_an_order_changes_no_factor_that_someone_changes_meanwhile() -> None:
    scene = in_flight()  # a ZooKeeper-mode cluster does not know the guard
    asked: list[Any] = []

    def raced(targets: Mapping[TopicPartition, Assignment], **more: Any) -> Any:
        if not asked:
            scene.simulator.alter({T0: (1, 2)})  # someone gives it two replicas between our look and our request
        asked.append(dict(targets))
        return scene.simulator.alter(targets, **more)

    verdicts = scene.run(REVERSALS[:1], Altered(scene.simulator, alter=raced))
    assert (asked, verdicts[T0].state) == ([{T0: (1, 2, 3)}], State.ELSEWHERE)
    scene.simulator.run()
    assert scene.replicas()[0] == (1, 2)
    assert [row.outcome for row in scene.journal.audit.rows(action=Action.REORDER)] == [Outcome.REFUSED]
