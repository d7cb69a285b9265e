"""What only ZooKeeper has: sessions, credentials, a chroot, a cluster of its own, and a server that goes away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from kafka_steward.errors import (
    JournalError,
    JournalUnreachable,
    LockLost,
    SettingError,
    VersionConflict,
    WrongCluster,
)
from kafka_steward.journal import paths
from kafka_steward.journal.open import open_journal
from kafka_steward.journal.plans import MoveState
from kafka_steward.journal.zk_options import ZooKeeperOptions
from kafka_steward.journal.zk_tree import ZkTree
from tests.eventually import eventually
from tests.journal.certificate import Certificate
from tests.journal.test_plans import moves_of, record_of
from tests.journal.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.process


@pytest.fixture
def raw(zookeeper: ZooKeeperServer) -> Iterator[KazooClient]:
    """ZooKeeper as anyone else sees it."""
    client = KazooClient(hosts=zookeeper.hosts)
    client.start(timeout=90)
    yield client
    client.stop()
    client.close()


@pytest.fixture
def tree(zookeeper: ZooKeeperServer, cluster_id: str) -> Iterator[ZkTree]:
    opened = ZkTree(ZooKeeperOptions(f"{zookeeper.hosts}/{cluster_id}"))
    yield opened
    opened.close()


def test_nodes_are_znodes_under_the_chroot(tree: ZkTree, raw: KazooClient, cluster_id: str) -> None:
    created = tree.create("/admin/failed_brokers/3", '{"failure_timestamp": 1}')
    data, stat = raw.get(f"/{cluster_id}/admin/failed_brokers/3")
    assert data == b'{"failure_timestamp": 1}'
    assert (created.created_id, created.modified_id) == (stat.czxid, stat.mzxid)
    assert (created.created_ms, created.modified_ms, created.version) == (stat.ctime, stat.mtime, stat.version)


def test_what_others_write_is_read(tree: ZkTree, raw: KazooClient, cluster_id: str) -> None:
    raw.create(f"/{cluster_id}/admin/reassign_cancel", makepath=True)
    raw.create(f"/{cluster_id}/admin/failed_brokers/7", b"\xff\xfe", makepath=True)
    empty, garbage = tree.get("/admin/reassign_cancel"), tree.get("/admin/failed_brokers/7")
    assert empty is not None
    assert empty.data == ""
    assert garbage is not None
    assert garbage.data == "\ufffd\ufffd"


def test_a_parent_is_no_document(tree: ZkTree) -> None:
    tree.create("/a/b/c", "x")
    assert tree.get("/a/b") is None


def test_deep_parents_go_with_their_last_child(tree: ZkTree) -> None:
    tree.create("/admin/reassignments/t/0", "x")
    tree.create("/admin/reassignments/t/1", "x")
    tree.delete("/admin/reassignments/t/0", version=0)
    assert tree.children("/admin/reassignments") == ["t"]
    tree.delete("/admin/reassignments/t/1", version=0)
    assert tree.children("/admin/reassignments") == []
    assert tree.children("/admin") == ["reassignments"]


def test_a_node_with_others_below_is_not_deleted(tree: ZkTree) -> None:
    tree.create("/a/b", "x")
    tree.create("/a/b/c", "x")
    with pytest.raises(JournalError, match="/a/b has others below it"):
        tree.delete("/a/b", version=0)


def test_a_lost_session_costs_nothing(tree: ZkTree, zookeeper: ZooKeeperServer) -> None:
    tree.create("/a/b", "kept")
    client = tree._session._client
    first_session = client.client_id[0]
    other = KazooClient(hosts=zookeeper.hosts, client_id=client.client_id)
    other.start(timeout=90)
    other.stop()  # ends the session that both had
    other.close()
    node = tree.get("/a/b")
    assert node is not None
    assert node.data == "kept"
    assert tree._session._client.client_id[0] != first_session


def test_a_server_that_restarts_costs_nothing(tree: ZkTree, zookeeper: ZooKeeperServer) -> None:
    tree.create("/a/b", "kept")
    zookeeper.restart()
    assert tree.children("/a") == ["b"]


def test_a_server_that_hangs_is_told_in_words_and_nothing_is_made_later(
    zookeeper: ZooKeeperServer, cluster_id: str
) -> None:
    patient = ZkTree(ZooKeeperOptions(f"{zookeeper.hosts}/{cluster_id}"))
    hasty = ZkTree(ZooKeeperOptions(f"{zookeeper.hosts}/{cluster_id}", timeout_s=2))
    patient.create("/a/b", "x")
    zookeeper.stop()
    with pytest.raises(JournalUnreachable, match=r"ZooKeeper at 127.0.0.1:\d+/\S+ does not answer \(.*\); try again"):
        hasty.create("/a/late", "x")
    with pytest.raises(JournalUnreachable):
        hasty.get("/a/b")
    zookeeper.start()
    eventually(lambda: hasty.get("/a/b"), within=60, errors=(JournalUnreachable,))
    assert eventually(lambda: patient.children("/a"), within=60, errors=(JournalUnreachable,)) == ["b"]
    patient.close()
    hasty.close()


def test_nobody_is_there() -> None:
    nobody = ZkTree(ZooKeeperOptions("127.0.0.1:1", timeout_s=1))
    with pytest.raises(JournalUnreachable, match=r"ZooKeeper at 127\.0\.0\.1:1 does not answer"):
        nobody.get("/a")
    nobody.close()


def test_with_credentials_everyone_reads_and_we_write(zookeeper: ZooKeeperServer, cluster_id: str) -> None:
    hosts = f"{zookeeper.hosts}/{cluster_id}"
    ours = ZkTree(ZooKeeperOptions(hosts, digest="steward:s3cret"))
    theirs = ZkTree(ZooKeeperOptions(hosts, digest="mallory:guess"))
    ours.create("/steward/slot", "x")
    node = theirs.get("/steward/slot")
    assert node is not None
    assert node.data == "x"
    for change in (
        lambda: theirs.set("/steward/slot", "y", version=0),
        lambda: theirs.create("/steward/other", "y"),
        lambda: theirs.delete("/steward/slot", version=0),
    ):
        with pytest.raises(JournalError, match=r"does not let us change /steward/.*; mend the credentials") as refused:
            change()
        assert "guess" not in str(refused.value)
    assert ours.set("/steward/slot", "z", version=0).version == 1
    ours.close()
    theirs.close()


def test_over_tls(tmp_path: Path, cluster_id: str) -> None:
    certificate = Certificate(tmp_path)
    trusting = {"use_ssl": True, "ca": str(certificate.certificate), "check_hostname": True}
    with ZooKeeperServer(certificate) as server:
        tree = ZkTree(ZooKeeperOptions(f"{server.secure_hosts}/{cluster_id}", tls=trusting, timeout_s=60))
        tree.create("/a/b", "x")
        assert tree.children("/a") == ["b"]
        tree.close()
        distrusting = ZkTree(ZooKeeperOptions(server.secure_hosts, tls={"use_ssl": True}, timeout_s=3))
        with pytest.raises(JournalUnreachable, match="does not answer"):
            distrusting.get("/a/b")
        distrusting.close()


def test_no_password_is_printed() -> None:
    options = ZooKeeperOptions("h:1", digest="steward:s3cret", tls={"keyfile_password": "s3cret"})
    assert "s3cret" not in repr(options) + repr(ZkTree(options))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"hosts": ""}, "zookeeper is empty"),
        ({"hosts": "/kafka"}, "zookeeper is empty"),
        ({"hosts": "h:1", "digest": "nocolon"}, "not of the form user:password"),
        ({"hosts": "h:1", "tls": {"cipher": "x"}}, "takes no setting cipher"),
    ],
)
def test_options_that_cannot_be_used(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        ZooKeeperOptions(**arguments)  # type: ignore[arg-type]  # that is the point


def test_another_clusters_zookeeper_is_refused(
    zookeeper: ZooKeeperServer, raw: KazooClient, cluster_id: str, sqlite_url: str
) -> None:
    options = ZooKeeperOptions(f"{zookeeper.hosts}/{cluster_id}")
    raw.create(f"/{cluster_id}/cluster/id", b'{"version":"1","id":"theirs"}', makepath=True)
    with pytest.raises(WrongCluster, match=f"keeps the cluster theirs, and this is {cluster_id}; mend the setting"):
        open_journal(sqlite_url, cluster_id, zookeeper=options)
    with open_journal(sqlite_url, "theirs", zookeeper=options) as journal:
        assert journal.slot.owner() is None


def test_a_process_stopped_between_reading_the_lock_and_writing_a_row_changes_nothing(
    zookeeper: ZooKeeperServer, cluster_id: str, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is in ZooKeeper, the row in SQL: the token is compared in the row's own transaction."""
    options = ZooKeeperOptions(f"{zookeeper.hosts}/{cluster_id}")
    with open_journal(sqlite_url, cluster_id, zookeeper=options) as journal:
        journal.plans.publish(record_of(journal), moves_of(1))
        stopped = journal.step_lock("stopped", life_ms=1).acquire()
        stopped.check()
        really_held = stopped._held()
        monkeypatch.setattr(stopped, "_held", lambda: really_held)  # what it read before it was stopped
        while journal.now_ms() <= really_held.modified_ms + 1:
            pass
        with journal.step_lock("next") as fence:
            with pytest.raises(LockLost, match="Another process steps the plan since"):
                journal.plans.mark("d1", [moves_of(1)[0].topic_partition], MoveState.SUBMITTED, fence=stopped)
            journal.plans.mark("d1", [moves_of(1)[0].topic_partition], MoveState.HELD, fence=fence)
        assert journal.plans.rows("d1")[0].state is MoveState.HELD


def test_a_lock_deleted_by_hand_can_be_taken_again(
    zookeeper: ZooKeeperServer, cluster_id: str, sqlite_url: str
) -> None:
    options = ZooKeeperOptions(f"{zookeeper.hosts}/{cluster_id}")
    with open_journal(sqlite_url, cluster_id, zookeeper=options) as journal:
        for _ in range(3):
            with journal.step_lock("one") as fence:
                fence.check()
        node = journal.tree.get(paths.STEP_LOCK)
        assert node is not None
        journal.tree.delete(paths.STEP_LOCK, version=node.version)
        with journal.step_lock("two") as fence:
            assert fence.token == 1
            fence.check()


def test_minus_one_never_means_any_version(tree: ZkTree) -> None:
    tree.create("/a/b", "x")
    with pytest.raises(VersionConflict, match="since version -1 was read"):
        tree.delete("/a/b", version=-1)
