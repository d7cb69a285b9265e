"""What execution relies on in a cluster: the same tests for real Kafka, in both modes, and for its simulator.

Where the modes of Kafka differ, the test says how; a simulator that did not know it would prove nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TypeVar

import pytest

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.configs import BrokerRate, ConfigChange, ConfigOp
from kafka_steward.cluster.state import Partition
from kafka_steward.errors import BrokerUnreachable, KafkaRefused
from kafka_steward.execution.throttles.rates import ThrottleSide
from kafka_steward.execution.topics.creation import TopicAdminPort
from tests.present import present
from tests.throttles import add_entries, entries, rates, set_rates

SLOW_BYTES_PER_S, FAST_BYTES_PER_S = 200_000, 100_000_000
Value = TypeVar("Value")


class Place(ABC):
    """Brokers 1 to 4 in racks a, b, c, a; one topic's name; and a hand for what the port cannot do."""

    def __init__(self, port: TopicAdminPort, mode: str, topic: str, version: str) -> None:
        self.port, self.mode, self.topic = port, mode, topic
        since = tuple(map(int, version.split(".")[:2])) if mode == "kraft" else (0, 0)
        #: Whether a move that is reverted by its originals stays in flight.
        self.wedges = since >= (4, 3)
        #: Whether a broker that is down is listed, as fenced (KIP-1073).
        self.lists_dead = since >= (4, 0)

    @abstractmethod
    def create(self, *replicas: Assignment, size: int = 0) -> None:
        """Create the topic with these partitions, and `size` bytes in each."""

    @abstractmethod
    def kill(self, broker: int) -> None:
        """SIGKILL."""

    @abstractmethod
    def restart(self, broker: int) -> None:
        """Until it serves."""

    @abstractmethod
    def set_for_all_brokers(self, key: str, value: str | None) -> None:
        """Set the cluster-wide default of a setting of brokers, or delete it; until every broker shows that."""

    @abstractmethod
    def eventually(self, assertion: Callable[[], Value]) -> Value:
        """Let time pass until it holds; its value."""


def move_slowly(place: Place) -> TopicPartition:
    """Start a move of the topic's one partition from 1, 2, 3 to 4, 2, 3 that takes about 20 s."""
    name = TopicPartition(place.topic, 0)
    place.create((1, 2, 3), size=4_000_000)
    assert add_entries(place.port, ThrottleSide.FOLLOWER, entries({name: [4]})) == {place.topic: None}
    limit(place, SLOW_BYTES_PER_S)
    assert place.port.alter({name: (4, 2, 3)}) == {name: None}
    return name


def limit(place: Place, bytes_per_s: int) -> None:
    assert set_rates(place.port, ThrottleSide.FOLLOWER, {4: bytes_per_s}) == {4: None}
    place.eventually(lambda: same(rates(place.port, ThrottleSide.FOLLOWER, [4]), {4: bytes_per_s}))


def shown(place: Place, number: int = 0) -> Partition:
    name, found = TopicPartition(place.topic, number), place.port.snapshot([place.topic]).partitions
    # Asked again where a broker has not heard of a new partition yet.
    assert name in found
    return found[name]


def at_rest(place: Place, number: int = 0) -> Partition:
    partition = shown(place, number)
    assert not partition.reassigning
    return partition


def same(found: object, expected: object) -> None:
    assert found == expected


def assert_some(sizes: Mapping[tuple[TopicPartition, int], int]) -> None:
    assert any(sizes.values())


