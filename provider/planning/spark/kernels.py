"""The kernels that run on an executor, one shard at a time: Arrow table in, Arrow table out, independent of Spark.

A kernel carries everything it needs in plain values, so that Spark can send it along. An error in the data is returned
as a message in the answer: an exception raised here would be buried in a Java stack trace.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_steward.assignment import Operation
from kafka_steward.errors import PlanError
from kafka_steward.planning.checker.certificate import find_prices
from kafka_steward.planning.checker.judge import position_of
from kafka_steward.planning.files.options import EVEN, Options
from kafka_steward.planning.solver.apply import apply_given
from kafka_steward.planning.solver.arrays import Brokers, Rows
from kafka_steward.planning.solver.budget import within_budget
from kafka_steward.planning.solver.drafts import MOVES, Draft, moves, reasons
from kafka_steward.planning.solver.even import even_bytes, even_out
from kafka_steward.planning.solver.flows import Infeasible
from kafka_steward.planning.solver.heal import Others, Survey, heal, survey
from kafka_steward.planning.solver.measures import Measures, measured, spread_badly
from kafka_steward.planning.solver.selection import Case, Fate
from kafka_steward.planning.solver.shares import Share
from kafka_steward.planning.solver.start import Start
from kafka_steward.planning.solver.tally import tally, weights

__all__ = [
    "ANSWER",
    "RESULT",
    "TALLY",
    "Job",
    "plan_slice",
    "read_measures",
    "read_surveys",
    "survey_slice",
    "tally_slice",
]

#: Topics times brokers squared, up to which prices are searched.
MAX_PRICED_CELLS = 20_000_000

#: One small answer per shard: JSON, or the message of a PlanError.
ANSWER = pa.schema([pa.field("slice", pa.int32()), pa.field("answer", pa.string()), pa.field("problem", pa.string())])
#: One shard summary (`Tally`) per shard, as bytes.
TALLY = pa.schema([pa.field("slice", pa.int32()), pa.field("answer", pa.binary()), pa.field("problem", pa.string())])
#: Moves (answer and problem empty) and one answer per shard (topic empty), in one table, because a stage has one
#: output.
RESULT = pa.schema([*ANSWER, *(field.with_nullable(True) for field in MOVES)])


@dataclass(frozen=True)
class Job:
    """The planning request, the same for every shard."""

    brokers: pa.Table
    operation: Operation
    options: Options

    def arrays(self) -> Brokers:
        """Return the brokers as arrays."""
        return Brokers.of(self.brokers, self.options.exclude_brokers, rack_aware=self.options.rack_aware)

    @property
    def own_rack(self) -> bool:
        """True if a broker without a rack is a rack of its own."""
        return self.options.rackless == "own-rack"

    def case(self, table: pa.Table) -> Case:
        """Return a shard as arrays. Raises PlanError when its rows are invalid."""
        brokers = self.arrays()
        return Case(Rows.of(table, brokers), brokers, self.operation, self.options)


def survey_slice(job: Job, number: int, table: pa.Table) -> pa.Table:
    """Count what the shards must know of each other, as `ANSWER`."""

    def answer() -> pa.Table:
        return _answer(number, survey(job.case(table)))

    return _guarded(number, answer, ANSWER)


def tally_slice(job: Job, number: int, table: pa.Table, *, leaders: bool = True) -> pa.Table:
    """Count what the quotas of an even plan require of a shard, as `TALLY`.

    With `leaders`, count its leaders too.
    """

    def answer() -> pa.Table:
        start = Start.of(job.case(table))
        packed = tally(start.shape, start.bounds, leaders=leaders).packed()
        return _filled(pa.table({"slice": pa.array([number], pa.int32()), "answer": [packed]}), TALLY)

    return _guarded(number, answer, TALLY)


def plan_slice(job: Job, others: Sequence[Others | Share] | None, number: int, table: pa.Table) -> pa.Table:
    """Plan a shard, as `RESULT`. `others` has one entry per shard; it is None if there is only one shard."""

    def answer() -> pa.Table:
        case = job.case(table)
        draft = _draft(case, None if others is None else others[number])
        rows = case.rows
        bad = spread_badly(rows.row, rows.broker, len(rows), case.brokers, own_rack=case.own_rack)
        why = reasons(draft, case.brokers, bad, job.operation)
        found = moves(draft, case.brokers, table.column("topic_id").combine_chunks(), why)
        apart = others is not None
        return _together(found, _answer(number, _measured(draft, case, _prices(job, draft, table, found, apart=apart))))

    return _guarded(number, answer, RESULT)


def _measured(draft: Draft, case: Case, prices: list[int]) -> Measures:
    found = measured(draft, case.brokers, prices, own_rack=case.own_rack)
    weight = int(weights(draft.rows.size)[draft.row[draft.added]].sum())
    return replace(found, counts={**found.counts, "weight_moved": weight})


def _prices(job: Job, draft: Draft, table: pa.Table, found: pa.Table, *, apart: bool) -> list[int]:
    """Return prices that prove an even placement minimal.

    The list is empty if there are no such prices, or if the search would take too long.
    """
    cells = len(draft.rows.topics) * len(job.brokers) ** 2
    if apart or job.operation not in EVEN or _partial(job.options) or cells > MAX_PRICED_CELLS:
        return []
    touched = table.filter(pa.array(draft.fate == Fate.PLANNED))
    position = position_of(job.brokers, touched, found, job.options.to_json(job.operation))
    prices = find_prices(position)
    return [] if prices is None else [int(price) for price in prices]


def _draft(case: Case, others: Others | Share | None) -> Draft:
    if isinstance(others, Share):
        return even_out(case, others)
    if case.operation in EVEN:
        even = even_bytes(case) if case.options.balance == "bytes" else even_out(case)
        return _budgeted(even, case)
    if case.operation is Operation.APPLY:
        return apply_given(case)
    return heal(case, others)


def _partial(options: Options) -> bool:
    """Return True if the options keep the plan from evening out everything.

    Nothing can then be proven of an even placement.
    """
    return bool(options.exclude_brokers or options.max_moves or options.max_bytes or options.balance == "bytes")


def _budgeted(draft: Draft, case: Case) -> Draft:
    rows, brokers = case.rows, case.brokers
    urgent = spread_badly(rows.row, rows.broker, len(rows), brokers, own_rack=case.own_rack)
    off = rows.row[~brokers.having("live", "new")[rows.broker]]
    urgent |= (rows.degree != rows.target_rf) | np.isin(np.arange(len(rows)), off)
    return within_budget(draft, case, urgent)


def read_surveys(answers: list[str]) -> list[Others]:
    """Return each shard's view of the others, from the answers in order of the shards."""
    parts = []
    for text in answers:
        value = json.loads(text)
        factors = {int(factor): count for factor, count in value["factors"].items()}
        parts.append(Survey(np.array(value["held"]), np.array(value["led"]), value["units"], factors))
    total, before = Survey.total(parts), 0
    others = []
    for part in parts:
        others.append(Others(total, before))
        before += part.units
    return others


