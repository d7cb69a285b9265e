"""The journal's identity, the hosts that opened it, and the last poll of each watch."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from kafka_steward.journal.sql.dialect import NAME

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create one table for the id that both halves of a journal contain, one for the hosts, one for the polls."""
    op.create_table(
        "steward_journal",
        sa.Column("cluster_id", NAME, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("tree", sa.Text, nullable=False),
        sa.Column("bound", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("cluster_id"),
    )
    op.create_table(
        "steward_opened",
        sa.Column("cluster_id", NAME, nullable=False),
        sa.Column("host", NAME, nullable=False),
        sa.Column("first_ms", sa.BigInteger, nullable=False),
        sa.Column("last_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "host"),
    )
    op.create_table(
        "steward_look",
        sa.Column("cluster_id", NAME, nullable=False),
        sa.Column("kind", NAME, nullable=False),
        sa.Column("host", NAME, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "kind", "host"),
    )
