"""Shared types: partitions, their replicas, and moves. Independent of Kafka's API, Spark and Airflow."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from functools import cached_property, lru_cache
from typing import NamedTuple

__all__ = [
    "Assignment",
    "BALANCING_OPERATIONS",
    "EVEN_OPERATIONS",
    "GIVEN_OPERATIONS",
    "Move",
    "MoveReason",
    "MoveRule",
    "OPERATIONS",
    "Operation",
    "OperationSpec",
    "REORDERING_OPERATIONS",
    "TopicPartition",
    "URGENT_OPERATIONS",
]

#: Broker ids in Kafka's order: the first replica is the preferred leader.
Assignment = tuple[int, ...]


class TopicPartition(NamedTuple):
    """A partition of a topic; printed as in Kafka, `orders-7`, and sorted by topic, then number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Operation(StrEnum):
    """The purpose of a plan. `OPERATIONS` has the properties of each."""

    HEAL = "heal"
    REBALANCE = "rebalance"
    EXPAND = "expand"
    DRAIN = "drain"
    FILL = "fill"
    RELIEVE = "relieve"
    SET_REPLICATION_FACTOR = "set-replication-factor"
    LEADERS = "leaders"
    DEMOTE = "demote"
    PROMOTE = "promote"
    APPLY = "apply"
    ROLLBACK = "rollback"


class MoveRule(Enum):
    """The promise that an operation makes for each of its moves; the checker has a function for each."""

    #: Replicas in place stay, in their order; the missing ones are added, spread over the racks.
    KEEP_REPLICAS = auto()
    #: Only the named topics, with exactly the requested replication factor.
    REQUESTED_FACTOR = auto()
    #: As many replicas as the partition's target.
    TARGET_FACTOR = auto()
    #: The same replicas, of which another one comes first.
    SAME_REPLICAS = auto()
    #: The same replicas, of which those on demoted brokers stand last.
    DEMOTED_LAST = auto()
    #: The order that the replicas had before a demotion.
    ORDER_BEFORE = auto()
    #: Exactly the given target.
    GIVEN_TARGET = auto()
    #: Replicas on volumes that are used above a threshold are replaced, each in its place.
    FULL_VOLUMES = auto()


@dataclass(frozen=True, slots=True)
class OperationSpec:
    """The properties of an operation, for all code that treats some operations alike.

    A new operation needs its line in `OPERATIONS`, its options (`planning.options`), its solver
    (`planning.shards`), and, if no MoveRule fits, a rule of its own (`planning.checker.rules`). To be in the form of a
    rebalance, it has to be named there (`rebalance_request`).
    """

    #: One line of help.
    help: str
    #: None for an operation that the planner does not plan.
    rule: MoveRule | None
    #: It balances everything by one plan for the whole cluster.
    evens_out: bool = False
    #: It only improves the balance. Partitions that it leaves unchanged are not at risk.
    only_balances: bool = False
    #: It changes orders alone: no broker joins or leaves the replicas of a partition.
    only_reorders: bool = False
    #: Its moves are given, not searched: they may touch even partitions that the options exclude.
    is_given: bool = False
    #: It repairs or restores, and does not wait for a maintenance window.
    is_urgent: bool = False


