"""Every workflow on a cluster as years leave it: what can be mended is mended, the rest is named, nothing hangs.

The tests build on one another, in this order, on one cluster. What others have set or begun is compared after each of
them with what it was.
"""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient

from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.sandbox.neglected import CORDONED, FULL_DISK, STUCK, Neglected
from tests.cli.airflow_command import throttles

pytestmark = [pytest.mark.apart, pytest.mark.ci, pytest.mark.in_ci("kraft")]

_TOPICS = "org.apache.kafka.tools.TopicCommand"
_REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
_CONFIGS = "kafka.admin.ConfigCommand"
IN_FLIGHT = f"foreign-0: replicas: 1,{STUCK},2. adding: {STUCK}. removing: 2."
#: What Kafka's own tool says of what others have set.
THROTTLES = {
    "topic stuck": {"follower.replication.throttled.replicas": f"0:{STUCK}"},
    "topic foreign": {"follower.replication.throttled.replicas": f"0:{STUCK}"},
    "topic throttled-once": {
        "follower.replication.throttled.replicas": "0:2,0:4",
        "leader.replication.throttled.replicas": "*",
    },
    f"broker {STUCK}": {"follower.replication.throttled.rate": "1"},
    "broker 6": {"leader.replication.throttled.rate": "4000000"},
    "brokers in the cluster": {"follower.replication.throttled.rate": "20000000"},
}


def tool(neglected: Neglected, main_class: str, *words: str) -> str:
    return neglected.sandbox.kafka_tool(main_class, "--bootstrap-server", neglected.sandbox.live_bootstrap, *words)


def test_it_is_what_it_is_said_to_be(neglected: Neglected) -> None:
    """By Kafka's own tools."""
    sandbox, kraft = neglected.sandbox, neglected.sandbox.mode == "kraft"
    lines = tool(neglected, _TOPICS, "--describe", "--under-replicated-partitions").splitlines()
    described = [dict(word.split(": ", 1) for word in line.strip().split("\t") if ": " in word) for line in lines]
    behind = {f"{each['Topic']}-{each['Partition']}": each for each in described}
    ghosts = ["__amazon_msk_canary-7", "__amazon_msk_canary-8", *(f"orders-{number}" for number in (4, 5, 6, 7))]
    # With ZooKeeper, the last replica in sync stays in the ISR when its broker dies.
    assert sorted(behind) == sorted([*ghosts, *(["lost-0"] if kraft else []), "stuck-0", "wide-0"])
    assert (behind["orders-7"]["Isr"], behind["stuck-0"]["Isr"]) == ("2", "1")
    assert behind["orders-7"]["Elr"] in ({"8", "9"} if kraft else {"N/A"})
    assert "Topic: lost\t" in tool(neglected, _TOPICS, "--describe", "--unavailable-partitions")
    assert IN_FLIGHT in tool(neglected, _REASSIGN, "--list")
    assert throttles(sandbox) == THROTTLES
    of_broker = ("--describe", "--all", "--entity-type", "brokers", "--entity-name")
    configs = tool(neglected, _CONFIGS, *of_broker, str(FULL_DISK))
    of_file = "{STATIC_BROKER_CONFIG:leader.replication.throttled.rate=10000000}"
    assert (of_file in configs, "min.insync.replicas=2 " in configs) == (True, True)
    assert ("cordoned.log.dirs=*" in tool(neglected, _CONFIGS, *of_broker, str(CORDONED))) == kraft
    with KafkaCluster({"bootstrap_servers": sandbox.live_bootstrap}) as cluster:
        disks = [disk for each in cluster.log_dirs([FULL_DISK]).values() for disk in each.directories]
        full = min(disks, key=lambda disk: disk.usable_bytes or 0)
        assert len(full.replica_bytes) == 1 < len(next(each for each in disks if each is not full).replica_bytes)
        assert ("No disk is full" in " ".join(neglected.lacks)) == ((full.usable_bytes or 0) > 3_000_000)
    if not kraft:
        zookeeper = KazooClient(hosts=sandbox.zookeeper)
        zookeeper.start(timeout=30)
        assert zookeeper.get_children("/admin/delete_topics") == ["doomed"]
        zookeeper.stop()
        zookeeper.close()
