"""What a step costs: a journal far away answers some ten milliseconds later, and ZooKeeper writes to a quorum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import KafkaRefused
from kafka_steward.execution.lifecycle import request_cancel
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.runner import PlanRunner
from kafka_steward.journal import paths
from kafka_steward.journal.records import MoveState
from kafka_steward.settings import Settings
from tests.crash import Faults
from tests.memory_tables import MemoryAudit, MemoryMoves
from tests.memory_tree import MemoryTree
from tests.simulated_plan import WHO, World, journal_over, memory_journal, move
from tests.simulator import Simulator

RULES = Settings(throttle=1_000)
WRITES = {"create", "create_sequential", "set", "delete", "discard"}


class CountedTree:
    """A tree that notes each operation and its path."""

    def __init__(self, tree: MemoryTree) -> None:
        self._tree = tree
        self.operations: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def noted(*given: Any, **options: Any) -> Any:
            self.operations.append((name, given[0] if given else None))
            return getattr(self._tree, name)(*given, **options)

        return noted


class Plan:
    """A plan of three moves that are all in flight, and of which none arrives."""

    def __init__(self) -> None:
        self.simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231 312", size=100_000)
        clock = lambda: self.simulator.now_ms  # noqa: E731
        self.tree = CountedTree(MemoryTree(clock))
        self.moves = MemoryMoves(clock)
        journal = journal_over(
            self.simulator.cluster_id, self.tree, self.moves, MemoryAudit(self.simulator.cluster_id, clock)
        )
        moves = [
            move(f"t-{at}", before, after, position=at, size=100_000)
            for at, (before, after) in enumerate([("123", "423"), ("231", "234"), ("312", "412")])
        ]
        world = World(self.simulator, journal, moves, settings=RULES, auto_generated=False)
        self.runner = PlanRunner(ClusterContext(self.simulator, journal, RULES, WHO), world.digest)
        self.digest = world.digest

    def step(self) -> list[tuple[str, Any]]:
        """Take a step; return the operations on the tree."""
        self.tree.operations.clear()
        assert self.runner.step().in_flight == 3
        self.simulator.tick(1)
        return list(self.tree.operations)


@pytest.fixture
def plan() -> Plan:
    plan = Plan()
    plan.step()
    return plan


def test_an_idle_step_is_six_operations_on_the_tree(plan: Plan) -> None:
    for _ in range(3):
        assert len(plan.step()) <= 6


def test_an_idle_step_writes_the_step_lock_and_its_heartbeat_alone(plan: Plan) -> None:
    written = {path for name, path in plan.step() if name in WRITES}
    assert written == {paths.STEP_LOCK, paths.plan(plan.digest)}


def test_a_step_reads_no_clock_but_the_locks(plan: Plan) -> None:
    assert "now_ms" not in {name for name, _ in plan.step()}


def test_a_step_reads_the_record_once_and_the_rows_only_after_somebody_else_has_stepped(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    rows = plan.moves.unsettled_rows

    def noted(digest: str) -> Any:
        read.append(digest)
        return rows(digest)

    monkeypatch.setattr(plan.moves, "unsettled_rows", noted)
    operations = plan.step()
    assert read == []
    record = paths.plan(plan.digest)
    assert sum(record == path or record in (path or ()) for name, path in operations if name not in WRITES) == 1
    other = PlanRunner(plan.runner._context, plan.digest)
    other.step()
    plan.step()
    assert read == [plan.digest]
    plan.step()
    assert read == [plan.digest]


class LargePlan:
    """A plan of so many small moves, of one topic or of as many; the calls of the journal and of Kafka are counted.

    All start together, as the controller is one that starts them one after the other.
    """

    def __init__(self, count: int, *, topics: bool = False) -> None:
        named = [f"t{at}: 123" for at in range(count)] if topics else ["t: " + " ".join(["123"] * count)]
        simulator = self.simulator = Simulator.of("1a 2b 3c 4a", *named, size=1, bandwidth=10_000, mode="zookeeper")
        clock = lambda: simulator.now_ms  # noqa: E731
        tree, moves, audit = MemoryTree(clock), MemoryMoves(clock), MemoryAudit(simulator.cluster_id, clock)
        self.calls = Faults()
        around = self.calls.around
        journal = journal_over(
            simulator.cluster_id, around("tree", tree), around("moves", moves), around("audit", audit)
        )
        given = [
            move(f"t{at}-0" if topics else f"t-{at}", "123", "423", chunk=at // 50, position=at % 50, size=1)
            for at in range(count)
        ]
        world = World(simulator, journal, given, settings=RULES, auto_generated=False)
        self.runner = PlanRunner(ClusterContext(around("cluster", simulator), journal, RULES, WHO), world.digest)

    def step(self) -> Counter[str]:
        """Take a step; return the number of calls by name."""
        self.calls.calls.clear()
        self.progress = self.runner.step()
        self.simulator.tick()
        return Counter(self.calls.calls)


def test_all_small_moves_start_in_one_step_and_end_in_the_next() -> None:
    plan = LargePlan(900)
    plan.step()
    assert (plan.progress.in_flight, plan.progress.waiting) == (900, 0)
    plan.step()
    assert (plan.progress.ended, plan.progress.completed) == (True, 900)


def test_on_kraft_twice_as_many_small_moves_start_after_each_step_in_which_all_had_ended() -> None:
    plan, started = LargePlan(900), list[int]()
    plan.simulator.mode = "kraft"
    while not started or not plan.progress.ended:
        plan.step()
        started.append(plan.progress.in_flight)
    assert started == [50, 50, 100, 200, 400, 100, 0]


@pytest.mark.parametrize("step", [1, 2])
def test_a_step_over_many_moves_is_as_many_operations_as_over_few(step: int) -> None:
    """But for the requests to Kafka, of which each has up to 50 partitions, and the check of the lock before it."""
    few, many = LargePlan(50), LargePlan(450)
    for _ in range(step):
        counts = few.step(), many.step()
    further = {"cluster.alter": 8, "tree.set": 8} if step == 1 else {}
    assert counts[1] - counts[0] == Counter(further)
    assert counts[1]["moves.rows"] == (1 if step == 1 else 2), "once in the first step, and at the end of the plan"


@pytest.mark.parametrize("step", [1, 2])
def test_a_step_over_many_topics_is_as_many_operations_on_the_journal_as_over_few(step: int) -> None:
    """Each topic has a throttle lease and a list of its own."""
    few, many = LargePlan(50, topics=True), LargePlan(450, topics=True)
    for _ in range(step):
        counts = few.step(), many.step()
    further = {name: number for name, number in (counts[1] - counts[0]).items() if not name.startswith("cluster.")}
    checks = {1: 8 + 8, 2: 8}[step]
    assert further == {"tree.set": checks}, "the lock is checked before each request to Kafka, of up to 50 topics"


def test_refusals_are_recorded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = LargePlan(3), LargePlan(40)
    for plan in (few, many):
        refused = {
            name: KafkaRefused(42, "not now", f"Kafka refused the assignment of {name}: not now.")
            for name in plan.simulator.topics
        }
        monkeypatch.setattr(
            plan.simulator, "alter", lambda targets, refused=refused, **_: {n: refused[n] for n in targets}
        )
    assert few.step() == many.step()
    assert (len(few.progress.held), len(many.progress.held)) == (3, 40)


class AlmostEndedPlan:
    """A plan of so many moves, all but five of which have completed; the five are in flight, and none of them ends.

    `rows` are the numbers of rows that a step read, and `looked` the topics that it asked Kafka for; None for all.
    """

    def __init__(self, count: int, monkeypatch: pytest.MonkeyPatch, *, waiting: int = 0) -> None:
        assignments, others = " ".join(["123"] * count), [f"other-{at}: 123" for at in range(20)]
        self.simulator = Simulator.of("1a 2b 3c 4a", f"t: {assignments}", *others, size=100, bandwidth=0)
        clock = lambda: self.simulator.now_ms  # noqa: E731
        moves, self.calls = MemoryMoves(clock), Faults()
        audit = MemoryAudit(self.simulator.cluster_id, clock)
        around = self.calls.around
        self.journal = journal_over(self.simulator.cluster_id, MemoryTree(clock), around("moves", moves), audit)
        given = [move(f"t-{at}", "123", "423", chunk=at // 50, position=at % 50) for at in range(count)]
        rules = Settings(throttle=0, min_free=0, max_in_flight=5 if waiting else 3000)
        world = World(self.simulator, self.journal, given, settings=rules, auto_generated=False)
        self.digest = world.digest
        ended = [each.topic_partition for each in given[5 + waiting :]]
        self.journal.plans.set_move_states(self.digest, ended, MoveState.COMPLETED, fence=None, attempt=1)
        context = ClusterContext(around("cluster", self.simulator), self.journal, rules, WHO)
        self.runner = PlanRunner(context, self.digest)
        self.rows: list[int] = []
        self.looked: list[list[str] | None] = []
        read, look = moves.unsettled_rows, self.simulator.snapshot

        def read_rows(digest: str) -> Any:
            found = read(digest)
            self.rows.append(len(found[1]))
            return found

        def snapshot(topics: Collection[str] | None = None) -> Any:
            self.looked.append(None if topics is None else sorted(topics))
            return look(topics)

        monkeypatch.setattr(moves, "unsettled_rows", read_rows)
        monkeypatch.setattr(self.simulator, "snapshot", snapshot)
        self.progress = self.runner.step()

    def step(self) -> Counter[str]:
        self.calls.calls.clear()
        self.rows.clear()
        self.looked.clear()
        self.progress = self.runner.step()
        return Counter(self.calls.calls)


@pytest.mark.parametrize("count", [20, 2_000])
def test_a_step_costs_what_has_not_settled_however_large_the_plan_is(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = AlmostEndedPlan(count, monkeypatch)
    plan.simulator.tick(3)
    plan.step()  # once in 30 s it also asks for the lag of the replicas
    for _ in range(3):
        plan.simulator.tick()
        counts = plan.step()
        assert (plan.rows, plan.looked) == ([], [["t"]])
        assert {name: number for name, number in counts.items() if name.startswith("moves.")} == {
            "moves.count_states": 1
        }
        assert {name: number for name, number in counts.items() if name.startswith("cluster.")} == {
            "cluster.reassignments": 1,
            "cluster.snapshot": 1,
            "cluster.log_sizes": 1,
        }
    told = plan.progress
    assert (told.partitions_total, told.partitions_settled, told.completed) == (count, count - 5, count - 5)
    assert (told.bytes_total, told.bytes_done, told.chunks) == (100 * count, 100 * (count - 5), (count + 49) // 50)


def test_the_whole_cluster_is_looked_at_once_per_second_while_moves_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The partitions outside the plan, its topics' settings and the sizes of what waits are not read in each step."""
    plan = AlmostEndedPlan(20, monkeypatch, waiting=3)
    plan.simulator.now_ms += 999
    counts = plan.step()
    assert (plan.rows, plan.looked) == ([], [["t"]])
    assert counts["cluster.topic_configs"] == counts["cluster.log_sizes"] == 0
    plan.simulator.now_ms += 1
    counts = plan.step()
    assert (plan.rows, plan.looked) == ([], [None])
    assert counts["cluster.topic_configs"] == counts["cluster.log_sizes"] == 0
    plan.simulator.now_ms += 9_001
    counts = plan.step()
    assert (counts["cluster.topic_configs"], counts["cluster.log_sizes"]) == (1, 1)
    plan.simulator.now_ms -= 5_000  # the clock is set back
    assert plan.step()["cluster.topic_configs"] == 1
    assert plan.looked == [None]


