"""The health of a cluster: failed brokers, by quorum (KIP-46), and partition health (KIP-352).

A broker may be unreachable from here only because of a network fault on our side. It counts as failed only if the
cluster agrees: it has replicas, the cluster does not list it as live, and two other live brokers (all of them, if there
are fewer), queried one by one, do not list it either. If no broker of a cluster responds, the cluster has no failed
broker: it is unreachable.

A partition is under-replicated if its assigned replicas, without those that a reassignment is adding, outnumber the
ISR: a reassignment by itself does not make a partition under-replicated (KIP-352). But it may put a partition under min
ISR: Kafka itself refuses acks=all while a replication factor of 1 becomes 3 and min.insync.replicas is 2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import BrokerLogDirs, Partition, Snapshot, lag

DOWN_QUORUM = 2


def failed_brokers(snapshot: Snapshot, views: Mapping[int, frozenset[int]]) -> frozenset[int]:
    """Return the failed brokers. `views` maps each live broker that responded to the brokers that it lists as live."""
    needed = min(DOWN_QUORUM, len(snapshot.live))
    words = down_votes(snapshot, views)
    return frozenset(broker for broker, by in words.items() if needed and len(by) >= needed)


def down_votes(snapshot: Snapshot, views: Mapping[int, frozenset[int]]) -> dict[int, frozenset[int]]:
    """Return, for each broker that has replicas and is not live, the live brokers that do not list it as live."""
    # -1 in a ZooKeeper-mode assignment is a placeholder for a pending replica, not a broker.
    missing = {broker for broker in snapshot.hosting_brokers - snapshot.live if broker >= 0}
    return {
        broker: frozenset(witness for witness in snapshot.live & set(views) if broker not in views[witness])
        for broker in sorted(missing)
    }


def failed_log_dirs(snapshot: Snapshot, disks: Mapping[int, BrokerLogDirs]) -> dict[int, tuple[str, ...]]:
    """Return the paths of the failed log directories by live broker.

    They are as reported by the broker in `disks`. Without a path, the failure is inferred from its offline replicas.
    """
    reported = {broker: dirs.failed_paths for broker, dirs in disks.items() if dirs.failed_paths}
    return dict(sorted({**dict.fromkeys(snapshot.offline_on_live_brokers, ()), **reported}.items()))


def count_failed_log_dirs(failed: Mapping[int, tuple[str, ...]]) -> int:
    """Return the number of failed log directories; a broker without a path counts as one."""
    return sum(max(1, len(paths)) for paths in failed.values())


def failed_paths_text(paths: Iterable[str]) -> str:
    """Return the failed log directories of one broker for a message."""
    return " and ".join(paths) or "of unknown path"


@dataclass(frozen=True)
class CopiedBytes:
    """The progress of copying at one moment: bytes by partition and broker that a reassignment is adding."""

    at_ms: int
    bytes_: Mapping[tuple[TopicPartition, int], int]


@dataclass(frozen=True)
class Health:
    """The result of one health check; collections are sorted. The names of `measures` follow KIP-352's metrics.

    `max_lag` is the largest lag, in messages, of the replicas being added; None while it is unknown. `bytes_in` and
    `bytes_out` are the bytes per second that reassignments copy to and from each live broker; empty while unknown.
    `failed_log_dirs` lists the failed log directories of live brokers, by broker, without a path if a broker reports
    none. `cordoned` lists the live brokers without a log directory that accepts new replicas (KIP-1066).
    `hidden_topics` lists the topics that are in log directories and may not be described, None if that was not checked.
    Imbalance is the excess of the fullest live broker over the mean, as a fraction of the mean: in replicas, and in
    leaders.
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
    bytes_in: Mapping[int, float] = field(default_factory=dict)
    bytes_out: Mapping[int, float] = field(default_factory=dict)
    failed_log_dirs: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    cordoned: tuple[int, ...] = ()
    hidden_topics: tuple[str, ...] | None = None

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
            **hidden_known,
            "pending_replicas": self.pending,
            "owed_replicas": self.pending,  # the former name, until version 0.3
            "replica_imbalance": round(self.replica_imbalance, 4),
            "leader_imbalance": round(self.leader_imbalance, 4),
            **{f"reassignment_bytes_in_per_sec.{broker}": round(rate) for broker, rate in self.bytes_in.items()},
            **{f"reassignment_bytes_out_per_sec.{broker}": round(rate) for broker, rate in self.bytes_out.items()},
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
) -> Health:
    """Return the health of a cluster.

    `min_isr` maps topics to their min ISR; it must contain at least those with a replica out of sync. `disks` are the
    live brokers' log directories. `ends` are the log end offsets of the reassigning partitions. `before` is the copying
    progress at an earlier poll.
    """
    partitions = snapshot.partitions
    into, out_of = _copy_rates(snapshot, copies, before)
    return Health(
        partitions=len(partitions),
        live=tuple(sorted(snapshot.live)),
        gone=tuple(sorted(broker for broker in snapshot.hosting_brokers - snapshot.live if broker >= 0)),
        under_replicated=_sorted_names(each for each in partitions.values() if each.under_replicated),
        under_min_isr=_sorted_names(each for each in partitions.values() if _is_under_min_isr(each, min_isr)),
        offline=_sorted_names(each for each in partitions.values() if each.leader is None),
        reassigning=_sorted_names(snapshot.reassigning.values()),
        max_lag=_max_lag(snapshot.reassigning.values(), ends),
        replica_imbalance=_imbalance(snapshot, (broker for each in partitions.values() for broker in each.replicas)),
        leader_imbalance=_imbalance(snapshot, (each.leader for each in partitions.values() if each.leader is not None)),
        pending=pending,
        bytes_in=into,
        bytes_out=out_of,
        failed_log_dirs=failed_log_dirs(snapshot, disks or {}),
        cordoned=tuple(sorted(broker for broker, dirs in (disks or {}).items() if dirs.cordoned)),
        hidden_topics=hidden_topics,
    )


