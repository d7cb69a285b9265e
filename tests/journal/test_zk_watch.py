"""What a real ZooKeeper says at once of each change, and polls that read again only what has changed."""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Timer
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE

from kafka_steward.errors import JournalUnreachable, SettingError
from kafka_steward.journal.mailbox import read_below, read_one
from kafka_steward.journal.zookeeper import mailbox as zookeeper_tree
from kafka_steward.journal.zookeeper import watched_reads
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from kafka_steward.journal.zookeeper.session import EnsurePathRequest, our_acl
from kafka_steward.journal.zookeeper.watcher import ZooKeeperWatcher
from tests.documents import change_document, create_document
from tests.eventually import eventually
from tests.journal.conftest import PATIENT_S
from tests.journal.zookeeper import ClockedZkMailbox, ZooKeeperServer, connected
from tests.present import present

#: Nodes of which each change counts, and nodes whose children count.
NODES = (
    "/admin/cancel_reassignment_in_progress",
    "/admin/reassign_cancel",
    "/admin/reassign_partitions_queue",
    "/admin/reassign_partitions",
    "/controller",
)
PARENTS = ("/admin/reassignment_requests", "/admin/rolling_bounce", "/brokers/ids")
EACH_ONCE = Counter({*NODES, *PARENTS})


class Changes:
    """Counts what the watch says, by path."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def __call__(self, path: str) -> None:
        self.counts[path] += 1

    def eventually(self, *paths: str) -> None:
        """Only these changed since the last call, or since the watch began."""
        eventually(lambda: self._are(Counter(paths)), every=0.05)
        self.counts.clear()

    def _are(self, expected: Counter[str]) -> None:
        assert self.counts == expected


@pytest.fixture
def kafka(zookeeper: ZooKeeperServer, cluster_id: str) -> Iterator[KazooClient]:
    """Kafka's part of ZooKeeper, as its brokers and anyone with a shell change it."""
    with connected(zookeeper.hosts) as client:
        client.ensure_path(f"/{cluster_id}/brokers/ids")
        client.chroot = f"/{cluster_id}"
        yield client


@pytest.fixture
def changes() -> Changes:
    return Changes()


@pytest.fixture
def watch(
    zookeeper: ZooKeeperServer, kafka: KazooClient, cluster_id: str, changes: Changes
) -> Iterator[ZooKeeperWatcher]:
    """A watch that has named each path already, as it does when it begins."""
    with ZooKeeperWatcher(ZooKeeperOptions(zookeeper.at(cluster_id)), changes) as watch:
        changes.counts.clear()
        yield watch


def test_each_path_is_named_when_the_watch_begins(
    zookeeper: ZooKeeperServer, kafka: KazooClient, changes: Changes
) -> None:
    with ZooKeeperWatcher(ZooKeeperOptions(f"{zookeeper.hosts}{kafka.chroot}"), changes):
        assert changes.counts == EACH_ONCE


@pytest.mark.parametrize("path", NODES)
def test_a_node_that_is_created_changed_or_deleted_is_named(
    watch: ZooKeeperWatcher, kafka: KazooClient, changes: Changes, path: str
) -> None:
    kafka.create(path, b"{}", makepath=True)
    changes.eventually(path)
    kafka.set(path, b'{"version": 1}')
    changes.eventually(path)
    kafka.delete(path)
    changes.eventually(path)


@pytest.mark.parametrize("path", PARENTS)
def test_a_child_that_comes_or_goes_is_named_by_its_parent(
    watch: ZooKeeperWatcher, kafka: KazooClient, changes: Changes, path: str
) -> None:
    child = kafka.create(f"{path}/request_", b"{}", sequence=True)
    changes.eventually(path)
    kafka.delete(child)
    changes.eventually(path)


def test_what_nobody_waits_for_is_not_named(watch: ZooKeeperWatcher, kafka: KazooClient, changes: Changes) -> None:
    kafka.create("/admin/failed_brokers/3", b"{}", makepath=True)
    kafka.create("/controller", b"{}")
    changes.eventually("/controller")


@pytest.mark.parametrize("path", PARENTS)
def test_a_parent_that_is_deleted_and_recreated_is_watched_again(
    watch: ZooKeeperWatcher, kafka: KazooClient, changes: Changes, path: str
) -> None:
    kafka.delete(path)
    kafka.create(path)
    eventually(lambda: named(changes, path))
    changes.counts.clear()
    kafka.create(f"{path}/7", b"{}")
    eventually(lambda: named(changes, path))


