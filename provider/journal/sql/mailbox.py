"""The mailbox in one SQL table: the WHERE clause compares versions, and the same transaction allocates ids.

In `one_read` it reads the polled documents by one statement: see `view`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from kafka_steward.journal.document import MAX_NUMBER
from kafka_steward.journal.mailbox import MAX_BYTES, Node, encode_data
from kafka_steward.journal.paths import validate_path
from kafka_steward.journal.schema import tables
from kafka_steward.journal.sql.database import IDS, split_into_batches
from kafka_steward.journal.sql.dialect import now_ms, untrusted_text

if TYPE_CHECKING:
    from kafka_steward.journal.sql.view import Views

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


class SqlMailbox:
    """A `Mailbox` in a SQL database."""

    def __init__(self, views: Views) -> None:
        self.database = views.database
        self._views = views

    def one_read(self, *, again: bool = False) -> AbstractContextManager[None]:
        """Answer the reads of a block from a view, as specified by `Mailbox.one_read`."""
        return self._views.one_read(again=again)

    def children(self, path: str) -> list[str]:
        """Return the names of children, as specified by `Mailbox.children`."""
        below = "/" if path == "/" else f"{path}/"
        view = self._views.current
        if view is not None and view.covers(path):
            paths = [stored for stored in view.nodes if stored.startswith(below)]
        else:
            after = f"{below[:-1]}0"  # "0" is the character that follows "/"
            subtree = self._cluster_condition() & (_node.c.path > below) & (_node.c.path < after)
            with self.database.read_connection() as connection:
                rows = connection.execute(sa.select(_PATH).where(subtree)).scalars()
                paths = [_as_text(row) for row in rows]
        return sorted({path[len(below) :].partition("/")[0] for path in paths})

    def read(self, paths: Sequence[str]) -> list[Node | None]:
        """Return the documents at several paths, as specified by `Mailbox.read`."""
        known = self._viewed_nodes(paths)
        rest = [path for path in paths if path not in known]
        if rest:
            with self.database.read_connection() as connection:
                nodes = map(node_from_row, self._select_from(connection, rest, *NODE_COLUMNS))
                known |= {node.path: node for node in nodes}
        return [known.get(path) for path in paths]

    def put(self, texts: Mapping[str, str], seen: Collection[Node] = ()) -> dict[str, Node]:
        """Create or change nodes, as specified by `Mailbox.put`, in one transaction."""
        for path, text in texts.items():
            encode_data(validate_path(path), text)
        known = {node.path: node for node in seen}
        new = {path: text for path, text in texts.items() if path not in known}
        if not texts:
            return {}
        with self.database.write_transaction() as connection:
            written = self._insert_missing(connection, new) if new else {}
            for path, node in known.items():
                changed = self._update(connection, node, texts[path])
                written |= {} if changed is None else {path: changed}
        return written

    def append(self, prefix: str, text: str) -> Node:
        """Create a numbered node, as specified by `Mailbox.append`."""
        encode_data(validate_path(f"{prefix}0"), text)
        with self.database.write_transaction() as connection:
            # With the node in one transaction: a number that is drawn again after a rollback was never seen.
            number = self.database.next_counter_value(connection, f"sequence {prefix}") - 1
            path = f"{prefix}{number:010d}"
            return self._insert_missing(connection, {path: text})[path]

    def delete(self, nodes: Sequence[Node]) -> list[Node]:
        """Delete the unchanged nodes, as specified by `Mailbox.delete`, in one transaction."""
        if not nodes:
            return []
        this = (_node.c.path == sa.bindparam("of_path")) & (_node.c.version == sa.bindparam("of_version"))
        delete = sa.delete(_node).where(self._cluster_condition() & this)
        with self.database.write_transaction() as connection:
            paths = [node.path for node in nodes]
            versions = {
                _as_text(row[0]): row[1] for row in self._select_from(connection, paths, _PATH, _node.c.version)
            }
            # Compared before: a batch of deletes does not say which rows it found.
            same = [node for node in nodes if versions.get(node.path) == node.version]
            for some in split_into_batches([{"of_path": node.path, "of_version": node.version} for node in same]):
                connection.execute(delete, some)
        return same

    def _viewed_nodes(self, paths: Sequence[str]) -> dict[str, Node | None]:
        """Return the documents, and None for the missing ones, at those of the paths that the view answers for."""
        view = self._views.current
        if view is None:
            return {}
        nodes = {path: view.nodes.get(path) for path in paths if view.covers(path)}
        return {path: node for path, node in nodes.items() if node is None or view.is_complete(node.data)}

    def _insert_missing(self, connection: sa.Connection, texts: Mapping[str, str]) -> dict[str, Node]:
        """Create those of the nodes that do not exist; return them."""
        # Numbers are drawn for nodes that turn out to exist, too: ids need to increase, and may have gaps.
        last = self.database.raise_counter(connection, IDS, by=len(texts))
        at_ms = int(connection.execute(sa.select(now_ms())).scalar_one())
        numbers = range(last - len(texts) + 1, last + 1)
        nodes = [
            Node(path, text, 0, number, number, at_ms, at_ms)
            for number, (path, text) in zip(numbers, texts.items(), strict=True)
        ]
        insert = self.database.dialect.insert_or_ignore(_node)
        for some in split_into_batches([{"cluster_id": self.database.cluster_id, **asdict(node)} for node in nodes]):
            connection.execute(insert, some)
        # What has another id was there before: the insert does not say what it has left as it was.
        ids = {row[0]: row[1] for row in self._select_from(connection, list(texts), _node.c.path, _node.c.created_id)}
        return {node.path: node for node in nodes if ids[node.path] == node.created_id}

    def _update(self, connection: sa.Connection, node: Node, text: str) -> Node | None:
        """Change a node that is unchanged since it was read; return None if it was changed or deleted."""
        this = self._cluster_condition() & (_node.c.path == node.path)
        changed = {
            "data": text,
            "version": _node.c.version + 1,
            "modified_id": self.database.next_counter_value(connection, IDS),
            "modified_ms": now_ms(),
        }
        update = sa.update(_node).where(this & (_node.c.version == node.version)).values(changed)
        row = self.database.dialect.change_and_return(connection, update, NODE_COLUMNS, this)
        return None if row is None else node_from_row(row)

    def _select_from(
        self, connection: sa.Connection, paths: Sequence[str], *columns: sa.ColumnElement[Any]
    ) -> list[Sequence[Any]]:
        return [
            row
            for some in split_into_batches(paths)
            for row in connection.execute(sa.select(*columns).where(self._cluster_condition() & _node.c.path.in_(some)))
        ]

    def _cluster_condition(self) -> sa.ColumnElement[bool]:
        return self.database.cluster_condition(_node)


def node_from_row(row: Sequence[Any]) -> Node:
    """Return the node in an untrusted row: a column may contain values that its type does not allow."""
    path, data, *numbers = row
    version, created_id, modified_id, created_ms, modified_ms = (
        number if isinstance(number, int) else 0 for number in numbers
    )
    times = (min(max(time, 0), MAX_NUMBER) for time in (created_ms, modified_ms))
    return Node(_as_text(path), _as_text(data), version, created_id, modified_id, *times)


def _as_text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
