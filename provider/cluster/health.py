"""Judge the health of a cluster: which brokers have failed, by quorum (KIP-46), and the partitions' state (KIP-352).

A broker may be unreachable from here only because of a network fault on our side. It counts as failed only if the
cluster agrees: it has replicas, the cluster does not list it as live, and two other live brokers, queried one by one,
do not list it either. If there are fewer than two live brokers, all of them must agree. If no broker of a cluster
responds, the cluster has no failed broker: it is unreachable.

A partition is under-replicated if its assigned replicas, without those that a reassignment is adding, outnumber the
ISR: a reassignment by itself does not make a partition under-replicated (KIP-352). But it may put a partition under min
ISR: Kafka itself refuses acks=all while a replication factor of 1 becomes 3 and min.insync.replicas is 2.

Copied bytes are measured as the growth of new replicas between two checks. The two checks also compare the assignments,
so that a move which begins and ends between them is counted by the size of its new replicas. A client cannot see more.
A move that was cancelled between two checks leaves no trace, nor does a replica that was added and removed again, nor
the copying of a broker that does not report sizes. What producers write to a replica between its completion and the
next check is counted as copied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.state import BrokerLogDirs, Partition, Snapshot, lag
from kafka_steward.rack_rule import RackRule, judge_racks
from kafka_steward.service_topics import matches_any

#: The live brokers that must agree that a broker is down.
DOWN_QUORUM = 2


def failed_brokers(snapshot: Snapshot, views: Mapping[int, frozenset[int]]) -> frozenset[int]:
    """Return the failed brokers. `views` maps each live broker that responded to the brokers that it lists as live."""
    needed = min(DOWN_QUORUM, len(snapshot.live))
    words = down_votes(snapshot, views)
    # Without a live broker there is no witness: the cluster is unreachable, and no broker of it has failed.
    return frozenset(broker for broker, by in words.items() if needed and len(by) >= needed)


def down_votes(snapshot: Snapshot, views: Mapping[int, frozenset[int]]) -> dict[int, frozenset[int]]:
    """Return, for each broker that has replicas and is not live, the live brokers that do not list it as live."""
    return {
        broker: frozenset(witness for witness in snapshot.live & set(views) if broker not in views[witness])
        for broker in sorted(snapshot.dead_hosting_brokers)
    }


def failed_log_dirs(snapshot: Snapshot, disks: Mapping[int, BrokerLogDirs]) -> dict[int, tuple[str, ...]]:
    """Return the paths of the failed log directories by live broker.

    A broker in `disks` reports the paths. A broker without paths has offline replicas, from which the failure follows.
    """
    reported = {broker: dirs.failed_paths for broker, dirs in disks.items() if dirs.failed_paths}
    return dict(sorted({**dict.fromkeys(snapshot.offline_on_live_brokers, ()), **reported}.items()))


def count_failed_log_dirs(failed: Mapping[int, tuple[str, ...]]) -> int:
    """Return the number of failed log directories; a broker without a path counts as one."""
    return sum(max(1, len(paths)) for paths in failed.values())


def failed_paths_text(paths: Iterable[str]) -> str:
    """Return the failed log directories of one broker for a message."""
    return " and ".join(paths) or "of unknown path"


class PartitionCondition(StrEnum):
    """A condition of a partition by which it can be selected, as with the filters of `kafka-topics --describe`."""

    UNDER_REPLICATED = "under_replicated"
    UNDER_MIN_ISR = "under_min_isr"
    #: It has a leader, and with one more replica out of sync it is under min ISR.
    AT_MIN_ISR = "at_min_isr"
    #: It has no leader; `kafka-topics` calls it unavailable.
    OFFLINE = "offline"
    REASSIGNING = "reassigning"


def partition_conditions(partition: Partition, min_isr: int | None) -> tuple[PartitionCondition, ...]:
    """Return the conditions that a partition meets; without its topic's `min_isr`, none that depend on it."""
    in_sync_above_min = None if min_isr is None else len(partition.isr) - _effective_min_isr(partition, min_isr)
    met = {
        PartitionCondition.UNDER_REPLICATED: partition.under_replicated,
        PartitionCondition.UNDER_MIN_ISR: in_sync_above_min is not None and in_sync_above_min < 0,
        PartitionCondition.AT_MIN_ISR: in_sync_above_min == 0 and partition.leader is not None,
        PartitionCondition.OFFLINE: partition.leader is None,
        PartitionCondition.REASSIGNING: partition.reassigning,
    }
    return tuple(condition for condition, is_met in met.items() if is_met)