def read_measures(answers: list[str]) -> Measures:
    """Return the measures of all shards together."""
    kinds = {field.name: field.type for field in fields(Measures)}
    parts = []
    for text in answers:
        value: dict[str, Any] = json.loads(text)
        arrays: dict[str, Any] = {
            name: np.array(one) if kinds[name] == "Ints" else one for name, one in value.items() if name != "left"
        }
        parts.append(Measures(left=[(topic, number, reason) for topic, number, reason in value["left"]], **arrays))
    return Measures.total(parts)


def _guarded(number: int, answer: Callable[[], pa.Table], schema: pa.Schema) -> pa.Table:
    try:
        return answer()
    except Infeasible:
        # The shard has no placement within its quota: the caller has to plan differently.
        return _filled(pa.table({"slice": pa.array([number], pa.int32()), "answer": [""]}), schema)
    except PlanError as error:
        return _filled(pa.table({"slice": pa.array([number], pa.int32()), "problem": [str(error)]}), schema)


def _answer(number: int, value: Survey | Measures) -> pa.Table:
    text = json.dumps({field.name: _plain(getattr(value, field.name)) for field in fields(value)})
    return _filled(pa.table({"slice": pa.array([number], pa.int32()), "answer": [text]}), ANSWER)


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _together(found: pa.Table, answer: pa.Table) -> pa.Table:
    return pa.concat_tables([_filled(found, RESULT), _filled(answer, RESULT)])


def _filled(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        table.column(field.name) if field.name in table.column_names else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
