"""Throttles on real brokers: leased and released without touching what others wrote."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.configs import BROKER, ConfigChange, ConfigOp, change_configs_request, parse_list
from kafka_steward.doctor.findings import Commands, Level
from kafka_steward.doctor.kafka import controller_findings
from kafka_steward.errors import WrongCluster
from kafka_steward.execution.effects import AuditedCalls
from kafka_steward.execution.throttles.leases import ThrottleLeases
from kafka_steward.execution.throttles.rates import NO_DEMAND, ThrottleDemand, ThrottleSide
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.records import THROTTLE_LEASES
from kafka_steward.journal.store import Journal
from kafka_steward.sandbox import Sandbox
from tests.eventually import eventually
from tests.kafka.cluster_contract import same
from tests.throttles import entries, rates, set_for_all_brokers, set_rates

FOLLOWER = ThrottleSide.FOLLOWER
LIVE = frozenset({1, 2, 3, 4})

pytestmark = pytest.mark.usefixtures("clears_rates")


@pytest.fixture
def leases(cluster: KafkaCluster, journal: Journal) -> ThrottleLeases:
    """The leases of a plan that moves nothing."""
    return leases_of(cluster, journal)


def leases_of(cluster: KafkaCluster, journal: Journal) -> ThrottleLeases:
    return ThrottleLeases(
        cluster, journal, AuditedCalls(journal.audit, None), "f" * 64, attempts=lambda _: {}, who=Actor(person="ada")
    )


def need(topic: str, *brokers: int) -> ThrottleDemand:
    """As if these brokers copied partition 0."""
    wanted = entries({TopicPartition(topic, 0): brokers})
    return ThrottleDemand(
        {(topic, FOLLOWER): frozenset(wanted[topic])}, frozenset((broker, FOLLOWER) for broker in brokers)
    )


def test_our_entries_come_and_go_and_those_of_others_stay(
    sandbox: Sandbox, cluster: KafkaCluster, journal: Journal, leases: ThrottleLeases, topic: str
) -> None:
    sandbox.create_topics(topic, assignments={0: [1, 2], 1: [1, 2]})
    write(cluster, topic, "1:3,0:4")
    leases.acquire(need(topic, 3, 4), 1_000_000)
    eventually(lambda: same(in_list(cluster, topic), {"1:3", "0:4", "0:3"}))
    for _ in range(2):  # what was released is released no second time
        assert leases.release(NO_DEMAND, LIVE) == []
        eventually(lambda: same(in_list(cluster, topic), {"1:3", "0:4"}))
        assert not any("replicas" in row.key.setting for row in journal.rows(THROTTLE_LEASES).all())


def test_a_list_that_is_emptied_entry_by_entry_is_deleted(
    sandbox: Sandbox, cluster: KafkaCluster, leases: ThrottleLeases, topic: str
) -> None:
    sandbox.create_topics(topic, assignments={0: [1, 2]})
    for _ in range(3):
        leases.acquire(need(topic, 3, 4), 1_000_000)
        assert leases.release(need(topic, 4), LIVE) == []
        assert leases.release(NO_DEMAND, LIVE) == []
        assert cluster.topic_configs([topic], [FOLLOWER.replicas_key], own_only=True) == {topic: {}}


def test_a_star_that_somebody_wrote_stays(
    sandbox: Sandbox, cluster: KafkaCluster, leases: ThrottleLeases, topic: str
) -> None:
    sandbox.create_topics(topic, assignments={0: [1, 2]})
    write(cluster, topic, "*")
    leases.acquire(need(topic, 3), 1_000_000)
    eventually(lambda: same(in_list(cluster, topic), {"*"}))
    assert leases.release(NO_DEMAND, LIVE) == []
    eventually(lambda: same(in_list(cluster, topic), {"*"}))


def test_nothing_is_leased_of_a_topic_that_is_gone(
    cluster: KafkaCluster, journal: Journal, leases: ThrottleLeases, topic: str
) -> None:
    leases.acquire(need(topic, 3), 1_000_000)
    assert not any("replicas" in row.key.setting for row in journal.rows(THROTTLE_LEASES).all())
    assert leases.release(NO_DEMAND, LIVE) == []
    assert rates(cluster, FOLLOWER, [3]) == {3: None}


def test_a_rate_goes_back_to_what_it_was_and_one_that_others_changed_stays(
    sandbox: Sandbox, cluster: KafkaCluster, journal: Journal, leases: ThrottleLeases, topic: str
) -> None:
    sandbox.create_topics(topic, assignments={0: [4]})
    set_rates(cluster, FOLLOWER, {2: 7_000_000})
    # At once: a broker of a ZooKeeper cluster would act by its old rate until it shows the new one.
    assert rates(cluster, FOLLOWER, [1, 2, 3]) == {1: None, 2: 7_000_000, 3: None}
    leases.acquire(need(topic, 1, 2, 3), 1_000_000)
    assert rates(cluster, FOLLOWER, [1, 2, 3]) == dict.fromkeys((1, 2, 3), 1_000_000)
    set_rates(cluster, FOLLOWER, {3: 9_000_000})
    assert rates(cluster, FOLLOWER, [3]) == {3: 9_000_000}
    assert leases.release(NO_DEMAND, LIVE) == []
    assert rates(cluster, FOLLOWER, [1, 2, 3]) == {1: None, 2: 7_000_000, 3: 9_000_000}
    assert rates(cluster, ThrottleSide.LEADER, [1]) == {1: None}
    assert not any("rate" in row.key.setting for row in journal.rows(THROTTLE_LEASES).all())


@pytest.mark.parametrize("named", ["{}", "{},127.0.0.1:1", "127.0.0.1:1,{}"], ids=["alone", "before", "after"])
def test_the_rates_of_a_dead_broker_go_back_through_the_controllers_also_if_one_of_them_is_down(
    kraft_sandbox: Sandbox, journal: Journal, topic: str, named: str
) -> None:
    kraft_sandbox.create_topics(topic, assignments={0: [4]})
    servers = {"bootstrap_servers": kraft_sandbox.bootstrap, "request_timeout_ms": 6000}
    with KafkaCluster(servers, controllers=named.format(kraft_sandbox.controllers)) as cluster:
        set_rates(cluster, FOLLOWER, {2: 7_000_000})
        leases = leases_of(cluster, journal)
        leases.acquire(need(topic, 2, 3), 1_000_000)
        for broker in (2, 3):
            kraft_sandbox.kill(broker)
        eventually(lambda: same(set(cluster.live_brokers()), {1, 4}), within=60)
        assert leases.release(NO_DEMAND, LIVE - {2, 3}) == []
        assert not any("rate" in row.key.setting for row in journal.rows(THROTTLE_LEASES).all())
        kraft_sandbox.restore()
        eventually(lambda: same(rates(cluster, FOLLOWER, [2, 3]), {2: 7_000_000, 3: None}), within=60)


@pytest.mark.parametrize("controllers", ["", "127.0.0.1:1"], ids=["not known", "down"])
def test_a_dead_broker_whose_controllers_do_not_answer_keeps_its_lease(
    kraft_sandbox: Sandbox, journal: Journal, topic: str, controllers: str
) -> None:
    kraft_sandbox.create_topics(topic, assignments={0: [4]})
    servers = {"bootstrap_servers": kraft_sandbox.bootstrap, "request_timeout_ms": 3000}
    with KafkaCluster(servers, controllers=controllers) as cluster:
        leases = leases_of(cluster, journal)
        leases.acquire(need(topic, 3), 1_000_000)
        kraft_sandbox.kill(3)
        eventually(lambda: same(set(cluster.live_brokers()), {1, 2, 4}), within=60)
        assert leases.release(NO_DEMAND, LIVE - {3}) == [3]
        kraft_sandbox.restore()
        assert rates(cluster, FOLLOWER, [3]) == {3: 1_000_000}
        assert leases.release(NO_DEMAND, LIVE) == []
        assert rates(cluster, FOLLOWER, [3]) == {3: None}


def test_controllers_of_another_cluster_are_refused_before_a_change(kraft_sandbox: Sandbox) -> None:
    servers = {"bootstrap_servers": kraft_sandbox.bootstrap, "request_timeout_ms": 3000}
    with KafkaCluster(servers, controllers=kraft_sandbox.controllers) as cluster:
        kraft_sandbox.kill(3)
        eventually(lambda: same(set(cluster.live_brokers()), {1, 2, 4}), within=60)
        assert [each.level for each in controller_findings(cluster, Commands("c"))] == [Level.OK]
        cluster._transport.cluster_id = "another"
        (fault,) = controller_findings(cluster, Commands("c"))
        assert "but another was expected" in fault.sentence
        change = {"3": [ConfigChange(FOLLOWER.rate_key, ConfigOp.SET, "1")]}
        with pytest.raises(WrongCluster):
            cluster._transport.send_to_controllers(
                kraft_sandbox.controllers, lambda: change_configs_request(BROKER, change)
            )
        kraft_sandbox.restore()


def test_a_stricter_rate_of_somebody_is_left_alone(
    sandbox: Sandbox, cluster: KafkaCluster, leases: ThrottleLeases, topic: str
) -> None:
    sandbox.create_topics(topic, assignments={0: [4]})
    set_rates(cluster, FOLLOWER, {2: 500_000})
    leases.acquire(need(topic, 2), 1_000_000)
    assert rates(cluster, FOLLOWER, [2]) == {2: 500_000}
    assert leases.release(NO_DEMAND, LIVE) == []
    assert rates(cluster, FOLLOWER, [2]) == {2: 500_000}


def test_a_rate_for_all_brokers_is_not_taken_for_a_brokers_own_and_applies_while_it_is_as_strict(
    sandbox: Sandbox, cluster: KafkaCluster, leases: ThrottleLeases, topic: str
) -> None:
    def applying() -> set[str]:
        return {of[FOLLOWER.rate_key] for of in cluster.broker_configs([1], [FOLLOWER.rate_key]).values()}

    sandbox.create_topics(topic, assignments={0: [4]})
    needed = need(topic, 1)
    set_for_all_brokers(cluster, FOLLOWER.rate_key, "500000")
    try:
        leases.acquire(needed, 1_000_000)
        assert (rates(cluster, FOLLOWER, [1]), applying()) == ({1: None}, {"500000"})
        for default, own in (("5000000", 1_000_000), ("300000", None), (None, 1_000_000), ("1000000", None)):
            set_for_all_brokers(cluster, FOLLOWER.rate_key, default)
            leases.ensure(needed, 1_000_000, LIVE)
            assert rates(cluster, FOLLOWER, [1]) == {1: own}
            assert applying() == {str(own or default)}
        set_for_all_brokers(cluster, FOLLOWER.rate_key, "5000000")
        leases.ensure(needed, 1_000_000, LIVE)
        assert leases.release(NO_DEMAND, LIVE) == []
        assert (rates(cluster, FOLLOWER, [1]), applying()) == ({1: None}, {"5000000"})
    finally:
        set_for_all_brokers(cluster, FOLLOWER.rate_key, None)


def write(cluster: KafkaCluster, topic: str, value: str) -> None:
    change = ConfigChange(FOLLOWER.replicas_key, ConfigOp.SET, value)
    assert cluster.change_topic_configs({topic: [change]}) == {topic: None}

    def shown() -> None:
        # Any broker may be asked, and hears of a change in its own time.
        assert [in_list(cluster, topic) for _ in range(8)] == [set(parse_list(value))] * 8

    eventually(shown)


def in_list(cluster: KafkaCluster, topic: str) -> Collection[str]:
    return set(parse_list(cluster.topic_configs([topic], [FOLLOWER.replicas_key])[topic][FOLLOWER.replicas_key]))
