"""The table of plans that ended a while ago: their records are kept out of the tree, which each poll reads."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from kafka_steward.errors import DocumentError
from kafka_steward.journal.database import Database
from kafka_steward.journal.records import ENDED, PlanRecord
from kafka_steward.journal.schema import tables

__all__ = ["EndedPlans"]

_ended = tables.ended_plan


class EndedPlans:
    """The ended plans of one cluster. Corrupt records are treated as missing."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, record: PlanRecord, ended_ms: int) -> None:
        """Store a record, and replace an earlier version of it."""
        row = {"digest": record.digest, "published_ms": record.published_ms, "ended_ms": ended_ms}
        row |= {"cluster_id": self._database.cluster_id, "record": record.to_json()}
        with self._database.write_transaction() as connection:
            connection.execute(sa.delete(_ended).where(self._of(record.digest)))
            connection.execute(sa.insert(_ended).values(row))

    def get(self, digest: str) -> PlanRecord | None:
        """Return the record of one plan; None if it is not in the table."""
        return next(iter(self._read(sa.select(_ended.c.record).where(self._of(digest)))), None)

    def latest(self, n: int) -> list[PlanRecord]:
        """Return the `n` most recently published plans, the newest first."""
        newest_first = _ended.c.published_ms.desc(), _ended.c.digest
        return self._read(sa.select(_ended.c.record).where(self._mine()).order_by(*newest_first).limit(n))

    def digests(self, *, ended_before_ms: int | None = None) -> list[str]:
        """Return the digests of all plans, or of those that ended before `ended_before_ms`, sorted."""
        query = sa.select(_ended.c.digest).where(self._mine())
        if ended_before_ms is not None:
            query = query.where(_ended.c.ended_ms < ended_before_ms)
        with self._database.read_connection() as connection:
            return list(connection.execute(query.order_by(_ended.c.digest)).scalars())

    def forget(self, digest: str) -> None:
        """Delete a record, if it exists."""
        with self._database.write_transaction() as connection:
            connection.execute(sa.delete(_ended).where(self._of(digest)))

    def _read(self, query: sa.Select[Any]) -> list[PlanRecord]:
        with self._database.read_connection() as connection:
            return _readable(connection.execute(query).scalars().all())

    def _mine(self) -> sa.ColumnElement[bool]:
        return _ended.c.cluster_id == self._database.cluster_id

    def _of(self, digest: str) -> sa.ColumnElement[bool]:
        return self._mine() & (_ended.c.digest == digest)


def _readable(texts: Sequence[str]) -> list[PlanRecord]:
    found = []
    for text in texts:
        with suppress(DocumentError):
            found.append(replace(PlanRecord.from_json(text, "a row of steward_ended_plan"), revision=ENDED))
    return found
