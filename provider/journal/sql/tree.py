"""The tree in one SQL table: the WHERE clause compares versions, and the same transaction allocates ids.

In `one_read` it reads the polled documents by one statement: see `view`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from kafka_steward.errors import NodeMissing, VersionConflict
from kafka_steward.journal.document import MAX_NUMBER
from kafka_steward.journal.paths import validate_path
from kafka_steward.journal.schema import tables
from kafka_steward.journal.sql.database import IDS, split_into_batches
from kafka_steward.journal.sql.dialect import now_ms, untrusted_text
from kafka_steward.journal.tree import (
    MAX_BYTES,
    Node,
    encode_data,
    node_exists_error,
    node_missing_error,
    version_conflict_error,
)

if TYPE_CHECKING:
    from kafka_steward.journal.sql.view import View, Views

_node = tables.node


#: One character more than the maximum is read: it shows that the document is too long.
_DATA = sa.func.substr(_node.c.data, 1, MAX_BYTES + 1)

_PATH = untrusted_text(_node.c.path).label("path")

NODE_COLUMNS = (
    _PATH,
    untrusted_text(_DATA).label("data"),
    _node.c.version,
    _node.c.created_id,
    _node.c.modified_id,
    _node.c.created_ms,
    _node.c.modified_ms,
)


class SqlTree:
    """A `Documents` in a SQL database."""

    def __init__(self, views: Views) -> None:
        self.database = views.database
        self._views = views

    def one_read(self) -> AbstractContextManager[None]:
        """Answer the reads of a block from a view, as specified by `Documents.one_read`."""
        return self._views.one_read()

    def end_read(self) -> None:
        """Answer no further read from the view, as specified by `Documents.end_read`."""
        self._views.end_read()

    def create(self, path: str, data: str) -> Node:
        """Create a node, as specified by `Documents.create`."""
        encode_data(validate_path(path), data)
        with self.database.write_transaction() as connection:
            if self._exists(connection, path):
                raise node_exists_error(path)
            return self._insert_node(connection, path, data)

    def create_all(self, documents: Mapping[str, str]) -> list[str]:
        """Create the missing nodes, as specified by `Documents.create_all`, in one transaction."""
        for path, data in documents.items():
            encode_data(validate_path(path), data)
        if not documents:
            return []
        with self.database.write_transaction() as connection:
            last = self.database.raise_counter(connection, IDS, by=len(documents))
            before = last - len(documents)
            created_ms = int(connection.execute(sa.select(now_ms())).scalar_one())
            nodes = (
                Node(path, data, 0, number, number, created_ms, created_ms)
                for number, (path, data) in enumerate(documents.items(), before + 1)
            )
            insert = self.database.dialect.insert_or_ignore(_node)
            for some in split_into_batches(
                [{"cluster_id": self.database.cluster_id, **asdict(node)} for node in nodes]
            ):
                connection.execute(insert, some)
            rows = self._select_from(connection, list(documents), _node.c.path, _node.c.created_id)
        existing = {str(path) for path, created_id in rows if created_id <= before}
        return [path for path in documents if path in existing]

    def create_sequential(self, prefix: str, data: str) -> Node:
        """Create a numbered node, as specified by `Documents.create_sequential`."""
        encode_data(validate_path(f"{prefix}0"), data)
        with self.database.write_transaction() as connection:
            number = self.database.next_counter_value(connection, f"sequence {prefix}") - 1
            return self._insert_node(connection, f"{prefix}{number:010d}", data)

    def get(self, path: str) -> Node | None:
        """Return a node, as specified by `Documents.get`."""
        return self.read([path])[0] if self._view_of(path) is not None else self._select_node(path)

    def _select_node(self, path: str) -> Node | None:
        with self.database.read_connection() as connection:
            row = connection.execute(sa.select(*NODE_COLUMNS).where(self._path_condition(path))).one_or_none()
            return None if row is None else node_from_row(row)

    def set(self, path: str, data: str, *, version: int) -> Node:
        """Change a node, as specified by `Documents.set`."""
        encode_data(validate_path(path), data)
        with self.database.write_transaction() as connection:
            changed = {
                "data": data,
                "version": _node.c.version + 1,
                "modified_id": self.database.next_counter_value(connection, IDS),
                "modified_ms": now_ms(),
            }
            update = sa.update(_node).where(self._path_condition(path) & (_node.c.version == version)).values(changed)
            row = self.database.dialect.change_and_return(connection, update, NODE_COLUMNS, self._path_condition(path))
            if row is None:
                raise self._conflict_error(connection, path, version)
            return node_from_row(row)

    def delete(self, path: str, *, version: int) -> None:
        """Delete a node, as specified by `Documents.delete`."""
        with self.database.write_transaction() as connection:
            same = self._path_condition(path) & (_node.c.version == version)
            if connection.execute(sa.delete(_node).where(same)).rowcount == 0:
                raise self._conflict_error(connection, path, version)

    def delete_all(self, nodes: Sequence[Node]) -> None:
        """Delete the unchanged nodes, as specified by `Documents.delete_all`, in one transaction."""
        same = (_node.c.path == sa.bindparam("of_path")) & (_node.c.version == sa.bindparam("of_version"))
        delete = sa.delete(_node).where(self._cluster_condition() & same)
        rows = [{"of_path": validate_path(node.path), "of_version": node.version} for node in nodes]
        with self.database.write_transaction() as connection:
            for some in split_into_batches(rows):
                connection.execute(delete, some)

    def children(self, path: str) -> list[str]:
        """Return the names of children, as specified by `Documents.children`."""
        below = "/" if path == "/" else f"{validate_path(path)}/"
        view = self._view_of(below)
        if view is not None:
            return sorted({node.path[len(below) :].partition("/")[0] for node in view.below(below)})
        with self.database.read_connection() as connection:
            paths = connection.execute(sa.select(_PATH).where(self._subtree_condition(below))).scalars().all()
        return sorted({_as_text(found)[len(below) :].partition("/")[0] for found in paths})

    def below(self, path: str) -> list[Node]:
        """Return the documents directly below a path, as specified by `Documents.below`."""
        below = f"{validate_path(path)}/"
        view = self._view_of(below)
        nodes = self._select_subtree(below) if view is None else view.below(below)
        if view is not None and not all(view.is_complete(node.data) for node in nodes):
            nodes = self._select_subtree(below)
        return sorted((node for node in nodes if "/" not in node.path[len(below) :]), key=lambda node: node.path)

    def read(self, paths: Sequence[str]) -> list[Node | None]:
        """Return the documents at several paths, as specified by `Documents.read`."""
        found = self._viewed_nodes(paths)
        rest = [path for path in paths if path not in found]
        found |= (
            {node.path: node for node in map(node_from_row, self._select_rows(rest, *NODE_COLUMNS))} if rest else {}
        )
        return [found.get(path) for path in paths]

    def _viewed_nodes(self, paths: Sequence[str]) -> dict[str, Node | None]:
        """Return the documents, and None for the missing ones, at those of the paths that the view answers for."""
        view = self._views.current
        if view is None:
            return {}
        found = {path: view.nodes.get(path) for path in paths if view.covers(validate_path(path))}
        return {path: node for path, node in found.items() if node is None or view.is_complete(node.data)}

    def created_ids(self, paths: Sequence[str]) -> list[int | None]:
        """Return the created ids of several documents, as specified by `Documents.created_ids`."""
        view = self._views.current
        if view is not None and all(view.covers(validate_path(path)) for path in paths):
            return [None if node is None else node.created_id for node in map(view.nodes.get, paths)]
        rows = self._select_rows(paths, _PATH, _node.c.created_id)
        found = {_as_text(path): _as_number(number) for path, number in rows}
        return [found.get(path) for path in paths]

    def subtree(self, path: str, most: int) -> list[Node]:
        """Return the documents at and below a path, as specified by `Documents.subtree`."""
        deepest = sa.func.length(_node.c.path).desc()
        chosen = (self._cluster_condition() & (_node.c.path == path)) | self._subtree_condition(f"{path}/")
        with self.database.read_connection() as connection:
            return [
                node_from_row(row)
                for row in connection.execute(sa.select(*NODE_COLUMNS).where(chosen).order_by(deepest).limit(most))
            ]

    def discard(self, node: Node) -> bool:
        """Delete a node of any name, as specified by `Documents.discard`."""
        same = self._cluster_condition() & (_node.c.path == node.path) & (_node.c.version == node.version)
        with self.database.write_transaction() as connection:
            return bool(connection.execute(sa.delete(_node).where(same)).rowcount)

    def close(self) -> None:
        """Do nothing: the database belongs to the journal, which closes it."""

    def _view_of(self, path: str) -> View | None:
        """Return the view if it answers for `path`, or for what is below it if it ends with a slash."""
        view = self._views.current
        return view if view is not None and view.covers(path.rstrip("/")) else None

    def _select_subtree(self, below: str) -> list[Node]:
        with self.database.read_connection() as connection:
            rows = connection.execute(sa.select(*NODE_COLUMNS).where(self._subtree_condition(below))).all()
        return [node_from_row(row) for row in rows]

    def _select_rows(self, paths: Sequence[str], *columns: sa.ColumnElement[Any]) -> list[Sequence[Any]]:
        wanted = [validate_path(path) for path in paths]
        with self.database.read_connection() as connection:
            return self._select_from(connection, wanted, *columns)

    def _select_from(
        self, connection: sa.Connection, paths: Sequence[str], *columns: sa.ColumnElement[Any]
    ) -> list[Sequence[Any]]:
        return [
            row
            for some in split_into_batches(paths)
            for row in connection.execute(sa.select(*columns).where(self._cluster_condition() & _node.c.path.in_(some)))
        ]

    def _path_condition(self, path: str) -> sa.ColumnElement[bool]:
        return self._cluster_condition() & (_node.c.path == validate_path(path))

    def _cluster_condition(self) -> sa.ColumnElement[bool]:
        return self.database.cluster_condition(_node)

    def _subtree_condition(self, below: str) -> sa.ColumnElement[bool]:
        after = f"{below[:-1]}0"  # "0" is the character that follows "/"
        return self._cluster_condition() & (_node.c.path > below) & (_node.c.path < after)

    def _exists(self, connection: sa.Connection, path: str) -> bool:
        return connection.execute(sa.select(_node.c.version).where(self._path_condition(path))).first() is not None

    def _insert_node(self, connection: sa.Connection, path: str, data: str) -> Node:
        number = self.database.next_counter_value(connection, IDS)
        created_ms = int(connection.execute(sa.select(now_ms())).scalar_one())
        node = Node(path, data, 0, number, number, created_ms, created_ms)
        connection.execute(sa.insert(_node).values(cluster_id=self.database.cluster_id, **asdict(node)))
        return node

    def _conflict_error(self, connection: sa.Connection, path: str, version: int) -> NodeMissing | VersionConflict:
        return version_conflict_error(path, version) if self._exists(connection, path) else node_missing_error(path)


def node_from_row(row: Sequence[Any]) -> Node:
    """Return the node in an untrusted row: a column may contain values that its type does not allow."""
    path, data, *numbers = row
    version, created_id, modified_id, created_ms, modified_ms = (_as_number(each) for each in numbers)
    times = (min(max(each, 0), MAX_NUMBER) for each in (created_ms, modified_ms))
    return Node(_as_text(path), _as_text(data), version, created_id, modified_id, *times)


def _as_text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _as_number(value: Any) -> int:
    return value if isinstance(value, int) else 0