def named(changes: Changes, path: str) -> None:
    assert path in changes.counts


def test_brokers_that_come_later_are_named(zookeeper: ZooKeeperServer, kafka: KazooClient, changes: Changes) -> None:
    kafka.create("/elsewhere")
    with ZooKeeperWatcher(ZooKeeperOptions(f"{zookeeper.hosts}{kafka.chroot}/elsewhere"), changes):
        assert changes.counts == EACH_ONCE - Counter(["/brokers/ids"])
        assert kafka.exists("/elsewhere/brokers") is None  # Kafka's own path is left to Kafka
        changes.counts.clear()
        kafka.create("/elsewhere/brokers/ids/1", b"{}", makepath=True)
        eventually(lambda: named(changes, "/brokers/ids"))


def test_what_changes_during_a_lost_session_is_named_afterwards(
    watch: ZooKeeperWatcher, zookeeper: ZooKeeperServer, kafka: KazooClient, changes: Changes
) -> None:
    with connected(zookeeper.hosts, client_id=watch._client.client_id):
        pass
    kafka.create("/admin/reassign_partitions_queue", b"{}", makepath=True)
    kafka.create("/brokers/ids/1", b"{}")
    eventually(lambda: named(changes, "/admin/reassign_partitions_queue"))
    eventually(lambda: named(changes, "/brokers/ids"))


def test_a_closed_watch_says_nothing(
    watch: ZooKeeperWatcher, zookeeper: ZooKeeperServer, kafka: KazooClient, changes: Changes
) -> None:
    watch.close()
    later = Changes()
    with ZooKeeperWatcher(ZooKeeperOptions(f"{zookeeper.hosts}{kafka.chroot}"), later):
        kafka.create("/controller", b"{}")
        eventually(lambda: same(later.counts["/controller"], 2))
    assert changes.counts == Counter()


def same(found: object, expected: object) -> None:
    assert found == expected


@pytest.mark.process
def test_a_server_that_does_not_answer_is_named() -> None:
    with pytest.raises(JournalUnreachable, match=r"ZooKeeper at 127\.0\.0\.1:1 does not answer .*; retry when it"):
        ZooKeeperWatcher(ZooKeeperOptions("127.0.0.1:1", timeout_s=1), Changes())


def test_a_server_that_falls_silent_while_the_watch_begins_is_given_up(
    zookeeper: ZooKeeperServer, cluster_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ZooKeeperOptions(zookeeper.at(cluster_id), timeout_s=2)
    answered = EnsurePathRequest.get

    def then_silence(each: EnsurePathRequest, timeout: float) -> None:
        answered(each, timeout)
        if each._path == "/admin/rolling_bounce":
            zookeeper.pause()

    monkeypatch.setattr(EnsurePathRequest, "get", then_silence)
    in_vain = Timer(30, zookeeper.resume)
    in_vain.start()
    try:
        with pytest.raises(JournalUnreachable, match="does not answer"):
            ZooKeeperWatcher(options, Changes())
        assert in_vain.is_alive()
    finally:
        in_vain.cancel()
        zookeeper.resume()


def test_a_chroot_that_does_not_exist_is_named(zookeeper: ZooKeeperServer) -> None:
    with pytest.raises(SettingError, match=r"^The chroot /kafak does not exist in ZooKeeper at 127\.0\.0\.1:"):
        ZooKeeperWatcher(ZooKeeperOptions(f"{zookeeper.hosts}/kafak"), Changes())


def test_what_kafka_keeps_beside_our_nodes_is_left_open_to_it(zookeeper: ZooKeeperServer, cluster_id: str) -> None:
    options = ZooKeeperOptions(zookeeper.at(cluster_id), "steward:s3cret")
    with ZooKeeperWatcher(options, Changes()) as watch:
        lists = [set(watch._client.get_acls(path)[0]) for path in ("/admin", "/admin/rolling_bounce")]
    assert lists == [set(OPEN_ACL_UNSAFE), set(our_acl("steward:s3cret") or ())]


PATH, OTHER, EMPTY = "/admin/failed_brokers/3", "/admin/failed_brokers/4", "/admin/reassign_cancel"
MISSING, PARENT, NO_PARENT = "/admin/reassign_partitions_queue", "/admin/failed_brokers", "/admin/rolling_bounce"


@pytest.fixture
def mailbox(zookeeper: ZooKeeperServer, cluster_id: str) -> Iterator[ClockedZkMailbox]:
    opened = ClockedZkMailbox(ZooKeeperOptions(zookeeper.at(cluster_id), timeout_s=PATIENT_S))
    for path, text in ((PATH, "was"), (OTHER, "other"), (EMPTY, "")):
        create_document(opened, path, text)
    yield opened
    opened.close()


@pytest.fixture
def others(zookeeper: ZooKeeperServer, cluster_id: str) -> Iterator[KazooClient]:
    """Another client, which changes what it likes."""
    with connected(zookeeper.at(cluster_id)) as client:
        yield client


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch, cluster_id: str) -> Counter[str]:
    """The requests of this test's clients, by kind: a client of an earlier one may still give up what it waits for."""
    counts, call = Counter[str](), KazooClient._call

    def counted(self: KazooClient, request: Any, result: Any) -> Any:
        if self.chroot == f"/{cluster_id}":
            counts[type(request).__name__] += 1
        return call(self, request, result)

    monkeypatch.setattr(KazooClient, "_call", counted)
    return counts


