"""A plan of many shards: the partitions are cut into shards, the kernels run on each, and the results become one plan.

The shards may be tables in this process, or on Spark (`job`): the order of the steps is the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_steward.errors import PlanError
from kafka_steward.planning.files.formats import SnapshotFolder
from kafka_steward.planning.files.options import EVEN
from kafka_steward.planning.solver.candidate import MOVES
from kafka_steward.planning.solver.fill_missing import OtherShards
from kafka_steward.planning.solver.ordering import TransferLimits, ordered_plan
from kafka_steward.planning.solver.proof import Measures, proof_of
from kafka_steward.planning.solver.sharded.plan import MAX_LEADER_CELLS, is_shardable, sharded_plan
from kafka_steward.planning.solver.sharded.quotas import ShardQuota
from kafka_steward.planning.spark.kernels import (
    ANSWER,
    SUMMARY,
    PlanningJob,
    plan_shard,
    read_measures,
    read_totals,
    summarize_shard,
    totals_of_shard,
)

#: Approximate partitions per shard: enough to make one solve worth its start, few enough to fit every executor.
SHARD_ROWS = 30_000

#: A function that runs on one shard: its number and rows in, a table in the stage's schema out.
Kernel = Callable[[int, pa.Table], pa.Table]
#: The moves of all shards, wherever they are.
Moves = TypeVar("Moves")


class Shards(Protocol[Moves]):
    """The partitions of a snapshot, in shards."""

    def answers(self, kernel: Kernel, schema: pa.Schema) -> list[Any]:
        """Run a kernel on each shard, and return the answers in order. Raises PlanError with a shard's problem."""

    def plan(self, kernel: Kernel) -> tuple[Moves, list[Any]]:
        """Run a kernel on each shard, and return the moves and the answers in order. Raises PlanError."""

    def as_one(self) -> Shards[Moves]:
        """Return the same partitions as one shard."""


def shard_boundaries(topics: pa.ChunkedArray, rows: int = SHARD_ROWS) -> list[str]:
    """Return the first topic of each shard but the first, given the topic of every partition.

    Shards are whole topics in order of their names, packed up to a size that depends on nothing but the data.
    """
    if len(topics) == 0:
        return []
    counts = pc.value_counts(topics)
    order = pc.sort_indices(counts.field("values"))
    names, count = counts.field("values").take(order), counts.field("counts").take(order).to_numpy()
    # As many shards as needed, all of about equal size, so that they end together however many run at once.
    part = -(-len(topics) // -(-len(topics) // rows))
    shards = (2 * np.cumsum(count) - count) // (2 * part)
    return [names[at + 1].as_py() for at in np.flatnonzero(np.diff(shards)).tolist()]


def boundaries_for(job: PlanningJob, partitions: pa.Table, shard_rows: int) -> list[str]:
    """Return the shard boundaries for a job; there are none if all partitions have to be planned as one."""
    if job.operation in EVEN and not is_shardable(job.operation, job.options):
        return []
    return shard_boundaries(partitions.column("topic"), shard_rows)


def solve(shards: Shards[Moves], job: PlanningJob, partitions: pa.Table, *, several: bool) -> tuple[Moves, Measures]:
    """Plan all shards, and return the moves and their measures.

    Even plans are put together from shards. All partitions are planned as one if the shards have no solution with their
    quotas, or if one plan may move less and the partitions are not too many for it.
    """
    if not several:
        return _placed(*_plan(shards, job, None))
    if job.operation not in EVEN:
        others = read_totals(shards.answers(partial(totals_of_shard, job), ANSWER))
        return _placed(*_plan(shards, job, others))
    brokers = job.arrays()
    leaders = len(pc.unique(partitions.column("topic"))) * len(brokers) <= MAX_LEADER_CELLS
    parts = sharded_plan(brokers, shards.answers(partial(summarize_shard, job, leaders=leaders), SUMMARY))
    if parts is not None:
        moves, measures = _plan(shards, job, parts.shard_quotas)
        if measures is not None and not parts.needs_one_flow(measures):
            return moves, parts.with_bound(measures)
    return _placed(*_plan(shards.as_one(), job, None))


def _plan(
    shards: Shards[Moves], job: PlanningJob, others: Sequence[OtherShards | ShardQuota] | None
) -> tuple[Moves, Measures | None]:
    """Return moves and measures. The measures are None if a shard cannot be placed within its quota."""
    moves, answers = shards.plan(partial(plan_shard, job, others))
    return moves, read_measures(answers) if all(answers) else None


def _placed(moves: Moves, measures: Measures | None) -> tuple[Moves, Measures]:
    if measures is None:
        raise PlanError("No placement was found within the floors and ceilings; this is an error of the planner.")
    return moves, measures


class _LocalShards:
    """Shards as tables in this process."""

    def __init__(self, tables: Sequence[pa.Table]) -> None:
        self.tables = tables

    @classmethod
    def of(cls, partitions: pa.Table, boundaries: Sequence[str]) -> _LocalShards:
        """Cut a table of partitions, sorted by topic and number, at the boundaries."""
        names = partitions["topic"].to_pylist()
        ends = [0, *(bisect_left(names, first) for first in boundaries), len(names)]
        return cls([partitions.slice(start, end - start) for start, end in pairwise(ends)])

    def answers(self, kernel: Kernel, schema: pa.Schema) -> list[Any]:
        return self.plan(lambda number, table: kernel(number, table).select(schema.names))[1]

    def plan(self, kernel: Kernel) -> tuple[pa.Table, list[Any]]:
        found = pa.concat_tables(kernel(number, table) for number, table in enumerate(self.tables))
        for problem in found.column("problem").drop_null().to_pylist():
            raise PlanError(problem)
        return found, found.column("answer").drop_null().to_pylist()

    def as_one(self) -> _LocalShards:
        return _LocalShards([pa.concat_tables(self.tables)])


def plan_locally(
    snapshot: SnapshotFolder, operation: str, options: Mapping[str, Any], *, shard_rows: int = SHARD_ROWS
) -> tuple[pa.Table, dict[str, Any]]:
    """Plan without Spark. Return rows in order, and the proof without digest. Raises PlanError as the job does."""
    job = PlanningJob.of(snapshot, operation, options)
    brokers = job.arrays()
    partitions = snapshot.partitions.sort_by([("topic", "ascending"), ("partition", "ascending")])
    boundaries = boundaries_for(job, partitions, shard_rows)
    found, measures = solve(_LocalShards.of(partitions, boundaries), job, partitions, several=bool(boundaries))
    moves = found.filter(pc.is_valid(found.column("topic"))).select(MOVES.names)
    proof = proof_of(measures, brokers, job.operation, job.options)
    head = {"cluster_id": snapshot.cluster_id, "snapshot_digest": snapshot.digest}
    return ordered_plan(moves, TransferLimits.of(job.options)), {**proof, **head}
