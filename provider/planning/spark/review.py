"""The checker on Spark, for plans of any size: one shuffle joins each topic's partitions and moves, then a map checks.

It runs `check` shard by shard. Checks that need all topics are decided from the shards' sums. It shares nothing with
the planner's own stages.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kafka_steward.planning.checker.check import (
    Findings,
    Verdict,
    head_problems,
    look,
    order_problems,
    state_problems,
    verdict,
)
from kafka_steward.planning.checker.evenness import Evenness, seek_prices
from kafka_steward.planning.checker.loads import Loads
from kafka_steward.planning.files.formats import (
    PLAN,
    SNAPSHOT_PARTITIONS,
    conformed,
    moves_of,
    read_plan_table,
    read_snapshot,
)
from kafka_steward.planning.files.storage import for_spark

__all__ = ["SLICE_ROWS", "review"]

#: Partitions per call of `look`: some seconds of plain Python.
SLICE_ROWS = 10_000


def review(spark: SparkSession, snapshot_uri: str, plan_uri: str, *, slice_rows: int = SLICE_ROWS) -> Verdict:
    """Judge the plan at one address against the snapshot at the other.

    Raises PlanError when either is unreadable.
    """
    snapshot = read_snapshot(snapshot_uri)
    rows, proof = read_plan_table(plan_uri)
    problems = head_problems(snapshot.cluster_id, snapshot.digest, proof)
    problems += state_problems(snapshot.brokers, proof)
    problems += order_problems(snapshot.partitions, rows, proof)
    proof = dict(proof if problems else seek_prices(snapshot, rows, proof))
    firsts = _cuts(snapshot.partitions.column("topic"), slice_rows)
    both = _read(spark, f"{snapshot_uri.rstrip('/')}/partitions.parquet", SNAPSHOT_PARTITIONS, "partition")
    both = both.unionByName(
        _read(spark, f"{plan_uri.rstrip('/')}/plan.parquet", PLAN, "move"), allowMissingColumns=True
    )
    numbered = both.withColumn("slice", _number(firsts)).repartition(len(firsts) + 1, "slice")
    look_at = partial(_looked, snapshot.brokers, proof)
    answers = [row["answer"] for row in numbered.mapInArrow(look_at, "answer string").collect()]
    parts = [_findings(answer) for answer in answers]
    found = Findings.total(parts or [look(snapshot.brokers, snapshot.partitions, [], proof)])
    return verdict(snapshot.brokers, proof, replace(found, problems=problems + found.problems))


def _cuts(topics: pa.ChunkedArray, rows: int) -> list[str]:
    """Return the first topic of every shard but the first; a shard has about `rows` partitions."""
    names, counts = np.unique(topics.to_numpy(zero_copy_only=False).astype(str), return_counts=True)
    slices = (np.cumsum(counts) - counts) // rows
    return [str(names[at + 1]) for at in np.flatnonzero(np.diff(slices))]


def _read(spark: SparkSession, path: str, schema: pa.Schema, kind: str) -> DataFrame:
    found = spark.read.parquet(for_spark(path))
    columns = [f.col(name).alias(f"{kind[0]}_{name}") for name in found.columns if name in schema.names]
    return found.select(f.col("topic"), f.lit(kind[0]).alias("kind"), *columns)


def _number(firsts: Sequence[str]) -> Any:
    number = f.lit(0)
    for topic in firsts:
        number = number + (f.col("topic") >= f.lit(topic)).cast("int")
    return number


def _looked(brokers: pa.Table, proof: Mapping[str, Any], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    gathered = list(batches)
    if not gathered:
        return
    table = pa.Table.from_batches(gathered)
    partitions = _side(table, "p", SNAPSHOT_PARTITIONS, "The snapshot")
    rows = _side(table, "m", PLAN, "The plan").sort_by([("chunk", "ascending"), ("position", "ascending")])
    found = look(brokers, partitions, moves_of(rows), proof)
    yield pa.RecordBatch.from_pydict({"answer": [json.dumps(asdict(found))]})


def _side(table: pa.Table, kind: str, schema: pa.Schema, where: str) -> pa.Table:
    mine = table.filter(pc.equal(table.column("kind"), kind))
    names = [name for name in mine.column_names if name.startswith(f"{kind}_")]
    return conformed(mine.select(names).rename_columns([name[2:] for name in names]), schema, where)


def _findings(answer: str) -> Findings:
    found = json.loads(answer)
    even = found.pop("evenness")
    return Findings(**{**found, "loads": Loads(**found["loads"]), "evenness": Evenness(**even) if even else None})
