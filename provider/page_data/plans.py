"""The plans of a cluster: a page of them, and one with its progress, its brokers and its moves."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import sqlalchemy as sa

from kafka_steward.journal.observed import PlanReport, ProgressReport
from kafka_steward.journal.records import MoveRow, MoveState, PlanStatus
from kafka_steward.journal.schema import tables
from kafka_steward.journal.sql.moves import MOVE_COLUMNS, to_move_row
from kafka_steward.journal.sql.plan_reports import plan_from_row, progress_from_row, without_details
from kafka_steward.page_data.reader import JournalReader, Page, from_cursor

_plan, _move, _progress = tables.plan, tables.plan_move, tables.progress


def plans(
    reader: JournalReader, cluster_id: str, *, unfinished: bool = False, after: str | None = None, limit: int = 50
) -> Page[PlanReport]:
    """Return plans, the newest first: a page of `limit` after the cursor `after`; with `unfinished`, only such.

    Plans that wait for their approval are among them: they have no `status`. Raises RequestError for another cursor.
    """
    listed = _plan.c.status.is_not(None) | _plan.c.asked_ms.is_not(None)  # nobody was asked where a rule approved
    query = sa.select(*without_details()).where((_plan.c.cluster_id == cluster_id) & listed)
    if unfinished:
        query = query.where(_plan.c.status.in_([status for status in PlanStatus if not status.finished]))
    if after is not None:
        query = query.where(sa.tuple_(_plan.c.listed_ms, _plan.c.digest) < sa.tuple_(*from_cursor(after, (int, str))))
    query = query.order_by(_plan.c.listed_ms.desc(), _plan.c.digest.desc())
    return reader.page(query, limit, plan_from_row, lambda plan: (plan.listed_ms, plan.digest))


@dataclass(frozen=True, slots=True)
class PlanDetail:
    """One plan, with the loads of the brokers in its proof, its progress, and the number of moves by state.

    `progress` is None before the first step.
    """

    plan: PlanReport
    progress: ProgressReport | None = None
    moves: Mapping[MoveState, int] = field(default_factory=dict)


def plan(reader: JournalReader, cluster_id: str, digest: str) -> PlanDetail | None:
    """Return one plan by its digest, or by its first 6 or more digits; None if there is none, or more than one."""
    if not 6 <= len(digest) <= 64 or set(digest) - set("0123456789abcdef"):
        return None
    begins = (_plan.c.cluster_id == cluster_id) & (_plan.c.digest >= digest) & (_plan.c.digest < f"{digest}g")
    with reader.connection() as opened:
        rows = opened.execute(sa.select(_plan).where(begins).limit(2)).mappings().all()
        if len(rows) != 1:
            return None
        report = plan_from_row(rows[0])
        mine = (_progress.c.cluster_id == cluster_id) & (_progress.c.plan == report.digest)
        progress = opened.execute(sa.select(_progress).where(mine)).mappings().one_or_none()
        moves = (_move.c.cluster_id == cluster_id) & (_move.c.plan == report.digest)
        counts = sa.select(_move.c.state, sa.func.count()).where(moves).group_by(_move.c.state)
        by_state = {state: int(count) for state, count in opened.execute(counts)}
    return PlanDetail(report, None if progress is None else progress_from_row(progress), by_state)


def progress(reader: JournalReader, cluster_id: str, digest: str) -> ProgressReport | None:
    """Return the progress of the plan with this whole digest; None before its first step."""
    mine = (_progress.c.cluster_id == cluster_id) & (_progress.c.plan == digest)
    return next((progress_from_row(row) for row in reader.rows(sa.select(_progress).where(mine))), None)


def moves(
    reader: JournalReader,
    cluster_id: str,
    digest: str,
    *,
    states: Collection[MoveState] = (),
    after: str | None = None,
    limit: int = 100,
) -> Page[MoveRow]:
    """Return moves of the plan with this whole digest, by topic and partition: a page after the cursor `after`.

    With `states`, only moves in one of them. Raises RequestError for another cursor.
    """
    query = sa.select(*MOVE_COLUMNS).where((_move.c.cluster_id == cluster_id) & (_move.c.plan == digest))
    if states:
        query = query.where(_move.c.state.in_(list(states)))
    if after is not None:
        query = query.where(sa.tuple_(_move.c.topic, _move.c.partition) > sa.tuple_(*from_cursor(after, (str, int))))
    query = query.order_by(_move.c.topic, _move.c.partition)
    return reader.page(query, limit, lambda row: to_move_row(*row.values()), lambda row: row.topic_partition)
