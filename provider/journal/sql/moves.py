"""The table of the moves of plans: assignments before and after, and the state of each partition.

The rows are stored here from publication on, whatever the backend of the mailbox, so that a rollback does not depend on
the files in the workspace.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any, Unpack

import sqlalchemy as sa

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.journal.audit import Action, Actor
from kafka_steward.journal.records import MoveChanges, MoveRow, MoveState, changed_fields
from kafka_steward.journal.schema import tables
from kafka_steward.journal.sql.audit import insert_of_moves
from kafka_steward.journal.sql.database import Database, split_into_batches
from kafka_steward.journal.sql.dialect import now_ms

_move = tables.plan_move

#: The fields of a row, which are its columns: those of the move, and of its state.
_MOVE = [column.name for column in fields(Move)]
_STATE = [column.name for column in fields(MoveRow) if column.name != "move"]
#: What stands in a statement's text for the name of each move that the statement changes.
_NAME = "{partition}"
#: The columns of a move, of which `to_move_row` makes the row.
MOVE_COLUMNS = [_move.c[name] for name in (*_MOVE, *_STATE)]


class MoveTable:
    """The move rows of one cluster's plans."""

    def __init__(self, database: Database) -> None:
        self.database = database

    @property
    def place(self) -> str:
        """The location of the rows, for messages."""
        return self.database.place

    def insert_missing(self, digest: str, moves: Sequence[Move]) -> None:
        """Add a WAITING row for each move that has none; existing rows match, as the digest determines the moves."""
        self.import_rows(digest, [MoveRow(move) for move in moves])

    def import_rows(self, digest: str, rows: Sequence[MoveRow]) -> None:
        """Import rows unchanged; existing rows are kept."""
        of = {"cluster_id": self.database.cluster_id, "plan": digest}
        values = [
            {**of, **{name: getattr(row.move, name) for name in _MOVE}, **{name: getattr(row, name) for name in _STATE}}
            for row in rows
        ]
        with self.database.write_transaction() as connection:
            insert = self.database.dialect.insert_or_ignore(_move)
            for some in split_into_batches(values):
                connection.execute(insert, some)

    def rows(self, digest: str) -> list[MoveRow]:
        """Return a plan's rows, in plan order."""
        query = sa.select(*MOVE_COLUMNS).where(self._plan_condition(digest)).order_by(_move.c.chunk, _move.c.position)
        with self.database.read_connection() as connection:
            return [to_move_row(*values) for values in connection.execute(query)]

    def unsettled_rows(self, digest: str) -> tuple[int, list[MoveRow]]:
        """Return the number of a plan's rows, and those in a state that is not settled, in plan order."""
        unsettled = self._unsettled_condition(digest)
        query = sa.select(*MOVE_COLUMNS).where(unsettled).order_by(_move.c.chunk, _move.c.position)
        with self.database.read_connection() as connection:
            number = self._count(connection, digest)
            return number, [to_move_row(*values) for values in connection.execute(query)]

    def count_states(self, digest: str) -> Counter[MoveState]:
        """Return the numbers of a plan's rows by state, read from an index alone."""
        query = sa.select(_move.c.state, sa.func.count()).where(self._plan_condition(digest)).group_by(_move.c.state)
        with self.database.read_connection() as connection:
            return Counter({state: int(number) for state, number in connection.execute(query)})

    def rows_of(self, digest: str, partitions: Collection[TopicPartition]) -> list[MoveRow]:
        """Return the rows of some partitions of a plan, sorted by partition; those that do not exist are left out."""
        query = sa.select(*MOVE_COLUMNS).where(self._plan_condition(digest))
        rows: list[MoveRow] = []
        with self.database.read_connection() as connection:
            for some in split_into_batches(sorted(set(partitions))):
                rows += [to_move_row(*values) for values in connection.execute(query.where(_partition_condition(some)))]
        return sorted(rows, key=lambda row: row.topic_partition)

    def set_state(
        self,
        digest: str,
        partitions: Collection[TopicPartition],
        state: MoveState,
        detail: str | Mapping[TopicPartition, str],
        *,
        action: Action | None = None,
        who: Actor | None = None,
        **changes: Unpack[MoveChanges],
    ) -> int:
        """Set the state of some rows, as specified by `Plans.set_move_states`; return the number of rows that exist.

        Thousands of moves may change at once, mostly for one reason: one statement changes all whose details differ
        in their names alone.
        """
        if not partitions:
            return 0
        named = sa.text(self.database.dialect.select_names).columns(_move.c.topic, _move.c.partition)
        these = self._plan_condition(digest) & sa.tuple_(_move.c.topic, _move.c.partition).in_(named)
        name = _move.c.topic + "-" + sa.cast(_move.c.partition, sa.Text)
        text, mark = sa.bindparam("template", type_=_move.c.detail.type), sa.bindparam("mark", type_=sa.Text)
        values = changed_fields(state, changes, now_ms()) | {"detail": sa.func.replace(text, mark, name)}
        update = sa.update(_move).where(these).values(values)
        groups = [
            {"template": template, "mark": mark, "names": _to_json(names)}
            for (template, mark), names in _group_by_text(set(partitions), detail).items()
        ]
        with self.database.write_transaction() as connection:
            changed = connection.execute(update, groups).rowcount
            if action is not None:
                names = _to_json(partitions)
                insert_of_moves(self.database, these, {"names": names}, action, who or Actor())
            return changed

    def unsettled_partitions(self, digest: str) -> tuple[int, set[TopicPartition]]:
        """Return the number of a plan's rows, and the partitions in a state that is not settled, without the rest."""
        query = sa.select(_move.c.topic, _move.c.partition).where(self._unsettled_condition(digest))
        with self.database.read_connection() as connection:
            number = self._count(connection, digest)
            return number, {TopicPartition(*row) for row in connection.execute(query)}

    def unsettled_chunks(self, digest: str) -> set[int]:
        """Return the chunks that have a partition in a state that is not settled."""
        query = sa.select(_move.c.chunk).where(self._unsettled_condition(digest)).distinct()
        with self.database.read_connection() as connection:
            return set(connection.execute(query).scalars())

    def in_flight(self) -> list[str]:
        """Return the digests of the plans that have a row in state SUBMITTED, sorted."""
        submitted = self.database.cluster_condition(_move) & (_move.c.state == MoveState.SUBMITTED)
        with self.database.read_connection() as connection:
            return sorted(connection.execute(sa.select(_move.c.plan).where(submitted).distinct()).scalars())

    def submissions_by_others(self, digest: str, partitions: Collection[TopicPartition]) -> list[tuple[str, MoveRow]]:
        """Return the submissions of these partitions by other plans, with the plans' digests, the latest last."""
        theirs = self.database.cluster_condition(_move) & (_move.c.plan != digest) & (_move.c.attempt > 0)
        query = sa.select(_move.c.plan, *MOVE_COLUMNS).where(theirs)
        submissions: list[tuple[str, MoveRow]] = []
        with self.database.read_connection() as connection:
            for some in split_into_batches(sorted(set(partitions))):
                submissions += [
                    (plan, to_move_row(*values))
                    for plan, *values in connection.execute(query.where(_partition_condition(some)))
                ]
        return sorted(submissions, key=lambda submission: (submission[1].submitted_ms or 0, submission[0]))

    def delete(self, digest: str) -> None:
        """Delete a plan's rows."""
        with self.database.write_transaction() as connection:
            connection.execute(sa.delete(_move).where(self._plan_condition(digest)))

    def _count(self, connection: sa.Connection, digest: str) -> int:
        count = sa.select(sa.func.count()).select_from(_move).where(self._plan_condition(digest))
        return int(connection.execute(count).scalar_one())

    def _unsettled_condition(self, digest: str) -> sa.ColumnElement[bool]:
        settled = [state for state in MoveState if state.settled]
        return self._plan_condition(digest) & _move.c.state.not_in(settled)

    def _plan_condition(self, digest: str) -> sa.ColumnElement[bool]:
        return self.database.cluster_condition(_move) & (_move.c.plan == digest)


