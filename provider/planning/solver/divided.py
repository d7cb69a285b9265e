"""An even plan of many shards: shard summaries become shard quotas, and the results become a proof of the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from kafka_steward.assignment import Operation
from kafka_steward.planning.files.options import EVEN, Options
from kafka_steward.planning.solver.arrays import Brokers
from kafka_steward.planning.solver.flows import Infeasible
from kafka_steward.planning.solver.measures import Measures
from kafka_steward.planning.solver.quota_flow import Quotas, Whole, together
from kafka_steward.planning.solver.shares import Share, led_together, shares_of
from kafka_steward.planning.solver.sifted import sifted_quotas
from kafka_steward.planning.solver.start import broker_bounds, groups_of
from kafka_steward.planning.solver.tally import Tally

__all__ = ["MANY_CELLS", "Divided", "divided", "divisible"]

#: Topics times brokers, up to which leaders are planned for all shards together.
MANY_CELLS = 2_500_000
#: Partitions up to which a gap is closed by one flow over all of them.
MANY_PARTITIONS = 150_000


def divisible(operation: Operation, options: Options) -> bool:
    """Return True if an even plan can be put together from shards.

    It cannot if a budget, disks or excluded brokers have to be considered for the whole cluster.
    """
    whole = options.balance == "bytes" or options.max_moves or options.max_bytes or options.exclude_brokers
    return operation in EVEN and not whole


@dataclass(frozen=True)
class Divided:
    """The shards' quotas, and the least moves and mebibytes that any plan needs."""

    shares: Sequence[Share]
    quotas: Quotas

    def closes(self, measures: Measures) -> bool:
        """Return True if the shards together move as little as the bound says.

        The plan is then proven minimal.
        """
        counts = measures.counts
        return (counts["replicas_moved"], counts["weight_moved"]) == (self.quotas.moves, self.quotas.weight)

    def better_whole(self, measures: Measures) -> bool:
        """Return True if all shards should be planned as one.

        That is the case if there is a gap to close, and the partitions are not too many for one flow.
        """
        return not self.closes(measures) and measures.counts["partitions"] <= MANY_PARTITIONS

    def proven(self, measures: Measures) -> Measures:
        """Return the measures with the cluster-wide bound, and the prices that prove it."""
        moved = measures.counts["replicas_moved"]
        prices = self.quotas.prices.tolist() if moved == self.quotas.moves else []
        notes = list(measures.notes)
        if not self.closes(measures):
            more = measures.counts["weight_moved"] - self.quotas.weight
            notes.append(
                f"Slices were planned apart: at least {self.quotas.moves} replicas must move, and of plans that move "
                f"as few this one may be {max(more, 0)} MiB above the least."
            )
        counts = {**measures.counts, "lower_bound": self.quotas.moves}
        return replace(measures, counts=counts, prices=prices, notes=notes)


def divided(brokers: Brokers, packed: Sequence[bytes], *, own_rack: bool) -> Divided | None:
    """Return the quotas of shards, from their packed summaries in order.

    Return None if no quotas meet all floors and ceilings, or if there is no partition to plan.
    """
    parts = [Tally.unpacked(one) for one in packed]
    tally = together(parts)
    factors, which = np.unique(tally.factor, return_inverse=True)
    counts = np.bincount(which, weights=tally.factor_count, minlength=len(factors)).astype(np.int64)
    if len(factors) == 0:
        return None
    low, high = broker_bounds(brokers, factors, counts, tally.held, own_rack=own_rack)
    try:
        quotas = sifted_quotas(Whole(tally, groups_of(brokers), low, high))
    except Infeasible:
        return None
    topics = [part.topics for part in parts]
    alike = len(set(brokers.capacity)) == 1
    leaders = led_together(tally, topics, quotas, brokers.target) if alike else None
    usable = brokers.having("live", "new")
    quotas = replace(quotas, prices=quotas.prices[usable])
    return Divided(shares_of(tally, topics, quotas, leaders), quotas)
