"""Plan in shards: cut the partitions into shards, run a kernel on each shard, and make one plan of the results.

The shards may be tables in this process (`local`), or on Spark (`spark.pipeline`). Kernels and the order of the steps
are the same. A kernel takes and returns an Arrow table, and carries everything it needs in plain values, so that Spark
can send it to an executor. It returns an error in the data as a message, because an exception raised on an executor
would be buried in a Java stack trace.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_steward.assignment import EVEN_OPERATIONS, REORDERING_OPERATIONS, Operation, name_brokers
from kafka_steward.errors import PlanError
from kafka_steward.planning.checker.certificate import MAX_EXACT_CELLS, find_prices
from kafka_steward.planning.checker.constraints import build_outcome
from kafka_steward.planning.files.formats import (
    SnapshotFolder,
    brokers_with_lost_replicas,
    cordoned_brokers,
    spared_brokers,
)
from kafka_steward.planning.files.reassignment import parse_reassignment
from kafka_steward.planning.options import Options, find_operation
from kafka_steward.planning.solver.balance import BalanceSetup, balance_replicas, compare_spreads
from kafka_steward.planning.solver.candidate import (
    CandidatePlan,
    ChangedRows,
    MovedRows,
    apply_reassignment,
    budget_note,
    cut_to_budget,
)
from kafka_steward.planning.solver.disks import DiskShare, balance_disks, disk_load, disk_notes, disk_shares
from kafka_steward.planning.solver.disks_and_load import balance_load
from kafka_steward.planning.solver.fair_shares import has_scarce_racks
from kafka_steward.planning.solver.fill_missing import (
    OtherShards,
    ShardTotals,
    fill_missing,
    shard_totals,
    views_of_others,
)
from kafka_steward.planning.solver.flow import Infeasible
from kafka_steward.planning.solver.orders import demote_brokers, even_out_leaders, restore_orders
from kafka_steward.planning.solver.plan_rows import MOVES, brokers_without_room, order_plan, planned_moves
from kafka_steward.planning.solver.problem import (
    Brokers,
    Disposition,
    Floats,
    PartitionTable,
    Problem,
    combine_shards,
    find_mean_rate,
)
from kafka_steward.planning.solver.proof import Measures, measure_candidate, proof_fields, rack_notes
from kafka_steward.planning.solver.relief import relieve_disks
from kafka_steward.planning.solver.room import Chosen, RoomRules
from kafka_steward.planning.solver.sharded.plan import (
    MAX_LEADER_CELLS,
    MergedShards,
    Movement,
    balance_merged_shards,
    balance_shard,
    is_shardable,
    sharded_plan,
)
from kafka_steward.planning.solver.sharded.quotas import ShardQuota
from kafka_steward.planning.solver.sharded.summary import ShardSummary, summarize

#: Approximate partitions per shard: enough to make one solve worth its start, few enough to fit every executor.
SHARD_ROWS = 30_000

#: The values of `balance` for which only what has to move does, as in a heal.
_NEEDED_ALONE = ("racks", "none")
#: One small answer per shard, pickled; or the message of a PlanError.
ANSWER = pa.schema([pa.field("shard", pa.int32()), pa.field("answer", pa.binary()), pa.field("problem", pa.string())])
#: Moves and one answer per shard in one table, because a stage has one output. In the rows of moves, shard, answer and
#: problem are empty; in the row of the answer, all other columns are.
_RESULT = pa.schema([*ANSWER, *(field.with_nullable(True) for field in MOVES)])


#: The facts about other shards that a shard must know, or its part in the plan of all shards.
Part = OtherShards | ShardQuota | DiskShare | MergedShards | ChangedRows
#: A function that runs on one shard: its number and rows in, its moves and its answer out.
Kernel = Callable[[int, pa.Table], pa.Table]
T = TypeVar("T")


class Shards(ABC):
    """The partitions of a snapshot in shards, in this process or elsewhere."""

    @abstractmethod
    def run(self, kernel: Kernel) -> Sequence[pa.Table]:
        """Run a kernel on each shard, and return what it returns."""

    @abstractmethod
    def merge_into_one(self) -> Shards:
        """Return the same partitions as one shard."""

    def collect_answers(self, kernel: Kernel) -> list[Any]:
        """Run a kernel on each shard, and return the answers in order. Raises PlanError with a shard's problem."""
        return self.collect_moves(kernel)[1]

    def collect_moves(self, kernel: Kernel) -> tuple[pa.Table, list[Any]]:
        """Run a kernel on each shard, and return the moves and the answers in order. Raises PlanError."""
        results = pa.concat_tables(self.run(kernel))
        is_answer = pc.is_valid(results.column("shard"))
        rows = results.filter(is_answer).select(ANSWER.names).sort_by("shard").to_pylist()
        for row in rows:
            if row["problem"]:
                raise PlanError(row["problem"])
        # Our own kernels wrote them; Spark sends the kernels themselves in the same way.
        answers = [pickle.loads(row["answer"]) for row in rows]  # noqa: S301
        return results.filter(pc.invert(is_answer)).select(MOVES.names), answers


