"""Throttles that are left over: rates and lists of throttled replicas that no reassignment in flight and no plan needs.

Other tools leave them when they are interrupted, or when nobody calls `kafka-reassign-partitions --verify`. A later
reassignment is then limited by them. They are shown, and removed when a person asks for it.
What others have set and a reassignment in flight needs is shown too, and is not removed.

A follower's rate is needed while its broker receives a replica, a leader's rate while its broker has one that is
copied, and a list entry while its partition is reassigned. What a lease of a plan names is never left over.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from kafka_steward.assignment import TopicPartition, name_brokers, name_some
from kafka_steward.cluster.configs import BrokerRate, ConfigChange, ConfigOp, parse_list
from kafka_steward.cluster.state import Partition, Snapshot
from kafka_steward.errors import ClusterError
from kafka_steward.execution.cluster_queries import readable_topic_configs
from kafka_steward.execution.effects import AuditedCalls
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.execution.throttles.leases import leased_rates
from kafka_steward.execution.throttles.rates import (
    ALL,
    Copy,
    ExternalRate,
    ThrottleSide,
    configs_command,
    lists_leader,
    rate_text,
    rates_in_force,
    removal_command,
)
from kafka_steward.journal.audit import Action, Actor, AuditRecord, event_number
from kafka_steward.journal.records import THROTTLE_LEASES, LeaseKey, ThrottleLease
from kafka_steward.journal.store import Journal

#: Rates in files that a message names; the others are only counted.
_NAMED = 3
#: Topics whose settings are read between two checks of the step lock.
_TOPICS = 1000


class ThrottleLevel(StrEnum):
    """Where a throttle is set."""

    BROKER = "broker"
    #: The cluster-wide default of all brokers.
    ALL_BROKERS = "all brokers"
    TOPIC = "topic"
    #: A broker's file, server.properties.
    FILE = "file"


@dataclass(frozen=True, slots=True, order=True)
class ExternalThrottle:
    """A setting of others: a rate, or those entries of a list that are theirs; `kept` are the entries that stay.

    `entity` is the broker's id or the topic, empty for all brokers.
    """

    level: ThrottleLevel
    entity: str
    key: str
    value: str
    kept: tuple[str, ...] = ()

    def command(self, connection: str) -> str:
        """Return the command of Kafka's tools that removes it; `connection` are the options by which it connects.

        Empty where none does.
        """
        if self.level is ThrottleLevel.FILE:
            return ""
        if not self.kept:
            kind = "topics" if self.level is ThrottleLevel.TOPIC else "brokers"
            return removal_command(self.entity, kind, self.key, connection)
        kept = shlex.quote(f"{self.key}=[{','.join(self.kept)}]")
        return configs_command(f"--entity-type topics --entity-name {self.entity} --add-config {kept}", connection)

    @property
    def change(self) -> ConfigChange:
        """The change that removes it."""
        if self.kept:
            return ConfigChange(self.key, ConfigOp.SUBTRACT, self.value)
        return ConfigChange(self.key, ConfigOp.DELETE)

    def to_json(self, connection: str) -> dict[str, Any]:
        """Return it as JSON values, with the command."""
        return {
            "level": self.level.value,
            "entity": self.entity or None,
            "key": self.key,
            "value": self.value,
            "command": self.command(connection) or None,
        }


@dataclass(frozen=True, slots=True)
class ThrottleSurvey:
    """The throttles that others have set: those that are left over, and those that a reassignment in flight needs.

    `rates` are the rates that apply to what is reassigned: of followers, and of leaders with the partitions that a list
    names, or that plans list.
    """

    leftovers: tuple[ExternalThrottle, ...]
    rates: tuple[ExternalRate, ...]
    in_use: tuple[ExternalThrottle, ...] = ()
    #: The rates in files of brokers, which Kafka shows and does not apply.
    in_files: tuple[ExternalThrottle, ...] = ()
    #: The brokers whose rates were not read.
    unread: tuple[int, ...] = ()

    @property
    def file_sentence(self) -> str:
        """Return where rates stand in files, and what takes them away; empty if none does."""
        if not self.in_files:
            return ""
        named = [
            f"{throttle.key} {rate_text(int(throttle.value))} of broker {throttle.entity}" for throttle in self.in_files
        ]
        return (
            f"In server.properties: {name_some(named, _NAMED)}. Kafka shows such a rate and does not apply it to "
            "replication; only a change of the file and a restart of the broker take it away."
        )

    @property
    def unread_sentence(self) -> str:
        """Return whose rates were not read; empty if all were. Only the broker itself has those that are set on it."""
        if not self.unread:
            return ""
        why = "it is not live, or does" if len(self.unread) == 1 else "they are not live, or do"
        return f"The rates set on {name_brokers(self.unread)} were not read: {why} not answer."


def survey_throttles(
    cluster: ClusterPort, journal: Journal, check: Callable[[], None] = lambda: None, *, leaders: bool = False
) -> ThrottleSurvey:
    """Return the throttles that others have set, sorted. `check` is called between the requests for many topics.

    With `leaders`, plans list throttled leaders, too. Topics whose settings we may not read are left out. Raises
    ClusterError.
    """
    snapshot = cluster.snapshot()
    leased = leased_rates(journal)
    unneeded, in_use, in_files = list[ExternalThrottle](), list[ExternalThrottle](), list[ExternalThrottle]()
    external = dict[ThrottleSide, list[ExternalRate]]()
    unread = snapshot.brokers.keys() | snapshot.dead_hosting_brokers
    for side in ThrottleSide:
        rates = cluster.broker_rates(sorted(snapshot.live), [side.rate_key])[side.rate_key]
        unread -= rates.keys()
        in_files += (
            ExternalThrottle(ThrottleLevel.FILE, str(broker), side.rate_key, rate.in_file)
            for broker, rate in rates.items()
            if rate.in_file is not None
        )
        theirs = _rates_of_others(side, rates, leased)
        with_lease = {broker for broker, of in leased if of is side}
        for needed, throttle in _list_rates(side, theirs, snapshot, with_lease):
            (in_use if needed else unneeded).append(throttle)
        external[side] = rates_in_force(side, theirs)
    rows = journal.rows(THROTTLE_LEASES).all()
    entries = {row.key: {entry for listed in row.value.entries.values() for entry in listed} for row in rows}
    lists = list(_read_lists(cluster, sorted(snapshot.topics), check))
    for topic, key, value in lists:
        ours = entries.get(LeaseKey(topic, key), set())
        unneeded += filter(None, [_leftover_list(topic, key, value, ours, snapshot)])
        in_use += filter(None, [_list_in_use(topic, key, value, ours, snapshot)])
    named = {topic: value for topic, key, value in lists if key == ThrottleSide.LEADER.replicas_key}
    leading = _with_partitions(snapshot, external[ThrottleSide.LEADER], named, leaders)
    return ThrottleSurvey(
        tuple(sorted(unneeded)),
        tuple(sorted([*external[ThrottleSide.FOLLOWER], *leading])),
        tuple(sorted(in_use)),
        tuple(sorted(in_files)),
        tuple(sorted(unread)),
    )


def _rates_of_others(
    side: ThrottleSide, rates: Mapping[int, BrokerRate], leased: Mapping[tuple[int, ThrottleSide], ThrottleLease]
) -> dict[int, BrokerRate]:
    """Return the rates of the brokers without those that plans have set."""
    return {broker: rate for broker, rate in rates.items() if not _is_ours(rate, leased.get((broker, side)))}


def _is_ours(rate: BrokerRate, lease: ThrottleLease | None) -> bool:
    """Return whether a plan has set the rate; also if it was cleared since: the next step of the plan sets it again."""
    if lease is None:
        return False
    return lease.ours is not None if rate.own is None else rate.own in {lease.ours, *lease.earlier}


def _read_lists(
    cluster: ClusterPort, topics: Sequence[str], check: Callable[[], None]
) -> Iterator[tuple[str, str, str]]:
    """Yield topic, setting and value of each list of throttled replicas."""
    keys = [side.replicas_key for side in ThrottleSide]
    for start in range(0, len(topics), _TOPICS):
        # Thousands of topics take longer than the step lock lives: the check renews it.
        check()
        values, _ = readable_topic_configs(cluster, topics[start : start + _TOPICS], keys, own_only=True)
        yield from ((topic, key, value) for topic, of in values.items() for key, value in of.items())


def read_external_rates(cluster: ClusterPort, journal: Journal, *, leaders: bool) -> list[ExternalRate]:
    """Return the rates that others have set and that are in force, sorted; none without the right.

    Those of leaders have the partitions that they throttle: which a list names, or a plan's throttle with `leaders`.
    Those of followers have the partitions with a replica there that is out of sync and that a list names.
    """
    try:
        return find_external_rates(cluster, journal, leaders=leaders)
    except ClusterError:
        return []  # a plan can be made, and approved, without the right to read the settings of brokers


def find_external_rates(cluster: ClusterPort, journal: Journal, *, leaders: bool) -> list[ExternalRate]:
    """Return the same. Raises ClusterError."""
    leased = leased_rates(journal)
    rates = cluster.broker_rates(sorted(cluster.live_brokers()), [side.rate_key for side in ThrottleSide])
    following, leading = (
        rates_in_force(side, _rates_of_others(side, rates[side.rate_key], leased)) for side in ThrottleSide
    )
    if not (following or leading):
        return []
    snapshot = cluster.snapshot()
    lagging = list(_with_lagging(cluster, snapshot, following))
    key = ThrottleSide.LEADER.replicas_key
    read = _read_lists(cluster, sorted(snapshot.topics), lambda: None) if leading else ()
    lists = {topic: value for topic, of, value in read if of == key}
    return sorted([*lagging, *_with_partitions(snapshot, leading, lists, leaders)])


def _with_lagging(cluster: ClusterPort, snapshot: Snapshot, rates: Sequence[ExternalRate]) -> Iterator[ExternalRate]:
    """Yield the rates of followers with the partitions of which they throttle a replica that is out of sync."""
    lagging: dict[int, set[TopicPartition]] = {rate.broker: set() for rate in rates}
    for name, partition in snapshot.partitions.items():
        for broker in set(partition.replicas) - partition.isr & lagging.keys():
            lagging[broker].add(name)
    topics = sorted({name.topic for names in lagging.values() for name in names})
    key = ThrottleSide.FOLLOWER.replicas_key
    lists = {topic: parse_list(value) for topic, of, value in _read_lists(cluster, topics, lambda: None) if of == key}
    for rate in rates:
        entries = {name: lists.get(name.topic, ()) for name in lagging[rate.broker]}
        listed = (name for name, of in entries.items() if ALL in of or f"{name.partition}:{rate.broker}" in of)
        yield replace(rate, partitions=frozenset(listed))


def _with_partitions(
    snapshot: Snapshot, rates: Sequence[ExternalRate], lists: Mapping[str, str], leaders: bool
) -> Iterator[ExternalRate]:
    """Yield the rates of leaders with the partitions that they throttle; those that throttle none are left out.

    `lists` are those of throttled leaders, by topic.
    """
    throttled: dict[int | None, set[TopicPartition]] = {}
    for name, partition in snapshot.partitions.items():
        if leaders or lists_leader(lists.get(name.topic), Copy(name, partition.leader, -1)):
            throttled.setdefault(partition.leader, set()).add(name)
    for rate in rates:
        if rate.broker in throttled:
            yield replace(rate, partitions=frozenset(throttled[rate.broker]))


def _list_rates(
    side: ThrottleSide, rates: Mapping[int, BrokerRate], snapshot: Snapshot, leased: Collection[int]
) -> Iterator[tuple[bool, ExternalThrottle]]:
    """Yield each rate, and whether a reassignment in flight needs it, or a plan has a lease on it."""
    moving = [partition for partition in snapshot.in_flight.values() if _awaited_replicas(partition)]
    if side is ThrottleSide.FOLLOWER:
        busy = {broker for partition in moving for broker in _awaited_replicas(partition)}
    else:
        busy = {broker for partition in moving for broker in set(partition.replicas).difference(partition.adding)}
    for broker, rate in rates.items():
        if rate.own is not None:
            needed = broker in busy or broker in leased
            yield needed, ExternalThrottle(ThrottleLevel.BROKER, str(broker), side.rate_key, rate.own)
    # The default of the cluster is the same at each broker.
    inherited = next((rate.inherited for rate in rates.values() if rate.inherited is not None), None)
    if inherited is not None:
        yield bool(moving), ExternalThrottle(ThrottleLevel.ALL_BROKERS, "", side.rate_key, inherited)


def _awaited_replicas(partition: Partition) -> set[int]:
    """Return the replicas for which Kafka waits to complete a reassignment: new ones, and those that stay and lag."""
    return {*partition.adding, *(set(partition.replicas).difference(partition.removing) - partition.isr)}


def _leftover_list(
    topic: str, key: str, value: str, leased: Collection[str], snapshot: Snapshot
) -> ExternalThrottle | None:
    moving = {str(name.partition) for name in snapshot.in_flight if name.topic == topic}
    entries = parse_list(value)
    if ALL in entries:
        kept = entries if moving or leased else ()
    else:
        kept = tuple(entry for entry in entries if entry in leased or entry.partition(":")[0] in moving)
    gone = ",".join(entry for entry in entries if entry not in kept)
    return ExternalThrottle(ThrottleLevel.TOPIC, topic, key, gone, kept) if gone or not kept else None


def _list_in_use(
    topic: str, key: str, value: str, leased: Collection[str], snapshot: Snapshot
) -> ExternalThrottle | None:
    """Return the entries of others that a reassignment in flight needs; None without any."""
    leftover = _leftover_list(topic, key, value, leased, snapshot)
    kept = parse_list(value) if leftover is None else leftover.kept
    used = ",".join(entry for entry in kept if entry not in leased)
    rest = tuple(entry for entry in kept if entry in leased)
    return ExternalThrottle(ThrottleLevel.TOPIC, topic, key, used, rest) if used else None


def remove_leftover_throttles(
    cluster: ClusterPort, journal: Journal, shown: Sequence[ExternalThrottle], who: Actor, reason: str
) -> dict[ExternalThrottle, ClusterError | None]:
    """Remove those of the `shown` throttles that are left over still; return None, or the error, of each of these.

    Under the step lock, which no plan can then take for a lease. Raises LockLost while a plan is stepped, ClusterError.
    """
    with journal.step_lock() as fence:
        # Read again under the lock: since they were shown, a plan may have leased one.
        current = set(survey_throttles(cluster, journal, fence.check).leftovers)
        entries = {throttle: [_audit_record(throttle, who, reason)] for throttle in shown if throttle in current}
        calls = AuditedCalls(journal.audit, fence)
        return calls.execute(entries, lambda batch: _remove(cluster, batch))


def _audit_record(leftover: ExternalThrottle, who: Actor, reason: str) -> AuditRecord:
    record = AuditRecord(
        Action.UNTHROTTLE,
        f"no reassignment needs it: {reason}",
        attempt=event_number(),
        before={leftover.key: leftover.value},
        after={leftover.key: ",".join(leftover.kept) or None},
        who=who,
    )
    if leftover.level is ThrottleLevel.TOPIC:
        return replace(record, topic=leftover.entity)
    return replace(record, broker=int(leftover.entity)) if leftover.level is ThrottleLevel.BROKER else record


def _remove(cluster: ClusterPort, batch: Sequence[ExternalThrottle]) -> dict[ExternalThrottle, ClusterError | None]:
    changes = {level: dict[str, list[ConfigChange]]() for level in ThrottleLevel}
    for throttle in batch:
        changes[throttle.level].setdefault(throttle.entity, []).append(throttle.change)
    answers: dict[tuple[ThrottleLevel, str], ClusterError | None] = {}
    for wanted in changes[ThrottleLevel.ALL_BROKERS].values():
        answers[ThrottleLevel.ALL_BROKERS, ""] = cluster.change_default_broker_configs(wanted)
    if of_brokers := changes[ThrottleLevel.BROKER]:
        results = cluster.change_broker_configs({int(broker): wanted for broker, wanted in of_brokers.items()})
        answers |= {(ThrottleLevel.BROKER, str(broker)): error for broker, error in results.items()}
    if of_topics := changes[ThrottleLevel.TOPIC]:
        refused = cluster.change_topic_configs(of_topics)
        answers |= {(ThrottleLevel.TOPIC, topic): error for topic, error in refused.items()}
    return {throttle: answers[throttle.level, throttle.entity] for throttle in batch}
