"""What only ZooKeeper has: sessions, credentials, a chroot, a cluster of its own, and a server that goes away."""

from __future__ import annotations

import socket
import threading
import time
from binascii import hexlify
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import ACL, OPEN_ACL_UNSAFE, make_acl, make_digest_acl

from kafka_steward.errors import JournalError, JournalUnreachable, SettingError, WrongCluster
from kafka_steward.journal import paths
from kafka_steward.journal.listing import QUARANTINE
from kafka_steward.journal.mailbox import read_one, read_subtree
from kafka_steward.journal.state import Rows
from kafka_steward.journal.store import open_journal
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from kafka_steward.journal.zookeeper.session import CloseNodesRequest, ZkSession, our_acl
from tests.documents import change_document, create_document, delete_document
from tests.eventually import eventually
from tests.journal.certificate import Certificate
from tests.journal.conftest import PATIENT_S
from tests.journal.zookeeper import ClockedZkMailbox, ZooKeeperServer, connected
from tests.present import present

pytestmark = pytest.mark.process

#: Seconds: what is promised, and what costs nothing.
NOTICED_S = 30
PAUSE_S = 4


@pytest.fixture
def raw(zookeeper: ZooKeeperServer) -> Iterator[KazooClient]:
    """ZooKeeper as anyone else sees it."""
    with connected(zookeeper.hosts) as client:
        yield client


@pytest.fixture
def mailbox(zookeeper: ZooKeeperServer, cluster_id: str) -> Iterator[ClockedZkMailbox]:
    opened = ClockedZkMailbox(ZooKeeperOptions(zookeeper.at(cluster_id), timeout_s=PATIENT_S))
    yield opened
    opened.close()


def test_nodes_are_znodes_under_the_chroot(mailbox: ClockedZkMailbox, raw: KazooClient, cluster_id: str) -> None:
    created = create_document(mailbox, "/admin/failed_brokers/3", '{"failure_timestamp": 1}')
    data, stat = raw.get(f"/{cluster_id}/admin/failed_brokers/3")
    assert data == b'{"failure_timestamp": 1}'
    assert (created.created_id, created.modified_id) == (stat.czxid, stat.mzxid)
    assert (created.created_ms, created.modified_ms, created.version) == (stat.ctime, stat.mtime, stat.version)


def test_what_others_write_is_read(mailbox: ClockedZkMailbox, raw: KazooClient, cluster_id: str) -> None:
    raw.create(f"/{cluster_id}/admin/reassign_cancel", makepath=True)
    raw.create(f"/{cluster_id}/admin/failed_brokers/7", b"\xff\xfe", makepath=True)
    empty, garbage = read_one(mailbox, "/admin/reassign_cancel"), read_one(mailbox, "/admin/failed_brokers/7")
    assert empty is not None
    assert empty.data == ""
    assert garbage is not None
    assert garbage.data == "\ufffd\ufffd"


def test_a_parent_is_no_document(mailbox: ClockedZkMailbox) -> None:
    create_document(mailbox, "/a/b/c", "x")
    assert read_one(mailbox, "/a/b") is None


def test_deep_parents_go_with_their_last_child(mailbox: ClockedZkMailbox) -> None:
    create_document(mailbox, "/admin/reassignments/t/0", "x")
    create_document(mailbox, "/admin/reassignments/t/1", "x")
    delete_document(mailbox, "/admin/reassignments/t/0")
    assert mailbox.children("/admin/reassignments") == ["t"]
    delete_document(mailbox, "/admin/reassignments/t/1")
    assert mailbox.children("/admin/reassignments") == []
    assert mailbox.children("/admin") == ["reassignments"]


def test_what_others_put_below_a_node_keeps_nobody_from_deleting_it_and_is_kept(mailbox: ClockedZkMailbox) -> None:
    create_document(mailbox, "/a/b", "x")
    create_document(mailbox, "/a/b/c", "theirs")
    delete_document(mailbox, "/a/b")
    assert read_one(mailbox, "/a/b") is None
    (kept,) = Rows(mailbox.state, QUARANTINE).all()
    assert kept.value.text == "theirs"


def test_what_was_below_a_document_is_kept_in_the_database(
    zookeeper: ZooKeeperServer, raw: KazooClient, sqlite_url: str, cluster_id: str
) -> None:
    options = ZooKeeperOptions(zookeeper.at(cluster_id), timeout_s=PATIENT_S)
    path = "/admin/failed_brokers/3"
    with open_journal(sqlite_url, cluster_id, zookeeper=options) as journal:
        create_document(journal.mailbox, path, "x")
        raw.create(f"/{cluster_id}{path}/stray", b"theirs")
        delete_document(journal.mailbox, path)
        (kept,) = journal.rows(QUARANTINE).all()
        assert kept.value.text == "theirs"
    assert raw.get_children(f"/{cluster_id}/steward") == ["journal"]


