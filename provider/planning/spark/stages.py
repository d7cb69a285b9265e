"""The stages on Spark: DataFrame in, DataFrame out. The kernels are plain functions on Arrow tables, tested without it.

::

    partitions ─► packs per shard ─► totals or summaries ─► moves and measures ─► rows in order, with digest

There is one shuffle, by shard (none if there is one shard). Nothing depends on the number of tasks or executors,
because shards are cut from the data alone, each shard is solved on its own, and one task puts the moves in order.

Between stages, rows travel as packs: whole tables in Arrow's own format, in one binary column. Spark stores, shuffles
and passes on a few packs in no time, where it would convert a million rows with their lists cell by cell every time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from kafka_steward.planning.files.formats import PLAN, SNAPSHOT_PARTITIONS, SnapshotFolder
from kafka_steward.planning.files.storage import for_spark
from kafka_steward.planning.solver.problem import Ints
from kafka_steward.planning.spark.kernels import ANSWER
from kafka_steward.planning.spark.shards import Kernel

_PACK = pa.field("pack", pa.binary())
#: Rows per pack: far below the 2 GB limit of one value.
_PACK_ROWS = 100_000
_SPARK: dict[pa.DataType, t.DataType] = {
    pa.string(): t.StringType(),
    pa.int32(): t.IntegerType(),
    pa.int64(): t.LongType(),
    pa.binary(): t.BinaryType(),
    pa.list_(pa.int32()): t.ArrayType(t.IntegerType()),
}


_SHARDED = pa.schema([pa.field("shard", pa.int32()), _PACK])
_PLANNED = pa.schema([*ANSWER, _PACK])
_ORDERED = pa.schema([*(field.with_nullable(True) for field in PLAN), pa.field("digest", pa.string())])


def spark_schema(schema: pa.Schema) -> t.StructType:
    """Return the same columns with Spark's names for their types."""
    return t.StructType([t.StructField(field.name, _SPARK[field.type], field.nullable) for field in schema])


def read_partitions(spark: SparkSession, snapshot: SnapshotFolder) -> DataFrame:
    """Return the partitions of a snapshot as Spark's executors read its file; absent optional columns are null."""
    address, written = for_spark(f"{snapshot.uri.rstrip('/')}/partitions.parquet"), snapshot.written
    there = [field for field in SNAPSHOT_PARTITIONS if field.name in written.names]
    if all(field.type == written.field(field.name).type for field in there):
        # With the schema given, Spark starts no job to infer it.
        return spark.read.schema(spark_schema(SNAPSHOT_PARTITIONS)).parquet(address)
    found = spark.read.parquet(address)
    return found.select([_column(found, field) for field in SNAPSHOT_PARTITIONS])


def _column(found: DataFrame, field: pa.Field) -> Any:
    column = f.col(field.name) if field.name in found.columns else f.lit(None)
    return column.cast(_SPARK[field.type]).alias(field.name)


def into_shards(partitions: DataFrame, boundaries: Sequence[str]) -> DataFrame:
    """Return the partitions as packs with the number of their shard, each shard in one task."""
    return gather_shards(cut_into_packs(partitions, boundaries), len(boundaries) + 1)


def cut_into_packs(rows: DataFrame, boundaries: Sequence[str]) -> DataFrame:
    """Return rows that have a topic as packs with the number of their shard."""
    return rows.mapInArrow(partial(_cut, list(boundaries)), spark_schema(_SHARDED))


def gather_shards(packs: DataFrame, shards: int) -> DataFrame:
    """Return the packs with each shard in one task."""
    if shards == 1:
        return packs.coalesce(1)
    if hasattr(packs, "repartitionById"):
        return packs.repartitionById(shards, f.col("shard"))
    return packs.repartition(shards, f.col("shard"))


