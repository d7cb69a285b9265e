"""Shared types: partitions, their replicas, and moves. Independent of Kafka's API, Spark and Airflow."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

__all__ = ["EVEN_OPERATIONS", "Assignment", "Move", "MoveReason", "Operation", "TopicPartition"]

#: Broker ids in Kafka's order: the first replica is the preferred leader.
Assignment = tuple[int, ...]


class TopicPartition(NamedTuple):
    """A partition of a topic; printed as in Kafka, `orders-7`, and sorted by topic, then number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Operation(str, Enum):
    """The purpose of a plan."""

    HEAL = "heal"
    REBALANCE = "rebalance"
    EXPAND = "expand"
    DRAIN = "drain"
    FILL = "fill"
    SET_REPLICATION_FACTOR = "set-replication-factor"
    APPLY = "apply"
    ROLLBACK = "rollback"


#: Operations that balance everything by one plan for the whole cluster.
EVEN_OPERATIONS = frozenset({Operation.REBALANCE, Operation.EXPAND, Operation.DRAIN})


class MoveReason(str, Enum):
    """The reason why a partition moves; a plan's `reason` column holds the value."""

    #: A replica was on a broker that failed (KIP-46).
    BROKER_FAILED = "broker_failed"
    #: A replica was in a failed log directory of a live broker.
    LOG_DIR_FAILED = "log_dir_failed"
    #: A replica was on a broker that is to be drained.
    BROKER_DRAINING = "broker_draining"
    #: It had fewer replicas than its target (KIP-409), or more.
    REPLICATION_FACTOR = "replication_factor"
    #: Its replicas were not spread over as many racks as there are.
    RACK_SPREAD = "rack_spread"
    #: Another broker held less than its fair share.
    BALANCE = "balance"
    #: A user or a file requested exactly this assignment.
    GIVEN = "given"
    #: The replicas are the same, in another order.
    REORDER = "reorder"

    @staticmethod
    def in_words(reason: str) -> str:
        """Return a reason as a readable clause; an unknown reason is returned unchanged."""
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
    """The change of one partition from one assignment to another, with its place in the plan.

    `size_bytes` is the partition's size on its leader, None when unknown. `chunk` counts from 0, and `position` counts
    from 0 within its chunk; together they are the plan's order. `purpose` is a MoveReason of the planner.
    """

    topic: str
    partition: int
    before: Assignment
    after: Assignment
    chunk: int
    position: int
    purpose: str
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
        """Brokers that lose their replica."""
        return frozenset(self.before) - frozenset(self.after)
