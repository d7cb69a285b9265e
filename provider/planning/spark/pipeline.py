"""Plan on Spark, and check a plan there, for snapshots of any size. `shards` has the kernels.

::

    partitions ─► packs per shard ─► totals or summaries ─► moves and measures ─► rows in order, with digest

There is at most one shuffle, by shard. Nothing depends on the number of tasks or executors, because shards are cut from
the data alone, each shard is solved on its own, and the moves are put in order in one place.

The driver has read the partitions for their digest. Unless they are very many, it sends each shard to the task that
plans it, and writes the plan: then Spark neither reads nor writes a file, and shuffles nothing.

Between stages, rows travel as packs: whole tables in Arrow's own format, in one binary column. Spark stores, shuffles
and passes on a few packs in no time. It would convert a million rows with their lists cell by cell every time.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from kafka_steward.planning.checker.check import (
    PART_ROWS,
    Findings,
    PlanVerdict,
    add_prices,
    check_topics,
    combine_findings,
    snapshot_problems,
    verdict,
)
from kafka_steward.planning.files.formats import (
    PLAN,
    SNAPSHOT_PARTITIONS,
    SnapshotFolder,
    conform_to_schema,
    hasher_with_proof,
    moves_from_rows,
    read_plan,
    read_snapshot,
    write_plan,
)
from kafka_steward.planning.files.options import Options
from kafka_steward.planning.files.storage import Folder, spark_uri
from kafka_steward.planning.shards import (
    ANSWER,
    SHARD_ROWS,
    Kernel,
    PlanningJob,
    plan_tables,
    read_answers,
    shard_boundaries,
    solve_shards,
)
from kafka_steward.planning.solver.plan_rows import order_plan
from kafka_steward.planning.spark.shipping import ship

_PACK = pa.field("pack", pa.binary())
#: Rows per pack: far below the 2 GB limit of one value.
_PACK_ROWS = 100_000
#: Partitions up to which the driver sends the shards to their tasks; it has read all partitions for their digest.
_MOST_SENT = 1_000_000
_SPARK: dict[pa.DataType, t.DataType] = {
    pa.string(): t.StringType(),
    pa.bool_(): t.BooleanType(),
    pa.int32(): t.IntegerType(),
    pa.int64(): t.LongType(),
    pa.binary(): t.BinaryType(),
    pa.list_(pa.int32()): t.ArrayType(t.IntegerType()),
}
_PACKED = pa.schema([_PACK])
_SHARDED = pa.schema([pa.field("shard", pa.int32()), _PACK])
_PLANNED = pa.schema([*ANSWER, _PACK])
_ORDERED = pa.schema([*(field.with_nullable(True) for field in PLAN), pa.field("digest", pa.string())])


def run(
    spark: SparkSession,
    snapshot_uri: str,
    out_uri: str,
    operation: str,
    options: Mapping[str, Any] | None = None,
    *,
    shard_rows: int = SHARD_ROWS,
    most_sent: int = _MOST_SENT,
) -> dict[str, Any]:
    """Plan `operation` from the snapshot at one address, write plan and proof to the other, and return the proof.

    Up to `most_sent` partitions are sent to the tasks; more are read by them.

    Raises PlanError with one message, and writes no plan, when the request or the snapshot is wrong.
    """
    snapshot = read_snapshot(snapshot_uri)
    job = PlanningJob.of(snapshot, operation, options or {})
    boundaries = job.boundaries(snapshot.partitions, shard_rows)
    if len(snapshot.partitions) <= most_sent:
        rows, proof = plan_tables(snapshot, job, boundaries, partial(_run_in_tasks, spark))
        return {**proof, "digest": write_plan(out_uri, rows, proof)}
    packs = _gather_shards(_cut_into_packs(_read_partitions(spark, snapshot), boundaries), len(boundaries) + 1)
    persisted: list[DataFrame] = []
    if boundaries:
        persisted.append(packs := packs.persist())
    try:
        result, measures = solve_shards(
            _SparkShards(packs, persisted), job, snapshot.partitions, several=bool(boundaries)
        )
        proof = job.build_proof(measures, snapshot)
        proof["digest"] = _write_rows(result, out_uri, proof, job.options)
    finally:
        for frame in persisted:
            frame.unpersist()
    Folder(out_uri, "plan").write_json("proof.json", proof)
    return proof


def _run_in_tasks(spark: SparkSession, kernel: Kernel, shards: Sequence[pa.Table]) -> list[pa.Table]:
    """Send each shard to a task that runs the kernel, and return what the kernel returns, in order."""
    packs = [
        pa.Table.from_pydict({"shard": [number], "pack": [_pack_table(rows)]}, _SHARDED)
        for number, rows in enumerate(shards)
    ]
    # Spark makes a task of each batch. A remote session may put several into one.
    sent = spark.createDataFrame(pa.concat_tables(packs), _spark_schema(_SHARDED))
    results = sent.mapInArrow(ship(partial(_run_packed, kernel)), _spark_schema(_SHARDED)).collect()
    return [_unpack_table(pa.py_buffer(row["pack"])) for row in sorted(results, key=itemgetter("shard"))]


def _run_packed(kernel: Kernel, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number, pack in zip(batch.column("shard").to_pylist(), batch.column("pack"), strict=True):
            result = _pack_table(kernel(number, _unpack_table(pack.as_buffer())))
            yield pa.RecordBatch.from_pydict({"shard": [number], "pack": [result]}, schema=_SHARDED)


class _SparkShards:
    """Shards as the packs of a DataFrame. The frames in `persisted` stay in memory until the job ends."""

    def __init__(self, packs: DataFrame, persisted: list[DataFrame]) -> None:
        self._packs, self._persisted = packs, persisted

    def collect_answers(self, kernel: Kernel) -> list[Any]:
        return _collect_answers(_map_shards(self._packs, kernel, ANSWER))

    def collect_moves(self, kernel: Kernel) -> tuple[DataFrame, list[Any]]:
        result = _map_shards(self._packs, partial(_pack_result, kernel), _PLANNED).persist()
        self._persisted.append(result)
        return result, _collect_answers(result.where(f.col("pack").isNull()))

    def merge_into_one(self) -> _SparkShards:
        return _SparkShards(self._packs.select(f.lit(0).alias("shard"), "pack").coalesce(1), self._persisted)


def _collect_answers(rows: DataFrame) -> list[Any]:
    # Not `orderBy`: Spark would run every kernel once more to find the ranges to sort by.
    return read_answers(row.asDict() for row in rows.select(ANSWER.names).collect())


def _write_rows(result: DataFrame, out_uri: str, proof: Mapping[str, Any], options: Options) -> str:
    """Write the plan's rows, put in order by one task, and return the digest that this task computes."""
    moves = result.select("pack").where(f.col("pack").isNotNull())
    rows = moves.coalesce(1).mapInArrow(ship(partial(_order_rows, options, proof)), _spark_schema(_ORDERED))
    # The digest is observed while the rows are written: nothing is cached or computed a second time for it.
    observed = Observation()
    rows = rows.observe(observed, f.max("digest").alias("digest")).where(f.col("topic").isNotNull()).drop("digest")
    rows.write.mode("overwrite").parquet(spark_uri(f"{out_uri.rstrip('/')}/plan.parquet"))
    return str(observed.get["digest"])