#: A replica: its partition, and its broker.
Replica = tuple[TopicPartition, int]


@dataclass(frozen=True)
class CopiedBytes:
    """The progress of copying at one check, to compare with the next one.

    `bytes_` are the bytes of the replicas that a reassignment is adding, by partition and broker. `completed` are the
    bytes of the replicas whose reassignment has completed since the previous check. `assigned` maps each partition to
    its topic's id and its replicas.
    """

    at_ms: int
    bytes_: Mapping[Replica, int]
    completed: Mapping[Replica, int] = field(default_factory=dict)
    assigned: Mapping[TopicPartition, tuple[str | None, Assignment]] = field(default_factory=dict)

    def known_bytes(self, partition: Partition, broker: int) -> int | None:
        """Return the bytes that a replica being copied had at this check: 0 before it was assigned; None if unknown."""
        name = partition.topic_partition
        topic_id, replicas = self.assigned.get(name, (None, ()))
        if name not in self.assigned or topic_id != partition.topic_id:
            return None
        return self.bytes_.get((name, broker)) if broker in replicas else 0


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """One broker: its rack, its assigned replicas, the partitions it leads, and bytes, None where they are unknown.

    `total_bytes` and `usable_bytes` are those of its log directories that accept replicas.
    """

    rack: str | None = None
    replicas: int = 0
    leaders: int = 0
    replica_bytes: int | None = None
    total_bytes: int | None = None
    usable_bytes: int | None = None


@dataclass(frozen=True)
class Health:
    """The result of one health check; collections are sorted. The names of `measures` follow KIP-352's metrics.

    `under_replicated_by_leader` and `reassigning_by_leader` count the partitions that each broker leads, as its own
    metrics do. `max_lag` is the largest lag, in messages, of the replicas being added; None while it is unknown.
    `bytes_in` and `bytes_out` are the bytes per second that reassignments copy to and from each broker; empty while
    unknown.
    `failed_log_dirs` lists the failed log directories of live brokers, by broker, without a path if a broker reports
    none. `cordoned` lists the live brokers without a log directory that accepts new replicas (KIP-1066). `demoted`
    counts, for each demoted broker, the partitions of which it is the preferred leader and another replica could be.
    `rack_violations` lists the partitions that break the rack rule and that a rebalance moves; `rack_left` those that
    none moves, with topic, number and the word of the reason. `deletions` has a sentence for each topic whose deletion
    is pending, which nothing else counts.
    `hidden_topics` lists the topics that are in log directories and may not be described, None if that was not checked.
    Imbalance is the excess of the fullest live broker over the mean, as a fraction of the mean: in replicas, and in
    leaders. `loads` has each broker that is registered or hosts replicas.
    """

    partitions: int
    live: tuple[int, ...]
    gone: tuple[int, ...]
    under_replicated: tuple[TopicPartition, ...]
    under_min_isr: tuple[TopicPartition, ...]
    offline: tuple[TopicPartition, ...]
    reassigning: tuple[TopicPartition, ...]
    max_lag: int | None
    replica_imbalance: float
    leader_imbalance: float
    pending: int = 0
    under_replicated_by_leader: Mapping[int, int] = field(default_factory=dict)
    reassigning_by_leader: Mapping[int, int] = field(default_factory=dict)
    bytes_in: Mapping[int, float] = field(default_factory=dict)
    bytes_out: Mapping[int, float] = field(default_factory=dict)
    failed_log_dirs: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    cordoned: tuple[int, ...] = ()
    demoted: Mapping[int, int] = field(default_factory=dict)
    hidden_topics: tuple[str, ...] | None = None
    loads: Mapping[int, BrokerLoad] = field(default_factory=dict)
    rack_violations: tuple[TopicPartition, ...] = ()
    rack_left: tuple[tuple[str, int, str], ...] = ()
    deletions: tuple[str, ...] = ()

    @property
    def measures(self) -> dict[str, float]:
        """The measures by name; unknown ones are left out."""
        lag_known = {} if self.max_lag is None else {"reassignment_max_lag": self.max_lag}
        hidden_known = {} if self.hidden_topics is None else {"hidden_topics": len(self.hidden_topics)}
        return {
            "under_replicated_partitions": len(self.under_replicated),
            "under_min_isr_partitions": len(self.under_min_isr),
            "offline_partitions": len(self.offline),
            "reassigning_partitions": len(self.reassigning),
            **lag_known,
            "failed_brokers": len(self.gone),
            "failed_log_dirs": count_failed_log_dirs(self.failed_log_dirs),
            "cordoned_brokers": len(self.cordoned),
            "demoted_brokers": len(self.demoted),
            "demoted_leaders": sum(self.demoted.values()),
            **hidden_known,
            "pending_replicas": self.pending,
            "rack_violations": len(self.rack_violations),
            "replica_imbalance": round(self.replica_imbalance, 4),
            "leader_imbalance": round(self.leader_imbalance, 4),
            **_measures_by_broker("under_replicated_partitions", self.under_replicated_by_leader),
            **_measures_by_broker("reassigning_partitions", self.reassigning_by_leader),
            **_measures_by_broker("reassignment_bytes_in_per_sec", self.bytes_in),
            **_measures_by_broker("reassignment_bytes_out_per_sec", self.bytes_out),
        }

    @property
    def by_condition(self) -> dict[PartitionCondition, tuple[TopicPartition, ...]]:
        """The partitions by the condition that they meet, without the condition "at min ISR"."""
        return {
            PartitionCondition.UNDER_REPLICATED: self.under_replicated,
            PartitionCondition.UNDER_MIN_ISR: self.under_min_isr,
            PartitionCondition.OFFLINE: self.offline,
            PartitionCondition.REASSIGNING: self.reassigning,
        }


