"""The kernels that run on an executor, one shard at a time: Arrow table in, Arrow table out, independent of Spark.

A kernel carries everything it needs in plain values, so that Spark can send it along. An error in the data is returned
as a message in the answer: an exception raised here would be buried in a Java stack trace.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_steward.assignment import Operation
from kafka_steward.errors import PlanError
from kafka_steward.planning.checker.certificate import find_prices
from kafka_steward.planning.checker.constraints import outcome_of
from kafka_steward.planning.files.formats import SnapshotFolder, cordoned_in
from kafka_steward.planning.files.options import EVEN, Options, operation_of
from kafka_steward.planning.files.reassignment import parse_reassignment
from kafka_steward.planning.solver.balance import BalanceSetup, balance_replicas
from kafka_steward.planning.solver.budget import within_budget
from kafka_steward.planning.solver.candidate import MOVES, CandidatePlan, apply_reassignment, moves
from kafka_steward.planning.solver.disks import balance_disks
from kafka_steward.planning.solver.fill_missing import OtherShards, ShardTotals, heal, shard_totals
from kafka_steward.planning.solver.flow import Infeasible
from kafka_steward.planning.solver.problem import Brokers, Disposition, PartitionTable, Problem
from kafka_steward.planning.solver.proof import Measures, measure
from kafka_steward.planning.solver.sharded.plan import balance_shard
from kafka_steward.planning.solver.sharded.quotas import ShardQuota
from kafka_steward.planning.solver.sharded.summary import summarize

#: Topics times brokers squared, up to which prices are searched.
MAX_PRICED_CELLS = 20_000_000

#: One small answer per shard: JSON, or the message of a PlanError.
ANSWER = pa.schema([pa.field("shard", pa.int32()), pa.field("answer", pa.string()), pa.field("problem", pa.string())])
#: One `ShardSummary` per shard, as bytes.
SUMMARY = pa.schema([pa.field("shard", pa.int32()), pa.field("answer", pa.binary()), pa.field("problem", pa.string())])
#: Moves (answer and problem empty) and one answer per shard (topic empty), in one table, because a stage has one
#: output.
RESULT = pa.schema([*ANSWER, *(field.with_nullable(True) for field in MOVES)])


@dataclass(frozen=True)
class PlanningJob:
    """The planning request, the same for every shard."""

    brokers: pa.Table
    operation: Operation
    options: Options

    @classmethod
    def of(cls, snapshot: SnapshotFolder, operation: str, options: Mapping[str, Any]) -> PlanningJob:
        """Return a validated request. Cordoned brokers receive no replica.

        Raises PlanError for a wrong option, and for a named topic that the snapshot does not have: each shard knows
        only its own topics, so that it would ignore an unknown name.
        """
        requested = operation_of(operation)
        chosen = Options.of(requested, options).excluding(cordoned_in(snapshot.brokers))
        named = set(chosen.topics)
        if requested is Operation.APPLY:
            named = {name.topic for name in parse_reassignment(chosen.reassignment)}
        known = set(pc.unique(snapshot.partitions.column("topic")).to_pylist()) if named else set()
        for unknown in sorted(named - known)[:1]:
            raise PlanError(f"The {requested.value} names the topic {unknown}, which the snapshot does not have.")
        return cls(snapshot.brokers, requested, chosen)

    def arrays(self) -> Brokers:
        """Return the brokers as arrays."""
        return Brokers.of(self.brokers, self.options)

    def problem(self, table: pa.Table) -> Problem:
        """Return a shard as arrays. Raises PlanError when its rows are invalid."""
        brokers = self.arrays()
        return Problem(PartitionTable.of(table, brokers), brokers, self.operation, self.options)


def totals_of_shard(job: PlanningJob, number: int, table: pa.Table) -> pa.Table:
    """Count what the shards must know of each other, as `ANSWER`."""

    def answer() -> pa.Table:
        totals = shard_totals(job.problem(table))
        return _answer(number, json.dumps(asdict(totals), default=np.ndarray.tolist), ANSWER)

    return _guarded(number, answer, ANSWER)


def summarize_shard(job: PlanningJob, number: int, table: pa.Table, *, leaders: bool = True) -> pa.Table:
    """Count what the quotas of an even plan require of a shard, with its leaders or not, as `SUMMARY`."""

    def answer() -> pa.Table:
        setup = BalanceSetup.of(job.problem(table))
        return _answer(number, summarize(setup.to_place, setup.bounds, leaders=leaders).packed(), SUMMARY)

    return _guarded(number, answer, SUMMARY)


def plan_shard(
    job: PlanningJob, others: Sequence[OtherShards | ShardQuota] | None, number: int, table: pa.Table
) -> pa.Table:
    """Plan a shard, as `RESULT`. `others` has one entry per shard; it is None if there is only one shard."""

    def answer() -> pa.Table:
        problem = job.problem(table)
        candidate = _candidate_plan(problem, None if others is None else others[number])
        found = moves(candidate, problem.brokers, table.column("topic_id").combine_chunks(), job.operation)
        prices = _prices(job, candidate, table, found) if others is None else []
        measures = measure(candidate, problem.brokers, prices).to_json()
        return pa.concat_tables([_filled(found, RESULT), _answer(number, measures, RESULT)])

    return _guarded(number, answer, RESULT)


def _candidate_plan(problem: Problem, others: OtherShards | ShardQuota | None) -> CandidatePlan:
    if isinstance(others, ShardQuota):
        return balance_shard(problem, others)
    if problem.operation in EVEN:
        balance = balance_disks if problem.options.balance == "bytes" else balance_replicas
        return within_budget(balance(problem), problem)
    if problem.operation is Operation.APPLY:
        return apply_reassignment(problem)
    return heal(problem, others)


def _prices(job: PlanningJob, candidate: CandidatePlan, table: pa.Table, found: pa.Table) -> list[int]:
    """Return prices that prove an even placement minimal; none if there are none, or the search would take long."""
    options = job.options
    # Nothing can be proven of a plan that options keep from evening out everything.
    partial = options.exclude_brokers or options.max_moves or options.max_bytes or options.balance == "bytes"
    cells = len(candidate.rows.topics) * len(job.brokers) ** 2
    if job.operation not in EVEN or partial or cells > MAX_PRICED_CELLS:
        return []
    touched = table.filter(pa.array(candidate.disposition == Disposition.PLANNED))
    prices = find_prices(outcome_of(job.brokers, touched, found, options.to_json(job.operation)))
    return [] if prices is None else prices.tolist()


def read_totals(answers: list[str]) -> list[OtherShards]:
    """Return each shard's view of the others, from the answers in order of the shards."""
    parts = []
    for text in answers:
        value = json.loads(text)
        factors = {int(factor): count for factor, count in value["factors"].items()}
        parts.append(ShardTotals(np.array(value["held"]), np.array(value["led"]), value["units"], factors))
    total, before = ShardTotals.total(parts), np.cumsum([0, *(part.units for part in parts)]).tolist()
    return [OtherShards(total, units) for units in before[: len(parts)]]


def read_measures(answers: list[str]) -> Measures:
    """Return the measures of all shards together."""
    return Measures.total([Measures.from_json(text) for text in answers])


def _guarded(number: int, answer: Callable[[], pa.Table], schema: pa.Schema) -> pa.Table:
    try:
        return answer()
    except Infeasible:
        # The shard has no placement within its quota: the caller has to plan differently.
        return _answer(number, "", schema)
    except PlanError as error:
        return _filled(pa.table({"shard": pa.array([number], pa.int32()), "problem": [str(error)]}), schema)


def _answer(number: int, value: str | bytes, schema: pa.Schema) -> pa.Table:
    answer = pa.array([value], schema.field("answer").type)
    return _filled(pa.table({"shard": pa.array([number], pa.int32()), "answer": answer}), schema)


def _filled(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        table.column(field.name) if field.name in table.column_names else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
