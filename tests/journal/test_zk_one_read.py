"""Polls of a real ZooKeeper read again only what has changed, and see every change that came before them."""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kazoo.client import KazooClient

from kafka_steward.errors import JournalUnreachable
from kafka_steward.journal.zookeeper import tree as zookeeper_tree
from kafka_steward.journal.zookeeper import watched_reads
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from kafka_steward.journal.zookeeper.tree import ZkTree
from tests.eventually import eventually
from tests.journal.conftest import PATIENT_S
from tests.journal.zookeeper import ZooKeeperServer

PATH, OTHER, EMPTY = "/admin/failed_brokers/3", "/admin/failed_brokers/4", "/admin/reassign_cancel"
MISSING, PARENT, NO_PARENT = "/admin/reassign_partitions_queue", "/admin/failed_brokers", "/admin/rolling_bounce"


@pytest.fixture
def tree(zookeeper: ZooKeeperServer, cluster_id: str) -> Iterator[ZkTree]:
    opened = ZkTree(ZooKeeperOptions(zookeeper.at(cluster_id), timeout_s=PATIENT_S))
    for path, text in ((PATH, "was"), (OTHER, "other"), (EMPTY, "")):
        opened.create(path, text)
    yield opened
    opened.close()


@pytest.fixture
def others(zookeeper: ZooKeeperServer, cluster_id: str) -> Iterator[KazooClient]:
    """Another client, which changes what it likes."""
    client = KazooClient(hosts=zookeeper.at(cluster_id))
    client.start(timeout=PATIENT_S)
    yield client
    client.stop()
    client.close()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The requests of all clients of this process, by kind."""
    counts, call = Counter[str](), KazooClient._call

    def counted(self: KazooClient, request: Any, result: Any) -> Any:
        counts[type(request).__name__] += 1
        return call(self, request, result)

    monkeypatch.setattr(KazooClient, "_call", counted)
    return counts


def answers(tree: ZkTree) -> list[Any]:
    return [
        *(tree.get(path) for path in (PATH, OTHER, EMPTY, MISSING)),
        tree.read([PATH, MISSING, EMPTY, f"{NO_PARENT}/9"]),
        *(tree.children(path) for path in (PARENT, NO_PARENT, EMPTY)),
        tree.below(PARENT),
    ]


def test_in_one_read_every_answer_is_what_it_is_without(tree: ZkTree) -> None:
    expected = answers(tree)
    for _ in range(3):
        with tree.one_read():
            assert answers(tree) == expected
    assert answers(tree) == expected


def test_a_poll_that_finds_nothing_new_makes_one_request(tree: ZkTree, sent: Counter[str]) -> None:
    with tree.one_read():
        answers(tree)
    sent.clear()
    for _ in range(5):
        with tree.one_read():
            answers(tree)
            with tree.one_read():
                answers(tree)
            assert abs(tree.now_ms() - tree.now_ms()) < 1000
    assert sent == {"SetData": 5}


def test_without_one_read_everything_is_read(tree: ZkTree, sent: Counter[str]) -> None:
    with tree.one_read():
        answers(tree)
    sent.clear()
    answers(tree)
    assert sent.total() == 14


def test_what_others_changed_before_a_poll_is_seen_in_it(tree: ZkTree, others: KazooClient) -> None:
    """Without a pause between the two: an event that is on its way must not be missed."""
    for number in range(300):
        text = f"text {number}".encode()
        others.set(PATH, text)
        with tree.one_read():
            assert tree.read([PATH])[0] == tree.get(PATH)
            node = tree.get(PATH)
        assert node is not None
        assert node.data == text.decode()


def test_what_comes_and_goes_is_seen(tree: ZkTree, others: KazooClient) -> None:
    for number in range(30):
        for path in (MISSING, f"{NO_PARENT}/{number}", f"{EMPTY}/below", f"{PARENT}/{number + 10}"):
            others.create(path, b"new", makepath=True)
            with tree.one_read():
                seen = answers(tree), tree.get(path)
            assert seen == (answers(tree), tree.get(path))
            others.delete(path)
            with tree.one_read():
                seen = answers(tree), tree.get(path)
            assert seen == (answers(tree), None)


def test_a_change_of_ones_own_is_seen_at_once_and_ends_the_kept_answers(
    tree: ZkTree, others: KazooClient, sent: Counter[str]
) -> None:
    for number in range(100):
        with tree.one_read():
            before = tree.get(PATH)
            assert before is not None
            tree.set(PATH, f"{number}", version=before.version)
            after = tree.get(PATH)
            assert after is not None
            assert after.data == f"{number}"
            others.set(OTHER, f"{number}".encode())
            sent.clear()
            beside = tree.get(OTHER)
            assert beside is not None
            assert (beside.data, sent.total()) == (f"{number}", 1)


def test_end_read_asks_again(tree: ZkTree, sent: Counter[str]) -> None:
    with tree.one_read():
        tree.get(PATH)
        tree.end_read()
        sent.clear()
        tree.get(PATH)
    assert sent == {"GetData": 1}


def test_kept_answers_are_of_one_thread_and_of_some_seconds(
    tree: ZkTree, sent: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with tree.one_read(), ThreadPoolExecutor(1) as other:
        tree.get(PATH)
        sent.clear()
        other.submit(tree.get, PATH).result()
        assert sent == {"GetData": 1}
        monkeypatch.setattr(zookeeper_tree, "LIFETIME_S", 0.0)
        tree.get(PATH)
        assert sent == {"GetData": 2}


def test_nothing_is_kept_beyond_the_connection(tree: ZkTree, zookeeper: ZooKeeperServer, cluster_id: str) -> None:
    with tree.one_read():
        before = answers(tree)
    zookeeper.restart()
    client = KazooClient(hosts=zookeeper.at(cluster_id))
    client.start(timeout=PATIENT_S)
    client.set(PATH, b"meanwhile")
    client.stop()
    client.close()

    def see_it() -> None:
        with tree.one_read():
            found = answers(tree)
        assert found[0] is not None
        assert (found[0].data, found[1:4]) == ("meanwhile", before[1:4])

    eventually(see_it, within=PATIENT_S, errors=(JournalUnreachable,))


@pytest.mark.parametrize("limit", ["_MOST", "_MOST_BYTES"])
def test_beyond_the_limits_nothing_is_kept_and_everything_is_read(
    tree: ZkTree, sent: Counter[str], monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(watched_reads, limit, 0)
    with tree.one_read():
        tree.get(PATH)
        sent.clear()
        assert tree.get(PATH) == tree.get(PATH)
    assert sent == {"GetData": 2}


def _see(tree: ZkTree, expected: str) -> None:
    """A poll that ZooKeeper answers sees what was changed before it."""

    def see_it() -> None:
        with tree.one_read():
            node, gone = tree.get(PATH), tree.get(MISSING)
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
    tree: ZkTree, zookeeper: ZooKeeperServer, others: KazooClient
) -> None:
    """Who resumes a session by its id, and closes it, ends it: ZooKeeper then says that it has expired."""
    _see(tree, "was")
    client = tree._session._connected_client()
    session = client.client_id
    twin = KazooClient(hosts=zookeeper.hosts, client_id=session)
    twin.start(timeout=PATIENT_S)
    twin.stop()
    twin.close()
    others.set(PATH, b"after the session")
    others.create(MISSING, b"new")
    _see(tree, "after the session")
    assert tree._session._connected_client().client_id[0] != session[0]


def test_a_watch_that_is_lost_with_the_connection_of_a_session_that_goes_on_is_not_missed(
    tree: ZkTree, others: KazooClient
) -> None:
    _see(tree, "was")
    others.create(MISSING, b"new")
    for number in range(5):
        client = tree._session._connected_client()
        session = client.client_id
        client._connection._socket.shutdown(socket.SHUT_RDWR)
        others.set(PATH, f"{number}".encode())
        _see(tree, f"{number}")
        if tree._session._connected_client() is client:
            assert client.client_id[0] == session[0]


def test_nothing_is_kept_for_longer_than_a_minute(
    tree: ZkTree, sent: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event of a node that its ACL has come to hide is not sent: a bound holds beside the watches."""
    with tree.one_read():
        expected = answers(tree)
    monkeypatch.setattr(watched_reads, "KEPT_S", 0.0)
    sent.clear()
    with tree.one_read():
        assert answers(tree) == expected
    assert sent.total() > 14


def test_reading_again_adds_no_watch_to_those_that_have_not_fired(
    tree: ZkTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch of a month reads everything again each minute: neither we nor the client may collect watches."""
    monkeypatch.setattr(watched_reads, "KEPT_S", 0.0)

    def count() -> tuple[int, int]:
        client = tree._session._connected_client()
        lists = [*client._data_watchers.values(), *client._child_watchers.values()]
        return sum(map(len, lists)), len(tree._watched._watches)

    counts = []
    for _ in range(5):
        with tree.one_read():
            answers(tree)
        counts.append(count())
    assert set(counts) == {counts[0]}
