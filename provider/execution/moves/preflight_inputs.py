"""Inputs of preflight, read from the cluster and from the announcements in the journal.

Steps may follow each other every tenth of a second, and a plan may have ten thousands of moves that wait. What changes
slowly is therefore not read in each step. The partitions outside the plan are looked at once per second: a replica
leaves the ISR only `replica.lag.time.max.ms` (30 s by default) after it last caught up, so a look that is a second old
misses nothing that a look just before the request would have seen in time. The min.insync.replicas of topics and the
partitions' sizes are read every ten seconds: the one is changed by persons, and the other by what producers write in
that time, for which `min_free` leaves room. A process that begins to step a plan reads everything.

A broker with many or slow disks may not answer DescribeLogDirs in time. Its last answer is then used for some minutes,
less the replicas that may have arrived since.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kafka_steward.assignment import URGENT_OPERATIONS, Operation, TopicPartition
from kafka_steward.cluster.state import BrokerLogDirs, Partition, Snapshot
from kafka_steward.execution.announcements import disabled_advice, restarting_brokers
from kafka_steward.execution.cluster_queries import MIN_ISR
from kafka_steward.execution.moves.preflight import (
    IncomingReplica,
    PreflightInputs,
    compute_rooms,
    find_out_of_sync_elsewhere,
    find_under_min_isr_elsewhere,
)
from kafka_steward.execution.moves.rows import MoveRows
from kafka_steward.execution.moves.staging import UNCLEAN_ELECTIONS
from kafka_steward.execution.ports import ClusterContext, ClusterPort
from kafka_steward.execution.tiered import REMOTE_STORAGE
from kafka_steward.execution.unsettled import find_stuck, record_unsettled
from kafka_steward.journal.locks import Fence
from kafka_steward.journal.records import MoveRow, PlanRecord, UnsettledPartitions

#: Topics whose settings are read between two checks of the step lock.
_TOPICS = 1000

#: The ages in milliseconds up to which the state of other partitions, and settings and sizes, are not read again.
_STRAIN_MS, _FACTS_MS = 1000, 10_000
#: The age up to which the last answer of a broker is used that does not answer now.
_KEPT_MS = 300_000


@dataclass(frozen=True)
class ClusterStrain:
    """The partitions outside a plan whose brokers are under load, with these, at `at_ms` of the journal's clock."""

    at_ms: int
    under_min_isr: Mapping[TopicPartition, frozenset[int]] = field(default_factory=dict)
    out_of_sync: Mapping[TopicPartition, frozenset[int]] = field(default_factory=dict)
    #: The partitions that somebody else reassigns, with the time since which.
    foreign: Mapping[TopicPartition, int] = field(default_factory=dict)

    def is_current(self, now_ms: int) -> bool:
        """Return False if it has to be read again, also when the clock was set back."""
        return 0 <= now_ms - self.at_ms < _STRAIN_MS


@dataclass(frozen=True)
class KeptLogDirs:
    """A broker's last answer for its log directories, and the moves of the plan as they were then."""

    at_ms: int
    dirs: BrokerLogDirs
    rows: Sequence[MoveRow]

    def to_come(self, broker: int) -> dict[TopicPartition, int | None]:
        """Return the replicas that moves were to bring to the broker, with their planned sizes."""
        coming = (row for row in self.rows if broker in row.move.adding and not row.state.settled)
        return {row.topic_partition: row.move.size_bytes for row in coming}