def _order_rows(
    options: Options, proof: Mapping[str, Any], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the digest in a row of its own, and the moves as rows in order."""
    packs = pa.chunked_array([batch.column("pack") for batch in batches], pa.binary())
    rows = order_plan(_unpack_rows(packs), options) if len(packs) else PLAN.empty_table()
    hasher = hasher_with_proof(proof)
    hasher.hash_rows(rows)
    yield pa.RecordBatch.from_pylist([{"digest": hasher.hexdigest()}], _ORDERED)
    yield from rows.append_column("digest", pa.nulls(len(rows), pa.string())).cast(_ORDERED).to_batches()


def check_with_spark(
    spark: SparkSession, snapshot: SnapshotFolder, plan_uri: str, *, shard_rows: int = PART_ROWS
) -> PlanVerdict:
    """Check the plan at an address against a snapshot that was read. Raises PlanError if the plan is unreadable.

    It runs `check` shard by shard, after one shuffle of partitions and moves. Checks that need all topics are decided
    from the shards' sums. It shares the transport of rows with `run`, and none of its decisions.
    """
    plan = read_plan(plan_uri)
    rows, proof = plan.rows, plan.proof
    problems = snapshot_problems(snapshot, rows, proof)
    proof = dict(proof if problems else add_prices(snapshot, rows, proof))
    boundaries = shard_boundaries(snapshot.partitions.column("topic"), shard_rows)
    partitions = _read_partitions(spark, snapshot)
    moves = spark.read.parquet(spark_uri(f"{plan_uri.rstrip('/')}/plan.parquet"))
    packs = [
        _cut_into_packs(frame, boundaries).withColumn("kind", f.lit(kind))
        for kind, frame in (("partitions", partitions), ("moves", moves))
    ]
    gathered = _gather_shards(packs[0].unionByName(packs[1]), len(boundaries) + 1)
    checked = gathered.mapInArrow(ship(partial(_check_shard, snapshot.brokers, proof)), "answer binary")
    # Our own tasks wrote them.
    parts = [pickle.loads(row["answer"]) for row in checked.collect()]  # noqa: S301
    findings: Findings = combine_findings(
        parts or [check_topics(snapshot.brokers, snapshot.partitions, [], rows, proof)]
    )
    return verdict(snapshot.brokers, proof, replace(findings, problems=problems + findings.problems))


def _check_shard(
    brokers: pa.Table, proof: Mapping[str, Any], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    gathered = list(batches)
    if not gathered:
        return
    packs = pa.Table.from_batches(gathered)
    partitions = _unpack_rows_of_kind(packs, "partitions", SNAPSHOT_PARTITIONS)
    rows = _unpack_rows_of_kind(packs, "moves", PLAN).sort_by([("chunk", "ascending"), ("position", "ascending")])
    findings = check_topics(brokers, partitions, moves_from_rows(rows), rows, proof)
    yield pa.RecordBatch.from_pydict({"answer": [pickle.dumps(findings)]})


def _unpack_rows_of_kind(packs: pa.Table, kind: str, schema: pa.Schema) -> pa.Table:
    mine = packs.filter(pc.equal(packs.column("kind"), kind)).column("pack")
    return conform_to_schema(_unpack_rows(mine), schema, kind) if len(mine) else schema.empty_table()


def _spark_schema(schema: pa.Schema) -> t.StructType:
    """Return the same columns with Spark's names for their types."""
    return t.StructType([t.StructField(field.name, _SPARK[field.type], field.nullable) for field in schema])


def _read_partitions(spark: SparkSession, snapshot: SnapshotFolder) -> DataFrame:
    """Return the partitions of a snapshot as Spark's executors read its file; absent optional columns are null."""
    address, written = spark_uri(f"{snapshot.uri.rstrip('/')}/partitions.parquet"), snapshot.written
    there = [field for field in SNAPSHOT_PARTITIONS if field.name in written.names]
    if all(field.type == written.field(field.name).type for field in there):
        # With the schema given, Spark starts no job to infer it.
        return spark.read.schema(_spark_schema(SNAPSHOT_PARTITIONS)).parquet(address)
    stored = spark.read.parquet(address)
    columns = {name: f.col(name) for name in stored.columns}
    return stored.select(
        [
            columns.get(field.name, f.lit(None)).cast(_SPARK[field.type]).alias(field.name)
            for field in SNAPSHOT_PARTITIONS
        ]
    )


def _cut_into_packs(rows: DataFrame, boundaries: Sequence[str]) -> DataFrame:
    """Return rows that have a topic as packs with the number of their shard."""
    return rows.mapInArrow(ship(partial(_pack_task_rows, list(boundaries))), _spark_schema(_SHARDED))


def _gather_shards(packs: DataFrame, shards: int) -> DataFrame:
    """Return the packs with each shard in one task."""
    if shards == 1:
        return packs.coalesce(1)
    # By their hash, two shards may get into one task. Only newer versions of Spark can name the task of each row.
    if hasattr(packs, "repartitionById"):
        return packs.repartitionById(shards, f.col("shard"))
    return packs.repartition(shards, f.col("shard"))


def _pack_task_rows(boundaries: Sequence[str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task as packs per shard, given the first topic of each shard but the first."""
    # Python compares strings by code points, which is also Arrow's sort order.
    firsts = np.array(["", *boundaries], dtype=object)
    for batch in batches:
        topics = batch.column("topic").dictionary_encode()
        shards = np.searchsorted(firsts, np.array(topics.dictionary.to_pylist(), dtype=object), "right") - 1
        number = np.asarray(shards[topics.indices.to_numpy()], np.int64)
        for shard in np.unique(number).tolist():
            rows = pa.Table.from_batches([batch.filter(pa.array(number == shard))])
            packs = list(_pack_rows(rows))
            yield pa.RecordBatch.from_pydict({"shard": [shard] * len(packs), "pack": packs}, schema=_SHARDED)


def _map_shards(packs: DataFrame, kernel: Kernel, schema: pa.Schema) -> DataFrame:
    """Run `kernel` on each shard, in the task that has it. The resulting rows have the given `schema`."""
    return packs.mapInArrow(ship(partial(_run_per_shard, kernel, schema)), _spark_schema(schema))


def _run_per_shard(kernel: Kernel, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Gather a task's packs, and pass each shard to the kernel in order of topic and partition."""
    gathered = list(batches)
    if not gathered:
        return
    table = pa.Table.from_batches(gathered)
    for number in sorted(table.column("shard").unique().to_pylist()):
        rows = _unpack_rows(table.filter(pc.equal(table.column("shard"), number)).column("pack"))
        rows = rows.sort_by([("topic", "ascending"), ("partition", "ascending")])
        yield from kernel(number, rows).select(schema.names).to_batches()


def _pack_result(kernel: Kernel, number: int, rows: pa.Table) -> pa.Table:
    result = kernel(number, rows)
    is_answer = pc.is_valid(result.column("shard"))
    moves = result.filter(pc.invert(is_answer)).drop_columns(ANSWER.names)
    packs = pa.Table.from_pydict({"pack": list(_pack_rows(moves))}, _PACKED)
    return pa.concat_tables([packs, result.filter(is_answer).select(ANSWER.names)], promote_options="default")


def _pack_rows(rows: pa.Table) -> Iterator[bytes]:
    for start in range(0, len(rows), _PACK_ROWS):
        yield _pack_table(rows.slice(start, _PACK_ROWS))


def _pack_table(rows: pa.Table) -> bytes:
    # An Arrow slice shares its parent's buffers. Other serializations would write them whole; the IPC stream writes the
    # slice's part.
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, rows.schema) as stream:
        stream.write_table(rows)
    return bytes(out.getvalue().to_pybytes())


def _unpack_rows(packs: pa.ChunkedArray) -> pa.Table:
    return pa.concat_tables([_unpack_table(pack.as_buffer()) for pack in packs if pack.is_valid])


def _unpack_table(pack: pa.Buffer) -> pa.Table:
    return pa.ipc.open_stream(pack).read_all()
