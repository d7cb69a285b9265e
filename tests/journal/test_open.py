"""What may go wrong when a journal is opened, and while it is open: one sentence each; nothing is left half done."""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import JournalError, JournalUnreachable, LockLost, PlanError, SettingError
from kafka_steward.journal import paths
from kafka_steward.journal.kip_documents import Chunk
from kafka_steward.journal.locks import Fence
from kafka_steward.journal.mailbox import put_one, read_one
from kafka_steward.journal.records import MoveState, PlanStatus
from kafka_steward.journal.sql.mailbox import SqlMailbox
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from tests.documents import create_document
from tests.eventually import eventually
from tests.journal.test_plans import moves_of, record_of
from tests.journal.zookeeper import ClockedZkMailbox
from tests.postgres import PostgresServer
from tests.present import present

SECRET = "s3cret/pw"
ESCAPED = "s3cret%2Fpw"


def sqlite_at(folder: Path) -> str:
    return f"sqlite:///{folder}/journal.db"


def test_the_folder_is_made(tmp_path: Path) -> None:
    with open_journal(sqlite_at(tmp_path / "deep" / "er"), "c"):
        pass
    assert (tmp_path / "deep" / "er" / "journal.db").exists()


def test_a_journal_outlives_its_process(open_it: Callable[[], Journal]) -> None:
    create_document(open_it().mailbox, "/a/b", "kept")
    assert present(read_one(open_it().mailbox, "/a/b")).data == "kept"


def test_a_sqlite_journal_belongs_to_the_host_that_the_system_names(tmp_path: Path) -> None:
    for cluster_id in ("c", "other"):
        open_journal(sqlite_at(tmp_path), cluster_id).close()
    with pytest.raises(JournalError) as refused:
        open_journal(sqlite_at(tmp_path), "c", host="second")
    assert str(refused.value) == (
        f"The journal {tmp_path}/journal.db belongs to the host {platform.node()}, and this is second; use it there "
        "only, or give the setting journal a PostgreSQL URL that all hosts share. If the host was merely renamed, put "
        "second into the one row of its table steward_host."
    )


def test_a_journal_is_of_one_cluster(tmp_path: Path) -> None:
    with open_journal(sqlite_at(tmp_path), "c1") as journal:
        assert repr(journal) == "Journal(cluster_id='c1')"
        journal.require_cluster("c1")
        with pytest.raises(PlanError) as refused:
            journal.require_cluster("c2")
    assert str(refused.value) == ("The journal is of cluster c1, and this is c2; open the journal of this cluster.")


def test_a_postgresql_journal_is_shared_by_hosts(postgres_url: str) -> None:
    for host in ("first", "second"):
        open_journal(postgres_url, "hosts", host=host).close()


@pytest.mark.parametrize(
    "url", ["", "nonsense", "sqlite://", "sqlite:///", "sqlite:///:memory:", "mysql://u@h/d", "redis://h"]
)
def test_a_url_that_cannot_be_used(url: str) -> None:
    with pytest.raises(SettingError, match=r"The setting journal .*(sqlite:////|SQLite or PostgreSQL)"):
        open_journal(url, "c")


def test_the_folder_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        JournalError, match=r"file/sub/journal.db cannot be written by the user \S+ \(Not a directory\)"
    ):
        open_journal(sqlite_at(tmp_path / "file" / "sub"), "c")


def _open_as_nobody(url: str, said: multiprocessing.Queue[str]) -> None:
    os.setuid(65534)
    try:
        open_journal(url, "c")
    except JournalError as error:
        said.put(str(error))
    else:
        said.put("opened")


