"""Choose leaders together with their successors, so that many brokers share the load of one that fails.

KAFKA-19048 ranks the order of replicas before the stability of leaders. With two replicas, only another leader changes
which broker is next in line. Neither moves data. Within bounds for leaders, the pairs (leader, next in line) get the
least sum of squares, then the fewest leaders change, then the fewest lead without data or in another order.

For one topic, one flow finds that choice::

    partition ─► (leader, next in line) ──1, 3, 5, ...──► leader ─[fair share]─► sink

No single flow has both bounds per topic and pairs over all topics, because the two cross. Several topics therefore take
turns. Each topic is solved exactly while the others stay, then single partitions of all topics together, then the next
in line for leaders that stay, until none of these steps lowers the sum of squares. The next plan then finds nothing to
improve, and leaves the order as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kafka_steward.planning.solver.flow import Network
from kafka_steward.planning.solver.leaders import LeaderBounds, Replicas, order_for_failover
from kafka_steward.planning.solver.problem import Ints, count_pairs, find_in_order, positions_within

#: Rounds over all topics; the first two or three gain nearly everything.
_ROUNDS = 50
#: The number of turns in which one partition of every topic chooses again; each turn takes the topics' next partitions.
_TURNS = 3


def order_with_leaders(topic: Ints, replicas: Replicas, bounds: LeaderBounds, *, exact: bool) -> Ints:
    """Return the replicas' brokers in an order of the most even failover, which may take other leaders.

    `replicas` are in order within ascending rows, their leaders within `bounds`, and stay within them. If not `exact`,
    for one shard among several, each broker keeps its number of leaders, and exchanges order the replicas next in line.
    """
    brokers = len(bounds.broker[0])
    broker = replicas.broker
    for _ in range(_ROUNDS):
        state = _Failover(topic, Replicas(replicas.row, broker, replicas.leads, replicas.added), bounds, exact=exact)
        state.improve()
        led = state.ordered()
        after = order_for_failover(replicas.row, led, brokers, exact=exact)
        kept, now = (sum_of_squares(replicas.row, order, brokers) for order in (led, after))
        # The flags of leaders and new replicas follow their replicas to the new places.
        moved = find_in_order(replicas.row * brokers + after, replicas.row * brokers + broker)
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


@dataclass(frozen=True)
class _Candidates:
    """Every pair (leader, next in line) that is possible with a row's replicas.

    `row` is per pair, as are the places `first` and `second` among all replicas, and two costs besides the squares:
    `changes` for another leader, and `misplaced` for one without data or in another order. `start` is the first pair of
    each row, followed by the end.
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
        leader_place, next_place = np.divmod(number, np.maximum(degree[row] - 1, 1))
        next_place += next_place >= leader_place
        first, second = begin[row] + leader_place, begin[row] + next_place
        return cls(
            row=row,
            first=first,
            second=second,
            changes=np.where(replicas.leads[first], 0, 1),
            # In the old order, the next in line is the first of the replicas that do not lead.
            misplaced=replicas.added[first] + np.where(next_place == np.where(leader_place == 0, 1, 0), 0, 1),
            start=np.concatenate([[0], np.cumsum(count)]),
        )


