"""The tables of what is shown of plans: a summary of each record, its proof and approval, and its progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import sqlalchemy as sa

from kafka_steward.journal.audit import Actor
from kafka_steward.journal.locks import Fence
from kafka_steward.journal.observed import (
    ApprovalReport,
    ApprovalState,
    LeftPartition,
    PlanReport,
    ProgressPoint,
    ProgressReport,
    ProofSummary,
)
from kafka_steward.journal.records import ROLLS_BACK, PlanRecord, PlanStatus
from kafka_steward.journal.schema import tables
from kafka_steward.journal.sql.database import Database
from kafka_steward.journal.sql.dialect import now_ms
from kafka_steward.journal.sql.watch_reports import Columns, values_of

_plan, _progress = tables.plan, tables.progress

#: Points of a plan's progress that are stored. With one more, every second one is dropped.
MOST_POINTS = 240
#: Brokers whose loads are stored for a plan, and partitions that it leaves as they are.
MOST_BROKERS, MOST_LEFT = 1_000, 100
#: Milliseconds for which a row is spared after its time: that of a plan without a record, or whose request has expired.
_SPARED_MS = 7 * 86_400_000

#: The columns of a plan that its record determines.
_BY_RECORD = (
    *("operation", "status", "reason", "published_ms", "partitions", "left", "failed_brokers", "throttle"),
    *("needs_approval", "who", "cancel_scope", "cancel_person", "cancel_reason", "rolled_back_by", "rolls_back"),
    "not_rolled_back",
)
#: Those of them whose change is written at once; the message changes with each step, and the progress shows it.
_COMPARED = tuple(name for name in _BY_RECORD if name != "reason")


def record_values(record: PlanRecord) -> dict[str, Any]:
    """Return the values of the columns that a plan's record determines."""
    cancel, undone = record.cancel, record.extra.get(ROLLS_BACK)
    named = {name: getattr(record, name) for name in _BY_RECORD if name in _RECORD_FIELDS}
    return {
        **named,
        "cancel_scope": None if cancel is None else cancel.scope,
        "cancel_person": None if cancel is None else cancel.person,
        "cancel_reason": None if cancel is None else cancel.reason,
        "rolls_back": str(undone) if undone else None,
    }


_RECORD_FIELDS = {each.name for each in fields(PlanRecord)}