#: An Operation is a string: both it and the name of an operation, as proofs and records have it, are keys.
OPERATIONS: Mapping[str, OperationSpec] = {
    Operation.HEAL: OperationSpec(
        "replace every replica that was on a failed broker", MoveRule.KEEP_REPLICAS, is_urgent=True
    ),
    Operation.FILL: OperationSpec(
        "bring every partition up to its target number of replicas", MoveRule.KEEP_REPLICAS, is_urgent=True
    ),
    Operation.REBALANCE: OperationSpec(
        "make every topic and the whole cluster even, over the live and new brokers",
        MoveRule.TARGET_FACTOR,
        evens_out=True,
        only_balances=True,
    ),
    Operation.EXPAND: OperationSpec(
        "the same, once brokers have joined", MoveRule.TARGET_FACTOR, evens_out=True, only_balances=True
    ),
    Operation.DRAIN: OperationSpec(
        "the same, and the draining brokers are emptied", MoveRule.TARGET_FACTOR, evens_out=True
    ),
    Operation.RELIEVE: OperationSpec(
        "move off what volumes hold above max_used, and nothing else", MoveRule.FULL_VOLUMES
    ),
    Operation.SET_REPLICATION_FACTOR: OperationSpec(
        'options: {"replication_factor": 3, "topics": ["orders"]}', MoveRule.REQUESTED_FACTOR
    ),
    Operation.LEADERS: OperationSpec(
        "make the leaders even by the order of each partition's replicas; nothing is copied",
        MoveRule.SAME_REPLICAS,
        only_balances=True,
        only_reorders=True,
    ),
    Operation.DEMOTE: OperationSpec(
        "let no demoted broker lead, and put them last in each partition's replicas; nothing is copied",
        MoveRule.DEMOTED_LAST,
        only_reorders=True,
    ),
    Operation.PROMOTE: OperationSpec(
        "restore the order before the demotion of brokers, where nothing has changed since",
        MoveRule.ORDER_BEFORE,
        only_reorders=True,
    ),
    Operation.APPLY: OperationSpec(
        'options: {"reassignment": {"version": 1, "partitions": [...]}}', MoveRule.GIVEN_TARGET, is_given=True
    ),
    Operation.ROLLBACK: OperationSpec(
        "restore the assignments that a plan has changed", None, is_given=True, is_urgent=True
    ),
}
EVEN_OPERATIONS = frozenset(name for name, spec in OPERATIONS.items() if spec.evens_out)
BALANCING_OPERATIONS = frozenset(name for name, spec in OPERATIONS.items() if spec.only_balances)
REORDERING_OPERATIONS = frozenset(name for name, spec in OPERATIONS.items() if spec.only_reorders)
GIVEN_OPERATIONS = frozenset(name for name, spec in OPERATIONS.items() if spec.is_given)
URGENT_OPERATIONS = frozenset(name for name, spec in OPERATIONS.items() if spec.is_urgent)


class MoveReason(StrEnum):
    """The reason why a partition moves; a plan's `reason` column holds the value."""

    #: A replica was on a broker that failed (KIP-46).
    BROKER_FAILED = "broker_failed"
    #: A replica was in a failed log directory of a live broker.
    LOG_DIR_FAILED = "log_dir_failed"
    #: A replica was on a broker that is to be drained, or that is down: plans other than a heal empty both.
    BROKER_DRAINING = "broker_draining"
    #: It had fewer replicas than its target (KIP-409), or more.
    REPLICATION_FACTOR = "replication_factor"
    #: Its replicas were not spread over as many racks as there are.
    RACK_SPREAD = "rack_spread"
    #: A replica was on a volume that is used above the threshold.
    DISK_FULL = "disk_full"
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
    MoveReason.BROKER_DRAINING: "a replica is on a broker that is down or being drained",
    MoveReason.REPLICATION_FACTOR: "its number of replicas is not its replication factor",
    MoveReason.RACK_SPREAD: "its replicas are not spread over as many racks as possible",
    MoveReason.DISK_FULL: "a replica is on a disk that is used above max_used",
    MoveReason.BALANCE: "another broker held less than its share",
    MoveReason.GIVEN: "the reassignment was requested explicitly",
    MoveReason.REORDER: "the same replicas in another order, to balance leaders and their successors",
}


@dataclass(frozen=True)  # without slots, for what is cached: a step asks for it tens of times
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

    @cached_property
    def topic_partition(self) -> TopicPartition:
        """The partition that moves."""
        return TopicPartition(self.topic, self.partition)

    @cached_property
    def adding(self) -> frozenset[int]:
        """Brokers that receive a replica."""
        return _lacking(self.before, self.after)

    @cached_property
    def removing(self) -> frozenset[int]:
        """Brokers that lose their replica."""
        return _lacking(self.after, self.before)


