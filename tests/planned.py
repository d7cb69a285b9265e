"""A plan from a snapshot folder without Spark: the planner's own kernel on one slice, as the job does it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from kafka_steward.assignment import Operation
from kafka_steward.errors import PlanError
from kafka_steward.planning.files.formats import PlanFolder, read_plan, read_snapshot, write_plan
from kafka_steward.planning.files.options import Options
from kafka_steward.planning.solver.chunks import Slots, in_order
from kafka_steward.planning.solver.drafts import MOVES
from kafka_steward.planning.solver.proof import proof_of
from kafka_steward.planning.spark.kernels import Job, plan_slice, read_measures


def plan_heal(snapshot_uri: Path, out_uri: Path, **options: Any) -> PlanFolder:
    """Plan a heal, write it to `out_uri`, and read it back."""
    snapshot, chosen = read_snapshot(str(snapshot_uri)), Options.of(Operation.HEAL, options)
    job = Job(snapshot.brokers, Operation.HEAL, chosen)
    result = plan_slice(job, None, 0, snapshot.partitions)
    problems = result.column("problem").drop_null().to_pylist()
    if problems:
        raise PlanError(problems[0])
    measures = read_measures(result.column("answer").drop_null().to_pylist())
    moves = result.filter(pc.is_valid(result.column("topic"))).select(MOVES.names).cast(MOVES)
    rows = in_order(moves, Slots(chosen.max_in_per_broker, chosen.max_out_per_broker, chosen.chunk_size))
    head = {"cluster_id": snapshot.cluster_id, "snapshot_digest": snapshot.digest}
    write_plan(str(out_uri), rows, proof_of(measures, job.arrays(), Operation.HEAL, chosen) | head)
    return read_plan(str(out_uri))