@dataclass
class PlanReports:
    """The rows that show the plans of one cluster, by this process. Any method may raise JournalUnreachable.

    What the database refuses is logged, and never raised.
    """

    database: Database
    _corrected: dict[str, list[Any]] = field(default_factory=dict, init=False, repr=False)

    def put_record(self, record: PlanRecord) -> None:
        """Store a plan as its record says, which was written just now."""
        values = record_values(record)
        began = record.status not in {PlanStatus.PUBLISHED, PlanStatus.PREEMPTED}
        times = {
            "began_ms": sa.func.coalesce(_plan.c.began_ms, now_ms()) if began else _plan.c.began_ms,
            "ended_ms": sa.func.coalesce(_plan.c.ended_ms, now_ms()) if record.status.finished else None,
            "listed_ms": record.published_ms,
        }
        with self._transaction(record.digest) as connection:
            if connection.execute(sa.update(_plan).where(self._is(record.digest)).values(values | times)).rowcount == 0:
                self._insert(connection, record, began_ms=None, ended_ms=None)

    @staticmethod
    def shows_change(before: PlanRecord, after: PlanRecord) -> bool:
        """Return whether more has changed than the step, the attempts and the message, which the progress shows."""
        known, found = record_values(before), record_values(after)
        return any(known[name] != found[name] for name in _COMPARED)

    def correct(self, records: Sequence[PlanRecord]) -> None:
        """Store those plans whose rows are missing, or differ from their records."""
        found = {record.digest: record_values(record) for record in records}
        compared = {digest: [values[name] for name in _COMPARED] for digest, values in found.items()}
        if not found or compared == self._corrected:
            return
        columns = [_plan.c.digest, *(_plan.c[name] for name in _COMPARED)]
        mine = self.database.cluster_condition(_plan) & _plan.c.digest.in_([each.digest for each in records])
        with self.database.read_connection() as connection:
            rows = {row["digest"]: row for row in connection.execute(sa.select(*columns).where(mine)).mappings()}
        for record in records:
            row, values = rows.get(record.digest), found[record.digest]
            if row is None:
                with self._transaction(record.digest) as connection:
                    self._insert(connection, record, ended_ms=record.stepped_ms if record.status.finished else None)
            elif any(row[name] != values[name] for name in _COMPARED):
                self.put_record(record)
        self._corrected = compared

    def put_proof(self, digest: str, proof: ProofSummary, *, conn_id: str | None) -> None:
        """Store what the proof of a published or proposed plan states, and the connection by which it was made."""
        stored = replace(proof, brokers=(), left=proof.left[:MOST_LEFT])
        values: dict[str, Any] = {"brokers": proof.brokers[:MOST_BROKERS], "proof": stored}
        values |= {} if conn_id is None else {"conn_id": conn_id}
        with self._transaction(digest) as connection:
            connection.execute(sa.update(_plan).where(self._is(digest)).values(values))

    def proof(self, digest: str) -> ProofSummary | None:
        """Return what the proof of a plan states, without the loads of the brokers; None if it is not stored."""
        with self.database.read_connection() as connection:
            row = connection.execute(sa.select(_plan.c.proof).where(self._is(digest))).mappings().one_or_none()
        return None if row is None else _proof_from_row(row)

    def ask(
        self, digest: str, operation: str, partitions: int, *, asked_by: Actor, expires_in_ms: int | None = None
    ) -> None:
        """Store that a task asks for the approval of a plan. It is a plan without a status until it is published."""
        expires = None if expires_in_ms is None else now_ms() + sa.literal(expires_in_ms, sa.BigInteger)
        asked = {"approval": ApprovalState.ASKED, "asked_ms": now_ms(), "expires_ms": expires, "asked_by": asked_by}
        asked |= {"answered_ms": None, "answered_by": None, "answer": None}
        with self._transaction(digest) as connection:
            if connection.execute(sa.update(_plan).where(self._is(digest)).values(asked)).rowcount == 0:
                new = {"digest": digest, "operation": operation, "partitions": partitions, **_NOTHING_YET, **asked}
                self._insert_values(connection, new | {"listed_ms": now_ms(), "who": asked_by})

    def answer(self, digest: str, state: ApprovalState, *, person: str | None, reason: str) -> None:
        """Store the answer to the request for a plan's approval; nothing for a plan that was never proposed."""
        values = {"approval": state, "answered_ms": now_ms(), "answered_by": person, "answer": reason}
        with self._transaction(digest) as connection:
            connection.execute(sa.update(_plan).where(self._is(digest)).values(values))

    def longest_wait_ms(self) -> int:
        """Return for how long the oldest request for an approval has waited for its answer; 0 without one."""
        unanswered = (_plan.c.approval == ApprovalState.ASKED) & _plan.c.status.is_(None)
        lasts = _plan.c.expires_ms.is_(None) | (_plan.c.expires_ms > now_ms())
        waiting = self.database.cluster_condition(_plan) & unanswered & lasts
        with self.database.read_connection() as connection:
            found = connection.execute(sa.select(now_ms() - sa.func.min(_plan.c.asked_ms)).where(waiting)).scalar()
        return max(int(found or 0), 0)

    def put_progress(self, report: ProgressReport, fence: Fence | None = None, *, every_ms: int = 0) -> None:
        """Store the progress of a plan, now, with another point in its series.

        Nothing is written if the last progress has the same status and is younger than `every_ms`. Raises LockLost if
        the step lock was lost.
        """
        known = sa.select(_progress.c.at_ms, _progress.c.status, _progress.c.series, now_ms().label("now"))
        last = self.database.cluster_condition(_progress) & (_progress.c.plan == report.plan)
        with self._transaction(report.plan) as connection:
            if fence is not None:
                fence.check()
            row = connection.execute(known.where(last)).one_or_none()
            at_ms = int(connection.execute(sa.select(now_ms())).scalar_one()) if row is None else int(row.now)
            if row is not None and row.status is report.status and 0 <= at_ms - row.at_ms < every_ms:
                return
            point = (at_ms, report.bytes_done, report.partitions_settled)
            series = add_point(() if row is None else row.series, point)
            self.database.put_row(connection, _progress, values_of(report) | {"at_ms": at_ms, "series": series})

    def delete(self, digests: Sequence[str], *, ended_before_ms: int) -> None:
        """Delete what is shown of these plans, and of others that ended long before, or were never published."""
        mine = self.database.cluster_condition(_plan)
        expired = sa.func.coalesce(_plan.c.expires_ms, _plan.c.asked_ms) < now_ms() - _SPARED_MS
        forgotten = (_plan.c.ended_ms < ended_before_ms - _SPARED_MS) | (_plan.c.status.is_(None) & expired)
        with self.database.report_transaction("The end of old plans") as connection:
            old = connection.execute(sa.select(_plan.c.digest).where(mine & forgotten)).scalars()
            gone = [{"gone": digest} for digest in {*digests, *old}]
            for table, key in ((_plan, _plan.c.digest), (_progress, _progress.c.plan)) if gone else ():
                this = self.database.cluster_condition(table) & (key == sa.bindparam("gone"))
                connection.execute(sa.delete(table).where(this), gone)

    def _transaction(self, digest: str) -> Any:
        return self.database.report_transaction(f"What the page shows of plan {digest[:12]}")

    def _is(self, digest: str) -> sa.ColumnElement[bool]:
        return self.database.cluster_condition(_plan) & (_plan.c.digest == digest)

    def _insert(self, connection: sa.Connection, record: PlanRecord, **times: int | None) -> None:
        values = {"digest": record.digest, **_NOTHING_YET, **record_values(record), **times}
        self._insert_values(connection, values | {"listed_ms": record.published_ms})

    def _insert_values(self, connection: sa.Connection, values: Mapping[str, Any]) -> None:
        row = {"cluster_id": self.database.cluster_id, **values}
        connection.execute(self.database.dialect.insert_or_ignore(_plan).values(row))


