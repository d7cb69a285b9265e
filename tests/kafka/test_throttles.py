"""Throttles on real brokers: lent and given back without touching what others wrote."""

from __future__ import annotations

from functools import partial

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster import configs
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.cluster.throttles import (
    LeasedRate,
    Returned,
    Side,
    add_entries,
    entries,
    entries_to_add,
    listed,
    rates,
    remove_entries,
    restore_rates,
    set_rates,
)
from kafka_steward.sandbox import Sandbox
from tests.eventually import eventually

FOLLOWER = Side.FOLLOWER

pytestmark = pytest.mark.usefixtures("clears_rates")


def test_our_entries_come_and_go_and_those_of_others_stay(sandbox: Sandbox, cluster: KafkaCluster, topic: str) -> None:
    sandbox.create_topics(topic, assignments={0: [1, 2], 1: [1, 2]})
    write(cluster, topic, "1:3,0:4")
    wanted = entries({TopicPartition(topic, 0): [3, 4]})
    ours = {topic: ("0:3",)}
    # Any broker may be asked, and hears of a change in its own time.
    eventually(lambda: same(entries_to_add(cluster, FOLLOWER, wanted), ours))
    assert add_entries(cluster, FOLLOWER, ours) == {topic: None}
    eventually(lambda: same(in_list(cluster, topic), {"1:3", "0:4", "0:3"}))
    assert remove_entries(cluster, FOLLOWER, ours) == {topic: None}
    eventually(lambda: same(in_list(cluster, topic), {"1:3", "0:4"}))
    assert remove_entries(cluster, FOLLOWER, ours) == {topic: None}
    eventually(lambda: same(in_list(cluster, topic), {"1:3", "0:4"}))


def test_a_star_that_somebody_wrote_stays(sandbox: Sandbox, cluster: KafkaCluster, topic: str) -> None:
    sandbox.create_topics(topic, assignments={0: [1, 2]})
    write(cluster, topic, "*")
    wanted = {topic: ("0:3",)}
    eventually(lambda: same(entries_to_add(cluster, FOLLOWER, wanted), {}))
    refused = add_entries(cluster, FOLLOWER, wanted)[topic]
    assert refused is not None
    assert "must be the literal '*'" in refused.message
    assert remove_entries(cluster, FOLLOWER, wanted) == {topic: None}
    eventually(lambda: same(in_list(cluster, topic), {"*"}))


def test_nothing_is_owed_to_a_topic_that_is_gone(cluster: KafkaCluster, topic: str) -> None:
    assert entries_to_add(cluster, FOLLOWER, {topic: ["0:1"]}) == {}
    assert remove_entries(cluster, FOLLOWER, {topic: ["0:1"]}) == {topic: None}


def test_a_rate_goes_back_to_what_it_was_and_one_that_others_changed_stays(cluster: KafkaCluster) -> None:
    set_rates(cluster, FOLLOWER, {2: 7_000_000})
    # At once: a broker of a ZooKeeper cluster would act by its old rate until it shows the new one.
    assert rates(cluster, FOLLOWER, [1, 2, 3]) == {1: None, 2: 7_000_000, 3: None}
    owed = {broker: LeasedRate(1_000_000, before) for broker, before in rates(cluster, FOLLOWER, [1, 2, 3]).items()}
    assert set_rates(cluster, FOLLOWER, dict.fromkeys(owed, 1_000_000)) == dict.fromkeys(owed)
    assert rates(cluster, FOLLOWER, [1, 2, 3]) == dict.fromkeys(owed, 1_000_000)
    set_rates(cluster, FOLLOWER, {3: 9_000_000})
    assert rates(cluster, FOLLOWER, [3]) == {3: 9_000_000}
    assert restore_rates(cluster, FOLLOWER, owed) == {
        1: Returned.RESTORED,
        2: Returned.RESTORED,
        3: Returned.LEFT_ALONE,
    }
    assert rates(cluster, FOLLOWER, [1, 2, 3]) == {1: None, 2: 7_000_000, 3: 9_000_000}
    assert rates(cluster, Side.LEADER, [1]) == {1: None}


def test_a_rate_for_all_brokers_is_not_taken_for_a_brokers_own(cluster: KafkaCluster) -> None:
    def set_for_all(change: ConfigChange) -> None:
        request = partial(configs.change_request, configs.BROKER, {"": [change]})
        assert configs.changed(cluster._calls.on_controller(request, change=True)) == {"": None}

    set_for_all(ConfigChange(FOLLOWER.rate_key, ConfigOp.SET, "5000000"))
    try:
        eventually(lambda: same(cluster.broker_configs([1], [FOLLOWER.rate_key]), {1: {FOLLOWER.rate_key: "5000000"}}))
        assert rates(cluster, FOLLOWER, [1]) == {1: None}
    finally:
        set_for_all(ConfigChange(FOLLOWER.rate_key, ConfigOp.DELETE))


def write(cluster: KafkaCluster, topic: str, value: str) -> None:
    change = ConfigChange(FOLLOWER.replicas_key, ConfigOp.SET, value)
    assert cluster.change_topic_configs({topic: [change]}) == {topic: None}
    eventually(lambda: same(in_list(cluster, topic), set(listed(value))))


def in_list(cluster: KafkaCluster, topic: str) -> set[str]:
    return set(listed(cluster.topic_configs([topic], [FOLLOWER.replicas_key])[topic][FOLLOWER.replicas_key]))


def same(found: object, expected: object) -> None:
    assert found == expected