@dataclass
class KnownFacts:
    """The facts that a process read for preflight in its last steps.

    `min_isr` is min.insync.replicas by topic, None if it is not set, `unclean` are those topics that allow unclean
    leader elections, `tiered` those with remote storage, and `sizes` are the sizes on the leaders. `log_dirs` are the
    last answers of brokers, and `last_sizes` are sizes with the time of the answer: they are used while a broker does
    not answer.
    """

    strain: ClusterStrain | None = None
    min_isr: dict[str, int | None] = field(default_factory=dict)
    unclean: set[str] = field(default_factory=set)
    tiered: set[str] = field(default_factory=set)
    sizes: dict[TopicPartition, int] = field(default_factory=dict)
    read_ms: int = 0
    log_dirs: dict[int, KeptLogDirs] = field(default_factory=dict)
    last_sizes: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)

    def keep_log_dirs(
        self, answers: Mapping[int, BrokerLogDirs], asked: Collection[int], rows: Sequence[MoveRow], now_ms: int
    ) -> dict[int, BrokerLogDirs]:
        """Return `answers`, and for other brokers of `asked` the last answer, unless that is too old."""
        self.log_dirs |= {broker: KeptLogDirs(now_ms, dirs, rows) for broker, dirs in answers.items()}
        kept = {broker: self.log_dirs[broker] for broker in self.log_dirs.keys() & asked}
        return {broker: answer.dirs for broker, answer in kept.items() if 0 <= now_ms - answer.at_ms < _KEPT_MS}

    def arrived_since(
        self, brokers: Collection[int], rows: Sequence[MoveRow]
    ) -> dict[int, dict[TopicPartition, int | None]]:
        """Return the planned sizes of the replicas that may have arrived since the last answer of each broker."""
        kept = {broker: self.log_dirs[broker] for broker in self.log_dirs.keys() & brokers}
        older = {broker: answer.to_come(broker) for broker, answer in kept.items() if answer.rows is not rows}
        left = {row.topic_partition for row in rows if not row.state.settled} if older else set()
        return {broker: {name: to_come[name] for name in to_come.keys() - left} for broker, to_come in older.items()}

    def expire(self, now_ms: int) -> None:
        """Forget settings and sizes that are too old."""
        # Negative after the clock was set back.
        if not 0 <= now_ms - self.read_ms < _FACTS_MS:
            self.min_isr, self.unclean, self.tiered, self.sizes, self.read_ms = {}, set(), set(), {}, now_ms

    def needs_look(self, now_ms: int) -> bool:
        """Return True if the partitions outside the plan have to be looked at."""
        return self.strain is None or not self.strain.is_current(now_ms)


def load_preflight_inputs(
    context: ClusterContext,
    record: PlanRecord,
    rows: MoveRows,
    snapshot: Snapshot,
    log_dirs: Mapping[int, BrokerLogDirs],
    *,
    facts: KnownFacts,
    fence: Fence,
) -> PreflightInputs:
    """Return the preflight inputs for `rows`, the moves of a plan, once the strain of `facts` is assessed.

    May raise ClusterError, JournalError, LockLost.
    """
    cluster, journal = context.cluster, context.journal
    in_flight, waiting = rows.submitted, rows.open
    receiving = frozenset(broker for move in rows.open_kinds for broker in move.adding)
    min_isr = _fetch_min_isr(cluster, {move.topic for move in rows.open_kinds} - snapshot.hidden, facts, fence)
    rolls_back = record.operation == Operation.ROLLBACK.value
    if rolls_back:
        min_isr = {}  # it restores as many replicas as there were, however few
    unanswered = dict(cluster.log_dirs_failures) if receiving else {}
    # What other plans and other tools move takes room on the same brokers.
    beside = _other_arrivals(in_flight, snapshot, log_dirs.keys())
    copied = [row.topic_partition for row in (*in_flight, *waiting) if row.move.adding]
    sizes, silent_leaders = _fetch_partition_sizes(cluster, [*copied, *beside], snapshot, log_dirs, facts)
    # What a new replica of a topic with remote storage copies was read when it was planned: its leader may have more.
    planned = (row.move for row in (*in_flight, *waiting) if row.move.topic in facts.tiered)
    sizes |= {move.topic_partition: move.size_bytes for move in planned if move.adding and move.size_bytes is not None}
    # Kafka may have needed most of the lock's lifetime for the answers above.
    fence.check_after_wait()
    unapproved = record.needs_approval and journal.plans.approval(record.digest) is None
    arrived = facts.arrived_since(log_dirs.keys(), rows)
    arriving = _incoming_replicas(in_flight, beside, log_dirs, sizes, arrived)
    return PreflightInputs(
        snapshot,
        auto_generated=record.auto_generated,
        rolls_back=rolls_back,
        disabled="" if record.even_if_disabled else disabled_advice(journal),
        unapproved=record.digest[:12] if unapproved else "",
        bouncing=restarting_brokers(journal.mailbox, fence.now_ms),
        min_isr=min_isr,
        unclean=frozenset(facts.unclean),
        sizes=sizes,
        rooms=compute_rooms(log_dirs, min_free=context.settings.min_free, arriving=arriving),
        silent=(receiving & snapshot.live) - log_dirs.keys(),
        unanswered=unanswered | silent_leaders,
        cordoned=frozenset(broker for broker, dirs in log_dirs.items() if dirs.cordoned),
        # What is urgent goes on, more slowly (`concurrency`): a partition that stays as it is must not stop a heal.
        under_min_isr_elsewhere={}
        if facts.strain is None or record.operation in URGENT_OPERATIONS
        else facts.strain.under_min_isr,
        left_bytes=_left_bytes(arriving),
    )


