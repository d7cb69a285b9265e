"""Looks at the load of a cluster: what is asked of its brokers, how often, and what is kept in the journal.

Each broker is asked for the ends of the logs that it leads, and at every tenth look for their local starts. One that
does not answer costs only the interval of its own partitions. A large cluster is looked at less often, so that the
looks take a hundredth of a processor at most.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import BrokerLogDirs, LogEndSource, Snapshot
from kafka_steward.errors import ClusterError
from kafka_steward.execution.load.rates import LoadMeter, Look, Size, is_fresh
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.journal.observed import PartitionRate
from kafka_steward.journal.store import Journal

#: A partition, and its broker.
Replica = tuple[TopicPartition, int]
#: The setting of a topic whose log may be compacted.
_POLICY = "cleanup.policy"
#: Partitions for which a look may be made each second; and the looks from one that asks for starts to the next one.
PARTITIONS_PER_S, _STARTS_EVERY = 300, 10
#: Seconds that a broker has for its answer.
_TIMEOUT_S = 5.0
#: Seconds between two times of writing, and milliseconds after which what has not changed is written again.
WRITTEN_EVERY_S, REWRITTEN_MS = 600.0, 3_600_000
#: Seconds without a look after which another watch may have gone on, beyond twice the usual.
_FORGOTTEN_S = 600.0


class LoadPort(ClusterPort, LogEndSource, Protocol):
    """A cluster whose load can be looked at; KafkaCluster is one."""


@dataclass(slots=True)
class BytesIn:
    """The bytes per second that producers bring into the partitions that a broker leads, and into those it follows."""

    as_leader: float = 0.0
    as_follower: float = 0.0


class LoadWatch:
    """The looks of one watch at one cluster. `clock` counts seconds, and is never set."""

    def __init__(self, journal: Journal, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster_id, self._clock = journal.cluster_id, clock
        reports = journal.watch_reports
        self._written = {_name(rate): rate for rate in (reports.rates() if reports is not None else ())}
        self._meter = LoadMeter(self._written.values(), journal.now_ms())
        self._compacted: frozenset[str] = frozenset()
        self._looked_s: float | None = None
        self._started_s: float | None = None
        self._written_s = clock()
        #: The bytes into each live broker, as of the last look; empty while nothing is known.
        self.brokers: Mapping[int, BytesIn] = {}

    def is_of(self, journal: Journal) -> bool:
        """Return whether it may go on: with this cluster, and unless another watch may have measured meanwhile."""
        late_s = 0.0 if self._looked_s is None else self._clock() - self._looked_s
        return self._cluster_id == journal.cluster_id and late_s < _FORGOTTEN_S + 2 * self._pause_s

    @property
    def _pause_s(self) -> float:
        return self._meter.partitions / PARTITIONS_PER_S

    def look(
        self,
        cluster: LoadPort,
        journal: Journal,
        snapshot: Snapshot,
        dirs: Mapping[int, BrokerLogDirs] | None = None,
    ) -> None:
        """Look once, if that is due; `dirs` has the sizes of all replicas, if known. Raises JournalUnreachable."""
        now_s, sized = self._clock(), dirs is not None
        if sized and self._started_s is not None and now_s - self._started_s < _STARTS_EVERY * self._pause_s:
            sized, dirs = False, None
        # The second look comes at once: it makes the first rates.
        if self.brokers and not sized and self._looked_s is not None and now_s - self._looked_s < self._pause_s:
            return
        led = defaultdict[int, list[TopicPartition]](list)
        for name, partition in snapshot.partitions.items():
            if partition.leader in snapshot.live:
                led[partition.leader].append(name)
        starts: Mapping[Replica, int] = {}
        if sized:
            self._started_s = now_s
            with suppress(ClusterError):  # without the right, or with an older Kafka, the growth of logs has to do
                self._compacted = _read_compacted(cluster, snapshot)
                starts = cluster.local_starts(led, timeout_s=_TIMEOUT_S)
        self._looked_s, at_ms = self._clock(), journal.now_ms()
        ends = cluster.log_ends(led, timeout_s=_TIMEOUT_S)
        by_name = {name: end for (name, _), end in ends.items()}
        wanted = frozenset(self._meter.wants_size(by_name, self._compacted))
        known = {broker: disk.replica_bytes for broker, disk in (dirs or {}).items()}
        # Of a compacted log, even a size that was asked for together with all others is too old by now.
        asked = defaultdict[int, list[TopicPartition]](list)
        for name, leader in ends:
            if name in wanted and (name.topic in self._compacted or name not in known.get(leader, ())):
                asked[leader].append(name)
        sizes = {replica: known[replica[1]][replica[0]] for replica in ends if replica[0] in known.get(replica[1], ())}
        sizes |= cluster.log_sizes(asked) if asked else {}
        found = {
            name: Size(leader, size, ends[name, leader], starts.get((name, leader)))
            for (name, leader), size in sizes.items()
        }
        ids = {name: partition.topic_id for name, partition in snapshot.partitions.items()}
        self._meter.observe(Look(at_ms, self._looked_s, ids, by_name, found, self._compacted))
        bytes_in = self._meter.bytes_in()
        self.brokers = _sum_by_broker(bytes_in, snapshot) if bytes_in else {}
        self._write(journal, self._looked_s)

    def _write(self, journal: Journal, now_s: float) -> None:
        """Write what has changed, and what is old; delete what is gone. At most every `WRITTEN_EVERY_S` seconds."""
        reports = journal.watch_reports
        if reports is None or now_s - self._written_s < WRITTEN_EVERY_S:
            return
        rates = {_name(rate): rate for rate in self._meter.rates()}
        changed = {name: rate for name, rate in rates.items() if _differs(rate, self._written.get(name))}
        gone = [self._written.pop(name) for name in self._written.keys() - rates.keys()]
        reports.put_rates(list(changed.values()), gone)
        self._written |= changed
        self._written_s = now_s


def known_rates(journal: Journal) -> dict[TopicPartition, PartitionRate]:
    """Return what producers bring into partitions, as far as it was measured in the last hour. Raises JournalError."""
    reports, now_ms = journal.watch_reports, journal.now_ms()
    return {_name(rate): rate for rate in (reports.rates() if reports is not None else ()) if is_fresh(rate, now_ms)}


def _read_compacted(cluster: ClusterPort, snapshot: Snapshot) -> frozenset[str]:
    policies = cluster.topic_configs(sorted(snapshot.topics), [_POLICY])
    return frozenset(topic for topic, keys in policies.items() if "compact" in keys.get(_POLICY, ""))


def _name(rate: PartitionRate) -> TopicPartition:
    return TopicPartition(rate.topic, rate.partition)


def _differs(rate: PartitionRate, written: PartitionRate | None) -> bool:
    return (
        written is None
        or (rate.topic_id, rate.bytes_per_s, rate.peaks) != (written.topic_id, written.bytes_per_s, written.peaks)
        or not 0 <= rate.at_ms - written.at_ms < REWRITTEN_MS
    )


def _sum_by_broker(bytes_in: Mapping[TopicPartition, float], snapshot: Snapshot) -> dict[int, BytesIn]:
    sums = {broker: BytesIn() for broker in sorted(snapshot.live)}
    for name, bytes_per_s in bytes_in.items():
        partition = snapshot.partitions[name]
        for broker in partition.replicas:
            if broker not in sums or broker in partition.offline:
                continue
            if broker == partition.leader:
                sums[broker].as_leader += bytes_per_s
            else:
                sums[broker].as_follower += bytes_per_s
    return sums


def load_measures(brokers: Mapping[int, BytesIn]) -> dict[str, float]:
    """Return the measures of `brokers` by name, as gauges and plots take them."""
    measures = dict[str, float]()
    for broker, bytes_in in brokers.items():
        measures[f"leader_bytes_in_per_sec.{broker}"] = round(bytes_in.as_leader)
        measures[f"follower_bytes_in_per_sec.{broker}"] = round(bytes_in.as_follower)
    return measures
