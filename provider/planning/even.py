"""Rebalance, expand and drain, for one slice: fair shares, the placement, leaders, and the order of the replicas."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kafka_steward.errors import PlanError
from kafka_steward.planning.arrays import Bools, Ints, Rows
from kafka_steward.planning.disks import Disks, Moved, even_disks
from kafka_steward.planning.drafts import Draft
from kafka_steward.planning.heal import broker_shares, heal
from kafka_steward.planning.leaders import Slots, lead_evenly, succession, tiers
from kafka_steward.planning.quotas import fair_bounds, rack_bounds_of
from kafka_steward.planning.rebalance import Bounds, Placed, Shape, place_evenly
from kafka_steward.planning.selection import Case, Fate, chosen

__all__ = ["even_bytes", "even_out"]


def even_out(case: Case) -> Draft:
    """New assignments of all rows: every topic and the whole cluster even, by the fewest moves."""
    rows, brokers = case.rows, case.brokers
    usable = brokers.having("live", "new")
    fate = _fates(case, usable)
    planned = np.flatnonzero(fate == Fate.PLANNED)
    if len(planned) == 0:
        return Draft(rows, fate, rows.row, rows.broker, bound=0)
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
        group=_groups(case),
    )
    placed = place_evenly(shape, _bounds(case, shape, len(topics)))
    broker, tier = _in_order(case, shape, placed, rows.place[mine])
    row, merged = _merged(rows, index, planned[placed.row], broker)
    return Draft(rows, fate, row, merged, bound=placed.bound, notes=_notes(placed, tier))


def even_bytes(case: Case) -> Draft:
    """New assignments that even out the disks; lost and draining replicas are placed first, as a heal would."""
    rows, brokers = case.rows, case.brokers
    first = heal(case)
    share = np.where(brokers.target, [float(capacity) for capacity in brokers.capacity], 0.0)
    free = chosen(case) == Fate.UNTOUCHED
    free &= first.fate != Fate.ALL_REPLICAS_LOST
    factors, which = np.unique(np.diff(first.start), return_inverse=True)
    low, high = (table[which] for table in _rack_tables(case, _groups(case), factors.tolist()))
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


def _fates(case: Case, usable: Bools) -> Ints:
    rows = case.rows
    fate = chosen(case)
    alive = ~case.brokers.having("failed")[rows.broker]
    lost = np.bincount(rows.row[alive], minlength=len(rows)) == 0
    fate = np.where(fate == Fate.UNTOUCHED, np.where(lost, Fate.ALL_REPLICAS_LOST, Fate.PLANNED), fate)
    room = int(usable.sum())
    too_many = (fate == Fate.PLANNED) & (rows.target_rf > room)
    if too_many.any():
        row = int(too_many.argmax())
        name, factor = rows.name(row), rows.target_rf[row]
        raise PlanError(f"The partition {name} is to have {factor} replicas, and only {room} brokers may hold one.")
    # What was not asked for is no shortcoming of the plan.
    return np.asarray(np.where(fate == Fate.EXCLUDED, Fate.UNTOUCHED, fate), np.int64)


def _groups(case: Case) -> Ints:
    """Each broker's rack, and one group more for those without: on the flow they differ from no rack in nothing."""
    rack = case.brokers.rack
    return np.where(rack < 0, int(rack.max(initial=-1)) + 1, rack)


def _bounds(case: Case, shape: Shape, topics: int) -> Bounds:
    factors, which = np.unique(shape.factor, return_inverse=True)
    counts = np.zeros((topics, len(factors)), np.int64)
    np.add.at(counts, (shape.topic, which), 1)
    usable = case.brokers.having("live", "new")
    share_of = [broker_shares(case.brokers, usable, factor, own_rack=case.own_rack) for factor in factors.tolist()]
    low, high, least, most = fair_bounds(counts, share_of)
    holds = np.zeros_like(low)
    np.add.at(holds, (shape.topic[shape.row], shape.broker), 1)
    # Excluded brokers share like any other, but what they lack they cannot get: then the others come nearest.
    barred = usable & ~case.brokers.target
    low[:, barred], high[:, barred] = (np.minimum(bound, holds)[:, barred] for bound in (low, high))
    total = holds.sum(axis=0)
    least[barred], most[barred] = (np.minimum(bound, total)[barred] for bound in (least, most))
    rack_low, rack_high = (table[which] for table in _rack_tables(case, shape.group, factors.tolist()))
    return Bounds((rack_low, rack_high), (low, high), (least, most))


def _rack_tables(case: Case, group: Ints, factors: list[int]) -> tuple[Ints, Ints]:
    groups = int(group.max()) + 1
    usable = case.brokers.having("live", "new")
    sizes = np.bincount(group[usable], minlength=groups)
    racked = np.unique(group[case.brokers.rack >= 0])
    loose = int((usable & (case.brokers.rack < 0)).sum())
    low, high = np.zeros((2, len(factors), groups), np.int64)
    for at, factor in enumerate(factors):
        bounds = rack_bounds_of(factor, sizes[racked].tolist(), loose, own_rack=case.own_rack)
        low[at, racked], high[at, racked] = np.maximum(bounds[0], 0), bounds[1]
        if loose:
            high[at, -1] = min(factor, loose)
    return low, high


def _in_order(case: Case, shape: Shape, placed: Placed, old_place: Ints) -> tuple[Ints, str]:
    """The placed brokers in their order within each row: leader first, then who takes over, and the leaders' tier."""
    brokers = len(case.brokers)
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
    leader, tier = lead_evenly(shape.topic, slots, tiers(shape.topic, slots, case.brokers.target, alike=alike))
    place[placed.broker == leader[placed.row]] = -1
    broker = placed.broker[np.lexsort((placed.broker, place, placed.row))]
    return succession(placed.row, broker, brokers), tier


def _merged(rows: Rows, index: Ints, row: Ints, broker: Ints) -> tuple[Ints, Ints]:
    """The new slots of planned rows, and the old ones of all others."""
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