def answers(mailbox: ClockedZkMailbox) -> list[Any]:
    return [
        *(read_one(mailbox, path) for path in (PATH, OTHER, EMPTY, MISSING)),
        mailbox.read([PATH, MISSING, EMPTY, f"{NO_PARENT}/9"]),
        *(mailbox.children(path) for path in (PARENT, NO_PARENT, EMPTY)),
        read_below(mailbox, PARENT),
    ]


def test_in_one_read_every_answer_is_what_it_is_without(mailbox: ClockedZkMailbox) -> None:
    expected = answers(mailbox)
    for _ in range(3):
        with mailbox.one_read():
            assert answers(mailbox) == expected
    assert answers(mailbox) == expected


def test_a_poll_that_finds_nothing_new_makes_one_request(mailbox: ClockedZkMailbox, sent: Counter[str]) -> None:
    with mailbox.one_read():
        answers(mailbox)
    sent.clear()
    for _ in range(5):
        with mailbox.one_read():
            answers(mailbox)
            with mailbox.one_read():
                answers(mailbox)
    assert sent == {"Sync": 5}


def test_without_one_read_everything_is_read(mailbox: ClockedZkMailbox, sent: Counter[str]) -> None:
    with mailbox.one_read():
        answers(mailbox)
    sent.clear()
    answers(mailbox)
    assert sent.total() == 14


def test_what_others_changed_before_a_poll_is_seen_in_it(mailbox: ClockedZkMailbox, others: KazooClient) -> None:
    """Without a pause between the two: an event that is on its way must not be missed."""
    for number in range(300):
        text = f"text {number}".encode()
        others.set(PATH, text)
        with mailbox.one_read():
            assert mailbox.read([PATH])[0] == read_one(mailbox, PATH)
            node = read_one(mailbox, PATH)
        assert node is not None
        assert node.data == text.decode()


def test_what_comes_and_goes_is_seen(mailbox: ClockedZkMailbox, others: KazooClient) -> None:
    for number in range(30):
        for path in (MISSING, f"{NO_PARENT}/{number}", f"{EMPTY}/below", f"{PARENT}/{number + 10}"):
            others.create(path, b"new", makepath=True)
            with mailbox.one_read():
                seen = answers(mailbox), read_one(mailbox, path)
            assert seen == (answers(mailbox), read_one(mailbox, path))
            others.delete(path)
            with mailbox.one_read():
                seen = answers(mailbox), read_one(mailbox, path)
            assert seen == (answers(mailbox), None)


def test_a_change_of_ones_own_is_seen_at_once_and_ends_the_kept_answers(
    mailbox: ClockedZkMailbox, others: KazooClient, sent: Counter[str]
) -> None:
    for number in range(100):
        with mailbox.one_read():
            change_document(mailbox, PATH, f"{number}")
            assert present(read_one(mailbox, PATH)).data == f"{number}"
            others.set(OTHER, f"{number}".encode())
            sent.clear()
            assert (present(read_one(mailbox, OTHER)).data, sent.total()) == (f"{number}", 1)


def test_a_change_asks_again(mailbox: ClockedZkMailbox, sent: Counter[str]) -> None:
    with mailbox.one_read():
        read_one(mailbox, PATH)
        mailbox.put({})
        sent.clear()
        read_one(mailbox, PATH)
    assert sent == {"GetData": 1}


