"""Replication throttles (KIP-73) as leases: our entries and rates are added and removed, those of others are kept.

A throttle has two parts. Each topic lists the replicas that are throttled, `partition:broker`, or `*` for all; each
broker has a rate. Only the followers' list is needed: a replica in the *leaders'* list throttles every follower that
fetches it out of sync, and therefore also the ordinary catch-up of a broker that has just restarted (33 s instead of
2.6 s).

The caller records the leases: determine the entries to add, record them, add them; remove exactly those at the end.
Entries that were already present are not ours and are never removed.

Brokers of a ZooKeeper-mode cluster receive such changes one after the other, with a delay (4 to 260 ms on a busy
machine, in which 3 MB were copied): a copy that starts immediately would run unthrottled until then. Add the entries
first, then the rates: a broker that shows its rate has received the entries too. `KafkaCluster` waits for both before
it submits a reassignment.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.errors import ClusterError, KafkaRefused

ALL = "*"
_UNKNOWN_TOPIC = 3


class Side(str, Enum):
    """The throttled side of replication."""

    FOLLOWER = "follower"
    LEADER = "leader"

    @property
    def replicas_key(self) -> str:
        """The topic setting with the list of throttled replicas."""
        return f"{self.value}.replication.throttled.replicas"

    @property
    def rate_key(self) -> str:
        """The broker setting with the rate, in bytes per second."""
        return f"{self.value}.replication.throttled.rate"


@dataclass(frozen=True, slots=True)
class LeasedRate:
    """A broker's leased rate, and the rate before: None if the broker had none of its own. Bytes per second."""

    ours: int
    before: int | None


class Returned(str, Enum):
    """The outcome of releasing a leased rate."""

    #: The previous value is restored.
    RESTORED = "restored"
    #: Another client has changed it since: its value is kept.
    LEFT_ALONE = "left_alone"
    #: The broker did not respond: the lease still has to be released.
    OWED = "owed"


class Configurable(Protocol):
    """A client that reads and changes configurations, such as KafkaCluster."""

    def topic_configs(
        self, topics: Collection[str], names: Collection[str], *, own_only: bool = False
    ) -> dict[str, dict[str, str]]:
        """Return values by topic and key; with `own_only` only those set on the topic itself."""

    def broker_configs(
        self, brokers: Collection[int], names: Collection[str], *, own_only: bool = False
    ) -> dict[int, dict[str, str]]:
        """Return values by broker and key; with `own_only` only those set on the broker itself."""

    def change_topic_configs(self, changes: Mapping[str, Sequence[ConfigChange]]) -> dict[str, KafkaRefused | None]:
        """Change single keys of topics."""

    def change_broker_configs(self, changes: Mapping[int, Sequence[ConfigChange]]) -> dict[int, ClusterError | None]:
        """Change single keys of brokers."""


def entries(replicas: Mapping[TopicPartition, Collection[int]]) -> dict[str, tuple[str, ...]]:
    """Return the list entries, by topic, that throttle these brokers' replicas of these partitions."""
    by_topic: dict[str, list[str]] = {}
    for partition, brokers in sorted(replicas.items()):
        by_topic.setdefault(partition.topic, []).extend(f"{partition.partition}:{broker}" for broker in sorted(brokers))
    return {topic: tuple(several) for topic, several in by_topic.items() if several}


def listed(value: str | None) -> tuple[str, ...]:
    """Return the entries of a list as Kafka stores it, a comma-separated string."""
    return tuple(entry.strip() for entry in (value or "").split(",") if entry.strip())


def absent(value: str | None, wanted: Collection[str]) -> tuple[str, ...]:
    """Return the elements of `wanted` that are missing in the list; empty if it is `*`: Kafka refuses both together."""
    present = listed(value)
    return () if ALL in present else tuple(entry for entry in wanted if entry not in present)


