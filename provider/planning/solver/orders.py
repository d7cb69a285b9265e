"""Plan which replica of each partition leads, by the order of its replicas: nothing is copied, and no replica moves."""

from __future__ import annotations

import numpy as np

from kafka_steward.assignment import name_some
from kafka_steward.planning.solver.candidate import CandidatePlan
from kafka_steward.planning.solver.leader_bytes import BY_BYTES, NEAR_BY_BYTES, LedBytes, even_out_bytes
from kafka_steward.planning.solver.leaders import (
    Replicas,
    balanced_leaders_with_prices,
    choose_leaders,
    leader_bounds,
    leader_candidates,
    uneven_note,
)
from kafka_steward.planning.solver.problem import (
    Bools,
    Disposition,
    Ints,
    Problem,
    held_dispositions,
    is_pair_in,
    positions_in,
)

#: Partitions that a note names; the others are only counted.
_NAMED = 10
_NOT_WITHIN = "A broker leads more than 1.1 times the mean of the bytes in, and it is not proven that one must."


def even_out_leaders(problem: Problem) -> CandidatePlan:
    """Return new orders of all rows by which every topic and the whole cluster is led evenly.

    The fewest leaders change, as the prices prove. Where it is known what producers bring, leaders are even by that
    instead, and few change. A new leader comes first, demoted brokers come last, and the others keep their order.
    """
    rows, brokers = problem.rows, problem.brokers
    able = _may_lead(problem)
    disposition = held_dispositions(problem)
    free = disposition == Disposition.UNTOUCHED
    disposition[free] = Disposition.PLANNED
    disposition[free & ~_has_one(problem, able)] = Disposition.NO_CANDIDATE
    planned = np.flatnonzero(disposition == Disposition.PLANNED)
    # Excluded partitions were not requested: their state is no shortcoming of the plan.
    disposition[disposition == Disposition.EXCLUDED] = Disposition.UNTOUCHED
    if len(planned) == 0:
        return CandidatePlan(rows, disposition, rows.row, rows.broker, bound=0)
    index = positions_in(planned, len(rows))
    mine = able & (index[rows.row] >= 0)
    topic = np.unique(rows.topic[planned], return_inverse=True)[1]
    leads = rows.replica_positions[mine] == 0
    replicas = Replicas(index[rows.row[mine]], rows.broker[mine], leads, np.zeros_like(leads))
    replicas = leader_candidates(replicas, brokers.demoted)
    if (rates := _known_rates(problem)) is not None:
        return _even_out_by_bytes(problem, disposition, planned, replicas, rates)
    choices = leader_bounds(topic, replicas, brokers.leading, alike=brokers.has_equal_capacities)
    leader, evenness, prices = balanced_leaders_with_prices(topic, replicas, choices)
    notes = () if evenness == "even" else (uneven_note(evenness),)
    broker = _put_in_order(problem, planned, leader)
    return CandidatePlan(rows, disposition, rows.row, broker, 0, notes, evenness, prices)


def _even_out_by_bytes(
    problem: Problem, disposition: Ints, planned: Ints, replicas: Replicas, rates: Ints
) -> CandidatePlan:
    """Return new orders by which no broker leads much more bytes in than the mean, or than one must."""
    found = _lead_by_bytes(problem, planned, replicas, rates)
    word, notes = (BY_BYTES, ()) if found.within else (NEAR_BY_BYTES, (_NOT_WITHIN,))
    broker = _put_in_order(problem, planned, found.leader)
    return CandidatePlan(
        problem.rows, disposition, problem.rows.row, broker, 0, notes, word, found.closed.astype(np.int64)
    )


def _known_rates(problem: Problem) -> Ints | None:
    """Return the bytes per second into each row; None if nothing is known to come in."""
    rates = problem.rows.bytes_per_s
    return rates if rates is not None and rates.any() else None


def _lead_by_bytes(problem: Problem, chosen: Ints, replicas: Replicas, rates: Ints) -> LedBytes:
    """Return the leaders of the `chosen` rows, of which `replicas` are the candidates, even by bytes in."""
    rows, brokers = problem.rows, problem.brokers
    others = np.ones(len(rows), bool)
    others[chosen] = False
    leads = rows.broker[rows.row_starts[:-1]]
    besides = np.bincount(leads[others], rates[others], len(brokers)).astype(np.float64)
    weight = np.where(brokers.leading, [float(capacity) for capacity in brokers.capacity], 0.0)
    return even_out_bytes(replicas, rates[chosen], besides, weight)


