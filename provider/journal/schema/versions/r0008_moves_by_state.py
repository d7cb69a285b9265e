"""An index on the states of moves, in SQLite, where counting them reads whole rows without it."""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Create the index, in SQLite only."""
    if op.get_bind().dialect.name == "sqlite":
        columns = ["cluster_id", "plan", "state", "topic", "partition"]
        op.create_index("steward_plan_move_state", "steward_plan_move", columns)
