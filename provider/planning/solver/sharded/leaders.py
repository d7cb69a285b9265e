"""Choose the leaders of a shard by targets: the number of leaders of each broker in it that makes the cluster even.

The targets come from one flow of leaders over topics, shards and brokers, made from the shard summaries alone. In a
shard, most partitions keep their leader. Only partitions that cannot keep it, and some on brokers that lead too many,
enter a small flow. If the result is not even, all partitions enter the flow. The brokers' targets are soft constraints
in it, so that the flow always has a solution.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kafka_steward.planning.solver.flow import UNLIMITED, Infeasible, Network
from kafka_steward.planning.solver.leaders import LeaderBounds, Replicas, add_leader_arcs, equal_shares
from kafka_steward.planning.solver.problem import Bools, Ints, count_pairs, sum_by
from kafka_steward.planning.solver.sharded.quotas import Quotas
from kafka_steward.planning.solver.sharded.summary import ShardSummary

#: Fraction by which a broker's leaders in one shard may differ from its part of the replicas there.
_SLACK = 0.25
#: The cost of a leader change, where a leader without data costs 1, and the cost of missing a broker's target by one,
#: worth 64 changes. With larger numbers, which no sum of changes could outweigh, the flow takes a third longer and
#: finds the same result.
_CHANGE = 16
_FAR = 64 * (_CHANGE + 1)
#: The rows of a broker that leads too many which enter the flow: so many per leader that it must give up, and so many
#: besides. Both numbers double in each round.
_ROWS_PER_RELEASE, _ROWS_BESIDE = 2, 8
_ROUNDS = 5
#: If a broker missed its target, one row in so many enters the flow besides. The number of rows doubles in each round.
_BESIDE = 32


def leader_quotas(
    summary: ShardSummary, topics: list[int], quotas: Quotas, target: Bools, demoted: Bools
) -> list[Ints]:
    """Return each broker's number of leaders in each shard, so that the whole is even and the fewest leaders change.

    Without `leads` in the summary, or if a topic's quotas leave no such choice, the leaders are dealt in turns instead.
    """
    ends = np.cumsum(topics)[:-1]
    shard = np.repeat(np.arange(len(topics)), topics)
    if len(summary.leads):
        flow = _LeaderQuotaFlow(summary, quotas, target, demoted)
        if flow.is_met_by(summary.leads):
            # Nothing is to change, wherever the leaders of a shard are: what a plan made even stays as it is.
            return [part.sum(axis=0).astype(np.int64) for part in np.split(summary.leads, ends)]
        for slack in (_SLACK, None):
            with suppress(Infeasible):
                return [part.sum(axis=0) for part in np.split(flow.solve(shard, slack), ends)]
    return _round_robin_leaders([int(part.sum()) for part in np.split(summary.partitions, ends)], target)


def _round_robin_leaders(sizes: list[int], target: Bools) -> list[Ints]:
    """Divide each shard's leaders evenly, each shard beginning where the last one ended: the sums are even, too."""
    brokers = int(target.sum())
    ends = np.cumsum([0, *sizes])[:, None] + np.arange(brokers)
    leaders = np.zeros((len(sizes), len(target)), np.int64)
    leaders[:, target] = np.diff(ends // brokers, axis=0)
    return list(leaders)


class _LeaderQuotaFlow:
    """The flow of leaders from topics through shards to brokers."""

    def __init__(self, summary: ShardSummary, quotas: Quotas, target: Bools, demoted: Bools) -> None:
        self.summary, self.receivers = summary, target
        self.extra = quotas.extra_beyond_floors(summary)
        self.holds = summary.low.astype(np.int64) + self.extra
        low, high = equal_shares(summary.partitions[:, None], target)
        # Where demoted brokers hold all that there is of a partition, the flow has no solution.
        self.high = np.where(demoted, 0, np.minimum(high, self.holds))
        self.low = np.minimum(low, self.high)
        #: The fewest and most leaders per broker.
        self.level = equal_shares(summary.partitions.sum(), target)

    def is_met_by(self, leads: npt.NDArray[np.int32]) -> bool:
        """Return True if `leads`, per topic and broker, has a leader for every partition, and is even."""
        within = ((self.low <= leads) & (leads <= self.high)).all()
        (low, high), total = self.level, leads.sum(axis=0)
        return bool(
            within and (leads.sum(axis=1) == self.summary.partitions).all() and ((low <= total) & (total <= high)).all()
        )

    def solve(self, shard: Ints, slack: float | None) -> Ints:
        """Return leaders per topic and broker, given each topic's shard. Raises Infeasible.

        With `slack`, a broker's leaders in a shard differ from its part of the replicas there by at most that fraction.
        If a broker had to lead all that it holds in a shard, the shard could not be led partition by partition.
        """
        net, summary, brokers = Network(), self.summary, len(self.receivers)
        parts = int(shard[-1]) + 1
        topic, share = net.add_nodes(len(self.holds)), net.add_nodes(parts * brokers).reshape(parts, brokers)
        broker, sink = net.add_nodes(brokers), net.add_nodes(1)
        net.add_supply(topic, summary.partitions - self.low.sum(axis=1))
        net.add_supply(sink, -int(summary.partitions.sum()))
        least = sum_by(self.low, shard, parts)
        net.add_supply(share, least)
        # A leader whose replica is likely to be moved away is the least sure to stay.
        stay = summary.leads_within_floor + np.where(self.extra > 0, summary.leads_beyond_floor, 0)
        arcs = add_leader_arcs(net, topic, share[shard], [stay, summary.leads], (self.low, self.high))
        net.add_bounded_arcs(share, broker, self._shard_bounds(shard, least, slack), 0)
        net.add_bounded_arcs(broker, sink, self.level, 0)
        flow, led = net.solve(), self.low.copy()
        for at, where in arcs:
            led[at] += flow[where]
        return np.asarray(led, np.int64)

    def _shard_bounds(self, shard: Ints, least: Ints, slack: float | None) -> tuple[Ints, Ints]:
        """Return the fewest and most leaders per shard and broker."""
        held = sum_by(self.holds, shard, len(least))
        if slack is None:
            return np.zeros_like(held), held
        even = held * (np.bincount(shard, weights=self.summary.partitions) / np.maximum(held.sum(axis=1), 1))[:, None]
        # A broker that is no receiver may lead nothing here: the receivers may have to lead all.
        low = np.where(self.receivers, np.floor(even * (1 - slack)), 0).astype(np.int64)
        return np.minimum(low, held), np.maximum(np.ceil(even * (1 + slack)).astype(np.int64) + 1, least)


@dataclass(frozen=True)
class _LeaderChoice:
    """Each row's leader, and the topics and brokers whose bounds or targets were missed."""

    leader: Ints
    topics: Ints
    brokers: Ints


def leaders_for_targets(
    topic: Ints, replicas: Replicas, choices: list[LeaderBounds], targets: Ints
) -> tuple[Ints, str]:
    """Return each row's leader, and the name of the topics' bounds that could be met. Raises Infeasible."""
    held = _count_per_cell(topic, replicas, np.ones(len(replicas.row), bool), choices[0].cell[0].shape)
    # A broker that holds none of a topic cannot lead its share of it.
    choices = [bounds for bounds in choices if (bounds.cell[0] <= held).all()]
    leader = _mostly_unchanged_leaders(topic, replicas, choices[0].cell, targets)
    if leader is not None:
        return leader, choices[0].name
    for bounds in choices:
        choice = _solve_leader_flow(topic, replicas, bounds.cell, targets)
        if len(choice.topics) == 0:
            return choice.leader, bounds.name
    raise Infeasible


def _mostly_unchanged_leaders(topic: Ints, replicas: Replicas, bounds: tuple[Ints, Ints], targets: Ints) -> Ints | None:
    """Return leaders most of which are unchanged; None if such leaders do not meet all bounds and targets."""
    leader = np.full(len(topic), -1)
    leader[replicas.row[replicas.leads]] = replicas.broker[replicas.leads]
    led = _count_per_cell(topic, replicas, replicas.leads, bounds[0].shape)
    free = _rows_to_choose(topic, replicas, bounds, led)
    excess = np.minimum(led, bounds[1]).sum(axis=0) - targets
    release_rank = _release_order(replicas, excess)
    missed = np.zeros(0, np.int64)
    for turn in range(_ROUNDS):
        free |= release_rank < np.where(excess > 0, (_ROWS_PER_RELEASE * excess + _ROWS_BESIDE) << turn, 0)[leader]
        if len(missed):
            # Leaders reach brokers that lead too few by way of rows of other brokers. Any such rows will do.
            free[:: _BESIDE >> turn] = True
        choice = _choose_free_leaders(topic, replicas, bounds, targets, free)
        if len(choice.topics) == 0 and len(choice.brokers) == 0:
            return choice.leader
        missed = choice.brokers
        excess[missed] = np.maximum(excess[missed], 1)
        # A broker that is to lead none still leads a row only if the topic's bounds keep the row's other brokers from
        # it. Only rows of the topic can make room there.
        held = np.isin(choice.leader, missed[targets[missed] == 0])
        free |= np.isin(topic, np.union1d(choice.topics, topic[held]))
        # A flow over most rows takes as long as one over all, which `leaders_for_targets` tries next.
        if free.sum() > len(free) // 2:
            return None
    return None


def _count_per_cell(topic: Ints, replicas: Replicas, which: Bools, shape: tuple[int, int]) -> Ints:
    return count_pairs(topic[replicas.row[which]], replicas.broker[which], shape)


def _rows_to_choose(topic: Ints, replicas: Replicas, bounds: tuple[Ints, Ints], led: Ints) -> Bools:
    """Return a mask of the rows that must enter the flow, and of the rows that block them.

    A row must enter if it lost its leader, if its leader leads too many of its topic, or if it is on a broker that
    leads too few of its topic. It is blocked if other rows of the topic already use up the ceiling of every broker that
    holds it.
    """
    low, high = bounds
    cell = topic[replicas.row] * high.shape[1] + replicas.broker
    free = np.ones(len(topic), bool)
    free[replicas.row[replicas.leads & (led <= high).ravel()[cell]]] = False
    free[replicas.row[(led < low).ravel()[cell]]] = True
    stays = _count_per_cell(topic, replicas, replicas.leads & ~free[replicas.row], high.shape)
    blocked = free.copy()
    blocked[replicas.row[(stays < high).ravel()[cell]]] = False
    full = np.zeros(high.size, bool)
    full[cell[blocked[replicas.row]]] = True
    free[replicas.row[replicas.leads & full[cell]]] = True
    return free


def _release_order(replicas: Replicas, excess: Ints) -> Ints:
    """Return each row's rank on its leader's broker: rows that more underloaded brokers hold come first."""
    rows = int(replicas.row[-1]) + 1
    row, broker = replicas.row[replicas.leads], replicas.broker[replicas.leads]
    receivers = np.bincount(replicas.row, weights=(excess < 0)[replicas.broker], minlength=rows)
    order = np.lexsort((-receivers[row], broker))
    rank = np.full(rows, UNLIMITED)
    rank[row[order]] = np.arange(len(order)) - np.searchsorted(broker[order], broker[order])
    return rank


def _choose_free_leaders(
    topic: Ints, replicas: Replicas, bounds: tuple[Ints, Ints], targets: Ints, free: Bools
) -> _LeaderChoice:
    stays = replicas.leads & ~free[replicas.row]
    fixed = _count_per_cell(topic, replicas, stays, bounds[0].shape)
    mine = free[replicas.row]
    index = np.cumsum(free) - 1
    part = Replicas(index[replicas.row[mine]], replicas.broker[mine], replicas.leads[mine], replicas.added[mine])
    low, high = (np.maximum(bound - fixed, 0) for bound in bounds)
    left = targets - fixed.sum(axis=0)
    choice = _solve_leader_flow(topic[free], part, (low, high), np.maximum(left, 0))
    leader = np.full(len(topic), -1)
    leader[replicas.row[stays]] = replicas.broker[stays]
    leader[free] = choice.leader
    return _LeaderChoice(leader, choice.topics, np.union1d(choice.brokers, np.flatnonzero(left < 0)))


def _solve_leader_flow(topic: Ints, replicas: Replicas, bounds: tuple[Ints, Ints], targets: Ints) -> _LeaderChoice:
    """Return the leaders of least cost.

    Missing a topic's bound costs most, missing a broker's target costs less, and a change costs least.
    """
    rows, brokers = len(topic), len(targets)
    if rows == 0:
        return _LeaderChoice(topic, topic, np.flatnonzero(targets))
    net = Network()
    cell = topic[replicas.row] * brokers + replicas.broker
    used, which, count = np.unique(cell, return_inverse=True, return_counts=True)
    low, high = (bound.ravel()[used] for bound in bounds)
    # If only one row could be led in a cell, and may be, the topic's bounds have no effect.
    unbounded = (count == 1) & (low == 0) & (high > 0)
    bound = np.flatnonzero(~unbounded)
    parts, cells, ends, sink = net.add_nodes(rows), net.add_nodes(len(used)), net.add_nodes(brokers), net.add_nodes(1)
    head = np.where(unbounded[which], ends[replicas.broker], cells[which])
    chosen = net.add_arcs(parts[replicas.row], head, 1, np.where(replicas.leads, 0, _CHANGE) + replicas.added)
    end, low, high = ends[used[bound] % brokers], low[bound], high[bound]
    within = net.add_arcs(cells[bound], end, low, -8 * _FAR)
    net.add_arcs(cells[bound], end, np.maximum(high - low, 0), 0)
    beyond = net.add_arcs(cells[bound], end, UNLIMITED, 8 * _FAR)
    net.add_arcs(ends, sink, targets, 0)
    above = [net.add_arcs(ends, sink, room, price * _FAR) for room, price in ((1, 1), (2, 2), (UNLIMITED, 4))]
    net.add_supply(parts, 1)
    net.add_supply(sink, -rows)
    flow = net.solve()
    missed = used[bound[(flow[within] < low) | (flow[beyond] > 0)]] // brokers
    over = np.flatnonzero(sum(flow[arcs] for arcs in above))
    return _LeaderChoice(replicas.broker[flow[chosen] > 0], np.unique(missed), over)
