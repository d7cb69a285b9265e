"""The table of plans: a row for each, with its approval. A plan that is only proposed has no status yet."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any

import sqlalchemy as sa

from kafka_steward.journal.audit import Actor
from kafka_steward.journal.observed import ApprovalState
from kafka_steward.journal.records import Approval, PlanRecord, PlanStatus
from kafka_steward.journal.schema import tables
from kafka_steward.journal.sql.database import Database
from kafka_steward.journal.sql.dialect import now_ms

_plan, _progress = tables.plan, tables.progress
_COLUMNS = [_plan.c[column.name] for column in fields(PlanRecord)]
_UNFINISHED = [status for status in PlanStatus if not status.finished]
_OLDEST_FIRST = (_plan.c.listed_ms, _plan.c.digest)

#: Milliseconds for which a proposal that nobody approved is kept after its request has expired.
_SPARED_MS = 7 * 86_400_000


#: Digest, revision and time of publication.
PlanVersion = tuple[str, int, int]


def select_polled(cluster_id: str, *columns: sa.ColumnElement[Any]) -> list[sa.Select[Any]]:
    """Return the queries of the plans that a poll reads: of the unfinished ones, and of others that were cancelled."""
    # Not one condition with `or`, for which SQLite would read all plans: each of the two has its index.
    unfinished = _plan.c.status.in_(_UNFINISHED)
    cancelled = _plan.c.cancel.is_not(None) & _plan.c.ended_ms.is_not(None)
    mine = _plan.c.cluster_id == cluster_id
    return [sa.select(*columns).where(mine & condition) for condition in (unfinished, cancelled)]


class PlanTable:
    """The plans of one cluster. Any method may raise JournalUnreachable."""

    def __init__(self, database: Database, viewed: Callable[[], Collection[PlanVersion] | None] = lambda: None) -> None:
        self.database = database
        #: The versions of the plans that are unfinished or were cancelled, if a view of the mailbox has them.
        self._viewed = viewed
        self._known: Sequence[PlanRecord] = ()

    def get(self, digest: str) -> PlanRecord | None:
        """Return a published plan; None if there is none."""
        return next(iter(self._read(sa.select(*_COLUMNS).where(self._is(digest) & _published()))), None)

    def unfinished(self, *, or_cancelled: bool = False) -> list[PlanRecord]:
        """Return the plans that have not ended, and with `or_cancelled` all that a user cancelled; the oldest first."""
        known, viewed = self._known, self._viewed()
        # A view has the versions alone: the rows are read again once one of them differs.
        if viewed is None or set(viewed) != {(record.digest, record.revision, record.published_ms) for record in known}:
            rows = self._read(sa.union_all(*select_polled(self.database.cluster_id, *_COLUMNS)))
            self._known = known = sorted(rows, key=lambda record: (record.published_ms, record.digest))
        return [record for record in known if or_cancelled or not record.status.finished]

    def latest(self, n: int) -> list[PlanRecord]:
        """Return the `n` most recently published plans, the newest first."""
        newest_first = (column.desc() for column in _OLDEST_FIRST)
        return self._read(sa.select(*_COLUMNS).where(self._mine() & _published()).order_by(*newest_first).limit(n))

    def by_source(self) -> dict[str, list[str]]:
        """Return the digests of the plans, ended or not, that each document requested; the oldest first."""
        query = sa.select(_plan.c.digest, _plan.c.sources).where(self._mine() & (_plan.c.sources != ()))
        digests: dict[str, list[str]] = {}
        with self.database.read_connection() as connection:
            for digest, sources in connection.execute(query.order_by(*_OLDEST_FIRST)):
                for source in sources:
                    digests.setdefault(source, []).append(digest)
        return digests

    def digests(self) -> list[str]:
        """Return the digests of all plans, published or proposed, sorted."""
        return self._read_digests(self._mine())

    def ended(self, before_ms: int) -> list[str]:
        """Return the digests of the plans that ended, and were changed last, before `before_ms`."""
        return self._read_digests(self._mine() & _plan.c.ended_ms.is_not(None) & (_plan.c.modified_ms < before_ms))

    def insert(self, record: PlanRecord) -> bool:
        """Store a plan that is published, or was proposed before; return False if it was published before."""
        values = _values(record) | {"listed_ms": record.published_ms, **_times(record.status, now_ms(), now_ms())}
        with self.database.write_transaction() as connection:
            # A proposal has a row already, with its approval: publishing it fills in the rest.
            proposed = self._is(record.digest) & _plan.c.status.is_(None)
            return connection.execute(sa.update(_plan).where(proposed).values(values)).rowcount > 0 or self._add(values)

    def change(self, digest: str, revision: int, changes: Mapping[str, Any]) -> bool:
        """Change columns of a plan; return False, and change nothing, unless it has this revision."""
        begun, ended = (sa.func.coalesce(time, now_ms()) for time in (_plan.c.began_ms, _plan.c.ended_ms))
        values = {**changes, "revision": _plan.c.revision + 1, **_times(changes.get("status"), begun, ended)}
        # Compared by the statement itself: it cannot overwrite what another process has changed since.
        same = self._is(digest) & _published() & (_plan.c.revision == revision)
        with self.database.write_transaction() as connection:
            return connection.execute(sa.update(_plan).where(same).values(values)).rowcount > 0

    def delete(self, digest: str) -> None:
        """Delete a plan, with its progress."""
        with self.database.write_transaction() as connection:
            connection.execute(sa.delete(_plan).where(self._is(digest)))
            ours = self.database.cluster_condition(_progress) & (_progress.c.plan == digest)
            connection.execute(sa.delete(_progress).where(ours))

    def delete_proposals(self, before_ms: int) -> None:
        """Delete proposals that were never published: approved before `before_ms`, or not approved for a week."""
        expired = sa.func.coalesce(_plan.c.expires_ms, _plan.c.asked_ms) < now_ms() - _SPARED_MS
        approved = _plan.c.approval == ApprovalState.APPROVED
        old = (approved & (_plan.c.modified_ms < before_ms)) | (~approved & expired)
        with self.database.write_transaction() as connection:
            connection.execute(sa.delete(_plan).where(self._mine() & _plan.c.status.is_(None) & old))

    def ask(
        self, digest: str, operation: str, partitions: int, *, asked_by: Actor, expires_in_ms: int | None = None
    ) -> None:
        """Store that a task asks for the approval of a plan, unless it is approved; the plan is proposed by that."""
        expires = None if expires_in_ms is None else now_ms() + sa.literal(expires_in_ms, sa.BigInteger)
        asked = {"approval": ApprovalState.ASKED, "asked_ms": now_ms(), "expires_ms": expires, "asked_by": asked_by}
        asked |= {"answered_ms": None, "answered_by": None, "answer": None}
        record = PlanRecord(
            digest, self.database.cluster_id, operation, partitions=partitions, who=asked_by, needs_approval=True
        )
        with self.database.write_transaction():
            self._propose(record, asked)

    def answer(
        self, digest: str, state: ApprovalState, *, person: str | None, reason: str | None, answered_ms: int | None
    ) -> None:
        """Store the answer about a plan, unless it is approved; a rejection of a plan that is not known is no news."""
        values = {"approval": state, "answered_ms": answered_ms, "answered_by": person, "answer": reason}
        with self.database.write_transaction():
            if state is ApprovalState.APPROVED:
                self._propose(PlanRecord(digest, self.database.cluster_id, "", needs_approval=True), values)
            else:
                self._set_approval(digest, values)

    def approval(self, digest: str) -> Approval | None:
        """Return the approval of a plan; None without one."""
        columns = (_plan.c.answered_by, _plan.c.answer, _plan.c.answered_ms)
        approved = self._is(digest) & (_plan.c.approval == ApprovalState.APPROVED)
        with self.database.read_connection() as connection:
            row = connection.execute(sa.select(*columns).where(approved)).one_or_none()
        return None if row is None else Approval(digest, *row)

    def values(self, digest: str) -> dict[str, Any] | None:
        """Return all columns of a plan, for a copy; None if there is no such plan."""
        with self.database.read_connection() as connection:
            row = connection.execute(sa.select(_plan).where(self._is(digest))).mappings().one_or_none()
        return None if row is None else dict(row)

    def import_values(self, values: Mapping[str, Any]) -> None:
        """Store the columns of a plan of another journal, unless it is there."""
        with self.database.write_transaction():
            self._add(values)

    def _propose(self, record: PlanRecord, approval: Mapping[str, Any]) -> None:
        if not self._set_approval(record.digest, approval):
            now = {"status": None, "listed_ms": now_ms(), "modified_ms": now_ms()}
            self._add({**_values(record), **now, **approval})

    def _set_approval(self, digest: str, values: Mapping[str, Any]) -> bool:
        open_ = self._is(digest) & _plan.c.approval.is_distinct_from(ApprovalState.APPROVED)
        update = sa.update(_plan).where(open_).values({**values, "modified_ms": now_ms()})
        with self.database.write_transaction() as connection:
            return connection.execute(update).rowcount > 0

    def _add(self, values: Mapping[str, Any]) -> bool:
        with self.database.write_transaction() as connection:
            return connection.execute(self.database.dialect.insert_or_ignore(_plan).values(values)).rowcount > 0

    def _read(self, query: sa.Executable) -> list[PlanRecord]:
        with self.database.read_connection() as connection:
            return [PlanRecord(*row) for row in connection.execute(query)]

    def _read_digests(self, condition: sa.ColumnElement[bool]) -> list[str]:
        with self.database.read_connection() as connection:
            query = sa.select(_plan.c.digest).where(condition).order_by(_plan.c.digest)
            return list(connection.execute(query).scalars())

    def _mine(self) -> sa.ColumnElement[bool]:
        return self.database.cluster_condition(_plan)

    def _is(self, digest: str) -> sa.ColumnElement[bool]:
        return self._mine() & (_plan.c.digest == digest)


def _published() -> sa.ColumnElement[bool]:
    return _plan.c.status.is_not(None)


def _values(record: PlanRecord) -> dict[str, Any]:
    return {column.name: getattr(record, column.name) for column in fields(PlanRecord)}


def _times(status: PlanStatus | None, begun: Any, ended: Any) -> dict[str, Any]:
    """Return the times that are set with a new `status`, and without one: that of the change, of begin and end."""
    times: dict[str, Any] = {"modified_ms": now_ms()}
    if status is not None:
        times["ended_ms"] = ended if status.finished else None
    if status not in {None, PlanStatus.PUBLISHED, PlanStatus.PREEMPTED}:
        times["began_ms"] = begun
    return times
