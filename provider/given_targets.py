"""The check of targets that a person gives: a file, the form of the DAG `apply`, the documents of KIP-236.

Pure. A target is refused for what would be worse than it is now. Another order of the same replicas never is. A
partition that nothing can be copied from is not checked else: the plan leaves it as it is, and names it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kafka_steward.assignment import Assignment, TopicPartition, below_min_isr_reason, only_reorders
from kafka_steward.errors import PlanError

#: The partitions whose faults a message names; the others are only counted.
_NAMED = 5


def refuse(faults: Iterable[str]) -> None:
    """Raise PlanError with these sentences, if there are any; the same sentence counts once."""
    different = list(dict.fromkeys(faults))
    if different:
        more = f" And {len(different) - _NAMED} more." if len(different) > _NAMED else ""
        raise PlanError(f"{' '.join(different[:_NAMED])}{more}")


@dataclass(frozen=True, slots=True)
class CurrentPartition:
    """One partition as it is: `min_isr` is min.insync.replicas of its topic, None if it cannot be read."""

    replicas: Assignment
    has_leader: bool
    reassigning: bool
    min_isr: int | None


@dataclass(frozen=True, slots=True)
class TargetCheck:
    """The state of the cluster that targets are checked against.

    `known` are all its brokers, live or not. `hidden` maps topics that an ACL may hide from us to the reason.
    """

    partitions: Mapping[TopicPartition, CurrentPartition]
    live: Collection[int]
    known: Collection[int]
    cordoned: Collection[int] = ()
    hidden: Mapping[str, str] = field(default_factory=dict)

    def refuse_impossible(self, given: Mapping[TopicPartition, Assignment], faults: Iterable[str] = ()) -> None:
        """Raise PlanError with these `faults`, and a sentence for each partition whose target cannot be reached."""
        refuse([*faults, *self.find_faults(given)])

    def find_faults(self, given: Mapping[TopicPartition, Assignment]) -> Iterator[str]:
        """Yield the first fault of each partition, as a sentence, in the order of the partitions."""
        topics = {name.topic for name in self.partitions}
        for name, target in sorted(given.items()):
            partition = self.partitions.get(name)
            if partition is not None:
                yield from filter(None, [self._find_fault(name, target, partition)])
            elif name.topic in self.hidden:
                yield f"The partition {name} may or may not exist: {self.hidden[name.topic]}."
            else:
                what = f"partition {name}" if name.topic in topics else f"topic {name.topic}"
                yield f"The reassignment names the {what}, which the cluster does not have."

    def _find_fault(self, name: TopicPartition, target: Assignment, partition: CurrentPartition) -> str:
        if partition.reassigning:
            wait = "wait until that has completed, or cancel it first"
            return f"The partition {name} is already being reassigned; {wait}."
        if not partition.has_leader or only_reorders(partition.replicas, target):
            return ""
        why = self._refusal(target, partition)
        return f"The reassignment of {name} is refused: {why}." if why else ""

    def _refusal(self, target: Assignment, partition: CurrentPartition) -> str:
        # Kafka waits until every replica of the target is in sync: with a failed broker, also one that has the replica
        # already, the reassignment would stall.
        for broker in target:
            if why := broker_fault(broker, self.live, self.known):
                return f"{why}; live are {', '.join(map(str, sorted(self.live)))}"
        return worse_target_reason(target, partition.replicas, partition.min_isr, self.cordoned)


def worse_target_reason(
    target: Assignment, replicas: Assignment, min_isr: int | None, cordoned: Collection[int]
) -> str:
    """Return why `target` is refused to a partition with `replicas`, live brokers given, as a clause; empty if not."""
    if why := below_min_isr_reason(len(replicas), len(target), min_isr):
        return why
    named = sorted((set(target) - set(replicas)) & set(cordoned))
    if not named:
        return ""
    return (
        f"broker {named[0]} is cordoned and receives no replicas; remove its directories from cordoned.log.dirs, or "
        "name another broker"
    )


def broker_fault(broker: int, live: Collection[int], known: Collection[int]) -> str:
    """Return why `broker` cannot have a replica, as a clause; empty if it can. `known` are all brokers, live or not."""
    if broker in live:
        return ""
    return f"broker {broker} is not live" if broker in known else f"the cluster has no broker {broker}"
