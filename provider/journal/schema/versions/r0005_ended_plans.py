"""A table for the records of plans that ended a while ago; and one index less on the moves of plans."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from kafka_steward.journal.sql.dialect import NAME

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create the table, which the watch fills, and drop the index on moves."""
    op.create_table(
        "steward_ended_plan",
        sa.Column("cluster_id", NAME, nullable=False),
        sa.Column("digest", NAME, nullable=False),
        sa.Column("published_ms", sa.BigInteger, nullable=False),
        sa.Column("ended_ms", sa.BigInteger, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("cluster_id", "digest"),
    )
    op.create_index("steward_ended_plan_latest", "steward_ended_plan", ["cluster_id", "published_ms"])
    # Without statistics of a new plan, PostgreSQL used this index for each row of the plan, and read all other rows.
    op.drop_index("steward_plan_move_order", "steward_plan_move")
