"""Find quotas of replicas per topic and broker over all shards, by a flow over topics and brokers, not partitions.

::

    topic ─► (topic, rack) ──option──► broker ──[fair share]──► sink
                   ├──► contended cell ──► (topic, broker) ──► broker
                   └──uncontended, new──► (topic, broker)

The flow ignores which partition a replica belongs to, so that its cost is a lower bound of every plan's cost. If the
number of replicas per rack is given for each partition, a plan of that cost exists, because partitions of a topic can
be exchanged for one another in a rack. The cost has two components: moves first, mebibytes second. `summary` explains
contended cells.

The flow is solved by column generation, over the few arcs whose outcome is uncertain. If the number of replicas per
rack is given for each partition, racks are independent of each other, and each rack of a topic is a row by itself. At
given prices of the brokers a row takes its cheapest options. The first prices come from a sample of the rows, and rank
the options of each row. Only options near the number that the row takes are open in the flow. Options far ahead are
taken without it, and options far behind are not taken. The flow's own prices then show which of the closed options
should change. These are opened, and the flow is solved again, until no option should change. At these prices no unit of
the flow over all arcs would be cheaper elsewhere, so that the flow is the cheapest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count

import numpy as np
import numpy.typing as npt

from kafka_steward.planning.solver.flow import UNLIMITED, Infeasible, Network
from kafka_steward.planning.solver.problem import Bools, Ints, positions_in, sum_by
from kafka_steward.planning.solver.sharded.summary import NO_OPTION, ShardSummary

Floats = npt.NDArray[np.float64]

#: The size of the sample: a fraction of the topics, and at least so many topics per broker of the rack.
_SAMPLE, _PER_BROKER = 0.03, 4
#: Options on either side of the number that a row takes that are open to begin with.
_WINDOW = 2
#: Options to open for each replica that a broker got too many or too few, the nearest options first.
_OPENED_PER_NEED = 4
#: Topics that choose at once. Between the blocks, brokers that got less than their part become a little cheaper.
_BLOCK = 48
#: Beyond every cost.
_NEVER = 1 << 60


@dataclass(frozen=True)
class QuotaProblem:
    """The summaries of all shards as one, and the fewest and most replicas that each broker may hold.

    Only the `receivers` may hold a replica that they do not hold yet.
    """

    summary: ShardSummary
    group: Ints
    low: Ints
    high: Ints
    receivers: Bools

    @cached_property
    def separable(self) -> Bools:
        """A mask of the separable topics, whose partitions all have a given number of replicas in every rack."""
        return np.asarray(self.summary.most.sum(axis=1) == self.summary.wants, bool)

    @property
    def extra_bounds(self) -> tuple[Ints, Ints]:
        """The fewest and most replicas beyond the guaranteed ones that each broker may hold."""
        return self.low - self.summary.guaranteed, self.high - self.summary.guaranteed

    @cached_property
    def move_cost(self) -> int:
        """The cost of a move: more than all mebibytes together, and than twice those on any path of the network."""
        summary = self.summary
        values = (summary.value, summary.guaranteed_weight)
        ways = sum(int(np.maximum(value, 0).sum(dtype=np.int64)) for value in values) + summary.uncontended_weight.sum()
        return int(summary.wanted[1] + 2 * (ways + summary.contended_weight[summary.contender_of].sum())) + 1


@dataclass(frozen=True)
class QuotaSubproblem:
    """The part of all topics that is in a network: racks, open options, and replicas that racks have taken besides."""

    rows: Bools
    open: Bools
    taken: Ints

    @classmethod
    def whole(cls, problem: QuotaProblem) -> QuotaSubproblem:
        """Return all racks with all options."""
        most = problem.summary.most
        return cls(np.ones(most.shape, bool), problem.summary.value > NO_OPTION, np.zeros_like(most))


@dataclass(frozen=True)
class Quotas:
    """Extra replicas per topic and broker, lower bounds on moves and on mebibytes, and the brokers' prices.

    `steps` is the number of replicas by which topics and brokers miss their bounds, which is the fewest possible.
    """

    extra: npt.NDArray[np.int32]
    moves: int
    weight: int
    prices: Ints
    steps: int = 0

    @classmethod
    def of(cls, problem: QuotaProblem, extra: npt.NDArray[np.int32], cost: int, prices: Ints, steps: int = 0) -> Quotas:
        """Return the quotas of a flow, whose cost counts replicas kept beyond the guaranteed ones as a gain."""
        summary = problem.summary
        total = (summary.wanted - summary.kept) @ np.array([problem.move_cost, 1])
        return cls(extra, *divmod(int(total) + cost, problem.move_cost), prices, steps)

    def extra_beyond_floors(self, summary: ShardSummary) -> Ints:
        """Return replicas per topic and broker beyond the floors: 0 or 1, unless the shares are out of reach."""
        more = self.extra.astype(np.int64)
        more[summary.cell_topic, summary.cell_broker] -= summary.cell_low
        return more


@dataclass(frozen=True)
class QuotaSolution:
    """A flow: extra replicas per topic and broker, the options among them, the flow's cost, and its dual prices.

    `prices` of brokers are in moves, `full_prices` in costs. `worth`, in costs, is that of a place in a topic's rack.
    `steps` is the number of replicas by which bounds are missed; the cost is without their price.
    """

    extra: npt.NDArray[np.int32]
    taken: Bools
    cost: int
    prices: Ints
    full_prices: Ints
    worth: Ints
    steps: int = 0


class QuotaFlow:
    """The network over a part (all racks of a topic that is not separable), within the brokers' bounds."""

    def __init__(self, problem: QuotaProblem, part: QuotaSubproblem, bounds: tuple[Ints, Ints]) -> None:
        self.summary, self.group, self.bounds, self.part = problem.summary, problem.group, bounds, part
        self.topics = np.flatnonzero(part.rows.any(axis=1))
        self.local = positions_in(self.topics, len(part.rows))
        self.separable, self.receivers = problem.separable, problem.receivers
        self.net = Network()
        racks = self.summary.least.shape[1]
        self.rack = self.net.add_nodes(len(self.topics) * racks).reshape(-1, racks)
        self.broker = self.net.add_nodes(len(self.group))
        self.sink = self.net.add_nodes(1)
        self.move = problem.move_cost

    def solve(self) -> QuotaSolution:
        """Return the cheapest flow. Raises Infeasible."""
        self._add_supplies()
        self._add_option_arcs()
        self._add_contended_cells()
        self._add_broker_arcs()
        self.flow, potential = self.net.solve_with_prices(self._path_cost())
        extra = np.zeros(self.summary.value.shape, np.int32)
        extra[self.option_at] = self.flow[self.option]
        cells = self._replicas_of_cells()
        extra[self.summary.cell_topic[self.cells], self.summary.cell_broker[self.cells]] = cells
        worth = np.zeros(self.part.rows.shape, np.int64)
        worth[self.topics] = potential[self.sink[0]] - potential[self.rack]
        # A potential is a sum of moves and of mebibytes, which are worth less than half a move. Rounded, it is the
        # potential of the moves alone.
        moves = (potential + self.move // 2) // self.move
        prices, full = (values[self.sink[0]] - values[self.broker] for values in (moves, potential))
        taken = np.zeros(extra.shape, bool)
        taken[self.option_at] = self.flow[self.option] > 0
        return QuotaSolution(extra, taken, self.net.total_cost(self.flow), prices, full, worth)

    def _path_cost(self) -> int:
        """Return an upper bound of a path's cost: a path enters and leaves each broker once, for at most a move."""
        racks = np.flatnonzero(self.part.rows.any(axis=0))
        brokers = int(np.isin(self.group, racks).sum())
        return 2 * brokers * self.move

    def _add_supplies(self) -> None:
        net, wants = self.net, self.summary.wants[self.topics]
        least, most = self.summary.least[self.topics], self.summary.most[self.topics]
        separable = self.separable[self.topics]
        # If only some racks are in the network, the replicas of the others are no part of it.
        here = np.where(self.part.rows[self.topics], most - self.part.taken[self.topics], 0)
        net.add_supply(self.rack[separable].ravel(), here[separable].ravel())
        # A topic needs a node of its own only if its numbers of replicas per rack are not given.
        source = net.add_nodes(int((~separable).sum()))
        net.add_supply(source, wants[~separable])
        net.add_bounded_arcs(source[:, None], self.rack[~separable], (least[~separable], most[~separable]), 0)
        net.add_supply(self.sink, -int(here[separable].sum() + wants[~separable].sum()))

    def _add_option_arcs(self) -> None:
        self.option_at = np.nonzero(self.part.open)
        topic, broker = self.option_at
        cost = option_costs(self.summary.value[self.option_at], self.move)
        tail = self.rack[self.local[topic], self.group[broker]]
        self.option = self.net.add_arcs(tail, self.broker[broker], 1, cost)

    def _add_contended_cells(self) -> None:
        net, summary = self.net, self.summary
        self.cells = np.flatnonzero(self.part.rows[summary.cell_topic, self.group[summary.cell_broker]])
        number = positions_in(self.cells, len(summary.cell_topic))
        node = net.add_nodes(len(self.cells))
        topic, broker = self.local[summary.cell_topic[self.cells]], summary.cell_broker[self.cells]
        rack = self.rack[topic, self.group[broker]]
        uncontended = np.flatnonzero(number[summary.uncontended_cell] >= 0)
        at = number[summary.uncontended_cell[uncontended]]
        # A replica that is in place saves a move and its bytes; a new replica costs nothing beyond the base.
        net.add_arcs(rack[at], node[at], 1, -(self.move + summary.uncontended_weight[uncontended]))
        net.add_arcs(rack, node, np.where(self.receivers[broker], UNLIMITED, 0), 0)
        self._add_contenders(node)
        self._add_cell_arcs(node, self.broker[broker])

    def _add_cell_arcs(self, node: Ints, broker: Ints) -> None:
        low, high = self.summary.cell_low[self.cells], self.summary.cell_high[self.cells]
        self.cell_out = self.net.add_bounded_arcs(node, broker, (low, high), 0)

    def _replicas_of_cells(self) -> Ints:
        return np.asarray(self.flow[self.cell_out] + self.summary.cell_low[self.cells], np.int64)

    def _add_broker_arcs(self) -> None:
        self.net.add_bounded_arcs(self.broker, self.sink, self.bounds, 0)

    def _add_contenders(self, node: Ints) -> None:
        net, summary = self.net, self.summary
        chosen = np.flatnonzero(self.part.rows[summary.contended_topic, summary.contended_group])
        number = positions_in(chosen, len(summary.contended_topic))
        contended = net.add_nodes(len(chosen))
        topic = self.local[summary.contended_topic[chosen]]
        net.add_arcs(self.rack[topic, summary.contended_group[chosen]], contended, summary.contended_most[chosen], 0)
        contender = np.flatnonzero(number[summary.contender_of] >= 0)
        at = number[summary.contender_of[contender]]
        brokers = len(self.group)
        key = self.local[summary.cell_topic[self.cells]] * brokers + summary.cell_broker[self.cells]
        cell = np.searchsorted(key, topic[at] * brokers + summary.contender_broker[contender])
        net.add_arcs(contended[at], node[cell], 1, -(self.move + summary.contended_weight[chosen][at]))


def quotas_by_flow(problem: QuotaProblem) -> Quotas:
    """Return the quotas of all topics, computed by one flow. Raises Infeasible."""
    solution = QuotaFlow(problem, QuotaSubproblem.whole(problem), problem.extra_bounds).solve()
    return Quotas.of(problem, solution.extra, solution.cost, solution.prices)


def quotas_by_pricing(problem: QuotaProblem) -> Quotas:
    """Return the quotas of all topics. Raises Infeasible."""
    return quotas_by_rack(problem, RackProblem) if problem.separable.all() else quotas_by_flow(problem)


def quotas_by_rack(problem: QuotaProblem, kind: type[RackProblem]) -> Quotas:
    """Return the quotas of topics that are all separable, for which racks are independent. Raises Infeasible."""
    extra = np.zeros(problem.summary.value.shape, np.int32)
    prices, cost, steps = np.zeros(len(problem.group), np.int64), 0, 0
    for number in np.unique(problem.group).tolist():
        rack = kind(problem, number)
        solution = rack.solve()
        extra[:, rack.columns] = solution.extra[:, rack.columns]
        prices[rack.columns] = solution.prices[rack.columns]
        cost, steps = cost + solution.cost, steps + solution.steps
    return Quotas.of(problem, extra, cost, prices, steps)


@dataclass(frozen=True)
class _OptionRanks:
    """Each option's rank in its row at some prices, and its distance from the most expensive option that is taken."""

    rank: npt.NDArray[np.int16]
    distance: Floats


class RackProblem:
    """The rows of one rack. Tables are per topic and broker of the rack."""

    def __init__(self, problem: QuotaProblem, number: int) -> None:
        self.problem, self.number, summary = problem, number, problem.summary
        self.mine = problem.group == number
        self.columns = np.flatnonzero(self.mine)
        self.option = summary.value[:, self.columns] > NO_OPTION
        self.cost = option_costs(summary.value[:, self.columns], problem.move_cost)
        self.wants = summary.most[:, number]
        self.contended = np.zeros(summary.topics, bool)
        self.contended[summary.contended_topic[summary.contended_group == number]] = True
        # Cells that a contended cell touches take some of the row's replicas, which are not left for the options.
        mine = np.flatnonzero(problem.group[summary.cell_broker] == number)
        self.contended[summary.cell_topic[mine]] = True
        fewest, most = (
            sum_by(bound[mine], summary.cell_topic[mine], summary.topics)
            for bound in (summary.cell_low, summary.cell_high)
        )
        self.takes = (np.maximum(self.wants - most, 0), self.wants - fewest)
        self.middle = (self.takes[0] + self.takes[1]) // 2
        self.rng = np.random.default_rng(number)
        self.shuffled = self.rng.permutation(summary.topics)

    def solve(self) -> QuotaSolution:
        """Return the rack's cheapest flow over all its options. Raises Infeasible."""
        opened, taken, widen = self._choose_open_options()
        while True:
            try:
                solution = self._solve_filtered(opened, taken)
            except Infeasible:
                if (opened | ~self.option).all():
                    raise
                opened = opened | widen()
                continue
            options = self._missing_options(solution, opened)
            if options is None:
                return solution
            opened = opened | options

    def _choose_open_options(self) -> tuple[Bools, Bools, Callable[[], Bools]]:
        """Return masks of the options that are open at first and of those taken, and a function that opens more."""
        topics = len(self.wants)
        sample = max(_PER_BROKER * len(self.columns), int(_SAMPLE * topics))
        if sample >= topics:
            return self.option, np.zeros_like(self.option), lambda: self.option
        ranked = self._rank_options(self._sample_prices(self.shuffled[:sample]))
        windows = (_WINDOW << doubled for doubled in count(1))
        return *self._filter_options(ranked, _WINDOW), lambda: self._filter_options(ranked, next(windows))[0]

    def _sample_prices(self, topics: Ints) -> Ints:
        """Return the prices in a sample of the topics, with the brokers' bounds scaled down to the sample."""
        rows = np.zeros(len(self.wants), bool)
        rows[topics] = True
        # The bounds of a sample are scaled down, and a little wider, because it is not quite representative.
        part, total = int(self.wants[rows].sum()), max(int(self.wants.sum()), 1)
        low, high = self.problem.extra_bounds
        slack = 1 + len(self.columns) // 16
        bounds = (np.maximum(low * part // total - slack, 0), -(-high * part // total) + slack)
        try:
            sample = self._build_part(rows, self.option & rows[:, None], self.wants * 0)
            # A sample leaves out the guaranteed replicas, and its bounds are without them.
            return self._flow(sample, bounds, np.zeros(len(self.mine), np.int64)).solve().full_prices
        except Infeasible:
            # The sample is not representative; the first round finds better prices.
            return np.zeros(len(self.problem.group), np.int64)

    def _rank_options(self, prices: Ints) -> _OptionRanks:
        """Return the ranks of all options at these prices.

        Among equals, options on brokers that have got less than their part so far come first.
        """
        summary, cost = self.problem.summary, self.cost + prices[self.columns]
        # Each broker's part of the replicas of this rack, as a fraction.
        room = ((self.problem.low + self.problem.high) / 2 - summary.guaranteed)[self.columns] / max(
            int(self.wants.sum()), 1
        )
        lack, middle = np.zeros(len(self.columns)), self.middle
        rank, distance = np.zeros(cost.shape, np.int16), np.zeros(cost.shape)
        for start in range(0, summary.topics, _BLOCK):
            topics = self.shuffled[start : start + _BLOCK]
            # Tie breaks differ by less than a unit of cost, so that they decide only between options of equal cost.
            tie_break = 0.42 * np.tanh(lack / 24) + self.rng.uniform(0, 0.03, (len(topics), len(lack)))
            key = np.where(self.option[topics], cost[topics] - tie_break, float(_NEVER))
            order = np.argsort(key, axis=1, kind="stable")
            ranks = np.empty_like(order)
            np.put_along_axis(ranks, order, np.arange(len(lack))[None, :], axis=1)
            rank[topics] = ranks
            last = order[np.arange(len(topics)), np.clip(middle[topics] - 1, 0, len(lack) - 1)]
            distance[topics] = np.abs(key - key[np.arange(len(topics)), last][:, None])
            got = ((ranks < middle[topics][:, None]) & self.option[topics]).sum(axis=0)
            lack += int(got.sum()) * room - got
        return _OptionRanks(rank, distance)

    def _filter_options(self, ranked: _OptionRanks, window: int) -> tuple[Bools, Bools]:
        """Return masks of the options that are open, and of the other options that are taken."""
        first, last = self.takes[0][:, None] - window, self.takes[1][:, None] + window
        opened = (ranked.rank >= first) & (ranked.rank < last) & self.option
        taken = (ranked.rank < first) & self.option
        return opened | self._options_to_change(ranked, taken, window * _OPENED_PER_NEED // _WINDOW), taken

    def _options_to_change(self, ranked: _OptionRanks, taken: Bools, times: int) -> Bools:
        """Return a mask of the options that are cheapest to change on brokers with too many or too few replicas."""
        summary, opened = self.problem.summary, np.zeros_like(taken)
        got = ((ranked.rank < self.middle[:, None]) & self.option).sum(axis=0)
        middle = (summary.cell_low + summary.cell_high) // 2
        touched = sum_by(middle, summary.cell_broker, len(self.problem.group))
        total = got + (touched + summary.guaranteed)[self.columns]
        over, under = total - self.problem.high[self.columns], self.problem.low[self.columns] - total
        for column in np.flatnonzero(np.maximum(over, under) > 0).tolist():
            side = taken[:, column] if over[column] > 0 else self.option[:, column] & ~taken[:, column]
            rows = np.flatnonzero(side)
            need = min(times * int(max(over[column], under[column])), len(rows))
            near = np.argsort(ranked.distance[rows, column], kind="stable")[:need]
            opened[rows[near], column] = True
        return opened

    def _solve_filtered(self, opened: Bools, taken: Bools) -> QuotaSolution:
        """Return the flow over the open options, plus the closed options that are taken. Raises Infeasible."""
        closed = taken & ~opened
        fixed = self.problem.summary.guaranteed.copy()
        fixed[self.columns] += closed.sum(axis=0)
        part = self._build_part(opened.any(axis=1) | self._priced_rows(), opened, closed.sum(axis=1))
        solution = self._flow(part, (self.problem.low, self.problem.high), fixed).solve()
        solution.extra[:, self.columns] += closed
        solution.taken[:, self.columns] |= closed
        return replace(solution, cost=solution.cost + int(self.cost[closed].sum()))

    def _priced_rows(self) -> Bools:
        """Return a mask of the rows for which the flow gives the worth of a place."""
        return self.contended

    def _flow(self, part: QuotaSubproblem, bounds: tuple[Ints, Ints], fixed: Ints) -> QuotaFlow:
        """Return the network of a part within bounds, where each broker has `fixed` replicas besides."""
        return QuotaFlow(self.problem, part, self._only_mine((bounds[0] - fixed, bounds[1] - fixed)))

    def _build_part(self, rows: Bools, opened: Bools, taken: Ints) -> QuotaSubproblem:
        racks = self.problem.summary.most.shape[1]
        here = np.arange(racks) == self.number
        everywhere = np.zeros((len(rows), len(self.problem.group)), bool)
        everywhere[:, self.columns] = opened
        return QuotaSubproblem(rows[:, None] & here, everywhere, taken[:, None] * here)

    def _only_mine(self, bounds: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
        low, high = (np.where(self.mine, bound, 0) for bound in bounds)
        return low, high

    def _missing_options(self, solution: QuotaSolution, opened: Bools) -> Bools | None:
        """Return a mask of the options that should change at the prices, and of options that could replace them.

        None if the flow is the cheapest over all options.
        """
        cost = np.where(self.option, self.cost + solution.full_prices[self.columns], _NEVER)
        taken = solution.taken[:, self.columns]
        dearest = np.sort(cost, axis=1)[np.arange(len(cost)), np.clip(self.wants - 1, 0, len(self.columns) - 1)]
        # In rows with a contended cell, the flow gives the worth of a place in the row.
        worth = np.where(self.contended, solution.worth[:, self.number], dearest)[:, None]
        contended, takes = self.contended[:, None], (self.wants > 0)[:, None]
        may = np.where(contended, ~opened, takes) & self.option
        mispriced: Bools = np.where(taken, cost > worth, cost < worth) & may
        affected = mispriced.sum(axis=1)[:, None] > 0
        return mispriced | ((cost == worth) & affected & ~contended) if affected.any() else None


def option_costs(value: npt.NDArray[np.int32], move: int) -> Ints:
    """Return the cost of an option, given its value: an option with a replica to keep gains a move and its weight."""
    return np.where(value >= 0, -(move + value.astype(np.int64)), 0)


@dataclass(frozen=True)
class ShardQuota:
    """One shard's part: replicas per topic and broker, and leaders per broker.

    `beyond_floor` has one bit per topic and broker, for one replica more than the floor. Where the fair shares are out
    of reach, `far_cells` and `far_amounts` have the replicas that the bit cannot express. `leaders` is None if brokers
    lead in proportion to their replicas, which every shard can ensure on its own.
    """

    beyond_floor: npt.NDArray[np.uint8]
    far_cells: Ints
    far_amounts: Ints
    leaders: Ints | None

    def replicas(self, low: Ints) -> Ints:
        """Return replicas per topic and broker, given the floors."""
        amounts = np.asarray(low + np.unpackbits(self.beyond_floor, count=low.size).reshape(low.shape), np.int64)
        amounts.ravel()[self.far_cells] += self.far_amounts
        return amounts


def shard_quotas(
    summary: ShardSummary, topics: list[int], quotas: Quotas, leaders: list[Ints] | None
) -> list[ShardQuota]:
    """Return the quotas of the shards; `topics` has the number of topics of each shard."""
    shares = []
    for number, part in enumerate(np.split(quotas.extra_beyond_floors(summary), np.cumsum(topics)[:-1])):
        bits = part > 0
        far = np.flatnonzero(part != bits)
        leaders_here = None if leaders is None else leaders[number]
        shares.append(ShardQuota(np.packbits(bits), far, (part - bits).ravel()[far], leaders_here))
    return shares