@dataclass(frozen=True)
class TableShards(Shards):
    """Shards as tables in this process."""

    tables: Sequence[pa.Table]

    @classmethod
    def of(cls, partitions: pa.Table, boundaries: Sequence[str]) -> TableShards:
        """Cut partitions into shards, given the first topic of each shard but the first."""
        rows = partitions.sort_by([("topic", "ascending"), ("partition", "ascending")])
        names = rows.column("topic").to_pylist()
        # Python compares strings by code points, which is also Arrow's sort order.
        ends = [0, *(bisect_left(names, first) for first in boundaries), len(names)]
        return cls([rows.slice(start, end - start) for start, end in pairwise(ends)])

    def run(self, kernel: Kernel) -> Sequence[pa.Table]:
        """Run a kernel on each shard, one after the other."""
        return [kernel(number, table) for number, table in enumerate(self.tables)]

    def merge_into_one(self) -> TableShards:
        """Return the same partitions as one shard."""
        return TableShards([pa.concat_tables(self.tables)])


_SPARED = (
    "A log directory of {} has failed: no replica moves there, because Kafka creates none that was in it, and the "
    "other brokers suffice."
)


@dataclass(frozen=True)
class PlanningJob:
    """The planning request, the same for every shard."""

    broker_table: pa.Table
    brokers: Brokers
    operation: Operation
    options: Options
    #: Live brokers with a failed log directory, which receive nothing as long as the others suffice.
    spared: tuple[int, ...] = ()
    #: The mean bytes per second into a partition, None if no rate is known.
    mean_rate: float | None = None

    @classmethod
    def of(cls, snapshot: SnapshotFolder, operation: str, options: Mapping[str, Any]) -> PlanningJob:
        """Return a validated request. Cordoned brokers, and those that are `spared`, receive no replica.

        Raises PlanError for a wrong option, for invalid brokers, for a named topic that the snapshot does not have, and
        if none of the requested topics takes part: each shard knows only its own topics, and would ignore the others.
        """
        requested = find_operation(operation)
        known = set(pc.unique(snapshot.partitions.column("topic")).to_pylist())
        places, given = requested not in REORDERING_OPERATIONS, requested is Operation.APPLY
        spared = spared_brokers(snapshot.brokers, snapshot.partitions) if places and not given else []
        closed = [*cordoned_brokers(snapshot.brokers), *spared] if places else []
        chosen = Options.of(requested, options).with_excluded(closed).with_topics(known, requested)
        named = {*chosen.topics, *chosen.named_topics}
        if chosen.reassignment:
            named = {name.topic for name in parse_reassignment(chosen.reassignment)}
        for unknown in sorted(named - known)[:1]:
            raise PlanError(f"The {requested.value} names the topic {unknown}, which the snapshot does not have.")
        brokers, mean_rate = Brokers.of(snapshot.brokers, chosen), find_mean_rate(snapshot.partitions)
        if chosen.balance == "load" and mean_rate is None:
            raise PlanError(
                "The option balance is 'load', and no partition's bytes in are known; let a watch of the cluster run "
                "for some minutes, which measures them, or choose balance 'bytes'."
            )
        return cls(snapshot.brokers, brokers, requested, chosen, tuple(spared), mean_rate)

    def build_problem(self, table: pa.Table) -> Problem:
        """Return a shard as arrays. Raises PlanError when its rows are invalid."""
        rows = PartitionTable.of(table, self.brokers, self.mean_rate)
        return Problem(rows, self.brokers, self.operation, self.options)

    def boundaries(self, partitions: pa.Table, shard_rows: int) -> list[str]:
        """Return the shard boundaries; there are none if all partitions have to be planned as one."""
        if self.operation in REORDERING_OPERATIONS:
            return []
        scarce = has_scarce_racks(self.brokers, _largest_factor(partitions))
        one_flow = scarce or not is_shardable(self.operation, self.options, len(partitions))
        if self.operation in EVEN_OPERATIONS and one_flow and self.options.balance not in _NEEDED_ALONE:
            return []
        return shard_boundaries(partitions.column("topic"), shard_rows)

    def compare_spreads(self, partitions: pa.Table) -> list[dict[str, Any]]:
        """Return what each `topic_spread` would move.

        Nothing where replicas are not balanced, or where that takes long and nobody asks for it.
        """
        evens_out = self.operation in EVEN_OPERATIONS and self.options.balance == "replicas"
        if not evens_out or (len(partitions) > SHARD_ROWS and not self.options.compare_spreads):
            return []
        return compare_spreads(self.build_problem(TableShards.of(partitions, []).tables[0]))

    def build_proof(self, measures: Measures, snapshot: SnapshotFolder) -> dict[str, Any]:
        """Return the proof of the plan, without its digest."""
        fields = proof_fields(measures, self.brokers, self.operation, self.options)
        racks = self.broker_table.sort_by("broker")["rack"].to_pylist() if self.options.rack_aware else []
        return {
            **fields,
            "notes": [
                *fields["notes"],
                *(rack_notes(measures, self.brokers, racks) if racks else ()),
                *([_SPARED.format(name_brokers(self.spared))] if self.spared else ()),
            ],
            "largest_factor": _largest_factor(snapshot.partitions),
            "log_dirs_failed": brokers_with_lost_replicas(snapshot.partitions),
            "cluster_id": snapshot.cluster_id,
            "snapshot_digest": snapshot.digest,
        }


