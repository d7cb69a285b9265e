"""The checker on Spark, for plans of any size: one shuffle gathers the partitions and moves of each shard to check.

It runs `check` shard by shard. Checks that need all topics are decided from the shards' sums. It shares the transport
of rows with the planner's stages, and none of its decisions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from kafka_steward.planning.checker.certificate import Evenness, with_prices
from kafka_steward.planning.checker.check import (
    DiskLoads,
    Findings,
    PlanVerdict,
    check_topics,
    snapshot_problems,
    verdict,
)
from kafka_steward.planning.files.formats import (
    PLAN,
    SNAPSHOT_PARTITIONS,
    SnapshotFolder,
    conformed,
    moves_of,
    read_plan_table,
)
from kafka_steward.planning.files.storage import for_spark
from kafka_steward.planning.spark.shards import shard_boundaries
from kafka_steward.planning.spark.stages import cut_into_packs, gather_shards, read_partitions, unpacked

#: Partitions per call of `check_topics`: some seconds of plain Python.
_CHECK_ROWS = 10_000


def review(
    spark: SparkSession, snapshot: SnapshotFolder, plan_uri: str, *, shard_rows: int = _CHECK_ROWS
) -> PlanVerdict:
    """Check the plan at an address against a snapshot that was read. Raises PlanError if the plan is unreadable."""
    rows, proof = read_plan_table(plan_uri)
    problems = snapshot_problems(snapshot, rows, proof)
    proof = dict(proof if problems else with_prices(snapshot, rows, proof))
    boundaries = shard_boundaries(snapshot.partitions.column("topic"), shard_rows)
    partitions = read_partitions(spark, snapshot)
    moves = spark.read.parquet(for_spark(f"{plan_uri.rstrip('/')}/plan.parquet"))
    packs = [
        cut_into_packs(frame, boundaries).withColumn("kind", f.lit(kind))
        for kind, frame in (("partitions", partitions), ("moves", moves))
    ]
    gathered = gather_shards(packs[0].unionByName(packs[1]), len(boundaries) + 1)
    checked = gathered.mapInArrow(partial(_checked, snapshot.brokers, proof), "answer string")
    parts = [_findings(row["answer"]) for row in checked.collect()]
    found = Findings.total(parts or [check_topics(snapshot.brokers, snapshot.partitions, [], rows, proof)])
    return verdict(snapshot.brokers, proof, replace(found, problems=problems + found.problems))


def _checked(
    brokers: pa.Table, proof: Mapping[str, Any], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    gathered = list(batches)
    if not gathered:
        return
    packs = pa.Table.from_batches(gathered)
    partitions = _rows(packs, "partitions", SNAPSHOT_PARTITIONS)
    rows = _rows(packs, "moves", PLAN).sort_by([("chunk", "ascending"), ("position", "ascending")])
    found = check_topics(brokers, partitions, moves_of(rows), rows, proof)
    yield pa.RecordBatch.from_pydict({"answer": [json.dumps(asdict(found))]})


def _rows(packs: pa.Table, kind: str, schema: pa.Schema) -> pa.Table:
    mine = packs.filter(pc.equal(packs.column("kind"), kind)).column("pack")
    return conformed(unpacked(mine), schema, kind) if len(mine) else schema.empty_table()


def _findings(answer: str) -> Findings:
    found = json.loads(answer)
    even = found.pop("evenness")
    return Findings(**{**found, "loads": DiskLoads(**found["loads"]), "evenness": Evenness(**even) if even else None})
