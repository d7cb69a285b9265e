"""What only PostgreSQL has: a server that falls silent, TLS, libpq's parameters."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from kafka_steward.errors import JournalError, JournalUnreachable, SettingError
from kafka_steward.hooks.cluster_config import ConnectionFields
from kafka_steward.hooks.journal_database import journal_url, refuse_airflow_database
from kafka_steward.journal.audit import Action, AuditRecord, Outcome
from kafka_steward.journal.sql.database import table_names
from kafka_steward.journal.sql.postgres import DeadlineConnection, Postgres
from kafka_steward.journal.store import Journal, open_journal
from tests.documents import create_document
from tests.journal.certificate import Certificate
from tests.postgres import PostgresServer

pytestmark = pytest.mark.process

#: Seconds: what is promised.
NOTICED_S = 30


@pytest.fixture
def silent(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """The server, which a test may pause."""
    yield postgres
    postgres.resume()


@pytest.fixture
def opened(postgres_url: str, cluster_id: str) -> Iterator[Journal]:
    with open_journal(postgres_url, cluster_id) as journal:
        yield journal


def seconds_until_noticed(call: Callable[[], object]) -> float:
    began = time.monotonic()
    with pytest.raises(JournalUnreachable, match=r"^The journal at \S+ does not answer \(.+\); retry when it does\.$"):
        call()
    return time.monotonic() - began


@pytest.mark.ci
def test_a_server_that_falls_silent_between_two_calls_is_noticed_and_the_lock_given_up_in_time(
    opened: Journal, silent: PostgresServer
) -> None:
    def step() -> None:
        with opened.step_lock("one") as fence:
            silent.pause()
            fence.check()

    assert seconds_until_noticed(step) < NOTICED_S
    silent.resume()
    create_document(opened.mailbox, "/a/b", "x")


@pytest.mark.ci
def test_a_server_that_falls_silent_is_noticed_in_the_middle_of_a_transaction(
    opened: Journal, silent: PostgresServer
) -> None:
    def change() -> None:
        with opened.transaction():
            create_document(opened.mailbox, "/a/b", "x")
            silent.pause()
            create_document(opened.mailbox, "/a/c", "x")

    assert seconds_until_noticed(change) < NOTICED_S
    silent.resume()
    assert opened.mailbox.children("/a") == []


def test_a_new_connection_to_a_silent_server_is_given_up(postgres_url: str, silent: PostgresServer) -> None:
    silent.pause()
    assert seconds_until_noticed(lambda: open_journal(postgres_url, "one")) < NOTICED_S
    hasty = sa.make_url(f"{postgres_url}&connect_timeout=2")
    assert seconds_until_noticed(lambda: refuse_airflow_database(hasty)) < NOTICED_S


def test_an_answer_that_keeps_arriving_is_waited_for(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeadlineConnection, "deadline_s", 0.5)
    engine = Postgres().create_engine(sa.make_url(postgres_url))
    with engine.connect() as connection:
        # Each row is sent a little later than the one before, and 8 KB at a time.
        slow = "SELECT repeat('x', 9000) || pg_sleep(0.2) FROM generate_series(1, 8)"
        began = time.monotonic()
        assert len(connection.execute(sa.text(slow)).all()) == 8
        assert time.monotonic() - began > 1
    engine.dispose()


def test_a_statement_that_takes_too_long_is_ended_by_the_server(postgres_url: str) -> None:
    engine = Postgres().create_engine(sa.make_url(f"{postgres_url}&options=-c statement_timeout%3D200ms"))
    with engine.connect() as connection:
        with pytest.raises(sa.exc.OperationalError, match="statement timeout"):
            connection.execute(sa.text("SELECT pg_sleep(5)"))
        assert not connection.invalidated
    engine.dispose()


def test_what_a_url_says_wins_and_the_rest_stays(postgres_url: str) -> None:
    engine = Postgres().create_engine(sa.make_url(f"{postgres_url}&connect_timeout=4&options=-c work_mem%3D5MB"))
    with engine.connect() as connection:
        settings = ("work_mem", "statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
        found = [connection.execute(sa.text(f"SHOW {name}")).scalar_one() for name in settings]
        raw = connection.connection.driver_connection
        assert isinstance(raw, DeadlineConnection)
        assert found == ["5MB", "15s", "15s", "1min"]
        parameters = raw.info.get_parameters()
        assert (parameters["connect_timeout"], parameters["tcp_user_timeout"]) == ("4", "18000")
    engine.dispose()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return Certificate(tmp_path_factory.mktemp("postgres"))


@pytest.fixture(scope="module")
def secured(certificate: Certificate) -> Iterator[PostgresServer]:
    with PostgresServer(certificate) as server:
        yield server


def journal_of(server: PostgresServer, **extra: str) -> str:
    """The URL of a journal that an Airflow connection of type postgres describes."""
    given = ConnectionFields("pg", host=server.host, port=server.port, login="steward", password="s3cret", extra=extra)
    return journal_url("pg", lambda _: ("postgres", given, "postgres")).render_as_string(hide_password=False)


def test_the_extra_of_an_airflow_connection_secures_the_journal(
    secured: PostgresServer, certificate: Certificate, cluster_id: str
) -> None:
    url = journal_of(secured, sslmode="verify-full", sslrootcert=str(certificate.certificate))
    with open_journal(url, cluster_id) as journal:
        create_document(journal.mailbox, "/a/b", "x")
    with sa.create_engine(url).connect() as connection:
        mine = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
        assert connection.execute(sa.text(mine)).scalar_one() is True


def test_a_server_with_another_certificate_is_refused(secured: PostgresServer, tmp_path: Path) -> None:
    url = journal_of(secured, sslmode="verify-full", sslrootcert=str(Certificate(tmp_path).certificate))
    with pytest.raises(JournalUnreachable, match=r"certificate verify failed") as refused:
        open_journal(url, "one")
    assert "s3cret" not in str(refused.value)


def test_a_server_under_another_name_is_refused(secured: PostgresServer, certificate: Certificate) -> None:
    url = journal_of(secured, sslmode="verify-full", sslrootcert=str(certificate.certificate))
    elsewhere = url.replace("127.0.0.1", "localhost")
    with pytest.raises(JournalUnreachable, match=r"localhost"):
        open_journal(elsewhere, "one")


def test_the_tables_of_a_database_are_known(postgres: PostgresServer) -> None:
    url = postgres.new_database()
    assert table_names(url) == frozenset()
    with sa.create_engine(url).begin() as connection:
        connection.execute(sa.text("CREATE TABLE dag_run (id INTEGER)"))
        connection.execute(sa.text("CREATE TABLE task_instance (id INTEGER)"))
    with pytest.raises(SettingError, match="is Airflow's own database"):
        refuse_airflow_database(sa.make_url(url))


def test_a_database_that_is_not_there_never_passes_for_one_that_is_not_airflows(postgres: PostgresServer) -> None:
    with pytest.raises(JournalError, match='database "missing" does not exist'):
        refuse_airflow_database(sa.make_url(postgres.url("missing")))


def test_audit_rows_are_found_by_their_index_however_small_the_trail_was_at_first(postgres: PostgresServer) -> None:
    url = postgres.new_database()
    with open_journal(url, "one") as journal:
        for first, last in ((0, 50), (50, 4_000)):
            entries = [audit_record(number) for number in range(first, last)]
            journal.audit.record_intent(entries)
            journal.audit.record_outcome(entries[:500], Outcome.DONE)
    # 500 of 4,000 rows, found without an index, are two millions.
    assert postgres.rows_read(str(sa.make_url(url).database), "steward_audit") < 50_000


def audit_record(partition: int) -> AuditRecord:
    return AuditRecord(Action.SUBMIT, "because", plan="p", chunk=0, topic="t", partition=partition, attempt=1)