@pytest.mark.process
def test_the_folder_is_not_writable(tmp_path: Path) -> None:
    for folder in (*tmp_path.parents, tmp_path):
        if folder.stat().st_uid == os.getuid() and not folder.stat().st_mode & 0o001:
            folder.chmod(0o711)
    tmp_path.chmod(0o555)
    if os.geteuid() != 0:
        with pytest.raises(JournalError, match="cannot be written by the user"):
            open_journal(sqlite_at(tmp_path), "c")
        return
    said: multiprocessing.Queue[str] = multiprocessing.get_context("fork").Queue()
    child = multiprocessing.get_context("fork").Process(target=_open_as_nobody, args=(sqlite_at(tmp_path), said))
    child.start()
    assert "cannot be written by the user" in said.get(timeout=300)
    child.join()


def test_postgresql_goes_down_and_comes_back(postgres: PostgresServer, postgres_url: str, cluster_id: str) -> None:
    with open_journal(postgres_url, cluster_id) as journal:
        create_document(journal.mailbox, "/a/b", "kept")
        postgres.stop()
        for use in (
            journal.now_ms,
            lambda: create_document(journal.mailbox, "/a/c", "x"),
            journal.audit.rows,
            lambda: journal.plans.rows("d"),
        ):
            with pytest.raises(JournalUnreachable, match="does not answer"):
                use()
        postgres.start()
        assert journal.mailbox.children("/a") == ["b"]


def test_a_cut_connection_costs_nothing(postgres: PostgresServer, postgres_url: str, cluster_id: str) -> None:
    with open_journal(postgres_url, cluster_id) as journal:
        create_document(journal.mailbox, "/a/b", "kept")
        postgres.restart()
        create_document(journal.mailbox, "/a/c", "kept too")
        assert journal.mailbox.children("/a") == ["b", "c"]


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql+psycopg://ann:{ESCAPED}@127.0.0.1:1/steward",
        f"postgresql://ann:{ESCAPED}@127.0.0.1:1/steward?nonsense=1",
        f"postgresql+psycopg://ann:{ESCAPED}@127.0.0.1:port/steward",
        f"mysql://ann:{ESCAPED}@127.0.0.1/steward",
        f"nonsense {ESCAPED}",
    ],
)
def test_no_error_contains_the_password(url: str) -> None:
    """Not in its sentence, and not in the errors that it came from, as a log prints them."""
    with pytest.raises((JournalUnreachable, JournalError, SettingError)) as raised:
        open_journal(url, "c")
    printed = "".join(traceback.format_exception(raised.value))
    assert "journal" in str(raised.value)
    assert (":***@127.0.0.1:1/steward does not answer" in str(raised.value)) == url.endswith(":1/steward")
    assert SECRET not in printed
    assert ESCAPED not in printed


def test_nothing_that_is_printed_contains_the_password(postgres_url: str) -> None:
    url = postgres_url.replace("steward@", f"steward:{ESCAPED}@")
    with open_journal(url, "c") as journal:
        assert isinstance(journal.mailbox, SqlMailbox)
        printed = "".join(
            map(repr, (journal, journal.mailbox, journal.mailbox.database, journal.mailbox.database.engine))
        )
    assert SECRET not in printed
    assert ESCAPED not in printed


