"""What a document that asks for reassignments means: each partition is moved, superseded or refused. Pure (KIP-236).

Requests count in the order in which they were created. Two routes lead to a partition: KIP-236's requests, and the old
`/admin/reassign_partitions`, whose work carries `legacy`; whichever came first keeps the partition, and the other one
is refused with a warning. On the same route the later word counts: what flies is cancelled first, so that no replica is
left of a target that nobody wants any more, and then the new target is submitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.state import Partition, Snapshot

__all__ = ["Asked", "Decision", "Fate", "Flight", "Sight", "decide"]


@dataclass(frozen=True, slots=True)
class Asked:
    """One partition that a document asks for; `source` is the document's path, `legacy` the route that it says."""

    partition: TopicPartition
    replicas: Assignment
    source: str
    legacy: bool = False


@dataclass(frozen=True, slots=True)
class Flight:
    """A reassignment that is under way or waits for its turn. `plan` is ours; without one, it is someone else's."""

    target: Assignment
    originals: Assignment | None
    legacy: bool = False
    plan: str | None = None


@dataclass(frozen=True)
class Sight:
    """What there is to be known: the cluster, what is under way, and min.insync.replicas by topic where known.

    `refused` has Kafka's words for each topic of which it tells us nothing.
    """

    snapshot: Snapshot
    flights: Mapping[TopicPartition, Flight] = field(default_factory=dict)
    min_isr: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)


class Fate(Enum):
    """What becomes of what was asked for."""

    MOVE = "move"
    #: Another reassignment of ours is cancelled first.
    SUPERSEDE = "supersede"
    #: Nothing is to be done: it is so already, or is on its way.
    DONE = "done"
    #: A later document of the same batch asks for something else.
    OVERTAKEN = "overtaken"
    REFUSE = "refuse"


@dataclass(frozen=True)
class Decision:
    """What becomes of one partition, and why, as a clause. `flight` is what is superseded."""

    asked: Asked
    fate: Fate
    why: str = ""
    flight: Flight | None = None


def decide(asked: Iterable[Asked], sight: Sight) -> list[Decision]:
    """Judge what was asked for, in order; at most one decision per partition is MOVE or SUPERSEDE."""
    decisions: list[Decision] = []
    chosen: dict[TopicPartition, int] = {}
    for one in asked:
        earlier = decisions[chosen[one.partition]] if one.partition in chosen else None
        decision = _judge(one, sight, earlier)
        if decision.fate is not Fate.REFUSE:
            if earlier is not None and decision.fate is not Fate.DONE:
                why = f"{one.source} asks for {list(one.replicas)} since"
                decisions[chosen[one.partition]] = Decision(earlier.asked, Fate.OVERTAKEN, why)
            if decision.fate is not Fate.DONE:
                chosen[one.partition] = len(decisions)
        decisions.append(decision)
    return decisions


def _judge(asked: Asked, sight: Sight, earlier: Decision | None) -> Decision:
    partition = sight.snapshot.partitions.get(asked.partition)
    flight = sight.flights.get(asked.partition)
    if partition is None:
        return Decision(asked, Fate.REFUSE, "there is no such partition")
    if asked.partition.topic in sight.refused:
        return Decision(asked, Fate.REFUSE, f"Kafka said: {sight.refused[asked.partition.topic]}")
    why = (
        _wrong_target(asked, partition, sight)
        or _wrong_route(asked, partition, flight, earlier)
        or _too_few(asked, partition, flight, sight)
    )
    if why:
        return Decision(asked, Fate.REFUSE, why)
    if earlier is not None:
        return _after(asked, earlier)
    if flight is not None and flight.target == asked.replicas:
        return Decision(asked, Fate.DONE, f"it is on its way to {list(asked.replicas)} already")
    return _fresh(asked, partition, flight)


def _fresh(asked: Asked, partition: Partition, flight: Flight | None) -> Decision:
    if flight is not None:
        return Decision(asked, Fate.SUPERSEDE, flight=flight)
    if partition.replicas == asked.replicas:
        return Decision(asked, Fate.DONE, f"it has the replicas {list(asked.replicas)} already")
    return Decision(asked, Fate.MOVE)


def _after(asked: Asked, earlier: Decision) -> Decision:
    """A later word about a partition whose earlier word is of the same batch, and has not begun."""
    if earlier.asked.replicas == asked.replicas:
        return Decision(asked, Fate.DONE, f"{earlier.asked.source} asks for the same")
    return Decision(asked, earlier.fate, flight=earlier.flight)


def _wrong_target(asked: Asked, partition: Partition, sight: Sight) -> str:
    if not asked.replicas:
        return "it names no broker"
    known = frozenset(sight.snapshot.brokers) | sight.snapshot.hosting
    strangers = [broker for broker in asked.replicas if broker not in known]
    if strangers:
        return f"the cluster has no broker {strangers[0]}"
    # What waits for a dead broker would only hold up what is asked for after it.
    dead = [each for each in asked.replicas if each not in sight.snapshot.live and each not in partition.replicas]
    return f"broker {dead[0]} is not live; ask again when it is" if dead else ""


def _wrong_route(asked: Asked, partition: Partition, flight: Flight | None, earlier: Decision | None) -> str:
    legacy = flight.legacy if flight is not None else earlier.asked.legacy if earlier is not None else asked.legacy
    if legacy != asked.legacy:
        route = "/admin/reassign_partitions" if legacy else "a request"
        return f"it is being reassigned by another route already, {route}"
    if partition.reassigning and (flight is None or flight.plan is None):
        return "someone else is moving it"
    return ""


def _too_few(asked: Asked, partition: Partition, flight: Flight | None, sight: Sight) -> str:
    """KIP-236: as many replicas as there were originally, `top`, are kept at least; that must be enough to write."""
    originals = partition.replicas if flight is None or flight.originals is None else flight.originals
    least = sight.min_isr.get(asked.partition.topic, 0)
    if len(originals) >= least:
        return ""
    return f"its {len(originals)} original replicas are fewer than min.insync.replicas, {least}"
