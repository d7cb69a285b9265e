"""The fencing token in the database of the rows, for a step lock that is kept elsewhere.

If the lock is in ZooKeeper and the rows are in SQL, a process could be suspended between reading the lock and writing a
row. Therefore each process that acquires the lock writes its token to the database, and each fenced write compares the
token there, in its own transaction. The token is set and not only increased: a lock node that was deleted manually
counts from 1 again.
"""

from __future__ import annotations

import sqlalchemy as sa

from kafka_steward.errors import LockLost
from kafka_steward.journal.database import Database, insert_once
from kafka_steward.journal.schema import tables

__all__ = ["SqlFencingStore"]

_NAME = "step token"


class SqlFencingStore:
    """The token of one cluster's step lock."""

    def __init__(self, database: Database) -> None:
        self._database = database
        counter = tables.counter
        self._mine = (counter.c.cluster_id == database.cluster_id) & (counter.c.name == _NAME)

    def set_token(self, token: int) -> None:
        """Set the token: from now on only writes with this token are accepted."""
        row = {"cluster_id": self._database.cluster_id, "name": _NAME, "value": token}
        with self._database.write_transaction() as connection:
            connection.execute(insert_once(tables.counter, connection.dialect.name), row)
            connection.execute(sa.update(tables.counter).where(self._mine).values(value=token))

    def check(self, token: int) -> None:
        """Raise LockLost unless `token` is the accepted one; the result is valid until the transaction ends."""
        with self._database.write_transaction() as connection:
            current = connection.execute(sa.select(tables.counter.c.value).where(self._mine)).scalar_one_or_none()
        if current != token:
            raise LockLost("Another process steps the plan since: this one must change nothing more.")
