"""The Spark job: it reads a snapshot and writes a plan with its proof.

`python -m kafka_steward.planning --snapshot URI --out URI --operation heal` runs it on this machine; spark-submit
starts the same file. The proof is the last line on standard output; the plan is in the workspace.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from kafka_steward.assignment import Operation
from kafka_steward.errors import PlanError, StewardError
from kafka_steward.planning.files.digest import proven_hasher
from kafka_steward.planning.files.formats import PLAN, SnapshotFolder, cordoned_in, offline_in, read_snapshot
from kafka_steward.planning.files.options import EVEN, Options, operation_of
from kafka_steward.planning.files.reassignment import assignments
from kafka_steward.planning.files.storage import Folder, for_spark
from kafka_steward.planning.solver.chunks import Slots, in_order
from kafka_steward.planning.solver.divided import MANY_CELLS, divided, divisible
from kafka_steward.planning.solver.heal import Others
from kafka_steward.planning.solver.measures import Measures
from kafka_steward.planning.solver.proof import proof_of
from kafka_steward.planning.solver.shares import Share
from kafka_steward.planning.spark.archive import make_archive
from kafka_steward.planning.spark.command import print_verdict, request_of, write_reassignments
from kafka_steward.planning.spark.kernels import (
    ANSWER,
    TALLY,
    Job,
    plan_slice,
    read_measures,
    read_surveys,
    survey_slice,
    tally_slice,
)
from kafka_steward.planning.spark.session import local_session, worker_errors
from kafka_steward.planning.spark.slices import SLICE_ROWS, boundaries
from kafka_steward.planning.spark.stages import per_slice, planned, read_partitions, sealed, sliced

__all__ = ["main", "run"]


def run(
    spark: SparkSession,
    snapshot_uri: str,
    out_uri: str,
    operation: str,
    options: Mapping[str, Any] | None = None,
    *,
    slice_rows: int = SLICE_ROWS,
) -> dict[str, Any]:
    """Plan `operation` from the snapshot at one address, write plan and proof to the other, and return the proof.

    Raises PlanError with one message, and writes no plan, when the request or the snapshot is wrong.
    """
    asked = operation_of(operation)
    chosen = Options.of(asked, options or {})
    snapshot = read_snapshot(snapshot_uri)
    chosen = chosen.sparing(cordoned_in(snapshot.brokers))
    job = Job(snapshot.brokers, asked, chosen)
    brokers = job.arrays()
    _refuse_unknown_topics(snapshot, job)
    result, measures = _solved(spark, snapshot, snapshot_uri, job, slice_rows)
    try:
        proof = {
            **proof_of(measures, brokers, asked, chosen),
            "log_dirs_failed": offline_in(snapshot.partitions),
            "cluster_id": snapshot.cluster_id,
            "snapshot_digest": snapshot.digest,
        }
        proof["digest"] = _written(result, out_uri, proof, chosen)
    finally:
        result.unpersist()
    Folder(out_uri, "plan").write_json("proof.json", proof)
    return proof


def _refuse_unknown_topics(snapshot: SnapshotFolder, job: Job) -> None:
    """Raise PlanError for a named topic that the snapshot does not have.

    Each shard knows only its own topics, so that it would ignore an unknown name.
    """
    named = set(job.options.topics)
    if job.operation is Operation.APPLY:
        named = {name.topic for name in assignments(job.options.reassignment)}
    known = set(pc.unique(snapshot.partitions.column("topic")).to_pylist()) if named else set()
    unknown = sorted(named - known)
    if unknown:
        raise PlanError(f"The {job.operation.value} names the topic {unknown[0]}, which the snapshot does not have.")


def _solved(
    spark: SparkSession, snapshot: SnapshotFolder, uri: str, job: Job, slice_rows: int
) -> tuple[DataFrame, Measures]:
    topics = snapshot.partitions.column("topic")
    whole = job.operation in EVEN and not divisible(job.operation, job.options)
    firsts = [] if whole else boundaries(topics, slice_rows)
    rows = sliced(read_partitions(spark, uri, snapshot.written), firsts)
    if not firsts:
        return _sure(*_planned(rows, job, None, snapshot))
    rows = rows.persist()
    try:
        if job.operation in EVEN:
            return _put_together(rows, job, snapshot)
        others = read_surveys(_answers(per_slice(rows, partial(survey_slice, job), ANSWER)))
        return _sure(*_planned(rows, job, others, snapshot))
    finally:
        rows.unpersist()


def _put_together(rows: DataFrame, job: Job, snapshot: SnapshotFolder) -> tuple[DataFrame, Measures]:
    """Return an even plan of many shards, or of all partitions as one.

    All partitions are planned as one if the shards have no solution with their quotas, or if one plan may move less and
    the partitions are not too many for it.
    """
    brokers = job.arrays()
    topics = len(pc.unique(snapshot.partitions.column("topic")))
    count = partial(tally_slice, job, leaders=topics * len(brokers) <= MANY_CELLS)
    parts = divided(brokers, _answers(per_slice(rows, count, TALLY)), own_rack=job.own_rack)
    if parts is not None:
        result, measures = _planned(rows, job, parts.shares, snapshot)
        if measures is not None and not parts.better_whole(measures):
            return result, parts.proven(measures)
        result.unpersist()
    one = rows.select(f.lit(0).alias("slice"), "pack").coalesce(1)
    return _sure(*_planned(one, job, None, snapshot))


def _sure(result: DataFrame, measures: Measures | None) -> tuple[DataFrame, Measures]:
    """Return the planned result of a case that must have a placement.

    Raises PlanError for a missing placement, which is an error of the planner.
    """
    if measures is None:
        raise PlanError("No placement was found within the floors and ceilings; this is an error of the planner.")
    return result, measures


def _planned(
    rows: DataFrame, job: Job, others: Sequence[Others | Share] | None, snapshot: SnapshotFolder
) -> tuple[DataFrame, Measures | None]:
    """Return moves and measures. The measures are None if a shard cannot be placed within its quota."""
    result = planned(rows, partial(plan_slice, job, others)).persist()
    answers = _answers(result.where(f.col("pack").isNull()))
    if not answers:
        # The snapshot has no partition: the kernel itself returns an empty plan.
        answers = plan_slice(job, None, 0, snapshot.partitions).column("answer").to_pylist()
    return result, read_measures(answers) if all(answers) else None


def _answers(answers: DataFrame) -> list[Any]:
    """Collect the small answers of all shards, in order. Raises PlanError with the first problem of a shard."""
    # Not `orderBy`: Spark would run every kernel once more to find the ranges to sort by.
    found = sorted(answers.select("slice", "answer", "problem").collect(), key=itemgetter("slice"))
    problem = next((row["problem"] for row in found if row["problem"]), None)
    if problem:
        raise PlanError(problem)
    return [row["answer"] for row in found]


def _written(result: DataFrame, out_uri: str, proof: dict[str, Any], options: Options) -> str:
    """Write the plan and return its digest, computed by the task that has the rows in order."""
    slots = Slots(options.max_in_per_broker, options.max_out_per_broker, options.chunk_size)
    moves = result.select("pack").where(f.col("pack").isNotNull())
    # The digest is observed while the rows are written: nothing is cached or computed a second time for it.
    seen = Observation()
    rows = sealed(moves, partial(_in_order, slots, proof)).observe(seen, f.max("digest").alias("digest"))
    rows = rows.where(f.col("topic").isNotNull()).drop("digest")
    rows.write.mode("overwrite").parquet(for_spark(f"{out_uri.rstrip('/')}/plan.parquet"))
    return str(seen.get["digest"])


def _in_order(slots: Slots, proof: Mapping[str, Any], moves: pa.Table | None) -> tuple[pa.Table, str]:
    rows = PLAN.empty_table() if moves is None else in_order(moves, slots)
    hasher = proven_hasher(proof)
    hasher.rows(rows)
    return rows, hasher.hexdigest()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit code: 0, or 1 after a message on standard error."""
    try:
        request = request_of(arguments)
        if request.archive:
            make_archive(request.archive)
            return 0
        if request.check:
            return print_verdict(request)
        operation = operation_of(request.operation)
        Options.of(operation, request.options)
        with local_session() as spark, worker_errors():
            proof = run(spark, request.snapshot, request.out, request.operation, request.options)
        write_reassignments(request)
    except StewardError as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(proof, sort_keys=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
