"""A Kafka with ticks, bandwidth and the traps that real ones have shown; it is a `ClusterPort`.

Time passes only in `tick`. It knows Kafka's traps, and passes the contract of tests/kafka that real clusters pass:

* a cancelled reassignment keeps the set of replicas and loses their order;
* submitting the originals of a move in flight wedges a KRaft partition until a null cancel; ZooKeeper mode reverts;
* KRaft takes a dead target and hangs; ZooKeeper mode refuses it;
* an unclean election takes the first live replica of the list, in which the target of a move in flight stands first;
* an alter whose answer was lost may be applied much later.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.configs import BrokerRate, ConfigChange, ConfigOp
from kafka_steward.cluster.requests import NOT_AUTHORIZED, refusal_error
from kafka_steward.cluster.state import Broker, BrokerLogDirs, Directory, LogStart, Partition, Reassignment, Snapshot
from kafka_steward.errors import BrokerUnreachable, ClusterError, ClusterUnreachable, KafkaRefused, KafkaTimeout

TICK_MS = 1000
UNCLEAN = "unclean.leader.election.enable"
DISK = 1_000_000_000


@dataclass
class Replicated:
    """A partition: who has it, who is in sync, how much of it each broker holds."""

    replicas: Assignment
    topic_id: str
    size: int
    isr: set[int]
    leader: int | None
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    wedged: bool = False
    topic: str = ""
    offline: set[int] = field(default_factory=set)
    held: dict[int, int] = field(default_factory=dict)

    @property
    def reassigning(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def original(self) -> Assignment:
        return tuple(broker for broker in self.replicas if broker not in self.adding)

    @property
    def target(self) -> Assignment:
        return tuple(broker for broker in self.replicas if broker not in self.removing)


class Simulator:
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
        self.cluster_id = "simulated"
        self.secured = False
        self.mode = mode
        #: Whether the KRaft controllers are known.
        self.changes_dead_brokers = False
        #: Where local logs begin, of topics with remote storage, by partition and broker.
        self.log_starts_of: dict[tuple[TopicPartition, int], LogStart] = {}
        self.bandwidth = bandwidth
        self.now_ms = 1_000_000
        self.racks = dict(brokers)
        self.alive = set(brokers)
        self.reachable = True
        self.topics: dict[TopicPartition, Replicated] = {}
        self.topic_settings: dict[str, dict[str, str]] = {}
        self.broker_settings: dict[int, dict[str, str]] = {broker: {} for broker in brokers}
        #: What stands in server.properties of each broker.
        self.broker_files: dict[int, dict[str, str]] = {}
        #: Of brokers with several log directories: their sizes by path. And where logs are, or were asked to go.
        self.disks: dict[int, dict[str, int]] = {}
        self.located: dict[tuple[TopicPartition, int], str] = {}
        self.named: dict[tuple[TopicPartition, int], str] = {}
        #: What is set for all brokers; a broker's own settings hide it.
        self.broker_defaults: dict[str, str] = {}
        self.late: list[tuple[int, dict[TopicPartition, Assignment | None]]] = []
        #: Brokers that get nothing new, topics for which no ACL gives us a right, whether they exist or not, failed log
        #: directories, brokers that report no sizes.
        self.cordoned: set[int] = set()
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
            self._elect(partition)

    def delete(self, topic: str) -> None:
        del self.topic_settings[topic]
        self.topics = {name: each for name, each in self.topics.items() if name.topic != topic}

    def kill(self, broker: int) -> None:
        self.alive.discard(broker)
        for partition in self.topics.values():
            if partition.isr != {broker}:
                partition.isr.discard(broker)
            if partition.leader == broker:
                self._elect(partition)

    def unregister(self, broker: int) -> None:
        """Kill a broker for good, as far as the controller knows; it registers again when it is restarted."""
        self.kill(broker)
        self.unregistered.add(broker)

    def restart(self, broker: int) -> None:
        self.alive.add(broker)
        self.unregistered.discard(broker)
        for partition in self.topics.values():
            if partition.leader is None:
                self._elect(partition)

    def fail_disk(self, broker: int, *names: TopicPartition) -> None:
        """A log directory of a live broker fails, with its replicas of these partitions."""
        self.failed_dirs.setdefault(broker, []).append("/disk-2")
        for name in names:
            partition = self.topics[name]
            partition.offline.add(broker)
            partition.held.pop(broker, None)
            partition.isr.discard(broker)
            if partition.leader == broker:
                self._elect(partition)

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.now_ms += TICK_MS
            due = [targets for at_ms, targets in self.late if at_ms <= self.now_ms]
            self.late = [each for each in self.late if each[0] > self.now_ms]
            for targets in due:
                self._apply(targets)
            self._copy()
            for partition in self.topics.values():
                self._complete(partition)

    def run(self, ticks: int = 50) -> None:
        """Until nothing moves any more, or `ticks` have passed."""
        for _ in range(ticks):
            if not any(partition.reassigning for partition in self.topics.values()) and not self.late:
                return
            self.tick()

    # what is asked of it: a ClusterPort

    def snapshot(self, topics: Collection[str] | None = None) -> Snapshot:
        self._reached()
        chosen = {name: each for name, each in self.topics.items() if topics is None or name.topic in topics}
        chosen = {name: each for name, each in chosen.items() if name.topic not in self.hidden}
        listed = {name: each for name, each in self.reassignments().items() if name in chosen}
        chosen = {name: each for name, each in chosen.items() if name.topic not in self.unshown}
        partitions = {
            name: Partition(
                *name,
                each.replicas,
                frozenset(each.isr),
                each.leader,
                each.topic_id,
                each.adding,
                each.removing,
                offline=frozenset(each.offline | (set(each.replicas) - self.alive)),
            )
            for name, each in sorted(chosen.items())
        }
        hidden = self.hidden_topics(topics or ())
        found = Snapshot(self.cluster_id, self.now_ms, self._brokers(), partitions, hidden=hidden)
        return found.without_deleted(self.deletions, listed)

    @property
    def zookeeper_mode(self) -> bool:
        return self.mode == "zookeeper"

    @property
    def in_migration(self) -> bool:
        return "true" in (of.get("zookeeper.metadata.migration.enable") for of in self.broker_settings.values())

    @property
    def mode_text(self) -> str:
        mode = "ZooKeeper mode" if self.zookeeper_mode else "KRaft mode"
        return f"{mode} (in migration to KRaft)" if self.in_migration else mode

    def live_brokers(self) -> dict[int, Broker]:
        self._reached()
        return {broker: each for broker, each in self._brokers().items() if not each.fenced}

    def live_views(self, brokers: Collection[int], *, timeout_s: float = 2.0) -> dict[int, frozenset[int]]:
        del timeout_s  # nobody hangs here
        return {broker: frozenset(self.alive) for broker in brokers if broker in self.alive}

    def reassignments(self) -> dict[TopicPartition, Reassignment]:
        self._reached()
        return {
            name: Reassignment(each.replicas, each.adding, each.removing)
            for name, each in self.topics.items()
            if each.reassigning
        }

    def alter(
        self, targets: Mapping[TopicPartition, Assignment], *, keep_factor: bool = False
    ) -> dict[TopicPartition, KafkaRefused | None]:
        self._reached()
        changing = {
            name
            for name, target in targets.items()
            if keep_factor and name in self.topics and self._changes(name, target)
        }
        refused = {name: _refusal(38, "The replication factor would change.") for name in changing}
        return {**refused, **self._apply({name: each for name, each in targets.items() if name not in changing})}

    def cancel(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, KafkaRefused | None]:
        self._reached()
        return self._apply(dict.fromkeys(partitions))

    def alter_unanswered(
        self, targets: Mapping[TopicPartition, Assignment], *, after_ticks: int, keep_factor: bool = False
    ) -> NoReturn:
        """The request is heard, applied later, and never answered."""
        del keep_factor
        self.late.append((self.now_ms + after_ticks * TICK_MS, dict(targets)))
        raise KafkaTimeout("The controller did not answer in 30 s; the change may have been made.")

    def elect_leaders(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, KafkaRefused | None]:
        self._reached()
        answers: dict[TopicPartition, KafkaRefused | None] = {}
        for name in partitions:
            partition = self.topics.get(name)
            preferred = None if partition is None else partition.replicas[0]
            ok = partition is not None and preferred in partition.isr & self.alive
            answers[name] = None if ok else _refusal(80, "The preferred leader was not available.")
            if partition is not None and ok:
                partition.leader = preferred
        return answers

    def log_dirs(self, brokers: Collection[int]) -> dict[int, BrokerLogDirs]:
        self._reached()
        found = {}
        for broker in self.alive & set(brokers) - self.mute:
            held = {name: each.held[broker] for name, each in self.topics.items() if broker in each.held}
            if broker in self.disks:
                directories = self._directories(broker, held)
                found[broker] = BrokerLogDirs(held, None, None, directories)
                continue
            free, cordoned = DISK - sum(held.values()), broker in self.cordoned
            whole = Directory("/disk-1", held, len(held), DISK, free, cordoned=cordoned)
            failed = [Directory(path, error=56) for path in self.failed_dirs.get(broker, ())]
            total, usable = (None, None) if cordoned else (DISK, free)
            found[broker] = BrokerLogDirs(held, total, usable, (whole, *failed))
        return found

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
            return _refusal(57, "The user-specified log directory is not found in the broker config.")
        self.named[at] = path
        return None

    @property
    def log_dirs_failures(self) -> Mapping[int, str]:
        waited = "within 45 s (log_dirs_timeout_ms)"
        return {broker: f"Broker {broker} did not answer DescribeLogDirs {waited}." for broker in self.mute}

    def directories(self, brokers: Collection[int], *, timeout_s: float = 2.0) -> dict[int, BrokerLogDirs]:
        del timeout_s
        return {
            broker: replace(
                dirs, replica_bytes={}, directories=tuple(replace(each, replica_bytes={}) for each in dirs.directories)
            )
            for broker, dirs in self.log_dirs(brokers).items()
        }

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
        defaults = {} if own_only else {"min.insync.replicas": "1", UNCLEAN: "false"}
        known = {topic: {**defaults, **self.topic_settings[topic]} for topic in topics if topic in self.topic_settings}
        return {topic: {name: of[name] for name in names if name in of} for topic, of in known.items()}

    def broker_configs(
        self, brokers: Collection[int], names: Collection[str], *, own_only: bool = False
    ) -> dict[int, dict[str, str]]:
        self._reached()
        defaults = {} if own_only else self.broker_defaults
        known = {broker: {**defaults, **self.broker_settings[broker]} for broker in brokers if broker in self.alive}
        return {broker: {name: of[name] for name in names if name in of} for broker, of in known.items()}

    def broker_rates(self, brokers: Collection[int], keys: Collection[str]) -> dict[str, dict[int, BrokerRate]]:
        own, shared = self.broker_configs(brokers, keys, own_only=True), self.broker_defaults
        files = {broker: self.broker_files.get(broker, {}) for broker in own}
        return {
            key: {each: BrokerRate(of.get(key), shared.get(key), files[each].get(key)) for each, of in own.items()}
            for key in keys
        }

    def change_topic_configs(self, changes: Mapping[str, Sequence[ConfigChange]]) -> dict[str, KafkaRefused | None]:
        self._reached()
        return {topic: self._change_topic(topic, several) for topic, several in changes.items()}

    def change_broker_configs(self, changes: Mapping[int, Sequence[ConfigChange]]) -> dict[int, ClusterError | None]:
        self._reached()
        gone = {broker: BrokerUnreachable(broker, f"Broker {broker} does not answer.") for broker in changes}
        able = self.broker_settings.keys() if self.changes_dead_brokers else self.alive
        return {
            broker: self._change(self.broker_settings[broker], several) if broker in able else gone[broker]
            for broker, several in changes.items()
        }

    def change_default_broker_configs(self, changes: Sequence[ConfigChange]) -> KafkaRefused | None:
        self._reached()
        self._change(self.broker_defaults, changes)
        return None

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
            return _refusal(36, f"Topic '{topic}' already exists.")
        known = sorted(self._listed() - self.cordoned)
        if assignments is None and replication_factor > len(known):
            return _refusal(38, f"Replication factor: {replication_factor} larger than brokers: {len(known)}.")
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
        known = sorted(self._listed() - self.cordoned)
        if len(known) < factor or any(len(each) != factor for each in assignments or ()):
            return _refusal(38, "Unable to replicate the partitions.")
        new = assignments or self._placed(len(there), count, factor, known)
        for number, replicas in enumerate(new, len(there)):
            isr = set(replicas) & self.alive
            partition = Replicated(replicas, there[0].topic_id, 0, isr, None, topic=topic, held=dict.fromkeys(isr, 0))
            self.topics[TopicPartition(topic, number)] = partition
            self._elect(partition)
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

    def _listed(self) -> set[int]:
        # KRaft goes on listing a dead broker, as fenced, until it is unregistered; ZooKeeper mode does not.
        return set(self.racks) - self.unregistered if self.mode == "kraft" else set(self.alive)

    def _brokers(self) -> dict[int, Broker]:
        return {
            each: Broker(each, "127.0.0.1", 9000 + each, self.racks[each], each not in self.alive)
            for each in sorted(self._listed())
        }

    def _apply(self, targets: Mapping[TopicPartition, Assignment | None]) -> dict[TopicPartition, KafkaRefused | None]:
        return {
            name: self._cancel_one(name) if target is None else self._alter_one(name, target)
            for name, target in targets.items()
        }

    def _changes(self, name: TopicPartition, target: Assignment) -> bool:
        return len(target) != len(self.topics[name].target)

    def _alter_one(self, name: TopicPartition, target: Assignment) -> KafkaRefused | None:
        partition = self.topics.get(name)
        if partition is None:
            return _refusal(3, f"Unable to find partition {name}.")
        if not target or len(set(target)) < len(target) or not set(target) <= self.racks.keys() - self.unregistered:
            return _refusal(39, "The manual partition assignment is not valid.")
        original = partition.original
        if self.mode == "zookeeper" and set(target) - set(original) - self.alive:
            return _refusal(39, "Replica assignment has brokers that are not alive.")
        wedges = partition.reassigning and set(target) == set(original) and bool(partition.adding)
        if wedges and self.mode == "kraft":
            partition.removing, partition.wedged = partition.adding, True
            return None
        self._drop(partition, set(partition.adding) - set(target))
        partition.adding = tuple(broker for broker in target if broker not in original)
        partition.removing = tuple(broker for broker in original if broker not in target)
        partition.replicas = (*target, *partition.removing)
        self._complete(partition)
        return None

    def _cancel_one(self, name: TopicPartition) -> KafkaRefused | None:
        partition = self.topics.get(name)
        if partition is None or not partition.reassigning:
            return _refusal(85, "No partition reassignment is in progress.")
        original = partition.original
        if self.mode == "kraft" and not partition.isr & set(original):
            return _refusal(39, "Unable to revert partition assignment: it would require an unclean leader election.")
        self._drop(partition, set(partition.adding))
        partition.replicas, partition.adding, partition.removing, partition.wedged = original, (), (), False
        if partition.leader not in original:
            self._elect(partition)
        return None

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
        listed = self.topic_settings[name.topic].get("follower.replication.throttled.replicas", "").split(",")
        return f"{name.partition}:{broker}" in listed or "*" in listed

    def _rate(self, broker: int) -> int:
        rate = {**self.broker_defaults, **self.broker_settings[broker]}.get("follower.replication.throttled.rate")
        return self.bandwidth if rate is None else int(rate) * TICK_MS // 1000

    def _complete(self, partition: Replicated) -> None:
        copies = bool(partition.adding or partition.removing)
        if partition.wedged or (copies and not set(partition.target) <= partition.isr & self.alive):
            return
        self._drop(partition, set(partition.removing))
        partition.replicas, partition.adding, partition.removing = partition.target, (), ()
        if partition.leader not in partition.replicas:
            self._elect(partition)

    def _drop(self, partition: Replicated, brokers: set[int]) -> None:
        partition.isr -= brokers
        partition.offline -= brokers
        for broker in brokers:
            partition.held.pop(broker, None)

    def _elect(self, partition: Replicated) -> None:
        able = [broker for broker in partition.replicas if broker in partition.isr & self.alive]
        partition.leader = able[0] if able else None
        live = [broker for broker in partition.replicas if broker in self.alive - partition.offline]
        if not able and live and self.topic_settings[partition.topic].get(UNCLEAN) == "true":
            # The first live one leads, whatever it has, and the others delete what they have beyond that.
            partition.leader, partition.isr = live[0], {live[0]}
            partition.size = partition.held.get(live[0], 0)
            partition.held = {broker: min(held, partition.size) for broker, held in partition.held.items()}

    def _change_topic(self, topic: str, changes: Sequence[ConfigChange]) -> KafkaRefused | None:
        if topic in self.hidden:
            return refusal_error(NOT_AUTHORIZED, None, f"changing the settings of {topic}")
        return self._change(self.topic_settings.get(topic), changes)

    def _change(self, settings: dict[str, str] | None, changes: Sequence[ConfigChange]) -> KafkaRefused | None:
        if settings is None:
            return _refusal(3, "This server does not host this topic-partition.")
        for change in changes:
            there = [each for each in settings.get(change.name, "").split(",") if each]
            entries = (change.value or "").split(",")
            if change.op is ConfigOp.DELETE:
                settings.pop(change.name, None)
            elif change.op is ConfigOp.SET:
                settings[change.name] = change.value or ""
            elif change.op is ConfigOp.APPEND:
                settings[change.name] = ",".join(there + [each for each in entries if each not in there])
            else:
                settings[change.name] = ",".join(each for each in there if each not in entries)
        return None


def _split(topics: Sequence[str]) -> list[tuple[str, str, str]]:
    return [topic.partition(":") for topic in topics]


def _refusal(code: int, message: str) -> KafkaRefused:
    return KafkaRefused(code, message, f"Kafka refused: {message}")
