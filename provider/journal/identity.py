"""The journal's identity: an id stored in both halves, so that ZooKeeper is never used with two databases.

The documents of the KIPs may be in ZooKeeper, which all hosts share, while the database is local to one host. On
another host, requests would then be carried out a second time. Therefore each process compares the two ids when it
opens a journal.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from kafka_steward.commands import command_line
from kafka_steward.errors import DocumentError, VersionConflict, WrongJournal
from kafka_steward.journal import paths
from kafka_steward.journal.document import Document
from kafka_steward.journal.mailbox import Mailbox, Node, put_one, read_one
from kafka_steward.journal.schema import tables
from kafka_steward.journal.sql.database import Database

_ONE_FOR_ALL = "set the setting journal to the one database that all hosts of this Airflow share"
#: The journal may be of several clusters.
_PAIR = command_line("journal pair", "NAME")
_OR_PAIR = f"or, if the missing half is permanently lost, pair both halves again with `{_PAIR}`"


@dataclass(frozen=True)
class Identity:
    """The id of a journal, and the locations of its rows and its mailbox for messages; neither contains a password."""

    id: str
    rows: str
    mailbox: str

    @property
    def place(self) -> str:
        """The journal's location, for messages."""
        return self.rows if self.mailbox == self.rows else f"{self.rows} with its documents in {self.mailbox}"

    def to_json(self) -> dict[str, str]:
        """Return the identity as a watch's trigger event carries it."""
        return {"id": self.id, "place": self.place}

    def require_same_journal(self, other: Mapping[str, Any] | None) -> None:
        """Raise WrongJournal unless `other`, a result of `to_json` elsewhere, is this journal. None is accepted."""
        if other is None or other.get("id") == self.id:
            return
        raise WrongJournal(
            f"This run or task started with the journal at {other.get('place')}, and this process opened another "
            f"one, at {self.place}; {_ONE_FOR_ALL}."
        )


@dataclass(frozen=True)
class _IdentityNode(Document):
    """`/steward/journal`: the id of the journal that this mailbox belongs to, and the location of its rows.

    `copied_to` is the location of the copy that replaces the journal; None for a journal that is in use.
    """

    id: str
    rows: str
    copied_to: str | None = None


def ensure_identity(database: Database, mailbox: Mailbox, place: str | None = None) -> Identity:
    """Return the journal's identity; create the id if both halves are new.

    `place` is the location of the mailbox, None if it is in the same database as the rows. Raises WrongJournal when the
    two halves belong to different journals, one half is missing, or the journal was copied and the copy replaces it.
    """
    rows = database.place
    named = _IdentityRow(database, place or rows)
    known, bound, their_mailbox = named.read_or_create()
    node = read_one(mailbox, paths.JOURNAL)
    if node is None and bound:
        raise WrongJournal(
            f"The rows at {rows} belong to a journal whose documents are in {their_mailbox}, and there are none of its "
            f"documents in {place or rows}; {_ONE_FOR_ALL}, correct the setting zookeeper, {_OR_PAIR}."
        )
    if node is None:
        # Read again if another process has created it meanwhile.
        node = put_one(mailbox, paths.JOURNAL, _IdentityNode(known, rows).to_json()) or read_one(mailbox, paths.JOURNAL)
    theirs = _parse_identity(node.data) if node is not None else None
    if theirs is not None and theirs.copied_to is not None:
        raise WrongJournal(
            f"The journal with its documents in {place or rows} was copied to {theirs.copied_to}, and only the copy "
            "is used from then on: set the settings journal and zookeeper to those of the copy; or, to return to "
            f"this journal without the records that the copy has gained since, run `{_PAIR}` for it."
        )
    if theirs is None or theirs.id != known:
        where = theirs.rows if theirs is not None else "no known database"
        raise WrongJournal(
            f"The documents in {place or rows} belong to a journal whose rows are at {where}, and this process "
            f"opened the rows at {rows}; {_ONE_FOR_ALL}, {_OR_PAIR}."
        )
    # Last: after a crash before this, the next opening compares the halves again, and binds them.
    if not bound:
        named.mark_bound(known)
    return Identity(known, rows, place or rows)


def bind_rows_to_mailbox(database: Database, mailbox: Mailbox, place: str | None = None) -> Identity:
    """Write a new id into both halves and return it: they are one journal, and any other user of a half is refused."""
    identity = Identity(uuid.uuid4().hex, database.place, place or database.place)
    text = _IdentityNode(identity.id, identity.rows).to_json()
    # The rows first, and not bound: after a crash in between, the journal cannot be opened.
    _IdentityRow(database, identity.mailbox).replace_id(identity.id)
    _write_identity(mailbox, text, read_one(mailbox, paths.JOURNAL))
    _IdentityRow(database, identity.mailbox).mark_bound(identity.id)
    return identity


def mark_copied(mailbox: Mailbox, copy: Identity) -> None:
    """Record in the mailbox of a journal that `copy` replaces it: from then on the journal is not opened any more.

    Does nothing if the copy has the same mailbox. `bind_rows_to_mailbox` removes the mark.
    """
    node = read_one(mailbox, paths.JOURNAL)
    name = None if node is None else _parse_identity(node.data)
    if node is not None and name is not None and name.id != copy.id:
        _write_identity(mailbox, replace(name, copied_to=copy.place).to_json(), node)


def _write_identity(mailbox: Mailbox, text: str, seen: Node | None) -> None:
    if put_one(mailbox, paths.JOURNAL, text, seen) is None:
        raise VersionConflict(f"{paths.JOURNAL} was changed by another process; try again.")


@dataclass(frozen=True)
class _IdentityRow:
    """The row that holds the id. It is bound once the mailbox holds the same id."""

    database: Database
    mailbox: str

    def read_or_create(self) -> tuple[str, bool, str]:
        row = self._read_row()
        if row is None:
            with self.database.write_transaction() as connection:
                created = {"cluster_id": self.database.cluster_id, "id": uuid.uuid4().hex, "mailbox": self.mailbox}
                connection.execute(
                    self.database.dialect.insert_or_ignore(tables.journal).values(created | {"bound": False})
                )
            row = self._read_row()
        if row is None:
            raise WrongJournal(
                f"The row that names the journal at {self.database.place} was deleted; open the journal again."
            )
        return row

    def mark_bound(self, identity: str) -> None:
        change = sa.update(tables.journal).where(self._cluster_condition() & (tables.journal.c.id == identity))
        with self.database.write_transaction() as connection:
            connection.execute(change.values(bound=True, mailbox=self.mailbox))

    def replace_id(self, identity: str) -> None:
        row = {"cluster_id": self.database.cluster_id, "id": identity, "mailbox": self.mailbox, "bound": False}
        with self.database.write_transaction() as connection:
            connection.execute(sa.delete(tables.journal).where(self._cluster_condition()))
            connection.execute(sa.insert(tables.journal).values(row))

    def _read_row(self) -> tuple[str, bool, str] | None:
        query = sa.select(tables.journal.c.id, tables.journal.c.bound, tables.journal.c.mailbox).where(
            self._cluster_condition()
        )
        with self.database.read_connection() as connection:
            row = connection.execute(query).first()
        return None if row is None else (str(row[0]), bool(row[1]), str(row[2]))

    def _cluster_condition(self) -> sa.ColumnElement[bool]:
        return self.database.cluster_condition(tables.journal)


def _parse_identity(text: str) -> _IdentityNode | None:
    try:
        return _IdentityNode.from_json(text)
    except DocumentError:
        return None
