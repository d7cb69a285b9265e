"""Make plans in this process, without Spark: of a given reassignment, or of a few topics that a user names."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kafka_steward.assignment import Move, Operation, TopicPartition
from kafka_steward.errors import PlanError
from kafka_steward.given_targets import CurrentPartition, TargetCheck
from kafka_steward.planning.files.formats import (
    PlanFolder,
    SnapshotFolder,
    cordoned_brokers,
    moves_from_rows,
    read_plan,
    write_plan,
)
from kafka_steward.planning.files.reassignment import read_reassignment
from kafka_steward.planning.shards import SHARD_ROWS, PlanningJob, TableShards, plan_snapshot


def plan_locally(
    snapshot: SnapshotFolder, operation: str, options: Mapping[str, Any], *, shard_rows: int = SHARD_ROWS
) -> tuple[pa.Table, dict[str, Any]]:
    """Plan without Spark. Return rows in order, and the proof without digest. Raises PlanError as the job does."""
    job = PlanningJob.of(snapshot, operation, options)
    boundaries = job.boundaries(snapshot.partitions, shard_rows)
    return plan_snapshot(TableShards.of(snapshot.partitions, boundaries), job, snapshot, several=bool(boundaries))


def plan_apply_locally(snapshot: SnapshotFolder, out_uri: str, document: Any, options: Mapping[str, Any]) -> PlanFolder:
    """Make the plan that the Spark job would make of a reassignment `document`, write it, and return it as read back.

    `options` are the planner's options without the reassignment. The checks are stricter than the job's, because a
    person can repair the document. Raises PlanError with a sentence for each partition of it that cannot be: for an
    unknown topic or partition, for a broker that is not live, for a cordoned broker that would receive a replica, for a
    partition that is already being reassigned, and for one with fewer original replicas than min.insync.replicas
    (KIP-236). A partition that nothing can be copied from is left out, and the proof lists it as `unplaced`.
    """
    given, faults = read_reassignment(document)
    _target_check(snapshot, {name.topic for name in given}).refuse_impossible(given, faults)
    request = {**options, "reassignment": document}
    # A reassignment is planned as one shard: nothing is searched, so that its size does not matter.
    shard_rows = max(len(snapshot.partitions), 1)
    write_plan(out_uri, *plan_locally(snapshot, Operation.APPLY.value, request, shard_rows=shard_rows))
    return read_plan(out_uri)


def plan_topics_locally(
    snapshot: SnapshotFolder, topics: Collection[str], brokers: Collection[int], options: Mapping[str, Any]
) -> tuple[list[Move], dict[str, Any]]:
    """Plan some topics onto `brokers` alone, with the fewest replica moves; return the moves and the proof.

    This is the purpose of `kafka-reassign-partitions --generate`. Only these topics count. Each of them is made even
    over these brokers, is spread over their racks, and keeps its replication factor.

    A partition that is already being reassigned is left out. Raises PlanError with one message for an unknown topic,
    for a broker that is not live, and where the brokers are too few.
    """
    known = set(pc.unique(snapshot.partitions.column("topic")).to_pylist())
    # One sentence is enough: the person corrects the request and tries again.
    for topic in sorted(set(topics) - known)[:1]:
        raise PlanError(f"The cluster has no topic {topic}.")
    chosen = snapshot.partitions.filter(pc.is_in(snapshot.partitions.column("topic"), pa.array(sorted(topics))))
    live = {row["broker"] for row in snapshot.brokers.to_pylist() if row["state"] in ("live", "new")}
    for broker in sorted(set(brokers) - live)[:1]:
        raise PlanError(f"Broker {broker} is not live; live are {', '.join(map(str, sorted(live)))}.")
    able = set(brokers) - set(cordoned_brokers(snapshot.brokers)) - set(options.get("exclude_brokers") or ())
    for row in chosen.to_pylist():
        name = TopicPartition(row["topic"], row["partition"])
        if row["adding"] or row["removing"]:
            continue  # the planner leaves it out, and the proof names it
        # A broker that receives nothing may keep a replica that it holds.
        room = len(able | set(brokers).intersection(row["replicas"]))
        if row["target_rf"] > room:
            raise PlanError(
                f"The partition {name} is to have {row['target_rf']} replicas, and only {room} of the brokers may hold "
                "one; name more brokers, or lower its replication factor first."
            )
    # For the planner, all other brokers are to be drained.
    rows = [row | {"state": "live" if row["broker"] in brokers else "draining"} for row in snapshot.brokers.to_pylist()]
    only = replace(snapshot, brokers=pa.Table.from_pylist(rows, snapshot.brokers.schema), partitions=chosen)
    moves, proof = plan_locally(only, Operation.DRAIN.value, {"balance": "replicas", **options})
    return moves_from_rows(moves), proof


def _target_check(snapshot: SnapshotFolder, topics: Collection[str]) -> TargetCheck:
    states = dict(zip(*(snapshot.brokers.column(name).to_pylist() for name in ("broker", "state")), strict=True))
    named = snapshot.partitions.filter(
        pc.is_in(snapshot.partitions.column("topic"), pa.array(sorted(topics), pa.string()))
    )
    return TargetCheck(
        {
            TopicPartition(row["topic"], row["partition"]): CurrentPartition(
                tuple(row["replicas"]),
                has_leader=not row["all_offline"] and row["leader"] >= 0,
                reassigning=bool(row["adding"] or row["removing"]),
                min_isr=row["min_isr"],
            )
            for row in named.to_pylist()
        },
        live=[broker for broker, state in states.items() if state in ("live", "new")],
        known=states.keys(),
        cordoned=cordoned_brokers(snapshot.brokers),
    )