def _largest_factor(partitions: pa.Table) -> int:
    return int(pc.max(partitions.column("target_rf")).as_py() or 0)


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


def plan_snapshot(
    shards: Shards, job: PlanningJob, snapshot: SnapshotFolder, *, several: bool
) -> tuple[pa.Table, dict[str, Any]]:
    """Plan a snapshot in shards. Return the rows of the plan in order, and its proof without digest."""
    moves, measures = solve_shards(shards, job, snapshot.partitions, several=several)
    proof = job.build_proof(measures, snapshot)
    # Room would cost something else at each spread.
    frontier = [] if proof["limited_by_room"] else job.compare_spreads(snapshot.partitions)
    return order_plan(moves, job.brokers, job.options), {**proof, "frontier": frontier}


def solve_shards(shards: Shards, job: PlanningJob, partitions: pa.Table, *, several: bool) -> tuple[pa.Table, Measures]:
    """Plan all shards, and return the moves and their measures. They fit into the room that the brokers have."""
    moves, measures = _solve_freely(shards, job, partitions, several=several)
    if not brokers_without_room(moves, job.brokers, job.options).any():
        return moves, measures
    return _solve_within_room(shards, job, partitions, measures)


def _solve_within_room(
    shards: Shards, job: PlanningJob, partitions: pa.Table, free: Measures
) -> tuple[pa.Table, Measures]:
    """Plan all partitions as one, within the room of the brokers; `free` are the measures without regard to it.

    What leaves a broker makes room, unless a budget may leave it there, or no order was found in which it does in time.
    """
    rows = TableShards.of(partitions, []).tables[0]
    problem, ids = job.build_problem(rows), rows.column("topic_id").combine_chunks()
    every = np.full(len(job.brokers), not job.options.has_budget)
    counted, known = every, dict[bytes, Chosen]()
    while True:
        for last in (every, counted):
            ruled = replace(problem, room_rules=RoomRules(counted, last, known))
            candidate = _solve_by_operation(ruled, None)
            moves = planned_moves(candidate, job.brokers, ids, job.operation)
            lacking = brokers_without_room(moves, job.brokers, job.options)
            if not lacking.any():
                part = ChangedRows.of(candidate)
                moves, measures = _require_placement(_collect_plan(shards.merge_into_one(), job, [part]))
                # A plan that counts on less than what leaves may not be the best one.
                proven = bool((counted == every).all()) and all(chosen.proven for chosen in known.values())
                return moves, measures.limited_by_room(free, proven=proven)
        if not (counted & lacking).any():
            raise PlanError("No plan was found that fits into the log directories; this is an error of the planner.")
        counted = counted & ~lacking