class ClusterContract:
    """Inherited by the tests of each kind of cluster, which give a `place`."""

    def test_every_broker_is_shown_with_its_rack(self, place: Place) -> None:
        racks = {broker.id: broker.rack for broker in place.port.live_brokers().values()}
        assert (racks[1] == racks[4], len(set(racks.values()))) == (True, 3)
        assert place.port.snapshot().live == racks.keys() == {1, 2, 3, 4}
        assert place.port.live_views([1, 2]) == {1: racks.keys(), 2: racks.keys()}

    def test_a_move_in_flight_shows_its_target_and_what_it_adds_and_removes(self, place: Place) -> None:
        name = move_slowly(place)
        in_flight = place.port.reassignments()[name]
        assert (in_flight.replicas, in_flight.target) == ((4, 2, 3, 1), (4, 2, 3))
        assert (in_flight.adding, in_flight.removing) == ((4,), (1,))
        seen = shown(place)
        assert (seen.replicas, seen.adding, seen.removing) == (in_flight.replicas, (4,), (1,))
        assert seen.isr == {1, 2, 3}
        assert not seen.under_replicated

    def test_a_move_arrives_whole_and_what_it_left_is_deleted(self, place: Place) -> None:
        name = move_slowly(place)
        limit(place, FAST_BYTES_PER_S)
        assert place.eventually(lambda: at_rest(place)).replicas == (4, 2, 3)
        place.eventually(lambda: same(at_rest(place).isr, {2, 3, 4}))
        assert place.eventually(lambda: at_rest(place)).leader in {2, 3, 4}
        place.eventually(lambda: same(holders(place, name), {2, 3, 4}))

    def test_a_cancel_keeps_the_set_loses_the_order_and_deletes_what_was_copied(self, place: Place) -> None:
        name = move_slowly(place)
        assert place.port.cancel([name]) == {name: None}
        assert place.eventually(lambda: at_rest(place)).replicas == (2, 3, 1)
        assert place.port.alter({name: (1, 2, 3)}) == {name: None}
        place.eventually(lambda: same(at_rest(place).replicas, (1, 2, 3)))
        place.eventually(lambda: same(holders(place, name), {1, 2, 3}))

    def test_the_guard_of_the_replication_factor_refuses_another_number_of_replicas(self, place: Place) -> None:
        """KIP-860; of brokers before 4.1, which do not know it, the factor is read just before."""
        name = TopicPartition(place.topic, 0)
        place.create((1, 2, 3))
        refused = place.port.alter({name: (1, 2)}, keep_factor=True)[name]
        assert present(refused).code == 38
        assert shown(place).replicas == (1, 2, 3)
        wanted = tuple(reversed(shown(place).replicas))
        assert place.port.alter({name: wanted}, keep_factor=True) == {name: None}
        place.eventually(lambda: same(at_rest(place).replicas, wanted))
        assert place.port.alter({name: (1, 2)}) == {name: None}

    def test_a_cancel_of_nothing_is_refused_with_code_85(self, place: Place) -> None:
        place.create((1, 2))
        assert present(place.port.cancel([TopicPartition(place.topic, 0)])[TopicPartition(place.topic, 0)]).code == 85

    def test_reverting_by_the_originals_wedges_kraft_since_kafka_4_3_until_a_cancel_and_else_reverts(
        self, place: Place
    ) -> None:
        name = move_slowly(place)
        assert place.port.alter({name: (1, 2, 3)}) == {name: None}
        if place.wedges:
            wedged = place.port.reassignments()[name]
            assert (wedged.adding, wedged.removing) == ((4,), (4,))
            assert place.port.cancel([name]) == {name: None}
        assert set(place.eventually(lambda: at_rest(place)).replicas) == {1, 2, 3}

    def test_another_target_replaces_the_one_in_flight(self, place: Place) -> None:
        name = move_slowly(place)
        assert place.port.alter({name: (4, 1, 3)}) == {name: None}
        in_flight = place.port.reassignments()[name]
        assert (in_flight.target, in_flight.adding, in_flight.removing) == ((4, 1, 3), (4,), (2,))
        assert place.port.cancel([name]) == {name: None}
        assert set(place.eventually(lambda: at_rest(place)).replicas) == {1, 2, 3}

    def test_what_is_refused_is_reported_by_partition_and_the_rest_is_done(self, place: Place) -> None:
        place.create(*[(1, 2)] * 5)
        wrong: dict[int, Assignment] = {0: (1, 1), 1: (), 2: (77, 1), 3: (1, -1)}
        wanted = {TopicPartition(place.topic, number): target for number, target in wrong.items()}
        good, unknown = TopicPartition(place.topic, 4), TopicPartition(place.topic, 99)
        answers = place.port.alter({**wanted, good: (2, 1), unknown: (1, 2)})
        codes = {name: None if error is None else error.code for name, error in answers.items()}
        assert codes == {**dict.fromkeys(wanted, 39), good: None, unknown: 3}
        place.eventually(lambda: same(shown(place, 4).replicas, (2, 1)))
        assert shown(place, 0).replicas == (1, 2)

    def test_the_preferred_leader_is_elected_and_once_more_is_no_error(self, place: Place) -> None:
        place.create((1, 2, 3))
        name = TopicPartition(place.topic, 0)
        assert place.port.alter({name: (3, 1, 2)}) == {name: None}
        place.eventually(lambda: same((at_rest(place).replicas, at_rest(place).leader), ((3, 1, 2), 1)))
        assert place.port.elect_leaders([name]) == {name: None}
        place.eventually(lambda: same(shown(place).leader, 3))
        assert place.port.elect_leaders([name]) == {name: None}

    def test_settings_are_changed_one_by_one_and_unknown_topics_left_out(self, place: Place) -> None:
        place.create((1, 2))
        key, there = ThrottleSide.FOLLOWER.replicas_key, [place.topic]
        assert place.port.change_topic_configs({place.topic: [ConfigChange(key, ConfigOp.SET, "0:1")]}) == {
            place.topic: None
        }
        place.eventually(
            lambda: same(place.port.topic_configs(there, [key], own_only=True), {place.topic: {key: "0:1"}})
        )
        place.port.change_topic_configs({place.topic: [ConfigChange(key, ConfigOp.DELETE)]})
        place.eventually(lambda: same(place.port.topic_configs(there, [key], own_only=True), {place.topic: {}}))
        minimum = place.port.topic_configs([place.topic, "nowhere"], ["min.insync.replicas"])
        assert minimum == {place.topic: {"min.insync.replicas": "1"}}

    def test_a_rate_for_all_brokers_applies_to_one_without_its_own_and_shows_beside_it(self, place: Place) -> None:
        key, name = ThrottleSide.FOLLOWER.rate_key, TopicPartition(place.topic, 0)
        slow, fast = str(SLOW_BYTES_PER_S), str(FAST_BYTES_PER_S)
        place.create((1, 2, 3), size=4_000_000)
        assert add_entries(place.port, ThrottleSide.FOLLOWER, entries({name: [4]})) == {place.topic: None}
        assert place.port.broker_rates([3, 4, 9], [key])[key] == {3: BrokerRate(), 4: BrokerRate()}
        place.set_for_all_brokers(key, slow)
        try:
            assert place.port.broker_rates([3, 4], [key])[key] == dict.fromkeys((3, 4), BrokerRate(None, slow))
            limit(place, FAST_BYTES_PER_S)
            assert place.port.broker_rates([3, 4], [key])[key] == {3: BrokerRate(None, slow), 4: BrokerRate(fast, slow)}
            assert place.port.broker_configs([4], [key]) == {4: {key: fast}}
            assert place.port.change_broker_configs({4: [ConfigChange(key, ConfigOp.DELETE)]}) == {4: None}
            assert place.port.broker_rates([4], [key])[key] == {4: BrokerRate(None, slow)}
            assert place.port.broker_configs([4], [key]) == {4: {key: slow}}
            assert place.port.alter({name: (4, 2, 3)}) == {name: None}
            # The quota lets a fetch through, and then nothing for seconds.
            place.eventually(lambda: assert_some(place.port.log_sizes({4: [name]})))
            for _ in range(5):
                assert name in place.port.reassignments()
        finally:
            place.set_for_all_brokers(key, None)
        assert place.eventually(lambda: at_rest(place)).replicas == (4, 2, 3)
        assert place.port.broker_rates([4], [key])[key] == {4: BrokerRate()}

    def test_what_a_dead_broker_changes(self, place: Place) -> None:
        """One test, for a death takes its time: KRaft takes a dead target and waits, ZooKeeper mode refuses it."""
        place.create((1, 2, 3), (4, 2, 3))
        place.eventually(lambda: same(shown(place, 1).isr, {2, 3, 4}))
        name, led = TopicPartition(place.topic, 0), TopicPartition(place.topic, 1)
        place.kill(4)
        place.eventually(lambda: same(place.port.snapshot().live, {1, 2, 3}))
        assert (4 in place.port.snapshot().brokers) == place.lists_dead
        place.eventually(lambda: same((shown(place, 1).isr, shown(place, 1).under_replicated), ({2, 3}, True)))
        assert set(place.port.log_dirs([1, 4])) == {1}
        rate = {4: [ConfigChange(ThrottleSide.FOLLOWER.rate_key, ConfigOp.SET, "1000")]}
        assert isinstance(place.port.change_broker_configs(rate)[4], BrokerUnreachable)
        assert present(place.port.elect_leaders([led])[led]).code == 80
        answer = place.port.alter({name: (4, 2, 3)})[name]
        if place.mode == "zookeeper":
            assert answer is not None
            assert answer.code == 39
            return
        assert answer is None
        assert place.port.reassignments()[name].adding == (4,)
        place.restart(4)
        place.eventually(lambda: same((at_rest(place).replicas, at_rest(place).isr), ((4, 2, 3), {2, 3, 4})))

    def test_a_topic_that_exists_or_wants_too_many_replicas_is_refused(self, place: Place) -> None:
        assert place.port.create_topic(place.topic, 2, 3) is None
        place.eventually(lambda: same({len(shown(place, number).replicas) for number in (0, 1)}, {3}))
        again = place.port.create_topic(place.topic, 1, 1)
        many = place.port.create_topic(f"{place.topic}-2", 1, 5)
        assert again is not None
        assert many is not None
        assert (again.code, many.code) == (36, 38)
        assert place.port.create_partitions(place.topic, 3) is None
        place.eventually(lambda: same(len(shown(place, 2).replicas), 3))

    def test_a_replica_is_created_in_the_log_directory_that_was_named_before(self, place: Place) -> None:
        """KIP-113. Kafka alone would spread the two; and a directory that the broker does not have is refused."""
        names = [TopicPartition(place.topic, number) for number in range(2)]
        place.create((1, 2, 3), (1, 2, 3), size=1)
        path = place.port.log_dirs([4])[4].directories[-1].path
        assert place.port.name_directories({(name, 4): path for name in names}) == {(name, 4): None for name in names}
        unknown = place.port.name_directories({(names[0], 4): "/nowhere"})[names[0], 4]
        assert (type(unknown), getattr(unknown, "code", None)) == (KafkaRefused, 57)
        assert place.port.alter(dict.fromkeys(names, (4, 2, 3))) == dict.fromkeys(names)
        place.eventually(lambda: same([at_rest(place, name.partition).isr for name in names], [{2, 3, 4}] * 2))
        found = place.port.log_dirs([4])[4].directories
        assert [{*names} & each.replica_bytes.keys() for each in found] == [set(), set(names)]


