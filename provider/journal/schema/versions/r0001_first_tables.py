"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from kafka_steward.journal.sql.dialect import NAME, ROW_ID, only_where

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables of the tree, the counters, the plans' moves, the audit trail, and the host."""
    _create_tree()
    _create_moves()
    _create_audit()
    op.create_table("steward_host", sa.Column("only", sa.Integer, autoincrement=False), _text("name"), _key("only"))


def _create_tree() -> None:
    op.create_table(
        "steward_node",
        _name("cluster_id"),
        _name("path"),
        _text("data"),
        *(_number(name) for name in ("version", "created_id", "modified_id", "created_ms", "modified_ms")),
        _key("cluster_id", "path"),
    )
    op.create_table("steward_counter", _name("cluster_id"), _name("name"), _number("value"), _key("cluster_id", "name"))


def _create_moves() -> None:
    op.create_table(
        "steward_plan_move",
        _name("cluster_id"),
        _name("plan"),
        _name("topic"),
        _number("partition"),
        _text("topic_id", nullable=True),
        _text("before"),
        _text("after"),
        _number("chunk"),
        _number("position"),
        _text("reason"),
        _number("size_bytes", nullable=True),
        _text("state"),
        _text("detail"),
        _number("attempt"),
        _number("submitted_ms", nullable=True),
        _number("settled_ms", nullable=True),
        sa.Column("isr_seen", sa.Boolean, nullable=False),
        _key("cluster_id", "plan", "topic", "partition"),
    )
    op.create_index("steward_plan_move_order", "steward_plan_move", ["cluster_id", "plan", "chunk", "position"])


def _create_audit() -> None:
    op.create_table(
        "steward_audit",
        sa.Column("id", ROW_ID, primary_key=True, autoincrement=True),
        _number("when_ms"),
        _number("completed_ms", nullable=True),
        _name("cluster_id"),
        _name("plan"),
        _number("chunk"),
        _name("topic"),
        _number("partition"),
        _number("broker"),
        _text("action"),
        _number("attempt"),
        _text("before", nullable=True),
        _text("after", nullable=True),
        _text("reason"),
        _text("outcome"),
        _text("detail"),
        *(_text(name, nullable=True) for name in ("dag_id", "run_id", "task_id")),
        _number("try_number", nullable=True),
        _text("person", nullable=True),
    )
    op.create_index("steward_audit_when", "steward_audit", ["cluster_id", "when_ms"])
    once = ["cluster_id", "plan", "chunk", "topic", "partition", "broker", "action", "attempt"]
    op.create_index("steward_audit_once", "steward_audit", once, unique=True, **only_where(sa.text("plan <> ''")))


def _name(name: str) -> sa.Column[str]:
    return sa.Column(name, NAME, nullable=False)


def _text(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=nullable)


def _number(name: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=nullable, autoincrement=False)


def _key(*columns: str) -> sa.PrimaryKeyConstraint:
    return sa.PrimaryKeyConstraint(*columns)
