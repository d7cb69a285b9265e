"""A later version of Kafka Steward, which has one more migration: for tests of what an upgrade keeps."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafka_steward.journal.schema import upgrade

__all__ = ["LATER", "TABLE", "later_version"]

LATER = f"{int(upgrade.KNOWN[-1]) + 1:04}"
#: The table that the migration makes.
TABLE = "steward_later"
_MIGRATION = f"""\
import sqlalchemy as sa
from alembic import op

from kafka_steward.errors import JournalError

revision = "{LATER}"
down_revision = "{upgrade.KNOWN[-1]}"


def upgrade():
    op.create_table("{TABLE}", sa.Column("id", sa.Integer, primary_key=True))
    op.add_column("steward_state", sa.Column("later", sa.Text, server_default="filled"))
"""


@contextmanager
def later_version(folder: Path, *, dies: bool = False) -> Iterator[None]:
    """Be the later version, with its migrations in `folder`, which does not exist; it `dies` at the migration's end."""
    shutil.copytree(upgrade.FOLDER, folder)
    died = '    raise JournalError("The process died.")\n' if dies else ""
    (folder / "versions" / f"r{LATER}_later.py").write_text(_MIGRATION + died)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upgrade, "FOLDER", folder)
        patch.setattr(upgrade, "KNOWN", (*upgrade.KNOWN, LATER))
        yield
