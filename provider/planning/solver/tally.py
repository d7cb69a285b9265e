"""Shard summaries for the quotas of the whole cluster: numbers per topic and broker, and the few contended cells.

A topic holds between floor and ceiling of its fair share on each broker. The floor is guaranteed. Only two facts are
open: which broker gets the one replica more, and its worth there, which is the largest replica beyond the floor that
could then stay. The worths depend on each other only if a partition has more replicas in a rack than it may keep. Such
a pair of partition and rack is a contended cell, which the code calls a *knot*. It is listed on its own, with its
partition's size and brokers, and so are the replicas that compete with it.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from kafka_steward.planning.solver.arrays import Bools, Ints
from kafka_steward.planning.solver.rebalance import Bounds, Shape

__all__ = ["MIB", "NO_OPTION", "Tally", "rack_table", "tally", "weights"]

MIB = 1 << 20
#: In `Tally.value`: the broker gets its guaranteed replicas, and no more.
NO_OPTION = -2
_NOTHING_TO_KEEP = -1
#: Upper limit of a weight: more mebibytes are counted as this number.
_HEAVIEST = 2**31 - 1


@dataclass(frozen=True)
class Tally:
    """The summary of one shard. Tables are per topic and broker or rack; `base` is guaranteed, all else is extra.

    Weights are mebibytes, rounded up. `value` is the weight that the optional replica of a cell can keep, -1 if there
    is none to keep, NO_OPTION if there is no option. Contended cells (`knot_*`, `tie_*`), the cells that they touch
    (`cell_*`), and the uncontended replicas there (`plain_*`) are lists.
    """

    topics: int
    factor: Ints
    factor_count: Ints
    held: Ints
    base: Ints
    value: npt.NDArray[np.int32]
    least: Ints
    most: Ints
    wants: Ints
    #: Replicas wanted and their weight, and the part of them that is kept in the base.
    wanted: Ints
    kept: Ints
    knot_topic: Ints
    knot_group: Ints
    knot_most: Ints
    knot_weight: Ints
    tie_knot: Ints
    tie_broker: Ints
    cell_topic: Ints
    cell_broker: Ints
    cell_low: Ints
    cell_high: Ints
    plain_cell: Ints
    plain_weight: Ints
    #: Floors, and partitions led now; empty if leaders are not planned for all shards together.
    low: npt.NDArray[np.int32]
    leads: npt.NDArray[np.int32]
    partitions: Ints

    def packed(self) -> bytes:
        """Return the summary as bytes, for `unpacked`."""
        out = io.BytesIO()
        arrays: dict[str, Any] = {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)}
        np.savez(out, **arrays)
        return out.getvalue()

    @classmethod
    def unpacked(cls, data: bytes) -> Tally:
        """Restore a summary from the bytes that `packed` returned."""
        with np.load(io.BytesIO(data)) as found:
            arrays = {name: found[name] for name in found.files}
        return cls(topics=int(arrays.pop("topics")), **arrays)


def weights(size: Ints) -> Ints:
    """Return sizes in mebibytes, rounded up."""
    return np.minimum(-(-size // MIB), _HEAVIEST)


def rack_table(shape: Shape, keep: Bools | None = None) -> Ints:
    """Count the slots of each row per group; with `keep`, only those."""
    groups = int(shape.group.max()) + 1
    at = shape.row * groups + shape.group[shape.broker]
    at = at if keep is None else at[keep]
    return np.bincount(at, minlength=len(shape.topic) * groups).reshape(-1, groups)


def tally(shape: Shape, bounds: Bounds, *, leaders: bool) -> Tally:
    """Summarize a shard.

    Of `bounds` only those of racks and of topics are the shard's own. With `leaders`, leaders are counted too.
    """
    topics, brokers = bounds.cell[0].shape
    weight = weights(shape.size)
    knot = rack_table(shape) > bounds.rack[1]
    knotted = knot[shape.row, shape.group[shape.broker]]
    cell = shape.topic[shape.row] * brokers + shape.broker
    touching = np.bincount(cell[knotted], minlength=topics * brokers)
    low, high = (bound.ravel() for bound in bounds.cell)
    base = np.maximum(low - touching, 0)
    ranked = _Ranked(cell[~knotted], weight[shape.row[~knotted]], topics * brokers)
    kept = ranked.upto(base)
    base_on_racks = _by_group(base.reshape(topics, brokers), shape.group)
    least, most = (_by_topic(bound, shape.topic, topics) - base_on_racks for bound in bounds.rack)
    factors, counts = np.unique(shape.factor, return_counts=True)
    wants = _by_topic(shape.factor, shape.topic, topics)
    return Tally(
        topics=topics,
        factor=factors,
        factor_count=counts,
        held=np.bincount(shape.broker, minlength=brokers),
        base=base.reshape(topics, brokers).sum(axis=0),
        value=_values(ranked, (low, high, touching)).reshape(topics, brokers),
        least=least,
        most=most,
        wants=wants - base_on_racks.sum(axis=1),
        wanted=np.array([shape.factor.sum(), (shape.factor * weight).sum()]),
        kept=kept,
        **_knots(shape, bounds, knot, weight),
        **_touched(ranked, (low, high, touching, base), brokers),
        **_leaders(shape, bounds, leaders=leaders),
        partitions=np.bincount(shape.topic, minlength=topics),
    )


class _Ranked:
    """Replicas in no contended cell, by cell and, within it, the heaviest first."""

    def __init__(self, cell: Ints, weight: Ints, cells: int) -> None:
        order = np.lexsort((-weight, cell))
        self.cell, self.weight = cell[order], weight[order]
        self.start = np.concatenate([[0], np.cumsum(np.bincount(cell, minlength=cells))])
        self.rank = np.arange(len(order)) - self.start[self.cell]

    def upto(self, count: Ints) -> Ints:
        """Return the number of replicas among the first `count` of their cell, and their weight."""
        mine = self.rank < count[self.cell]
        return np.array([mine.sum(), self.weight[mine].sum()])


def _values(ranked: _Ranked, bounds: tuple[Ints, Ints, Ints]) -> npt.NDArray[np.int32]:
    low, high, touching = bounds
    value = np.where((high > low) & (touching == 0), _NOTHING_TO_KEEP, NO_OPTION).astype(np.int32)
    at = np.flatnonzero(ranked.rank == low[ranked.cell])
    at = at[value[ranked.cell[at]] == _NOTHING_TO_KEEP]
    value[ranked.cell[at]] = ranked.weight[at]
    return value


def _knots(shape: Shape, bounds: Bounds, knot: Bools, weight: Ints) -> dict[str, Any]:
    row, group = np.nonzero(knot)
    number = np.full(knot.shape, -1)
    number[row, group] = np.arange(len(row))
    slot = number[shape.row, shape.group[shape.broker]]
    tied = slot >= 0
    return {
        "knot_topic": shape.topic[row],
        "knot_group": group,
        "knot_most": bounds.rack[1][row, group],
        "knot_weight": weight[row],
        "tie_knot": slot[tied],
        "tie_broker": shape.broker[tied],
    }


def _touched(ranked: _Ranked, table: tuple[Ints, Ints, Ints, Ints], brokers: int) -> dict[str, Any]:
    low, high, touching, base = table
    cells = np.flatnonzero(touching)
    number = np.full(len(low), -1)
    number[cells] = np.arange(len(cells))
    mine = (number[ranked.cell] >= 0) & (ranked.rank >= base[ranked.cell]) & (ranked.rank < high[ranked.cell])
    return {
        "cell_topic": cells // brokers,
        "cell_broker": cells % brokers,
        "cell_low": (low - base)[cells],
        "cell_high": (high - base)[cells],
        "plain_cell": number[ranked.cell[mine]],
        "plain_weight": ranked.weight[mine],
    }


def _leaders(shape: Shape, bounds: Bounds, *, leaders: bool) -> dict[str, Any]:
    topics, brokers = bounds.cell[0].shape
    if not leaders:
        return {"low": np.zeros((0, brokers), np.int32), "leads": np.zeros((0, brokers), np.int32)}
    cell = shape.topic[shape.row] * brokers + shape.broker
    leads = np.bincount(cell[shape.leads], minlength=topics * brokers)
    return {"low": bounds.cell[0].astype(np.int32), "leads": leads.reshape(topics, brokers).astype(np.int32)}


def _by_topic(values: Ints, topic: Ints, topics: int) -> Ints:
    if values.ndim == 1:
        return np.bincount(topic, weights=values, minlength=topics).astype(np.int64)
    columns = [np.bincount(topic, weights=column, minlength=topics) for column in values.T]
    return np.stack(columns, axis=1).astype(np.int64)


def _by_group(table: Ints, group: Ints) -> Ints:
    member = np.zeros((len(group), int(group.max()) + 1), np.int64)
    member[np.arange(len(group)), group] = 1
    return np.asarray(table @ member, np.int64)
