"""The checks that sensors wait for: functions `(opened, arguments) -> CheckResult`, loaded when the first one runs.

Arguments are JSON values, because a trigger serializes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kafka_steward.assignment import TopicPartition, begin_with_brokers, counted, name_some
from kafka_steward.errors import PlanError, RequestError
from kafka_steward.execution.plans.readiness import check_readiness, readiness_of
from kafka_steward.execution.plans.report import OutOfSyncPartition, find_out_of_sync
from kafka_steward.execution.watch.broker_joins import poll_joined_brokers
from kafka_steward.execution.watch.failure_detector import FailureDetector
from kafka_steward.execution.watch.health import (
    AWAITED_LIMITS,
    check_health,
    health_message,
    validate_limits,
    violated_limits,
)
from kafka_steward.journal.audit import Actor
from kafka_steward.triggers.wait import CheckResult

if TYPE_CHECKING:
    from kafka_steward.hooks.session import ClusterSession


#: The most partitions that a message names; the rest is only counted.
_NAMED = 3


def check_broker_failures(opened: ClusterSession, arguments: Mapping[str, Any]) -> CheckResult:
    """Check for a broker whose grace period has expired and that no plan heals; `brokers` restricts it to some ids."""
    who = Actor(**(arguments.get("who") or {}))
    verdict = FailureDetector(opened.cluster, opened.journal, opened.settings, who).poll(announce=False)
    wanted = arguments.get("brokers")
    failed = [broker for broker in verdict.failed if wanted is None or broker in wanted]
    return CheckResult(bool(failed), verdict.sentence, failed)


def check_caught_up(opened: ClusterSession, arguments: Mapping[str, Any]) -> CheckResult:
    """Check that all replicas are in the ISR: of the cluster, of `partitions` ([topic, partition]), or of a `plan`.

    `plan` is a digest. A plan's replicas on brokers that are not live are not waited for, only counted: a heal replaces
    them. Nor are those of partitions without a leader, which have nothing to copy from. Of the cluster, what the gate
    leaves out is not waited for, and named. Raises PlanError for an unknown plan, and RequestError for a partition that
    does not exist.
    """
    snapshot = opened.cluster.snapshot()
    if digest := arguments.get("plan"):
        waits = _partitions_of_plan(opened, digest)
        if isinstance(waits, CheckResult):
            return waits
        behind = find_out_of_sync(snapshot, [name for name in waits if name in snapshot.partitions])
        led = {name for name in waits if (partition := snapshot.partitions.get(name)) and partition.leader is not None}
        waited_for = [
            one
            for one in behind
            if one.reassigning or ((one.topic, one.partition) in led and snapshot.live & set(one.missing))
        ]
        left = [one for one in behind if one not in waited_for]
        why = "are on brokers that are not live"
        why += "" if all((one.topic, one.partition) in led for one in left) else " or have no leader to copy from"
        return _catch_up_result(waited_for, len(waits), dead=left, why=why)
    given = arguments.get("partitions")
    partitions = None if given is None else [TopicPartition(str(topic), int(number)) for topic, number in given]
    missing = [] if partitions is None else [name for name in partitions if name not in snapshot.partitions]
    if missing:
        raise RequestError(f"The partition {missing[0]} does not exist on cluster {snapshot.cluster_id}.")
    if partitions is not None:
        return _catch_up_result(find_out_of_sync(snapshot, partitions), len(partitions))
    readiness = readiness_of(snapshot, opened.journal, opened.settings)
    waits_for = find_out_of_sync(snapshot, snapshot.partitions.keys() - readiness.left_out.keys())
    result = _catch_up_result(waits_for, len(snapshot.partitions) - len(readiness.left_out))
    return replace(result, sentence=f"{result.sentence}{readiness.left_out_sentence}")


def check_ready(opened: ClusterSession, arguments: Mapping[str, Any]) -> CheckResult:  # noqa: ARG001 - all checks take arguments
    """Check that deferrable work may begin: full replication, nothing in flight, reassignments enabled."""
    gate = check_readiness(opened.cluster, opened.journal, opened.settings)
    return CheckResult(gate.is_ready, gate.sentence, list(gate.reasons))


def check_broker_joins(opened: ClusterSession, arguments: Mapping[str, Any]) -> CheckResult:
    """Check for a joined broker that can take pending replicas or is empty (KIP-409).

    With `brokers`, check that all of these are live.
    """
    who = Actor(**(arguments.get("who") or {}))
    joined = poll_joined_brokers(opened.cluster, opened.journal, opened.settings, who, announce=False, always=True)
    wanted = arguments.get("brokers")
    if joined is None:
        return CheckResult(False, "No replica is pending.")
    if wanted is None:
        arrived = sorted({*joined.eligible, *joined.empty})
        empty = f" {begin_with_brokers(joined.empty, 'holds', 'hold')} nothing yet." if joined.empty else ""
        return CheckResult(bool(arrived), f"{joined.sentence}{empty}", arrived)
    missing = [broker for broker in wanted if broker not in joined.live]
    if missing:
        return CheckResult(False, f"{begin_with_brokers(missing, 'is', 'are')} not live.", wanted)
    return CheckResult(True, "All requested brokers are live.", wanted)


def check_health_limits(opened: ClusterSession, arguments: Mapping[str, Any]) -> CheckResult:
    """Check that no measure of the cluster exceeds its limit (KIP-352). `limits` are by measure."""
    limits = validate_limits(arguments.get("limits"), AWAITED_LIMITS)
    service_topics = opened.settings.service_topic_patterns
    health, _ = check_health(opened.cluster, opened.journal, service_topics=service_topics)
    return CheckResult(not violated_limits(health, limits), health_message(health), health.measures)


def _partitions_of_plan(opened: ClusterSession, digest: str) -> list[TopicPartition] | CheckResult:
    record = opened.journal.plans.get(digest)
    if record is None:
        raise PlanError(f"The plan {digest[:12]} is not in the journal of cluster {opened.cluster.cluster_id}.")
    if not record.status.finished:
        return CheckResult(False, f"The plan {digest[:12]} has not ended: it is {record.status.value}.")
    moved = ("completed", "satisfied", "dropped")
    return [row.move.topic_partition for row in opened.journal.plans.rows(digest) if row.state.value in moved]


def _catch_up_result(
    behind: Sequence[OutOfSyncPartition], of: int, dead: Sequence[OutOfSyncPartition] = (), *, why: str = ""
) -> CheckResult:
    """Return the result; `dead` are not waited for, which `why` explains."""
    missing = behind or dead
    value, partitions = {"partitions": of, "missing": len(missing)}, counted(of, "partition")
    if not missing:
        return CheckResult(True, f"All replicas of {partitions} are in sync.", value)
    replicas = sum(len(one.missing) for one in missing)
    which = f"{counted(replicas, 'replica')} of {len(missing)} of {partitions}"
    if behind:
        named = " ".join(one.sentence for one in behind[:_NAMED])
        more = f" And {len(behind) - _NAMED} more." if len(behind) > _NAMED else ""
        return CheckResult(False, f"{which} {'is' if replicas == 1 else 'are'} not in sync. {named}{more}", value)
    named = name_some([f"{one.topic}-{one.partition}" for one in dead], _NAMED)
    sentence = f"{which} {why}, and are not waited for: {named}. All others are in sync."
    return CheckResult(True, sentence, value)


CHECKS: Mapping[str, Callable[[ClusterSession, Mapping[str, Any]], CheckResult]] = {
    "broker_joined": check_broker_joins,
    "brokers_failed": check_broker_failures,
    "caught_up": check_caught_up,
    "healthy": check_health_limits,
    "ready": check_ready,
}
