"""A rate that is changed while a plan runs is on every broker within two steps, on real ones."""

from __future__ import annotations

import time

import pytest

from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.execution.lifecycle import change_plan_throttle
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.runner import PlanRunner
from kafka_steward.execution.throttle_rates import ThrottleSide
from kafka_steward.journal.records import PlanRecord
from kafka_steward.journal.store import Journal
from kafka_steward.sandbox import Sandbox
from kafka_steward.settings import Settings
from tests.cancelling import CancelRunner
from tests.eventually import eventually
from tests.simulated_plan import WHO, move
from tests.stepping import to_the_end
from tests.throttles import rates

SLOW, FASTER = 100_000, 150_000
RULES = Settings(min_free=0, throttle=SLOW)


@pytest.mark.ci
@pytest.mark.in_ci("kraft")
def test_a_changed_rate_is_on_every_broker_within_two_steps(
    sandbox: Sandbox, cluster: KafkaCluster, journal: Journal, topic: str
) -> None:
    sandbox.create_topics(topic, assignments={0: [1, 2, 3], 1: [2, 3, 4], 2: [3, 4, 1], 3: [4, 1, 2]})
    sandbox.fill(topic, 24_000_000)
    targets = ["423", "134", "241", "312"]
    befores = ["123", "234", "341", "412"]
    moves = [
        move(f"{topic}-{number}", before, target, position=number, size=6_000_000)
        for number, (before, target) in enumerate(zip(befores, targets, strict=True))
    ]
    record = PlanRecord("d" * 64, cluster.cluster_id, "apply", who=WHO)
    digest = journal.plans.publish(record, moves).digest
    runner = PlanRunner(ClusterContext(cluster, journal, RULES, WHO), digest)
    eventually(lambda: _assert_everywhere(runner, cluster, sandbox, SLOW), within=30)

    began_s = time.monotonic()
    change_plan_throttle(journal, digest, FASTER, WHO, "the night is quiet")
    for _ in range(2):
        runner.step()
    assert rates(cluster, ThrottleSide.FOLLOWER, list(sandbox.brokers)) == dict.fromkeys(sandbox.brokers, FASTER)
    print(f"everywhere after {time.monotonic() - began_s:.2f} s of two steps")

    to_the_end(CancelRunner(cluster, journal, digest, RULES, WHO, scope="pending", reason="seen enough"))
    eventually(lambda: _assert_rates(cluster, sandbox, None), within=30)


def _assert_everywhere(runner: PlanRunner, cluster: KafkaCluster, sandbox: Sandbox, rate: int) -> None:
    runner.step()
    _assert_rates(cluster, sandbox, rate)


def _assert_rates(cluster: KafkaCluster, sandbox: Sandbox, rate: int | None) -> None:
    assert rates(cluster, ThrottleSide.FOLLOWER, list(sandbox.brokers)) == dict.fromkeys(sandbox.brokers, rate)
