"""Summarize shards for the quotas of the whole cluster: numbers per topic and broker, and the few contended cells.

A topic holds between the floor and the ceiling of its fair share on each broker. The floor is guaranteed. Only two
facts are open: which broker gets the one replica more, and its worth there, which is the largest replica beyond the
floor that could then stay. The worths depend on each other only if a partition has more replicas in a rack than it may
keep. Such a pair of partition and rack is a contended cell. The summary lists it with the size of its partition and
its replicas, the contenders. It also lists the uncontended replicas that compete with contenders for a broker.

If the fair shares may be out of reach (`soft`), a broker may hold more of a topic than the ceiling, or less than the
floor. Pairs of topic and broker with replicas above the ceiling are then listed like contended cells, with all their
replicas. Every guaranteed replica is listed, too, with the weight that is lost if the broker does not get it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kafka_steward.planning.solver.balance import Bounds, PlacementProblem
from kafka_steward.planning.solver.flow import mebibytes
from kafka_steward.planning.solver.problem import Bools, Ints, combine_shards, positions_in, positions_within, sum_by

#: In `ShardSummary.value`: the broker gets its guaranteed replicas, and no more.
NO_OPTION = -2
_NOTHING_TO_KEEP = -1


@dataclass(frozen=True)
class ShardSummary:
    """The summary of one shard. Tables are per topic and broker or rack; replicas beyond the guaranteed ones are extra.

    Weights are mebibytes, rounded up. `value` is the weight that the optional replica of a cell can keep: -1 if there
    is no replica to keep, NO_OPTION if there is no option. Contended cells (`contended_*`), their replicas
    (`contender_*`), the pairs of topic and broker that they touch (`cell_*`), and the uncontended replicas there are
    lists. So are the guaranteed replicas (`guaranteed_*`), with weight -1 where there is no replica to keep; the list
    is empty unless the shares may be out of reach.
    """

    topics: int
    factor: Ints
    factor_count: Ints
    held: Ints
    guaranteed: Ints
    value: npt.NDArray[np.int32]
    least: Ints
    most: Ints
    wants: Ints
    #: The number of replicas wanted and their weight; and the same of the replicas that are guaranteed to stay.
    wanted: Ints
    kept: Ints
    contended_topic: Ints
    contended_group: Ints
    contended_most: Ints
    contended_weight: Ints
    contender_of: Ints
    contender_broker: Ints
    cell_topic: Ints
    cell_broker: Ints
    cell_low: Ints
    cell_high: Ints
    uncontended_cell: Ints
    uncontended_weight: Ints
    guaranteed_topic: Ints
    guaranteed_broker: Ints
    guaranteed_weight: Ints
    #: Per topic and broker: floors, and partitions led now. Of these, `leads_within_floor` are led by replicas that the
    #: broker keeps if it gets no more than the floor, and `leads_beyond_floor` by the one more that it may keep. All
    #: four are empty if leaders are not planned for all shards together.
    low: npt.NDArray[np.int32]
    leads: npt.NDArray[np.int32]
    leads_within_floor: npt.NDArray[np.int32]
    leads_beyond_floor: npt.NDArray[np.int32]
    partitions: Ints

    @classmethod
    def combine(cls, parts: Sequence[ShardSummary]) -> ShardSummary:
        """Combine the summaries of shards, in their order, into one."""
        # Numbers of topics, contended cells and cells count on from those of the shards before.
        topics, contended, cells = (
            np.cumsum([0, *counts]).tolist()
            for counts in zip(
                *((part.topics, len(part.contended_topic), len(part.cell_topic)) for part in parts), strict=True
            )
        )
        shifts = dict.fromkeys(("contended_topic", "cell_topic", "guaranteed_topic"), topics)
        shifts |= {"contender_of": contended, "uncontended_cell": cells}
        return combine_shards(parts, summed=("topics", "held", "guaranteed", "wanted", "kept"), shifts=shifts)


def summarize(problem: PlacementProblem, bounds: Bounds, *, leaders: bool, soft: bool = False) -> ShardSummary:
    """Summarize a shard.

    Only the bounds per rack and per topic in `bounds` concern the shard alone. With `leaders`, leaders are counted,
    too. With `soft`, the bounds of topics may be out of reach.
    """
    topics, brokers = bounds.cell[0].shape
    weight = mebibytes(problem.size)
    contended = problem.replicas_per_group > bounds.rack[1]
    in_contended = contended[problem.row, problem.group[problem.broker]]
    touching = np.bincount(problem.replica_cells[in_contended], minlength=topics * brokers)
    low, high = (bound.ravel() for bound in bounds.cell)
    # Cells with more than one optional replica are listed, too.
    listed = (touching > 0) | (high - low > 1)
    # Replicas in contended cells may have to leave, so that only the rest of the floor is guaranteed.
    guaranteed = np.maximum(low - touching, 0)
    if soft:
        listed |= np.bincount(problem.replica_cells, minlength=topics * brokers) > high
        guaranteed[listed] = 0
    ranked = _RankedReplicas(problem, ~in_contended, weight)
    per_group = guaranteed.reshape(topics, brokers) @ (problem.group[:, None] == np.arange(bounds.rack[0].shape[1]))
    least, most = (sum_by(bound, problem.topic, topics) - per_group for bound in bounds.rack)
    factors, counts = np.unique(problem.factor, return_counts=True)
    with_leaders = topics if leaders else 0
    return ShardSummary(
        topics=topics,
        factor=factors,
        factor_count=counts,
        held=np.bincount(problem.broker, minlength=brokers),
        guaranteed=guaranteed.reshape(topics, brokers).sum(axis=0),
        value=_option_values(ranked, low, (high > low) & ~listed).reshape(topics, brokers),
        least=least,
        most=most,
        wants=sum_by(problem.factor, problem.topic, topics) - per_group.sum(axis=1),
        wanted=np.array([problem.factor.sum(), (problem.factor * weight).sum()]),
        kept=ranked.totals_of_first(guaranteed),
        **_contended_fields(problem, bounds, contended, weight),
        **_listed_cell_fields(ranked, (low, high, guaranteed), np.flatnonzero(listed), brokers, soft=soft),
        **_guaranteed_fields(ranked, guaranteed if soft else np.zeros_like(guaranteed), brokers),
        low=bounds.cell[0][:with_leaders].astype(np.int32),
        **_leader_fields(problem, ranked, in_contended, low, with_leaders),
        partitions=np.bincount(problem.topic, minlength=topics),
    )


class _RankedReplicas:
    """The replicas in no contended cell, by topic and broker and, within these, the heaviest first."""

    def __init__(self, problem: PlacementProblem, which: Bools, weight: Ints) -> None:
        cell, weight, leads = problem.replica_cells[which], weight[problem.row[which]], problem.leads[which]
        # Of equals, leaders come first, as in `place_within_quota`.
        order = np.lexsort((~leads, -weight, cell))
        self.cell, self.weight, self.leads = cell[order], weight[order], leads[order]
        self.rank = positions_within(np.bincount(cell))

    def totals_of_first(self, count: Ints) -> Ints:
        """Return the number of replicas among the first `count` of their cell, and their weight."""
        mine = self.rank < count[self.cell]
        return np.array([mine.sum(), self.weight[mine].sum()])


def _option_values(ranked: _RankedReplicas, low: Ints, optional: Bools) -> npt.NDArray[np.int32]:
    value = np.where(optional, _NOTHING_TO_KEEP, NO_OPTION).astype(np.int32)
    at = (ranked.rank == low[ranked.cell]) & optional[ranked.cell]
    value[ranked.cell[at]] = ranked.weight[at]
    return value


def _leader_fields(
    problem: PlacementProblem, ranked: _RankedReplicas, contended: Bools, low: Ints, topics: int
) -> dict[str, Any]:
    """Return the leaders per topic and broker, and the leaders that stay with the floor and with one replica more.

    It is not known which of the replicas in `contended` cells stay: all of them count as staying.
    """
    contended_leads = problem.replica_cells[problem.leads & contended]
    lead_cells, rank = ranked.cell[ranked.leads], ranked.rank[ranked.leads]
    counted = {
        "leads": problem.replica_cells[problem.leads],
        "leads_within_floor": np.concatenate([lead_cells[rank < low[lead_cells]], contended_leads]),
        "leads_beyond_floor": lead_cells[rank == low[lead_cells]],
    }
    shape = -1, len(problem.group)
    return {
        name: np.bincount(cells, minlength=len(low)).reshape(shape)[:topics].astype(np.int32)
        for name, cells in counted.items()
    }


def _contended_fields(problem: PlacementProblem, bounds: Bounds, contended: Bools, weight: Ints) -> dict[str, Any]:
    row, group = np.nonzero(contended)
    # The number of each contended cell, -1 elsewhere.
    number = np.full(contended.shape, -1)
    number[row, group] = np.arange(len(row))
    cell = number[problem.row, problem.group[problem.broker]]
    return {
        "contended_topic": problem.topic[row],
        "contended_group": group,
        "contended_most": bounds.rack[1][row, group],
        "contended_weight": weight[row],
        "contender_of": cell[cell >= 0],
        "contender_broker": problem.broker[cell >= 0],
    }


def _listed_cell_fields(
    ranked: _RankedReplicas, table: tuple[Ints, Ints, Ints], cells: Ints, brokers: int, *, soft: bool
) -> dict[str, Any]:
    low, high, guaranteed = table
    number = positions_in(cells, len(low))
    mine = (number[ranked.cell] >= 0) & (ranked.rank >= guaranteed[ranked.cell])
    if not soft:
        mine &= ranked.rank < high[ranked.cell]
    return {
        "cell_topic": cells // brokers,
        "cell_broker": cells % brokers,
        "cell_low": (low - guaranteed)[cells],
        "cell_high": (high - guaranteed)[cells],
        "uncontended_cell": number[ranked.cell[mine]],
        "uncontended_weight": ranked.weight[mine],
    }


def _guaranteed_fields(ranked: _RankedReplicas, guaranteed: Ints, brokers: int) -> dict[str, Any]:
    cell = np.repeat(np.arange(len(guaranteed)), guaranteed)
    weight = np.full(len(cell), _NOTHING_TO_KEEP)
    mine = ranked.rank < guaranteed[ranked.cell]
    start = np.cumsum(guaranteed) - guaranteed
    weight[start[ranked.cell[mine]] + ranked.rank[mine]] = ranked.weight[mine]
    return {"guaranteed_topic": cell // brokers, "guaranteed_broker": cell % brokers, "guaranteed_weight": weight}
