"""Requests of a person to the planner: a rebalance, or a reassignment written by hand. Pure.

A rebalance request is translated to the planner's options. A manual reassignment is parsed, and validated against the
cluster before planning starts.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow.compute as pc

from kafka_steward.assignment import (
    EVEN_OPERATIONS,
    Assignment,
    Operation,
    TopicPartition,
    begin_with_brokers,
)
from kafka_steward.cluster.state import Snapshot
from kafka_steward.errors import PlanError, RequestError
from kafka_steward.execution.cluster_queries import HIDDEN
from kafka_steward.given_targets import CurrentPartition, TargetCheck
from kafka_steward.planning.files.formats import SnapshotFolder, cordoned_brokers
from kafka_steward.planning.files.reassignment import (
    Replica,
    find_assignment,
    parse_directories,
    parse_reassignment,
)
from kafka_steward.planning.options import OPTIONS, Options, select_options
from kafka_steward.rebalance_request import RebalanceRequest
from kafka_steward.service_topics import SERVICE_TOPICS

#: The largest fraction of the cluster's bytes that a scheduled run moves, unless a budget is given.
SCHEDULED_SHARE = 0.1


def planner_options(
    request: RebalanceRequest,
    snapshot: SnapshotFolder,
    *,
    scheduled: bool,
    service_topics: Sequence[str] = SERVICE_TOPICS,
) -> dict[str, Any]:
    """Return the planner's options. Raises RequestError for invalid or conflicting fields, and if no topic takes part.

    A scheduled run without a budget moves at most SCHEDULED_SHARE of the total bytes of all replicas.
    """
    request.validate()
    topics, operation = _find_matching_topics(request, snapshot, service_topics), Operation(request.operation)
    options = select_options(operation, request.options)
    if operation in (Operation.DEMOTE, Operation.PROMOTE):
        _refuse_wrong_demotion(operation, request.brokers, snapshot)
        return {**options, operation.value: sorted(request.brokers)}
    if operation is Operation.SET_REPLICATION_FACTOR:
        patterns = {"include", "exclude"}  # whose topics are named
        return {**{name: value for name, value in options.items() if name not in patterns}, "topics": topics}
    if scheduled and operation in EVEN_OPERATIONS and not (options.get("max_moves") or options.get("max_bytes")):
        options["max_bytes"] = max(1, int(_total_replica_bytes(snapshot) * SCHEDULED_SHARE))
    return options


def no_op_reason(request: RebalanceRequest, snapshot: SnapshotFolder) -> str:
    """Return why there is nothing to plan, as far as the snapshot shows; else empty.

    An expand needs a live broker that has no replicas and is not cordoned. A drain needs a broker with replicas, and
    a relief a volume that is used above its threshold.
    """
    new = {row["broker"] for row in snapshot.brokers.to_pylist() if row["state"] == "new"}
    empty = new.difference(cordoned_brokers(snapshot.brokers))
    if request.operation == Operation.EXPAND.value and not empty:
        why = "No broker is live and empty"
        if new:
            why = f"{begin_with_brokers(sorted(new), 'is', 'are')} empty and cordoned (cordoned.log.dirs)"
        return f"{why}: there is nothing to expand to."
    if request.operation == Operation.DRAIN.value:
        draining = frozenset(request.brokers)
        if not any(draining.intersection(replicas) for replicas in snapshot.partitions["replicas"].to_pylist()):
            return f"{begin_with_brokers(sorted(draining), 'already holds', 'already hold')} no replica."
    if request.operation == Operation.RELIEVE.value:
        return _no_full_volume(snapshot, request.options.get("max_used") or OPTIONS["max_used"].default)
    return ""


def _no_full_volume(snapshot: SnapshotFolder, max_used: float) -> str:
    """Return that no log directory's volume is used above the threshold; empty if one is."""
    rows = [row for row in snapshot.brokers.to_pylist() if row["disk_total"]]
    used = [
        (used / total, row["broker"])
        for row in rows
        for total, used in zip(row["disk_total"], row["disk_used"], strict=True)
        if total
    ]
    if not used:
        return "Kafka reports the size of no log directory's volume, which it does from version 3.3 on."
    fullest, broker = max(used)
    if fullest > max_used:
        return ""
    return f"No volume is used above {max_used:.0%}: the fullest one, of broker {broker}, to {fullest:.0%}."


