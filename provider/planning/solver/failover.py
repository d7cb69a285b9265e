"""Failover first: leaders are chosen together with their successors, so that a broker's death is shared by the others.

KAFKA-19048 ranks the order of replicas before the stability of leaders. With two replicas, only another leader changes
who is next in line. Neither moves data. Within bounds for leaders, the pairs (leader, next in line) get the least sum
of squares, then the fewest leaders change, then the fewest lead without data or in another order.

For one topic, one flow finds that::

    partition ─► (leader, next in line) ──1, 3, 5, ...──► leader ─[fair share]─► sink

A topic's bounds and pairs of all topics cross, which no flow can have. Several topics therefore take turns: each is
solved exactly while the others stay, then single partitions of all topics together, then the next in line for leaders
that stay, until none of these lowers the sum of squares. A cluster left by that is left alone by the next plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kafka_steward.planning.solver.flow import Network
from kafka_steward.planning.solver.leaders import LeaderBounds, Replicas, order_for_failover
from kafka_steward.planning.solver.problem import Ints, count_pairs, positions_within

#: Rounds over all topics; nearly all is gained in two or three.
_ROUNDS = 50
#: Partitions of each topic that take part, by turns, where one partition of every topic is chosen again.
_TURNS = 3


def order_with_leaders(topic: Ints, replicas: Replicas, bounds: LeaderBounds, *, exact: bool) -> Ints:
    """Return the replicas' brokers in an order of the most even failover, with other leaders where that takes them.

    `replicas` are in order within ascending rows, their leaders within `bounds`, and stay within them. If not `exact`,
    for one shard among several, each broker keeps its number of leaders, and exchanges order those next in line.
    """
    brokers = len(bounds.broker[0])
    broker = replicas.broker
    for _ in range(_ROUNDS):
        state = _Failover(topic, Replicas(replicas.row, broker, replicas.leads, replicas.added), bounds, exact=exact)
        state.improve()
        led = state.ordered()
        after = order_for_failover(replicas.row, led, brokers, exact=exact)
        kept, now = (sum_of_squares(replicas.row, order, brokers) for order in (led, after))
        # The flags of leaders and new replicas follow their replicas.
        moved = _positions_after(replicas.row, broker, after, brokers)
        replicas, broker = Replicas(replicas.row, after, replicas.leads[moved], replicas.added[moved]), after
        if now >= kept:
            break
    return broker


def sum_of_squares(row: Ints, broker: Ints, brokers: int) -> int:
    """Return the sum of squares of the number of times that each pair (leader, next in line) occurs."""
    first = np.flatnonzero(np.diff(row, prepend=-1))
    first = first[np.append(np.diff(row) == 0, False)[first]]
    pairs = np.bincount(broker[first] * brokers + broker[first + 1])
    return int((pairs.astype(np.int64) ** 2).sum())


def _positions_after(row: Ints, before: Ints, after: Ints, brokers: int) -> Ints:
    """Return where each replica of the order `after` stood in the order `before`."""
    old, new = row * brokers + before, row * brokers + after
    by_cell = np.argsort(old)
    return by_cell[np.searchsorted(old[by_cell], new)]


@dataclass(frozen=True)
class _Candidates:
    """Every pair (leader, next in line) of every row's replicas: row, both places, cost of all but the squares.

    `own` marks the pair that a row has now, and `start` is each row's first pair, followed by the end.
    """

    row: Ints
    first: Ints
    second: Ints
    changes: Ints
    misplaced: Ints
    start: Ints

    @classmethod
    def of(cls, rows: int, replicas: Replicas) -> _Candidates:
        degree = np.bincount(replicas.row, minlength=rows)
        begin = np.cumsum(degree) - degree
        count = degree * (degree - 1)
        row = np.repeat(np.arange(rows), count)
        number = positions_within(count)
        one, other = np.divmod(number, np.maximum(degree[row] - 1, 1))
        other += other >= one
        first, second = begin[row] + one, begin[row] + other
        return cls(
            row=row,
            first=first,
            second=second,
            changes=np.where(replicas.leads[first], 0, 1),
            # The next in line is the first of the others, in the order that they have.
            misplaced=replicas.added[first] + np.where(other == np.where(one == 0, 1, 0), 0, 1),
            start=np.concatenate([[0], np.cumsum(count)]),
        )


class _Failover:
    """Leaders and next in line of all rows, and how often each pair occurs."""

    def __init__(self, topic: Ints, replicas: Replicas, bounds: LeaderBounds, *, exact: bool) -> None:
        rows, self.brokers = len(topic), len(bounds.broker[0])
        self.topic, self.replicas, self.cell = topic, replicas, bounds.cell
        self.candidates = found = _Candidates.of(rows, replicas)
        self.pair = replicas.broker[found.first] * self.brokers + replicas.broker[found.second]
        #: The candidate that each row has taken: its first; rows with one replica have none.
        self.taken = found.start[:-1].copy()
        self.chooses = np.diff(found.start) > 0
        self.height = np.bincount(self.pair[self.taken[self.chooses]], minlength=self.brokers**2)
        leader = replicas.broker[np.searchsorted(replicas.row, np.arange(rows))]
        self.led = count_pairs(topic, leader, (int(topic.max(initial=-1)) + 1, self.brokers))
        total = self.led.sum(axis=0)
        self.level = bounds.broker if exact else (total, total)

    def improve(self) -> None:
        """Choose again, topic by topic and across topics, until no such choice lowers the sum of squares."""
        for _ in range(_ROUNDS):
            if not sum([self._choose(rows, across=across) for rows, across in self._blocks()]):
                return

    def ordered(self) -> Ints:
        """Return the replicas' brokers in order: the leader, the next in line, the others as they were."""
        place = np.arange(len(self.replicas.row))
        taken = self.taken[self.chooses]
        place[self.candidates.first[taken]] = -2
        place[self.candidates.second[taken]] = -1
        return self.replicas.broker[np.lexsort((place, self.replicas.row))]

    def _blocks(self) -> Iterator[tuple[Ints, bool]]:
        """Yield the rows to choose again together, and whether they are of several topics."""
        rows = np.flatnonzero(self.chooses)
        ends = np.flatnonzero(np.diff(self.topic[rows], prepend=-1))
        for block in np.split(rows, ends[1:]):
            yield block, False
        if len(ends) > 1:
            for turn in range(_TURNS):
                yield self._one_of_each_topic(rows, turn), True

    def _one_of_each_topic(self, rows: Ints, turn: int) -> Ints:
        """Return of each topic the row that has the most to gain but for `turn` others."""
        lowest = np.full(len(self.topic), np.iinfo(np.int64).max)
        allowed = self._allowed_across()
        np.minimum.at(lowest, self.candidates.row[allowed], self.height[self.pair[allowed]])
        gain = self.height[self.pair[self.taken[rows]]] - lowest[rows]
        rows = rows[np.lexsort((rows, -gain, self.topic[rows]))]
        rank = positions_within(np.unique(self.topic[rows], return_counts=True)[1])
        return np.sort(rows[rank == turn])

    def _allowed_across(self) -> Ints:
        """Return the candidates that a row may take without leaving its topic's bounds, whatever other topics do."""
        found, low, high = self.candidates, *self.cell
        topic = self.topic[found.row]
        lead, now = self.replicas.broker[found.first], self.replicas.broker[found.first[self.taken[found.row]]]
        room = (self.led[topic, lead] < high[topic, lead]) & (self.led[topic, now] > low[topic, now])
        return np.flatnonzero(room | (lead == now))

    def _choose(self, rows: Ints, *, across: bool) -> bool:
        """Let `rows` choose again while all others stay; return whether that lowers the sum of squares."""
        if len(rows) == 0:
            return False
        at = self._candidates_of(rows, across=across)
        taken, pairs = self.taken[rows], self.pair[at]
        # Some pair has to become rarer by one, and some other one, less frequent by two or more, more frequent.
        if int(self.height[pairs].min()) + 1 >= int(self.height[self.pair[taken]].max()):
            return False
        others = self.height.copy()
        np.subtract.at(others, self.pair[taken], 1)
        chosen = self._solve(at, others[pairs], self._room(rows, across=across))
        after = others.copy()
        np.add.at(after, self.pair[chosen], 1)
        if int((after**2).sum()) >= int((self.height**2).sum()):
            return False
        for candidates, step in ((taken, -1), (chosen, 1)):
            lead = self.replicas.broker[self.candidates.first[candidates]]
            np.add.at(self.led, (self.topic[rows], lead), step)
        self.height = after
        self.taken[rows] = chosen
        return True

    def _candidates_of(self, rows: Ints, *, across: bool) -> Ints:
        if across:
            allowed = self._allowed_across()
            return allowed[np.isin(self.candidates.row[allowed], rows)]
        start = self.candidates.start
        return np.repeat(start[rows], start[rows + 1] - start[rows]) + positions_within(start[rows + 1] - start[rows])

    def _room(self, rows: Ints, *, across: bool) -> tuple[Ints, Ints]:
        """Return the fewest and the most of `rows` that each broker may lead while all other rows stay."""
        mine = np.bincount(self.replicas.broker[self.candidates.first[self.taken[rows]]], minlength=self.brokers)
        others = self.led.sum(axis=0) - mine
        low, high = (bound - others for bound in self.level)
        if not across:
            topic = int(self.topic[rows[0]])
            fixed = self.led[topic] - mine
            low, high = np.maximum(low, self.cell[0][topic] - fixed), np.minimum(high, self.cell[1][topic] - fixed)
        return np.maximum(low, 0), high

    def _solve(self, at: Ints, heights: Ints, room: tuple[Ints, Ints]) -> Ints:
        """Return the candidate of `at` that each row takes; `heights` are those of its pairs without the rows."""
        found = self.candidates
        rows, index = np.unique(found.row[at], return_inverse=True)
        pairs, where, which, count = np.unique(
            self.pair[at], return_index=True, return_inverse=True, return_counts=True
        )
        leads = pairs // self.brokers
        used, end = np.unique(leads, return_inverse=True)
        net = Network()
        part, pair, ends, sink = (net.add_nodes(size) for size in (len(rows), len(pairs), len(used), 1))
        many = len(rows) + 1
        taken = net.add_arcs(part[index], pair[which], 1, 2 * many * found.changes[at] + found.misplaced[at])
        level = np.repeat(heights[where], count) + positions_within(count)
        tail = np.repeat(np.arange(len(pairs)), count)
        net.add_arcs(pair[tail], ends[end[tail]], 1, (2 * level + 1) * 2 * many * many)
        net.add_bounded_arcs(ends, sink, (room[0][used], room[1][used]), 0)
        net.add_supply(part, 1)
        net.add_supply(sink, -len(rows))
        return at[net.solve()[taken] > 0]
