"""Clusters from one line of text, and plans of them without Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from kafka_steward.assignment import Move, Operation
from kafka_steward.planning.files.digest import plan_digest, snapshot_digest
from kafka_steward.planning.files.formats import (
    SNAPSHOT_BROKERS,
    SNAPSHOT_PARTITIONS,
    PlanFolder,
    SnapshotFolder,
    conformed,
)
from kafka_steward.planning.files.options import EVEN, Options
from kafka_steward.planning.solver.chunks import Slots, in_order
from kafka_steward.planning.solver.divided import divided, divisible
from kafka_steward.planning.solver.heal import Others
from kafka_steward.planning.solver.measures import Measures
from kafka_steward.planning.solver.proof import proof_of
from kafka_steward.planning.solver.shares import Share
from kafka_steward.planning.spark.kernels import (
    Job,
    plan_slice,
    read_measures,
    read_surveys,
    survey_slice,
    tally_slice,
)
from kafka_steward.planning.spark.slices import SLICE_ROWS, boundaries

STATES = {"!": "failed", "-": "draining", "+": "new"}


def snapshot_of(
    brokers: list[dict[str, Any]], partitions: list[dict[str, Any]], cluster_id: str = "c"
) -> SnapshotFolder:
    """A snapshot in memory, from rows as the formats have them; what is not given is the usual."""
    full = [
        {"isr": row["replicas"], "leader": row["replicas"][0], "target_rf": len(row["replicas"]), **row}
        for row in partitions
    ]
    broker_table = pa.Table.from_pylist(brokers, SNAPSHOT_BROKERS)
    table = pa.Table.from_pylist(full, SNAPSHOT_PARTITIONS)
    digest = snapshot_digest(cluster_id, 1, broker_table, table)
    return SnapshotFolder(cluster_id, 1, digest, broker_table, table)


def cluster(brokers: str, *topics: str) -> SnapshotFolder:
    """`cluster("1a 2b! 3c", "t: 12 23/2")`: ids with rack and state (! failed, - draining, + new), digits are ids.

    `12/1` is a partition of which only broker 1 is in sync.
    """
    rows = [
        {
            "broker": int(word.strip("!-+abcdefgh")),
            "rack": word.strip("!-+0123456789") or None,
            "state": STATES.get(word[-1], "live"),
        }
        for word in brokers.split()
    ]
    parts = []
    for line in topics:
        name, _, words = line.partition(":")
        for number, word in enumerate(words.split()):
            ids, _, isr = word.partition("/")
            replicas = [int(digit) for digit in ids]
            in_sync = [int(digit) for digit in isr] if isr else replicas
            parts.append({"topic": name, "partition": number, "replicas": replicas, "isr": in_sync, "bytes": 1000})
    return snapshot_of(rows, parts)


def planned(
    snapshot: SnapshotFolder,
    operation: str = "heal",
    options: dict[str, Any] | None = None,
    slice_rows: int = SLICE_ROWS,
) -> PlanFolder:
    """The plan of a snapshot: the job's kernels, in the job's order, without Spark."""
    asked = Operation(operation)
    chosen = Options.of(asked, options or {})
    job = Job(snapshot.brokers, asked, chosen)
    firsts = ["", *boundaries(snapshot.partitions["topic"], slice_rows)]
    table = snapshot.partitions.sort_by([("topic", "ascending"), ("partition", "ascending")])
    names = table["topic"].to_pylist()
    slices = [
        table.filter(pa.array([first <= name and (not after or name < after[0]) for name in names], pa.bool_()))
        for first, *after in (firsts[at : at + 2] for at in range(len(firsts)))
    ]
    result, measures = _solved(job, slices, table)
    assert measures is not None, "a slice has no placement"
    rows = in_order(result.filter(result["topic"].is_valid()), Slots(5, 5, chosen.chunk_size))
    proof = {
        **proof_of(measures, job.arrays(), asked, chosen),
        "cluster_id": snapshot.cluster_id,
        "snapshot_digest": snapshot.digest,
    }
    proof["digest"] = plan_digest(snapshot.cluster_id, snapshot.digest, operation, proof["options"], rows)
    return PlanFolder(proof["digest"], proof, moves_of(rows))


def _solved(job: Job, slices: Sequence[pa.Table], table: pa.Table) -> tuple[pa.Table, Measures | None]:
    if len(slices) == 1:
        return _kernels(job, None, slices)
    if job.operation not in EVEN:
        return _kernels(job, read_surveys(_answers(slices, partial(survey_slice, job))), slices)
    parts = None
    if divisible(job.operation, job.options):
        parts = divided(job.arrays(), _answers(slices, partial(tally_slice, job)), own_rack=job.own_rack)
    if parts is not None:
        result, measures = _kernels(job, parts.shares, slices)
        if measures is not None and not parts.better_whole(measures):
            return result, parts.proven(measures)
    return _kernels(job, None, [table])


def _kernels(
    job: Job, others: Sequence[Others | Share] | None, slices: Sequence[pa.Table]
) -> tuple[pa.Table, Measures | None]:
    results = [plan_slice(job, others, number, part) for number, part in enumerate(slices)]
    answers = _answers(slices, lambda number, _: results[number])
    return pa.concat_tables(results), read_measures(answers) if all(answers) else None


def _answers(slices: Sequence[pa.Table], kernel: Callable[[int, pa.Table], pa.Table]) -> list[Any]:
    found = [kernel(number, part) for number, part in enumerate(slices)]
    problems = [one for table in found for one in table["problem"].to_pylist() if one]
    if problems:
        raise AssertionError(problems[0])
    return [one for table in found for one in table["answer"].to_pylist() if one is not None]


def moves_of(rows: pa.Table) -> list[Move]:
    return [
        Move(
            row["topic"],
            row["partition"],
            tuple(row["before"]),
            tuple(row["after"]),
            row["chunk"],
            row["position"],
            row["reason"],
            row["topic_id"],
            row["bytes"],
        )
        for row in rows.to_pylist()
    ]


__all__ = ["cluster", "conformed", "moves_of", "planned", "snapshot_of"]
