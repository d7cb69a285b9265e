"""Queries of a cluster for several parts of execution: hidden topics, cordoned brokers, min.insync.replicas.

A hidden topic is one that an ACL hides from our principal. Kafka omits such topics from its list without an error, as
if they did not exist. The log directories of brokers list them all the same. If a request names such a topic, Kafka
answers that it may not be described.

Cordoned brokers (KIP-1066) keep their replicas and receive no new ones.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from kafka_steward.cluster.state import LogDir, Snapshot
from kafka_steward.errors import RequestError
from kafka_steward.execution.ports import ClusterPort

MIN_ISR = "min.insync.replicas"

#: Topics that a message names; the rest is only counted.
_NAMED = 3


def with_hidden(cluster: ClusterPort, snapshot: Snapshot, topics: Collection[str]) -> Snapshot:
    """Return `snapshot` with those of the missing `topics` that we may not describe as `hidden`.

    Raises ClusterError.
    """
    lacking = frozenset(topics) - snapshot.topics
    return replace(snapshot, hidden=cluster.hidden_topics(lacking)) if lacking else snapshot


def hidden_in(cluster: ClusterPort, snapshot: Snapshot, log_dirs: Mapping[int, LogDir]) -> dict[str, tuple[int, ...]]:
    """Return the topics that we may not describe and brokers host, with those brokers; sorted. Raises ClusterError.

    A broker may host a topic for a moment after its deletion: Kafka does not report that one as hidden.
    """
    held: dict[str, set[int]] = {}
    for broker, dirs in log_dirs.items():
        for topic in {name.topic for name in dirs.replica_bytes} - snapshot.topics:
            held.setdefault(topic, set()).add(broker)
    hidden = cluster.hidden_topics(held) if held else frozenset()
    return {topic: tuple(sorted(held[topic])) for topic in sorted(hidden)}


def refuse_hidden(cluster: ClusterPort, snapshot: Snapshot, log_dirs: Mapping[int, LogDir]) -> None:
    """Raise RequestError when the brokers host topics that we may not describe: a plan would leave them out."""
    hidden = hidden_in(cluster, snapshot, log_dirs)
    if hidden:
        first, brokers = next(iter(hidden.items()))
        named = ", ".join(list(hidden)[:_NAMED]) + (f" and {len(hidden) - _NAMED} more" if len(hidden) > _NAMED else "")
        raise RequestError(
            f"Nothing was planned: Kafka does not let us describe {named}, and broker {', '.join(map(str, brokers))} "
            f"holds replicas of {first}, which a plan would leave out. Grant our principal DESCRIBE on every topic, as "
            "docs/permissions.md says."
        )


def cordoned_brokers(cluster: ClusterPort, brokers: Collection[int]) -> frozenset[int]:
    """Return those of `brokers` without a log directory that accepts new replicas. Raises ClusterError.

    A broker that does not answer does not count as cordoned. If `brokers` is empty, Kafka is not called.
    """
    answers = cluster.directories(sorted(brokers)) if brokers else {}
    return frozenset(broker for broker, dirs in answers.items() if dirs.cordoned)


def min_isr_by_topic(cluster: ClusterPort, topics: Collection[str]) -> dict[str, int]:
    """Return min.insync.replicas of `topics`. Raises ClusterError. If `topics` is empty, Kafka is not called."""
    values = cluster.topic_configs(sorted(topics), [MIN_ISR]) if topics else {}
    return {topic: int(of[MIN_ISR]) for topic, of in values.items() if MIN_ISR in of}