def rate_change(now: int | None, owed: LeasedRate, key: str) -> ConfigChange | None:
    """Return the change that restores a rate; None if another client has changed it since, because it is not ours then.

    A rate that shows the previous value is restored all the same: a broker shows a change a moment after it was made.
    Our own change may still be on its way, and would then never be removed.
    """
    if now not in (owed.ours, owed.before):
        return None
    if owed.before is None:
        return ConfigChange(key, ConfigOp.DELETE)
    return ConfigChange(key, ConfigOp.SET, str(owed.before))


def entries_to_add(
    cluster: Configurable, side: Side, wanted: Mapping[str, Collection[str]]
) -> dict[str, tuple[str, ...]]:
    """Return, by topic, the elements of `wanted` that are not listed yet: they are ours once added. Read-only."""
    values = cluster.topic_configs(list(wanted), [side.replicas_key])
    missing = {
        topic: absent(values[topic].get(side.replicas_key), wanted[topic]) for topic in wanted if topic in values
    }
    return {topic: several for topic, several in missing.items() if several}


def add_entries(
    cluster: Configurable, side: Side, ours: Mapping[str, Collection[str]]
) -> dict[str, KafkaRefused | None]:
    """Append our entries to the topics' lists; return None, or Kafka's refusal, per topic."""
    return _change_lists(cluster, side, ConfigOp.APPEND, ours)


def remove_entries(
    cluster: Configurable, side: Side, ours: Mapping[str, Collection[str]]
) -> dict[str, KafkaRefused | None]:
    """Subtract our entries, and only those, from the topics' lists. A deleted topic counts as done.

    The remaining list is kept even if it is empty: between reading and deleting it, another client may add an entry.
    """
    results = _change_lists(cluster, side, ConfigOp.SUBTRACT, ours)
    return {topic: None if error and error.code == _UNKNOWN_TOPIC else error for topic, error in results.items()}


def rates(cluster: Configurable, side: Side, brokers: Collection[int]) -> dict[int, int | None]:
    """Return each broker's own rate in bytes per second, None if it has none; leave out brokers that do not respond."""
    values = cluster.broker_configs(brokers, [side.rate_key], own_only=True)
    return {broker: _number(of.get(side.rate_key)) for broker, of in values.items()}


def set_rates(cluster: Configurable, side: Side, wanted: Mapping[int, int]) -> dict[int, ClusterError | None]:
    """Set each broker's rate in bytes per second; return None, or the error, per broker."""
    return cluster.change_broker_configs(
        {broker: [ConfigChange(side.rate_key, ConfigOp.SET, str(rate))] for broker, rate in wanted.items()}
    )


def restore_rates(cluster: Configurable, side: Side, owed: Mapping[int, LeasedRate]) -> dict[int, Returned]:
    """Restore each rate that is still the one that we set. Raises KafkaRefused when Kafka refuses the change."""
    now = rates(cluster, side, owed)
    changes = {broker: rate_change(rate, owed[broker], side.rate_key) for broker, rate in now.items()}
    answers = cluster.change_broker_configs({broker: [change] for broker, change in changes.items() if change})
    for answer in answers.values():
        if isinstance(answer, KafkaRefused):
            raise answer
    return {broker: _returned(broker, now, answers) for broker in owed}


def _returned(broker: int, now: Mapping[int, int | None], answers: Mapping[int, ClusterError | None]) -> Returned:
    if broker not in now or answers.get(broker) is not None:
        return Returned.OWED
    return Returned.RESTORED if broker in answers else Returned.LEFT_ALONE


def _change_lists(
    cluster: Configurable, side: Side, op: ConfigOp, ours: Mapping[str, Collection[str]]
) -> dict[str, KafkaRefused | None]:
    return cluster.change_topic_configs(
        {topic: [ConfigChange(side.replicas_key, op, ",".join(several))] for topic, several in ours.items() if several}
    )


def _number(value: str | None) -> int | None:
    return None if value is None else int(value)
