"""A fill from the book of debts to the settled debt: snapshot, planner, runner; the cluster is simulated (KIP-409)."""

from __future__ import annotations

from pathlib import Path

from kafka_steward.assignment import TopicPartition
from kafka_steward.execution.pending_replicas import list_pending, reconcile_pending
from kafka_steward.execution.pending_state import target_replication_factors
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.publishing import publish_plan
from kafka_steward.execution.runner import PlanRunner
from kafka_steward.execution.snapshot import take_snapshot
from kafka_steward.execution.topics import TopicSpec, create_topic
from kafka_steward.journal.store import Journal
from kafka_steward.planning.checker.check import check
from kafka_steward.planning.files.formats import PlanFolder, read_snapshot
from kafka_steward.settings import Settings
from tests.builders import planned
from tests.simulated_plan import WHO, lose, memory_journal
from tests.simulator import Simulator

SETTINGS = Settings(throttle=0)


def owing(brokers: str, *dead: int, factor: int, partitions: int = 6) -> tuple[Simulator, Journal]:
    simulator = Simulator.of(brokers, mode="zookeeper")
    journal = memory_journal(simulator)
    lose(simulator, journal, *dead)
    create_topic(simulator, journal, TopicSpec("t", partitions, factor), allowed=True, who=WHO)
    return simulator, journal


def fill_plan(simulator: Simulator, journal: Journal, folder: Path) -> PlanFolder:
    snapshot = simulator.snapshot()
    wanted = target_replication_factors(list_pending(journal, snapshot), snapshot)
    take_snapshot(simulator, str(folder), failed=(), now_ms=simulator.now_ms, targets=wanted)
    read = read_snapshot(str(folder))
    plan = planned(read, "fill")
    assert check(read, plan).problems == []
    return plan


def carried_out(simulator: Simulator, journal: Journal, plan: PlanFolder) -> list[str]:
    record = publish_plan(ClusterContext(simulator, journal, SETTINGS, WHO), plan)
    runner = PlanRunner(ClusterContext(simulator, journal, SETTINGS, WHO), record.digest)
    for _ in range(60):
        if runner.step().ended:
            break
        simulator.tick()
    return [debt.state.value for debt in reconcile_pending(simulator, journal, simulator.snapshot(), WHO)]


def test_each_owed_replica_goes_to_a_broker_that_does_not_hold_one_yet(tmp_path: Path) -> None:
    simulator, journal = owing("1a 2b 3c", 3, factor=3)
    simulator.restart(3)
    plan = fill_plan(simulator, journal, tmp_path / "s")
    assert [(move.adding, move.removing) for move in plan.moves] == [(frozenset({3}), frozenset())] * 6
    assert carried_out(simulator, journal, plan) == ["settled"] * 6
    assert {len(each.replicas) for each in simulator.topics.values()} == {3}


def test_a_fill_prefers_a_rack_that_has_no_replica_yet(tmp_path: Path) -> None:
    simulator, journal = owing("1a 2b 3a 4c", 3, 4, factor=3)
    simulator.restart(3)
    simulator.restart(4)
    plan = fill_plan(simulator, journal, tmp_path / "s")
    assert [move.adding for move in plan.moves] == [frozenset({4})] * 6


def test_what_can_be_filled_is_filled_and_the_rest_stays_owed(tmp_path: Path) -> None:
    simulator, journal = owing("1a 2b 3c 4a", 3, 4, factor=4)
    simulator.restart(3)
    plan = fill_plan(simulator, journal, tmp_path / "s")
    assert carried_out(simulator, journal, plan) == ["open"] * 6
    assert simulator.topics[TopicPartition("t", 0)].replicas == (1, 2, 3)
    simulator.restart(4)
    assert carried_out(simulator, journal, fill_plan(simulator, journal, tmp_path / "s2")) == ["settled"] * 6


def test_topics_that_are_owed_nothing_are_left_alone(tmp_path: Path) -> None:
    simulator, journal = owing("1a 2b 3c", 3, factor=3, partitions=1)
    simulator.create("other", [(1,), (2,)])
    simulator.restart(3)
    assert [move.topic for move in fill_plan(simulator, journal, tmp_path / "s").moves] == ["t"]


def test_what_a_fill_leaves_on_one_rack_is_spread_by_the_next_rebalance(tmp_path: Path) -> None:
    # Of racks a and b, rack b is away: its broker joins only after the fill.
    simulator, journal = owing("1a 2a 3a 4b", 2, 3, 4, factor=2, partitions=3)
    for broker in (2, 3):
        simulator.restart(broker)
    carried_out(simulator, journal, fill_plan(simulator, journal, tmp_path / "s"))
    assert all(4 not in each.replicas for each in simulator.topics.values())
    simulator.restart(4)
    take_snapshot(simulator, str(tmp_path / "t"), failed=(), now_ms=simulator.now_ms)
    plan = planned(read_snapshot(str(tmp_path / "t")), "rebalance")
    assert plan.proof["rack_violations"] == {"before": 3, "after": 0}
    carried_out(simulator, journal, plan)
    assert all(4 in each.replicas for each in simulator.topics.values())
