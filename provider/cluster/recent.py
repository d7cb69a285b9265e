"""What the controller has said lately, against brokers that have not heard it yet. No I/O; the clock is the caller's.

Reassignments are listed by the controller, partitions described by a broker, whose knowledge is older: by 75 ms, and at
times 240 ms, where it was measured. A move that has just ended is absent from the list while a broker still shows the
target with the leftovers; one that was asked for and done at once, while it still shows the old replicas. Taken at its
word, either looks like somebody else's work. So for `PATIENCE_S` after it left the list, what a broker shows as it was
in the list counts as in flight; and so does what was asked of the controller here, until a broker shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.state import Partition, Reassignment

__all__ = ["PATIENCE_S", "Recent"]

#: How long a broker may take to hear of what the controller has done, in seconds.
PATIENCE_S = 5.0


class Recent:
    """Remembers what one client heard from the controller, and what it asked of it. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._heard: dict[TopicPartition, tuple[Reassignment, float]] = {}
        self._asked: dict[TopicPartition, tuple[Assignment, float]] = {}

    def hear(self, listed: Mapping[TopicPartition, Reassignment], now_s: float) -> None:
        """The controller lists these as in flight, and nothing else."""
        until_s = now_s + PATIENCE_S
        self._heard |= {name: (flying, until_s) for name, flying in listed.items()}
        for name in listed.keys() & self._asked.keys():
            target, _ = self._asked.pop(name)
            if target == listed[name].target:
                self._asked[name] = (target, until_s)
        self._heard = {name: kept for name, kept in self._heard.items() if kept[1] > now_s}
        self._asked = {name: kept for name, kept in self._asked.items() if kept[1] > now_s}

    def ask(self, targets: Mapping[TopicPartition, Assignment | None], now_s: float) -> None:
        """The controller has said yes to these targets; None is a cancellation."""
        for name, target in targets.items():
            self._asked.pop(name, None)
            if target is not None:
                self._asked[name] = (target, now_s + PATIENCE_S)

    def reconcile(
        self, partitions: Mapping[TopicPartition, Partition], listed: Mapping[TopicPartition, Reassignment]
    ) -> dict[TopicPartition, Partition]:
        """`partitions`, as a broker shows them, with what is in flight by the list, which was read after them."""
        return {name: self._reconciled(name, seen, listed.get(name)) for name, seen in partitions.items()}

    def _reconciled(self, name: TopicPartition, seen: Partition, flying: Reassignment | None) -> Partition:
        if flying is not None:
            return replace(seen, replicas=flying.replicas, adding=flying.adding, removing=flying.removing)
        asked, heard = self._asked.get(name), self._heard.get(name)
        if asked is not None:
            return seen if asked[0] == seen.replicas else _on_its_way(seen, asked[0])
        if heard is not None and heard[0].replicas == seen.replicas:
            return replace(seen, adding=heard[0].adding, removing=heard[0].removing)
        return seen


def _on_its_way(seen: Partition, target: Assignment) -> Partition:
    """`seen` as Kafka shows a partition on its way to `target`: the target, and what is to be removed after it."""
    adding = tuple(broker for broker in target if broker not in seen.replicas)
    removing = tuple(broker for broker in seen.replicas if broker not in target)
    return replace(seen, replicas=(*target, *removing), adding=adding, removing=removing)