def test_a_lost_session_costs_nothing(mailbox: ClockedZkMailbox, zookeeper: ZooKeeperServer) -> None:
    create_document(mailbox, "/a/b", "kept")
    client = mailbox._session._client
    first_session = client.client_id[0]
    with connected(zookeeper.hosts, client_id=client.client_id):
        pass
    assert present(read_one(mailbox, "/a/b")).data == "kept"
    assert mailbox._session._client.client_id[0] != first_session


@contextmanager
def connections(*, closed: bool) -> Iterator[tuple[str, list[socket.socket]]]:
    """Yield an address and the connections to it, of which each is closed at once, or never answered."""
    made: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    made.append(listener.accept()[0])
                except OSError:
                    return
                if closed:
                    made[-1].close()

        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}", made
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join(timeout=30)
            for each in made:
                each.close()


def test_a_connection_that_is_never_answered_leaves_time_for_another_one() -> None:
    with connections(closed=False) as (address, made), pytest.raises(JournalUnreachable):
        read_one(ClockedZkMailbox(ZooKeeperOptions(address, timeout_s=4)), "/a")
    assert len(made) == 2


@pytest.mark.ci
def test_a_server_that_is_away_is_asked_each_second_or_so() -> None:
    with connections(closed=True) as (address, made), pytest.raises(JournalUnreachable):
        read_one(ClockedZkMailbox(ZooKeeperOptions(address, timeout_s=10)), "/a")
    # kazoo's own wait, doubled each time, makes 8 at the most of these 10 s.
    assert len(made) > 8


@pytest.mark.ci
def test_a_pause_of_the_server_fails_no_change(cluster_id: str) -> None:
    """With defaults. Pauses that a busy machine makes longer do not count."""
    with ZooKeeperServer() as server, ThreadPoolExecutor() as pool:
        ours = ClockedZkMailbox(ZooKeeperOptions(server.at(cluster_id)))
        others = ClockedZkMailbox(ZooKeeperOptions(server.at(cluster_id), timeout_s=PATIENT_S))
        for mailbox in (ours, others):
            mailbox.children("/")

        def resume() -> float:
            time.sleep(PAUSE_S)
            server.resume()
            others.children("/")
            return time.monotonic() - began_s

        for _ in range(5):
            began_s = time.monotonic()
            server.pause()
            resuming = pool.submit(resume)
            try:
                ours.put({f"/many/{number}": "x" for number in range(300)})
            except JournalUnreachable:
                if resuming.result() < PAUSE_S + 1:
                    raise
            else:
                assert time.monotonic() - began_s > PAUSE_S
                break
        else:
            pytest.fail("The machine made each pause longer by a second.")
        assert len(ours.children("/many")) == 300
        ours.close()
        others.close()


def test_a_server_that_hangs_is_named_in_words_and_nothing_is_made_later(
    zookeeper: ZooKeeperServer, cluster_id: str
) -> None:
    patient = ClockedZkMailbox(ZooKeeperOptions(zookeeper.at(cluster_id)))
    hasty = ClockedZkMailbox(ZooKeeperOptions(zookeeper.at(cluster_id), timeout_s=2))
    create_document(patient, "/a/b", "x")
    zookeeper.stop()
    silence = r"ZooKeeper at 127.0.0.1:\d+/\S+ does not answer \(.*\); retry when it does"
    with pytest.raises(JournalUnreachable, match=silence):
        create_document(hasty, "/a/late", "x")
    with pytest.raises(JournalUnreachable):
        read_one(hasty, "/a/b")
    zookeeper.start()
    eventually(lambda: read_one(hasty, "/a/b"), within=60, errors=(JournalUnreachable,))
    assert eventually(lambda: patient.children("/a"), within=60, errors=(JournalUnreachable,)) == ["b"]
    patient.close()
    hasty.close()