def holders(place: Place, name: TopicPartition) -> set[int]:
    return {broker for broker, held in place.port.log_dirs([1, 2, 3, 4]).items() if name in held.replica_bytes}


def assert_hides(port: TopicAdminPort, shown: str, guarded: str, missing: str) -> None:
    """What Kafka answers a principal that has every right on the cluster and on `shown`, and none on the others.

    `guarded` has one partition, on brokers 1 and 2; `missing` does not exist, which Kafka does not say.
    """
    asked, hidden = [shown, guarded, missing], frozenset({guarded, missing})
    everything, named = port.snapshot(), port.snapshot(asked)
    assert everything.topics & {*asked} == {shown} == named.topics
    assert (everything.hidden, named.hidden, port.hidden_topics(asked)) == (frozenset(), hidden, hidden)

    key, name = ThrottleSide.FOLLOWER.replicas_key, TopicPartition(guarded, 0)
    assert port.topic_configs([shown], [key], own_only=True) == {shown: {}}
    for topic in sorted(hidden):
        with pytest.raises(KafkaRefused, match=f"reading the settings of {topic}: .* grant our principal") as refused:
            port.topic_configs([topic, shown], [key], own_only=True)
        assert refused.value.code == 29
    changed = port.change_topic_configs({topic: [ConfigChange(key, ConfigOp.DELETE)] for topic in asked})
    assert {topic: _code(answer) for topic, answer in changed.items()} == {shown: None, guarded: 29, missing: 29}
    assert [_code(port.create_topic(guarded, 1, 1)), _code(port.create_partitions(guarded, 2))] == [29, 29]

    # Rights on the cluster reach its partitions, and what the brokers hold of them.
    assert name in port.log_dirs([1])[1].replica_bytes
    assert port.alter({name: (2, 1)}) == {name: None}
    refusal = port.cancel([TopicPartition(missing, 0)])[TopicPartition(missing, 0)]
    assert _code(refusal) in {3, 85}


def _code(answer: KafkaRefused | None) -> int | None:
    return None if answer is None else answer.code
