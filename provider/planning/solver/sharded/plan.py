"""An even plan of many shards: shard summaries become shard quotas, and the results become a proof of the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from kafka_steward.assignment import Operation
from kafka_steward.planning.files.options import EVEN, Options
from kafka_steward.planning.solver.balance import BalanceSetup, Placement, balanced_candidate
from kafka_steward.planning.solver.candidate import CandidatePlan, unchanged
from kafka_steward.planning.solver.fair_shares import broker_bounds, groups_of
from kafka_steward.planning.solver.flow import Infeasible
from kafka_steward.planning.solver.leaders import balanced_leaders
from kafka_steward.planning.solver.problem import Brokers, Problem, sum_by
from kafka_steward.planning.solver.proof import Measures
from kafka_steward.planning.solver.sharded.leaders import leader_quotas, leaders_for_targets
from kafka_steward.planning.solver.sharded.placement import place_within_quota
from kafka_steward.planning.solver.sharded.pricing import quotas_by_pricing
from kafka_steward.planning.solver.sharded.quotas import QuotaProblem, Quotas, ShardQuota, shard_quotas
from kafka_steward.planning.solver.sharded.summary import ShardSummary

#: Topics times brokers, up to which leaders are planned for all shards together.
MAX_LEADER_CELLS = 2_500_000
#: Partitions up to which a gap is closed by one flow over all of them.
MAX_UNSHARDED_PARTITIONS = 150_000


def is_shardable(operation: Operation, options: Options) -> bool:
    """Return True if no budget, disks or excluded brokers require one even plan of all partitions."""
    one_flow = options.balance == "bytes" or options.max_moves or options.max_bytes or options.exclude_brokers
    return operation in EVEN and not one_flow


@dataclass(frozen=True)
class ShardedPlan:
    """The shards' quotas, and the least moves and mebibytes that any plan needs."""

    shard_quotas: Sequence[ShardQuota]
    quotas: Quotas

    def meets_bound(self, measures: Measures) -> bool:
        """Return True if the shards together move as little as the bound says: the plan is proven minimal."""
        counts = measures.counts
        return (counts["replicas_moved"], counts["weight_moved"]) == (self.quotas.moves, self.quotas.weight)

    def needs_one_flow(self, measures: Measures) -> bool:
        """Return True if there is a gap to close, and the partitions are not too many for one flow."""
        return not self.meets_bound(measures) and measures.counts["partitions"] <= MAX_UNSHARDED_PARTITIONS

    def with_bound(self, measures: Measures) -> Measures:
        """Return the measures with the cluster-wide bound, and the prices that prove it."""
        moved = measures.counts["replicas_moved"]
        prices = self.quotas.prices.tolist() if moved == self.quotas.moves else []
        notes = list(measures.notes)
        if not self.meets_bound(measures):
            more = measures.counts["weight_moved"] - self.quotas.weight
            notes.append(
                f"Slices were planned apart: at least {self.quotas.moves} replicas must move, and of plans that move "
                f"as few this one may be {max(more, 0)} MiB above the least."
            )
        counts = {**measures.counts, "lower_bound": self.quotas.moves}
        return replace(measures, counts=counts, prices=prices, notes=notes)


def sharded_plan(brokers: Brokers, packed: Sequence[bytes]) -> ShardedPlan | None:
    """Return the quotas of shards from their packed summaries; None if none meet all floors and ceilings."""
    parts = [ShardSummary.unpacked(one) for one in packed]
    summary = ShardSummary.total(parts)
    factors, which = np.unique(summary.factor, return_inverse=True)
    counts = sum_by(summary.factor_count, which, len(factors))
    if len(factors) == 0:
        return None
    low, high = broker_bounds(brokers, factors, counts, summary.held)
    try:
        quotas = quotas_by_pricing(QuotaProblem(summary, groups_of(brokers), low, high))
    except Infeasible:
        return None
    topics = [part.topics for part in parts]
    alike = len(set(brokers.capacity)) == 1
    leaders = leader_quotas(summary, topics, quotas, brokers.target) if alike else None
    usable = brokers.having("live", "new")
    quotas = replace(quotas, prices=quotas.prices[usable])
    return ShardedPlan(shard_quotas(summary, topics, quotas, leaders), quotas)


def balance_shard(problem: Problem, quota: ShardQuota) -> CandidatePlan:
    """Return the new assignments of one shard of an even plan. Raises Infeasible if its quota cannot be met."""
    setup = BalanceSetup.of(problem)
    if len(setup.planned) == 0:
        return unchanged(problem.rows, setup.disposition)
    row, broker = place_within_quota(setup.to_place, setup.bounds.rack, quota.replicas(setup.bounds.cell[0]))
    placed = Placement(row, broker, 0, within=True)
    if quota.leaders is None:
        return balanced_candidate(problem, setup, placed, balanced_leaders, exact=True)
    choose = partial(leaders_for_targets, targets=quota.leaders)
    return balanced_candidate(problem, setup, placed, choose, exact=False)
