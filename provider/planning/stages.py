"""The stages on Spark: DataFrame in, DataFrame out. The kernels are plain functions on Arrow tables, tested without it.

::

    partitions ─► sliced ─► surveyed (counts per slice) ─► planned (moves, measures) ─► ordered ─► sealed (digest)

There is one shuffle, by slice (none if there is one slice); nothing depends on how many tasks or executors there are,
because slices are cut from the data alone, each is solved by itself, and one task puts the moves in order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from kafka_steward.planning.formats import PLAN, SNAPSHOT_PARTITIONS
from kafka_steward.planning.storage import for_spark

__all__ = ["Kernel", "ordered", "per_slice", "read_partitions", "sliced"]

#: What runs on one slice: its rows in, a table in the stage's schema out.
Kernel = Callable[[int, pa.Table], pa.Table]

_SPARK: dict[pa.DataType, t.DataType] = {
    pa.string(): t.StringType(),
    pa.int32(): t.IntegerType(),
    pa.int64(): t.LongType(),
    pa.binary(): t.BinaryType(),
    pa.list_(pa.int32()): t.ArrayType(t.IntegerType()),
}


def spark_schema(schema: pa.Schema) -> t.StructType:
    """The same columns as Spark names their types."""
    return t.StructType([t.StructField(field.name, _SPARK[field.type], field.nullable) for field in schema])


def read_partitions(spark: SparkSession, snapshot_uri: str) -> DataFrame:
    """The partitions of a snapshot; optional columns that are absent are empty."""
    found = spark.read.parquet(for_spark(f"{snapshot_uri.rstrip('/')}/partitions.parquet"))
    return found.select([_column(found, field) for field in SNAPSHOT_PARTITIONS])


def _column(found: DataFrame, field: pa.Field) -> Any:
    column = f.col(field.name) if field.name in found.columns else f.lit(None)
    return column.cast(_SPARK[field.type]).alias(field.name)


def sliced(partitions: DataFrame, boundaries: Sequence[str]) -> DataFrame:
    """The partitions with the number of their slice, each slice in one task: one shuffle, or none for one slice."""
    number = f.lit(0)
    for topic in boundaries:
        number = number + (f.col("topic") >= f.lit(topic)).cast("int")
    numbered = partitions.withColumn("slice", number.cast("int"))
    if not boundaries:
        return numbered.coalesce(1)
    if hasattr(numbered, "repartitionById"):
        return numbered.repartitionById(len(boundaries) + 1, f.col("slice"))
    return numbered.repartition(len(boundaries) + 1, f.col("slice"))


def per_slice(rows: DataFrame, kernel: Kernel, schema: pa.Schema) -> DataFrame:
    """Run `kernel` on each slice, whatever task it landed in."""
    return rows.mapInArrow(_Slices(kernel, schema), spark_schema(schema))


class _Slices:
    """Gathers a task's batches, and hands each slice to the kernel in order of topic and partition."""

    def __init__(self, kernel: Kernel, schema: pa.Schema) -> None:
        self._kernel, self._schema = kernel, schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        gathered = list(batches)
        if not gathered:
            return
        table = pa.Table.from_batches(gathered)
        for number in sorted(table.column("slice").unique().to_pylist()):
            rows = table.filter(pa.compute.equal(table.column("slice"), number)).drop_columns("slice")
            rows = rows.sort_by([("topic", "ascending"), ("partition", "ascending")])
            yield from self._kernel(number, rows).select(self._schema.names).to_batches()


def ordered(moves: DataFrame, kernel: Callable[[pa.Table], pa.Table]) -> DataFrame:
    """The moves as the rows of a plan, put in order by one task."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        gathered = list(batches)
        if gathered:
            yield from kernel(pa.Table.from_batches(gathered)).to_batches()

    return moves.coalesce(1).mapInArrow(run, spark_schema(PLAN))


def as_json(value: dict[str, Any]) -> str:
    """A small answer of a task, for a column of text."""
    return json.dumps(value, sort_keys=True)
