"""The creation of a database's tables, and their upgrade to this version, by one process at a time, and never down.

Tables of an earlier version are upgraded by numbered migrations. A new database gets the current tables at once, and is
marked with the id of the last migration.
"""

from __future__ import annotations

import threading
from pathlib import Path

import sqlalchemy as sa

from kafka_steward.errors import JournalError
from kafka_steward.journal.schema.tables import metadata
from kafka_steward.journal.sql.dialect import journal_dialect, mask_url

#: The folder of Alembic's environment, with the migrations in `versions`.
FOLDER = Path(__file__).parent
#: The ids of all migrations, the oldest first: the files `versions/r0001_....py` have them in their names.
KNOWN = tuple(sorted(path.name[1:5] for path in (FOLDER / "versions").glob("r[0-9]*.py")))
#: Alembic's version table, under a name of our own, so that the database may be shared with other applications.
VERSION_TABLE = "steward_version"
#: As Alembic declares it.
_version = sa.Table(
    VERSION_TABLE,
    sa.MetaData(),
    sa.Column("version_num", sa.String(32), nullable=False),
    sa.PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)
_VERSION = sa.text(f"SELECT version_num FROM {VERSION_TABLE}")  # noqa: S608 - a constant
#: Alembic keeps its context in module variables: two concurrent threads would use each other's connections.
_one_thread = threading.Lock()


def upgrade(engine: sa.Engine) -> None:
    """Create or upgrade the tables. Raises JournalError when a newer Kafka Steward wrote them."""
    # Nearly always so, and found without excluding anybody.
    if has_current_schema(engine):
        return
    with engine.connect().execution_options(steward_writes=True) as connection, connection.begin():
        journal_dialect(connection.dialect).exclude_upgrades(connection)
        if _read_schema_version(engine, connection) != KNOWN[-1]:  # another process may have been first
            _run_migrations(connection)


def has_current_schema(engine: sa.Engine) -> bool:
    """Return whether the tables are those of this version. Raises JournalError if a newer Kafka Steward wrote them."""
    with engine.connect() as connection:
        return _read_schema_version(engine, connection) == KNOWN[-1]


def require_current_schema(connection: sa.Connection) -> None:
    """Raise JournalError unless the tables are still those of this version, as they were when they were opened."""
    version = connection.execute(_VERSION).scalar()
    if version != KNOWN[-1]:
        where = mask_url(connection.engine.url)
        raise JournalError(
            f"The tables of the journal at {where} were changed to schema {version} while this process, which knows "
            f"{KNOWN[-1]}, had them open; it changes nothing any more: restart it with the version of Kafka Steward "
            "that opened the journal last."
        )


def _read_schema_version(engine: sa.Engine, connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    version: str | None = connection.execute(_VERSION).scalar()
    if version is not None and version not in KNOWN:
        where = mask_url(engine.url)
        raise JournalError(
            f"The journal at {where} was written by a newer Kafka Steward (schema {version}; this one knows up to "
            f"{KNOWN[-1]}); stop this process, and upgrade the workers, the triggerer and every other process that "
            "opens it."
        )
    return version


def _run_migrations(connection: sa.Connection) -> None:
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        # New tables are made as they are now, without the migrations that led there.
        metadata.create_all(connection, checkfirst=False)
        _version.create(connection, checkfirst=False)
        connection.execute(_version.insert(), {"version_num": KNOWN[-1]})
        return
    # Alembic takes half a second to import: only if there is a migration to run.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    with _one_thread:
        command.upgrade(config, "head")
