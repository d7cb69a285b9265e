"""The replicas that remain on drained brokers, and partitions that are not fully replicated. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import BrokerLogDirs, Snapshot
from kafka_steward.errors import RequestError

#: The number of partitions that a message names; the others are only counted.
_NAMED = 3


def refuse_invalid_drain(snapshot: Snapshot, brokers: Collection[int]) -> None:
    """Raise RequestError for brokers that are not live, or if no live broker would be left."""
    unknown = sorted(set(brokers) - snapshot.live)
    if unknown:
        live = ", ".join(map(str, sorted(snapshot.live)))
        raise RequestError(
            f"Broker {unknown[0]} cannot be drained: it is not live; the live brokers are {live}. A dead broker is "
            "emptied by heal."
        )
    if brokers and snapshot.live <= set(brokers):
        raise RequestError("All live brokers would be drained, and none would be left to host their replicas.")


@dataclass(frozen=True, slots=True)
class DrainStatus:
    """The replicas that remain on the drained brokers.

    `assigned` are partitions that are still assigned to one of them. `undeleted_logs` are partitions that are not
    assigned there any more, and whose logs Kafka has yet to delete. `unresponsive` are drained brokers that are live
    and did not report their log directories.
    """

    brokers: Sequence[int]
    assigned: Sequence[TopicPartition]
    undeleted_logs: Sequence[TopicPartition]
    unresponsive: Sequence[int] = ()

    @property
    def is_empty(self) -> bool:
        """Return True if no replica is left in the metadata or on the disks, and every live broker reported."""
        return not self.assigned and not self.undeleted_logs and not self.unresponsive

    @property
    def sentence(self) -> str:
        """Return a message: the remaining replicas, and the next action of the operator."""
        name = f"Broker {', '.join(map(str, self.brokers))}"
        if self.assigned:
            shown = ", ".join(str(each) for each in self.assigned[:_NAMED])
            more = f" and {len(self.assigned) - _NAMED} more" if len(self.assigned) > _NAMED else ""
            return f"{name} is not empty yet: {shown}{more} are still assigned there; drain again before stopping it."
        if self.undeleted_logs:
            count = len(self.undeleted_logs)
            return f"{name} no longer has an assigned replica; Kafka has not yet deleted {count} from disk."
        if self.unresponsive:
            message = ", ".join(map(str, self.unresponsive))
            return (
                f"{name} no longer has an assigned replica; broker {message} did not report which logs are still "
                "on its disk."
            )
        return (
            f"{name} is empty in Kafka. Next: stop it before new topics are placed on it, and on KRaft "
            "unregister it (kafka-cluster.sh unregister)."
        )


def drain_status(snapshot: Snapshot, log_dirs: Mapping[int, BrokerLogDirs], brokers: Collection[int]) -> DrainStatus:
    """Return the replicas on `brokers` according to the metadata and to their own log directories."""
    wanted = frozenset(brokers)
    assigned = sorted(name for name, each in snapshot.partitions.items() if wanted & frozenset(each.replicas))
    held = {name for broker in wanted & log_dirs.keys() for name in log_dirs[broker].replica_bytes}
    silent = (wanted & snapshot.live) - log_dirs.keys()
    return DrainStatus(
        tuple(sorted(wanted)), tuple(assigned), tuple(sorted(held - set(assigned))), tuple(sorted(silent))
    )


@dataclass(frozen=True, slots=True)
class OutOfSyncPartition:
    """A partition that is not fully replicated: its replicas that are not in sync, and the reassignment flag."""

    topic: str
    partition: int
    missing: tuple[int, ...]
    reassigning: bool

    @property
    def sentence(self) -> str:
        """Return a message that names the brokers that are not in sync, or the reassignment in flight."""
        name = TopicPartition(self.topic, self.partition)
        if not self.missing:
            return f"{name} is being moved."
        brokers = ", ".join(map(str, self.missing))
        return f"{name} waits for broker {brokers} to be in sync{' and is being moved' if self.reassigning else ''}."


def find_out_of_sync(
    snapshot: Snapshot, partitions: Collection[TopicPartition] | None = None
) -> tuple[OutOfSyncPartition, ...]:
    """Return the partitions with a replica out of the ISR or a reassignment in flight, sorted.

    Only `partitions` are checked, or all if it is None. Partitions that do not exist are left out.
    """
    names = snapshot.partitions.keys() if partitions is None else set(partitions) & snapshot.partitions.keys()
    found = []
    for partition in (snapshot.partitions[name] for name in sorted(names)):
        missing = tuple(broker for broker in partition.replicas if broker not in partition.isr)
        if missing or partition.reassigning:
            found.append(OutOfSyncPartition(*partition.topic_partition, missing, partition.reassigning))
    return tuple(found)
