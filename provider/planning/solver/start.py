"""The inputs of an even plan: the partitions that it is for, and the floors and ceilings that it has to meet."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kafka_steward.errors import PlanError
from kafka_steward.planning.solver.arrays import Bools, Brokers, Ints
from kafka_steward.planning.solver.heal import broker_shares
from kafka_steward.planning.solver.quotas import fair_bounds, rack_bounds_of
from kafka_steward.planning.solver.rebalance import Bounds, Shape
from kafka_steward.planning.solver.selection import Case, Fate, chosen

__all__ = ["Start", "broker_bounds", "groups_of", "rack_tables"]


@dataclass(frozen=True)
class Start:
    """The inputs of a shard: its rows' dispositions, the planned rows as a shape, their bounds, and old places."""

    fate: Ints
    planned: Ints
    index: Ints
    shape: Shape
    bounds: Bounds
    place: Ints

    @classmethod
    def of(cls, case: Case) -> Start:
        """Build the inputs from a problem.

        Raises PlanError when a partition is to have more replicas than there are brokers for it.
        """
        rows, brokers = case.rows, case.brokers
        usable = brokers.having("live", "new")
        fate = _fates(case, usable)
        planned = np.flatnonzero(fate == Fate.PLANNED)
        index = np.full(len(rows), -1)
        index[planned] = np.arange(len(planned))
        mine = (index[rows.row] >= 0) & usable[rows.broker]
        topics, topic = np.unique(rows.topic[planned], return_inverse=True)
        shape = Shape(
            topic=topic,
            factor=rows.target_rf[planned],
            size=rows.size[planned],
            row=index[rows.row[mine]],
            broker=rows.broker[mine],
            leads=rows.place[mine] == 0,
            group=groups_of(brokers),
            barred=usable & ~brokers.target,
        )
        return cls(fate, planned, index, shape, _bounds(case, shape, len(topics)), rows.place[mine])


def _fates(case: Case, usable: Bools) -> Ints:
    rows = case.rows
    fate = chosen(case)
    alive = ~case.brokers.having("failed")[rows.broker]
    lost = np.bincount(rows.row[alive], minlength=len(rows)) == 0
    fate = np.where(fate == Fate.UNTOUCHED, np.where(lost, Fate.ALL_REPLICAS_LOST, Fate.PLANNED), fate)
    room = np.full(len(rows), int(case.brokers.target.sum()))
    np.add.at(room, rows.row, (usable & ~case.brokers.target)[rows.broker])
    too_many = (fate == Fate.PLANNED) & (rows.target_rf > room)
    if too_many.any():
        row = int(too_many.argmax())
        name, factor = rows.name(row), rows.target_rf[row]
        raise PlanError(
            f"The partition {name} is to have {factor} replicas, and only {room[row]} brokers may hold one."
        )
    # Excluded partitions were not requested: their state is no shortcoming of the plan.
    return np.asarray(np.where(fate == Fate.EXCLUDED, Fate.UNTOUCHED, fate), np.int64)


def groups_of(brokers: Brokers) -> Ints:
    """Return each broker's rack, and one group more for brokers without a rack.

    In the flow, that group does not differ from a rack.
    """
    rack = brokers.rack
    return np.where(rack < 0, int(rack.max(initial=-1)) + 1, rack)


def _bounds(case: Case, shape: Shape, topics: int) -> Bounds:
    # Without any partition there is still a table, with no rows.
    factors, which = np.unique(shape.factor if len(shape.factor) else np.ones(1, np.int64), return_inverse=True)
    which = which[: len(shape.factor)]
    counts = np.zeros((topics, len(factors)), np.int64)
    np.add.at(counts, (shape.topic, which), 1)
    usable = case.brokers.having("live", "new")
    share_of = [broker_shares(case.brokers, usable, factor, own_rack=case.own_rack) for factor in factors.tolist()]
    low, high, least, most = fair_bounds(counts, share_of)
    holds = np.zeros_like(low)
    np.add.at(holds, (shape.topic[shape.row], shape.broker), 1)
    # Excluded brokers have a share like any other, but cannot receive what they lack. The others then come as near to
    # their shares as possible.
    barred = usable & ~case.brokers.target
    low[:, barred], high[:, barred] = (np.minimum(bound, holds)[:, barred] for bound in (low, high))
    total = holds.sum(axis=0)
    least[barred], most[barred] = (np.minimum(bound, total)[barred] for bound in (least, most))
    return Bounds(_rack_bounds(case, shape, usable), (low, high), (least, most))


def _rack_bounds(case: Case, shape: Shape, usable: Bools) -> tuple[Ints, Ints]:
    """Return bounds per row and group.

    A receive-excluded broker counts for the rows that it holds, and for no other.
    """
    barred = np.flatnonzero(shape.barred)
    keys = np.zeros((len(shape.factor), 1 + len(barred)), np.int64)
    keys[:, 0] = shape.factor
    column, at = np.nonzero(barred[:, None] == shape.broker)
    keys[shape.row[at], 1 + column] = 1
    kinds, which = np.unique(keys, axis=0, return_inverse=True)
    low, high = np.zeros((2, len(kinds), int(shape.group.max()) + 1), np.int64)
    for kind, (factor, *holds) in enumerate(kinds.tolist()):
        reach = usable.copy()
        reach[barred] = np.array(holds, bool)
        tables = rack_tables(case, shape.group, [factor], reach)
        low[kind], high[kind] = tables[0][0], tables[1][0]
    return low[which.ravel()], high[which.ravel()]


def broker_bounds(
    case_brokers: Brokers, factors: Ints, counts: Ints, held: Ints, *, own_rack: bool
) -> tuple[Ints, Ints]:
    """Return floors and ceilings of the brokers.

    `counts` is the number of partitions of each factor; `held` is the number of replicas that the brokers hold now.
    """
    usable = case_brokers.having("live", "new")
    share_of = [broker_shares(case_brokers, usable, factor, own_rack=own_rack) for factor in factors.tolist()]
    _, _, least, most = fair_bounds(counts[None, :], share_of)
    barred = usable & ~case_brokers.target
    least[barred], most[barred] = (np.minimum(bound, held)[barred] for bound in (least, most))
    return least, most


def rack_tables(case: Case, group: Ints, factors: list[int], reach: Bools) -> tuple[Ints, Ints]:
    """Return the bounds per factor and group, where only the brokers in `reach` count."""
    groups = int(group.max()) + 1
    sizes = np.bincount(group[reach], minlength=groups)
    racked = np.unique(group[case.brokers.rack >= 0])
    loose = int((reach & (case.brokers.rack < 0)).sum())
    low, high = np.zeros((2, len(factors), groups), np.int64)
    for at, factor in enumerate(factors):
        bounds = rack_bounds_of(factor, sizes[racked].tolist(), loose, own_rack=case.own_rack)
        low[at, racked], high[at, racked] = np.maximum(bounds[0], 0), bounds[1]
        if loose:
            high[at, -1] = min(factor, loose)
    return low, high