class _Failover:
    """Leaders and next in line of all rows, and how often each pair occurs."""

    def __init__(self, topic: Ints, replicas: Replicas, bounds: LeaderBounds, *, exact: bool) -> None:
        rows, self.brokers = len(topic), len(bounds.broker[0])
        self.topic, self.replicas, self.cell = topic, replicas, bounds.cell
        self.candidates = candidates = _Candidates.of(rows, replicas)
        self.pair = replicas.broker[candidates.first] * self.brokers + replicas.broker[candidates.second]
        #: The candidate that each row has taken: its first; rows with one replica have none.
        self.taken = candidates.start[:-1].copy()
        self.chooses = np.diff(candidates.start) > 0
        self.height = np.bincount(self.pair[self.taken[self.chooses]], minlength=self.brokers**2)
        leader = replicas.broker[np.searchsorted(replicas.row, np.arange(rows))]
        self.led = count_pairs(topic, leader, (int(topic.max(initial=-1)) + 1, self.brokers))
        total = self.led.sum(axis=0)
        self.level = bounds.broker if exact else (total, total)

    def improve(self) -> None:
        """Let rows choose again, topic by topic and across topics, until no choice lowers the sum of squares."""
        for _ in range(_ROUNDS):
            # `sum` and not `any`: every block chooses, even if an earlier block has gained.
            if not sum([self._choose(rows, across=across) for rows, across in self._blocks()]):
                return

    def ordered(self) -> Ints:
        """Return the replicas' brokers in order: the leader, the next in line, and then the rest in the old order."""
        place = np.arange(len(self.replicas.row))
        taken = self.taken[self.chooses]
        place[self.candidates.first[taken]] = -2
        place[self.candidates.second[taken]] = -1
        return self.replicas.broker[np.lexsort((place, self.replicas.row))]

    def _blocks(self) -> Iterator[tuple[Ints, bool]]:
        """Yield blocks of rows that choose again together, and whether a block has rows of several topics."""
        rows = np.flatnonzero(self.chooses)
        ends = np.flatnonzero(np.diff(self.topic[rows], prepend=-1))
        for block in np.split(rows, ends[1:]):
            yield block, False
        if len(ends) > 1:
            for turn in range(_TURNS):
                yield self._one_of_each_topic(rows, turn), True

    def _one_of_each_topic(self, rows: Ints, turn: int) -> Ints:
        """Return one row of each topic: after `turn` others, the row with the most to gain."""
        lowest = np.full(len(self.topic), np.iinfo(np.int64).max)
        allowed = self._allowed_across()
        np.minimum.at(lowest, self.candidates.row[allowed], self.height[self.pair[allowed]])
        gain = self.height[self.pair[self.taken[rows]]] - lowest[rows]
        rows = rows[np.lexsort((rows, -gain, self.topic[rows]))]
        rank = positions_within(np.unique(self.topic[rows], return_counts=True)[1])
        return np.sort(rows[rank == turn])

    def _allowed_across(self) -> Ints:
        """Return the candidates that a row may take without leaving its topic's bounds, whatever other topics do."""
        candidates, low, high = self.candidates, *self.cell
        topic = self.topic[candidates.row]
        lead = self.replicas.broker[candidates.first]
        now = self.replicas.broker[candidates.first[self.taken[candidates.row]]]
        room = (self.led[topic, lead] < high[topic, lead]) & (self.led[topic, now] > low[topic, now])
        return np.flatnonzero(room | (lead == now))

    def _choose(self, rows: Ints, *, across: bool) -> bool:
        """Let `rows` choose again while all others stay; return whether that lowers the sum of squares."""
        if len(rows) == 0:
            return False
        at = self._candidates_of(rows, across=across)
        taken, pairs = self.taken[rows], self.pair[at]
        # The sum of squares falls only if a row leaves a pair for another pair that at least two fewer rows have.
        if int(self.height[pairs].min()) + 1 >= int(self.height[self.pair[taken]].max()):
            return False
        rest = self.height.copy()
        np.subtract.at(rest, self.pair[taken], 1)
        chosen = self._solve(at, rest[pairs], self._room(rows, across=across))
        after = rest.copy()
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
        """Return the fewest and the most of `rows` that each broker may lead while other rows keep their leaders."""
        mine = np.bincount(self.replicas.broker[self.candidates.first[self.taken[rows]]], minlength=self.brokers)
        fixed_leads = self.led.sum(axis=0) - mine
        low, high = (bound - fixed_leads for bound in self.level)
        if not across:
            topic = int(self.topic[rows[0]])
            fixed = self.led[topic] - mine
            low, high = np.maximum(low, self.cell[0][topic] - fixed), np.minimum(high, self.cell[1][topic] - fixed)
        return np.maximum(low, 0), high

    def _solve(self, at: Ints, heights: Ints, room: tuple[Ints, Ints]) -> Ints:
        """Return the candidate in `at` that each row takes; `heights` count the pairs of all other rows."""
        candidates = self.candidates
        rows, index = np.unique(candidates.row[at], return_inverse=True)
        pairs, where, which, count = np.unique(
            self.pair[at], return_index=True, return_inverse=True, return_counts=True
        )
        leads = pairs // self.brokers
        used, end = np.unique(leads, return_inverse=True)
        net = Network()
        part, pair, ends, sink = (net.add_nodes(size) for size in (len(rows), len(pairs), len(used), 1))
        # The squares outweigh all changes of leaders, and a change of leader all misplaced replicas.
        many = len(rows) + 1
        taken = net.add_arcs(part[index], pair[which], 1, 2 * many * candidates.changes[at] + candidates.misplaced[at])
        level = np.repeat(heights[where], count) + positions_within(count)
        tail = np.repeat(np.arange(len(pairs)), count)
        net.add_arcs(pair[tail], ends[end[tail]], 1, (2 * level + 1) * 2 * many * many)
        net.add_bounded_arcs(ends, sink, (room[0][used], room[1][used]), 0)
        net.add_supply(part, 1)
        net.add_supply(sink, -len(rows))
        return at[net.solve()[taken] > 0]
