"""Leaders that are made even, a broker that is demoted, taken back and promoted, on real brokers, without a copy."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from kafka_steward.assignment import Assignment
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.state import Partition
from kafka_steward.execution.demotions import demoted_brokers, read_demotions
from kafka_steward.execution.effects import elect_preferred_leaders
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.plans.requests import planner_options
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.plans.snapshot import take_snapshot
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.records import PlanStatus
from kafka_steward.journal.store import Journal
from kafka_steward.planning.files.formats import read_snapshot
from kafka_steward.rebalance_request import RebalanceRequest
from kafka_steward.sandbox import Sandbox
from kafka_steward.settings import Settings
from tests.cancelling import CancelRunner
from tests.eventually import eventually
from tests.local_plan import planned
from tests.stepping import to_the_end

WHO = Actor(person="ada")
SETTINGS = Settings(min_free=0, throttle=0)
#: Broker 1 leads six, 2 and 3 one each.
BEFORE = dict.fromkeys(range(6), (1, 2, 3)) | {6: (2, 3, 1), 7: (3, 1, 2)}


class Desk:
    """A real cluster with its journal, on which requests about one topic are executed."""

    def __init__(self, cluster: KafkaCluster, journal: Journal, folder: Path, topic: str) -> None:
        self.cluster, self.journal, self.folder, self.topic = cluster, journal, folder, topic

    def execute(self, operation: str, *brokers: int) -> str:
        """Plan, publish and execute a request, elect the leaders, and return the digest; nothing was copied."""
        where = f"{self.folder}/{operation}-{self.journal.now_ms()}"
        now_ms, demotions = self.journal.now_ms(), read_demotions(self.journal)
        take_snapshot(self.cluster, where, failed=(), now_ms=now_ms, demotions=demotions)
        snapshot = read_snapshot(where)
        request = RebalanceRequest.of({"operation": operation, "brokers": brokers, "topics": [self.topic]})
        plan = planned(snapshot, operation, planner_options(request, snapshot, scheduled=False))
        assert plan.moves
        assert (plan.proof["replicas_moved"], plan.proof["bytes_moved"]) == (0, 0)
        publish_plan(ClusterContext(self.cluster, self.journal, SETTINGS, WHO), plan, snapshot=snapshot)
        context = ClusterContext(self.cluster, self.journal, SETTINGS, WHO)
        assert to_the_end(PlanRunner(context, plan.digest)).status is PlanStatus.COMPLETED
        self.elect()
        return plan.digest

    def elect(self) -> None:
        names = self.cluster.snapshot([self.topic]).partitions
        elect_preferred_leaders(self.cluster, self.journal, who=WHO, partitions=names)

    def orders(self) -> dict[int, Assignment]:
        parts = self.cluster.snapshot([self.topic]).partitions
        return {name.partition: partition.replicas for name, partition in parts.items()}

    def led(self) -> Counter[int | None]:
        return Counter(partition.leader for partition in self.cluster.snapshot([self.topic]).partitions.values())

    def expect_leaders(self, *most: int) -> None:
        """Wait until the brokers 1, 2 and 3 lead that many of the topic, once the preferred leaders lead."""

        def lead() -> None:
            assert all(partition.leader == partition.replicas[0] for partition in self.partitions())
            assert tuple(self.led()[broker] for broker in (1, 2, 3)) == most

        eventually(lead, within=30)

    def assert_even(self) -> None:
        # With ZooKeeper, a broker shows a new leader a moment after the election.
        assert max(self.led().values()) <= 3

    def partitions(self) -> list[Partition]:
        return list(self.cluster.snapshot([self.topic]).partitions.values())


def test_leaders_a_demotion_and_its_two_ends(
    sandbox: Sandbox, cluster: KafkaCluster, journal: Journal, topic: str, tmp_path: Path
) -> None:
    sandbox.create_topics(topic, assignments=BEFORE)
    sandbox.fill(topic, 1_000_000)
    desk = Desk(cluster, journal, tmp_path, topic)
    held = {broker: logs(cluster, broker, topic) for broker in (1, 2, 3, 4)}

    desk.execute("demote", 1)
    desk.expect_leaders(0, 4, 4)
    assert all(order[-1] == 1 for order in desk.orders().values())
    assert demoted_brokers(journal) == {1}
    desk.execute("promote", 1)
    assert desk.orders() == BEFORE
    desk.expect_leaders(6, 1, 1)
    assert demoted_brokers(journal) == set()

    digest = desk.execute("demote", 1)
    undo = CancelRunner(cluster, journal, digest, SETTINGS, WHO, scope="plan", reason="a test")
    assert to_the_end(undo).status is PlanStatus.ROLLED_BACK
    assert desk.orders() == BEFORE
    assert demoted_brokers(journal) == set()

    desk.elect()
    desk.execute("leaders")
    eventually(desk.assert_even, within=30)
    assert {broker: logs(cluster, broker, topic) for broker in (1, 2, 3, 4)} == held


def logs(cluster: KafkaCluster, broker: int, topic: str) -> dict[str, int]:
    """The sizes of the topic's logs on a broker."""
    sizes = cluster.log_dirs([broker])[broker].replica_bytes
    return {str(name): size for name, size in sizes.items() if name.topic == topic}