def _partition_condition(partitions: Sequence[TopicPartition]) -> sa.ColumnElement[bool]:
    return sa.tuple_(_move.c.topic, _move.c.partition).in_([tuple(name) for name in partitions])


def _group_by_text(
    partitions: Collection[TopicPartition], detail: str | Mapping[TopicPartition, str]
) -> dict[tuple[str, str], list[TopicPartition]]:
    """Return the partitions by detail, with a mark in place of their names; the mark is empty where it is none."""
    if isinstance(detail, str):
        return {(detail, ""): list(partitions)}
    groups: dict[tuple[str, str], list[TopicPartition]] = {}
    for name in partitions:
        template = detail[name]
        text = (template, "") if _NAME in template else (template.replace(str(name), _NAME), _NAME)
        groups.setdefault(text, []).append(name)
    return groups


def _to_json(partitions: Collection[TopicPartition]) -> str:
    numbers: dict[str, list[int]] = {}
    for topic, partition in partitions:
        numbers.setdefault(topic, []).append(partition)
    return json.dumps(numbers)


def to_move_row(*values: Any) -> MoveRow:
    """Return the row with the values of `MOVE_COLUMNS`, which are the fields in their order."""
    return MoveRow(Move(*values[: len(_MOVE)]), *values[len(_MOVE) :])
