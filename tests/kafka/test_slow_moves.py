"""Moves that stand still, fall behind or wait, rates that change, and plans at once, on real clusters (KIP-236)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.execution.moves import preflight_inputs
from kafka_steward.execution.moves.states import HoldReason
from kafka_steward.execution.plans.drive import DrivePolicy, run_to_end
from kafka_steward.execution.plans.lifecycle import change_plan_throttle
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.throttles.rates import ThrottleSide
from kafka_steward.journal.records import MoveState, PlanRecord, PlanStatus
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.sandbox import Sandbox
from kafka_steward.settings import Settings
from tests.cancelling import CancelRunner
from tests.eventually import eventually
from tests.manual_plan import plan_by_hand
from tests.simulated_plan import WHO, move
from tests.stepping import step_until, to_the_end
from tests.throttles import rates, set_rates

FOLLOWER = ThrottleSide.FOLLOWER
#: Bytes per second: Kafka lets a fetch through, and then none for the 11 s over which it measures.
STANDSTILL = 1
STALL_S = 7
BEFORE, AFTER = (1, 2, 3), (4, 2, 3)
#: They wait for what Kafka does in its own time.
pytestmark = [pytest.mark.ci, pytest.mark.apart, pytest.mark.usefixtures("clears_rates")]


@pytest.fixture
def run(cluster: KafkaCluster, journal: Journal, tmp_path: Path) -> Callable[..., PlanRunner]:
    def published(moves: Sequence[Move], settings: Settings) -> PlanRunner:
        plan = plan_by_hand(cluster, journal, tmp_path / "plan", moves)
        publish_plan(ClusterContext(cluster, journal, settings, WHO), plan)
        return PlanRunner(ClusterContext(cluster, journal, settings, WHO), plan.digest)

    return published


def moves_of(topic: str, count: int, *, first: int = 0) -> list[Move]:
    return [Move(topic, number, BEFORE, AFTER, 0, first + number, "given") for number in range(count)]


def slow_down(cluster: KafkaCluster, entry: TopicPartition, broker: int, rate: int) -> None:
    """As an administrator does; returns when the broker shows it."""
    listed = ConfigChange(FOLLOWER.replicas_key, ConfigOp.APPEND, f"{entry.partition}:{broker}")
    assert cluster.change_topic_configs({entry.topic: [listed]}) == {entry.topic: None}
    assert set_rates(cluster, FOLLOWER, {broker: rate}) == {broker: None}

    def shown() -> None:
        assert rates(cluster, FOLLOWER, [broker]) == {broker: rate}

    eventually(shown)


def let_go(cluster: KafkaCluster, broker: int) -> None:
    change = ConfigChange(FOLLOWER.rate_key, ConfigOp.DELETE)
    assert cluster.change_broker_configs({broker: [change]}) == {broker: None}


# stalled: one partition copies nothing, the others do


@pytest.fixture
def hung(sandbox: Sandbox, cluster: KafkaCluster, topic: str) -> TopicPartition:
    """A partition of which Kafka copies nothing to broker 4 for 11 s at a time, and a topic of small ones beside it."""
    hung = TopicPartition(f"{topic}-hung", 0)
    sandbox.create_topics(hung.topic, assignments={0: BEFORE})
    sandbox.create_topics(topic, assignments=dict.fromkeys(range(3), BEFORE))
    sandbox.fill(hung.topic, 8_000_000)
    sandbox.fill(topic, 300_000)
    slow_down(cluster, hung, 4, STANDSTILL)
    return hung


def stalling(run: Callable[..., PlanRunner], hung: TopicPartition, topic: str, when_stalled: str) -> PlanRunner:
    moves = [*moves_of(hung.topic, 1), *moves_of(topic, 3, first=1)]
    return run(moves, Settings(min_free=0, throttle=0, stall_after=STALL_S, when_stalled=when_stalled))


@pytest.mark.in_ci("kraft")
def test_236_a_stalled_partition_is_named_and_fails_the_run_while_the_rest_goes_on(
    run: Callable[..., PlanRunner], cluster: KafkaCluster, hung: TopicPartition, topic: str
) -> None:
    runner = stalling(run, hung, topic, "fail")
    progress = step_until(runner, lambda each: each.stops)
    assert (progress.completed, progress.in_flight) == (3, 1)
    assert progress.stalled == (hung,)
    assert f"{hung} made no progress for {STALL_S} s." in progress.sentence
    # Another try of the task goes on.
    let_go(cluster, 4)
    assert step_until(runner, lambda each: each.ended).completed == 4


@pytest.mark.in_ci("zookeeper")
def test_236_a_stalled_partition_can_be_waited_for_while_the_rest_goes_on(
    run: Callable[..., PlanRunner], cluster: KafkaCluster, hung: TopicPartition, topic: str
) -> None:
    runner = stalling(run, hung, topic, "wait")
    progress = step_until(runner, lambda each: bool(each.stalled))
    assert (progress.completed, progress.in_flight) == (3, 1)
    assert (progress.stalled, progress.stops) == ((hung,), False)
    let_go(cluster, 4)
    progress = step_until(runner, lambda each: each.ended)
    assert (progress.status, progress.completed) == (PlanStatus.COMPLETED, 4)


@pytest.mark.in_ci("kraft")
def test_236_a_stalled_partition_can_be_cancelled_on_its_own_while_the_rest_goes_on(
    run: Callable[..., PlanRunner], cluster: KafkaCluster, journal: Journal, hung: TopicPartition, topic: str
) -> None:
    progress = step_until(stalling(run, hung, topic, "cancel"), lambda each: each.ended)
    assert (progress.status, progress.completed, progress.dropped) == (PlanStatus.COMPLETED, 3, 1)
    found = {name: each.replicas for name, each in cluster.snapshot([hung.topic, topic]).partitions.items()}
    assert found.pop(hung) == BEFORE, "in its order"
    assert set(found.values()) == {AFTER}
    details = {row.topic_partition: row.detail for row in journal.plans.rows(progress.digest)}
    assert "it made no progress, and this move alone was cancelled" in details[hung]


# a throttle below what producers write


@contextmanager
def producing(sandbox: Sandbox, topic: str) -> Iterator[None]:
    """Some hundred kilobytes a second, acknowledged by the whole ISR."""
    over = threading.Event()

    def write() -> None:
        while not over.wait(0.5):
            sandbox.fill(topic, 400_000)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join(timeout=90)


@pytest.mark.in_ci("zookeeper")
def test_a_throttle_below_what_producers_write_is_detected_and_said_with_the_rate_that_would_do(
    run: Callable[..., PlanRunner], sandbox: Sandbox, cluster: KafkaCluster, journal: Journal, topic: str
) -> None:
    throttle = 50_000
    sandbox.create_topics(topic, assignments={0: BEFORE})
    sandbox.fill(topic, 2_000_000)
    runner = run(moves_of(topic, 1), Settings(min_free=0, throttle=throttle, stall_after=20, when_stalled="wait"))
    with producing(sandbox, topic):
        progress = step_until(runner, lambda each: "will not catch up" in each.sentence, within=120)
        assert f"{topic}-0 will not catch up at a throttle of {throttle:,} bytes/s: it fell " in progress.sentence
        rate = int(progress.sentence.split("; ")[1].split()[0].replace(",", ""))
        assert progress.sentence.endswith(f"; {rate:,} bytes/s into broker 4 would be enough.")
        assert rate > throttle
    change_plan_throttle(journal, progress.digest, 50_000_000, WHO, "that would not do")
    assert step_until(runner, lambda each: each.ended, within=120).completed == 1
    assert rates(cluster, FOLLOWER, [4]) == {4: None}


@pytest.mark.in_ci("kraft")
def test_a_changed_throttle_reaches_its_broker_within_two_steps_and_what_someone_clears_is_set_again(
    run: Callable[..., PlanRunner], sandbox: Sandbox, cluster: KafkaCluster, journal: Journal, topic: str
) -> None:
    sandbox.create_topics(topic, assignments={0: BEFORE})
    sandbox.fill(topic, 4_000_000)
    # Slow at the leaders' side, too, which is not ours: else all is copied in the moment without our throttle.
    leaders = {topic: [ConfigChange(ThrottleSide.LEADER.replicas_key, ConfigOp.SET, "0:1,0:2,0:3")]}
    assert cluster.change_topic_configs(leaders) == {topic: None}
    assert set_rates(cluster, ThrottleSide.LEADER, dict.fromkeys(BEFORE, 30_000)) == dict.fromkeys(BEFORE)
    runner = run(moves_of(topic, 1), Settings(min_free=0, throttle=30_000))
    digest = runner.step().digest
    assert rates(cluster, FOLLOWER, [4]) == {4: 30_000}
    change_plan_throttle(journal, digest, 20_000, WHO, "peak hour")
    for _ in range(2):
        runner.step()
    assert rates(cluster, FOLLOWER, [4]) == {4: 20_000}

    # What `kafka-reassign-partitions --verify` of somebody else does to the topics and brokers that it names.
    cluster.change_topic_configs({topic: [ConfigChange(FOLLOWER.replicas_key, ConfigOp.DELETE)]})
    let_go(cluster, 4)
    for _ in range(2):
        runner.step()
    assert rates(cluster, FOLLOWER, [4]) == {4: 20_000}
    assert cluster.topic_configs([topic], [FOLLOWER.replicas_key], own_only=True) == {
        topic: {FOLLOWER.replicas_key: "0:4"}
    }

    change_plan_throttle(journal, digest, 0, WHO, "it may hurry")
    assert set_rates(cluster, ThrottleSide.LEADER, dict.fromkeys(BEFORE, 100_000_000)) == dict.fromkeys(BEFORE)
    assert step_until(runner, lambda each: each.ended, within=120).completed == 1
    assert rates(cluster, FOLLOWER, [4]) == {4: None}
    assert cluster.topic_configs([topic], [FOLLOWER.replicas_key], own_only=True) == {topic: {}}


# a partition outside the plan is under its min ISR


@pytest.mark.in_ci("zookeeper")
def test_submission_stops_while_a_partition_outside_the_plan_is_under_its_min_isr_and_goes_on_after(
    run: Callable[..., PlanRunner], sandbox: Sandbox, cluster: KafkaCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The setting is changed while the plan runs, and the next step is to know of it.
    monkeypatch.setattr(preflight_inputs, "_STRAIN_MS", 0)
    monkeypatch.setattr(preflight_inputs, "_FACTS_MS", 0)
    outside = TopicPartition(f"{topic}-outside", 0)
    sandbox.create_topics(topic, assignments=dict.fromkeys(range(3), BEFORE))
    sandbox.create_topics(outside.topic, assignments={0: (1, 3)})
    leave_behind(sandbox, cluster, outside, 3)
    sandbox.wait_replicated([topic])
    runner = run(moves_of(topic, 3), Settings(min_free=0, throttle=0, max_in_flight=1))
    assert runner.step().in_flight == 1
    want_in_sync(cluster, outside.topic, 2)

    progress = step_until(runner, lambda each: (each.completed, len(each.held)) == (1, 2))
    assert {held.code for held in progress.held} == {HoldReason.UNDER_MIN_ISR_ELSEWHERE}
    assert f"{outside}, outside this plan, has fewer replicas in sync than min.insync.replicas" in progress.sentence
    for _ in range(5):
        progress = runner.step()
        assert (progress.completed, progress.in_flight, progress.waiting) == (1, 0, 2)
    let_go(cluster, 3)
    progress = step_until(runner, lambda each: each.ended)
    assert (progress.status, progress.completed) == (PlanStatus.COMPLETED, 3)
    assert cluster.snapshot([outside.topic]).partitions[outside].isr == {1, 3}


def leave_behind(sandbox: Sandbox, cluster: KafkaCluster, partition: TopicPartition, broker: int) -> None:
    """Let `broker` live without being in sync: it fetches 1 MB in 11 s, so for six minutes."""
    slow_down(cluster, partition, broker, STANDSTILL)
    sandbox.kill(broker)

    def isr_without() -> None:
        assert broker not in cluster.snapshot([partition.topic]).partitions[partition].isr

    eventually(isr_without, within=60)
    sandbox.fill(partition.topic, 36_000_000)
    sandbox.restart(broker)
    isr_without()


def want_in_sync(cluster: KafkaCluster, topic: str, replicas: int) -> None:
    key, value = "min.insync.replicas", str(replicas)
    assert cluster.change_topic_configs({topic: [ConfigChange(key, ConfigOp.SET, value)]}) == {topic: None}

    def shown() -> None:
        assert cluster.topic_configs([topic], [key]) == {topic: {key: value}}

    eventually(shown)


#: Bytes per second. The large partition would take a minute at the first, and takes some seconds at the second.
STRICT, LENIENT = 100_000, 1_000_000
#: Fewer than both have together: the small partitions of the first, and one of the second, which moves three.
MOST_INTO_A_BROKER = 3
#: Partitions of the small topic, and the rate; the last plan has the large partition, too, and ends last.
PLANS = {"b" * 64: (range(2), STRICT), "a" * 64: (range(2, 4), LENIENT)}


def settings_of(digest: str) -> Settings:
    rate = PLANS[digest][1]
    return Settings(min_free=0, throttle=rate, max_in_per_broker=MOST_INTO_A_BROKER, step_interval=0.3, stall_after=60)


def run_alone(bootstrap: str, journal_url: str, digest: str) -> PlanStatus:
    """Step a plan to its end as a process of its own does, with its own connections."""
    settings = settings_of(digest)
    with (
        KafkaCluster({"bootstrap_servers": bootstrap}) as cluster,
        open_journal(journal_url, cluster.cluster_id) as journal,
    ):
        runner = PlanRunner(ClusterContext(cluster, journal, settings, WHO), digest)
        return run_to_end(runner.step, time.sleep, DrivePolicy(interval_s=lambda: settings.step_interval)).status


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
            running.append(processes.submit(run_alone, sandbox.bootstrap, url, digest))
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


SLOW_RATE, FASTER_RATE = 100_000, 150_000
RULES = Settings(min_free=0, throttle=SLOW_RATE)


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
    eventually(lambda: _assert_everywhere(runner, cluster, sandbox, SLOW_RATE), within=30)

    began_s = time.monotonic()
    change_plan_throttle(journal, digest, FASTER_RATE, WHO, "the night is quiet")
    for _ in range(2):
        runner.step()
    assert rates(cluster, ThrottleSide.FOLLOWER, list(sandbox.brokers)) == dict.fromkeys(sandbox.brokers, FASTER_RATE)
    print(f"everywhere after {time.monotonic() - began_s:.2f} s of two steps")

    to_the_end(CancelRunner(cluster, journal, digest, RULES, WHO, scope="pending", reason="seen enough"))
    eventually(lambda: _assert_rates(cluster, sandbox, None), within=30)


def _assert_everywhere(runner: PlanRunner, cluster: KafkaCluster, sandbox: Sandbox, rate: int) -> None:
    runner.step()
    _assert_rates(cluster, sandbox, rate)


def _assert_rates(cluster: KafkaCluster, sandbox: Sandbox, rate: int | None) -> None:
    assert rates(cluster, ThrottleSide.FOLLOWER, list(sandbox.brokers)) == dict.fromkeys(sandbox.brokers, rate)
