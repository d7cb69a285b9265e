"""Moves and cancels of partitions with a replica that lags, or whose broker is gone, on real clusters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafka_steward.assignment import Assignment, Move, TopicPartition
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.cluster.state import Partition
from kafka_steward.execution.plans.lifecycle import request_cancel
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.plans.undo_verification import verify_undone
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.throttles.rates import ThrottleSide
from kafka_steward.journal.audit import Action, Actor
from kafka_steward.journal.records import PlanStatus
from kafka_steward.journal.store import Journal
from kafka_steward.sandbox import Sandbox
from kafka_steward.settings import Settings
from tests.eventually import eventually
from tests.manual_plan import plan_by_hand
from tests.stepping import step_until, to_the_end

WHO = Actor(person="ada")
LEADER = ThrottleSide.LEADER

pytestmark = pytest.mark.usefixtures("clears_rates")


@dataclass(frozen=True)
class Site:
    """One partition of a topic, whose replicas may be slowed."""

    sandbox: Sandbox
    cluster: KafkaCluster
    journal: Journal
    folder: Path
    topic: str

    def partition(self) -> Partition:
        return self.cluster.snapshot([self.topic]).partitions[TopicPartition(self.topic, 0)]

    def verify(self, replicas: Assignment, leader: int, isr: Sequence[int] | None = None) -> None:
        found = self.partition()
        assert (found.replicas, found.leader, found.reassigning) == (replicas, leader, False)
        assert isr is None or found.isr == frozenset(isr)

    def fill_without(self, broker: int, *, bytes_: int) -> None:
        """Produce while this broker is dead, and let it catch up with nothing: the leaders send 1 byte/s."""
        leaders = [each for each in self.partition().replicas if each != broker]
        listed = ",".join(f"0:{leader}" for leader in leaders)
        self.cluster.change_topic_configs({self.topic: [ConfigChange(LEADER.replicas_key, ConfigOp.SET, listed)]})
        slow = [ConfigChange(LEADER.rate_key, ConfigOp.SET, "1")]
        self.cluster.change_broker_configs(dict.fromkeys(leaders, slow))
        self.sandbox.kill(broker)
        eventually(lambda: self.verify_isr_lacks(broker), within=30)
        self.sandbox.fill(self.topic, bytes_)
        self.sandbox.restart(broker)

    def verify_isr_lacks(self, broker: int) -> None:
        assert broker not in self.partition().isr

    def apply(self, before: Assignment, after: Assignment, *, throttle: int = 50_000_000) -> PlanRunner:
        settings = Settings(min_free=0, throttle=throttle)
        moves = [Move(self.topic, 0, before, after, 0, 0, "given")]
        plan = plan_by_hand(self.cluster, self.journal, self.folder / "plan", moves)
        context = ClusterContext(self.cluster, self.journal, settings, WHO)
        publish_plan(context, plan)
        return PlanRunner(context, plan.digest)

    def end_of_log(self, broker: int) -> int:
        name = TopicPartition(self.topic, 0)
        # A broker that has just restarted does not answer at once.
        return eventually(lambda: self.cluster.log_ends({broker: [name]})[name, broker])


@pytest.fixture
def site_of(
    sandbox: Sandbox, cluster: KafkaCluster, journal: Journal, topic: str, tmp_path: Path
) -> Callable[..., Site]:
    def made(replicas: Assignment, **configs: str) -> Site:
        named = {key.replace("_", "."): value for key, value in configs.items()}
        sandbox.create_topics(topic, assignments={0: replicas}, configs=named)
        sandbox.fill(topic, 1_000_000)
        return Site(sandbox, cluster, journal, tmp_path, topic)

    return made


@pytest.mark.in_ci("kraft")
@pytest.mark.ci
def test_no_new_replica_is_elected_before_one_that_has_more(site_of: Callable[..., Site]) -> None:
    site = site_of((1, 2), unclean_leader_election_enable="true")
    site.fill_without(2, bytes_=4_000_000)
    runner = site.apply((1, 2), (3, 1), throttle=100_000)
    step_until(runner, lambda progress: progress.in_flight == 1)
    assert site.partition().replicas == (1, 2, 3), "the new one comes last"
    kept = site.end_of_log(2)
    assert 0 < kept < site.end_of_log(1)
    site.sandbox.kill(1)
    eventually(lambda: site_leader(site, 2), within=30)
    assert site.end_of_log(2) >= kept
    clear_rates(site)
    site.sandbox.restart(1)
    assert to_the_end(runner, within_s=120).status is PlanStatus.COMPLETED
    assert (site.partition().replicas, site.end_of_log(3) >= kept) == ((3, 1), True)
    stages = [row.entry.after for row in site.journal.audit.rows(topic=site.topic, action=Action.SUBMIT)]
    assert stages[-1] == [3, 1]
    assert [1, 2, 3] in stages


@pytest.mark.in_ci("zookeeper")
@pytest.mark.ci
def test_a_lowered_replication_factor_puts_no_replica_before_one_that_has_more(site_of: Callable[..., Site]) -> None:
    site = site_of((1, 2, 3), unclean_leader_election_enable="true")
    site.fill_without(3, bytes_=4_000_000)
    site.fill_without(2, bytes_=500_000)
    kept = site.end_of_log(2)
    assert site.end_of_log(3) < kept < site.end_of_log(1)
    runner = site.apply((1, 2, 3), (1, 3))
    (held,) = runner.step().held
    assert "its replica on broker 3 is out of sync" in held.sentence
    site.sandbox.kill(1)
    eventually(lambda: site_leader(site, 2), within=30)
    assert site.end_of_log(2) >= kept
    clear_rates(site)
    site.sandbox.restart(1)
    assert to_the_end(runner, within_s=120).status is PlanStatus.COMPLETED
    assert (site.partition().replicas, site.end_of_log(3) >= kept) == ((1, 3), True)


def site_leader(site: Site, leader: int) -> None:
    assert site.partition().leader == leader


def clear_rates(site: Site) -> None:
    clear = [ConfigChange(LEADER.rate_key, ConfigOp.DELETE)]
    site.cluster.change_broker_configs(dict.fromkeys(sorted(site.cluster.live_brokers()), clear))
    gone = [ConfigChange(LEADER.replicas_key, ConfigOp.DELETE)]
    site.cluster.change_topic_configs({site.topic: gone})


@pytest.mark.in_ci("zookeeper")
@pytest.mark.ci
def test_the_cancel_of_a_lowered_replication_factor_ends_once_kafka_is_back(site_of: Callable[..., Site]) -> None:
    site = site_of((4, 2, 3))
    site.fill_without(4, bytes_=8_000_000)
    runner = site.apply((4, 2, 3), (4, 2))
    step_until(runner, lambda progress: progress.in_flight == 1)
    assert site.partition().removing == (3,)
    for _ in range(3):
        assert runner.step().in_flight == 1, "Kafka waits for broker 4"
    request_cancel(site.journal, runner.step().digest, who=WHO, reason="test")
    ended = to_the_end(runner, within_s=30)
    assert (ended.status, ended.dropped) == (PlanStatus.CANCELLED, 1)
    site.verify((4, 2, 3), leader=site.partition().leader or 0, isr=(2, 3))
    assert verify_undone(site.cluster, site.journal, ended.digest).ok
    clear_rates(site)


@pytest.mark.ci
def test_a_cancel_ends_although_a_broker_of_the_originals_was_unregistered(
    kraft_sandbox: Sandbox, site_of: Callable[..., Site]
) -> None:
    site = site_of((4, 1))
    site.sandbox.fill(site.topic, 5_000_000)
    runner = site.apply((4, 1), (2, 1), throttle=20_000)
    step_until(runner, lambda progress: progress.in_flight == 1)
    kraft_sandbox.kill(4)
    eventually(lambda: site_leader(site, 1), within=30)
    tool = "org.apache.kafka.tools.ClusterTool"
    kraft_sandbox.kafka_tool(tool, "unregister", "--bootstrap-server", live_servers(kraft_sandbox, but=4), "--id", "4")
    request_cancel(site.journal, runner.step().digest, who=WHO, reason="test")
    ended = to_the_end(runner, within_s=30)
    assert (ended.status, ended.dropped) == (PlanStatus.CANCELLED, 1)
    site.verify((1, 4), leader=1)
    found = verify_undone(site.cluster, site.journal, ended.digest)
    assert (found.ok, found.throttles) == (True, ())
    (left,) = found.left_alone
    assert "Kafka refuses its original ones, [4, 1], because broker 4 is not registered" in left.why
    assert site.journal.slot.holders() == ()


def live_servers(sandbox: Sandbox, *, but: int) -> str:
    return ",".join(f"127.0.0.1:{each.port}" for id_, each in sandbox.brokers.items() if id_ != but)
