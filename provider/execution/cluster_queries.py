"""Queries of a cluster for several parts of execution: hidden topics, cordoned brokers, min.insync.replicas.

A hidden topic is one that an ACL hides from our principal. Kafka omits such topics from its list without an error, as
if they did not exist. The log directories of brokers list them all the same. If a request names such a topic, Kafka
answers that it may not be described: a snapshot of named topics has it as `hidden`. A request for the settings of
several topics fails as a whole.

Cordoned brokers (KIP-1066) keep their replicas and receive no new ones.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from kafka_steward.assignment import name_brokers, name_some
from kafka_steward.cluster.requests import NOT_AUTHORIZED, refusal_error
from kafka_steward.cluster.state import BrokerLogDirs, Snapshot
from kafka_steward.errors import KafkaRefused, RequestError
from kafka_steward.execution.ports import ClusterPort

MIN_ISR = "min.insync.replicas"

#: Topics that a message names; the rest is only counted.
_NAMED = 3


def with_hidden_topics(cluster: ClusterPort, snapshot: Snapshot, topics: Collection[str]) -> Snapshot:
    """Return `snapshot` with those of the missing `topics` that we may not describe as `hidden`.

    Raises ClusterError.
    """
    lacking = frozenset(topics) - snapshot.topics
    return replace(snapshot, hidden=cluster.hidden_topics(lacking)) if lacking else snapshot


def describe_topic(cluster: ClusterPort, topic: str) -> Snapshot:
    """Return a snapshot of one topic. Raises KafkaRefused if we may not describe it."""
    snapshot = cluster.snapshot([topic])
    if topic in snapshot.hidden:
        raise refusal_error(NOT_AUTHORIZED, None, f"describing topic {topic}")
    return snapshot


def find_hidden_topics(
    cluster: ClusterPort, snapshot: Snapshot, log_dirs: Mapping[int, BrokerLogDirs]
) -> dict[str, tuple[int, ...]]:
    """Return the topics that we may not describe and brokers host, with those brokers; sorted. Raises ClusterError.

    A broker may host a topic for a moment after its deletion: Kafka does not report that one as hidden.
    """
    held: dict[str, set[int]] = {}
    for broker, dirs in log_dirs.items():
        for topic in {name.topic for name in dirs.replica_bytes} - snapshot.topics:
            held.setdefault(topic, set()).add(broker)
    hidden = cluster.hidden_topics(held) if held else frozenset()
    return {topic: tuple(sorted(held[topic])) for topic in sorted(hidden)}


def refuse_hidden_topics(cluster: ClusterPort, snapshot: Snapshot, log_dirs: Mapping[int, BrokerLogDirs]) -> None:
    """Raise RequestError when the brokers host topics that we may not describe: a plan would leave them out."""
    hidden = find_hidden_topics(cluster, snapshot, log_dirs)
    if hidden:
        first, brokers = next(iter(hidden.items()))
        raise RequestError(
            f"Nothing was planned: Kafka does not let us describe {name_some(hidden, _NAMED)}, and a plan would "
            f"omit the replicas of {first} on {name_brokers(brokers)}. Grant our principal DESCRIBE on every topic, as "
            "docs/permissions.md says."
        )


def readable_topic_configs(
    cluster: ClusterPort, topics: Sequence[str], names: Collection[str], *, own_only: bool = False
) -> tuple[dict[str, dict[str, str]], dict[str, KafkaRefused]]:
    """Return the settings of `topics`, as `ClusterPort.topic_configs` does, and the refusal of each unreadable topic.

    Kafka's refusal of one topic does not affect the other topics. Raises any other ClusterError.
    """
    try:
        return (cluster.topic_configs(topics, names, own_only=own_only) if topics else {}), {}
    except KafkaRefused as error:
        if len(topics) == 1:
            return {}, {topics[0]: error}
    # Kafka refuses the request as a whole: the halves show of which topics.
    half = len(topics) // 2
    values, refused = readable_topic_configs(cluster, topics[:half], names, own_only=own_only)
    more_values, more_refused = readable_topic_configs(cluster, topics[half:], names, own_only=own_only)
    return values | more_values, refused | more_refused


def cordoned_brokers(cluster: ClusterPort, brokers: Collection[int]) -> frozenset[int]:
    """Return those of `brokers` without a log directory that accepts new replicas. Raises ClusterError.

    A broker that does not answer does not count as cordoned. If `brokers` is empty, Kafka is not called.
    """
    answers = cluster.directories(sorted(brokers)) if brokers else {}
    return frozenset(broker for broker, dirs in answers.items() if dirs.cordoned)


def min_isr_by_topic(cluster: ClusterPort, topics: Collection[str]) -> dict[str, int]:
    """Return min.insync.replicas of `topics`. Raises ClusterError. If `topics` is empty, Kafka is not called."""
    return _parse_min_isr(cluster.topic_configs(sorted(topics), [MIN_ISR]) if topics else {})


def readable_min_isr(cluster: ClusterPort, topics: Sequence[str]) -> tuple[dict[str, int], dict[str, KafkaRefused]]:
    """Return min.insync.replicas of `topics`, and the refusal of each unreadable topic. Raises any other ClusterError.

    If `topics` is empty, Kafka is not called.
    """
    values, refused = readable_topic_configs(cluster, topics, [MIN_ISR])
    return _parse_min_isr(values), refused


def _parse_min_isr(values: Mapping[str, Mapping[str, str]]) -> dict[str, int]:
    return {topic: int(of[MIN_ISR]) for topic, of in values.items() if MIN_ISR in of}


#: The reason for a partition whose topic an ACL hides: its state is unknown.
HIDDEN = "Kafka does not let us describe its topic; grant our principal DESCRIBE on it"
