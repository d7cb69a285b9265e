"""Plan which replica of each partition leads, by the order of its replicas: nothing is copied, and no replica moves."""

from __future__ import annotations

import numpy as np

from kafka_steward.planning.solver.candidate import CandidatePlan
from kafka_steward.planning.solver.leaders import (
    Replicas,
    balanced_leaders_with_prices,
    leader_bounds,
    move_chosen_first,
    uneven_note,
)
from kafka_steward.planning.solver.problem import Bools, Disposition, Ints, Problem, held_dispositions, positions_in


def even_out_leaders(problem: Problem) -> CandidatePlan:
    """Return new orders of all rows by which every topic and the whole cluster is led evenly.

    The fewest leaders change, as the prices prove. A new leader comes first, and the others keep their order.
    """
    rows, brokers = problem.rows, problem.brokers
    able = _may_lead(problem)
    disposition = _order_dispositions(problem, able)
    planned = np.flatnonzero(disposition == Disposition.PLANNED)
    if len(planned) == 0:
        return CandidatePlan(rows, disposition, rows.row, rows.broker, bound=0)
    index = positions_in(planned, len(rows))
    mine = able & (index[rows.row] >= 0)
    topic = np.unique(rows.topic[planned], return_inverse=True)[1]
    leads = rows.replica_positions[mine] == 0
    replicas = Replicas(index[rows.row[mine]], rows.broker[mine], leads, np.zeros_like(leads))
    choices = leader_bounds(topic, replicas, brokers.receivers, alike=brokers.has_equal_capacities)
    leader, evenness, prices = balanced_leaders_with_prices(topic, replicas, choices)
    broker = _put_first(problem, planned, leader)
    notes = () if evenness == "even" else (uneven_note(evenness),)
    return CandidatePlan(rows, disposition, rows.row, broker, 0, notes, evenness, prices)


def _may_lead(problem: Problem) -> Bools:
    """Return a mask of the replicas that may lead: in sync and on a usable broker; the preferred leader may lag."""
    rows = problem.rows
    in_sync = ~rows.behind | (rows.replica_positions == 0)
    return np.asarray(problem.brokers.usable[rows.broker] & ~rows.lost & in_sync, bool)


def _order_dispositions(problem: Problem, able: Bools) -> Ints:
    disposition = held_dispositions(problem)
    nobody = np.bincount(problem.rows.row[able], minlength=len(problem.rows)) == 0
    free = disposition == Disposition.UNTOUCHED
    disposition[free] = np.where(nobody[free], Disposition.NO_CANDIDATE, Disposition.PLANNED)
    # Excluded partitions were not requested: their state is no shortcoming of the plan.
    disposition[disposition == Disposition.EXCLUDED] = Disposition.UNTOUCHED
    return disposition


def _put_first(problem: Problem, at: Ints, leader: Ints) -> Ints:
    """Return the brokers of all replicas, with the `leader` of each row in `at` before the others."""
    rows, broker = problem.rows, problem.rows.broker.copy()
    chosen = np.full(len(rows), -1)
    chosen[at] = leader
    move_chosen_first(broker, rows.row_starts[at], np.flatnonzero(broker == chosen[rows.row]))
    return broker