def _cut(boundaries: Sequence[str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task as packs per shard, given the first topic of each shard but the first."""
    for batch in batches:
        number = _shard_of(boundaries, batch.column("topic"))
        for one in np.unique(number).tolist():
            rows = pa.Table.from_batches([batch.filter(pa.array(number == one))])
            packs = list(_packed(rows))
            yield _batch({"shard": [one] * len(packs), "pack": packs}, _SHARDED)


def _shard_of(boundaries: Sequence[str], topics: pa.Array) -> Ints:
    encoded = topics.dictionary_encode()
    # Python compares strings by code points, which is also Arrow's sort order.
    firsts = np.array(["", *boundaries], dtype=object)
    shards = np.searchsorted(firsts, np.array(encoded.dictionary.to_pylist(), dtype=object), "right") - 1
    return np.asarray(shards[encoded.indices.to_numpy()], np.int64)


def per_shard(packs: DataFrame, kernel: Kernel, schema: pa.Schema) -> DataFrame:
    """Run `kernel` on each shard, whichever task it is in. The resulting rows have the given `schema`."""
    return packs.mapInArrow(partial(_run_per_shard, kernel, schema), spark_schema(schema))


def _run_per_shard(kernel: Kernel, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Gather a task's packs, and pass each shard to the kernel in order of topic and partition."""
    gathered = list(batches)
    if not gathered:
        return
    table = pa.Table.from_batches(gathered)
    for number in sorted(table.column("shard").unique().to_pylist()):
        rows = unpacked(table.filter(pc.equal(table.column("shard"), number)).column("pack"))
        rows = rows.sort_by([("topic", "ascending"), ("partition", "ascending")])
        yield from kernel(number, rows).select(schema.names).to_batches()


def planned(packs: DataFrame, kernel: Kernel) -> DataFrame:
    """Run `kernel` on each shard. Return its moves as packs, and its answer in a row of its own."""
    return per_shard(packs, partial(_with_packs, kernel), _PLANNED)


def _with_packs(kernel: Kernel, number: int, rows: pa.Table) -> pa.Table:
    found = kernel(number, rows)
    moved = pc.is_valid(found.column("topic"))
    packs = list(_packed(found.filter(moved).drop_columns(ANSWER.names)))
    nothing: dict[str, list[Any]] = {name: [None] * len(packs) for name in ANSWER.names}
    answers = found.filter(pc.invert(moved)).select(ANSWER.names)
    answers = answers.append_column(_PACK, pa.nulls(len(answers), _PACK.type))
    return pa.concat_tables([pa.Table.from_batches([_batch({**nothing, "pack": packs}, _PLANNED)]), answers])


def ordered_with_digest(packs: DataFrame, kernel: Callable[[pa.Table | None], tuple[pa.Table, str]]) -> DataFrame:
    """Return the moves as rows, put in order by one task, and their digest in a row of its own."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        gathered = pa.chunked_array([batch.column("pack") for batch in batches], pa.binary())
        rows, digest = kernel(unpacked(gathered) if len(gathered) else None)
        yield pa.RecordBatch.from_pylist([{"digest": digest}], _ORDERED)
        yield from rows.append_column("digest", pa.nulls(len(rows), pa.string())).cast(_ORDERED).to_batches()

    return packs.coalesce(1).mapInArrow(run, spark_schema(_ORDERED))


def _packed(rows: pa.Table) -> Iterator[bytes]:
    for start in range(0, len(rows), _PACK_ROWS):
        out = pa.BufferOutputStream()
        # An Arrow slice shares its parent's buffers. Other serializations would write them whole; the IPC stream writes
        # the slice's part.
        part = rows.slice(start, _PACK_ROWS)
        with pa.ipc.new_stream(out, part.schema) as stream:
            stream.write_table(part)
        yield out.getvalue().to_pybytes()


def unpacked(packs: pa.ChunkedArray) -> pa.Table:
    """Return the rows of packs."""
    return pa.concat_tables([pa.ipc.open_stream(pack.as_buffer()).read_all() for pack in packs if pack.is_valid])


def _batch(columns: dict[str, list[Any]], schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns, schema=schema)
