"""True lag, in messages and bytes, of a move that is slowed down enough to look at it."""

from __future__ import annotations

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.state import bytes_missing, lag, partitions_by_broker
from kafka_steward.execution.throttle_rates import ThrottleSide
from kafka_steward.sandbox import Sandbox
from kafka_steward.sandbox.client import admin_client
from tests.eventually import eventually
from tests.throttles import add_entries, entries, rates, set_rates

pytestmark = pytest.mark.usefixtures("clears_rates")


@pytest.mark.in_ci("kraft")
def test_true_lag_is_seen_where_kafkas_offset_lag_says_none(
    sandbox: Sandbox, cluster: KafkaCluster, topic: str
) -> None:
    name = TopicPartition(topic, 0)
    sandbox.create_topics(topic, assignments={0: [1, 2, 3]})
    sent = sandbox.fill(topic, 8_000_000)
    add_entries(cluster, ThrottleSide.FOLLOWER, entries({name: [4]}))
    set_rates(cluster, ThrottleSide.FOLLOWER, {4: 300_000})
    eventually(lambda: same(rates(cluster, ThrottleSide.FOLLOWER, [4]), {4: 300_000}))
    assert cluster.alter({name: (4, 2, 3)}) == {name: None}

    def begun() -> tuple[int, int]:
        partition = cluster.snapshot([topic]).partitions[name]
        behind = lag(cluster.log_ends(partitions_by_broker([partition])), partition, 4)
        missing = bytes_missing(cluster.log_dirs([1, 2, 3, 4]), partition, 4)
        assert behind is not None
        assert missing is not None
        assert missing < sent
        return behind, missing

    behind, missing = eventually(begun)
    assert behind > 0
    assert missing > sent // 4
    assert offset_lag(sandbox, topic, 4) == 0

    def progressing() -> None:
        now, left = begun()
        assert (now < behind, left < missing) == (True, True)

    eventually(progressing)
    set_rates(cluster, ThrottleSide.FOLLOWER, {4: 1_000_000_000})

    def caught_up() -> None:
        partition = cluster.snapshot([topic]).partitions[name]
        assert partition.isr == {2, 3, 4}
        assert lag(cluster.log_ends(partitions_by_broker([partition])), partition, 4) == 0
        assert bytes_missing(cluster.log_dirs([2, 3, 4]), partition, 4) == 0

    eventually(caught_up)


def test_every_replica_tells_its_own_end_and_brokers_without_one_are_left_out(
    sandbox: Sandbox, cluster: KafkaCluster, topic: str
) -> None:
    name = TopicPartition(topic, 0)
    sandbox.create_topics(topic, assignments={0: [1, 2, 3]})
    sandbox.fill(topic, 100_000)
    ends = cluster.log_ends({broker: [name] for broker in [1, 2, 3, 4, 99]})
    assert set(ends) == {(name, 1), (name, 2), (name, 3)}
    assert len(set(ends.values())) == 1
    assert min(ends.values()) > 0


def offset_lag(sandbox: Sandbox, topic: str, broker: int) -> int:
    """What DescribeLogDirs says of the topic's one replica on `broker`."""
    with admin_client(sandbox.bootstrap) as client:
        (answer,) = client.describe_log_dirs({topic: [0]}, [broker])
    (told,) = [p["offset_lag"] for d in answer["log_dirs"] for t in d["topics"] for p in t["partitions"]]
    return int(told)


def same(found: object, expected: object) -> None:
    assert found == expected