def measure_health(
    snapshot: Snapshot,
    *,
    min_isr: Mapping[str, int],
    ends: Mapping[tuple[TopicPartition, int], int],
    copies: CopiedBytes,
    before: CopiedBytes | None = None,
    pending: int = 0,
    disks: Mapping[int, BrokerLogDirs] | None = None,
    hidden_topics: tuple[str, ...] | None = None,
    sizes: Mapping[int, BrokerLogDirs] | None = None,
    service_topics: Sequence[str] = (),
    demoted: Collection[int] = (),
) -> Health:
    """Return the health of a cluster.

    `min_isr` maps topics to their min ISR; it must contain at least the topics with a replica out of sync. `ends` are
    the log end offsets of the reassigning partitions. `copies` is the copying progress now, and `before` at an earlier
    poll. `disks` are the live brokers' log directories, and `sizes` those of some brokers with their replicas.
    `demoted` brokers are to lead nothing.
    """
    partitions = snapshot.partitions
    under_replicated = [partition for partition in partitions.values() if partition.under_replicated]
    into, out_of = _copy_rates(snapshot, copies, before)
    cordoned = tuple(sorted(broker for broker, dirs in (disks or {}).items() if dirs.cordoned))
    racks = sorted(judge_rack_rule(snapshot, cordoned, service_topics).items())
    return Health(
        partitions=len(partitions),
        live=tuple(sorted(snapshot.live)),
        gone=tuple(broker for broker in _known_brokers(snapshot) if broker not in snapshot.live),
        under_replicated=_sorted_names(under_replicated),
        under_min_isr=_sorted_names(
            partition
            for partition in partitions.values()
            if len(partition.isr) < _effective_min_isr(partition, min_isr.get(partition.topic, 1))
        ),
        offline=_sorted_names(partition for partition in partitions.values() if partition.leader is None),
        reassigning=_sorted_names(snapshot.in_flight.values()),
        max_lag=_max_lag(snapshot.reassigning.values(), ends),
        replica_imbalance=_imbalance(
            snapshot, (broker for partition in partitions.values() for broker in partition.replicas)
        ),
        leader_imbalance=_imbalance(
            snapshot, (partition.leader for partition in partitions.values() if partition.leader is not None)
        ),
        pending=pending,
        under_replicated_by_leader=_count_by_leader(snapshot, under_replicated),
        reassigning_by_leader=_count_by_leader(snapshot, snapshot.reassigning.values()),
        bytes_in=into,
        bytes_out=out_of,
        failed_log_dirs=failed_log_dirs(snapshot, disks or {}),
        cordoned=cordoned,
        demoted=_count_preferred(snapshot, frozenset(demoted)),
        hidden_topics=hidden_topics,
        loads=_broker_loads(snapshot, disks or {}, sizes or {}),
        rack_violations=tuple(name for name, verdict in racks if verdict is RackRule.BROKEN),
        deletions=snapshot.deletion_sentences,
        rack_left=tuple((*name, verdict.word) for name, verdict in racks if verdict is not RackRule.BROKEN),
    )


