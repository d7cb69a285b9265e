"""What a step costs: a journal far away answers some ten milliseconds later, and ZooKeeper writes to a quorum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.runner import PlanRunner
from kafka_steward.journal import paths
from kafka_steward.settings import Settings
from tests.crash import Faults
from tests.memory_tables import MemoryAudit, MemoryMoves
from tests.memory_tree import MemoryTree
from tests.simulated_plan import WHO, World, journal_over, move
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


def test_a_step_reads_the_record_and_the_rows_once(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    rows = plan.moves.rows

    def noted(digest: str) -> Any:
        read.append(digest)
        return rows(digest)

    monkeypatch.setattr(plan.moves, "rows", noted)
    operations = plan.step()
    assert read == [plan.digest]
    record = paths.plan(plan.digest)
    assert sum(record == path or record in (path or ()) for name, path in operations if name not in WRITES) == 1


class LargePlan:
    """A plan of so many small moves; the calls of the journal and of Kafka are counted."""

    def __init__(self, count: int) -> None:
        assignments = " ".join(["123"] * count)
        simulator = self.simulator = Simulator.of("1a 2b 3c 4a", f"t: {assignments}", size=1, bandwidth=10_000)
        clock = lambda: simulator.now_ms  # noqa: E731
        tree, moves, audit = MemoryTree(clock), MemoryMoves(clock), MemoryAudit(simulator.cluster_id, clock)
        self.calls = Faults()
        around = self.calls.around
        journal = journal_over(
            simulator.cluster_id, around("tree", tree), around("moves", moves), around("audit", audit)
        )
        given = [move(f"t-{at}", "123", "423", chunk=at // 50, position=at % 50, size=1) for at in range(count)]
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


@pytest.mark.parametrize("step", [1, 2])
def test_a_step_over_many_moves_is_as_many_operations_as_over_few(step: int) -> None:
    """But for the requests to Kafka, of which each has up to 50 partitions, and the check of the lock before it."""
    few, many = LargePlan(50), LargePlan(450)
    for _ in range(step):
        counts = few.step(), many.step()
    further = {"cluster.alter": 8, "tree.set": 8} if step == 1 else {}
    assert counts[1] - counts[0] == Counter(further)
    assert counts[1]["moves.rows"] == (1 if step == 1 else 3), "once in a step, and at the end of the plan"