@pytest.mark.ci
def test_a_server_that_falls_silent_is_noticed_in_time(sqlite_url: str, cluster_id: str) -> None:
    """It accepts connections and never answers; defaults, and a server of its own: sessions of others would expire."""
    with ZooKeeperServer() as silent:
        options = ZooKeeperOptions(silent.at(cluster_id))
        with open_journal(sqlite_url, cluster_id, zookeeper=options) as journal:
            create_document(journal.mailbox, "/a/b", "x")
            silent.pause()
            assert seconds_until_noticed(lambda: create_document(journal.mailbox, "/a/c", "x")) < NOTICED_S
            assert seconds_until_noticed(lambda: read_one(ClockedZkMailbox(options), "/a/b")) < NOTICED_S
            with journal.step_lock("one") as fence:
                fence.check()  # the lock is in the database
            silent.resume()
            # ZooKeeper may find the request in its socket when it is resumed: no answer does not say "not done".
            answered = eventually(lambda: journal.mailbox.children("/a"), errors=(JournalUnreachable,))
            assert answered in (["b"], ["b", "c"])


def seconds_until_noticed(call: Callable[[], object]) -> float:
    began_s = time.monotonic()
    with pytest.raises(JournalUnreachable, match=r"^ZooKeeper at \S+ does not answer \(.+\); retry when it does"):
        call()
    return time.monotonic() - began_s


def test_nobody_is_there() -> None:
    nobody = ClockedZkMailbox(ZooKeeperOptions("127.0.0.1:1", timeout_s=1))
    with pytest.raises(JournalUnreachable, match=r"ZooKeeper at 127\.0\.0\.1:1 does not answer"):
        read_one(nobody, "/a")
    nobody.close()


def test_with_credentials_everyone_reads_and_we_write(zookeeper: ZooKeeperServer, cluster_id: str) -> None:
    hosts = zookeeper.at(cluster_id)
    ours = ClockedZkMailbox(ZooKeeperOptions(hosts, digest="steward:s3cret"))
    theirs = ClockedZkMailbox(ZooKeeperOptions(hosts, digest="mallory:guess"))
    create_document(ours, "/steward/slot", "x")
    assert present(read_one(theirs, "/steward/slot")).data == "x"
    for change in (
        lambda: change_document(theirs, "/steward/slot", "y"),
        lambda: create_document(theirs, "/steward/other", "y"),
        lambda: delete_document(theirs, "/steward/slot"),
    ):
        with pytest.raises(
            JournalError, match=r"does not let us change /steward/.*; correct the credentials"
        ) as refused:
            change()
        assert "guess" not in str(refused.value)
    assert change_document(ours, "/steward/slot", "z").version == 1
    ours.close()
    theirs.close()


def test_over_tls(tmp_path: Path, cluster_id: str) -> None:
    certificate = Certificate(tmp_path)
    trusting = {"ca": str(certificate.certificate)}
    with ZooKeeperServer(certificate) as server:
        server.at(cluster_id)
        mailbox = ClockedZkMailbox(ZooKeeperOptions(f"{server.secure_hosts}/{cluster_id}", tls=trusting, timeout_s=60))
        create_document(mailbox, "/a/b", "x")
        assert mailbox.children("/a") == ["b"]
        mailbox.close()
        distrusting = ClockedZkMailbox(ZooKeeperOptions(server.secure_hosts, tls={"use_ssl": True}, timeout_s=3))
        with pytest.raises(JournalUnreachable, match="does not answer"):
            read_one(distrusting, "/a/b")
        distrusting.close()
        # The certificate is for 127.0.0.1: it would pass under any name if names were not checked.
        elsewhere = server.secure_hosts.replace("127.0.0.1", "localhost")
        for checked in (True, False):
            other = ClockedZkMailbox(
                ZooKeeperOptions(elsewhere, tls={**trusting, "check_hostname": checked}, timeout_s=3)
            )
            with pytest.raises(JournalUnreachable) if checked else nullcontext():
                assert other.children(f"/{cluster_id}/a") == ["b"]
            other.close()


@pytest.mark.parametrize("chroot", ["kafak", "kafka/deeper", "kafka,zk2:2181", "//"])
def test_a_chroot_that_does_not_exist_is_refused_and_not_created(
    zookeeper: ZooKeeperServer, raw: KazooClient, chroot: str, sqlite_url: str
) -> None:
    before = raw.get_children("/")
    if chroot == "//":
        chroot = "/x//"
    with pytest.raises(SettingError, match=r"chroot .*(does not exist in ZooKeeper at|is not a path)"):
        open_journal(sqlite_url, "c1", zookeeper=ZooKeeperOptions(f"{zookeeper.hosts}/{chroot}"))
    assert raw.get_children("/") == before


