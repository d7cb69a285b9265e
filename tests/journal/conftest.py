from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kafka_steward.journal.mailbox import Mailbox
from kafka_steward.journal.state import State
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from tests.journal.zookeeper import ClockedZkMailbox, ZooKeeperServer
from tests.memory_mailbox import MemoryMailbox
from tests.memory_state import MemoryState
from tests.postgres import PostgresServer

#: Parameters, and fixtures, that are a server.
SERVERS = ("postgresql", "zookeeper", "postgres")
#: What each store has to do as the others do.
CONTRACTS = ("test_audit.py", "test_locks.py", "test_plans.py", "test_schema.py", "test_state.py", "test_tree.py")
#: Seconds: as long as a loaded machine may take to let a client in.
PATIENT_S = 60.0

_clusters = (f"cluster-{number}" for number in itertools.count())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a server, and leave what is no contract of the stores to `make slow` on all but SQLite."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        params = list(callspec.params.values()) if callspec else []
        if Path(__file__).parent not in item.path.parents:
            continue
        if any(name in SERVERS for name in (*params, *getattr(item, "fixturenames", ()))):
            item.add_marker("process")
        if any(name in SERVERS for name in params) and item.path.name not in CONTRACTS:
            item.add_marker("slow")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_url(postgres: PostgresServer) -> str:
    return postgres.new_database()


@pytest.fixture(scope="session")
def sqlite_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('journal')}/journal.db"


@pytest.fixture
def cluster_id() -> str:
    """A cluster of its own for each test: that is also how one database serves many clusters."""
    return next(_clusters)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    name = "sqlite_url" if request.param == "sqlite" else "postgres_url"
    return str(request.getfixturevalue(name))


@pytest.fixture
def fresh_url(url: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database that holds nothing."""
    if url.startswith("sqlite"):
        return f"sqlite:///{tmp_path}/fresh.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_database()


Opener = Callable[[], Journal]


@pytest.fixture(params=["sqlite", "postgresql", "zookeeper"])
def open_it(request: pytest.FixtureRequest, cluster_id: str) -> Iterator[Opener]:
    """Opens the same journal again, as another process would: on either database, and with its tree in ZooKeeper."""
    url = request.getfixturevalue("postgres_url" if request.param == "postgresql" else "sqlite_url")
    options = None
    if request.param == "zookeeper":
        options = ZooKeeperOptions(request.getfixturevalue("zookeeper").at(cluster_id), timeout_s=PATIENT_S)
    with ExitStack() as opened:
        yield lambda: opened.enter_context(open_journal(url, cluster_id, zookeeper=options))


@pytest.fixture
def journal(open_it: Opener) -> Journal:
    return open_it()


@pytest.fixture
def open_sql(url: str, cluster_id: str) -> Iterator[Opener]:
    """The same, where tree and rows are one database."""
    with ExitStack() as opened:
        yield lambda: opened.enter_context(open_journal(url, cluster_id))


@pytest.fixture
def sql_journal(open_sql: Opener) -> Journal:
    return open_sql()


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def state(request: pytest.FixtureRequest, cluster_id: str) -> Iterator[State]:
    if request.param == "memory":
        yield MemoryState(lambda: time.time_ns() // 1_000_000)
        return
    name = "sqlite_url" if request.param == "sqlite" else "postgres_url"
    with open_journal(request.getfixturevalue(name), cluster_id) as opened:
        yield opened.state


@pytest.fixture(params=["memory", "sqlite", "postgresql", "zookeeper"])
def mailbox(request: pytest.FixtureRequest, cluster_id: str) -> Iterator[Mailbox]:
    if request.param == "memory":
        yield MemoryMailbox(lambda: time.time_ns() // 1_000_000)
        return
    if request.param == "zookeeper":
        server: ZooKeeperServer = request.getfixturevalue("zookeeper")
        on_zookeeper = ClockedZkMailbox(ZooKeeperOptions(server.at(cluster_id), timeout_s=PATIENT_S))
        yield on_zookeeper
        on_zookeeper.close()
        return
    name = "sqlite_url" if request.param == "sqlite" else "postgres_url"
    with open_journal(request.getfixturevalue(name), cluster_id) as opened:
        yield opened.mailbox
