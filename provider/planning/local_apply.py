"""Plan an apply in this process, without Spark: there is nothing to search for, so a JVM would gain nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.errors import PlanError
from kafka_steward.planning.files.formats import (
    PlanFolder,
    SnapshotFolder,
    cordoned_in,
    read_plan,
    write_plan,
)
from kafka_steward.planning.files.reassignment import parse_reassignment
from kafka_steward.planning.spark.shards import plan_locally


def plan_apply_locally(snapshot: SnapshotFolder, out_uri: str, document: Any, options: Mapping[str, Any]) -> PlanFolder:
    """Make the plan that the Spark job would make of a reassignment `document`, write it, and return it as read back.

    `options` are the planner's options without the reassignment. The checks are stricter than the job's, because a
    person can repair the document. Raises PlanError with one message for an unknown topic or partition, for a broker
    that is not live, for a cordoned broker that would receive a replica, and for a partition that is already being
    reassigned.
    """
    given = parse_reassignment(document)
    _refuse(given, snapshot)
    request = {**options, "reassignment": document}
    rows, proof = plan_locally(snapshot, "apply", request, shard_rows=max(len(snapshot.partitions), 1))
    write_plan(out_uri, rows, proof)
    return read_plan(out_uri)


def _refuse(given: Mapping[TopicPartition, Assignment], snapshot: SnapshotFolder) -> None:
    states = dict(zip(*(snapshot.brokers.column(name).to_pylist() for name in ("broker", "state")), strict=True))
    named = snapshot.partitions.filter(
        pc.is_in(snapshot.partitions.column("topic"), pa.array(sorted({name.topic for name in given})))
    )
    known = {TopicPartition(row["topic"], row["partition"]): row for row in named.to_pylist()}
    topics = {name.topic for name in known}
    cordoned = cordoned_in(snapshot.brokers)
    for name, target in given.items():
        if name not in known:
            what = f"the partition {name}" if name.topic in topics else f"the topic {name.topic}"
            raise PlanError(f"The reassignment names {what}, which the cluster does not have.")
        _refuse_move(name, target, known[name], states)
        _refuse_cordoned(name, set(target) - set(known[name]["replicas"]), cordoned)


def _refuse_cordoned(name: TopicPartition, adding: set[int], cordoned: Sequence[int]) -> None:
    for broker in sorted(adding & set(cordoned)):
        raise PlanError(
            f"The reassignment of {name} names broker {broker}, which is cordoned and receives nothing; take its "
            "directories out of cordoned.log.dirs, or name another broker."
        )


def _refuse_move(name: TopicPartition, target: Assignment, row: Mapping[str, Any], states: Mapping[int, str]) -> None:
    live = sorted(broker for broker, state in states.items() if state in ("live", "new"))
    for broker in target:
        # Kafka requires a replica that stays in the assignment to be in sync. With a failed broker in the target, the
        # reassignment would stall.
        if broker not in live and list(target) != row["replicas"]:
            raise PlanError(
                f"The reassignment of {name} names broker {broker}, which is not live; "
                f"live are {', '.join(map(str, live))}."
            )
    if row["adding"] or row["removing"]:
        raise PlanError(
            f"The partition {name} is being reassigned already; wait until it has arrived, or cancel that first."
        )