def test_a_zookeeper_without_the_kafka_that_should_be_there_is_refused(
    zookeeper: ZooKeeperServer, cluster_id: str, sqlite_url: str
) -> None:
    options = ZooKeeperOptions(zookeeper.at(cluster_id), kafkas=True)
    with pytest.raises(
        WrongCluster, match=f"has no Kafka cluster, and {cluster_id} is a cluster with ZooKeeper; correct the"
    ):
        open_journal(sqlite_url, cluster_id, zookeeper=options)


def test_credentials_are_not_logged_even_at_debug(
    zookeeper: ZooKeeperServer, cluster_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(1, "kazoo")
    mailbox = ClockedZkMailbox(ZooKeeperOptions(zookeeper.at(cluster_id), digest="steward:s3cret"))
    caplog.clear()
    create_document(mailbox, "/a/b", "x")
    session_password = hexlify(mailbox._session._client._session_passwd).decode()
    mailbox.close()
    assert "Sending request" in caplog.text  # what else kazoo says at DEBUG is still there
    assert "s3cret" not in caplog.text
    assert session_password not in caplog.text


#: As everyone may change it, and as only Kafka may.
KAFKAS_OWN = [make_acl("ip", "127.0.0.1", all=True), make_acl("world", "anyone", read=True, create=True)]


@pytest.mark.parametrize("kafkas", [OPEN_ACL_UNSAFE, KAFKAS_OWN], ids=["open", "secured"])
def test_kafka_can_change_what_is_created_for_it(
    zookeeper: ZooKeeperServer, raw: KazooClient, cluster_id: str, kafkas: list[ACL]
) -> None:
    mailbox = ClockedZkMailbox(ZooKeeperOptions(zookeeper.at(cluster_id), digest="steward:s3cret"))
    raw.create(f"/{cluster_id}/admin", acl=kafkas)
    create_document(mailbox, paths.REASSIGN_PARTITIONS, "x")
    create_document(mailbox, "/admin/failed_brokers/3", "x")
    assert set(raw.get_acls(f"/{cluster_id}{paths.REASSIGN_PARTITIONS}")[0]) == set(kafkas)
    raw.set(f"/{cluster_id}{paths.REASSIGN_PARTITIONS}", b"shorter")
    raw.delete(f"/{cluster_id}{paths.REASSIGN_PARTITIONS}")
    with pytest.raises(NoAuthError):
        raw.set(f"/{cluster_id}/admin/failed_brokers/3", b"forged")
    mailbox.close()


def test_nothing_is_created_for_a_kafka_whose_list_is_hidden(
    zookeeper: ZooKeeperServer, raw: KazooClient, cluster_id: str
) -> None:
    mailbox = ClockedZkMailbox(ZooKeeperOptions(zookeeper.at(cluster_id), digest="steward:s3cret"))
    hidden = [make_digest_acl("kafka", "kafkas", all=True), make_acl("world", "anyone", read=True, create=True)]
    raw.create(f"/{cluster_id}/admin", acl=hidden)
    with pytest.raises(
        JournalError, match="/admin/reassign_partitions cannot be created so that Kafka could change it"
    ):
        create_document(mailbox, paths.REASSIGN_PARTITIONS, "x")
    assert raw.get_children(f"/{cluster_id}/admin") == []
    mailbox.close()


def test_nodes_from_before_the_credentials_are_closed(
    zookeeper: ZooKeeperServer, raw: KazooClient, cluster_id: str, sqlite_url: str
) -> None:
    hosts = zookeeper.at(cluster_id)
    before = ClockedZkMailbox(ZooKeeperOptions(hosts))
    ours = ["/steward/x/d1", "/admin/reassign_chunks/d1", "/admin/reassign_cancel", "/admin/reassignments/t/0"]
    for path in (*ours, paths.REASSIGN_PARTITIONS, "/brokers/ids/1"):
        create_document(before, path, "x")
    theirs = [make_digest_acl("else", "where", all=True)]
    raw.create(f"/{cluster_id}/admin/reassign_chunks/theirs", acl=theirs)
    before.close()
    raw.set(f"/{cluster_id}/admin/reassign_chunks/d1", b"forged")
    options = ZooKeeperOptions(hosts, digest="steward:s3cret")
    with open_journal(sqlite_url, cluster_id, zookeeper=options) as journal:
        for path in ours:
            with pytest.raises(NoAuthError):
                raw.set(f"/{cluster_id}{path}", b"forged")
        for parent in ("/steward", "/steward/x", "/admin/reassignments"):
            with pytest.raises(NoAuthError):
                raw.create(f"/{cluster_id}{parent}/new")
        change_document(journal.mailbox, "/admin/reassign_chunks/d1", "y")
    for path in (paths.REASSIGN_PARTITIONS, "/brokers/ids/1", "/admin"):
        assert raw.get_acls(f"/{cluster_id}{path}")[0] == OPEN_ACL_UNSAFE
    raw.add_auth("digest", "else:where")
    assert raw.get_acls(f"/{cluster_id}/admin/reassign_chunks/theirs")[0] == theirs


def test_nodes_are_closed_once_in_a_process_and_the_rest_by_the_next(
    zookeeper: ZooKeeperServer, raw: KazooClient, cluster_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = zookeeper.at(cluster_id)
    raw.chroot = f"/{cluster_id}"
    for number in range(9):
        raw.create(f"/steward/plans/d{number}", makepath=True)
    acl = present(our_acl("steward:s3cret"))
    lefts = [
        CloseNodesRequest(raw, acl, most=4).get(60),
        CloseNodesRequest(raw, acl, most=4).get(60),
        CloseNodesRequest(raw, acl).get(60),
    ]
    assert lefts == [7, 3, 0]
    raw.add_auth("digest", "steward:s3cret")  # to whom ZooKeeper shows the whole list
    assert all(set(raw.get_acls(path)[0]) == set(acl) for path in ("/steward", "/steward/plans", "/steward/plans/d8"))
    asked: list[object] = []

    def counted(client: KazooClient, given: list[ACL]) -> CloseNodesRequest:
        asked.append(client)
        return CloseNodesRequest(client, given)

    mailbox = ClockedZkMailbox(ZooKeeperOptions(hosts, digest="steward:s3cret"))
    monkeypatch.setattr("kafka_steward.journal.zookeeper.mailbox.CloseNodesRequest", counted)
    mailbox.revoke_open_access()
    mailbox.revoke_open_access()
    assert len(asked) == 1
    mailbox.close()


def test_nodes_that_cannot_be_closed_are_reported(
    zookeeper: ZooKeeperServer, raw: KazooClient, cluster_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    hosts = zookeeper.at(cluster_id)
    raw.create(f"/{cluster_id}/steward", acl=[make_acl("world", "anyone", read=True, create=True)])
    mailbox = ClockedZkMailbox(ZooKeeperOptions(hosts, digest="steward:s3cret"))
    mailbox.revoke_open_access()
    assert f"1 nodes of the journal in ZooKeeper at {hosts} stay open to everyone" in caplog.text
    mailbox.close()


def test_another_clusters_zookeeper_is_refused(
    zookeeper: ZooKeeperServer, raw: KazooClient, cluster_id: str, sqlite_url: str
) -> None:
    options = ZooKeeperOptions(zookeeper.at(cluster_id))
    raw.create(f"/{cluster_id}/cluster/id", b'{"version":"1","id":"theirs"}', makepath=True)
    with pytest.raises(WrongCluster, match=f"belongs to cluster theirs, and this is {cluster_id}; correct the setting"):
        open_journal(sqlite_url, cluster_id, zookeeper=options)
    with open_journal(sqlite_url, "theirs", zookeeper=options) as journal:
        assert journal.slot.holders() == ()


def test_parents_are_created_and_deleted_together(mailbox: ClockedZkMailbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each topic's throttle lease has a parent of its own."""
    asked: list[Any] = []
    call = ZkSession.call

    def counted(session: ZkSession, *given: Any, **named: Any) -> Any:
        asked.append(given)
        return call(session, *given, **named)

    monkeypatch.setattr(ZkSession, "call", counted)

    def round_trips(topics: int) -> tuple[int, int]:
        asked.clear()
        mailbox.put({f"/many/leases/topic/{number}/list": "x" for number in range(topics)})
        created = len(asked)
        nodes = read_subtree(mailbox, "/many/leases", 1_000)
        asked.clear()
        mailbox.delete(nodes)
        assert mailbox.children("/many/leases") == []
        return created, len(asked)

    assert round_trips(3) == round_trips(300)


def test_documents_of_a_new_parent_are_not_all_sent_before_it_exists(
    mailbox: ClockedZkMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    create = KazooClient.create_async

    def counted(client: KazooClient, path: str, *args: Any, **named: Any) -> Any:
        sent.append(path)
        return create(client, path, *args, **named)

    monkeypatch.setattr(KazooClient, "create_async", counted)
    mailbox.put({f"/many/a/{number}": "x" for number in range(100)})
    assert len(mailbox.children("/many/a")) == 100
    assert len(sent) <= 100 + 5, "the one that showed that the parent is missing, and the parents"