def assess_strain(
    context: ClusterContext,
    snapshot: Snapshot,
    plan: Collection[TopicPartition],
    facts: KnownFacts,
    *,
    foreign: Collection[TopicPartition],
    fence: Fence,
) -> None:
    """Keep in `facts` the strain outside `plan` that `snapshot`, of the whole cluster, shows; others move `foreign`.

    A partition that has been under its min.insync.replicas for longer than `stuck_after` holds nothing: it would hold
    for ever. May raise ClusterError, JournalError, LockLost.
    """
    lagging = (partition for partition in snapshot.partitions.values() if len(partition.isr) < len(partition.replicas))
    min_isr = _fetch_min_isr(context.cluster, {partition.topic for partition in lagging}, facts, fence)
    under = find_under_min_isr_elsewhere(snapshot, plan, min_isr)
    unsettled = record_unsettled(context.journal, snapshot) if under or foreign else UnsettledPartitions()
    stuck = find_stuck(unsettled, context.settings, fence.now_ms)
    facts.strain = ClusterStrain(
        fence.now_ms,
        {name: brokers for name, brokers in under.items() if str(name) not in stuck},
        find_out_of_sync_elsewhere(snapshot, plan),
        {name: unsettled.reassigning_ms.get(str(name), fence.now_ms) for name in sorted(foreign)},
    )


def _fetch_min_isr(cluster: ClusterPort, topics: Collection[str], facts: KnownFacts, fence: Fence) -> dict[str, int]:
    """Return min.insync.replicas, by topic; a topic without the setting is left out.

    In the same request, it is read which topics allow unclean leader elections.
    """
    asked = sorted(set(topics) - facts.min_isr.keys())
    for start in range(0, len(asked), _TOPICS):
        # Reading a hundred thousand topics takes longer than the lifetime of the step lock: the check renews it.
        fence.check()
        batch = asked[start : start + _TOPICS]
        values = cluster.topic_configs(batch, [MIN_ISR, UNCLEAN_ELECTIONS, REMOTE_STORAGE])
        answers = {topic: values.get(topic, {}).get(MIN_ISR) for topic in batch}
        facts.tiered |= {topic for topic in batch if values.get(topic, {}).get(REMOTE_STORAGE) == "true"}
        facts.unclean |= {topic for topic in batch if values.get(topic, {}).get(UNCLEAN_ELECTIONS) == "true"}
        facts.min_isr |= {topic: None if value is None else int(value) for topic, value in answers.items()}
    known = ((topic, facts.min_isr[topic]) for topic in topics)
    return {topic: value for topic, value in known if value is not None}


