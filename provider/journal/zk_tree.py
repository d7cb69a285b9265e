"""The tree on ZooKeeper's own: a node is a znode, its ids are czxid and mzxid, its times ctime and mtime.

The KIPs put their documents here, beside Kafka's own under its chroot. Two things differ from a table. A parent is a
znode too: it is made on demand, never read as a document, and may still be listed when nothing is below it any more.
And -1 is ZooKeeper's "any version": here it is a version like any other, which no node has.
"""

from __future__ import annotations

from kazoo.protocol.states import ZnodeStat

from kafka_steward.errors import JournalError, NodeMissing, WrongCluster
from kafka_steward.journal.fields import read_object
from kafka_steward.journal.paths import checked_path
from kafka_steward.journal.tree import Node, checked_data
from kafka_steward.journal.zk_options import ZooKeeperOptions
from kafka_steward.journal.zk_session import ZkSession, conflict, missing

__all__ = ["ZkTree"]

#: Written to ask for the time: the server's clock is the modified time of what it has just written.
_CLOCK = "/steward/clock"
#: Where Kafka writes its cluster's id.
_CLUSTER = "/cluster/id"
#: Deeper parents than this are deleted when they become empty; a sequence's parent, which counts, is never that deep.
_KEPT_DEPTH = 2
#: How often a create is tried again because its parent was deleted in between.
_TRIES = 5


class ZkTree:
    """A `Tree` on ZooKeeper. Safe in threads, and in a child after fork; outlives its sessions."""

    def __init__(self, options: ZooKeeperOptions) -> None:
        self._options = options
        self._session = ZkSession(options)

    def __repr__(self) -> str:
        return f"ZkTree({self._options.hosts!r})"

    def refuse_unless(self, cluster_id: str) -> None:
        """Raise WrongCluster when Kafka keeps another cluster here, under this chroot."""
        node = self.get(_CLUSTER)
        if node is None:
            return
        found = read_object(_CLUSTER, node.data).text("id")
        if found != cluster_id:
            raise WrongCluster(
                f"ZooKeeper at {self._options.hosts} keeps the cluster {found}, and this is {cluster_id}; "
                "mend the setting zookeeper: it is the brokers' zookeeper.connect, chroot included."
            )

    def now_ms(self) -> int:
        """ZooKeeper's clock."""
        try:
            stat: ZnodeStat = self._session.repeat(lambda client: client.set_async(_CLOCK, b""))
        except NodeMissing:
            return self._create(_CLOCK, b"").modified_ms
        return int(stat.mtime)

    def create(self, path: str, data: str) -> Node:
        """As `Tree.create`."""
        return self._create(checked_path(path), checked_data(path, data))

    def create_sequential(self, prefix: str, data: str) -> Node:
        """As `Tree.create_sequential`: ZooKeeper counts per parent."""
        return self._create(prefix, checked_data(checked_path(f"{prefix}0"), data), sequence=True)

    def get(self, path: str) -> Node | None:
        """As `Tree.get`. A znode that is only a parent is no document."""
        try:
            data, stat = self._session.repeat(lambda client: client.get_async(checked_path(path)))
        except NodeMissing:
            return None
        return _document(path, data, stat)

    def set(self, path: str, data: str, *, version: int) -> Node:
        """As `Tree.set`."""
        encoded = checked_data(checked_path(path), data)
        self._refuse_wildcard(path, version)
        stat = self._session.call(lambda client: client.set_async(path, encoded, version), path, version)
        return _node(path, encoded, stat)

    def delete(self, path: str, *, version: int) -> None:
        """As `Tree.delete`. Parents deep in the tree go with their last child."""
        self._refuse_wildcard(checked_path(path), version)
        self._session.call(lambda client: client.delete_async(path, version), path, version)
        self._prune(path.rpartition("/")[0])

    def children(self, path: str) -> list[str]:
        """As `Tree.children`."""
        try:
            found: list[str] = self._session.repeat(lambda client: client.get_children_async(_parent(path)))
        except NodeMissing:
            return []
        return sorted(found)

    def below(self, path: str) -> list[Node]:
        """As `Tree.below`. All are asked for at once: one after the other, each would wait for the server's answer."""
        wanted = [checked_path(f"{path}/{name}") for name in self.children(path)]
        answers = zip(wanted, self._session.read(wanted), strict=True)
        nodes = (_document(each, *answer) for each, answer in answers if answer is not None)
        return [node for node in nodes if node is not None]

    def close(self) -> None:
        """As `Tree.close`."""
        self._session.close()

    def _create(self, path: str, data: bytes, *, sequence: bool = False) -> Node:
        for _ in range(_TRIES):
            try:
                created, stat = self._session.call(
                    lambda client: client.create_async(path, data, sequence=sequence, makepath=True, include_data=True),
                    path,
                )
            except NodeMissing:
                continue  # someone deleted the empty parent in between
            return _node(created, data, stat)
        raise JournalError(f"The parents of {path} were deleted {_TRIES} times while it was created; try again.")

    def _refuse_wildcard(self, path: str, version: int) -> None:
        if version >= 0:
            return
        if self.get(path) is None:
            raise missing(path)
        raise conflict(path, version)

    def _prune(self, parent: str) -> None:
        while parent.count("/") > _KEPT_DEPTH and self._deleted_if_empty(parent):
            parent = parent.rpartition("/")[0]

    def _deleted_if_empty(self, parent: str) -> bool:
        try:
            data, stat = self._session.call(lambda client: client.get_async(parent))
            if not data and not stat.numChildren:
                self._session.call(lambda client: client.delete_async(parent, stat.version), parent)
                return True
        except JournalError:
            return False  # in use again, gone already, or not to be reached: the document itself is deleted
        return False


def _parent(path: str) -> str:
    return path if path == "/" else checked_path(path)


def _document(path: str, data: bytes | None, stat: ZnodeStat) -> Node | None:
    """The node; None for a znode that is only a parent."""
    return None if not data and stat.numChildren else _node(path, data or b"", stat)


def _node(path: str, data: bytes, stat: ZnodeStat) -> Node:
    # What is not UTF-8 is someone else's garbage: its reader says so, in words.
    text = data.decode(errors="replace")
    return Node(path, text, stat.version, stat.czxid, stat.mzxid, stat.ctime, stat.mtime)
