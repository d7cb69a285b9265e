"""Rebalance, expand and drain, for one shard: fair shares, the placement, leaders, and the order of the replicas."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kafka_steward.planning.solver.aimed import lead_aimed
from kafka_steward.planning.solver.arrays import Ints, Rows
from kafka_steward.planning.solver.disks import Disks, Moved, even_disks
from kafka_steward.planning.solver.drafts import Draft
from kafka_steward.planning.solver.heal import heal
from kafka_steward.planning.solver.leaders import Slots, lead_evenly, succession, tiers
from kafka_steward.planning.solver.rebalance import Placed, place_evenly
from kafka_steward.planning.solver.selection import Case, Fate, chosen
from kafka_steward.planning.solver.shares import Share
from kafka_steward.planning.solver.start import Start, groups_of, rack_tables
from kafka_steward.planning.solver.takeover import takeover
from kafka_steward.planning.solver.within import place_within

__all__ = ["even_bytes", "even_out"]


def even_out(case: Case, share: Share | None = None) -> Draft:
    """Return new assignments of all rows: every topic and the whole cluster even, by the fewest moves.

    With a share, the shard is one of several, and its bound is not computed here. Raises Infeasible if the share cannot
    be met.
    """
    rows = case.rows
    start = Start.of(case)
    if len(start.planned) == 0:
        return Draft(rows, start.fate, rows.row, rows.broker, bound=0)
    if share is None:
        placed = place_evenly(start.shape, start.bounds)
    else:
        row, broker = place_within(start.shape, start.bounds.rack, share.quota(start.bounds.cell[0]))
        placed = Placed(row, broker, 0, within=True)
    broker, tier = _in_order(case, start, placed, None if share is None else share.leaders)
    row, merged = _merged(rows, start.index, start.planned[placed.row], broker)
    return Draft(rows, start.fate, row, merged, bound=placed.bound, notes=_notes(placed, tier))


def even_bytes(case: Case) -> Draft:
    """Return new assignments that balance the disks.

    Lost and draining replicas are placed first, as a heal would place them.
    """
    rows, brokers = case.rows, case.brokers
    first = heal(case)
    share = np.where(brokers.target, [float(capacity) for capacity in brokers.capacity], 0.0)
    free = chosen(case) == Fate.UNTOUCHED
    # A partition that could not be fully replicated keeps a lost replica in its list: Kafka would never complete a move
    # of it.
    free[first.row[brokers.having("failed")[first.broker]]] = False
    factors, which = np.unique(np.diff(first.start), return_inverse=True)
    reach = brokers.having("live", "new")
    low, high = (table[which] for table in rack_tables(case, groups_of(case.brokers), factors.tolist(), reach))
    disks = Disks(
        row=first.row,
        broker=first.broker,
        size=rows.size[first.row],
        movable=free[first.row] & ~first.added,
        rack=brokers.rack,
        low=low,
        high=high,
        share=share / share.sum(),
        free=brokers.free_bytes,
        tolerance=case.options.tolerance,
    )
    moved = even_disks(disks)
    fate = first.fate.copy()
    fate[first.row[moved.broker != first.broker]] = Fate.PLANNED
    return Draft(rows, fate, first.row, moved.broker, first.bound, tuple(_disk_notes(case, moved)))


def _disk_notes(case: Case, moved: Moved) -> Iterator[str]:
    yield f"Even disks need at least {moved.bound} bytes moved; lower_bound counts only what must move anyway."
    if moved.outside:
        ids = ", ".join(str(case.brokers.ids[broker]) for broker in moved.outside)
        yield f"The disks of these brokers stay out of the tolerance: {ids}."
    for row in moved.too_large[:10]:
        yield f"The partition {case.rows.name(row)} is larger than the tolerance leaves room for."


def _in_order(case: Case, start: Start, placed: Placed, leaders: Ints | None) -> tuple[Ints, str]:
    """Return the placed brokers in their order within each row, and the leaders' tier.

    The leader comes first, then the brokers that take over.
    """
    brokers, shape, old_place = len(case.brokers), start.shape, start.place
    pack = shape.row * brokers + shape.broker
    order = np.argsort(pack)
    found = np.searchsorted(pack[order], placed.row * brokers + placed.broker)
    found = np.minimum(found, max(len(pack) - 1, 0))
    held = np.zeros(len(placed.row), bool)
    place = np.full(len(placed.row), brokers)
    if len(pack):
        held = pack[order][found] == placed.row * brokers + placed.broker
        place[held] = old_place[order[found[held]]]
    slots = Slots(placed.row, placed.broker, place == 0, ~held)
    alike = len(set(case.brokers.capacity)) == 1
    choices = tiers(shape.topic, slots, case.brokers.target, alike=alike)
    if leaders is None:
        leader, tier = lead_evenly(shape.topic, slots, choices)
    else:
        leader, tier = lead_aimed(shape.topic, slots, choices, leaders)
    place[placed.broker == leader[placed.row]] = -1
    broker = placed.broker[np.lexsort((placed.broker, place, placed.row))]
    follow = succession if leaders is None else takeover
    return follow(placed.row, broker, brokers), tier


def _merged(rows: Rows, index: Ints, row: Ints, broker: Ints) -> tuple[Ints, Ints]:
    """Return the new slots of planned rows, and the old slots of all others."""
    stays = index[rows.row] < 0
    both = np.concatenate([rows.row[stays], row])
    order = np.argsort(both, kind="stable")
    return both[order], np.concatenate([rows.broker[stays], broker])[order]


def _notes(placed: Placed, tier: str) -> tuple[str, ...]:
    notes = []
    if not placed.within:
        notes.append("Not every floor and ceiling can be met at once with these brokers; the plan comes nearest.")
    if tier != "even":
        notes.append(f"Leaders are even in the sense {tier!r}: the replicas allow no more.")
    return tuple(notes)