def test_a_step_that_starts_nothing_asks_for_the_topics_in_flight_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    simulator = Simulator.of("1a 2b 3c 4a", "a: 123", "b: 123", "c: 123", size=100, bandwidth=0)
    moves = [move(f"{topic}-0", "123", "423", position=at) for at, topic in enumerate("abc")]
    rules = Settings(throttle=0, max_in_flight=1)
    world = World(simulator, memory_journal(simulator), moves, settings=rules, auto_generated=False)
    assert world.step().in_flight == 1
    looked, look = [], simulator.snapshot

    def snapshot(topics: Collection[str] | None = None) -> Any:
        looked.append(topics)
        return look(topics)

    monkeypatch.setattr(simulator, "snapshot", snapshot)
    world.step()
    assert looked == [["a", "b", "c"]], "each of those that wait may be the next"
    looked.clear()
    request_cancel(world.journal, world.digest, who=WHO, reason="not needed")
    assert world.step().in_flight == 1
    assert looked == [["a"]]


def test_what_another_process_settled_is_read_by_name_and_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = AlmostEndedPlan(20, monkeypatch)
    plan.simulator.bandwidth = 10_000
    plan.simulator.topics[TopicPartition("t", 4)].size = 10**6
    plan.simulator.tick()
    rules = Settings(throttle=0)
    other = PlanRunner(ClusterContext(plan.simulator, plan.journal, rules, WHO), plan.digest)
    assert other.step().completed == 19
    counts = plan.step()
    assert (counts["moves.rows"], counts["moves.rows_of"], plan.rows) == (0, 1, [1])
    assert (plan.progress.completed, plan.progress.in_flight, plan.progress.bytes_done) == (19, 1, 2_000)
    assert plan.step()["moves.rows_of"] == 0
    assert plan.progress.completed == 19


def test_rows_that_a_restored_backup_brought_back_are_all_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = AlmostEndedPlan(20, monkeypatch)
    back = [TopicPartition("t", 9)]
    plan.journal.plans.set_move_states(plan.digest, back, MoveState.HELD, fence=None)
    assert plan.step()["moves.rows"] == 1
    assert (plan.progress.partitions_settled, plan.progress.partitions_total) == (14, 20)


def test_the_end_looks_at_the_topics_whose_moves_had_settled_before() -> None:
    """A broker that dies after a topic's moves completed leaves them not fully replicated, and the end says so."""
    simulator = Simulator.of("1a 2b 3c 4a 5b", "a: 123", "b: 123", size=100, bandwidth=100)
    moves = [move("a-0", "123", "423"), move("b-0", "123", "523", position=1)]
    rules = Settings(throttle=0, max_in_flight=1)
    world = World(simulator, memory_journal(simulator), moves, settings=rules, auto_generated=False)
    while world.step().completed < 1 or world.step().in_flight < 1:
        simulator.tick()
    simulator.kill(4)
    progress = world.run()
    assert (progress.completed, progress.left) == (2, 1)
    assert "1 still not fully replicated" in progress.sentence
