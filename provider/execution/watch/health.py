"""Health check of a cluster (KIP-352): the requests to Kafka, the limits, and the message for the user."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol

from kafka_steward.assignment import TopicPartition, begin_with_brokers, counted, name_some
from kafka_steward.cluster.health import (
    CopiedBytes,
    Health,
    copied_bytes,
    failed_paths_text,
    measure_health,
    receiving_brokers,
)
from kafka_steward.cluster.state import LogEndSource, partitions_by_broker
from kafka_steward.errors import RequestError
from kafka_steward.execution.cluster_queries import find_hidden_topics, min_isr_by_topic
from kafka_steward.execution.demotions import demoted_brokers
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.execution.topics.pending import count_missing, list_pending, with_hidden_pending_topics
from kafka_steward.execution.unsettled import record_unsettled
from kafka_steward.journal.store import Journal
from kafka_steward.rack_rule import rack_left_sentence
from kafka_steward.service_topics import SERVICE_TOPICS

#: Default limits: the maximum of each measure in a healthy cluster. A hidden topic is one that brokers host and Kafka
#: does not let us describe.
DEFAULT_LIMITS: Mapping[str, float] = {
    "under_replicated_partitions": 0,
    "under_min_isr_partitions": 0,
    "offline_partitions": 0,
    "failed_log_dirs": 0,
    "hidden_topics": 0,
    "pending_replicas": 0,
    "rack_violations": 0,
}

#: Default limits of a wait: nothing spreads replicas over the racks by itself, so that a wait for it would not end.
AWAITED_LIMITS: Mapping[str, float] = {
    name: limit for name, limit in DEFAULT_LIMITS.items() if name != "rack_violations"
}

#: The measures for which limits may be given.
_MEASURES = (
    *DEFAULT_LIMITS,
    "reassigning_partitions",
    "reassignment_max_lag",
    "failed_brokers",
    "cordoned_brokers",
    "demoted_brokers",
    "demoted_leaders",
    "replica_imbalance",
    "leader_imbalance",
)

#: The number of partitions that a message names; the rest is only counted.
_NAMED = 3

#: The number of partitions that a task's result names for each condition; the log names all of them.
NAMED_IN_RESULT = 100

#: The number of partitions that a line of the log names.
_NAMED_IN_LINE = 50


class HealthCheckPort(ClusterPort, LogEndSource, Protocol):
    """A cluster whose health can be checked; KafkaCluster is one."""


def check_health(
    cluster: HealthCheckPort,
    journal: Journal,
    before: CopiedBytes | None = None,
    *,
    thorough: bool = False,
    sized: bool = False,
    service_topics: Sequence[str] = SERVICE_TOPICS,
) -> tuple[Health, CopiedBytes]:
    """Return the cluster's health, and the bytes copied so far.

    Pass the copied bytes to the next check as `before`, which makes bytes per second possible. Sizes are requested only
    while partitions are being reassigned, or when they have been since `before`; log ends only in the former case. A
    `thorough` check asks every broker for its log directories, and so detects the topics that we may not describe; a
    `sized` one asks them too, for the bytes of each broker's replicas. Of `service_topics`, the racks do not matter.
    Raises ClusterError, JournalError.
    """
    snapshot = cluster.snapshot()
    moving = snapshot.reassigning
    asked = sorted(snapshot.live if thorough or sized else receiving_brokers(snapshot, before))
    log_dirs = cluster.log_dirs(asked) if asked else {}
    # A broker that is down does not say where its logs end.
    held = {broker: names for broker, names in partitions_by_broker(moving.values()).items() if broker in snapshot.live}
    # Only topics with a replica out of sync can have partitions under min ISR.
    lagging = (partition for partition in snapshot.partitions.values() if len(partition.isr) < len(partition.replicas))
    copies = copied_bytes(snapshot, log_dirs, journal.now_ms(), before)
    record_unsettled(journal, snapshot)
    health = measure_health(
        snapshot,
        min_isr=min_isr_by_topic(cluster, {partition.topic for partition in lagging}),
        ends=cluster.log_ends(held) if held else {},
        copies=copies,
        before=before,
        pending=count_missing(list_pending(journal, with_hidden_pending_topics(cluster, journal, snapshot))),
        disks=cluster.directories(sorted(snapshot.live)),
        hidden_topics=tuple(find_hidden_topics(cluster, snapshot, log_dirs)) if thorough else None,
        sizes=log_dirs,
        service_topics=service_topics,
        demoted=demoted_brokers(journal),
    )
    return health, copies


def validate_limits(
    given: Mapping[str, float] | None, default: Mapping[str, float] = DEFAULT_LIMITS
) -> dict[str, float]:
    """Return the limits to check: the given ones, or the default. Raises RequestError for an unknown measure."""
    for name in given or ():
        if name not in _MEASURES:
            raise RequestError(f"There is no measure {name!r}; there are {', '.join(_MEASURES)}.")
    return {name: float(value) for name, value in (default if given is None else given).items()}


def violated_limits(health: Health, limits: Mapping[str, float]) -> list[str]:
    """Return the measures that are above their limits; a measure without a value is not."""
    measures = health.measures
    return [name for name, limit in limits.items() if measures.get(name, 0) > limit]


def health_message(health: Health) -> str:
    """Return the message for the user."""
    message = f"Of {counted(health.partitions, 'partition')} " + ", ".join(
        [
            _format_count(health.under_replicated, "under-replicated"),
            _format_count(health.under_min_isr, "under min ISR"),
            _format_count(health.offline, "offline"),
        ]
    )
    gone = f" {begin_with_brokers(health.gone, 'is', 'are')} down." if health.gone else ""
    pending = f" {counted(health.pending, 'replica', 'is', 'are')} pending." if health.pending else ""
    deletions = "".join(f" {sentence}" for sentence in health.deletions)
    rest = f"{gone}{_disk_message(health)}{deletions}{_hidden_topics_message(health)}{pending}{_rack_message(health)}"
    return f"{message}.{_reassigning_message(health)}{rest}"


def partition_names(health: Health) -> dict[str, list[str]]:
    """Return the names of the partitions by condition, at most `NAMED_IN_RESULT` for each: for a task's result."""
    return {condition: [str(name) for name in names[:NAMED_IN_RESULT]] for condition, names in _named(health).items()}


