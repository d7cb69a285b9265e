"""Fewer live brokers than the replication factor, on a real cluster: heal what can be, say the rest once, and heal it
when a broker joins."""

from __future__ import annotations

import pytest

from kafka_steward.execution.failure_detector import DetectionResult
from kafka_steward.journal.records import PlanStatus
from kafka_steward.sandbox import Sandbox
from kafka_steward.settings import Settings
from tests.eventually import eventually
from tests.kafka.test_heal_by_script import Script, script
from tests.stepping import to_the_end

__all__ = ["script"]


@pytest.mark.ci
def test_what_can_be_is_healed_and_the_rest_when_a_broker_joins(
    script: Script, kraft_sandbox: Sandbox, topic: str
) -> None:
    heal_in_two_parts(script, kraft_sandbox, topic)


@pytest.mark.slow
def test_the_same_with_zookeeper(script: Script, zookeeper_sandbox: Sandbox, topic: str) -> None:
    heal_in_two_parts(script, zookeeper_sandbox, topic)


def heal_in_two_parts(script: Script, sandbox: Sandbox, topic: str) -> None:
    script.settings = Settings(min_free=0, heal_failure_interval=2, heal_retry_interval=1, max_failed_fraction=0.5)
    pairs, threes = f"{topic}-pairs", f"{topic}-threes"
    # Broker 4 has nothing and is gone: as if it were not there yet.
    sandbox.kill(4)
    eventually(lambda: _assert_live(script, 1, 2, 3), within=60)
    sandbox.create_topics(pairs, assignments={0: [3, 1], 1: [2, 3]})
    sandbox.create_topics(threes, assignments={0: [1, 2, 3], 1: [3, 1, 2]})
    sandbox.kill(3)

    runner = script.plan(script.until_due(3).failed)
    progress = to_the_end(runner)
    assert (progress.status, progress.completed, progress.left) == (PlanStatus.COMPLETED, 2, 2)
    assert progress.sentence.endswith("2 of 2 partitions moved, 2 still not fully replicated.")
    assert {frozenset(replicas) for replicas in script.replicas(pairs).values()} == {frozenset({1, 2})}
    assert script.replicas(threes) == {0: (1, 2, 3), 1: (3, 1, 2)}
    _assert_said_once(script)

    sandbox.restart(4)
    verdict = eventually(lambda: _due(script.look()), within=60)
    assert verdict.due == (3,), "without a second grace period: it has been gone all the time"
    progress = to_the_end(script.plan(verdict.failed))
    assert (progress.status, progress.completed, progress.left) == (PlanStatus.COMPLETED, 2, 0)
    assert {frozenset(replicas) for replicas in script.replicas(threes).values()} == {frozenset({1, 2, 4})}
    assert script.under_replicated() == ""
    assert script.look().sentence == "Every broker that has replicas is live."


def _assert_live(script: Script, *brokers: int) -> None:
    assert set(script.cluster.live_brokers()) == set(brokers)


def _assert_said_once(script: Script) -> None:
    """Longer than heal_retry_interval, nothing more is announced, and broker 3 counts as seen to."""
    until_ms = script.journal.now_ms() + 3_000
    while script.journal.now_ms() < until_ms:
        verdict = script.look()
        assert (verdict.due, verdict.failed, verdict.handled) == ((), (), (3,)), verdict
        assert verdict.sentence == "Broker 3 is down, and a plan handles it."


def _due(verdict: DetectionResult) -> DetectionResult:
    assert verdict.due
    return verdict