@pytest.mark.process
def test_opening_loads_sqlalchemy_and_nothing_before_does() -> None:
    code = (
        "import sys, kafka_steward.journal.store, kafka_steward.journal.records, kafka_steward.journal.kip_documents;"
        "assert not {'sqlalchemy', 'alembic', 'kazoo', 'airflow', 'kafka'} & set(sys.modules), sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.process
def test_a_second_opening_needs_no_alembic(tmp_path: Path) -> None:
    open_journal(sqlite_at(tmp_path), "c").close()
    code = (
        "import sys; from kafka_steward.journal.store import open_journal;"
        f"open_journal({sqlite_at(tmp_path)!r}, 'c').close(); assert 'alembic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_journals_of_many_clusters_are_made_at_once(tmp_path: Path) -> None:
    """As in a triggerer that watches ten clusters for the first time."""
    together = threading.Barrier(10)

    def make(number: int) -> str | None:
        together.wait()
        with open_journal(f"sqlite:///{tmp_path}/{number}.db", f"cluster-{number}") as journal:
            create_document(journal.mailbox, "/steward", str(number))
            node = read_one(journal.mailbox, "/steward")
            return None if node is None else node.data

    with ThreadPoolExecutor(10) as pool:
        assert list(pool.map(make, range(10))) == [str(number) for number in range(10)]


def test_closing_twice_is_harmless(journal: Journal) -> None:
    journal.close()
    journal.close()


def test_a_thread_sees_nothing_of_another_threads_transaction(sql_journal: Journal) -> None:
    seen: list[object] = []
    with sql_journal.transaction():
        create_document(sql_journal.mailbox, "/a/b", "x")
        reader = threading.Thread(target=lambda: seen.append(read_one(sql_journal.mailbox, "/a/b")))
        reader.start()
        reader.join(10)
    assert seen == [None]
    assert read_one(sql_journal.mailbox, "/a/b") is not None


def test_together_is_all_or_nothing(sql_journal: Journal) -> None:

    def write_and_fail() -> None:
        with sql_journal.transaction():
            create_document(sql_journal.mailbox, "/a/b", "x")
            with sql_journal.transaction():
                create_document(sql_journal.mailbox, "/a/c", "x")
            assert put_one(sql_journal.mailbox, "/a/b", "again") is None
            assert sql_journal.mailbox.children("/a") == ["b", "c"]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_and_fail()
    assert sql_journal.mailbox.children("/a") == []
    create_document(sql_journal.mailbox, "/a/b", "x")


def test_writers_of_one_cluster_wait_for_each_other(open_sql: Callable[[], Journal]) -> None:
    """What a transaction checked still holds when it ends."""
    mine, theirs = open_sql(), open_sql()
    order: list[str] = []

    def write() -> None:
        create_document(theirs.mailbox, "/a/theirs", "x")
        order.append("theirs")

    with mine.transaction():
        assert mine.mailbox.children("/a") == []
        other = threading.Thread(target=write)
        other.start()
        other.join(0.3)
        assert mine.mailbox.children("/a") == []
        order.append("mine")
    other.join(30)
    assert order == ["mine", "theirs"]


def test_a_writer_that_holds_on_for_too_long_is_named_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_steward.journal.sql.sqlite._LOCK_TIMEOUT_S", 0.1)
    with open_journal(sqlite_at(tmp_path), "c") as mine, open_journal(sqlite_at(tmp_path), "c") as theirs:
        with mine.transaction(), pytest.raises(JournalUnreachable, match=r"does not answer \(database is locked\)"):
            create_document(theirs.mailbox, "/a/b", "x")
        create_document(theirs.mailbox, "/a/b", "x")


def _write_many(journal: Journal, who: str) -> None:
    for number in range(30):
        create_document(journal.mailbox, f"/a/{who}-{number}", "x")


@pytest.mark.process
def test_a_forked_child_has_connections_of_its_own(journal: Journal) -> None:
    """On the parent's, the two would read each other's answers."""
    create_document(journal.mailbox, "/a/first", "x")
    child = multiprocessing.get_context("fork").Process(target=_write_many, args=(journal, "child"))
    child.start()
    _write_many(journal, "parent")
    child.join(60)
    assert child.exitcode == 0
    assert len(journal.mailbox.children("/a")) == 61


ORDERS_0 = TopicPartition("orders", 0)
TTL_MS = 500

_fork = multiprocessing.get_context("fork")


def _step_late(journal: Journal, parent: Connection) -> None:
    """Take the lock, be stopped, wake up, and try to go on."""
    with journal.step_lock("late", ttl_ms=TTL_MS) as fence:
        record = present(journal.plans.get("d1"))
        parent.send("has the lock")
        parent.recv()
        attempts: list[Callable[[], object]] = [
            lambda: journal.plans.set_move_states("d1", [ORDERS_0], MoveState.FAILED, fence=fence),
            lambda: journal.plans.update(record, fence=fence, status=PlanStatus.STUCK),
            fence.check,
        ]
        parent.send([_outcome(attempt) for attempt in attempts])


def _outcome(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except LockLost:
        return "lock lost"
    return "changed something"


@pytest.mark.process
def test_a_process_that_was_stopped_beyond_its_locks_life_changes_nothing(journal: Journal) -> None:
    journal.plans.publish(record_of(journal), moves_of(2))
    here, there = _fork.Pipe()
    child = _fork.Process(target=_step_late, args=(journal, there))
    child.start()
    assert here.recv() == "has the lock"
    os.kill(int(child.pid or 0), signal.SIGSTOP)
    fence = eventually(lambda: journal.step_lock("next").acquire(), within=30, errors=(LockLost,))
    journal.plans.set_move_states("d1", [ORDERS_0], MoveState.SUBMITTED, fence=fence)
    os.kill(int(child.pid or 0), signal.SIGCONT)
    here.send("go on")
    assert here.recv() == ["lock lost"] * 3
    child.join(30)
    _still_ours(journal, fence)


def _still_ours(journal: Journal, fence: Fence) -> None:
    fence.check()
    record = present(journal.plans.get("d1"))
    assert (record.status, record.revision) == (PlanStatus.PUBLISHED, 0)
    assert [row.state for row in journal.plans.rows("d1")] == [MoveState.SUBMITTED, MoveState.WAITING]


def _publish_for_ever(journal: Journal, parent: Connection) -> None:
    number = 0
    while True:
        digest = f"d{number}"
        journal.plans.publish(record_of(journal, digest), moves_of(40, size=4, topic=digest))
        parent.send(digest)
        number += 1


@pytest.mark.parametrize("after_s", [0.002, 0.01, 0.03])
@pytest.mark.process
def test_a_process_killed_while_publishing_leaves_whole_plans_only(journal: Journal, after_s: float) -> None:
    here, there = _fork.Pipe(duplex=False)
    child = _fork.Process(target=_publish_for_ever, args=(journal, there))
    child.start()
    here.recv()
    child.join(after_s)
    child.kill()
    child.join(30)
    records = journal.plans.unfinished()
    for record in records:
        assert [row.move for row in journal.plans.rows(record.digest)] == moves_of(40, 4, topic=record.digest)
        assert [_plan_of(journal, name) for name in record.chunks] == [record.digest] * 10
    digest = f"d{len(records)}"
    again = journal.plans.publish(record_of(journal, digest), moves_of(40, size=4, topic=digest))
    named = {name for record in [*records, again] for name in record.chunks}
    assert set(journal.mailbox.children(paths.REASSIGN_CHUNKS)) == named


def _plan_of(journal: Journal, name: str) -> str | None:
    node = read_one(journal.mailbox, paths.chunk(name))
    return None if node is None else Chunk.from_node(node).plan


#: Seconds: what is promised.
NOTICED_S = 30
_UNSHARE = ("unshare", "--net")


def _may_cut_links() -> bool:
    tools = all(shutil.which(tool) for tool in ("unshare", "ip", "tc"))
    return tools and subprocess.run([*_UNSHARE, "true"], check=False, capture_output=True).returncode == 0


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.skipif(not _may_cut_links(), reason="only root may make a network namespace, with iproute2 and util-linux")
@pytest.mark.parametrize("server", ["postgres", "zookeeper"])
def test_a_link_that_drops_every_packet_is_noticed_in_time(server: str) -> None:
    command = [*_UNSHARE, sys.executable, "-m", "tests.journal.lost_link", server]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=500)
    assert ended.returncode == 0, ended.stderr[-3000:]
    found = json.loads(ended.stdout.splitlines()[-1])
    print(found)
    assert {name: seconds for name, seconds in found.items() if seconds >= NOTICED_S} == {}


HOSTS = "a:2181,b:2181"


def test_servers_and_chroot_are_distinguished() -> None:
    options = ZooKeeperOptions(f"{HOSTS}/kafka/one/")
    assert (options.servers, options.chroot, options.place) == (HOSTS, "/kafka/one", f"ZooKeeper at {HOSTS}/kafka/one/")
    assert ZooKeeperOptions(HOSTS).chroot == ""


@pytest.mark.parametrize("hosts", ["", "/kafka"])
def test_no_server_is_refused(hosts: str) -> None:
    with pytest.raises(SettingError, match="it takes host:port,host:port/chroot"):
        ZooKeeperOptions(hosts)


@pytest.mark.parametrize("digest", ["", "user", "user:", ":password"])
def test_a_digest_without_user_or_password_is_refused_and_not_shown(digest: str) -> None:
    with pytest.raises(SettingError, match="not of the form user:password"):
        ZooKeeperOptions(HOSTS, digest)
    options = ZooKeeperOptions(
        HOSTS, "user:s3cret", tls={"certfile": "c", "keyfile": "k", "keyfile_password": "s3cret"}
    )
    assert "s3cret" not in repr(options) + repr(ClockedZkMailbox(options))


@pytest.mark.parametrize(
    ("tls", "said"),
    [
        ({"cafile": "/ca.pem"}, "takes no setting cafile; it takes use_ssl, verify_certs"),
        ({"use_ssl": "perhaps"}, "use_ssl is 'perhaps'; it takes true or false"),
        ({"use_ssl": False, "ca": "/ca.pem"}, "hold ca and disable use_ssl"),
        ({"use_ssl": False, "verify_certs": True}, "hold verify_certs and disable use_ssl"),
        ({"check_hostname": True, "verify_certs": False}, "ask for check_hostname and disable verify_certs"),
        ({"certfile": "/c.pem"}, "certfile has no effect without keyfile"),
        ({"keyfile": "/k.pem"}, "keyfile has no effect without certfile"),
        ({"keyfile_password": "s3cret"}, "keyfile_password has no effect without keyfile"),
        ({"certfile": "x", "keyfile_password": "s3cret"}, "has no effect without keyfile"),
    ],
)
def test_what_would_have_no_effect_is_refused(tls: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said) as caught:
        ZooKeeperOptions(HOSTS, tls=tls)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("tls", [{}, {"use_ssl": False}, {"use_ssl": "false", "ca": ""}, {"ca": None}])
def test_without_tls_kazoo_gets_no_option_of_it(tls: dict[str, Any]) -> None:
    assert ZooKeeperOptions(HOSTS, tls=tls).kazoo_tls() == {}


@pytest.mark.parametrize(
    ("given", "verified", "named"),
    [
        ({"use_ssl": True}, True, True),
        ({"use_ssl": True, "verify_certs": False}, False, False),
        ({"verify_certs": True, "check_hostname": "no"}, True, False),
        ({"check_hostname": "off"}, True, False),
        ({"verify_certs": False}, False, False),
    ],
)
def test_certificates_and_names_are_verified_unless_that_is_switched_off(
    given: dict[str, Any], verified: bool, named: bool
) -> None:
    found = ZooKeeperOptions(HOSTS, tls=given).kazoo_tls()
    assert found == {"use_ssl": True, "verify_certs": verified, "check_hostname": named}


def test_a_file_that_is_not_here_is_named_when_it_is_used(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    options = ZooKeeperOptions(HOSTS, tls={"ca": str(ca)})
    with pytest.raises(SettingError, match=r"setting ca names .*, which is not a file on this machine"):
        read_one(ClockedZkMailbox(options), "/a")
    ca.touch()
    assert options.kazoo_tls() == {"ca": str(ca), "use_ssl": True, "verify_certs": True, "check_hostname": True}
