"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from kafka_steward.journal.sql.dialect import NAME, ROW_ID, partial_index_options

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables of the tree, the counters, the plans' moves, the audit trail, and the host."""
    _create_tree_tables()
    _create_moves_table()
    _create_audit_table()
    op.create_table(
        "steward_host", sa.Column("only", sa.Integer, autoincrement=False), _text_column("name"), _primary_key("only")
    )


def _create_tree_tables() -> None:
    op.create_table(
        "steward_node",
        _name_column("cluster_id"),
        _name_column("path"),
        _text_column("data"),
        *(_number_column(name) for name in ("version", "created_id", "modified_id", "created_ms", "modified_ms")),
        _primary_key("cluster_id", "path"),
    )
    op.create_table(
        "steward_counter",
        _name_column("cluster_id"),
        _name_column("name"),
        _number_column("value"),
        _primary_key("cluster_id", "name"),
    )


def _create_moves_table() -> None:
    op.create_table(
        "steward_plan_move",
        _name_column("cluster_id"),
        _name_column("plan"),
        _name_column("topic"),
        _number_column("partition"),
        _text_column("topic_id", nullable=True),
        _text_column("before"),
        _text_column("after"),
        _number_column("chunk"),
        _number_column("position"),
        _text_column("reason"),
        _number_column("size_bytes", nullable=True),
        _text_column("state"),
        _text_column("detail"),
        _number_column("attempt"),
        _number_column("submitted_ms", nullable=True),
        _number_column("settled_ms", nullable=True),
        sa.Column("isr_seen", sa.Boolean, nullable=False),
        _primary_key("cluster_id", "plan", "topic", "partition"),
    )
    op.create_index("steward_plan_move_order", "steward_plan_move", ["cluster_id", "plan", "chunk", "position"])


def _create_audit_table() -> None:
    op.create_table(
        "steward_audit",
        sa.Column("id", ROW_ID, primary_key=True, autoincrement=True),
        _number_column("when_ms"),
        _number_column("completed_ms", nullable=True),
        _name_column("cluster_id"),
        _name_column("plan"),
        _number_column("chunk"),
        _name_column("topic"),
        _number_column("partition"),
        _number_column("broker"),
        _text_column("action"),
        _number_column("attempt"),
        _text_column("before", nullable=True),
        _text_column("after", nullable=True),
        _text_column("reason"),
        _text_column("outcome"),
        _text_column("detail"),
        *(_text_column(name, nullable=True) for name in ("dag_id", "run_id", "task_id")),
        _number_column("try_number", nullable=True),
        _text_column("person", nullable=True),
    )
    op.create_index("steward_audit_when", "steward_audit", ["cluster_id", "when_ms"])
    once = ["cluster_id", "plan", "chunk", "topic", "partition", "broker", "action", "attempt"]
    op.create_index(
        "steward_audit_once", "steward_audit", once, unique=True, **partial_index_options(sa.text("plan <> ''"))
    )


def _name_column(name: str) -> sa.Column[str]:
    return sa.Column(name, NAME, nullable=False)


def _text_column(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=nullable)


def _number_column(name: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=nullable, autoincrement=False)


def _primary_key(*columns: str) -> sa.PrimaryKeyConstraint:
    return sa.PrimaryKeyConstraint(*columns)
