"""What the tests on a neglected cluster share: what others have left there, and what cannot be repaired."""

from __future__ import annotations

from kafka_steward.assignment import Assignment
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.sandbox.neglected import STUCK, Neglected
from tests.cli.airflow_command import throttles
from tests.eventually import eventually

__all__ = [
    "CANARY",
    "DELETED",
    "LEFT",
    "SETTINGS",
    "Seen",
    "assert_as_others_left_it",
    "assert_foreign_in_flight",
    "tool",
]

_REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
_IN_FLIGHT = f"foreign-0: replicas: 1,{STUCK},2. adding: {STUCK}. removing: 2."
#: What Kafka's own tool says of what others have set.
_THROTTLES = {
    "topic stuck": {"leader.replication.throttled.replicas": "0:1"},
    "topic foreign": {"leader.replication.throttled.replicas": "0:1"},
    "topic throttled-once": {
        "follower.replication.throttled.replicas": "0:2,0:4",
        "leader.replication.throttled.replicas": "*",
    },
    "broker 1": {"leader.replication.throttled.rate": "1"},
    f"broker {STUCK}": {"follower.replication.throttled.rate": "4000000"},
    "brokers in the cluster": {"follower.replication.throttled.rate": "20000000"},
}
CANARY = "__amazon_msk_canary"
#: What no plan can repair: it is left out, and named.
LEFT = {"lost-0", "stuck-0", "wide-0"}
#: With ZooKeeper its deletion waits for a broker that is dead for good.
DELETED = {"doomed-0"}
SETTINGS = {
    "bootstrap_timeout_ms": 10_000,
    "step_interval": 0.3,
    "heal_failure_interval": 2,
    "max_attempts": 20,
    "stuck_after": 1,
    # Two of nine are gone. With a third one it would be an outage, if those two still counted.
    "max_failed_fraction": 0.25,
}


class Seen:
    """What Kafka says."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self.cluster = cluster

    def at(self, topic: str) -> dict[int, Assignment]:
        """Replicas by partition, at rest and by all brokers."""

        def at_rest() -> dict[int, Assignment]:
            snapshot = self.cluster.snapshot([topic])
            assert snapshot.reassigning == {}
            return {name.partition: each.replicas for name, each in snapshot.partitions.items()}

        return eventually(at_rest)

    def holds(self, broker: int) -> set[str]:
        snapshot = self.cluster.snapshot()
        return {str(name) for name, each in snapshot.partitions.items() if broker in each.replicas} - DELETED

    def behind(self) -> set[str]:
        # With ZooKeeper, the ISR keeps the last replica in sync although its broker is dead.
        found = self.cluster.snapshot().partitions.items()
        return {str(name) for name, each in found if each.under_replicated or each.leader is None} - DELETED


def tool(neglected: Neglected, main_class: str, *words: str) -> str:
    return neglected.sandbox.kafka_tool(main_class, "--bootstrap-server", neglected.sandbox.live_bootstrap, *words)


def assert_foreign_in_flight(neglected: Neglected) -> None:
    assert _IN_FLIGHT in tool(neglected, _REASSIGN, "--list")


def assert_as_others_left_it(neglected: Neglected) -> None:
    """By Kafka's own tools."""
    assert_foreign_in_flight(neglected)
    assert throttles(neglected.sandbox) == _THROTTLES