def _named(health: Health) -> dict[str, tuple[TopicPartition, ...]]:
    conditions = {condition.value: names for condition, names in health.by_condition.items()}
    return {**conditions, "rack_violations": health.rack_violations}


def partition_lines(health: Health) -> Iterator[str]:
    """Yield the lines of the log that name every partition that meets a condition."""
    for condition, names in _named(health).items():
        for start in range(0, len(names), _NAMED_IN_LINE):
            some = names[start : start + _NAMED_IN_LINE]
            counted = f"{start + 1} to {start + len(some)} of {len(names)}"
            yield f"{condition.replace('_', ' ')}, {counted}: {', '.join(map(str, some))}"


def _disk_message(health: Health) -> str:
    failed = "".join(
        f" Log directory {failed_paths_text(paths)} of broker {broker} has failed."
        for broker, paths in health.failed_log_dirs.items()
    )
    return failed + (f" {begin_with_brokers(health.cordoned, 'is', 'are')} cordoned." if health.cordoned else "")


def _rack_message(health: Health) -> str:
    count, left = len(health.rack_violations), rack_left_sentence(health.rack_left)
    also = f" {left}" if left else ""
    if not count:
        return also
    some = name_some(health.rack_violations, _NAMED)
    subject = f"1 partition ({some}) is" if count == 1 else f"{count} partitions ({some}) are"
    return (
        f" {subject} not spread over the racks as well as can be; rebalance with balance=racks repairs only that.{also}"
    )


def _hidden_topics_message(health: Health) -> str:
    if not health.hidden_topics:
        return ""
    some = name_some(health.hidden_topics, _NAMED)
    message = f" {len(health.hidden_topics)} topics are hidden from us ({some})"
    return f"{message}: grant our principal DESCRIBE on every topic, as docs/permissions.md says."


def _reassigning_message(health: Health) -> str:
    if not health.reassigning:
        return " None is being reassigned."
    behind = "" if health.max_lag is None else f", at most {health.max_lag} messages behind"
    rate = f", {sum(health.bytes_in.values()) / 1e6:.1f} MB/s" if health.bytes_in else ""
    count = len(health.reassigning)
    return f" {count} {'is' if count == 1 else 'are'} being reassigned{behind}{rate}."


def _format_count(names: Collection[TopicPartition], what: str) -> str:
    if not names:
        return f"0 are {what}"
    return f"{len(names)} {'is' if len(names) == 1 else 'are'} {what} ({name_some(names, _NAMED)})"
