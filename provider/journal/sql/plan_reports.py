"""What is only shown of plans: the proof of each, and its progress; and the rows of plans as the page reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
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
from kafka_steward.journal.schema import tables
from kafka_steward.journal.sql.database import Database
from kafka_steward.journal.sql.dialect import now_ms
from kafka_steward.journal.sql.watch_reports import Columns, values_of

_plan, _progress = tables.plan, tables.progress

#: Points of a plan's progress that are stored. With one more, every second one is dropped.
MOST_POINTS = 240
#: Brokers whose loads are stored for a plan, and partitions that it leaves as they are.
MOST_BROKERS, MOST_LEFT = 1_000, 100
#: Columns that may be long, and are in no list of plans.
_LONG = ("brokers", "chunks", "sources")


@dataclass
class PlanReports:
    """What is shown of the plans of one cluster. Any method may raise JournalUnreachable.

    What the database refuses is logged, and never raised.
    """

    database: Database

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

    def longest_wait_ms(self) -> int:
        """Return for how long the oldest request for an approval has waited for its answer; 0 without one."""
        unanswered = (_plan.c.approval == ApprovalState.ASKED) & _plan.c.status.is_(None)
        lasts = _plan.c.expires_ms.is_(None) | (_plan.c.expires_ms > now_ms())
        waiting = self.database.cluster_condition(_plan) & unanswered & lasts
        with self.database.read_connection() as connection:
            wait_ms = connection.execute(sa.select(now_ms() - sa.func.min(_plan.c.asked_ms)).where(waiting)).scalar()
        return max(int(wait_ms or 0), 0)

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

    def _transaction(self, digest: str) -> Any:
        return self.database.report_transaction(f"What the page shows of plan {digest[:12]}")

    def _is(self, digest: str) -> sa.ColumnElement[bool]:
        return self.database.cluster_condition(_plan) & (_plan.c.digest == digest)


def add_point(series: Sequence[ProgressPoint], point: ProgressPoint) -> tuple[ProgressPoint, ...]:
    """Return the series with another point, at most `MOST_POINTS`: the first, the last, and some in between."""
    longer = (*series, point)
    return longer if len(longer) <= MOST_POINTS else (*longer[:-1:2], point)


def without_details() -> list[sa.ColumnElement[Any]]:
    """Return the columns of a plan for a list: all but the long ones."""
    return [column for column in _plan.c if column.name not in _LONG]


def plan_from_row(row: Columns) -> PlanReport:
    """Return the plan in a row of `steward_plan`, with or without the loads of the brokers."""
    plain = {column.name: row[column.name] for column in fields(PlanReport) if column.name not in {"approval", "proof"}}
    plain["published_ms"] = row["published_ms"] or None
    return PlanReport(**plain, approval=_approval(row), proof=_proof_from_row(row))


def _proof_from_row(row: Columns) -> ProofSummary | None:
    proof: ProofSummary | None = row["proof"]
    if proof is None:
        return None
    left, racks = (
        tuple(LeftPartition(*partition) for partition in partitions) for partitions in (proof.left, proof.rack_left)
    )
    return replace(proof, brokers=tuple(row.get("brokers") or ()), left=left, rack_left=racks)


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
    return ProgressReport(**{column.name: row[column.name] for column in fields(ProgressReport)})