#: The columns of a plan that is neither published nor proven.
_NOTHING_YET: Mapping[str, Any] = {
    "status": None,
    "reason": "",
    "left": 0,
    "failed_brokers": (),
    "needs_approval": True,
    "brokers": (),
}


def add_point(series: Sequence[ProgressPoint], point: ProgressPoint) -> tuple[ProgressPoint, ...]:
    """Return the series with another point, at most `MOST_POINTS`: the first, the last, and some in between."""
    longer = (*series, point)
    return longer if len(longer) <= MOST_POINTS else (*longer[:-1:2], point)


def without_details() -> list[sa.ColumnElement[Any]]:
    """Return the columns of a plan for a list: all but the loads of the brokers."""
    return [column for column in _plan.c if column.name != "brokers"]


def plan_from_row(row: Columns) -> PlanReport:
    """Return the plan in a row of `steward_plan`, with or without the loads of the brokers."""
    plain = {each.name: row[each.name] for each in fields(PlanReport) if each.name not in {"approval", "proof"}}
    return PlanReport(**plain, approval=_approval(row), proof=_proof_from_row(row))


def _proof_from_row(row: Columns) -> ProofSummary | None:
    proof: ProofSummary | None = row["proof"]
    if proof is None:
        return None
    left = tuple(LeftPartition(*each) for each in proof.left)
    return replace(proof, brokers=tuple(row.get("brokers") or ()), left=left)


def _approval(row: Columns) -> ApprovalReport | None:
    if row["approval"] is None:
        return None
    return ApprovalReport(
        row["approval"],
        asked_ms=row["asked_ms"],
        expires_ms=row["expires_ms"],
        asked_by=row["asked_by"] or Actor(),
        answered_ms=row["answered_ms"],
        person=row["answered_by"],
        reason=row["answer"] or "",
    )


def progress_from_row(row: Columns) -> ProgressReport:
    """Return the progress in a row of `steward_progress`."""
    return ProgressReport(**{each.name: row[each.name] for each in fields(ProgressReport)})