def copied_bytes(snapshot: Snapshot, log_dirs: Mapping[int, BrokerLogDirs], at_ms: int) -> CopiedBytes:
    """Return the bytes copied to the replicas that reassignments are adding; leave out brokers without log data."""
    return CopiedBytes(
        at_ms,
        {
            (name, broker): log_dirs[broker].replica_bytes.get(name, 0)
            for name, partition in snapshot.reassigning.items()
            for broker in partition.adding
            if broker in log_dirs
        },
    )


def _sorted_names(partitions: Iterable[Partition]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(partition.topic_partition for partition in partitions))


def _is_under_min_isr(partition: Partition, min_isr: Mapping[str, int]) -> bool:
    # The same rule by which the leader accepts acks=all (Partition.effectiveMinIsr): a topic with fewer replicas than
    # the setting needs no more than it has, and replicas that are being added count, unlike for under_replicated.
    return len(partition.isr) < min(min_isr.get(partition.topic, 1), len(partition.replicas))


def _max_lag(moving: Iterable[Partition], ends: Mapping[tuple[TopicPartition, int], int]) -> int | None:
    lags = [lag(ends, partition, broker) for partition in moving for broker in partition.adding]
    known = [each for each in lags if each is not None]
    return max(known) if known else (None if lags else 0)


def _imbalance(snapshot: Snapshot, brokers: Iterable[int]) -> float:
    counts = Counter(broker for broker in brokers if broker in snapshot.live)
    mean = sum(counts.values()) / len(snapshot.live) if snapshot.live else 0.0
    return max(counts.values()) / mean - 1 if mean else 0.0


def _copy_rates(
    snapshot: Snapshot, copies: CopiedBytes, before: CopiedBytes | None
) -> tuple[dict[int, float], dict[int, float]]:
    """Return bytes per second in and out. Bytes copied between the last poll and the end of a move are not counted."""
    if before is None or copies.at_ms <= before.at_ms:
        return {}, {}
    into, out_of = (dict.fromkeys(sorted(snapshot.live), 0.0) for _ in range(2))
    for (name, broker), size in copies.bytes_.items():
        rate = max(0, size - before.bytes_.get((name, broker), 0)) * 1000 / (copies.at_ms - before.at_ms)
        leader = snapshot.partitions[name].leader
        into[broker] = into.get(broker, 0.0) + rate
        if leader is not None:
            out_of[leader] = out_of.get(leader, 0.0) + rate
    return into, out_of
