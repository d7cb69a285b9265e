"""Plan on Spark, and check a plan there, for snapshots of any size. `shards` has the kernels.

::

    partitions ─► packs per shard ─► totals or summaries ─► moves and measures

There is at most one shuffle, by shard. Nothing depends on the number of tasks or executors, because shards are cut from
the data alone, each shard is solved on its own, and the driver puts the moves in order and writes the plan.

The driver has read the partitions for their digest. Unless they are very many, it sends each shard to the task that
plans it: then Spark reads no file, and shuffles nothing.

Between stages, rows travel as packs: whole tables in Arrow's own format, in one binary column. Spark stores, shuffles
and passes on a few packs in no time. It would convert a million rows with their lists cell by cell every time.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from kafka_steward.planning.checker.check import (
    PART_ROWS,
    Findings,
    PlanVerdict,
    add_prices,
    check_topics,
    combine_findings,
    questions_of_load,
    room_after,
    snapshot_problems,
    verdict,
)
from kafka_steward.planning.checker.room import RoomLeft
from kafka_steward.planning.files.formats import (
    PLAN,
    SNAPSHOT_PARTITIONS,
    SnapshotFolder,
    conform_to_schema,
    moves_from_rows,
    read_plan,
    read_snapshot,
    write_plan,
)
from kafka_steward.planning.files.storage import spark_uri
from kafka_steward.planning.shards import (
    SHARD_ROWS,
    Kernel,
    PlanningJob,
    Shards,
    TableShards,
    plan_snapshot,
    shard_boundaries,
)
from kafka_steward.planning.spark.shipping import ship

#: Rows per pack: far below the 2 GB limit of one value.
_PACK_ROWS = 100_000
#: Partitions up to which the driver sends the shards to their tasks; it has read all partitions for their digest.
_MOST_SENT = 1_000_000
_SPARK: dict[pa.DataType, t.DataType] = {
    pa.string(): t.StringType(),
    pa.bool_(): t.BooleanType(),
    pa.int32(): t.IntegerType(),
    pa.int64(): t.LongType(),
    pa.float64(): t.DoubleType(),
    pa.binary(): t.BinaryType(),
    pa.list_(pa.int32()): t.ArrayType(t.IntegerType()),
}
_SHARDED = pa.schema([pa.field("shard", pa.int32()), pa.field("pack", pa.binary())])


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
        sent = _send_shards(spark, TableShards.of(snapshot.partitions, boundaries).tables)
        small = len(snapshot.partitions) <= shard_rows
        rows, proof = plan_snapshot(_SparkShards(sent, True, small), job, snapshot, several=bool(boundaries))
    else:
        # Each stage would read and shuffle the partitions again.
        packs = _cut_into_packs(_read_partitions(spark, snapshot), boundaries)
        packs = _gather_shards(packs, len(boundaries) + 1).persist()
        try:
            rows, proof = plan_snapshot(_SparkShards(packs, ordered=False), job, snapshot, several=bool(boundaries))
        finally:
            packs.unpersist()
    return {**proof, "digest": write_plan(out_uri, rows, proof)}


def _send_shards(spark: SparkSession, tables: Sequence[pa.Table]) -> DataFrame:
    """Return each shard as one pack."""
    packs = [
        pa.Table.from_pydict({"shard": [number], "pack": [_pack_table(rows)]}, _SHARDED)
        for number, rows in enumerate(tables)
    ]
    # Spark makes a task of each batch. A remote session may put several into one.
    return spark.createDataFrame(pa.concat_tables(packs), _spark_schema(_SHARDED))


@dataclass(frozen=True)
class _SparkShards(Shards):
    """Shards as packs, those of each shard in one task; `ordered` if each is one pack with its rows in order.

    `small` ones are solved in this process: to start a Python worker of Spark would take longer.
    """

    packs: DataFrame
    ordered: bool
    small: bool = False

    def run(self, kernel: Kernel) -> list[pa.Table]:
        if self.small:
            solved = pa.Table.from_batches(_run_on_packs(kernel, self.ordered, self.packs.toArrow().to_batches()))
            return [_unpack_table(pack.as_buffer()) for pack in solved.column("pack")]
        mapped = ship(partial(_run_on_packs, kernel, self.ordered))
        results = self.packs.mapInArrow(mapped, _spark_schema(_SHARDED)).collect()
        return [_unpack_table(pa.py_buffer(row["pack"])) for row in sorted(results, key=itemgetter("shard"))]

    def merge_into_one(self) -> _SparkShards:
        return _SparkShards(self.packs.select(f.lit(0).alias("shard"), "pack").coalesce(1), ordered=False)


def _run_on_packs(kernel: Kernel, ordered: bool, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Gather a task's packs, and pass each shard to the kernel in order of topic and partition."""
    gathered = list(batches)
    if not gathered:
        return
    table = pa.Table.from_batches(gathered)
    for number in sorted(table.column("shard").unique().to_pylist()):
        rows = _unpack_rows(table.filter(pc.equal(table.column("shard"), number)).column("pack"))
        if not ordered:
            rows = rows.sort_by([("topic", "ascending"), ("partition", "ascending")])
        yield pa.RecordBatch.from_pydict({"shard": [number], "pack": [_pack_table(kernel(number, rows))]}, _SHARDED)


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
    boundaries, room = shard_boundaries(snapshot.partitions.column("topic"), shard_rows), room_after(snapshot, plan)
    partitions = _read_partitions(spark, snapshot)
    moves = spark.read.parquet(spark_uri(f"{plan_uri.rstrip('/')}/plan.parquet"))
    packs = [
        _cut_into_packs(frame, boundaries).withColumn("kind", f.lit(kind))
        for kind, frame in (("partitions", partitions), ("moves", moves))
    ]
    gathered = _gather_shards(packs[0].unionByName(packs[1]), len(boundaries) + 1)
    checked = gathered.mapInArrow(ship(partial(_check_shard, snapshot.brokers, proof, room)), "answer binary")
    # Our own tasks wrote them.
    parts = [pickle.loads(row["answer"]) for row in checked.collect()]  # noqa: S301
    findings: Findings = combine_findings(
        parts or [check_topics(snapshot.brokers, snapshot.partitions, [], rows, proof)]
    )
    findings = replace(findings, problems=problems + findings.problems)
    return verdict(snapshot.brokers, proof, findings, questions_of_load(snapshot, rows, proof))