def demote_brokers(problem: Problem) -> CandidatePlan:
    """Return new orders of the rows in which a demoted broker leads or stands before another one, and of no others.

    What the demoted brokers led is taken over so that the leaders of the cluster are as even as they can be then: by
    what producers bring, where that is known, else by their number.
    """
    rows, first = problem.rows, problem.rows.row_starts[:-1]
    demoted = problem.brokers.demoted[rows.broker]
    before = demoted[:-1] & ~demoted[1:] & (rows.row[:-1] == rows.row[1:])
    leads = demoted[first]
    due = leads.copy()
    due[rows.row[:-1][before]] = True
    able = _may_lead(problem) & ~demoted
    disposition = held_dispositions(problem)
    free = disposition == Disposition.UNTOUCHED
    disposition[free] = Disposition.PLANNED
    disposition[free & leads & ~_has_one(problem, able)] = Disposition.NO_CANDIDATE
    disposition[~due | (disposition == Disposition.EXCLUDED)] = Disposition.UNTOUCHED
    planned = disposition == Disposition.PLANNED
    chooses = planned & leads
    leader = rows.broker[first]
    able &= chooses[rows.row]
    rates = _known_rates(problem)
    if rates is None:
        load = np.bincount(leader[~chooses], minlength=len(problem.brokers))
        at, chosen = choose_leaders(rows.row[able], rows.broker[able], np.zeros(int(able.sum()), bool), load)
    elif len(at := np.flatnonzero(chooses)):
        index, none = positions_in(at, len(rows)), np.zeros(int(able.sum()), bool)
        replicas = Replicas(index[rows.row[able]], rows.broker[able], none, none)
        chosen = _lead_by_bytes(problem, at, replicas, rates).leader
    else:
        chosen = at
    leader[at] = chosen
    broker = _put_in_order(problem, np.flatnonzero(planned), leader[planned])
    return CandidatePlan(rows, disposition, rows.row, broker, bound=0)


def restore_orders(problem: Problem) -> CandidatePlan:
    """Return the orders before the demotions, of the rows with a promoted broker that have not changed since.

    Brokers that are still demoted stay last.
    """
    rows, brokers = problem.rows, problem.brokers
    concerned = np.bincount(rows.row[brokers.promoted[rows.broker]], minlength=len(rows)) > 0
    restored = rows.broker.copy()
    known = is_pair_in(rows.row, rows.broker, rows.before_row, rows.before_broker)
    lengths = np.bincount(rows.before_row, minlength=len(rows))
    same = np.bincount(rows.row[known], minlength=len(rows)) == rows.replica_count
    same &= (lengths == rows.replica_count) & concerned
    restored[same[rows.row]] = rows.before_broker[same[rows.before_row]]
    last = brokers.demoted[restored] & same[rows.row]
    place = rows.replica_positions + np.where(last, int(rows.replica_count.max(initial=0)), 0)
    restored = restored[np.lexsort((place, rows.row))]
    differs = np.bincount(rows.row[restored != rows.broker], minlength=len(rows)) > 0
    disposition = held_dispositions(problem)
    disposition[disposition == Disposition.UNTOUCHED] = Disposition.PLANNED
    disposition[~differs | (disposition == Disposition.EXCLUDED)] = Disposition.UNTOUCHED
    broker = np.where((disposition == Disposition.PLANNED)[rows.row], restored, rows.broker)
    changed = np.flatnonzero(concerned & (rows.changed_since | ((lengths > 0) & ~same)))
    names = name_some([rows.partition_name(row) for row in changed[:_NAMED].tolist()], _NAMED, len(changed))
    notes = (f"Changed since the demotion, and left as it is: {names}.",) if len(changed) else ()
    return CandidatePlan(rows, disposition, rows.row, broker, 0, notes)


def _may_lead(problem: Problem) -> Bools:
    """Return a mask of the replicas that may lead: in sync and on a usable broker; the preferred leader may lag."""
    rows = problem.rows
    in_sync = ~rows.behind | (rows.replica_positions == 0)
    return np.asarray(problem.brokers.usable[rows.broker] & ~rows.lost & in_sync, bool)


def _has_one(problem: Problem, able: Bools) -> Bools:
    """Return a mask of the rows with a replica that is `able`."""
    return np.asarray(np.bincount(problem.rows.row[able], minlength=len(problem.rows)) > 0, bool)


def _put_in_order(problem: Problem, at: Ints, leader: Ints) -> Ints:
    """Return the brokers of all replicas; those of each row in `at` have the `leader` first and the demoted last."""
    rows = problem.rows
    chosen, changes = np.full(len(rows), -1), np.zeros(len(rows), bool)
    chosen[at], changes[at] = leader, True
    last = problem.brokers.demoted[rows.broker] & changes[rows.row]
    place = rows.replica_positions + np.where(last, int(rows.replica_count.max(initial=0)), 0)
    place[rows.broker == chosen[rows.row]] = -1
    return rows.broker[np.lexsort((place, rows.row))]
