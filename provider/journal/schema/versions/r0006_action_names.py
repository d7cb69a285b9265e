"""Kafka's and plain words for three actions of the audit trail."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_audit = sa.table("steward_audit", sa.column("action"))
_NAMES = {"mend": "repair", "owe": "pending", "foreign": "external"}


def upgrade() -> None:
    """Rename the actions in all rows."""
    for former, name in _NAMES.items():
        op.execute(sa.update(_audit).where(_audit.c.action == former).values(action=name))
