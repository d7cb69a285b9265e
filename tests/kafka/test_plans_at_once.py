"""Two plans that two processes step at once on a real cluster have the limits and the throttles of one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from kafka_steward.assignment import Move
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.runner import PlanRunner, run_to_end
from kafka_steward.execution.throttle_rates import ThrottleSide
from kafka_steward.journal.records import MoveState, PlanRecord, PlanStatus
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.sandbox import Sandbox
from kafka_steward.settings import Settings
from tests.eventually import eventually
from tests.simulated_plan import WHO
from tests.throttles import rates

#: Bytes per second. The large partition would take a minute at the first, and takes some seconds at the second.
STRICT, LENIENT = 100_000, 1_000_000
#: Fewer than both have together: the small partitions of the first, and one of the second, which moves three.
MOST_INTO_A_BROKER = 3
BEFORE, AFTER = (1, 2, 3), (4, 2, 3)
#: Partitions of the small topic, and the rate; the last plan has the large partition, too, and ends last.
PLANS = {"b" * 64: (range(2), STRICT), "a" * 64: (range(2, 4), LENIENT)}

pytestmark = [pytest.mark.ci, pytest.mark.apart, pytest.mark.usefixtures("clears_rates")]


def settings_of(digest: str) -> Settings:
    rate = PLANS[digest][1]
    return Settings(min_free=0, throttle=rate, max_in_per_broker=MOST_INTO_A_BROKER, step_interval=0.3, stall_after=60)


def run(bootstrap: str, journal_url: str, digest: str) -> PlanStatus:
    """Step a plan to its end as a process of its own does, with its own connections."""
    settings = settings_of(digest)
    with (
        KafkaCluster({"bootstrap_servers": bootstrap}) as cluster,
        open_journal(journal_url, cluster.cluster_id) as journal,
    ):
        runner = PlanRunner(ClusterContext(cluster, journal, settings, WHO), digest)
        return run_to_end(runner, time.sleep, interval_s=lambda: settings.step_interval).status


def is_in_flight(journal: Journal, digest: str) -> bool:
    return any(row.state is MoveState.SUBMITTED for row in journal.plans.rows(digest))


def assert_in_flight(journal: Journal, digest: str) -> None:
    assert is_in_flight(journal, digest)


@pytest.mark.in_ci("zookeeper")
def test_two_plans_share_the_limits_of_a_broker_and_its_throttle(
    sandbox: Sandbox, cluster: KafkaCluster, journal: Journal, topic: str, tmp_path: Path
) -> None:
    small, large = f"{topic}-small", f"{topic}-large"
    sandbox.create_topics(small, assignments=dict.fromkeys(range(4), BEFORE))
    sandbox.create_topics(large, assignments={0: BEFORE})
    sandbox.fill(small, 4_800_000)
    sandbox.fill(large, 6_000_000)
    slow = {"a" * 64: [Move(large, 0, BEFORE, AFTER, 0, 0, "given")]}
    for digest, (numbers, _) in PLANS.items():
        moves = [Move(small, number, BEFORE, AFTER, 0, number + 1, "given") for number in numbers]
        record = PlanRecord(digest, cluster.cluster_id, "apply", who=WHO)
        journal.plans.publish(record, [*slow.get(digest, ()), *moves])
    seen_rates: list[int | None] = []
    both, most = False, 0
    with ThreadPoolExecutor(len(PLANS)) as processes:
        url = f"sqlite:///{tmp_path}/journal.db"
        running = []
        for digest in PLANS:
            running.append(processes.submit(run, sandbox.bootstrap, url, digest))
            # One after the other: else the large partition may have arrived before the strict rate is there.
            eventually(partial(assert_in_flight, journal, digest))
        while not all(each.done() for each in running):
            both |= all(is_in_flight(journal, digest) for digest in PLANS)
            most = max(most, sum(4 in each.adding for each in cluster.snapshot().reassigning.values()))
            rate = rates(cluster, ThrottleSide.FOLLOWER, [4])[4]
            # A broker of a ZooKeeper cluster shows a rate a moment after it was set.
            if (seen_rates or (both and rate == STRICT)) and seen_rates[-1:] != [rate]:
                seen_rates.append(rate)
        assert [each.result() for each in running] == [PlanStatus.COMPLETED] * 2
    assert both, "both had moves in flight at once"
    assert most == MOST_INTO_A_BROKER
    # The stricter rate until its plan ends, then the other one, and none after that.
    assert [rate for rate in seen_rates if rate is not None] == [STRICT, LENIENT]
    eventually(lambda: assert_released(cluster, [small, large]))
    assert {each.replicas for each in cluster.snapshot([small, large]).partitions.values()} == {AFTER}
    assert journal.slot.holders() == ()


def assert_released(cluster: KafkaCluster, topics: Sequence[str]) -> None:
    assert rates(cluster, ThrottleSide.FOLLOWER, [4]) == {4: None}
    lists = cluster.topic_configs(topics, [ThrottleSide.FOLLOWER.replicas_key], own_only=True)
    assert lists == {topic: {} for topic in topics}