def _solve_freely(
    shards: Shards, job: PlanningJob, partitions: pa.Table, *, several: bool
) -> tuple[pa.Table, Measures]:
    """Plan all shards without regard to room.

    Even plans are put together from shards. All partitions are planned as one if the shards have no solution with their
    quotas, or if one plan may move less and the partitions are not too many for it.
    """
    if not several:
        return _require_placement(_collect_plan(shards, job, None))
    if job.operation is Operation.RELIEVE:
        # The brokers that receive are those of all shards.
        return _require_placement(_collect_plan(shards.merge_into_one(), job, None))
    if job.operation in EVEN_OPERATIONS and job.options.balance == "replicas":
        return _solve_even_shards(shards, job, topics=len(pc.unique(partitions.column("topic"))))
    views = views_of_others(shards.collect_answers(_kernel(totals_of_shard, job)))
    if job.operation not in EVEN_OPERATIONS:
        return _require_placement(_collect_plan(shards, job, views))
    return _solve_shards_apart(shards, job, views)


def _solve_even_shards(shards: Shards, job: PlanningJob, *, topics: int) -> tuple[pa.Table, Measures]:
    # The flow of all leaders takes too long for more topics and brokers.
    leaders = topics * len(job.brokers) <= MAX_LEADER_CELLS
    summaries = shards.collect_answers(_kernel(partial(summarize_shard, leaders=leaders), job))
    parts = sharded_plan(job.brokers, summaries)
    plan = None if parts is None else _plan_within_budget(shards, job, parts.shard_quotas, parts.needs_one_flow)
    if parts is None or plan is None:
        merged = MergedShards(tuple(summary.topics for summary in summaries))
        # One flow over all partitions is exact where quotas are not.
        return _require_placement(_collect_plan(shards.merge_into_one(), job, [merged]))
    if parts.merged is not None and parts.needs_leaders_of_all(plan[2]):
        plan = _plan_within_budget(shards.merge_into_one(), job, [parts.merged]) or plan
    moves, measures, complete = plan
    return moves, parts.with_bound(measures, complete)


def _solve_shards_apart(shards: Shards, job: PlanningJob, views: Sequence[OtherShards]) -> tuple[pa.Table, Measures]:
    """Even out the disks or repair the racks: each shard does its part, and a budget chooses over all shards."""
    parts: Sequence[Part] = views
    band = None
    if job.options.balance == "bytes":
        loads = shards.collect_answers(_kernel(disk_load_of_shard, job, views))
        parts = shares = disk_shares(loads, views, job.brokers, job.options.tolerance)
        band = shares[0].band
    moves, measures, complete = _require_placement(_plan_within_budget(shards, job, parts))
    left = complete.replicas - measures.counts["replicas_moved"]
    notes = [] if band is None else [*disk_notes(band, complete.load.astype(np.float64), job.brokers)]
    notes += [*measures.notes, *([budget_note(left, exact=band is None)] if left else ())]
    counts = {**measures.counts, "lower_bound": max(measures.counts["lower_bound"] - left, 0)}
    return moves, replace(measures, counts=counts, notes=notes)


