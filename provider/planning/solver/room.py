"""Place replicas where the log directories have room for them.

Room is the bytes that a log directory may receive before less than `min_free` of its volume is free. On a broker with
one log directory, replicas fit if their bytes together do, less those of replicas that leave it earlier in the plan.
Kafka places a replica in the directory with the fewest logs, and we ask for the one with the most room where it does
not fit there. On a broker with several, replicas therefore count as fitting only if they do in every order, and what
leaves such a broker is not counted: nobody knows from which directory.

A plan is first made without regard to room. Only if it does not fit, the choices that matter are made again here, as
an integer program. Its goals, in this order: the most replicas placed, the rack rule, evenness, the fewest moves, the
fewest bytes, leaders that stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from kafka_steward.planning.solver.flow import mebibytes
from kafka_steward.planning.solver.problem import Bools, Ints

#: The bytes that each log directory of each broker may receive; None if they are not known.
Rooms = Sequence[tuple[int, ...] | None]

#: Pairs of a partition and a broker up to which one program decides about all at once; larger ones decide in batches.
MAX_PAIRS = 150
#: The rows of a larger plan that were left, and for which others choose again.
_MAX_RETRIES = 50


def sure_room(directories: Sequence[int], largest: int) -> int:
    """Return the bytes that replicas of at most `largest` bytes each can fill in whatever order they come."""
    # One is refused only when less than its size is left in each directory.
    fitting = [room for room in directories if room >= largest]
    return sum(room - largest for room in fitting) + largest if fitting else 0


def fits(directories: Sequence[int] | None, sizes: Sequence[int], leaving: int = 0) -> bool:
    """Return True if replicas of these sizes fit, once `leaving` bytes have left a broker with one log directory."""
    if directories is None or not sizes:
        return True
    rooms = [directories[0] + leaving] if len(directories) == 1 else directories
    return sum(sizes) <= sure_room(rooms, max(sizes))


@dataclass(frozen=True)
class Steps:
    """A goal about the replicas of some rows on some brokers: each further one on the same `group` costs more.

    `group` is the number of each pair of row and broker, -1 for none. Replicas beyond `capacity[group, step]` cost the
    next step's `cost`, which does not fall.
    """

    group: Ints
    capacity: Ints
    cost: Ints

    def of_rows(self, rows: Ints, taken: Ints) -> Steps:
        """Return the steps that are left for some rows where other replicas have `taken` so many of each group."""
        group = self.group[rows]
        known = np.unique(group[group >= 0])
        capacity = self.capacity[known]
        before = np.cumsum(capacity, axis=1) - capacity
        used = np.clip(taken[known][:, None] - before, 0, capacity)
        number = np.where(group >= 0, np.searchsorted(known, group), -1)
        return Steps(number, capacity - used, self.cost[known])


@dataclass(frozen=True)
class Choices:
    """Partitions to place: all tables are per row and broker.

    A row is to have `wanted` replicas on brokers that `may` hold it. Those that `hold` it have its data. A row that
    `may_stay` can be left as it is, with `missing` replicas. `gives` are brokers that a row leaves in any case if it is
    placed. `goals` come after the most replicas placed, in their order.
    """

    size: Ints
    wanted: Ints
    may: Bools
    hold: Bools
    may_stay: Bools
    missing: Ints
    gives: Bools
    goals: Sequence[Sequence[Steps]]
    #: Whether the fewest moves, the fewest bytes and the leaders that stay are goals, and which pairs lead now.
    leads: Bools | None = None

    @property
    def steps(self) -> list[Steps]:
        """The steps of all goals, in their order."""
        return [steps for goal in self.goals for steps in goal]

    def of_rows(self, rows: Ints, taken: Sequence[Ints]) -> Choices:
        """Return the choices of some rows, where other rows have `taken` so many replicas of each of `steps`."""
        of = iter(taken)
        return Choices(
            self.size[rows],
            self.wanted[rows],
            self.may[rows],
            self.hold[rows],
            self.may_stay[rows],
            self.missing[rows],
            self.gives[rows],
            [[steps.of_rows(rows, next(of)) for steps in goal] for goal in self.goals],
            None if self.leads is None else self.leads[rows],
        )


@dataclass(frozen=True)
class Chosen:
    """The brokers of each row, and which rows stay as they are. It is the best choice if that is `proven`."""

    on: Bools
    left: Bools
    proven: bool = False


@dataclass(frozen=True)
class RoomRules:
    """Of which brokers what leaves makes room: for all that is placed (`counted`), or for what is placed last (`last`).

    `known` keeps what was chosen under the same rules, because a search takes long.
    """

    counted: Bools
    last: Bools
    known: dict[bytes, Chosen] = field(default_factory=dict)


def choose_within_room(choices: Choices, first: Callable[[], Bools], rooms: Rooms, rules: RoomRules) -> Chosen:
    """Return a choice within the rooms: the best one, where the rows are few enough to choose for all at once.

    `first` returns the best choice without regard to room, from which many rows start: those that would overfill a
    broker choose again, some at a time.
    """
    choices = _without_too_large(choices, rooms)
    key = rules.counted.tobytes()
    if key not in rules.known:
        if int(choices.may.sum()) <= MAX_PAIRS:
            none = Chosen(choices.hold & choices.may, choices.may_stay)
            chosen = _Program(choices, rooms, rules.counted).solve() or none
            if not chosen.proven:
                counted = rules.counted & [each is not None and len(each) == 1 for each in rooms]
                _Placed(choices, chosen).choose_each(_single_rooms(choices, rooms), counted)
        else:
            chosen = _choose_in_batches(choices, first(), rooms, rules.counted)
        rules.known[key] = chosen
    chosen = rules.known[key]
    placed = _Placed(choices, replace(chosen, on=chosen.on.copy(), left=chosen.left.copy()))
    return _place_what_fits(placed, rooms, rules.last)


def _without_too_large(choices: Choices, rooms: Rooms) -> Choices:
    """Return the choices without replicas that are larger than each of a broker's log directories."""
    largest = [2**62 if directories is None or len(directories) == 1 else max(directories) for directories in rooms]
    return replace(choices, may=choices.may & (choices.hold | (choices.size[:, None] <= np.array(largest))))


