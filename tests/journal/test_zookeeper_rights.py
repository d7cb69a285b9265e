"""docs/permissions.md: a digest user with exactly its rights does everything; without one of them a node is named."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import ACL, Permissions, make_acl, make_digest_acl, make_digest_acl_credential

from kafka_steward.errors import JournalError
from kafka_steward.journal import paths
from kafka_steward.journal.mailbox import read_one
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from kafka_steward.journal.zookeeper.session import ROOTS
from kafka_steward.journal.zookeeper.watcher import CONTROLLER, ZooKeeperWatcher
from tests.documents import create_document
from tests.eventually import eventually
from tests.journal.everything import everything
from tests.journal.zookeeper import ZooKeeperServer

pytestmark = [pytest.mark.process, pytest.mark.slow]

_PAGE = (Path(__file__).parents[2] / "docs/permissions.md").read_text()
#: The table of the page: rights by node.
RIGHTS: dict[str, str] = dict(re.findall(r"^\| `(/[\w/]*)` \| `([cdrwa]+)` \|", _PAGE, re.MULTILINE))
_LETTERS = {
    "c": Permissions.CREATE,
    "d": Permissions.DELETE,
    "r": Permissions.READ,
    "w": Permissions.WRITE,
    "a": Permissions.ADMIN,
}
#: Kafka's own nodes, with what they hold.
KAFKAS = {"/cluster": "", "/cluster/id": "", "/brokers": "", "/brokers/ids": "", "/controller": "{}", "/admin": ""}
ADMIN = "admin", "admins"
USER = "steward", "s3cret"


def list_of(rights: str) -> list[ACL]:
    """The administrator, who may do all, and our user, who may do this."""
    theirs = make_digest_acl(*ADMIN, all=True)
    ours = make_digest_acl_credential(*USER)
    return [theirs, *([make_acl("digest", ours, **_named(rights))] if rights else [])]


def _named(rights: str) -> dict[str, bool]:
    names = {"c": "create", "d": "delete", "r": "read", "w": "write", "a": "admin"}
    return {names[letter]: True for letter in rights}


class Nodes:
    """A chroot with nodes whose lists are exactly those of the page."""

    def __init__(self, server: ZooKeeperServer, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.options = ZooKeeperOptions(f"{server.hosts}/{cluster_id}", digest=":".join(USER), kafkas=True)
        self.client = KazooClient(server.hosts, auth_data=[("digest", ":".join(ADMIN))])
        self.client.start(timeout=90)
        self.client.create(f"/{cluster_id}", acl=list_of(RIGHTS["/"]))
        self.client.chroot = f"/{cluster_id}"
        texts = {**KAFKAS, "/cluster/id": f'{{"version": "1", "id": "{cluster_id}"}}'}
        for path in sorted({*texts, *RIGHTS} - {"/"}):
            self.client.create(path, texts.get(path, "").encode(), acl=list_of(RIGHTS.get(path, "")))

    def give(self, path: str, rights: str) -> None:
        self.client.set_acls(path, list_of(rights))

    def open(self, folder: Path) -> Callable[[str], Journal]:
        return lambda cluster_id: open_journal(f"sqlite:///{folder}/rows.db", cluster_id, zookeeper=self.options)


@pytest.fixture
def make(zookeeper: ZooKeeperServer) -> Iterator[Callable[[str], Nodes]]:
    made: list[Nodes] = []

    def nodes(cluster_id: str) -> Nodes:
        made.append(Nodes(zookeeper, cluster_id))
        return made[-1]

    yield nodes
    for each in made:
        each.client.stop()
        each.client.close()


def carry_out(nodes: Nodes, folder: Path) -> None:
    everything(nodes.open(folder), folder, cluster_id=nodes.cluster_id, zookeeper=True)


def test_the_page_lists_the_nodes_that_are_ours() -> None:
    directly = {paths.REASSIGN_CANCEL, paths.CANCEL_IN_PROGRESS, paths.REASSIGN_QUEUE}
    assert {*RIGHTS} == {*ROOTS} - directly | {"/", "/admin", "/cluster/id", "/brokers/ids", CONTROLLER}
    assert all(f"`{path.rpartition('/')[2]}`" in _PAGE for path in directly)


def test_what_the_page_lists_is_enough_for_everything(make: Callable[[str], Nodes], tmp_path: Path) -> None:
    nodes = make("all-rights")
    carry_out(nodes, tmp_path)
    assert set(nodes.client.get_acls("/steward")[0]) == set(list_of(RIGHTS["/steward"])), (
        "the list is the administrator's"
    )
    observed: set[str] = set()
    with ZooKeeperWatcher(nodes.options, observed.add):
        nodes.client.set(CONTROLLER, b"changed")
        eventually(lambda: _assert_in(CONTROLLER, observed))


def _assert_in(path: str, observed: set[str]) -> None:
    assert path in observed


def test_nodes_that_are_not_there_need_create_on_their_parents_alone(
    make: Callable[[str], Nodes], tmp_path: Path
) -> None:
    nodes = make("new-nodes")
    for path in RIGHTS:
        if path not in {"/", *KAFKAS}:
            nodes.client.delete(path)
    nodes.give("/", RIGHTS["/"] + "c")
    with nodes.open(tmp_path)(nodes.cluster_id) as journal:
        journal.now_ms()
    nodes.give("/", RIGHTS["/"])
    carry_out(nodes, tmp_path)


def test_submission_by_the_legacy_node_needs_to_see_the_list_of_its_parent(
    make: Callable[[str], Nodes], tmp_path: Path
) -> None:
    nodes = make("legacy")
    with nodes.open(tmp_path)(nodes.cluster_id) as journal:
        with pytest.raises(
            JournalError, match="ZooKeeper does not show the ACL of /admin; grant our user all rights there"
        ):
            create_document(journal.mailbox, paths.REASSIGN_PARTITIONS, "x")
        nodes.give("/admin", RIGHTS["/admin"] + "a")
        create_document(journal.mailbox, paths.REASSIGN_PARTITIONS, "x")
        nodes.give("/admin", RIGHTS["/admin"])
        assert read_one(journal.mailbox, paths.REASSIGN_PARTITIONS) is not None
    assert set(nodes.client.get_acls(paths.REASSIGN_PARTITIONS)[0]) == set(list_of(RIGHTS["/admin"] + "a"))


#: What only the watch reads, to hear of changes at once.
_WATCHED = {"/brokers/ids", CONTROLLER}
#: Without this right all is done, and empty nodes stay.
_LEFT = (paths.REASSIGNMENTS, "d")
NEEDED = [(path, lacks) for path, rights in RIGHTS.items() for lacks in rights if (path, lacks) != _LEFT]


@pytest.mark.parametrize(("path", "lacks"), NEEDED)
def test_without_one_of_them_the_node_is_named(
    make: Callable[[str], Nodes], path: str, lacks: str, tmp_path: Path
) -> None:
    nodes = make(f"no-{lacks}{path.replace('/', '-')}")
    nodes.give(path, RIGHTS[path].replace(lacks, ""))
    named = f"the chroot /{nodes.cluster_id}" if path == "/" else rf"{path}(/\S*)?"
    sentence = (
        rf"does not let us (read|change) {named}; correct the credentials, or the ACL of the node or of its parent"
    )
    with pytest.raises(JournalError, match=sentence):
        ZooKeeperWatcher(nodes.options, lambda _: None) if path in _WATCHED else carry_out(nodes, tmp_path)


@pytest.mark.parametrize(("lacks", "left"), [("", []), ("d", ["t"])])
def test_without_the_right_to_delete_empty_nodes_they_stay(
    make: Callable[[str], Nodes], lacks: str, left: list[str], tmp_path: Path
) -> None:
    nodes, path = make(f"empty-nodes-{lacks}"), _LEFT[0]
    nodes.give(path, RIGHTS[path].replace(lacks, "") if lacks else RIGHTS[path])
    carry_out(nodes, tmp_path)
    assert nodes.client.get_children(path) == left