def _count_preferred(snapshot: Snapshot, demoted: frozenset[int]) -> dict[int, int]:
    counts = dict.fromkeys(sorted(demoted), 0)
    for partition in snapshot.partitions.values() if demoted else ():
        preferred = partition.replicas[0]
        if preferred in demoted and (partition.isr & snapshot.live) - demoted and not partition.reassigning:
            counts[preferred] += 1
    return counts


def judge_rack_rule(
    snapshot: Snapshot, cordoned: Collection[int] = (), service_topics: Sequence[str] = ()
) -> dict[TopicPartition, RackRule]:
    """Return the partitions that break the rack rule by `judge_racks`, with the reason for which one is left. Pure."""
    rack_of = {broker: snapshot.brokers[broker].rack for broker in snapshot.live}
    # In one rack, every placement is as good as any other.
    if len(set(rack_of.values())) < 2:
        return {}
    racks = sorted({rack for rack in rack_of.values() if rack is not None})
    brokers = sorted(snapshot.live | snapshot.hosting_brokers)
    at = {broker: number for number, broker in enumerate(brokers)}
    live = np.array([broker in snapshot.live for broker in brokers], bool)
    numbers = [-1 if (rack := rack_of.get(broker)) is None else racks.index(rack) for broker in brokers]
    service = {topic for topic in snapshot.topics if matches_any(topic, service_topics)}
    partitions = list(snapshot.partitions.values())
    targets = [
        [at[broker] for broker in partition.replicas if broker not in partition.removing] for partition in partitions
    ]
    verdict = judge_racks(
        np.repeat(np.arange(len(targets)), np.array(list(map(len, targets)), np.int64)),
        np.array([broker for target in targets for broker in target], np.int64),
        len(targets),
        rack=np.array(numbers, np.int64),
        live=live,
        able=live & ~np.isin(brokers, list(cordoned)),
        left={
            RackRule.IN_FLIGHT: np.array([partition.reassigning for partition in partitions], bool),
            RackRule.SERVICE_TOPIC: np.array([partition.topic in service for partition in partitions], bool),
            RackRule.NO_LEADER: np.array([partition.leader is None for partition in partitions], bool),
        },
    )
    return {partitions[row].topic_partition: RackRule(int(verdict[row])) for row in np.flatnonzero(verdict).tolist()}


def _broker_loads(
    snapshot: Snapshot, disks: Mapping[int, BrokerLogDirs], sizes: Mapping[int, BrokerLogDirs]
) -> dict[int, BrokerLoad]:
    partitions = snapshot.partitions.values()
    replicas = Counter(broker for partition in partitions for broker in partition.replicas)
    leaders = Counter(partition.leader for partition in partitions if partition.leader is not None)
    loads = {}
    for broker in _known_brokers(snapshot):
        disk, listed = disks.get(broker), snapshot.brokers.get(broker)
        loads[broker] = BrokerLoad(
            rack=None if listed is None else listed.rack,
            replicas=replicas[broker],
            leaders=leaders[broker],
            replica_bytes=sum(sizes[broker].replica_bytes.values()) if broker in sizes else None,
            total_bytes=None if disk is None else disk.total_bytes,
            usable_bytes=None if disk is None else disk.usable_bytes,
        )
    return loads


def receiving_brokers(snapshot: Snapshot, before: CopiedBytes | None = None) -> frozenset[int]:
    """Return the live brokers that reassignments copy to, or, as far as `before` shows, have copied to since then."""
    brokers = {broker for partition in snapshot.reassigning.values() for broker in partition.adding}
    return snapshot.live & (brokers | {broker for _, broker in _completed_replicas(snapshot, before)})


