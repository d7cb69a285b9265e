"""Real Kafka in both modes, and its simulator, under one suite: see `cluster_contract`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from kafka_steward.assignment import Assignment
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.execution.throttles.rates import ThrottleSide
from kafka_steward.sandbox import Sandbox
from tests.eventually import eventually
from tests.kafka.cluster_contract import FAST_BYTES_PER_S, ClusterContract, Place, assert_hides
from tests.simulator import Simulator
from tests.throttles import set_for_all_brokers

Value = TypeVar("Value")


class RealPlace(Place):
    """Brokers of a sandbox."""

    def __init__(self, sandbox: Sandbox, port: KafkaCluster, topic: str) -> None:
        super().__init__(port, sandbox.mode, topic, sandbox.version)
        self._sandbox, self._cluster = sandbox, port

    def create(self, *replicas: Assignment, size: int = 0) -> None:
        self._sandbox.create_topics(self.topic, assignments=dict(enumerate(replicas)))
        if size:
            self._sandbox.fill(self.topic, size * len(replicas))

    def kill(self, broker: int) -> None:
        self._sandbox.kill(broker)

    def restart(self, broker: int) -> None:
        self._sandbox.restart(broker)

    def set_for_all_brokers(self, key: str, value: str | None) -> None:
        set_for_all_brokers(self._cluster, key, value)

    def eventually(self, assertion: Callable[[], Value]) -> Value:
        return eventually(assertion, within=60)


class SimulatedPlace(Place):
    """No brokers."""

    def __init__(self, mode: str) -> None:
        self._simulator = Simulator.of("1a 2b 3c 4a", mode=mode, bandwidth=FAST_BYTES_PER_S)
        self._simulator.disks[4] = {"/disk-1": 10**9, "/disk-2": 10**9}
        super().__init__(self._simulator, mode, "t", "4.3")

    def create(self, *replicas: Assignment, size: int = 0) -> None:
        self._simulator.create(self.topic, replicas, size=size)

    def kill(self, broker: int) -> None:
        self._simulator.kill(broker)

    def restart(self, broker: int) -> None:
        self._simulator.restart(broker)

    def set_for_all_brokers(self, key: str, value: str | None) -> None:
        self._simulator.broker_defaults.pop(key, None)
        self._simulator.broker_defaults.update({} if value is None else {key: value})

    def eventually(self, assertion: Callable[[], Value]) -> Value:
        def or_tick() -> Value:
            try:
                return assertion()
            except AssertionError:
                self._simulator.tick()
                raise

        return eventually(or_tick, within=1, every=0)


class TestRealKafka(ClusterContract):
    @pytest.fixture
    def place(self, sandbox: Sandbox, topic: str) -> Iterator[Place]:
        with KafkaCluster({"bootstrap_servers": sandbox.bootstrap}) as cluster:
            yield RealPlace(sandbox, cluster, topic)
            clear = [ConfigChange(ThrottleSide.FOLLOWER.rate_key, ConfigOp.DELETE)]
            cluster.change_broker_configs(dict.fromkeys(sandbox.brokers, clear))


class TestSimulator(ClusterContract):
    @pytest.fixture(params=["kraft", "zookeeper"])
    def place(self, request: pytest.FixtureRequest) -> Place:
        return SimulatedPlace(request.param)

    @pytest.mark.parametrize("mode", ["kraft", "zookeeper"])
    def test_topics_that_an_acl_hides(self, mode: str) -> None:
        simulator = Simulator.of("1a 2b 3c 4a", "shown: 12", "guarded: 12", mode=mode)
        simulator.hidden |= {"guarded", "missing"}
        assert_hides(simulator, "shown", "guarded", "missing")
