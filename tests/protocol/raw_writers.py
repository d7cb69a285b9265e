"""Documents written with bare hands: by kazoo alone, or by SQL statements of one line. Nothing of ours is used."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError, NotEmptyError

from tests.eventually import eventually

#: What the KIPs' documents, and ours, lie under.
ROOTS = (
    "/steward",
    "/admin/failed_brokers",
    "/admin/rolling_bounce",
    "/admin/reassign_cancel",
    "/admin/cancel_reassignment_in_progress",
    "/admin/reassignment_requests",
    "/admin/reassign_partitions_queue",
    "/admin/reassign_chunks",
    "/admin/reassignments",
)
INSERT = """
INSERT INTO steward_node (cluster_id, path, data, version, created_id, modified_id, created_ms, modified_ms)
SELECT :cluster, :path, :data, 0, seen + 1, seen + 1, now, now FROM
  (SELECT COALESCE(MAX(modified_id), 0) AS seen FROM steward_node WHERE cluster_id = :cluster),
  (SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) AS now)
"""


@dataclass
class Seen:
    """A document as it lies there; ids are czxid and mzxid, or what stands for them."""

    data: str
    created_id: int
    modified_id: int


class Hands(Protocol):
    def put(self, path: str, data: str) -> None: ...
    def ask(self, data: str) -> str: ...
    def get(self, path: str) -> Seen | None: ...
    def children(self, path: str) -> list[str]: ...
    def delete(self, path: str) -> None: ...


class KazooHands:
    def __init__(self, client: KazooClient) -> None:
        self.client = client

    def put(self, path: str, data: str) -> None:
        self.client.create(path, data.encode(), makepath=True)

    def ask(self, data: str) -> str:
        prefix = "/admin/reassignment_requests/request_"
        return str(self.client.create(prefix, data.encode(), sequence=True, makepath=True))

    def get(self, path: str) -> Seen | None:
        try:
            data, stat = self.client.get(path)
        except NoNodeError:
            return None
        return Seen(data.decode(), stat.czxid, stat.mzxid)

    def children(self, path: str) -> list[str]:
        try:
            return sorted(self.client.get_children(path))
        except NoNodeError:
            return []

    def delete(self, path: str) -> None:
        self.client.delete(path)

    def sweep(self) -> None:
        eventually(self._sweep, errors=(NotEmptyError,))  # a watch that is told to end may write a last time

    def _sweep(self) -> None:
        for root in ROOTS:
            with suppress(NoNodeError):
                self.client.delete(root, recursive=True)


class SqlHands:
    def __init__(self, journal: Path, cluster_id: str) -> None:
        self.journal, self.cluster_id, self.asked = journal, cluster_id, 0

    def put(self, path: str, data: str) -> None:
        try:
            self._run(INSERT, path=path, data=data)
        except sqlite3.IntegrityError as error:
            raise NodeExistsError from error

    def ask(self, data: str) -> str:
        self.asked += 1
        path = f"/admin/reassignment_requests/request_by_hand_{self.asked}"
        self.put(path, data)
        return path

    def get(self, path: str) -> Seen | None:
        query = "SELECT data, created_id, modified_id FROM steward_node WHERE cluster_id = :cluster AND path = :path"
        rows = self._run(query, path=path)
        return Seen(*rows[0]) if rows else None

    def children(self, path: str) -> list[str]:
        query = "SELECT path FROM steward_node WHERE cluster_id = :cluster AND path LIKE :path || '/%'"
        return sorted({row[0].removeprefix(f"{path}/").split("/")[0] for row in self._run(query, path=path)})

    def rows(self, noun: str) -> list[str]:
        """The values of our own state."""
        query = "SELECT value FROM steward_state WHERE cluster_id = :cluster AND noun = :noun ORDER BY key"
        return [row[0] for row in self._run(query, noun=noun)]

    def delete(self, path: str) -> None:
        self._run("DELETE FROM steward_node WHERE cluster_id = :cluster AND path = :path", path=path)

    def _run(self, statement: str, **values: Any) -> list[Any]:
        with closing(sqlite3.connect(self.journal, timeout=30)) as connection, connection:
            return connection.execute(statement, {"cluster": self.cluster_id, **values}).fetchall()
