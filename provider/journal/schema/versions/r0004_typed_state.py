"""Typed columns for the state of a move and the code of an audit row; both were parts of messages before."""

from __future__ import annotations

import re
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_MOVE, _AUDIT = "steward_plan_move", "steward_audit"
_KEY = ("cluster_id", "plan", "topic", "partition")
_move = sa.table(
    _MOVE,
    *(sa.column(name) for name in (*_KEY, "state", "detail", "attempt", "phase", "stage", "cause", "unacknowledged")),
)
_audit = sa.table(_AUDIT, sa.column("action"), sa.column("reason"), sa.column("code"))
_detail = _move.c.detail
_STAGE = re.compile(r"(\d+) of \d+ new replicas")
#: The cause by the beginning of the detail of a move that was being cancelled, or that had ended.
_CAUSES = {
    "cancelling: cancelled%": "requested",
    "cancelling: no progress%": "stalled",
    "cancelling: broker %": "broker_died",
    "cancelling: someone else cancelled it%": "cancelled_elsewhere",
    "cancelled%": "requested",
    "someone else cancelled it%": "cancelled_elsewhere",
    "someone else reassigned the partition%": "reassigned_elsewhere",
}
_CODES = {"not rolled back: %": "left_alone", "KIP-236: %": "kip_236"}


def upgrade() -> None:
    """Add the columns, and fill them from the messages that contained the values."""
    op.add_column(_MOVE, sa.Column("phase", sa.Text))
    op.add_column(_MOVE, sa.Column("stage", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column(_MOVE, sa.Column("cause", sa.Text))
    op.add_column(_MOVE, sa.Column("unacknowledged", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column(_AUDIT, sa.Column("code", sa.Text))
    _fill_phases()
    _fill_stages()
    _fill_causes()
    for beginning, code in _CODES.items():
        op.execute(
            sa.update(_audit).where((_audit.c.action == "skip") & _audit.c.reason.like(beginning)).values(code=code)
        )


def _fill_phases() -> None:
    submitted = _move.c.state == "submitted"
    op.execute(sa.update(_move).where(submitted).values(phase="intended"))
    for phase in ("accepted", "cancelling"):
        named = (_detail == phase) | _detail.like(f"{phase}:%")
        op.execute(sa.update(_move).where(submitted & named).values(phase=phase))
    # It was not recorded whether Kafka had answered: cancelling an accepted move once more is harmless.
    open_or_asked = _move.c.state.in_(["waiting", "held"]) | (submitted & (_move.c.phase == "intended"))
    op.execute(sa.update(_move).where((_move.c.attempt > 0) & open_or_asked).values(unacknowledged=sa.true()))


def _fill_stages() -> None:
    connection = op.get_bind()
    staged = (_move.c.state == "submitted") & _detail.like("%new replicas%")
    rows = connection.execute(sa.select(*(_move.c[name] for name in _KEY), _detail).where(staged)).mappings().all()
    found: list[dict[str, Any]] = [
        {**{f"key_{name}": row[name] for name in _KEY}, "count": int(match.group(1))}
        for row in rows
        if (match := _STAGE.search(row["detail"]))
    ]
    if found:
        mine = sa.and_(*(_move.c[name] == sa.bindparam(f"key_{name}") for name in _KEY))
        connection.execute(sa.update(_move).where(mine).values(stage=sa.bindparam("count")), found)


def _fill_causes() -> None:
    concerned = _move.c.state.in_(["submitted", "dropped", "failed"])
    for beginning, cause in _CAUSES.items():
        op.execute(sa.update(_move).where(concerned & _detail.like(beginning)).values(cause=cause))
