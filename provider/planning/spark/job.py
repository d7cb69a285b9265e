"""The Spark job: a snapshot in, a plan and its proof out.

`python -m kafka_steward.planning --snapshot URI --out URI --operation heal` runs it on this machine; the same file is
what spark-submit starts. The proof is the last line on standard output; the plan is in the workspace.
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
    """Plan `operation` from the snapshot at one address, write plan and proof to the other; returns the proof.

    Raises PlanError, in one sentence, and writes no plan when the request or the snapshot is wrong.
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
    """Slices know their own topics alone: a name that is in none of them would be passed over."""
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
    """An even plan of many slices; of all partitions as one where that may move less and they are not too many."""
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
    """What was planned, where nothing can have been in the way."""
    if measures is None:
        raise PlanError("No placement was found within the floors and ceilings; this is an error of the planner.")
    return result, measures


def _planned(
    rows: DataFrame, job: Job, others: Sequence[Others | Share] | None, snapshot: SnapshotFolder
) -> tuple[DataFrame, Measures | None]:
    """Moves and measures; no measures where a slice cannot be placed with its share."""
    result = planned(rows, partial(plan_slice, job, others)).persist()
    answers = _answers(result.where(f.col("pack").isNull()))
    if not answers:
        # No partition at all: a plan with nothing in it, from the kernel itself.
        answers = plan_slice(job, None, 0, snapshot.partitions).column("answer").to_pylist()
    return result, read_measures(answers) if all(answers) else None


def _answers(answers: DataFrame) -> list[Any]:
    """The small answers of all slices, in order. Raises PlanError with the first problem that a slice met."""
    # Not `orderBy`: to find the ranges to sort by, Spark would run every kernel once more.
    found = sorted(answers.select("slice", "answer", "problem").collect(), key=itemgetter("slice"))
    problem = next((row["problem"] for row in found if row["problem"]), None)
    if problem:
        raise PlanError(problem)
    return [row["answer"] for row in found]


def _written(result: DataFrame, out_uri: str, proof: dict[str, Any], options: Options) -> str:
    """Write the plan; returns its digest, counted by the task that has its rows in order."""
    slots = Slots(options.max_in_per_broker, options.max_out_per_broker, options.chunk_size)
    moves = result.select("pack").where(f.col("pack").isNotNull())
    # The digest passes by while the rows are written: nothing is kept or run a second time for it.
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
    """The command line. Returns the exit code: 0, or 1 after a sentence on standard error."""
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
