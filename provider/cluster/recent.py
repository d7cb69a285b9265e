"""What the controller has said lately, against brokers that have not heard it yet. No I/O; the clock is the caller's.

Reassignments are listed by the controller, partitions described by a broker, whose knowledge is older: by 75 ms, and at
times 240 ms, where it was measured; by many seconds where a ZooKeeper-mode controller has hundreds of moves to tell of.
A move that has just ended is absent from the list while a broker still shows the target with the leftovers; one that
was asked for and done at once, while it still shows the old replicas; one that was cancelled, perhaps as if it had
never begun. Taken at its word, each looks like somebody else's work, or like work that is done.

So what a broker shows is held against what was heard and asked here, and counts as in flight

* while it *cannot* be news: it is what the list showed in flight, or its leader epoch is no higher than before we
  asked (for `OLD_NEWS_S` at most, should that reasoning be wrong);
* for `PATIENCE_S` after the last word of the controller, where it may be either.

A leader epoch is raised whenever a replica is removed, so that no set of replicas comes back with the same one; and by
a ZooKeeper-mode controller with every change, that of an order too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.state import Partition, Reassignment

__all__ = ["OLD_NEWS_S", "PATIENCE_S", "Recent"]

#: How long a broker may take to hear of what the controller has done, in seconds.
PATIENCE_S = 5.0
#: How long it may go on to show what is known to be old.
OLD_NEWS_S = 600.0


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the controller said yes to: `target` is None for a cancel. `topic_id` and `epoch` a broker showed last."""

    target: Assignment | None
    topic_id: str | None
    epoch: int
    at_s: float


class _Shown(NamedTuple):
    """What a broker showed last of a topic: its id, and the leader epoch by partition.

    By topic, because each collection of garbage would go through a tuple for each partition, while everybody waits; it
    leaves out a dict of numbers.
    """

    topic_id: str | None
    epochs: dict[int, int]


_NOT_SHOWN = _Shown(None, {})


class Recent:
    """Remembers what one client heard from the controller, and what it asked of it. Times are monotonic seconds.

    `orders_raise_epochs` as it is in ZooKeeper mode.
    """

    def __init__(self, *, orders_raise_epochs: bool = False) -> None:
        self._orders_raise_epochs = orders_raise_epochs
        self._heard: dict[TopicPartition, tuple[Reassignment, float]] = {}
        self._asked: dict[TopicPartition, _Asked] = {}
        self._shown: dict[str, _Shown] = {}
        self._now_s = 0.0

    def hear(self, listed: Mapping[TopicPartition, Reassignment], now_s: float) -> None:
        """The controller lists these as in flight, and nothing else."""
        self._now_s = now_s
        self._heard |= {name: (flying, now_s) for name, flying in listed.items()}
        for name in listed.keys() & self._asked.keys():
            asked = self._asked.pop(name)
            if asked.target == listed[name].target:
                self._asked[name] = replace(asked, at_s=now_s)
        self._heard = {name: kept for name, kept in self._heard.items() if now_s - kept[1] < OLD_NEWS_S}
        self._asked = {name: asked for name, asked in self._asked.items() if now_s - asked.at_s < OLD_NEWS_S}

    def ask(self, targets: Mapping[TopicPartition, Assignment | None], now_s: float) -> None:
        """The controller has said yes to these targets; None is a cancellation."""
        for name, target in targets.items():
            shown = self._shown.get(name.topic, _NOT_SHOWN)
            self._asked[name] = _Asked(target, shown.topic_id, shown.epochs.get(name.partition, -1), now_s)

    def reconcile(
        self, partitions: Mapping[TopicPartition, Partition], listed: Mapping[TopicPartition, Reassignment]
    ) -> dict[TopicPartition, Partition]:
        """`partitions`, as a broker shows them, with what is in flight by the list, which was read after them."""
        self._shown = _shown(partitions)
        return {name: self._reconciled(name, seen, listed.get(name)) for name, seen in partitions.items()}

    def _reconciled(self, name: TopicPartition, seen: Partition, flying: Reassignment | None) -> Partition:
        if flying is not None:
            return _in_flight(seen, flying)
        asked, heard = self._asked.get(name), self._heard.get(name)
        if asked is not None and asked.target is not None and self._may_become(asked.target, asked, seen):
            return seen if asked.target == seen.replicas else _on_its_way(seen, asked.target)
        if heard is not None and self._still_shown(*heard, asked, seen):
            return _in_flight(seen, heard[0])
        return seen

    def _may_become(self, target: Assignment, asked: _Asked, seen: Partition) -> bool:
        """Whether the broker shows what was asked for, or what may have been before it."""
        if target == seen.replicas or self._now_s - asked.at_s < PATIENCE_S:
            return True
        raised = self._orders_raise_epochs or frozenset(target) != frozenset(seen.replicas)
        return raised and _older(seen, asked)

    def _still_shown(self, was: Reassignment, at_s: float, asked: _Asked | None, seen: Partition) -> bool:
        """Whether the broker shows a move in flight, or as not begun, that has left the list."""
        if was.replicas == seen.replicas:
            # When nothing is to be removed, this may just as well be what it has come to.
            return bool(was.removing) or self._now_s - at_s < PATIENCE_S
        cancelled = asked is not None and asked.target is None and _older(seen, asked)
        return cancelled and bool(was.adding)  # without that, a cancel changes no replicas


def _shown(partitions: Mapping[TopicPartition, Partition]) -> dict[str, _Shown]:
    shown: dict[str, _Shown] = {}
    for name, seen in partitions.items():
        if name.topic not in shown:
            shown[name.topic] = _Shown(seen.topic_id, {})
        shown[name.topic].epochs[name.partition] = seen.leader_epoch
    return shown


def _older(seen: Partition, asked: _Asked) -> bool:
    # A topic that was created anew counts its epochs anew.
    return seen.topic_id == asked.topic_id and 0 <= seen.leader_epoch <= asked.epoch


def _in_flight(seen: Partition, flying: Reassignment) -> Partition:
    return replace(seen, replicas=flying.replicas, adding=flying.adding, removing=flying.removing)


def _on_its_way(seen: Partition, target: Assignment) -> Partition:
    """`seen` as Kafka shows a partition on its way to `target`: the target, and what is to be removed after it."""
    adding = tuple(broker for broker in target if broker not in seen.replicas)
    removing = tuple(broker for broker in seen.replicas if broker not in target)
    return replace(seen, replicas=(*target, *removing), adding=adding, removing=removing)
