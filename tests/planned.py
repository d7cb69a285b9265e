"""Plans made in this process: the job's own kernels in the job's order, on one slice or on several, without Spark.

`tests/planning/test_spark_agrees.py` shows that the job makes the same plans on Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from kafka_steward.errors import PlanError
from kafka_steward.planning.files.digest import proven_digest
from kafka_steward.planning.files.formats import (
    PlanFolder,
    SnapshotFolder,
    cordoned_in,
    moves_of,
    offline_in,
    read_plan,
    read_snapshot,
    write_plan,
)
from kafka_steward.planning.files.options import EVEN, Options, operation_of
from kafka_steward.planning.solver.chunks import Slots, in_order
from kafka_steward.planning.solver.divided import MANY_CELLS, divided, divisible
from kafka_steward.planning.solver.heal import Others
from kafka_steward.planning.solver.measures import Measures
from kafka_steward.planning.solver.proof import proof_of
from kafka_steward.planning.solver.shares import Share
from kafka_steward.planning.spark.kernels import (
    Job,
    plan_slice,
    read_measures,
    read_surveys,
    survey_slice,
    tally_slice,
)
from kafka_steward.planning.spark.slices import SLICE_ROWS, boundaries

__all__ = ["plan_folder", "planned"]


def plan_folder(
    snapshot_uri: str | Path,
    out_uri: str | Path,
    operation: str = "heal",
    options: Mapping[str, Any] | None = None,
    *,
    slice_rows: int = SLICE_ROWS,
) -> PlanFolder:
    """Plan from the snapshot at one address, write plan and proof to the other, and read them back.

    Raises PlanError, and writes nothing, where the job does.
    """
    rows, proof = _planned(read_snapshot(str(snapshot_uri)), operation, options or {}, slice_rows)
    write_plan(str(out_uri), rows, proof)
    return read_plan(str(out_uri))


def planned(
    snapshot: SnapshotFolder,
    operation: str = "heal",
    options: Mapping[str, Any] | None = None,
    slice_rows: int = SLICE_ROWS,
) -> PlanFolder:
    """The plan of a snapshot in memory. Raises PlanError where the job does."""
    rows, proof = _planned(snapshot, operation, options or {}, slice_rows)
    digest = proven_digest(proof, rows)
    return PlanFolder(digest, {**proof, "digest": digest}, moves_of(rows))


def _planned(
    snapshot: SnapshotFolder, operation: str, options: Mapping[str, Any], slice_rows: int
) -> tuple[pa.Table, dict[str, Any]]:
    """A plan's rows in order, and its proof without the digest."""
    asked = operation_of(operation)
    chosen = Options.of(asked, options).sparing(cordoned_in(snapshot.brokers))
    job = Job(snapshot.brokers, asked, chosen)
    brokers = job.arrays()
    if chosen.topics or chosen.reassignment:
        # Imported late: the job's module imports PySpark, which nothing else here needs.
        from kafka_steward.planning.spark.job import _refuse_unknown_topics

        _refuse_unknown_topics(snapshot, job)
    result, measures = _solved(job, snapshot.partitions, slice_rows)
    slots = Slots(chosen.max_in_per_broker, chosen.max_out_per_broker, chosen.chunk_size)
    head = {
        "cluster_id": snapshot.cluster_id,
        "snapshot_digest": snapshot.digest,
        "log_dirs_failed": offline_in(snapshot.partitions),
    }
    rows = in_order(result.filter(result["topic"].is_valid()), slots)
    return rows, {**proof_of(measures, brokers, asked, chosen), **head}


def _solved(job: Job, partitions: pa.Table, slice_rows: int) -> tuple[pa.Table, Measures]:
    whole = partitions.sort_by([("topic", "ascending"), ("partition", "ascending")])
    slices = _sliced(whole, slice_rows)
    if len(slices) == 1 or (job.operation in EVEN and not divisible(job.operation, job.options)):
        return _sure(*_kernels(job, None, [whole]))
    if job.operation in EVEN:
        return _put_together(job, slices, whole)
    return _sure(*_kernels(job, read_surveys(_answers(slices, partial(survey_slice, job))), slices))


def _sliced(whole: pa.Table, slice_rows: int) -> list[pa.Table]:
    firsts = ["", *boundaries(whole["topic"], slice_rows)]
    names = whole["topic"].to_pylist()
    return [
        whole.filter(pa.array([first <= name and (not after or name < after[0]) for name in names], pa.bool_()))
        for first, *after in (firsts[at : at + 2] for at in range(len(firsts)))
    ]


def _put_together(job: Job, slices: Sequence[pa.Table], whole: pa.Table) -> tuple[pa.Table, Measures]:
    brokers = job.arrays()
    leaders = len(whole["topic"].unique()) * len(brokers) <= MANY_CELLS
    parts = divided(brokers, _answers(slices, partial(tally_slice, job, leaders=leaders)), own_rack=job.own_rack)
    if parts is not None:
        result, measures = _kernels(job, parts.shares, slices)
        if measures is not None and not parts.better_whole(measures):
            return result, parts.proven(measures)
    return _sure(*_kernels(job, None, [whole]))


def _sure(result: pa.Table, measures: Measures | None) -> tuple[pa.Table, Measures]:
    assert measures is not None, "no placement was found within the floors and ceilings"
    return result, measures


def _kernels(
    job: Job, others: Sequence[Others | Share] | None, slices: Sequence[pa.Table]
) -> tuple[pa.Table, Measures | None]:
    results = [plan_slice(job, others, number, part) for number, part in enumerate(slices)]
    answers = _answers(slices, lambda number, _: results[number])
    return pa.concat_tables(results), read_measures(answers) if all(answers) else None


def _answers(slices: Sequence[pa.Table], kernel: Callable[[int, pa.Table], pa.Table]) -> list[Any]:
    found = [kernel(number, part) for number, part in enumerate(slices)]
    problems = [one for table in found for one in table["problem"].to_pylist() if one]
    if problems:
        raise PlanError(problems[0])
    return [one for table in found for one in table["answer"].to_pylist() if one is not None]
