"""The shared vocabulary: partitions, their replicas, and moves. Knows nothing of Kafka's API, Spark or Airflow."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

__all__ = ["Assignment", "Move", "MoveReason", "Operation", "TopicPartition"]

#: Broker ids in Kafka's order: the first replica is the preferred leader.
Assignment = tuple[int, ...]


class TopicPartition(NamedTuple):
    """A partition of a topic; prints as Kafka does, `orders-7`, and sorts by topic, then number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Operation(str, Enum):
    """Why a plan is made."""

    HEAL = "heal"
    REBALANCE = "rebalance"
    EXPAND = "expand"
    DRAIN = "drain"
    FILL = "fill"
    SET_REPLICATION_FACTOR = "set-replication-factor"
    APPLY = "apply"
    ROLLBACK = "rollback"


class MoveReason(str, Enum):
    """Why one partition moves; a plan's `reason` column holds the value."""

    #: A replica was on a broker that failed (KIP-46).
    BROKER_FAILED = "broker_failed"
    #: A replica was in a log directory that failed, of a broker that lives.
    LOG_DIR_FAILED = "log_dir_failed"
    #: A replica was on a broker that is to be emptied.
    BROKER_DRAINING = "broker_draining"
    #: It had fewer replicas than its target (KIP-409), or more.
    REPLICATION_FACTOR = "replication_factor"
    #: Its replicas were not spread over as many racks as there are.
    RACK_SPREAD = "rack_spread"
    #: Another broker held less than its fair share.
    BALANCE = "balance"
    #: A person or a file asked for exactly this.
    GIVEN = "given"
    #: The replicas are the same, in another order.
    REORDER = "reorder"

    @staticmethod
    def in_words(reason: str) -> str:
        """A reason for a person, as a clause; what is none of these stays as it is."""
        return _WORDS.get(reason, reason)


_WORDS: dict[str, str] = {
    MoveReason.BROKER_FAILED: "a replica was on a broker that failed",
    MoveReason.LOG_DIR_FAILED: "a replica was in a log directory that failed",
    MoveReason.BROKER_DRAINING: "a replica is on a broker that is to be emptied",
    MoveReason.REPLICATION_FACTOR: "it has more or fewer replicas than it shall have",
    MoveReason.RACK_SPREAD: "its replicas are not spread over as many racks as there are",
    MoveReason.BALANCE: "another broker held less than its share",
    MoveReason.GIVEN: "the plan was given so",
    MoveReason.REORDER: "the same replicas in another order, for leaders and those next in line",
}


@dataclass(frozen=True, slots=True)
class Move:
    """One partition's way from one assignment to another, with its place in the plan.

    `size_bytes` is the partition's size on its leader, None when unknown. `chunk` counts from 0, and `position`
    counts from 0 within its chunk; together they are the plan's order.
    """

    topic: str
    partition: int
    before: Assignment
    after: Assignment
    chunk: int
    position: int
    reason: str
    topic_id: str | None = None
    size_bytes: int | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that moves."""
        return TopicPartition(self.topic, self.partition)

    @property
    def adding(self) -> frozenset[int]:
        """Brokers that receive a replica."""
        return frozenset(self.after) - frozenset(self.before)

    @property
    def removing(self) -> frozenset[int]:
        """Brokers that give up their replica."""
        return frozenset(self.before) - frozenset(self.after)
