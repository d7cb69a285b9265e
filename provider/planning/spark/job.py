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
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from kafka_steward.errors import PlanError, StewardError
from kafka_steward.planning.files.digest import proven_hasher
from kafka_steward.planning.files.formats import PLAN, SNAPSHOT_PARTITIONS, offline_in, read_snapshot
from kafka_steward.planning.files.options import Options, operation_of
from kafka_steward.planning.files.storage import Folder, for_spark
from kafka_steward.planning.solver.ordering import TransferLimits, ordered_plan
from kafka_steward.planning.solver.proof import proof_of
from kafka_steward.planning.spark.archive import make_archive
from kafka_steward.planning.spark.command import command_line, print_verdict, write_reassignments
from kafka_steward.planning.spark.kernels import PlanningJob
from kafka_steward.planning.spark.session import local_session, worker_errors
from kafka_steward.planning.spark.shards import SHARD_ROWS, Kernel, boundaries_for, solve
from kafka_steward.planning.spark.stages import into_shards, ordered_with_digest, per_shard, planned, read_partitions


def run(
    spark: SparkSession,
    snapshot_uri: str,
    out_uri: str,
    operation: str,
    options: Mapping[str, Any] | None = None,
    *,
    shard_rows: int = SHARD_ROWS,
) -> dict[str, Any]:
    """Plan `operation` from the snapshot at one address, write plan and proof to the other, and return the proof.

    Raises PlanError with one message, and writes no plan, when the request or the snapshot is wrong.
    """
    Options.of(operation_of(operation), options or {})
    snapshot = read_snapshot(snapshot_uri)
    job = PlanningJob.of(snapshot, operation, options or {})
    brokers = job.arrays()
    boundaries = boundaries_for(job, snapshot.partitions, shard_rows)
    packs = into_shards(read_partitions(spark, snapshot), boundaries)
    persisted: list[DataFrame] = []
    if boundaries:
        persisted.append(packs := packs.persist())
    try:
        shards = _SparkShards(packs, persisted)
        result, measures = solve(shards, job, snapshot.partitions, several=bool(boundaries))
        proof = {
            **proof_of(measures, brokers, job.operation, job.options),
            "log_dirs_failed": offline_in(snapshot.partitions),
            "cluster_id": snapshot.cluster_id,
            "snapshot_digest": snapshot.digest,
        }
        proof["digest"] = _write_rows(result, out_uri, proof, job.options)
    finally:
        for frame in persisted:
            frame.unpersist()
    Folder(out_uri, "plan").write_json("proof.json", proof)
    return proof


class _SparkShards:
    """Shards as the packs of a DataFrame. The frames in `persisted` stay in memory until the job ends."""

    def __init__(self, packs: DataFrame, persisted: list[DataFrame]) -> None:
        self._packs, self._persisted = packs, persisted

    def answers(self, kernel: Kernel, schema: pa.Schema) -> list[Any]:
        return _answers(per_shard(self._packs, kernel, schema))

    def plan(self, kernel: Kernel) -> tuple[DataFrame, list[Any]]:
        result = planned(self._packs, kernel).persist()
        self._persisted.append(result)
        answers = _answers(result.where(f.col("pack").isNull()))
        # Without any partition there is no shard: the kernel itself returns an empty plan.
        return result, answers or kernel(0, SNAPSHOT_PARTITIONS.empty_table()).column("answer").to_pylist()

    def as_one(self) -> _SparkShards:
        return _SparkShards(self._packs.select(f.lit(0).alias("shard"), "pack").coalesce(1), self._persisted)


def _answers(answers: DataFrame) -> list[Any]:
    """Collect the small answers of all shards, in order. Raises PlanError with the first problem of a shard."""
    # Not `orderBy`: Spark would run every kernel once more to find the ranges to sort by.
    found = sorted(answers.select("shard", "answer", "problem").collect(), key=itemgetter("shard"))
    problem = next((row["problem"] for row in found if row["problem"]), None)
    if problem:
        raise PlanError(problem)
    return [row["answer"] for row in found]


def _write_rows(result: DataFrame, out_uri: str, proof: dict[str, Any], options: Options) -> str:
    """Write the plan's rows and return its digest, computed by the task that has the rows in order."""
    moves = result.select("pack").where(f.col("pack").isNotNull())
    # The digest is observed while the rows are written: nothing is cached or computed a second time for it.
    observed = Observation()
    kernel = partial(_in_order, TransferLimits.of(options), proof)
    rows = ordered_with_digest(moves, kernel).observe(observed, f.max("digest").alias("digest"))
    rows = rows.where(f.col("topic").isNotNull()).drop("digest")
    rows.write.mode("overwrite").parquet(for_spark(f"{out_uri.rstrip('/')}/plan.parquet"))
    return str(observed.get["digest"])


def _in_order(limits: TransferLimits, proof: Mapping[str, Any], moves: pa.Table | None) -> tuple[pa.Table, str]:
    rows = PLAN.empty_table() if moves is None else ordered_plan(moves, limits)
    hasher = proven_hasher(proof)
    hasher.rows(rows)
    return rows, hasher.hexdigest()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit code: 0, or 1 after a message on standard error."""
    try:
        request = command_line(arguments)
        if request.archive:
            make_archive(request.archive)
            return 0
        if request.check:
            return print_verdict(request)
        Options.of(operation_of(request.operation), request.options)
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
