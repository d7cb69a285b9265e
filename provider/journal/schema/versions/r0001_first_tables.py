"""The tables of the first release, with which all migrations begin."""

from __future__ import annotations

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Change nothing: no database has earlier tables."""