def copied_bytes(
    snapshot: Snapshot, log_dirs: Mapping[int, BrokerLogDirs], at_ms: int, before: CopiedBytes | None = None
) -> CopiedBytes:
    """Return the progress of copying to the replicas that reassignments add, or have added since `before`.

    If a broker does not report sizes, its replicas keep the bytes that are known. What it copies meanwhile is counted
    when it responds again.
    """
    adding = [(name, broker) for name, partition in snapshot.reassigning.items() for broker in partition.adding]
    completed = _completed_replicas(snapshot, before)
    silent = {
        replica: known
        for replica in (*adding, *completed)
        if replica[1] not in log_dirs
        and before is not None
        and (known := before.known_bytes(snapshot.partitions[replica[0]], replica[1])) is not None
    }
    return CopiedBytes(
        at_ms,
        {**_reported_bytes(adding, log_dirs), **silent},
        _reported_bytes(completed, log_dirs),
        {name: (partition.topic_id, partition.replicas) for name, partition in snapshot.partitions.items()},
    )


def _completed_replicas(snapshot: Snapshot, before: CopiedBytes | None) -> list[Replica]:
    """Return the replicas that were being added at `before`, or not assigned then, and that are assigned now."""
    if before is None:
        return []
    copied_to = {name for name, _ in before.bytes_}
    return [
        (name, broker)
        for name, partition in snapshot.partitions.items()
        if name in copied_to or before.assigned.get(name) != (partition.topic_id, partition.replicas)
        for broker in partition.replicas
        if broker not in partition.adding and before.known_bytes(partition, broker) is not None
    ]


def _reported_bytes(replicas: Iterable[Replica], log_dirs: Mapping[int, BrokerLogDirs]) -> dict[Replica, int]:
    """Return the bytes of the replicas whose brokers have responded; 0 for a replica that has no log yet."""
    return {
        (name, broker): log_dirs[broker].replica_bytes.get(name, 0) for name, broker in replicas if broker in log_dirs
    }


def _sorted_names(partitions: Iterable[Partition]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(partition.topic_partition for partition in partitions))


def _effective_min_isr(partition: Partition, min_isr: int) -> int:
    # The same rule by which the leader accepts acks=all (Partition.effectiveMinIsr): a topic with fewer replicas than
    # the setting needs no more than it has, and replicas that are being added count, unlike for under_replicated.
    return min(min_isr, len(partition.replicas))


def _known_brokers(snapshot: Snapshot) -> list[int]:
    """Return the brokers that are live or have replicas, sorted; -1 in an assignment is no broker."""
    return sorted(broker for broker in snapshot.live | snapshot.hosting_brokers if broker >= 0)


def _count_by_leader(snapshot: Snapshot, partitions: Iterable[Partition]) -> dict[int, int]:
    # A dead broker leads nothing: its gauge has to return to 0 all the same.
    counts = Counter(partition.leader for partition in partitions if partition.leader is not None)
    return {broker: counts[broker] for broker in sorted({*_known_brokers(snapshot), *counts})}


def _measures_by_broker(name: str, values: Mapping[int, float]) -> dict[str, float]:
    return {f"{name}.{broker}": round(value) for broker, value in values.items()}


def _max_lag(moving: Iterable[Partition], ends: Mapping[tuple[TopicPartition, int], int]) -> int | None:
    lags = [lag(ends, partition, broker) for partition in moving for broker in partition.adding]
    known = [messages for messages in lags if messages is not None]
    # Without a replica being added, nothing lags. With such replicas and no known lag, the lag is unknown.
    return max(known) if known else (None if lags else 0)


def _imbalance(snapshot: Snapshot, brokers: Iterable[int]) -> float:
    counts = Counter(broker for broker in brokers if broker in snapshot.live)
    mean = sum(counts.values()) / len(snapshot.live) if snapshot.live else 0.0
    return max(counts.values()) / mean - 1 if mean else 0.0


def _copy_rates(
    snapshot: Snapshot, copies: CopiedBytes, before: CopiedBytes | None
) -> tuple[dict[int, float], dict[int, float]]:
    """Return the bytes per second into and out of each broker since `before`; the current leaders count as senders."""
    if before is None or copies.at_ms <= before.at_ms:
        return {}, {}
    into, out_of = (dict.fromkeys(_known_brokers(snapshot), 0.0) for _ in range(2))
    for (name, broker), size in {**copies.bytes_, **copies.completed}.items():
        partition = snapshot.partitions[name]
        known = before.known_bytes(partition, broker)
        if known is None or size <= known:
            # Retention may have made the log smaller than it was.
            continue
        rate = (size - known) * 1000 / (copies.at_ms - before.at_ms)
        into[broker] = into.get(broker, 0.0) + rate
        if partition.leader is not None:
            out_of[partition.leader] = out_of.get(partition.leader, 0.0) + rate
    return into, out_of
