"""Replication throttles (KIP-73), borrowed: what is ours goes in and out again, what others wrote stays.

Two things make a throttle. Each topic lists the replicas that it holds for, `partition:broker`, or `*` for all; each
broker has a rate. Only the followers' list is needed: a replica in the *leaders'* list slows down whoever fetches it
out of sync, and so also the ordinary catch-up of a broker that has just been restarted (33 s where it took 2.6 s).

The caller keeps the books: ask what would be added, write it down, add it; take away exactly that at the end. Entries
of ours that somebody else had listed before us are theirs, and stay.

Brokers of a ZooKeeper cluster hear of such changes one after the other, a moment later (4 to 260 ms on a busy machine,
in which 3 MB were copied): a copy that is started at once would run unthrottled until then. Add the entries first, then
the rates: a broker that shows its rate knows the entries too. The cluster waits for both before it moves anything.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.errors import ClusterError, KafkaRefused

__all__ = [
    "Configurable",
    "OwedRate",
    "Returned",
    "Side",
    "absent",
    "add_entries",
    "entries",
    "entries_to_add",
    "listed",
    "rate_change",
    "rates",
    "remove_entries",
    "restore_rates",
    "set_rates",
]

ALL = "*"
_UNKNOWN_TOPIC = 3


class Side(str, Enum):
    """Which end of the copying is slowed down."""

    FOLLOWER = "follower"
    LEADER = "leader"

    @property
    def replicas_key(self) -> str:
        """The topic's list."""
        return f"{self.value}.replication.throttled.replicas"

    @property
    def rate_key(self) -> str:
        """The broker's rate, in bytes per second."""
        return f"{self.value}.replication.throttled.rate"


@dataclass(frozen=True, slots=True)
class OwedRate:
    """A broker's rate that we set, and what it was before: None when it had none of its own. Bytes per second."""

    ours: int
    before: int | None


class Returned(str, Enum):
    """What became of a rate that was owed."""

    #: It is now what it was before.
    RESTORED = "restored"
    #: Somebody else has changed it since: theirs to keep.
    LEFT_ALONE = "left_alone"
    #: The broker did not answer: still owed.
    OWED = "owed"


class Configurable(Protocol):
    """What reads and changes configurations; KafkaCluster does."""

    def topic_configs(
        self, topics: Collection[str], names: Collection[str], *, own_only: bool = False
    ) -> dict[str, dict[str, str]]:
        """Values by topic and key; with `own_only` just those set on the topic itself."""

    def broker_configs(
        self, brokers: Collection[int], names: Collection[str], *, own_only: bool = False
    ) -> dict[int, dict[str, str]]:
        """Values by broker and key; with `own_only` just those set on the broker itself."""

    def change_topic_configs(self, changes: Mapping[str, Sequence[ConfigChange]]) -> dict[str, KafkaRefused | None]:
        """Change topics' keys one by one."""

    def change_broker_configs(self, changes: Mapping[int, Sequence[ConfigChange]]) -> dict[int, ClusterError | None]:
        """Change brokers' keys one by one."""


def entries(replicas: Mapping[TopicPartition, Collection[int]]) -> dict[str, tuple[str, ...]]:
    """The list entries, by topic, that throttle these brokers' replicas of these partitions."""
    by_topic: dict[str, list[str]] = {}
    for partition, brokers in sorted(replicas.items()):
        by_topic.setdefault(partition.topic, []).extend(f"{partition.partition}:{broker}" for broker in sorted(brokers))
    return {topic: tuple(several) for topic, several in by_topic.items() if several}


def listed(value: str | None) -> tuple[str, ...]:
    """The entries of a list as Kafka keeps it, a comma-separated string."""
    return tuple(entry.strip() for entry in (value or "").split(",") if entry.strip())


def absent(value: str | None, wanted: Collection[str]) -> tuple[str, ...]:
    """Those of `wanted` that have to be added to the list. None where it is `*`: Kafka refuses both together."""
    present = listed(value)
    return () if ALL in present else tuple(entry for entry in wanted if entry not in present)


def rate_change(now: int | None, owed: OwedRate, key: str) -> ConfigChange | None:
    """The change that gives a rate back; None when somebody else has changed it since, and so not ours to change.

    What is as it was before is given back all the same: a broker shows a change a moment after it was made, so ours may
    be on its way yet, and would then stay for good.
    """
    if now not in (owed.ours, owed.before):
        return None
    if owed.before is None:
        return ConfigChange(key, ConfigOp.DELETE)
    return ConfigChange(key, ConfigOp.SET, str(owed.before))


def entries_to_add(
    cluster: Configurable, side: Side, wanted: Mapping[str, Collection[str]]
) -> dict[str, tuple[str, ...]]:
    """By topic, those of `wanted` that are not listed yet: ours from the moment they are added. Changes nothing."""
    values = cluster.topic_configs(list(wanted), [side.replicas_key])
    missing = {
        topic: absent(values[topic].get(side.replicas_key), wanted[topic]) for topic in wanted if topic in values
    }
    return {topic: several for topic, several in missing.items() if several}


def add_entries(
    cluster: Configurable, side: Side, ours: Mapping[str, Collection[str]]
) -> dict[str, KafkaRefused | None]:
    """Append our entries to the topics' lists."""
    return _change_lists(cluster, side, ConfigOp.APPEND, ours)


def remove_entries(
    cluster: Configurable, side: Side, ours: Mapping[str, Collection[str]]
) -> dict[str, KafkaRefused | None]:
    """Subtract our entries, and only those, from the topics' lists. A topic that is gone owes nothing.

    What is left, if only an empty list, stays: between looking and deleting, somebody else may have added to it.
    """
    results = _change_lists(cluster, side, ConfigOp.SUBTRACT, ours)
    return {topic: None if error and error.code == _UNKNOWN_TOPIC else error for topic, error in results.items()}


def rates(cluster: Configurable, side: Side, brokers: Collection[int]) -> dict[int, int | None]:
    """Each broker's own rate in bytes per second, None where it has none; a broker that does not answer is left out."""
    values = cluster.broker_configs(brokers, [side.rate_key], own_only=True)
    return {broker: _number(of.get(side.rate_key)) for broker, of in values.items()}


def set_rates(cluster: Configurable, side: Side, wanted: Mapping[int, int]) -> dict[int, ClusterError | None]:
    """Give each broker its rate in bytes per second; per broker None, or why it has not got it."""
    return cluster.change_broker_configs(
        {broker: [ConfigChange(side.rate_key, ConfigOp.SET, str(rate))] for broker, rate in wanted.items()}
    )


def restore_rates(cluster: Configurable, side: Side, owed: Mapping[int, OwedRate]) -> dict[int, Returned]:
    """Put back each rate that is still the one that we set. Raises KafkaRefused when Kafka will not have it."""
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
