"""What a real ZooKeeper says at once of the KIPs' documents, of the brokers and of the controller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from threading import Timer

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE

from kafka_steward.errors import JournalUnreachable, SettingError
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from kafka_steward.journal.zookeeper.session import EnsurePathRequest, our_acl
from kafka_steward.journal.zookeeper.watcher import ZooKeeperWatcher
from tests.eventually import eventually
from tests.journal.zookeeper import ZooKeeperServer

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
    client = KazooClient(hosts=zookeeper.hosts)
    client.start(timeout=90)
    client.ensure_path(f"/{cluster_id}/brokers/ids")
    client.chroot = f"/{cluster_id}"
    yield client
    client.stop()
    client.close()


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
def test_a_parent_that_is_deleted_and_created_anew_is_watched_again(
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
    other = KazooClient(hosts=zookeeper.hosts, client_id=watch._client.client_id)
    other.start(timeout=90)
    other.stop()  # ends the session that both had
    other.close()
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


def test_a_chroot_that_does_not_exist_is_told(zookeeper: ZooKeeperServer) -> None:
    with pytest.raises(SettingError, match=r"^The chroot /kafak does not exist in ZooKeeper at 127\.0\.0\.1:"):
        ZooKeeperWatcher(ZooKeeperOptions(f"{zookeeper.hosts}/kafak"), Changes())


def test_what_kafka_keeps_beside_our_nodes_is_left_open_to_it(zookeeper: ZooKeeperServer, cluster_id: str) -> None:
    options = ZooKeeperOptions(zookeeper.at(cluster_id), "steward:s3cret")
    with ZooKeeperWatcher(options, Changes()) as watch:
        lists = [set(watch._client.get_acls(path)[0]) for path in ("/admin", "/admin/rolling_bounce")]
    assert lists == [set(OPEN_ACL_UNSAFE), set(our_acl("steward:s3cret") or ())]
