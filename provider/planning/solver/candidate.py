"""Candidate plans: new assignments of every row of a shard, taken from a reassignment, or cut down to a budget.

A budget takes the moves of a complete plan that improve most. Moves off failed and draining brokers, moves towards the
right number of replicas, and moves that repair a rack violation come first. The other moves follow in the order in
which they make the brokers' loads most even. Each move that is taken is a step of a plan with the fewest moves, so
budgets add up: a cluster that `n` moves would make even needs `n` minus the moves already made.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from kafka_steward.assignment import Assignment, TopicPartition, counted, only_reorders
from kafka_steward.errors import PlanError
from kafka_steward.planning.files.reassignment import parse_reassignment
from kafka_steward.planning.solver.fair_shares import rack_spread_violated
from kafka_steward.planning.solver.problem import (
    Bools,
    Disposition,
    Ints,
    PartitionTable,
    Problem,
    combine_shards,
    is_pair_in,
    leaderless_dispositions,
    positions_in,
    positions_within,
    sum_by,
)
from kafka_steward.planning.solver.room import Choices, RoomRules, choose_within_room


@dataclass(frozen=True)
class CandidatePlan:
    """New assignments, as flat as the rows: `broker[i]` in order within `row[i]`. `bound` is the fewest moves."""

    rows: PartitionTable
    disposition: Ints
    row: Ints
    broker: Ints
    bound: int
    #: Notes for readers of the proof, such as a goal that could not be met in full.
    notes: tuple[str, ...] = ()
    #: The name of the bounds that the leaders meet (see `leaders.leader_bounds`); None if they are not to be even.
    leader_evenness: str | None = None
    #: A price per broker that proves that no leaders as even change fewer; None if it is not the operation's aim.
    leader_prices: Ints | None = None

    @cached_property
    def row_starts(self) -> Ints:
        """The start of each row's new replicas, followed by the end of the last row's replicas."""
        return np.searchsorted(self.row, np.arange(len(self.rows) + 1))

    def planned_leaders(self, brokers: int) -> Ints:
        """Return the number of planned partitions that each broker leads."""
        planned = self.disposition == Disposition.PLANNED
        return np.bincount(self.broker[self.row_starts[:-1]][planned], minlength=brokers)

    @cached_property
    def added(self) -> Bools:
        """A mask of the new replicas on brokers that did not hold the row."""
        return ~is_pair_in(self.row, self.broker, self.rows.row, self.rows.broker)

    @cached_property
    def removed(self) -> Bools:
        """A mask of the old replicas on brokers that no longer hold the row."""
        return ~is_pair_in(self.rows.row, self.rows.broker, self.row, self.broker)

    def put_demoted_last(self, demoted: Bools) -> CandidatePlan:
        """Return the plan with the demoted brokers last in the rows that it changes.

        Of these rows they lead only those without another replica that is kept and in sync, the first of which leads.
        """
        if not demoted.any():
            return self
        changed = np.zeros(len(self.rows), bool)
        changed[self.changed_rows] = True
        rows, starts, last = self.rows, self.row_starts[:-1], demoted[self.broker] & changed[self.row]
        in_sync = ~rows.behind & ~rows.lost
        able = is_pair_in(self.row, self.broker, rows.row[in_sync], rows.broker[in_sync]) & ~last
        able &= last[starts][self.row]
        replaced, first = np.unique(self.row[able], return_index=True)
        place = positions_within(np.diff(self.row_starts)) + np.where(last, int(np.diff(self.row_starts).max()), 0)
        leads = np.delete(starts, replaced)
        place[np.concatenate([leads, np.flatnonzero(able)[first]])] = -1
        return replace(self, broker=self.broker[np.lexsort((place, self.row))])

    @cached_property
    def catching_up(self) -> Bools:
        """A mask of the old replicas that are out of sync, and that rows which lose replicas keep.

        Kafka completes such a move only once these replicas are copied, even if it adds none.
        """
        fewer = np.diff(self.row_starts) < self.rows.replica_count
        return self.rows.behind & ~self.removed & fewer[self.rows.row]

    @cached_property
    def changed_rows(self) -> Ints:
        """The rows whose assignment differs, even if only in its order."""
        # Rows of another length differ. The other rows are compared place by place.
        differs = np.diff(self.row_starts) != self.rows.replica_count
        same_length = ~differs[self.row]
        row = self.row[same_length]
        place = np.arange(len(self.row))[same_length] - self.row_starts[row]
        differs[row[self.rows.broker[self.rows.row_starts[row] + place] != self.broker[same_length]]] = True
        return np.flatnonzero(differs)


def merge_replicas(rows: PartitionTable, stays: Bools, row: Ints, broker: Ints) -> tuple[Ints, Ints]:
    """Return the old replicas in `stays` and the new replicas (row, broker) in order of their rows."""
    both = np.concatenate([rows.row[stays], row])
    order = np.argsort(both, kind="stable")
    return both[order], np.concatenate([rows.broker[stays], broker])[order]


def apply_reassignment(problem: Problem) -> CandidatePlan:
    """Return the given assignments as a plan, except those that would copy or remove replicas without a leader.

    Raises PlanError that names a partition or broker that the snapshot does not have, or a broker that has failed.
    """
    rows, brokers = problem.rows, problem.brokers
    targets = _find_targets(rows, parse_reassignment(problem.options.reassignment))
    disposition = _given_dispositions(problem, targets)
    if problem.room_rules is not None:
        lacking = _given_without_room(problem, targets, disposition, problem.room_rules)
        disposition[lacking] = Disposition.NO_ROOM
    planned = np.flatnonzero(disposition == Disposition.PLANNED)
    index = {int(broker): at for at, broker in enumerate(brokers.ids)}
    row, broker = [], []
    for at in planned.tolist():
        for id_ in targets[at]:
            if id_ not in index:
                raise PlanError(
                    f"The reassignment of {rows.partition_name(at)} names broker {id_}, which the snapshot does not "
                    "have."
                )
            failed = brokers.state[index[id_]] == "failed"
            if failed and not only_reorders(_replicas(problem, at), targets[at]):
                raise PlanError(f"The reassignment of {rows.partition_name(at)} names broker {id_}, which has failed.")
        row += [at] * len(targets[at])
        broker += [index[id_] for id_ in targets[at]]
    new = merge_replicas(
        rows, (disposition != Disposition.PLANNED)[rows.row], np.array(row, int), np.array(broker, int)
    )
    candidate = CandidatePlan(rows, disposition, *new, bound=0)
    # No plan reaches exactly these assignments with fewer moves than they differ by.
    return replace(candidate, bound=int(candidate.added.sum()))


def _given_dispositions(problem: Problem, targets: Mapping[int, Assignment]) -> Ints:
    rows = problem.rows
    disposition = np.full(len(rows), int(Disposition.UNTOUCHED))
    leaderless = leaderless_dispositions(problem)
    for at, target in targets.items():
        held = _replicas(problem, at)
        if rows.moving[at]:
            disposition[at] = Disposition.IN_FLIGHT
        elif held != target:
            lost = leaderless[at] != Disposition.UNTOUCHED and not only_reorders(held, target)
            disposition[at] = leaderless[at] if lost else Disposition.PLANNED
    return disposition


def _given_without_room(
    problem: Problem, targets: Mapping[int, Assignment], disposition: Ints, rules: RoomRules
) -> Ints:
    """Return the rows for whose new replicas there is no room, as few replicas as can be."""
    rows, brokers = problem.rows, problem.brokers
    at = np.flatnonzero(disposition == Disposition.PLANNED)
    names = [frozenset(targets[row]) for row in at.tolist()]
    target = np.array([[int(broker) in name for broker in brokers.ids] for name in names], bool)
    hold = np.zeros((len(rows), len(brokers)), bool)
    hold[rows.row, rows.broker] = True
    may = target & ~hold[at]
    adds = may.sum(axis=1)
    lost = np.zeros_like(hold)
    lost[rows.row[rows.lost], rows.broker[rows.lost]] = True
    chosen = choose_within_room(
        Choices(
            size=rows.size[at],
            wanted=adds,
            may=may,
            hold=np.zeros_like(may),
            may_stay=adds > 0,
            missing=adds,
            gives=(hold & ~lost)[at] & ~target & brokers.usable,
            goals=(),
        ),
        lambda: may,
        brokers.rooms,
        rules,
    )
    return at[chosen.left]


def _replicas(problem: Problem, row: int) -> Assignment:
    rows = problem.rows
    return tuple(problem.brokers.ids[rows.broker[rows.row_starts[row] : rows.row_starts[row + 1]]].tolist())


def _find_targets(rows: PartitionTable, given: Mapping[TopicPartition, Assignment]) -> dict[int, Assignment]:
    """Return the given assignments by row; those of topics that other shards have are left out."""
    named, known = {name.topic for name in given}, set(rows.topics)
    near = np.flatnonzero(np.array([topic in named for topic in rows.topics], bool)[rows.topic])
    names = zip(rows.topic[near].tolist(), rows.number[near].tolist(), strict=True)
    # Only for rows of the named topics: there may be a million others.
    row_of = {(rows.topics[topic], number): row for row, (topic, number) in zip(near.tolist(), names, strict=True)}
    targets = {}
    for name, target in given.items():
        if (name.topic, name.partition) in row_of:
            targets[row_of[name.topic, name.partition]] = target
        elif name.topic in known:
            raise PlanError(f"The reassignment names {name}, which the snapshot does not have.")
    return targets


def cut_to_budget(candidate: CandidatePlan, problem: Problem) -> CandidatePlan:
    """Return the candidate plan, cut down to the options' `max_moves` and `max_bytes`."""
    options = problem.options
    if not options.has_budget:
        return candidate
    moved = MovedRows.of(candidate, problem)
    waits = ~moved.choose(options.max_moves, options.max_bytes)
    if not waits.any():
        return candidate
    left = int(moved.cost[waits].sum())
    notes = (*candidate.notes, budget_note(left, exact=not options.balances_bytes))
    # Each replica that waits is a move that the complete plan needs.
    bound = max(candidate.bound - left, 0)
    part = ChangedRows.of(candidate).without(moved.row[waits])
    return replace(part.apply_to(candidate.rows), bound=bound, notes=notes)


