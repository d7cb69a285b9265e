"""Kafka's own `kafka-reassign-partitions --generate`: its classes, called in a JVM of their own, no broker needed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from py4j.java_gateway import JavaGateway

from kafka_steward.sandbox.artifacts import KAFKA_KRAFT, KAFKA_ZOOKEEPER, find_or_install_java, kafka_jars

VERSIONS = (KAFKA_ZOOKEEPER, KAFKA_KRAFT)


class Generator:
    """What `--generate` proposes for one topic: a fresh placement, whatever was there before."""

    def __init__(self, version: str, jvm: Any, rack: Mapping[int, str]) -> None:
        self._jvm = jvm
        self._old = version == KAFKA_ZOOKEEPER
        self._brokers = jvm.java.util.ArrayList()
        for broker, name in sorted(rack.items()):
            rack_of = jvm.java.util.Optional.of(name)
            self._brokers.add(
                jvm.org.apache.kafka.admin.BrokerMetadata(broker, rack_of)
                if self._old
                else jvm.org.apache.kafka.metadata.placement.UsableBroker(broker, rack_of, False)
            )

    def proposed(self, replicas: Sequence[Sequence[int]]) -> list[list[int]]:
        """The proposal for a topic with these replicas."""
        text = self._by_admin_utils(replicas) if self._old else self._by_command(replicas)
        found = {int(number): [int(one) for one in ids.split(",")] for number, ids in _ENTRY.findall(text)}
        return [found[number] for number in range(len(replicas))]

    def _by_admin_utils(self, replicas: Sequence[Sequence[int]]) -> str:
        # What ReassignPartitionsCommand of Kafka 3.9 calls for each topic.
        utils = self._jvm.org.apache.kafka.admin.AdminUtils
        return str(utils.assignReplicasToBrokers(self._brokers, len(replicas), len(replicas[0])).toString())

    def _by_command(self, replicas: Sequence[Sequence[int]]) -> str:
        # Private in Kafka 4.3, so it is reached by reflection; what is asked for there is the topic's own size.
        jvm = self._jvm
        current = jvm.java.util.HashMap()
        for number, ids in enumerate(replicas):
            held = jvm.java.util.ArrayList()
            for broker in ids:
                held.add(broker)
            current.put(jvm.org.apache.kafka.common.TopicPartition("t", number), held)
        kind = jvm.java.lang.Class.forName("org.apache.kafka.tools.reassign.ReassignPartitionsCommand")
        method = next(one for one in kind.getDeclaredMethods() if one.getName() == "calculateAssignment")
        method.setAccessible(True)
        arguments = jvm.java.util.ArrayList()
        arguments.add(current)
        arguments.add(self._brokers)
        return str(method.invoke(None, arguments.toArray()).toString())


#: `t-7=[1, 2, 3]` or `7=[1, 2, 3]`, as Java prints a map; Scala-free in both versions.
_ENTRY = re.compile(r"(?:t-)?(\d+)=\[([\d, ]+)\]")


@contextmanager
def generator(version: str, rack: Mapping[int, str]) -> Iterator[Generator]:
    """A JVM with the jars of one Kafka version, which ends with the block."""
    runtime = find_or_install_java()
    jars = [str(path) for path in kafka_jars(version)]
    gateway = JavaGateway.launch_gateway(classpath=":".join(jars), java_path=str(runtime.executable), die_on_exit=True)
    try:
        yield Generator(version, gateway.jvm, rack)
    finally:
        gateway.shutdown()