class _Placed:
    """A choice that changes row by row, and what all of its rows together bring to the brokers and take from them."""

    def __init__(self, choices: Choices, chosen: Chosen) -> None:
        self.choices, self.chosen = choices, chosen
        #: Per broker: the bytes that arrive at it, and those that leave it.
        self.arriving, self.leaving = np.zeros((2, choices.may.shape[1]), np.int64)
        #: The replicas in each group of each of the steps.
        self.taken = [np.zeros(len(steps.capacity), np.int64) for steps in choices.steps]
        self._count(np.arange(len(choices.size)), 1)

    def arriving_sizes(self, broker: int) -> list[int]:
        """Return the bytes of each replica that arrives at a broker."""
        sizes: list[int] = self.choices.size[self.chosen.on[:, broker] & ~self.choices.hold[:, broker]].tolist()
        return sizes

    def choose(self, rows: Ints, rooms: Rooms, counted: Bools, may: Bools | None = None) -> None:
        """Choose again for some rows, on brokers that they `may` use now, where all others keep their replicas."""
        self._count(rows, -1)
        bytes_free = (self.leaving * counted - self.arriving).tolist()
        free = [None if each is None else (each[0] + more,) for each, more in zip(rooms, bytes_free, strict=True)]
        choices = self.choices.of_rows(rows, self.taken)
        part = _Program(choices if may is None else replace(choices, may=may), free, counted).solve()
        if part is not None:
            self.chosen.on[rows], self.chosen.left[rows] = part.on, part.left
        self._count(rows, 1)
        if len(rows) > 1 and not (part and part.proven):
            self.choose_each(rooms, counted, rows)

    def choose_each(self, rooms: Rooms, counted: Bools, rows: Ints | None = None) -> None:
        """Choose again for each row alone: a search that ended at its limit may have left what one row can better."""
        for row in range(len(self.choices.size)) if rows is None else rows.tolist():
            self.choose(np.array([row]), rooms, counted)

    def _count(self, rows: Ints, sign: int) -> None:
        choices, on, hold = self.choices, self.chosen.on[rows], self.choices.hold[rows]
        size = sign * choices.size[rows]
        self.arriving += size @ (on & ~hold)
        self.leaving += size @ ((hold & ~on) | (choices.gives[rows] & ~self.chosen.left[rows, None]))
        for steps, taken in zip(choices.steps, self.taken, strict=True):
            group = steps.group[rows]
            np.add.at(taken, group[on & (group >= 0)], sign)