@lru_cache(maxsize=4096)  # many moves add the same brokers, and share the set
def _lacking(lacks: Assignment, has: Assignment) -> frozenset[int]:
    return frozenset(has) - frozenset(lacks)


def only_reorders(before: Assignment, after: Assignment) -> bool:
    """Return whether a partition keeps its replicas, in whatever order.

    Kafka changes an order at once, also without a leader and with dead brokers (4.3 on KRaft and 3.9 with ZooKeeper):
    nothing is copied, and nothing removed.
    """
    return sorted(before) == sorted(after)


def below_min_isr_reason(before: int, after: int, min_isr: int | None) -> str:
    """Return why a partition must not go from `before` to `after` replicas, as a clause; empty if it may.

    With fewer replicas than `min_isr`, its producers with acks=all would fail. A partition that has fewer already may
    move: it does not become worse.
    """
    if min_isr is None or after >= before or after >= min_isr:
        return ""
    return (
        f"it would go from {before} to {counted(after, 'replica')}, and min.insync.replicas is {min_isr}; ask for more "
        "replicas, or lower min.insync.replicas of its topic"
    )


def counted(number: int, what: str, singular: str = "", plural: str = "") -> str:
    """Return `1 partition`, or `2 partitions`, for a sentence; with the two forms of its verb, `1 partition is`."""
    noun, verb = (what, singular) if number == 1 else (f"{what}s", plural)
    return f"{number} {noun} {verb}" if verb else f"{number} {noun}"


def name_brokers(brokers: Collection[int]) -> str:
    """Return `broker 3`, or `brokers 3, 4 and 5`, for a sentence. `brokers` are not empty."""
    *first, last = map(str, brokers)
    return f"brokers {', '.join(first)} and {last}" if first else f"broker {last}"


def name_some(items: Collection[object], most: int, total: int = 0) -> str:
    """Return the first `most` items for a sentence, and how many more there are: `1, 2, 3 and 4 more`.

    `total` is the number of all, if `items` are only the first of them.
    """
    named, left = ", ".join(map(str, list(items)[:most])), max(total, len(items)) - min(len(items), most)
    return f"{named}{' and ' if named else ''}{left} more" if left > 0 else named


def last_in_sync(replicas: Assignment, isr: Collection[int], serving: Collection[int]) -> list[int]:
    """Return the brokers one of which has to come back so that a partition has a leader again: those last in sync.

    `serving` are the brokers with a live replica: they are there already. Eligible leader replicas (KIP-966) leave the
    ISR, which may then be empty: give both, where they are known.
    """
    away = [broker for broker in replicas if broker not in serving]
    return [broker for broker in away or replicas if broker in isr] or away


def bring_back(brokers: Collection[int], live: Collection[int]) -> str:
    """Return a clause: to bring back one of these, of which those in `live` have the replica in a failed log directory.

    `brokers` are the last in sync, and may be unknown.
    """
    away, disks = ([broker for broker in brokers if (broker in live) is there] for there in (False, True))
    ways = [f"bring back {_name_one_of(away)} with its data"] if away or not disks else []
    ways += [f"restore the failed log directory of {_name_one_of(disks)}"] if disks else []
    return ", or ".join(ways)


def _name_one_of(brokers: Collection[int]) -> str:
    if not brokers:
        return "one of its brokers"
    return f"{'one of its' if len(brokers) > 1 else 'its'} {name_brokers(brokers)}"


def begin_with_brokers(brokers: Collection[int], singular: str, plural: str) -> str:
    """Return the beginning of a sentence, `Broker 3 is` or `Brokers 3 and 4 are`, by the two forms of its verb."""
    return f"{name_brokers(brokers).capitalize()} {singular if len(brokers) == 1 else plural}"
