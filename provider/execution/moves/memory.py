"""What a process remembers of the moves of a plan between its steps; a new process begins with nothing.

`KnownMoves`: a settled move never changes again (`TRANSITIONS` has no event for it). So a process may keep the totals
of settled moves, whichever process settled them: only which moves have settled since its last step is unknown, and
those are read by name. A number of rows that does not match, as after a restored backup, makes the next step read all
rows again. Rows are only changed by the holder of the step lock. Where nobody else held it since the last step of this
process, the rows are as that step left them, and only their numbers by state are read, which a loss of rows changes.

`KnownVerdicts`: a plan may have ten thousands of moves that wait, and a step that checks all of them again takes
seconds. A verdict is made from `MoveFacts` and the facts that are the same for all moves, and from nothing else: the
checks are shown a move and a partition that are made of these facts. So moves of which they are equal have the same
verdict, and in the next step it still holds. A check that needs more of a move gets it by a further field there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from kafka_steward.assignment import Assignment, Move, TopicPartition
from kafka_steward.cluster.state import Partition
from kafka_steward.execution.moves.preflight import LogDirRoom, PreflightInputs, find_objection
from kafka_steward.execution.moves.rows import MoveRows
from kafka_steward.execution.moves.staging import remaining_move
from kafka_steward.execution.moves.states import Held, HoldReason, bytes_to_copy
from kafka_steward.journal.locks import Fence
from kafka_steward.journal.plans import Plans
from kafka_steward.journal.records import MoveRow, MoveState, PlanRecord


@dataclass
class SettledMoves:
    """Totals of settled moves of one plan.

    `bytes_copied` are the bytes of the completed ones. `last_chunk` is their highest chunk, -1 without any. `ended_ms`
    is the time at which the last of a chunk's moves settled, and `attempted` are the chunks with a move that was
    submitted.
    """

    names: set[TopicPartition] = field(default_factory=set)
    counts: Counter[MoveState] = field(default_factory=Counter)
    bytes_copied: int = 0
    last_chunk: int = -1
    ended_ms: dict[int, int] = field(default_factory=dict)
    attempted: set[int] = field(default_factory=set)

    def add(self, rows: Iterable[MoveRow]) -> None:
        """Add settled moves."""
        for row in rows:
            chunk = row.move.chunk
            self.names.add(row.move.topic_partition)
            self.counts[row.state] += 1
            self.last_chunk = max(self.last_chunk, chunk)
            if row.state is MoveState.COMPLETED:
                self.bytes_copied += bytes_to_copy(row.move)
            if row.settled_ms is not None:
                self.ended_ms[chunk] = max(row.settled_ms, self.ended_ms.get(chunk, row.settled_ms))
            if row.attempt:
                self.attempted.add(chunk)

    def __len__(self) -> int:
        return len(self.names)


class _KeptRows(NamedTuple):
    """The rows that are not settled, as the step with this fencing token left them, and the numbers of all by state."""

    rows: MoveRows
    counts: Counter[MoveState]
    token: int


class KnownMoves:
    """The moves of one plan, as far as a process knows them between its steps.

    `settled` are the totals of the moves that were settled when `read_unsettled` was called last.
    """

    def __init__(self) -> None:
        self.settled = SettledMoves()
        self._unsettled: MoveRows | None = None
        self._kept: _KeptRows | None = None

    def read_unsettled(self, plans: Plans, digest: str, record: PlanRecord | None, fence: Fence) -> MoveRows:
        """Return the moves that are not settled, in plan order; the first time, all rows of the plan are read for it.

        Raises PlanError as `Plans.rows` does.
        """
        # Used once: after a step that fails, nothing says how it left the rows.
        kept, self._kept = self._kept, None
        # The next token: nobody else held the lock in between.
        if kept is not None and fence.token == kept.token + 1 and plans.count_states(digest) == kept.counts:
            return kept.rows
        if self._unsettled is not None:
            number, rows = plans.unsettled_rows(digest, record)
            left = MoveRows(rows)
            self._add_settled(plans.rows_of(digest, self._unsettled.places.keys() - left.places.keys()))
            # Another number, as after a restored backup: everything is read again below.
            if len(self.settled) + len(rows) == number:
                self._unsettled = left
                return left
        self.settled = SettledMoves()
        return self._add_rows(MoveRows(plans.rows(digest, record)))

    def keep(self, rows: MoveRows, fence: Fence) -> None:
        """Keep what a step settled, and left; `rows` are those of `read_unsettled`, as the step left them."""
        unsettled = self._add_rows(rows)
        counts = self.settled.counts + unsettled.counts
        self._kept = _KeptRows(unsettled, counts, fence.token)

    def _add_rows(self, rows: MoveRows) -> MoveRows:
        self._unsettled = rows
        if len(rows.unsettled) < len(rows):
            self._add_settled(row for row in rows if row.state.settled)
            self._unsettled = MoveRows(rows.unsettled)
        return self._unsettled

    def _add_settled(self, rows: Iterable[MoveRow]) -> None:
        known = self.settled.names
        self.settled.add(row for row in rows if row.move.topic_partition not in known)


class Verdicts(NamedTuple):
    """The verdicts about moves: those that are held, with the reason, and the others, with what `remains` of each."""

    held: list[tuple[MoveRow, Held]]
    ready: list[MoveRow]
    remains: list[Move]


class MoveFacts(NamedTuple):
    """All that the checks know of one move: of its plan, of its partition, and whether its bytes have room."""

    topic: str
    topic_id: str | None
    before: Assignment
    after: Assignment
    between_stages: bool
    replicas: Assignment
    isr: frozenset[int]
    leader: int | None
    found_topic_id: str | None
    adding: Assignment
    removing: Assignment
    offline: frozenset[int]
    size_known: bool
    too_large_for: tuple[int, ...]

    def find_objection(self, shared: PreflightInputs) -> tuple[HoldReason, str] | None:
        """Return the objection of preflight to a move of which only these facts are known."""
        name = TopicPartition(self.topic, 0)
        move = Move(*name, self.before, self.after, 0, 0, "", self.topic_id)
        partition = Partition(
            *name,
            self.replicas,
            self.isr,
            self.leader,
            self.found_topic_id,
            self.adding,
            self.removing,
            offline=self.offline,
        )
        # A size of 0, for which a broker has room or has not, says what is known of the size and nothing else.
        rooms = {broker: _with_free_bytes(directories, -1) for broker, directories in shared.rooms.items()}
        fitting = {broker: shared.rooms[broker] for broker in shared.rooms.keys() - self.too_large_for}
        inputs = replace(
            shared,
            snapshot=replace(shared.snapshot, partitions={name: partition}),
            sizes={name: 0} if self.size_known else {},
            rooms=rooms | fitting,
        )
        return find_objection(move, inputs, between_stages=self.between_stages)


#: In place of an objection that is not known yet.
_UNKNOWN = object()


@dataclass
class KnownVerdicts:
    """The objections of the last step of a process, by the facts; a new process begins with none."""

    _shared: PreflightInputs | None = None
    _found: dict[MoveFacts, tuple[HoldReason, str] | None] = field(default_factory=dict)

    def judge(self, rows: Sequence[MoveRow], inputs: PreflightInputs) -> Verdicts:
        """Return the verdicts of `preflight` about the open moves of a plan."""
        shared = _shared_facts(inputs)
        # Verdicts hold as long as what all moves share is the same.
        before = self._found if shared == self._shared else {}
        free = {broker: max(room.free_bytes for room in rooms) for broker, rooms in inputs.rooms.items()}
        self._shared, self._found, verdicts = shared, {}, Verdicts([], [], [])
        partitions, sizes, objections = inputs.snapshot.partitions, inputs.sizes, self._found
        for row in rows:
            name = row.move.topic_partition
            partition = partitions.get(name)
            left = remaining_move(row, partition) if row.stage else row.move
            if partition is None:
                objection = find_objection(left, inputs, between_stages=False)
            else:
                facts = _facts_of(left, left is not row.move, partition, sizes.get(name), free)
                known: Any = objections.get(facts, _UNKNOWN)
                if known is _UNKNOWN:
                    known = before[facts] if facts in before else facts.find_objection(shared)
                    objections[facts] = known
                objection = known
            if objection is None:
                verdicts.ready.append(row)
                verdicts.remains.append(left)
            else:
                verdicts.held.append((row, Held.of(name, *objection)))
        return verdicts


def _facts_of(
    move: Move, between_stages: bool, partition: Partition, size: int | None, free: Mapping[int, int]
) -> MoveFacts:
    return MoveFacts(
        move.topic,
        move.topic_id,
        move.before,
        move.after,
        between_stages,
        partition.replicas,
        partition.isr,
        partition.leader,
        partition.topic_id,
        partition.adding,
        partition.removing,
        partition.offline,
        size is not None,
        tuple([broker for broker in move.adding if broker in free and (size or 0) > free[broker]]),
    )


def _shared_facts(inputs: PreflightInputs) -> PreflightInputs:
    """Return the inputs that all moves share: the brokers, and which of their directories report free space."""
    brokers = replace(inputs.snapshot, taken_ms=0, partitions={})
    rooms = {broker: _with_free_bytes(directories, 0) for broker, directories in inputs.rooms.items()}
    return replace(inputs, snapshot=brokers, sizes={}, left_bytes={}, rooms=rooms)


def _with_free_bytes(rooms: Sequence[LogDirRoom], free_bytes: int) -> tuple[LogDirRoom, ...]:
    return tuple(LogDirRoom(room.path, 0, free_bytes) for room in rooms)