def _choose_in_batches(choices: Choices, on: Bools, rooms: Rooms, counted: Bools) -> Chosen:
    # What leaves a broker with several log directories makes no room.
    counted = counted & [each is not None and len(each) == 1 for each in rooms]
    chosen, waits = Chosen(on, np.zeros(len(choices.size), bool)), np.zeros(len(choices.size), bool)
    placed = _Placed(choices, chosen)
    # Until its turn comes, each of these rows stays as it is; what would have left then makes no room for others.
    while (more := _rows_to_choose_again(placed, rooms, counted) & ~waits).any():
        waits |= more
        chosen.on[more], chosen.left[more] = (choices.hold & choices.may)[more], choices.may_stay[more]
        placed = _Placed(choices, chosen)
    single = _single_rooms(choices, rooms)
    # Large partitions first: they find a place only while much room is left.
    again = np.flatnonzero(waits)
    again = again[np.argsort(-choices.size[again], kind="stable")]
    at_once = max(MAX_PAIRS // choices.may.shape[1], 1)
    for start in range(0, len(again), at_once):
        placed.choose(np.sort(again[start : start + at_once]), single, counted)
    for row in np.flatnonzero(chosen.left)[:_MAX_RETRIES].tolist():
        placed.choose(_neighbours(placed, row, single, at_once), single, counted)
    return chosen


def _neighbours(placed: _Placed, row: int, rooms: Rooms, count: int) -> Ints:
    """Return a row that was left, and others whose replicas may go elsewhere to make room for it, in their order.

    They are the smallest of those that come to the broker where the most room could be made.
    """
    choices, on = placed.choices, placed.chosen.on
    could = [
        came + room[0] if room is not None and may else -1
        for room, came, may in zip(rooms, placed.arriving.tolist(), choices.may[row] & ~choices.hold[row], strict=True)
    ]
    broker = int(np.argmax(could))
    fresh = np.flatnonzero(on[:, broker] & ~choices.hold[:, broker])
    fresh = fresh[np.argsort(choices.size[fresh], kind="stable")][: count - 1]
    return np.unique([row, *fresh.tolist()])


def _single_rooms(choices: Choices, rooms: Rooms) -> Rooms:
    """Return the rooms as if each broker had one log directory."""
    return [each if each is None else (_one_room(each, choices.size),) for each in rooms]


def _one_room(directories: Sequence[int], sizes: Ints) -> int:
    """Return what is sure to fit into the log directories together."""
    if len(directories) == 1:
        return directories[0]
    return sure_room(directories, int(sizes[sizes <= max(directories)].max(initial=0)))


def _rows_to_choose_again(placed: _Placed, rooms: Rooms, counted: Bools) -> Bools:
    """Return a mask of the rows with a new replica on a broker that has no room for it: the largest of each broker."""
    choices = placed.choices
    again = np.zeros(len(choices.size), bool)
    leaving = (placed.leaving * counted).tolist()
    for broker, directories in enumerate(rooms):
        fresh = np.flatnonzero(placed.chosen.on[:, broker] & ~choices.hold[:, broker])
        fresh = fresh[np.argsort(choices.size[fresh], kind="stable")]
        sizes = choices.size[fresh].tolist()
        while sizes and not fits(directories, sizes, leaving[broker]):
            sizes.pop()
        again[fresh[len(sizes) :]] = True
    return again


def _place_what_fits(placed: _Placed, rooms: Rooms, counted: Bools) -> Chosen:
    """Place each row that was left and that fits once all others have moved.

    A program counts less room than there is on several disks, and what leaves only if it does in time for all.
    """
    choices, unlimited = placed.choices, [None] * len(rooms)
    for row in np.flatnonzero(placed.chosen.left).tolist():
        leaving, held = (placed.leaving * counted).tolist(), choices.hold[row]
        able = held.copy()
        for broker in np.flatnonzero(choices.may[row] & ~held).tolist():
            able[broker] = fits(
                rooms[broker], [*placed.arriving_sizes(broker), int(choices.size[row])], leaving[broker]
            )
        if (able & ~held).sum() >= choices.wanted[row] - (held & choices.may[row]).sum():
            placed.choose(np.array([row]), unlimited, counted, able[None, :])
    return placed.chosen


class _Program:
    """The integer program of some choices. The bytes that leave a broker count only if it is `counted`."""

    def __init__(self, choices: Choices, rooms: Rooms, counted: Bools) -> None:
        # Only the driver places within room: the executors of a Spark cluster need no HiGHS.
        from kafka_steward.planning.solver.integer_program import IntegerProgram  # noqa: PLC0415

        self.choices, self.rooms, self.program = choices, rooms, IntegerProgram()
        single = np.array([directories is not None and len(directories) == 1 for directories in rooms], bool)
        self.counted = counted & single
        self.row, self.broker = np.nonzero(choices.may & (choices.hold | self._could_fit()))
        self.held = choices.hold[self.row, self.broker]
        self.pair = self.program.add_columns(len(self.row))
        #: One column per row: 1 if it is placed. Rows that may not stay are placed.
        self.placed = self.program.add_columns(len(choices.size))
        self._add_row_counts()
        self._add_rooms()

    def _could_fit(self) -> Bools:
        """Return a mask of the pairs whose replica fits once everything that could leave the broker has left it."""
        choices = self.choices
        leaving = (choices.size[:, None] * (choices.hold | choices.gives)).sum(axis=0)
        most = [
            np.inf if directories is None else max(directories) + (leaving[at] if self.counted[at] else 0)
            for at, directories in enumerate(self.rooms)
        ]
        return np.asarray(choices.size[:, None] <= np.array(most)[None, :], bool)

    def _add_row_counts(self) -> None:
        choices, program = self.choices, self.program
        stays = np.bincount(self.row, weights=self.held, minlength=len(choices.size)) * choices.may_stay
        rows = program.add_rows(stays, stays, len(choices.size))
        program.add_terms(rows[self.row], self.pair)
        program.add_terms(rows, self.placed, stays - choices.wanted)
        must = np.flatnonzero(~choices.may_stay)
        program.add_terms(program.add_rows(1, 1, len(must)), self.placed[must])
        # A row that stays keeps its replicas, and gets none.
        optional = choices.may_stay[self.row]
        for pairs, low, high, sign in ((optional & self.held, 1, 2, 1), (optional & ~self.held, -np.inf, 0, -1)):
            at = np.flatnonzero(pairs)
            rows = program.add_rows(low, high, len(at))
            program.add_terms(rows, self.pair[at])
            program.add_terms(rows, self.placed[self.row[at]], sign)

    def _add_rooms(self) -> None:
        choices, program = self.choices, self.program
        for broker, directories in enumerate(self.rooms):
            here = np.flatnonzero(self.broker == broker)
            fresh = here[~self.held[here]]
            sizes = choices.size[self.row[fresh]]
            if directories is None or not sizes.any():
                continue
            gives = np.flatnonzero(choices.gives[:, broker]) if self.counted[broker] else np.zeros(0, np.int64)
            stays = here[self.held[here]] if self.counted[broker] else np.zeros(0, np.int64)
            room = directories[0] if len(directories) == 1 else sure_room(directories, int(sizes.max()))
            # Less is sure to fit on several disks than what others may have brought there already.
            room = room if self.counted[broker] else max(room, 0)
            # What leaves is what is held, less what stays.
            most = room + int(choices.size[self.row[stays]].sum())
            unit = max(most / 1e6, 1.0)
            row = program.add_rows(-np.inf, most / unit, 1)
            for columns, factor in (
                (self.pair[fresh], sizes),
                (self.pair[stays], choices.size[self.row[stays]]),
                (self.placed[gives], -choices.size[gives]),
            ):
                program.add_terms(row, columns, factor / unit)

    def _add_steps(self, steps: Steps) -> tuple[Ints, npt.NDArray[np.float64]]:
        """Add the columns of a goal's steps, and return them with their costs."""
        program = self.program
        group = steps.group[self.row, self.broker]
        used, at, members = np.unique(group[group >= 0], return_inverse=True, return_counts=True)
        capacity, cost = steps.capacity[used], steps.cost[used]
        # No group gets more replicas than it has pairs.
        capacity = np.clip(members[:, None] - (np.cumsum(capacity, axis=1) - capacity), 0, capacity)
        of, step_of = np.nonzero(capacity)
        step = program.add_columns(len(of), capacity[of, step_of], whole=False)
        rows = program.add_rows(0, 0, len(used))
        program.add_terms(rows[at], self.pair[group >= 0])
        program.add_terms(rows[of], step, -1)
        return step, cost[of, step_of].astype(np.float64)

    def solve(self) -> Chosen | None:
        """Return the best choice that was found; None if none was before the search ended at its limit."""
        choices, program = self.choices, self.program
        program.add_goal(self.placed, -choices.missing)
        for goal in choices.goals:
            parts = [self._add_steps(steps) for steps in goal]
            program.add_goal(*(np.concatenate([part[side] for part in parts]) for side in (0, 1)))
        if choices.leads is not None:
            fresh = ~self.held
            program.add_goal(self.pair[fresh], 1)
            program.add_goal(self.pair[fresh], mebibytes(choices.size[self.row[fresh]]))
            program.add_goal(self.pair, -choices.leads[self.row, self.broker].astype(np.float64))
        solved = program.solve()
        if solved is None:
            return None
        values, proven = solved
        on = np.zeros(choices.may.shape, bool)
        chosen = values[self.pair] > 0
        on[self.row[chosen], self.broker[chosen]] = True
        return Chosen(on, values[self.placed] == 0, proven)
