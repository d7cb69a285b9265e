"""Plans made in this process, without Spark: of a given reassignment, and of a few topics that a user names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kafka_steward.assignment import Assignment, Move, Operation, TopicPartition, below_min_isr_reason
from kafka_steward.errors import PlanError
from kafka_steward.planning.files.formats import (
    PlanFolder,
    SnapshotFolder,
    cordoned_brokers,
    moves_from_rows,
    read_plan,
    write_plan,
)
from kafka_steward.planning.files.reassignment import parse_reassignment
from kafka_steward.planning.shards import SHARD_ROWS, PlanningJob, TableShards, solve_shards
from kafka_steward.planning.solver.plan_rows import order_plan

#: The partitions whose faults a message names; the others are only counted.
_NAMED = 5


def plan_locally(
    snapshot: SnapshotFolder, operation: str, options: Mapping[str, Any], *, shard_rows: int = SHARD_ROWS
) -> tuple[pa.Table, dict[str, Any]]:
    """Plan without Spark. Return rows in order, and the proof without digest. Raises PlanError as the job does."""
    job = PlanningJob.of(snapshot, operation, options)
    boundaries = job.boundaries(snapshot.partitions, shard_rows)
    shards = TableShards.of(snapshot.partitions, boundaries)
    moves, measures = solve_shards(shards, job, snapshot.partitions, several=bool(boundaries))
    return order_plan(moves, job.options), job.build_proof(measures, snapshot)


def plan_apply_locally(snapshot: SnapshotFolder, out_uri: str, document: Any, options: Mapping[str, Any]) -> PlanFolder:
    """Make the plan that the Spark job would make of a reassignment `document`, write it, and return it as read back.

    `options` are the planner's options without the reassignment. The checks are stricter than the job's, because a
    person can repair the document. Raises PlanError with a sentence for each partition of it that cannot be: for an
    unknown topic or partition, for a broker that is not live, for a cordoned broker that would receive a replica, for a
    partition that is already being reassigned, and for one with fewer original replicas than min.insync.replicas
    (KIP-236). A partition that nothing can be copied from is left out, and the proof lists it as `unplaced`.
    """
    _refuse_impossible_targets(parse_reassignment(document), snapshot)
    request = {**options, "reassignment": document}
    shard_rows = max(len(snapshot.partitions), 1)
    write_plan(out_uri, *plan_locally(snapshot, Operation.APPLY.value, request, shard_rows=shard_rows))
    return read_plan(out_uri)


def plan_topics_locally(
    snapshot: SnapshotFolder, topics: Collection[str], brokers: Collection[int], options: Mapping[str, Any]
) -> tuple[list[Move], dict[str, Any]]:
    """Plan some topics onto `brokers` alone, with the fewest replica moves; return the moves and the proof.

    It is what `kafka-reassign-partitions --generate` is for: only these topics count, each is made even over these
    brokers and spread over their racks, and keeps its replication factor.

    Raises PlanError with one message for an unknown topic, for a broker that is not live, for a partition that is
    already being reassigned, and where the brokers are too few.
    """
    known = set(pc.unique(snapshot.partitions.column("topic")).to_pylist())
    for topic in sorted(set(topics) - known)[:1]:
        raise PlanError(f"The cluster has no topic {topic}.")
    chosen = snapshot.partitions.filter(pc.is_in(snapshot.partitions.column("topic"), pa.array(sorted(topics))))
    live = {row["broker"] for row in snapshot.brokers.to_pylist() if row["state"] in ("live", "new")}
    for broker in sorted(set(brokers) - live)[:1]:
        raise PlanError(f"Broker {broker} is not live; live are {', '.join(map(str, sorted(live)))}.")
    for row in chosen.to_pylist():
        _refuse_moving(TopicPartition(row["topic"], row["partition"]), row)
    rows = [row | {"state": "live" if row["broker"] in brokers else "draining"} for row in snapshot.brokers.to_pylist()]
    only = replace(snapshot, brokers=pa.Table.from_pylist(rows, snapshot.brokers.schema), partitions=chosen)
    moves, proof = plan_locally(only, Operation.DRAIN.value, options)
    return moves_from_rows(moves), proof


def _refuse_impossible_targets(given: Mapping[TopicPartition, Assignment], snapshot: SnapshotFolder) -> None:
    states = dict(zip(*(snapshot.brokers.column(name).to_pylist() for name in ("broker", "state")), strict=True))
    named = snapshot.partitions.filter(
        pc.is_in(snapshot.partitions.column("topic"), pa.array(sorted({name.topic for name in given})))
    )
    known = {TopicPartition(row["topic"], row["partition"]): row for row in named.to_pylist()}
    topics = {name.topic for name in known}
    cordoned = cordoned_brokers(snapshot.brokers)
    missing = [
        f"The reassignment names the {f'partition {name}' if name.topic in topics else f'topic {name.topic}'}, which "
        "the cluster does not have."
        for name in given.keys() - known.keys()
    ]
    found = [
        _find_fault(name, target, known[name], states, cordoned) for name, target in given.items() if name in known
    ]
    faults = [*sorted(missing), *filter(None, found)]
    if faults:
        more = f" And {len(faults) - _NAMED} more." if len(faults) > _NAMED else ""
        raise PlanError(f"{' '.join(faults[:_NAMED])}{more}")


def _find_fault(
    name: TopicPartition,
    target: Assignment,
    row: Mapping[str, Any],
    states: Mapping[int, str],
    cordoned: Sequence[int],
) -> str:
    """Return the first fault of the target of a partition that exists; empty if there is none."""
    try:
        if row["all_offline"] or row["leader"] < 0:
            # The plan leaves it out, whatever its target is.
            _refuse_moving(name, row)
            return ""
        _refuse_impossible_move(name, target, row, states)
        _refuse_below_min_isr(name, target, row)
        _refuse_cordoned(name, set(target) - set(row["replicas"]), cordoned)
    except PlanError as error:
        return str(error)
    return ""


def _refuse_below_min_isr(name: TopicPartition, target: Assignment, row: Mapping[str, Any]) -> None:
    why = below_min_isr_reason(len(row["replicas"]), len(target), row["min_isr"])
    if why:
        raise PlanError(f"The reassignment of {name} is refused: {why}.")


def _refuse_cordoned(name: TopicPartition, adding: set[int], cordoned: Sequence[int]) -> None:
    for broker in sorted(adding & set(cordoned)):
        raise PlanError(
            f"The reassignment of {name} names broker {broker}, which is cordoned and receives no replicas; remove "
            "its directories from cordoned.log.dirs, or name another broker."
        )


def _refuse_impossible_move(
    name: TopicPartition, target: Assignment, row: Mapping[str, Any], states: Mapping[int, str]
) -> None:
    live = sorted(broker for broker, state in states.items() if state in ("live", "new"))
    for broker in target:
        # Kafka requires a replica that stays in the assignment to be in sync. With a failed broker in the target, the
        # reassignment would stall.
        if broker not in live and list(target) != row["replicas"]:
            raise PlanError(
                f"The reassignment of {name} names broker {broker}, which is not live; "
                f"live are {', '.join(map(str, live))}."
            )
    _refuse_moving(name, row)


def _refuse_moving(name: TopicPartition, row: Mapping[str, Any]) -> None:
    if row["adding"] or row["removing"]:
        raise PlanError(
            f"The partition {name} is already being reassigned; wait until that has completed, or cancel it first."
        )