def _check_shard(
    brokers: pa.Table, proof: Mapping[str, Any], room: RoomLeft, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    gathered = list(batches)
    if not gathered:
        return
    packs = pa.Table.from_batches(gathered)
    partitions = _unpack_rows_of_kind(packs, "partitions", SNAPSHOT_PARTITIONS)
    rows = _unpack_rows_of_kind(packs, "moves", PLAN).sort_by([("chunk", "ascending"), ("position", "ascending")])
    findings = check_topics(brokers, partitions, moves_from_rows(rows), rows, proof, room=room)
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
            packs = [_pack_table(rows.slice(start, _PACK_ROWS)) for start in range(0, len(rows), _PACK_ROWS)]
            yield pa.RecordBatch.from_pydict({"shard": [shard] * len(packs), "pack": packs}, schema=_SHARDED)


def _pack_table(rows: pa.Table) -> bytes:
    # Compressed, because the results of all tasks together count towards spark.driver.maxResultSize.
    # An Arrow slice shares its parent's buffers. Other serializations would write them whole; the IPC stream writes the
    # slice's part.
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        stream.write_table(rows)
    return bytes(out.getvalue().to_pybytes())


def _unpack_rows(packs: pa.ChunkedArray) -> pa.Table:
    return pa.concat_tables([_unpack_table(pack.as_buffer()) for pack in packs if pack.is_valid])


def _unpack_table(pack: pa.Buffer) -> pa.Table:
    return pa.ipc.open_stream(pack).read_all()
