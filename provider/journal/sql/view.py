"""What a poll reads of a journal, as one statement read it: a poll that finds nothing new needs no other.

It has the documents, our own state, and the versions of the polled plans, whose rows are read again only when they have
changed. A view is of one thread, and lasts for the block that opened it, at most `LIFETIME_S`, and until the first
change that the thread makes. From then on, reads are statements of their own. Every change compares what was read, so
an outdated view changes nothing.

Quarantined documents and released throttles, which grow with the past, are in no view. Neither is a text of more than
`LONGEST` characters; and of more than `MOST` rows there is no view at all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import sqlalchemy as sa

from kafka_steward.journal.listing import QUARANTINE
from kafka_steward.journal.mailbox import Node
from kafka_steward.journal.one_read import OneRead
from kafka_steward.journal.records import RELEASED_THROTTLES
from kafka_steward.journal.schema import tables
from kafka_steward.journal.sql.database import Database
from kafka_steward.journal.sql.dialect import now_ms, untrusted_text
from kafka_steward.journal.sql.mailbox import NODE_COLUMNS, node_from_row
from kafka_steward.journal.sql.plans import PlanVersion, select_polled
from kafka_steward.journal.state import StoredRow

#: Seconds after which a view is not used any more: what Kafka takes in a poll must not outdate what is read later.
LIFETIME_S = 5.0
#: The limits of a view.
MOST, LONGEST = 1_000, 4_000
#: Seconds without a view after one that was too large: it would cost a statement, and save none.
_CROWDED_S = 30.0

_node, _state, _plan = tables.node, tables.state, tables.plan


@dataclass(frozen=True)
class View:
    """The documents by path, our own state, and the versions of the plans that a poll reads.

    `read_ms` is the database's clock, `read_s` a clock of this process, `changes` counts those of this thread. A text
    that is longer than `LONGEST` is there only in part.
    """

    #: The nouns whose rows are in no view.
    LEFT_OUT: ClassVar[Collection[str]] = (QUARANTINE.name, RELEASED_THROTTLES.name)

    nodes: Mapping[str, Node]
    rows: Sequence[StoredRow]
    plans: Collection[PlanVersion]
    read_ms: int
    read_s: float
    changes: int

    def now_ms(self, now_s: float) -> int:
        """Return the database's time, by the clock of this process since it was read."""
        return self.read_ms + int((now_s - self.read_s) * 1000)

    def is_valid(self, now_s: float, changes: int) -> bool:
        """Return whether it may be used still, after so many changes by this thread."""
        return changes == self.changes and now_s - self.read_s < LIFETIME_S

    def select(self, wanted: Collection[tuple[str, str | None]]) -> list[StoredRow]:
        """Return the rows with one of these nouns and keys; a key of None stands for all."""
        rows = (row for row in self.rows if (row.noun, row.key) in wanted or (row.noun, None) in wanted)
        return sorted(rows, key=lambda row: (row.noun, row.key))

    @staticmethod
    def covers(path: str) -> bool:
        """Return whether a view has all documents at and below `path`."""
        return path.startswith("/admin/")

    @staticmethod
    def is_complete(text: str) -> bool:
        """Return whether this is the whole text of a document or a row."""
        return len(text) <= LONGEST


class Views(OneRead[View]):
    """The views of one cluster's tables in a database."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self.database = database
        self._crowded_until_s = 0.0
        self._query = self._build_query()

    @property
    def current(self) -> View | None:
        """The view of this thread; None if it has none."""
        return self._view()

    def plans(self) -> Collection[PlanVersion] | None:
        """Return the versions of the polled plans, as the view has them; None without a view."""
        view = self._view()
        return None if view is None else view.plans

    def now_ms(self) -> int:
        """Return the time of the database's clock."""
        view = self._view()
        if view is not None:
            return view.now_ms(self.database.clock_s())
        with self.database.read_connection() as connection:
            return int(connection.execute(sa.select(now_ms())).scalar_one())

    def _is_usable(self, view: View) -> bool:
        return view.is_valid(self.database.clock_s(), self.database.changes_here())

    def _open_view(self) -> View | None:
        """Read a view; None if there are too many rows for one."""
        if self.database.clock_s() < self._crowded_until_s:
            return None
        # Taken before the statement: what this thread changes during it ends the view.
        changes, read_s = self.database.changes_here(), self.database.clock_s()
        with self.database.read_connection() as connection:
            answers = connection.execute(self._query).all()
        if len(answers) > MOST + 1:
            self._crowded_until_s = self.database.clock_s() + _CROWDED_S
            return None
        of: dict[str, list[Sequence[Any]]] = {"clock": [], "node": [], "state": [], "plan": []}
        for kind, *values in answers:
            of[kind].append(values)
        nodes = [node_from_row(values[1:]) for values in of["node"]]
        rows = [
            StoredRow(noun, key, text, created_id, revision, at_ms)
            for noun, key, text, revision, created_id, _, _, at_ms in of["state"]
        ]
        plans = {(values[1], values[3], values[7]) for values in of["plan"]}
        return View({node.path: node for node in nodes}, rows, plans, int(of["clock"][0][3]), read_s, changes)

    def _build_query(self) -> sa.Executable:
        """Return the statement of a view: the clock, the documents, our own state, and the polled plans."""
        mine, data = self.database.cluster_condition, untrusted_text(_beginning(_node.c.data))
        below = (_node.c.path > "/admin/") & (_node.c.path < "/admin0")  # "0" is the character that follows "/"
        nodes = _select("node", _NOTHING[0], NODE_COLUMNS[0], data, NODE_COLUMNS[2:]).where(mine(_node) & below)
        numbers = (_state.c.revision, _state.c.created_id, sa.null(), sa.null(), _state.c.at_ms)
        rows = _select("state", _state.c.noun, _state.c.key, _beginning(_state.c.value), numbers)
        rows = rows.where(mine(_state) & _state.c.noun.not_in(View.LEFT_OUT))
        versions = _columns(
            "plan", path=_plan.c.digest, numbers=(_plan.c.revision, *_NOTHING[1:4], _plan.c.published_ms)
        )
        plans = select_polled(self.database.cluster_id, *versions)
        clock = _select("clock", numbers=(now_ms(), *_NOTHING[1:]))
        # The clock, MOST rows, and one more, which shows that there are too many.
        return sa.union_all(clock, nodes, rows, *plans).limit(MOST + 2)


_NOTHING = (sa.null(),) * 5


def _columns(
    kind: str,
    noun: sa.ColumnElement[Any] = _NOTHING[0],
    path: sa.ColumnElement[Any] = _NOTHING[0],
    text: sa.ColumnElement[Any] = _NOTHING[0],
    numbers: Sequence[sa.ColumnElement[Any]] = _NOTHING,
) -> list[sa.ColumnElement[Any]]:
    named = {"kind": sa.literal_column(f"'{kind}'"), "noun": noun, "path": path, "text": text}
    named |= {slot.name: column for slot, column in zip(NODE_COLUMNS[2:], numbers, strict=True)}
    return [column.label(name) for name, column in named.items()]


def _select(*columns: Any, **more: Any) -> sa.Select[Any]:
    return sa.select(*_columns(*columns, **more))


def _beginning(text: sa.Column[str]) -> sa.ColumnElement[Any]:
    return sa.func.substr(text, 1, LONGEST + 1)