def _fetch_partition_sizes(
    cluster: ClusterPort,
    copied: Iterable[TopicPartition],
    snapshot: Snapshot,
    log_dirs: Mapping[int, BrokerLogDirs],
    facts: KnownFacts,
) -> tuple[dict[TopicPartition, int], dict[int, str]]:
    """Return the sizes of the partitions whose data is copied, as their leaders report them; and who did not answer.

    A partition whose leader does not report the size is left out.
    """
    led: dict[int, list[TopicPartition]] = {}
    for name in copied:
        partition = snapshot.partitions.get(name)
        if partition is not None and partition.leader is not None:
            led.setdefault(partition.leader, []).append(name)
    unknown = {leader: [name for name in names if name not in facts.sizes] for leader, names in led.items()}
    asked = {leader: names for leader, names in unknown.items() if names and leader not in log_dirs}
    answers = cluster.log_sizes(asked) if asked else {}
    unanswered = dict(cluster.log_dirs_failures) if asked else {}
    facts.sizes |= {name: size for (name, _), size in answers.items()}
    facts.last_sizes |= {name: (facts.read_ms, size) for (name, _), size in answers.items()}
    # The leader does not answer now: what it answered last serves for some minutes.
    for name in (name for leader in unanswered.keys() & asked.keys() for name in asked[leader]):
        at_ms, size = facts.last_sizes.get(name, (0, 0))
        if at_ms and 0 <= facts.read_ms - at_ms < _KEPT_MS:
            facts.sizes[name] = size
    known = {
        name: log_dirs[leader].replica_bytes[name]
        for leader, names in led.items()
        if leader in log_dirs
        for name in names
        if name in log_dirs[leader].replica_bytes
    }
    elsewhere = {name for leader, names in led.items() if leader not in log_dirs for name in names}
    return known | {name: facts.sizes[name] for name in elsewhere & facts.sizes.keys()}, unanswered


def _other_arrivals(
    in_flight: Sequence[MoveRow], snapshot: Snapshot, brokers: Collection[int]
) -> dict[TopicPartition, Partition]:
    """Return the partitions with a replica in transfer to `brokers` that other plans or other tools have submitted."""
    own = {row.topic_partition for row in in_flight}
    return {
        name: partition
        for name, partition in snapshot.reassigning.items()
        if name not in own and not set(brokers).isdisjoint(partition.adding)
    }


def _left_bytes(arriving: Mapping[int, Sequence[IncomingReplica]]) -> dict[TopicPartition, int]:
    """Return the most bytes that each partition has yet to copy to one broker."""
    left: dict[TopicPartition, int] = {}
    for replicas in arriving.values():
        for replica in replicas:
            left[replica.partition] = max(replica.left_bytes, left.get(replica.partition, 0))
    return left


def _incoming_replicas(
    in_flight: Sequence[MoveRow],
    beside: Mapping[TopicPartition, Partition],
    log_dirs: Mapping[int, BrokerLogDirs],
    sizes: Mapping[TopicPartition, int],
    arrived: Mapping[int, Mapping[TopicPartition, int | None]],
) -> dict[int, list[IncomingReplica]]:
    """Return the replicas in transfer to each broker, with the bytes that had not arrived when the broker answered.

    `arrived` are the replicas that may have arrived since then, with their planned sizes.
    The size is the one at planning or the one that the leader reports, whichever is more: a leader that reports too
    little must not make a transfer look ended. If both are unknown, the largest known size is used.
    """
    largest = max(sizes.values(), default=0)
    transfers = [
        *((row.topic_partition, row.move.adding, row.move.size_bytes) for row in in_flight),
        *((name, frozenset(partition.adding), None) for name, partition in beside.items()),
        *((name, frozenset({broker}), size) for broker, replicas in arrived.items() for name, size in replicas.items()),
    ]
    incoming: dict[int, list[IncomingReplica]] = {}
    for name, adding, planned in transfers:
        size = max(sizes.get(name, largest if planned is None else 0), planned or 0)
        for broker in sorted(adding & log_dirs.keys()):
            left_bytes = max(0, size - log_dirs[broker].replica_bytes.get(name, 0))
            incoming.setdefault(broker, []).append(IncomingReplica(name, left_bytes))
    return incoming