def test_kept_answers_are_of_one_thread_and_of_some_seconds(
    mailbox: ClockedZkMailbox, sent: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with mailbox.one_read(), ThreadPoolExecutor(1) as other:
        read_one(mailbox, PATH)
        sent.clear()
        other.submit(read_one, mailbox, PATH).result()
        assert sent == {"GetData": 1}
        monkeypatch.setattr(zookeeper_tree, "LIFETIME_S", 0.0)
        read_one(mailbox, PATH)
        assert sent == {"GetData": 2}


def test_nothing_is_kept_beyond_the_connection(
    mailbox: ClockedZkMailbox, zookeeper: ZooKeeperServer, cluster_id: str
) -> None:
    with mailbox.one_read():
        before = answers(mailbox)
    zookeeper.restart()
    with connected(zookeeper.at(cluster_id)) as client:
        client.set(PATH, b"meanwhile")

    def see_it() -> None:
        with mailbox.one_read():
            found = answers(mailbox)
        assert found[0] is not None
        assert (found[0].data, found[1:4]) == ("meanwhile", before[1:4])

    eventually(see_it, within=PATIENT_S, errors=(JournalUnreachable,))


@pytest.mark.parametrize("limit", ["_MOST", "_MOST_BYTES"])
def test_beyond_the_limits_nothing_is_kept_and_everything_is_read(
    mailbox: ClockedZkMailbox, sent: Counter[str], monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(watched_reads, limit, 0)
    with mailbox.one_read():
        read_one(mailbox, PATH)
        sent.clear()
        assert read_one(mailbox, PATH) == read_one(mailbox, PATH)
    assert sent == {"GetData": 2}


def _see(mailbox: ClockedZkMailbox, expected: str) -> None:
    """A poll that ZooKeeper answers sees what was changed before it."""

    def see_it() -> None:
        with mailbox.one_read():
            node, gone = read_one(mailbox, PATH), read_one(mailbox, MISSING)
        assert node is not None
        assert (node.data, gone is None) == (expected, expected == "was")

    deadline = time.monotonic() + PATIENT_S
    while True:
        try:
            see_it()
        except JournalUnreachable:
            assert time.monotonic() < deadline
            continue
        return


def test_nothing_is_kept_beyond_a_session_that_expired(
    mailbox: ClockedZkMailbox, zookeeper: ZooKeeperServer, others: KazooClient
) -> None:
    """Who resumes a session by its id, and closes it, ends it: ZooKeeper then says that it has expired."""
    _see(mailbox, "was")
    client = mailbox._session._connected_client()
    session = client.client_id
    with connected(zookeeper.hosts, client_id=session):
        pass
    others.set(PATH, b"after the session")
    others.create(MISSING, b"new")
    _see(mailbox, "after the session")
    assert mailbox._session._connected_client().client_id[0] != session[0]


def test_a_watch_that_is_lost_with_the_connection_of_a_session_that_goes_on_is_not_missed(
    mailbox: ClockedZkMailbox, others: KazooClient
) -> None:
    _see(mailbox, "was")
    others.create(MISSING, b"new")
    for number in range(5):
        client = mailbox._session._connected_client()
        session = client.client_id
        client._connection._socket.shutdown(socket.SHUT_RDWR)
        others.set(PATH, f"{number}".encode())
        _see(mailbox, f"{number}")
        if mailbox._session._connected_client() is client:
            assert client.client_id[0] == session[0]


def test_nothing_is_kept_for_longer_than_a_minute(
    mailbox: ClockedZkMailbox, sent: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event of a node that its ACL has come to hide is not sent: a bound holds beside the watches."""
    with mailbox.one_read():
        expected = answers(mailbox)
    monkeypatch.setattr(watched_reads, "KEPT_S", 0.0)
    sent.clear()
    with mailbox.one_read():
        assert answers(mailbox) == expected
    assert sent.total() > 14


def test_reading_again_adds_no_watch_to_those_that_have_not_fired(
    mailbox: ClockedZkMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch of a month reads everything again each minute: neither we nor the client may collect watches."""
    monkeypatch.setattr(watched_reads, "KEPT_S", 0.0)

    def count() -> tuple[int, int]:
        client = mailbox._session._connected_client()
        lists = [*client._data_watchers.values(), *client._child_watchers.values()]
        return sum(map(len, lists)), len(mailbox._watched._watches)

    counts = []
    for _ in range(5):
        with mailbox.one_read():
            answers(mailbox)
        counts.append(count())
    assert set(counts) == {counts[0]}
