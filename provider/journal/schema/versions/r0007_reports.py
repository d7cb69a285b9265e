"""Tables of what the page shows, and indexes for its searches of the audit trail."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from kafka_steward.journal.sql.dialect import NAME

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Create the tables, which the watch and the running plans fill, and the indexes."""
    _create_watch_tables()
    _create_progress_table()
    _create_plan_table()
    op.create_table(
        "steward_document",
        *_names("cluster_id", "kind"),
        *_numbers("at_ms", "count"),
        *_texts("documents"),
        sa.PrimaryKeyConstraint("cluster_id", "kind"),
    )


def _create_watch_tables() -> None:
    op.create_table(
        "steward_watch_check",
        *_names("cluster_id", "conn_id", "kind", "host"),
        *_texts("version"),
        *_numbers("at_ms"),
        *_texts("state", "sentence", "brokers"),
        *_numbers("due_ms", nullable=True),
        *_numbers("failures"),
        *_numbers("failing_ms", nullable=True),
        *_texts("error"),
        sa.PrimaryKeyConstraint("cluster_id", "conn_id", "kind", "host"),
    )
    op.create_table(
        "steward_broker",
        *_names("cluster_id"),
        *_numbers("broker"),
        *_texts("rack", nullable=True),
        *_flags("live", "cordoned"),
        *_numbers("replicas", "leaders", "under_replicated"),
        *_texts("failed_log_dirs"),
        *_numbers("replica_bytes", "sized_ms", "disk_total", "disk_usable", "bytes_in", "bytes_out", nullable=True),
        *_numbers("at_ms"),
        sa.PrimaryKeyConstraint("cluster_id", "broker"),
    )


def _create_progress_table() -> None:
    op.create_table(
        "steward_progress",
        *_names("cluster_id", "plan"),
        *_numbers("at_ms"),
        *_texts("status"),
        *_numbers("partitions_total", "partitions_settled", "in_flight", "waiting", "completed", "held_count"),
        *_texts("held"),
        *_numbers("stalled_count"),
        *_texts("stalled"),
        *_numbers("bytes_total", "bytes_done"),
        *_numbers("bytes_per_s", "eta_s", "throttle", nullable=True),
        *_texts("pressure", nullable=True),
        *_numbers("chunk", nullable=True),
        *_numbers("chunks"),
        *_texts("sentence", "series"),
        sa.PrimaryKeyConstraint("cluster_id", "plan"),
    )


def _create_plan_table() -> None:
    op.create_table(
        "steward_plan",
        *_names("cluster_id", "digest"),
        *_texts("operation"),
        *_texts("status", nullable=True),
        *_texts("reason"),
        *_numbers("listed_ms"),
        *_numbers("published_ms", "began_ms", "ended_ms", nullable=True),
        *_numbers("partitions", "left"),
        *_texts("failed_brokers"),
        *_numbers("throttle", nullable=True),
        *_flags("needs_approval"),
        *_texts("who"),
        *_texts(
            "conn_id", "cancel_scope", "cancel_person", "cancel_reason", "rolled_back_by", "rolls_back", nullable=True
        ),
        *_numbers("not_taken_back", nullable=True),
        *_texts("approval", nullable=True),
        *_numbers("asked_ms", "expires_ms", nullable=True),
        *_texts("asked_by", nullable=True),
        *_numbers("answered_ms", nullable=True),
        *_texts("answered_by", "answer", "proof", nullable=True),
        *_texts("brokers"),
        sa.PrimaryKeyConstraint("cluster_id", "digest"),
    )
    op.create_index("steward_plan_latest", "steward_plan", ["cluster_id", "listed_ms", "digest"])
    op.create_index("steward_plan_status", "steward_plan", ["cluster_id", "status"])


def _names(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, NAME, nullable=False) for name in names]


def _texts(*names: str, nullable: bool = False) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text, nullable=nullable) for name in names]


def _numbers(*names: str, nullable: bool = False) -> list[sa.Column[int]]:
    return [sa.Column(name, sa.BigInteger, nullable=nullable, autoincrement=False) for name in names]


def _flags(*names: str) -> list[sa.Column[bool]]:
    return [sa.Column(name, sa.Boolean, nullable=False) for name in names]
