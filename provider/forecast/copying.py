"""How fast Kafka copies: a simulated cluster with bytes per second, and the quotas of throttled replication (KIP-73).

What decides a plan's duration beside its bytes is modelled as Kafka does it:

* a quota is a mean over the samples of the last seconds, eleven of a second each: a follower that is limited by nothing
  else copies ten elevenths of its rate, as the bytes of eleven samples are divided by the time of ten;
* a follower asks whether its quota is exceeded before each fetch, and a fetch brings up to 10 MB from each leader;
* if it is exceeded, the follower asks again after a second;
* the partitions that a broker receives advance evenly, since each fetch takes a part of each.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.configs import parse_list
from kafka_steward.cluster.state import BrokerLogDirs, Directory
from kafka_steward.errors import KafkaRefused
from kafka_steward.execution.throttles.rates import ALL, ThrottleSide
from kafka_steward.forecast.simulator import Replicated, SimulatedCluster

#: replication.quota.window.num and .size.seconds, as Kafka has them by default.
_SAMPLES, _SAMPLE_MS = 11, 1000

#: replica.fetch.response.max.bytes and replica.fetch.max.bytes: a quota does not divide a response. And
#: replica.fetch.backoff.ms, after which a follower without anything to fetch looks again.
_RESPONSE_BYTES, _PARTITION_BYTES, _BACKOFF_MS = 10_485_760, 1_048_576, 1000


class Quota:
    """The bytes of one broker's throttled replication in the last seconds, as Kafka's `SimpleRate` counts them."""

    def __init__(self) -> None:
        #: When each sample began, and its bytes. The newest one takes the place of the oldest.
        self._samples: deque[list[int]] = deque(maxlen=_SAMPLES)
        self._asks_again_ms = 0

    def allowance(self, rate: float, now_ms: int) -> float:
        """Return the bytes that a follower fetches now, until a rate in bytes/s is exceeded; 0 if it is, or waits."""
        if now_ms < self._asks_again_ms:
            return 0
        while self._samples and now_ms - self._samples[0][0] >= _SAMPLES * _SAMPLE_MS:
            self._samples.popleft()
        since_ms = now_ms - self._samples[0][0] if self._samples else 0
        return max(0, rate * max(since_ms, _SAMPLE_MS) / 1000 - sum(sample[1] for sample in self._samples))

    def record(self, copied: int, now_ms: int) -> None:
        """Count these bytes."""
        if not self._samples or now_ms - self._samples[-1][0] >= _SAMPLE_MS:
            self._samples.append([now_ms, 0])
        self._samples[-1][1] += copied

    def back_off(self, now_ms: int) -> None:
        """Let the follower ask again only after a while."""
        self._asks_again_ms = max(self._asks_again_ms, now_ms + _BACKOFF_MS)


@dataclass(frozen=True, slots=True)
class Phase:
    """From `from_s` to `to_s` seconds after the begin, `broker` was the one that had most bytes left to receive."""

    from_s: float
    to_s: float
    broker: int


@dataclass
class Volume:
    """The volumes of one broker together: total bytes, None if unknown, and used ones, now and at most so far."""

    total: int | None
    used: int
    peak: int = field(init=False)

    def __post_init__(self) -> None:
        self.peak = self.used

    def add(self, count: int) -> None:
        """Count bytes that were written, or deleted if negative."""
        self.used += count
        self.peak = max(self.peak, self.used)

    def as_log_dirs(self, held: Mapping[TopicPartition, int]) -> BrokerLogDirs:
        """Return it as Kafka describes the log directories of a broker with these replicas."""
        free = None if self.total is None else max(0, self.total - self.used)
        return BrokerLogDirs(held, self.total, free, (Directory("/disk-1", held, len(held), self.total, free),))


class TimedCluster(SimulatedCluster):
    """A simulated cluster that copies as fast as `bandwidth` bytes/s into a broker and its quotas allow.

    `disks` has the total bytes of each broker's volumes, None if unknown, and the used ones. `growth` has the bytes/s
    that producers write into a partition. `left` has the bytes that each broker is still to receive: it only decides
    which one the `phases` name. Time passes in ticks of `tick_ms`.
    """

    def __init__(
        self,
        cluster_id: str,
        racks: Mapping[int, str | None],
        *,
        mode: str,
        now_ms: int,
        bandwidth: float,
        disks: Mapping[int, tuple[int | None, int]],
        growth: Mapping[TopicPartition, float],
        left: Mapping[int, int],
        tick_ms: int,
    ) -> None:
        super().__init__(cluster_id, racks, mode=mode, now_ms=now_ms, disk_bytes=0)
        self.bandwidth = bandwidth
        self.tick_ms = tick_ms
        self.volumes = {broker: Volume(*disks.get(broker, (None, 0))) for broker in racks}
        self.growth = growth
        self.left = dict(left)
        self._planned = dict(left)
        self.phases: list[Phase] = []
        #: The reassignments that have ended since this was last set to 0.
        self.ended = 0
        self._began_ms = now_ms
        self._quotas = {side: {broker: Quota() for broker in racks} for side in ThrottleSide}
        self._unfinished: dict[TopicPartition, Replicated] = {}
        self._lists: dict[str, tuple[str, frozenset[str]]] = {}
        self._untold_ms = 0.0

    def add(
        self, name: TopicPartition, replicas: Assignment, topic_id: str | None, size: int, isr: Collection[int]
    ) -> None:
        """Add a partition; its live replicas in the `isr` have all of it."""
        here = self.alive.intersection(isr)
        held = dict.fromkeys(here, size)
        partition = Replicated(replicas, topic_id, size, here, None, topic=name.topic, held=held)
        self.topics[name] = partition
        self.topic_settings.setdefault(name.topic, {})
        self.elect(partition)

    @property
    def elapsed_s(self) -> float:
        """The seconds that have passed."""
        return (self.now_ms - self._began_ms) / 1000

    def seconds_left(self) -> float | None:
        """Return how long the brokers need for what is left at the rates that they had so far; None if one had none.

        At first a broker takes in more than its quota allows later.
        """
        waiting = {broker: count for broker, count in self.left.items() if count}
        received = {broker: self._planned[broker] - count for broker, count in waiting.items()}
        if not self.elapsed_s or not all(received.values()):
            return None
        rates = {broker: min(count / self.elapsed_s, self._usual_rate(broker)) for broker, count in received.items()}
        return max((count / rates[broker] for broker, count in waiting.items()), default=0.0)

    def advance(self, seconds: float) -> None:
        """Let time pass; what is less than a tick passes with the next one."""
        self._untold_ms += seconds * 1000
        while self._untold_ms >= self.tick_ms:
            self._untold_ms -= self.tick_ms
            self._tick()

    def is_busy(self, lead_s: float) -> bool:
        """Return True if no reassignment has ended, and no broker receives its last bytes within `lead_s` seconds."""
        missing: Counter[int] = Counter()
        for _, partition in self.unfinished():
            for broker in self.alive.intersection(partition.replicas) - partition.isr:
                missing[broker] += max(0, partition.size - partition.held.get(broker, 0))
        if self.ended or not missing:
            return False
        return all(count > lead_s * self._usual_rate(broker) for broker, count in missing.items())

    def _usual_rate(self, broker: int) -> float:
        rate = self.rate(broker, ThrottleSide.FOLLOWER)
        return self.bandwidth if rate is None else min(rate, self.bandwidth)

    def unfinished(self) -> Iterable[tuple[TopicPartition, Replicated]]:
        return self._unfinished.items()

    def log_dirs(self, brokers: Collection[int]) -> dict[int, BrokerLogDirs]:
        logs: dict[int, dict[TopicPartition, int]] = {broker: {} for broker in sorted(self.alive.intersection(brokers))}
        for name, partition in self.topics.items():
            for broker in partition.held.keys() & logs.keys():
                logs[broker][name] = partition.held[broker]
        return {broker: self.volumes[broker].as_log_dirs(held) for broker, held in logs.items()}

    def _apply(self, targets: Mapping[TopicPartition, Assignment | None]) -> dict[TopicPartition, KafkaRefused | None]:
        answers = super()._apply(targets)
        for name in targets:
            if name in self.topics and self.topics[name].reassigning:
                self._unfinished[name] = self.topics[name]
        return answers

    def _drop(self, partition: Replicated, brokers: Collection[int]) -> None:
        for broker in partition.held.keys() & set(brokers):
            self.volumes[broker].add(-partition.held[broker])
        super()._drop(partition, brokers)

    def _tick(self) -> None:
        self.now_ms += self.tick_ms
        self._note_bottleneck()
        copies: dict[int, list[_Copy]] = {}
        for name, partition in self._unfinished.items():
            self._grow(name, partition)
            if partition.leader is not None:
                for broker in self.alive.intersection(partition.replicas) - partition.isr:
                    copies.setdefault(broker, []).append(_Copy(name, partition, broker))
        for broker, wanted in sorted(copies.items()):
            self._receive(broker, wanted)
        for name, partition in list(self._unfinished.items()):
            self.complete(partition)
            if not partition.reassigning:
                del self._unfinished[name]
                self.ended += 1

    def _grow(self, name: TopicPartition, partition: Replicated) -> None:
        if name in self.growth and partition.leader is not None:
            partition.size += int(self.growth[name] * self.tick_ms / 1000)
            for broker in partition.isr:
                self.volumes[broker].add(partition.size - partition.held[broker])
                partition.held[broker] = partition.size

    def _receive(self, broker: int, wanted: Sequence[_Copy]) -> None:
        """Copy to one broker what its bandwidth and the quotas allow within a tick."""
        room = self.bandwidth * self.tick_ms / 1000
        rate, quota = self.rate(broker, ThrottleSide.FOLLOWER), self._quotas[ThrottleSide.FOLLOWER][broker]
        throttled = [copy for copy in wanted if self._lists_replica(ThrottleSide.FOLLOWER, copy.name, broker)]
        free = [copy for copy in wanted if copy not in throttled] if len(throttled) < len(wanted) else []
        room -= self._copy(free, room)
        if not throttled:
            return
        allowed = room if rate is None else quota.allowance(rate, self.now_ms)
        # Each leader's response is asked for while the quota is not exceeded: on average half of one is too much.
        over = 0.0 if rate is None or not allowed else _response_bytes(throttled) / 2
        copied = self._copy(throttled, min(room, allowed + over))
        if copied:
            quota.record(copied, self.now_ms)
        if rate is not None and copied >= allowed > 0:
            quota.back_off(self.now_ms)

    def _copy(self, wanted: Sequence[_Copy], room: float) -> int:
        """Copy `room` bytes, an equal part to each replica that lacks as much; return the bytes copied."""
        wanted = [copy for copy in wanted if self._leader_allows(copy)]
        total = 0
        for place, copy in enumerate(sorted(wanted, key=lambda copy: copy.missing)):
            took = min(copy.missing, int((room - total) / (len(wanted) - place)))
            total += took
            self._arrive(copy, took)
        return total

    def _arrive(self, copy: _Copy, took: int) -> None:
        partition, broker = copy.partition, copy.broker
        self.volumes[broker].add(took)
        self.left[broker] = max(0, self.left.get(broker, 0) - took)
        if partition.leader is not None and self._lists_replica(ThrottleSide.LEADER, copy.name, partition.leader):
            self._quotas[ThrottleSide.LEADER][partition.leader].record(took, self.now_ms)
        partition.held[broker] = partition.held.get(broker, 0) + took
        if partition.held[broker] >= partition.size:
            partition.isr.add(broker)

    def _leader_allows(self, copy: _Copy) -> bool:
        leader = copy.partition.leader
        rate = None if leader is None else self.rate(leader, ThrottleSide.LEADER)
        if leader is None or rate is None or not self._lists_replica(ThrottleSide.LEADER, copy.name, leader):
            return True
        return self._quotas[ThrottleSide.LEADER][leader].allowance(rate, self.now_ms) > 0

    def _lists_replica(self, side: ThrottleSide, name: TopicPartition, broker: int) -> bool:
        value = self.topic_settings[name.topic].get(side.replicas_key)
        if not value:
            return False
        text, entries = self._lists.get(f"{side}/{name.topic}", ("", frozenset[str]()))
        if text is not value:
            entries = frozenset(parse_list(value))
            self._lists[f"{side}/{name.topic}"] = value, entries
        return f"{name.partition}:{broker}" in entries or ALL in entries

    def _note_bottleneck(self) -> None:
        """Continue the last phase, or begin one with the broker that has most left to receive."""
        if not any(self.left.values()):
            return
        now_s = self.elapsed_s
        broker = max(self.left, key=lambda broker: (self.left[broker], -broker))
        last = self.phases[-1] if self.phases else Phase(0, 0, broker)
        if last.broker == broker:
            self.phases[-1:] = [replace(last, to_s=now_s)]
        else:
            self.phases.append(Phase(last.to_s, now_s, broker))


@dataclass(frozen=True, slots=True, eq=False)
class _Copy:
    name: TopicPartition
    partition: Replicated
    broker: int

    @property
    def missing(self) -> int:
        return max(0, self.partition.size - self.partition.held.get(self.broker, 0))


def _response_bytes(copies: Sequence[_Copy]) -> int:
    """Return what one response from each leader of these copies brings at most."""
    asked: Counter[int | None] = Counter()
    for copy in copies:
        asked[copy.partition.leader] += min(_PARTITION_BYTES, copy.missing)
    return sum(min(_RESPONSE_BYTES, count) for count in asked.values())