def budget_note(left: int, *, exact: bool) -> str:
    """Return the note of a proof about the replicas that a budget leaves; `exact` if the complete plan is minimal."""
    claim = "; nothing could have left fewer moves to do" if exact else ""
    return f"The budget leaves {counted(left, 'replica')} to be moved by later plans{claim}."


@dataclass(frozen=True)
class ChangedRows:
    """The changes of a candidate plan without its other rows: small enough to be sent between driver and tasks.

    `count[i]` is the number of replicas of `row[i]` in `broker`; all other rows are as they were.
    """

    row: Ints
    count: Ints
    broker: npt.NDArray[np.int32]
    disposition: npt.NDArray[np.int8]
    bound: int
    notes: tuple[str, ...]
    leader_evenness: str | None

    @classmethod
    def of(cls, candidate: CandidatePlan) -> ChangedRows:
        """Return the changes of a candidate plan."""
        row = candidate.changed_rows
        changed = np.zeros(len(candidate.rows), bool)
        changed[row] = True
        return cls(
            row,
            np.diff(candidate.row_starts)[row],
            candidate.broker[changed[candidate.row]].astype(np.int32),
            candidate.disposition.astype(np.int8),
            candidate.bound,
            candidate.notes,
            candidate.leader_evenness,
        )

    def without(self, waiting: Ints) -> ChangedRows:
        """Return the changes of all but the `waiting` rows."""
        if len(waiting) == 0:
            return self
        stays = ~np.isin(self.row, waiting)
        broker = self.broker[np.repeat(stays, self.count)]
        return replace(self, row=self.row[stays], count=self.count[stays], broker=broker, leader_evenness=None)

    def apply_to(self, rows: PartitionTable) -> CandidatePlan:
        """Return the candidate plan of the same rows."""
        stays = np.ones(len(rows), bool)
        stays[self.row] = False
        new = merge_replicas(rows, stays[rows.row], np.repeat(self.row, self.count), self.broker.astype(np.int64))
        disposition = self.disposition.astype(np.int64)
        return CandidatePlan(rows, disposition, *new, self.bound, self.notes, self.leader_evenness)


