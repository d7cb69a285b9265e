"""The Alembic environment of the migrations: it uses the connection and the transaction that `upgrade` opened."""

from __future__ import annotations

from alembic import context

from kafka_steward.journal.schema.upgrade import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"], version_table=VERSION_TABLE, transactional_ddl=True
)
with context.begin_transaction():
    context.run_migrations()
