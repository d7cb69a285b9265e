"""A Kafka with ticks, bandwidth and the traps that real ones have shown; it is a `ClusterPort`.

Time passes only in `tick`. To the product's simulated cluster it adds what clusters do to us and what we ask of them
beside a plan's moves, and it passes the contract of tests/kafka that real clusters pass:

* an unclean election takes the first live replica of the list, in which the target of a move in flight stands first;
* an alter whose answer was lost may be applied much later;
* brokers die, are unregistered, lose log directories, and answer nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.configs import BrokerRate, ConfigChange
from kafka_steward.cluster.requests import NOT_AUTHORIZED, refusal_error
from kafka_steward.cluster.state import Broker, BrokerLogDirs, Directory, LogStart, Reassignment, Snapshot
from kafka_steward.errors import BrokerUnreachable, ClusterError, ClusterUnreachable, KafkaRefused, KafkaTimeout
from kafka_steward.execution.throttles.rates import ThrottleSide
from kafka_steward.forecast.simulator import UNCLEAN, Replicated, SimulatedCluster, refused

__all__ = ["DISK", "TICK_MS", "UNCLEAN", "Replicated", "Simulator"]

TICK_MS = 1000
DISK = 1_000_000_000
CORDONED = "cordoned.log.dirs"


class Simulator(SimulatedCluster):
    """`mode` is "kraft" or "zookeeper"; `bandwidth` is bytes that one broker takes in per tick."""

    def __init__(
        self,
        brokers: Mapping[int, str | None],
        topics: Mapping[str, Sequence[Assignment]],
        *,
        mode: str = "kraft",
        size: int = 100,
        bandwidth: int = 100,
    ) -> None:
        super().__init__("simulated", brokers, mode=mode, now_ms=1_000_000, disk_bytes=DISK)
        #: Where local logs begin, of topics with remote storage, by partition and broker.
        self.log_starts_of: dict[tuple[TopicPartition, int], LogStart] = {}
        self.bandwidth = bandwidth
        self.reachable = True
        #: Of brokers with several log directories: their sizes by path. And where logs are, or were asked to go.
        self.disks: dict[int, dict[str, int]] = {}
        self.located: dict[tuple[TopicPartition, int], str] = {}
        self.named: dict[tuple[TopicPartition, int], str] = {}
        self.late: list[tuple[int, dict[TopicPartition, Assignment | None]]] = []
        #: Brokers that get nothing new, topics for which no ACL gives us a right, whether they exist or not, failed log
        #: directories, brokers that report no sizes.
        self.cordoned: set[int] = set()
        self.can_cordon = mode == "kraft"
        #: Dead brokers of a KRaft cluster that it does not list as fenced any more.
        self.unregistered: set[int] = set()
        self.hidden: set[str] = set()
        self.failed_dirs: dict[int, list[str]] = {}
        self.mute: set[int] = set()
        #: Replicas whose log a broker does not create, as it finds a former one in a failed directory.
        self.without_log: set[tuple[TopicPartition, int]] = set()
        #: Topics whose deletion is pending, and the brokers of their replicas.
        self.deletions: dict[str, set[int]] = {}
        #: Those of them that the brokers do not show any more.
        self.unshown: set[str] = set()
        self._topic_ids = itertools.count(1)
        for topic, assignments in topics.items():
            self.create(topic, assignments, size=size)

    @classmethod
    def of(cls, brokers: str, *topics: str, **more: object) -> Simulator:
        """From `"1a 2a 3b"` and `"t: 123 231"`: brokers with racks, topics with the replicas of each partition."""
        parsed = {name: [tuple(map(int, each)) for each in rest.split()] for name, _, rest in _split(topics)}
        return cls({int(each[:-1]): each[-1] for each in brokers.split()}, parsed, **more)  # type: ignore[arg-type]

    # what happens to it

    def create(self, topic: str, assignments: Sequence[Assignment], *, size: int = 100) -> None:
        topic_id = f"id{next(self._topic_ids)}"
        self.topic_settings[topic] = {}
        for number, replicas in enumerate(assignments):
            isr = set(replicas) & self.alive
            partition = Replicated(replicas, topic_id, size, isr, None, topic=topic, held=dict.fromkeys(isr, size))
            self.topics[TopicPartition(topic, number)] = partition
            self.elect(partition)

    def delete(self, topic: str) -> None:
        del self.topic_settings[topic]
        self.topics = {name: each for name, each in self.topics.items() if name.topic != topic}

    def kill(self, broker: int) -> None:
        self.alive.discard(broker)
        for partition in self.topics.values():
            if partition.isr != {broker}:
                partition.isr.discard(broker)
            if partition.leader == broker:
                self.elect(partition)

    def unregister(self, broker: int) -> None:
        """Kill a broker for good, as far as the controller knows; it registers again when it is restarted."""
        self.kill(broker)
        self.unregistered.add(broker)

    def restart(self, broker: int) -> None:
        self.alive.add(broker)
        self.unregistered.discard(broker)
        for partition in self.topics.values():
            if partition.leader is None:
                self.elect(partition)

    def fail_disk(self, broker: int, *names: TopicPartition) -> None:
        """A log directory of a live broker fails, with its replicas of these partitions."""
        self.failed_dirs.setdefault(broker, []).append("/disk-2")
        for name in names:
            partition = self.topics[name]
            partition.offline.add(broker)
            partition.held.pop(broker, None)
            partition.isr.discard(broker)
            if partition.leader == broker:
                self.elect(partition)

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.now_ms += TICK_MS
            due = [targets for at_ms, targets in self.late if at_ms <= self.now_ms]
            self.late = [each for each in self.late if each[0] > self.now_ms]
            for targets in due:
                self._apply(targets)
            self._copy()
            for partition in self.topics.values():
                self.complete(partition)

    def run(self, ticks: int = 50) -> None:
        """Until nothing moves any more, or `ticks` have passed."""
        for _ in range(ticks):
            if not any(partition.reassigning for partition in self.topics.values()) and not self.late:
                return
            self.tick()

    # what is asked of it: a ClusterPort

    def snapshot(self, topics: Collection[str] | None = None) -> Snapshot:
        self._reached()
        found = super().snapshot(topics)
        shown = {name: each for name, each in found.partitions.items() if name.topic not in self.hidden}
        listed = {name: each for name, each in self.reassignments().items() if name in shown}
        kept = {name: each for name, each in shown.items() if name.topic not in self.unshown}
        hidden = self.hidden_topics(topics or ())
        return replace(found, partitions=kept, hidden=hidden).without_deleted(self.deletions, listed)

    @property
    def in_migration(self) -> bool:
        return "true" in (of.get("zookeeper.metadata.migration.enable") for of in self.broker_settings.values())

    @property
    def mode_text(self) -> str:
        mode = "ZooKeeper mode" if self.zookeeper_mode else "KRaft mode"
        return f"{mode} (in migration to KRaft)" if self.in_migration else mode

    def live_brokers(self) -> dict[int, Broker]:
        self._reached()
        return super().live_brokers()

    def reassignments(self) -> dict[TopicPartition, Reassignment]:
        self._reached()
        return super().reassignments()

    def alter(
        self, targets: Mapping[TopicPartition, Assignment], *, keep_factor: bool = False
    ) -> dict[TopicPartition, KafkaRefused | None]:
        self._reached()
        return super().alter(targets, keep_factor=keep_factor)

    def cancel(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, KafkaRefused | None]:
        self._reached()
        return super().cancel(partitions)

    def elect_leaders(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, KafkaRefused | None]:
        self._reached()
        return super().elect_leaders(partitions)

    def alter_unanswered(
        self, targets: Mapping[TopicPartition, Assignment], *, after_ticks: int, keep_factor: bool = False
    ) -> NoReturn:
        """The request is heard, applied later, and never answered."""
        del keep_factor
        self.late.append((self.now_ms + after_ticks * TICK_MS, dict(targets)))
        raise KafkaTimeout("The controller did not answer in 30 s; the change may have been made.")

    def log_dirs(self, brokers: Collection[int]) -> dict[int, BrokerLogDirs]:
        self._reached()
        found = {}
        for broker in self.alive & set(brokers) - self.mute:
            held = {name: each.held[broker] for name, each in self.topics.items() if broker in each.held}
            if broker in self.disks:
                directories = self._directories(broker, held)
                found[broker] = BrokerLogDirs(held, None, None, directories)
                continue
            free, cordoned = DISK - sum(held.values()), broker in self._closed()
            whole = Directory("/disk-1", held, len(held), DISK, free, cordoned=cordoned)
            failed = [Directory(path, error=56) for path in self.failed_dirs.get(broker, ())]
            total, usable = (None, None) if cordoned else (DISK, free)
            found[broker] = BrokerLogDirs(held, total, usable, (whole, *failed))
        return found

    def _closed(self) -> set[int]:
        """The brokers that receive nothing: cordoned by a test, or by their setting."""
        return self.cordoned | {broker for broker, own in self.broker_settings.items() if own.get(CORDONED)}

    def _directories(self, broker: int, held: Mapping[TopicPartition, int]) -> tuple[Directory, ...]:
        """Of a broker with several: a new log goes where it was asked to go, else where the fewest logs are."""
        logs: dict[str, dict[TopicPartition, int]] = {path: {} for path in self.disks[broker]}
        self.located = {at: path for at, path in self.located.items() if at[1] != broker or at[0] in held}
        for name in sorted(held, key=lambda name: (name, broker) not in self.located):
            fewest = min(logs, key=lambda path: (len(logs[path]), path))
            path = self.located.setdefault((name, broker), self.named.pop((name, broker), fewest))
            logs[path][name] = held[name]
        return tuple(
            Directory(path, logs[path], len(logs[path]), size, size - sum(logs[path].values()))
            for path, size in self.disks[broker].items()
        )

    def name_directories(
        self, wanted: Mapping[tuple[TopicPartition, int], str]
    ) -> dict[tuple[TopicPartition, int], ClusterError | None]:
        self._reached()
        return {at: self._name_directory(at, path) for at, path in wanted.items()}

    def _name_directory(self, at: tuple[TopicPartition, int], path: str) -> ClusterError | None:
        if at[1] not in self.alive:
            return BrokerUnreachable(at[1], f"Broker {at[1]} cannot be reached.")
        if path not in self.disks.get(at[1], ()):
            return refused(57, "The user-specified log directory is not found in the broker config.")
        self.named[at] = path
        return None

    @property
    def log_dirs_failures(self) -> Mapping[int, str]:
        waited = "within 45 s (log_dirs_timeout_ms)"
        return {broker: f"Broker {broker} did not answer DescribeLogDirs {waited}." for broker in self.mute}

    def log_sizes(self, held: Mapping[int, Collection[TopicPartition]]) -> dict[tuple[TopicPartition, int], int]:
        return {
            (name, broker): dirs.replica_bytes[name]
            for broker, dirs in self.log_dirs(held).items()
            for name in held[broker]
            if name in dirs.replica_bytes
        }

    def hidden_topics(self, topics: Collection[str]) -> frozenset[str]:
        self._reached()
        return frozenset(self.hidden & set(topics))

    def local_starts(
        self,
        held: Mapping[int, Collection[TopicPartition]],
        *,
        timeout_s: float | None = None,  # noqa: ARG002
    ) -> dict[tuple[TopicPartition, int], int]:
        """Retention deletes nothing."""
        return dict.fromkeys(self.log_ends(held), 0)

    def log_ends(
        self,
        held: Mapping[int, Collection[TopicPartition]],
        *,
        timeout_s: float | None = None,  # noqa: ARG002
    ) -> dict[tuple[TopicPartition, int], int]:
        """A message is a byte."""
        self._reached()
        return {
            (name, broker): self.topics[name].held.get(broker, 0)
            for broker, several in held.items()
            if broker in self.alive
            for name in several
            if name in self.topics and name.topic not in self.hidden
        }

    def log_starts(self, held: Mapping[int, Collection[TopicPartition]]) -> dict[tuple[TopicPartition, int], LogStart]:
        self._reached()
        return {
            (name, broker): self.log_starts_of[name, broker]
            for broker, names in held.items()
            if broker in self.alive
            for name in names
            if (name, broker) in self.log_starts_of
        }

    def topic_configs(
        self, topics: Collection[str], names: Collection[str], *, own_only: bool = False
    ) -> dict[str, dict[str, str]]:
        self._reached()
        for topic in sorted(self.hidden & set(topics)):
            raise refusal_error(NOT_AUTHORIZED, None, f"reading the settings of {topic}")
        return super().topic_configs(topics, names, own_only=own_only)

    def broker_configs(
        self, brokers: Collection[int], names: Collection[str], *, own_only: bool = False
    ) -> dict[int, dict[str, str]]:
        self._reached()
        found = super().broker_configs(brokers, names, own_only=own_only)
        shown = {CORDONED: ""} if self.can_cordon and CORDONED in names and not own_only else {}
        return {broker: {**shown, **of} for broker, of in found.items()}

    def change_topic_configs(self, changes: Mapping[str, Sequence[ConfigChange]]) -> dict[str, KafkaRefused | None]:
        self._reached()
        return {topic: self._change_topic(topic, several) for topic, several in changes.items()}

    def change_broker_configs(self, changes: Mapping[int, Sequence[ConfigChange]]) -> dict[int, ClusterError | None]:
        self._reached()
        return super().change_broker_configs(changes)

    def broker_rates(self, brokers: Collection[int], keys: Collection[str]) -> dict[str, dict[int, BrokerRate]]:
        self._reached()
        return super().broker_rates(brokers, keys)

    def change_default_broker_configs(self, changes: Sequence[ConfigChange]) -> KafkaRefused | None:
        self._reached()
        return super().change_default_broker_configs(changes)

    def create_topic(
        self,
        topic: str,
        partitions: int,
        replication_factor: int,
        *,
        assignments: Sequence[Assignment] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> KafkaRefused | None:
        self._reached()
        if topic in self.hidden:
            return refusal_error(NOT_AUTHORIZED, None, f"creating topic {topic}")
        if topic in self.topic_settings:
            return refused(36, f"Topic '{topic}' already exists.")
        known = sorted(self._registered() - self._closed())
        if assignments is None and replication_factor > len(known):
            return refused(38, f"Replication factor: {replication_factor} larger than brokers: {len(known)}.")
        self.create(topic, assignments or self._placed(0, partitions, replication_factor, known), size=0)
        self.topic_settings[topic] = dict(settings or {})
        return None

    def create_partitions(
        self, topic: str, count: int, assignments: Sequence[Assignment] | None = None
    ) -> KafkaRefused | None:
        self._reached()
        if topic in self.hidden:
            return refusal_error(NOT_AUTHORIZED, None, f"adding partitions to topic {topic}")
        there = [each for name, each in self.topics.items() if name.topic == topic]
        factor = len(there[0].replicas)
        known = sorted(self._registered() - self._closed())
        if len(known) < factor or any(len(each) != factor for each in assignments or ()):
            return refused(38, "Unable to replicate the partitions.")
        new = assignments or self._placed(len(there), count, factor, known)
        for number, replicas in enumerate(new, len(there)):
            isr = set(replicas) & self.alive
            partition = Replicated(replicas, there[0].topic_id, 0, isr, None, topic=topic, held=dict.fromkeys(isr, 0))
            self.topics[TopicPartition(topic, number)] = partition
            self.elect(partition)
        return None

    @staticmethod
    def _placed(first: int, count: int, factor: int, known: Sequence[int]) -> list[Assignment]:
        return [
            tuple(known[(number + place) % len(known)] for place in range(factor)) for number in range(first, count)
        ]

    # how it works inside

    def _reached(self) -> None:
        if not (self.reachable and self.alive):
            raise ClusterUnreachable("No bootstrap server answers.")

    def _registered(self) -> set[int]:
        return set(self.racks) - self.unregistered if self.mode == "kraft" else set(self.alive)

    def listable(self) -> frozenset[int]:
        return super().listable() - self.unregistered

    def listed_brokers(self) -> dict[int, Broker]:
        return {broker: each for broker, each in super().listed_brokers().items() if broker not in self.unregistered}

    def _copy(self) -> None:
        room = dict.fromkeys(self.alive, self.bandwidth)
        throttled = {broker: self._rate(broker) for broker in self.alive}
        for name, partition in sorted(self.topics.items()):
            behind = set(partition.replicas) & self.alive - partition.isr - partition.offline
            behind -= {broker for broker in behind if (name, broker) in self.without_log}
            for broker in sorted(behind if partition.leader is not None else ()):
                budget = throttled if self._is_throttled(name, broker) else room
                missing = partition.size - partition.held.get(broker, 0)
                took = min(missing, budget[broker], room[broker])
                room[broker] -= took
                throttled[broker] -= took if budget is throttled else 0
                partition.held[broker] = partition.held.get(broker, 0) + took
                if took == missing:
                    partition.isr.add(broker)

    def _is_throttled(self, name: TopicPartition, broker: int) -> bool:
        listed = self.topic_settings[name.topic].get(ThrottleSide.FOLLOWER.replicas_key, "").split(",")
        return f"{name.partition}:{broker}" in listed or "*" in listed

    def _rate(self, broker: int) -> int:
        rate = self.rate(broker, ThrottleSide.FOLLOWER)
        return self.bandwidth if rate is None else rate * TICK_MS // 1000

    def elect(self, partition: Replicated) -> None:
        super().elect(partition)
        live = [broker for broker in partition.replicas if broker in self.alive - partition.offline]
        unclean = self.topic_settings[partition.topic].get(UNCLEAN) == "true"
        if partition.leader is None and live and unclean:
            # The first live one leads, whatever it has, and the others delete what they have beyond that.
            partition.leader, partition.isr = live[0], {live[0]}
            partition.size = partition.held.get(live[0], 0)
            partition.held = {broker: min(held, partition.size) for broker, held in partition.held.items()}

    def _change_topic(self, topic: str, changes: Sequence[ConfigChange]) -> KafkaRefused | None:
        if topic in self.hidden:
            return refusal_error(NOT_AUTHORIZED, None, f"changing the settings of {topic}")
        return self._change(self.topic_settings.get(topic), changes)


def _split(topics: Sequence[str]) -> list[tuple[str, str, str]]:
    return [topic.partition(":") for topic in topics]
