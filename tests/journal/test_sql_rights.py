"""docs/permissions.md: a PostgreSQL role with exactly the rights that it lists does everything; each is needed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from kafka_steward.errors import JournalError
from kafka_steward.journal.audit import Action, AuditRecord
from kafka_steward.journal.copy import copy_journal
from kafka_steward.journal.schema import tables
from kafka_steward.journal.store import Journal, open_journal
from tests.journal.everything import everything
from tests.journal.later import later_version
from tests.journal.test_plans import moves_of, record_of
from tests.postgres import PostgresServer

pytestmark = [pytest.mark.process, pytest.mark.ci]

_PAGE = (Path(__file__).parents[2] / "docs/permissions.md").read_text()
#: The two blocks: what an administrator executes once, and what tables from before need.
SETUP, BEFORE = (
    [statement.strip() for statement in block.split(";") if statement.strip()]
    for block in re.findall(r"^```sql\n(.*?)^```", _PAGE, re.MULTILINE | re.DOTALL)
)
DATABASE, OWNER, USER = "steward", "steward_owner", "steward_user"


class Roles:
    """A server with the database and the roles of the page."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._database = "postgres"
        self.administer(f"CREATE DATABASE {DATABASE}")
        self._database = DATABASE
        self.administer(*SETUP)

    def administer(self, *statements: str) -> None:
        with psycopg.connect(self.plain_url("steward"), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def url(self, role: str) -> str:
        return sa.make_url(self._server.url(self._database)).set(username=role).render_as_string()

    def plain_url(self, role: str) -> str:
        """The same for libpq."""
        return sa.make_url(self.url(role)).set(drivername="postgresql").render_as_string()

    def open(self, cluster_id: str, role: str = USER) -> Journal:
        return open_journal(self.url(role), cluster_id)


@pytest.fixture
def roles() -> Iterator[Roles]:
    """A server of its own: roles belong to a server, not to a database."""
    with PostgresServer() as server:
        yield Roles(server)


def refused(roles: Roles, role: str = USER) -> str:
    with pytest.raises(JournalError) as raised:
        roles.open("c", role)
    return str(raised.value)


def test_what_the_page_lists_is_enough_for_everything(roles: Roles, tmp_path: Path) -> None:
    told = refused(roles)
    assert "refused a statement: permission denied for schema steward; its tables must be created or upgraded" in told
    assert "open it once as their owner, and grant this user its rights, as docs/permissions.md says." in told
    roles.open("c", OWNER).close()
    everything(roles.open, tmp_path, cluster_id="c")
    with open_journal(f"sqlite:///{tmp_path}/other.db", "d") as source, roles.open("d") as target:
        source.plans.publish(record_of(source), moves_of(3))
        source.audit.record(AuditRecord(Action.DETECT, "Broker 1 is down.", broker=1))
        assert copy_journal(source, target).plans == 1
        assert len(target.plans.rows("d1")) == 3
    with pytest.raises(psycopg.errors.InsufficientPrivilege), psycopg.connect(roles.plain_url(USER)) as connection:
        connection.execute("DROP TABLE steward_audit")


def test_tables_from_before_are_opened_with_the_grants_for_them(roles: Roles, tmp_path: Path) -> None:
    roles.administer(*(_undone(statement) for statement in SETUP if statement.startswith("ALTER DEFAULT")))
    roles.open("c", OWNER).close()
    assert "permission denied for table steward_version" in refused(roles)
    roles.administer(*BEFORE)
    everything(roles.open, tmp_path, cluster_id="c")


def test_tables_of_an_earlier_version_are_the_owners_to_upgrade(roles: Roles, tmp_path: Path) -> None:
    roles.open("c", OWNER).close()
    with later_version(tmp_path / "later"):
        assert "its tables must be created or upgraded" in refused(roles)
        roles.open("c", OWNER).close()
        with roles.open("c") as journal:
            assert journal.plans.latest(1) == []


#: What of the rights is taken away, and what is said then.
TAKEN = {
    f"GRANT CONNECT ON DATABASE {DATABASE} TO {USER}": "permission denied for database",
    f"GRANT USAGE ON SCHEMA steward TO {USER}": "must be created or upgraded, or are not visible to this user",
    **{
        f"GRANT {right} ON ALL TABLES IN SCHEMA steward TO {USER}": "permission denied for table steward_"
        for right in ("SELECT", "INSERT", "UPDATE", "DELETE")
    },
    f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA steward TO {USER}": "permission denied for sequence steward_audit_id_seq",
}


def test_every_right_of_the_page_is_needed(roles: Roles, tmp_path: Path) -> None:
    roles.open("c", OWNER).close()
    for number, (right, sentence) in enumerate(TAKEN.items()):
        roles.administer(_undone(right))
        with pytest.raises(JournalError, match=sentence):
            everything(roles.open, tmp_path, cluster_id=f"c{number}")
        roles.administer(right)


def test_the_page_grants_nothing_else() -> None:
    """Each GRANT of the page to the user is one whose absence is tried above."""
    granted = {each for each in SETUP if "GRANT" in each and USER in each}
    assert len(granted) == 4
    listed = {right for each in SETUP for right in re.findall(r"GRANT ([A-Z, ]+) ON", each)}
    assert listed == {"CONNECT", "USAGE", "SELECT, INSERT, UPDATE, DELETE"}
    assert {right for each in BEFORE for right in re.findall(r"GRANT ([A-Z, ]+) ON", each)} < listed
    assert set(tables.metadata.tables) > {"steward_audit"}


def _undone(grant: str) -> str:
    """The REVOKE of a GRANT."""
    return re.sub(r"\bTO (?=steward_user)", "FROM ", grant.replace("GRANT", "REVOKE"))
