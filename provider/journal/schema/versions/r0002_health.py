"""The history of a cluster's health, one row per poll of the watch."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from kafka_steward.journal.sql.dialect import NAME

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create one table, for plots."""
    op.create_table(
        "steward_health",
        sa.Column("cluster_id", NAME, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("measures", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "at_ms"),
    )