def _urgent_rows(problem: Problem) -> Bools:
    # Rows with a replica on a broker that must not hold it, with a wrong number of replicas, or on the wrong racks.
    rows, brokers = problem.rows, problem.brokers
    urgent: Bools = rack_spread_violated(rows.row, rows.broker, len(rows), brokers) | (
        rows.replica_count != rows.target_rf
    )
    urgent[rows.row[~brokers.usable[rows.broker]]] = True
    return urgent


@dataclass(frozen=True)
class MovedRows:
    """The rows of a complete plan that move replicas, with the facts by which a budget chooses among them.

    `cost` is the number of replicas that a row adds. `removed_*` and `added_*` are pairs (position in `row`, broker).
    Per broker, `excess` is the number of replicas that it has now above those of the complete plan. `load` are its
    bytes after the complete plan, and `leads` the planned partitions that it then leads.
    """

    row: Ints
    cost: Ints
    size: Ints
    urgent: Bools
    removed_of: Ints
    removed_broker: Ints
    added_of: Ints
    added_broker: Ints
    excess: Ints
    load: Ints
    leads: Ints
    #: One value per shard: its number of rows, whether they move or not, and the name of the bounds that the leaders of
    #: its complete plan meet.
    row_counts: list[int]
    leader_evenness: list[str]

    @classmethod
    def of(cls, candidate: CandidatePlan, problem: Problem) -> MovedRows:
        """Return the moved rows of the complete plan of one shard."""
        rows, brokers = candidate.rows, len(problem.brokers)
        added, removed = candidate.row[candidate.added], rows.row[candidate.removed]
        cost = np.bincount(added, minlength=len(rows))
        # A row that only loses replicas or changes their order costs nothing, and needs no budget.
        moved = np.flatnonzero(cost)
        position = positions_in(moved, len(rows))
        gone = position[removed] >= 0
        return cls(
            row=moved,
            cost=cost[moved],
            size=rows.size[moved],
            urgent=_urgent_rows(problem)[moved],
            removed_of=position[removed[gone]],
            removed_broker=rows.broker[candidate.removed][gone],
            added_of=position[added],
            added_broker=candidate.broker[candidate.added],
            excess=np.bincount(rows.broker, minlength=brokers) - np.bincount(candidate.broker, minlength=brokers),
            load=sum_by(rows.size[candidate.row], candidate.broker, brokers),
            leads=candidate.planned_leaders(brokers),
            row_counts=[len(rows)],
            leader_evenness=[] if candidate.leader_evenness is None else [candidate.leader_evenness],
        )

    @classmethod
    def combine(cls, parts: Sequence[MovedRows]) -> MovedRows:
        """Combine the moved rows of shards, in their order; `row` counts on over the shards."""
        rows = np.cumsum([0, *(sum(part.row_counts) for part in parts)]).tolist()
        moved = np.cumsum([0, *(len(part.row) for part in parts)]).tolist()
        shifts = {"row": rows, "removed_of": moved, "added_of": moved}
        return combine_shards(parts, summed=("excess", "load", "leads"), shifts=shifts)

    def split_rows(self, chosen: Bools) -> list[Ints]:
        """Return the chosen rows of each shard, numbered within it."""
        ends = np.cumsum([0, *self.row_counts])
        rows = self.row[chosen]
        at = np.searchsorted(rows, ends)
        return [rows[at[shard] : at[shard + 1]] - ends[shard] for shard in range(len(self.row_counts))]

    def choose(self, max_moves: int | None, max_bytes: int | None) -> Bools:
        """Return a mask of the rows that a budget takes: in the order of their worth, as long as they fit.

        The worth of a row changes with the loads, so that it is computed again before the row is taken. Rows that leave
        the same brokers for the same other brokers have the same worth, so that the heap holds one entry for them.
        """
        cost, size = self.cost.tolist(), (self.cost * self.size).tolist()
        moves = sum(cost) if max_moves is None else max_moves
        bytes_left = sum(size) if max_bytes is None else max_bytes
        if sum(cost) <= moves and sum(size) <= bytes_left:
            return np.ones(len(cost), bool)
        load = _Imbalance(self.excess.tolist())
        alike = self._alike_rows()
        heap = [(later, load.worth(change), rows[0], change) for (later, change), rows in alike.items()]
        heapq.heapify(heap)
        following = {kind: iter(rows[1:]) for kind, rows in alike.items()}
        taken = np.zeros(len(cost), bool)
        while heap and moves:
            later, worth, row, change = heap[0]
            fits = cost[row] <= moves and size[row] <= bytes_left
            now = load.worth(change)
            if fits and now == worth:
                moves, bytes_left = moves - cost[row], bytes_left - size[row]
                load.apply_move(change)
                taken[row] = True
            elif fits:
                # The worth is out of date: the entry goes back to the place of its worth now.
                heapq.heapreplace(heap, (later, now, row, change))
                continue
            # What does not fit now will not fit later either.
            following_row = next(following[later, change], None)
            if following_row is None:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, (later, worth, following_row, change))
        return taken

    def _alike_rows(self) -> dict[tuple[bool, Change], list[int]]:
        """Return the rows in their order, grouped by whether they come later, and by the brokers that they change."""
        removed = _brokers_by_row(self.removed_of, self.removed_broker, len(self.row))
        added = _brokers_by_row(self.added_of, self.added_broker, len(self.row))
        alike: dict[tuple[bool, Change], list[int]] = {}
        for row, (later, *change) in enumerate(zip((~self.urgent).tolist(), removed, added, strict=True)):
            alike.setdefault((later, (change[0], change[1])), []).append(row)
        return alike


#: The brokers that lose a replica of a row, and the brokers that get one.
Change = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class _Imbalance:
    """Each broker's replicas above those of the complete plan."""

    excess: list[int]

    def worth(self, change: Change) -> float:
        """Return the rise of the sum of squares by a change, per replica that is added: the least is best."""
        excess = self.excess
        lost = sum([2 * excess[broker] - 1 for broker in change[0]])
        return (sum([2 * excess[broker] + 1 for broker in change[1]]) - lost) / len(change[1])

    def apply_move(self, change: Change) -> None:
        """Count a row as moved."""
        for broker in change[0]:
            self.excess[broker] -= 1
        for broker in change[1]:
            self.excess[broker] += 1


def _brokers_by_row(row: Ints, broker: Ints, rows: int) -> list[tuple[int, ...]]:
    order = np.argsort(row, kind="stable")
    brokers, ends = broker[order].tolist(), np.searchsorted(row[order], np.arange(rows + 1)).tolist()
    return [tuple(brokers[start:end]) for start, end in pairwise(ends)]