def _plan_within_budget(
    shards: Shards,
    job: PlanningJob,
    parts: Sequence[Part],
    rejects: Callable[[Movement], bool] = lambda _complete: False,
) -> tuple[pa.Table, Measures, Movement] | None:
    """Return the moves that the budget takes, their measures, and the movement of the complete plan.

    None if a shard cannot be placed in its part, or if the movement is rejected. Each shard is solved once: under a
    budget it answers with the rows that it would change, and then gets back those that the budget has chosen of all.
    """
    if not job.options.has_budget:
        if (plan := _collect_plan(shards, job, parts)) is None:
            return None
        complete = Movement.of_measures(plan[1])
        return None if rejects(complete) else (*plan, complete)
    answers = shards.collect_answers(_kernel(moved_rows_of_shard, job, parts))
    if None in answers:
        return None
    moved = MovedRows.combine([answer[0] for answer in answers])
    complete = Movement.of_rows(moved)
    if rejects(complete):
        return None
    waiting = moved.split_rows(~moved.choose(job.options.max_moves, job.options.max_bytes))
    plan = _collect_plan(shards, job, [answer[1].without(rows) for answer, rows in zip(answers, waiting, strict=True)])
    return None if plan is None else (*plan, complete)


def _collect_plan(shards: Shards, job: PlanningJob, others: Sequence[Part] | None) -> tuple[pa.Table, Measures] | None:
    """Return moves and measures, None if a shard cannot be placed within its quota."""
    moves, answers = shards.collect_moves(_kernel(plan_shard, job, others))
    return None if None in answers else (moves, combine_shards(answers))


def _require_placement(plan: T | None) -> T:
    if plan is None:
        raise PlanError("No placement was found within the floors and ceilings; this is an error of the planner.")
    return plan


def totals_of_shard(job: PlanningJob, _number: int, table: pa.Table) -> tuple[ShardTotals, None]:
    """Answer with the totals of a shard, which all shards must know."""
    return shard_totals(job.build_problem(table)), None


def summarize_shard(job: PlanningJob, _number: int, table: pa.Table, *, leaders: bool) -> tuple[ShardSummary, None]:
    """Answer with the summary that the quotas of an even plan require, with the shard's leaders or not."""
    setup = BalanceSetup.of(job.build_problem(table))
    soft = bool(setup.to_place.receive_excluded.any())
    return summarize(setup.to_place, setup.bounds, leaders=leaders, soft=soft), None


def disk_load_of_shard(
    job: PlanningJob, others: Sequence[OtherShards], number: int, table: pa.Table
) -> tuple[Floats, None]:
    """Answer with the bytes that a shard has on each broker before disks are balanced."""
    problem = job.build_problem(table)
    return disk_load(problem, fill_missing(problem, others[number])), None


def moved_rows_of_shard(
    job: PlanningJob, parts: Sequence[Part], number: int, table: pa.Table
) -> tuple[tuple[MovedRows, ChangedRows], None]:
    """Answer with the rows of a shard that the complete plan changes."""
    problem = job.build_problem(table)
    candidate = _solve_shard(problem, parts[number])
    return (MovedRows.of(candidate, problem), ChangedRows.of(candidate)), None


def plan_shard(
    job: PlanningJob, others: Sequence[Part] | None, number: int, table: pa.Table
) -> tuple[Measures, pa.Table]:
    """Plan a shard: the answer is its measures. `others` has one entry per shard, and is None for an only shard."""
    problem = job.build_problem(table)
    part = None if others is None else others[number]
    candidate = _solve_shard(problem, part)
    moves = planned_moves(candidate, problem.brokers, table.column("topic_id").combine_chunks(), job.operation)
    # One of many shards cannot search prices: those are of the whole cluster.
    alone = part is None or (isinstance(part, MergedShards) and part.quota is None)
    prices = _find_shard_prices(job, candidate, table, moves) if alone else []
    return measure_candidate(candidate, problem, prices), moves


