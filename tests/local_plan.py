"""Plans made in this process: the job's own kernels in the job's order, on one shard or on several, without Spark.

`tests/planning/test_spark_agrees.py` shows that the job makes the same plans on Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kafka_steward.assignment import Move
from kafka_steward.planning.files.formats import (
    PlanFolder,
    SnapshotFolder,
    digest_with_proof,
    plan_table,
    read_plan,
    read_snapshot,
    write_plan,
)
from kafka_steward.planning.local import plan_locally
from kafka_steward.planning.shards import SHARD_ROWS

__all__ = ["plan_folder", "plan_with", "planned"]


def plan_folder(
    snapshot_uri: str | Path,
    out_uri: str | Path,
    operation: str = "heal",
    options: Mapping[str, Any] | None = None,
    *,
    shard_rows: int = SHARD_ROWS,
) -> PlanFolder:
    """Plan from the snapshot at one address, write plan and proof to the other, and read them back.

    Raises PlanError, and writes nothing, where the job does.
    """
    rows, proof = plan_locally(read_snapshot(str(snapshot_uri)), operation, options or {}, shard_rows=shard_rows)
    write_plan(str(out_uri), rows, proof)
    return read_plan(str(out_uri))


def planned(
    snapshot: SnapshotFolder,
    operation: str = "heal",
    options: Mapping[str, Any] | None = None,
    shard_rows: int = SHARD_ROWS,
) -> PlanFolder:
    """The plan of a snapshot in memory. Raises PlanError where the job does."""
    rows, proof = plan_locally(snapshot, operation, options or {}, shard_rows=shard_rows)
    digest = digest_with_proof(proof, rows)
    return PlanFolder(digest, {**proof, "digest": digest}, rows)


def plan_with(digest: str, proof: dict[str, Any], moves: Sequence[Move]) -> PlanFolder:
    """A plan in memory of these moves, whatever its digest and its proof say."""
    return PlanFolder(digest, proof, plan_table(moves))