def _refuse_wrong_demotion(operation: Operation, brokers: Sequence[int], snapshot: SnapshotFolder) -> None:
    """Raise RequestError for brokers that cannot be demoted or promoted, and if no live broker would be left."""
    rows = snapshot.brokers.to_pylist()
    live = {row["broker"] for row in rows if row["state"] in ("live", "new")}
    demoted, known = {row["broker"] for row in rows if row["demoted"]}, {row["broker"] for row in rows}
    now = f"demoted are {', '.join(map(str, sorted(demoted)))}" if demoted else "no broker is"
    for broker in sorted(brokers):
        if operation is Operation.PROMOTE:
            if broker not in demoted:
                raise RequestError(f"Broker {broker} cannot be promoted: it is not demoted; {now}.")
            continue
        why = "it is demoted already" if broker in demoted else "" if broker in live else "it is not live"
        why = why if broker in known else f"the cluster has no broker {broker}"
        if why:
            named = ", ".join(map(str, sorted(live)))
            raise RequestError(f"Broker {broker} cannot be demoted: {why}; the live brokers are {named}.")
    if operation is Operation.DEMOTE and not (brokers or demoted):
        raise RequestError("Name the brokers to demote: no broker is demoted.")
    if operation is Operation.DEMOTE and live <= demoted.union(brokers):
        raise RequestError("All live brokers would be demoted, and none would be left to lead.")


def _total_replica_bytes(snapshot: SnapshotFolder) -> int:
    """Return the total bytes of all replicas; a partition of unknown size counts as empty."""
    copies = pc.list_value_length(snapshot.partitions["replicas"])
    return int(pc.sum(pc.multiply(snapshot.partitions["bytes"], copies), min_count=0).as_py())


def _find_matching_topics(
    request: RebalanceRequest, snapshot: SnapshotFolder, service_topics: Sequence[str]
) -> list[str]:
    """Return the topics that the request asks for and that take part. Raises RequestError if there is none."""
    if not request.topics:
        return []
    known = set(snapshot.partitions["topic"].to_pylist())
    # A drain and the other operations that do not balance move internal topics along.
    operation = Operation(request.operation)
    balances = Operation.REBALANCE if operation is Operation.SET_REPLICATION_FACTOR else operation
    options = Options(
        include=tuple(request.topics),
        exclude=tuple(request.exclude),
        internal_topics=bool(request.options.get("internal_topics")),
        service_topics=tuple(service_topics),
        balance=request.options.get("balance", "replicas"),
    )
    try:
        chosen = options.with_topics(known, balances)
    except PlanError as error:
        raise RequestError(str(error)) from error
    return sorted(topic for topic in known if chosen.takes(topic, balances))


def parse_assignments(
    document: Mapping[str, Any] | str,
) -> tuple[dict[TopicPartition, Assignment], dict[Replica, str]]:
    """Parse a document, or its text, in the format of kafka-reassign-partitions; also of that tool's output.

    Returns the replicas by partition, and the log directories that are named. Raises PlanError for invalid JSON, for
    several assignments, and for an invalid document.
    """
    given = _parse_json(document) if isinstance(document, str) else document
    return parse_reassignment(given), parse_directories(given)


def _parse_json(text: str) -> Any:
    assignment = find_assignment(text, "The reassignment")
    try:
        return json.loads(assignment)
    except ValueError as error:
        raise PlanError(f"The reassignment is not JSON: {error}; paste a file of kafka-reassign-partitions.") from error


def validate_against_cluster(
    given: Mapping[TopicPartition, Assignment],
    snapshot: Snapshot,
    min_isr: Mapping[str, int],
    cordoned: Collection[int] = (),
) -> None:
    """Raise PlanError with a sentence for each partition whose target the cluster cannot reach.

    `min_isr` is min.insync.replicas by topic, `cordoned` the brokers that receive no replicas (KIP-1066).
    """
    topics = {name.topic for name in given}
    TargetCheck(
        {
            name: CurrentPartition(
                partition.replicas, partition.leader is not None, partition.reassigning, min_isr.get(name.topic)
            )
            for name, partition in snapshot.partitions.items()
            if name.topic in topics
        },
        live=snapshot.live,
        known=snapshot.brokers.keys() | snapshot.hosting_brokers,
        cordoned=cordoned,
        hidden=dict.fromkeys(snapshot.hidden, HIDDEN),
    ).refuse_impossible(given)