def _solve_shard(problem: Problem, part: Part | None) -> CandidatePlan:
    if isinstance(part, ChangedRows):
        return part.apply_to(problem.rows)
    if isinstance(part, ShardQuota):
        return balance_shard(problem, part)
    if isinstance(part, MergedShards):
        merged = balance_merged_shards(problem, part)
        # With a quota, `solve_shards` has chosen what the budget takes.
        return cut_to_budget(merged, problem) if part.quota is None else merged
    if isinstance(part, DiskShare):
        return balance_disks(problem, part).put_demoted_last(problem.brokers.demoted)
    return _solve_by_operation(problem, part)


#: The solvers of operations that move none of the replicas in place, or those that they are told to.
_SOLVERS: Mapping[Operation, Callable[[Problem], CandidatePlan]] = {
    Operation.APPLY: apply_reassignment,
    Operation.LEADERS: even_out_leaders,
    Operation.DEMOTE: demote_brokers,
    Operation.PROMOTE: restore_orders,
}


def _solve_by_operation(problem: Problem, others: OtherShards | None) -> CandidatePlan:
    if problem.operation in _SOLVERS:
        return _SOLVERS[problem.operation](problem)
    demoted = problem.brokers.demoted
    if problem.operation is Operation.RELIEVE:
        return relieve_disks(problem).put_demoted_last(demoted)
    if problem.operation not in EVEN_OPERATIONS:
        return fill_missing(problem, others).put_demoted_last(demoted)
    if problem.options.balance in _NEEDED_ALONE:
        repaired = fill_missing(problem, others).put_demoted_last(demoted)
        # For several shards, `solve_shards` chooses among the rows of all.
        return cut_to_budget(repaired, problem) if others is None else repaired
    if problem.options.balance == "load":
        return balance_load(problem).put_demoted_last(demoted)
    bytes_first = problem.options.balance == "bytes"
    balanced = balance_disks(problem).put_demoted_last(demoted) if bytes_first else balance_replicas(problem)
    return cut_to_budget(balanced, problem)


def _find_shard_prices(job: PlanningJob, candidate: CandidatePlan, table: pa.Table, moves: pa.Table) -> list[int]:
    """Return prices that prove an even placement minimal; empty without such prices, or if the search takes long."""
    if candidate.leader_prices is not None:
        proven: list[int] = candidate.leader_prices[job.brokers.usable].tolist()
        return proven
    cells = len(candidate.rows.topics) * len(job.brokers) ** 2
    # Prices prove only plans that make everything even.
    if job.options.leaves_uneven or job.operation not in EVEN_OPERATIONS or cells > MAX_EXACT_CELLS:
        return []
    touched = table.filter(pa.array(candidate.disposition == Disposition.PLANNED))
    prices = find_prices(build_outcome(job.broker_table, touched, moves, job.options.to_json(job.operation)))
    return [] if prices is None else prices.tolist()


def _kernel(work: Callable[..., tuple[Any, pa.Table | None]], *given: Any) -> Kernel:
    """Return a kernel of some work, which takes what is given, a shard's number and its rows."""
    return partial(_run_kernel, partial(work, *given))


def _run_kernel(work: Callable[[int, pa.Table], tuple[Any, pa.Table | None]], number: int, rows: pa.Table) -> pa.Table:
    """Run some work on a shard, and return its moves, and in a last row its answer: None if it is infeasible."""
    answer: Any = None
    moves, problem = None, None
    try:
        answer, moves = work(number, rows)
    except Infeasible:
        pass
    except PlanError as error:
        problem = str(error)
    row = pa.Table.from_pydict({"shard": [number], "answer": [pickle.dumps(answer)], "problem": [problem]}, ANSWER)
    tables = (_RESULT.empty_table(), moves, row)
    return pa.concat_tables([table for table in tables if table is not None], promote_options="default")
