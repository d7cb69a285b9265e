"""Trees as someone may write them who means harm, or only makes a mistake: names, values, sizes, columns.

Written past our own code: by statements into `steward_node`, or by kazoo. What a backend itself refuses is left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from hypothesis import strategies as st
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

__all__ = ["ROOTS", "HostileNode", "Writer", "kazoo_writer", "sql_writer", "trees"]

#: Where others, or we, keep one node per thing; and where there is one node only. The switch is not among them: that it
#: is there stops everything, whatever it holds, and is meant to.
ROOTS = (
    "/admin/failed_brokers",
    "/admin/rolling_bounce",
    "/admin/reassignment_requests",
    "/admin/reassign_chunks",
    "/admin/reassignments",
    "/admin/reassignments/u",
)
_SINGLE = (
    "/admin/cancel_reassignment_in_progress",
    "/admin/reassign_partitions_queue",
)
#: An announcement of these holds up what moves beside them, whatever it says, and is meant to.
_MEANT = {"/admin/rolling_bounce/1", "/admin/rolling_bounce/2", "/admin/rolling_bounce/77"}
_NAMES = (
    "99999999999",
    "3\n",
    "0003",
    "2",
    "4",
    "foo",
    "-1",
    "٣",
    "9" * 5000,
    "my topic",
    "t",
    "u",
    "..",
    ".",
    "",
    "request_" + "7" * 5000,
    "request_0000000001",
    "by\nhand",
    "x" * 1100,
    "\x1b[31mred",
    "\u202egnp.exe",
    "=1+1",
    "a|b`c*",
    "tab\there",
    "%s%n",
    "'; DROP TABLE steward_node; --",
    "0/1",
    "deep/er/still",
    "follower.replication.throttled.rate",
)
_VALUES = (
    "",
    "{",
    "[]",
    "null",
    '"text"',
    "NaN",
    '{"failure_timestamp": 99999999999999999999}',
    '{"failure_timestamp": 1e400}',
    '{"timestamp": 1, "expiry": 1' + "0" * 400 + "}",
    '{"timestamp": 9007199254740991, "expiry": 9007199254740991}',
    '{"replicas": [1, 2], "plan": "not a digest!"}',
    '{"replicas": [1, 2], "plan": "/"}',
    '{"replicas": [99999999999]}',
    '{"replicas": [1, 2], "original_replicas": [2, 1], "plan": "abc"}',
    '{"plan": "bad digest!"}',
    '{"plan": "abc", "person": "\\ud800", "reason": "\\u001b[2J\\u202e"}',
    '{"version": 2}',
    '{"version": 1' + "0" * 4000 + "}",
    '{"version": true}',
    '{"partitions": [{"topic": "my topic", "partition": 0, "replicas": [1]}]}',
    '{"partitions": [{"topic": "", "partition": 0, "replicas": [1]}]}',
    '{"partitions": [{"topic": "' + "t" * 300 + '", "partition": 0, "replicas": [1]}]}',
    '{"partitions": [{"topic": "u", "partition": 100000000000000000000, "replicas": [1]}]}',
    '{"partitions": [{"topic": "\\ud800", "partition": 0, "replicas": [1]}]}',
    '{"partitions": [{"topic": "u", "partition": 0, "replicas": [3, 1], "x": 1e400}]}',
    '{"partitions": [{"topic": "u", "partition": 0, "replicas": [3, 2]}], "extra": "\\u0000\\u202e"}',
    '{"assignments": {"u": {"' + "1" * 5000 + '": [1]}, "a b": {"0": [1]}}}',
    '{"a":' * 900 + "1" + "}" * 900,
    "[" * 100_000,
    '{"reason": "' + "r" * 900_000 + '"}',
    "x" * 1_200_000,
    "nul \x00 inside",
    "\u202eright to left\x1b]0;title\x07",
)
#: Bytes that are no UTF-8.
_BYTES = (b"\xff\xfe{", b'{"failure_timestamp": "\x80"}')
_KEYS = st.sampled_from(
    (
        *("version", "partitions", "assignments", "topic", "partition", "replicas", "original_replicas", "plan"),
        *("timestamp", "expiry", "scope", "person", "failure_timestamp", "reason", "legacy", "top", "entries"),
        *("before", "ours", "status", "who", "digest", "count", "brokers", "known", "disabled"),
    )
) | st.text(max_size=5)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.integers(0, 5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=5),
    max_leaves=8,
)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@dataclass(frozen=True)
class HostileNode:
    """`numbers` stand in for the columns version, created_id, modified_id, created_ms and modified_ms."""

    path: str
    data: str | bytes
    numbers: tuple[int, int, int, int, int]


_PATHS = st.builds(lambda root, name: f"{root}/{name}", st.sampled_from(ROOTS), st.sampled_from(_NAMES) | _TEXT).filter(
    lambda path: path not in _MEANT
)
_NUMBERS = st.tuples(
    st.sampled_from([0, 0, 5, -1]),
    st.integers(1, 2**40),
    st.integers(1, 2**40),
    st.sampled_from([1_763_712_000_000, 0, -5, 10**18, 2**62]),
    st.sampled_from([1_763_712_000_000, 0, -5, 10**18, 2**62]),
)
_NODES = st.builds(
    HostileNode,
    _PATHS | st.sampled_from(_SINGLE),
    st.sampled_from([*_VALUES, *_BYTES]) | _JSON.map(json.dumps) | _TEXT,
    _NUMBERS,
)


def trees() -> st.SearchStrategy[list[HostileNode]]:
    """Up to eight nodes; a failure prints them in a form that can be pasted back."""
    return st.lists(_NODES, min_size=1, max_size=8, unique_by=lambda node: node.path)


Writer = Callable[[Iterable[HostileNode]], int]
_INSERT = """
INSERT INTO steward_node (cluster_id, path, data, version, created_id, modified_id, created_ms, modified_ms)
VALUES (:cluster, :path, :data, :version, :created_id, :modified_id, :created_ms, :modified_ms)
"""
_COLUMNS = ("version", "created_id", "modified_id", "created_ms", "modified_ms")


def sql_writer(engine: sa.Engine, cluster_id: str) -> Writer:
    """Write into a database, each node by a statement of its own; returns how many it took."""

    def write(nodes: Iterable[HostileNode]) -> int:
        return sum(_insert(engine, cluster_id, node) for node in nodes)

    return write


def _insert(engine: sa.Engine, cluster_id: str, node: HostileNode) -> bool:
    data: Any = node.data
    statement = _INSERT
    if isinstance(data, bytes):
        if engine.dialect.name != "sqlite":
            return False
        statement = _INSERT.replace(":data", "CAST(:data AS TEXT)")
    values = {"cluster": cluster_id, "path": node.path, "data": data, **dict(zip(_COLUMNS, node.numbers, strict=True))}
    try:
        with engine.begin() as connection:
            connection.execute(sa.text(statement), values)
    except (sa.exc.SQLAlchemyError, UnicodeError, ValueError):
        return False
    return True


def kazoo_writer(client: KazooClient, chroot: str) -> Writer:
    """Write into ZooKeeper; returns how many nodes it took."""

    def write(nodes: Iterable[HostileNode]) -> int:
        return sum(_create(client, chroot, node) for node in nodes)

    return write


def _create(client: KazooClient, chroot: str, node: HostileNode) -> bool:
    data = node.data if isinstance(node.data, bytes) else node.data.encode()
    if len(data) > 1_000_000:
        return False  # above jute.maxbuffer: the server would end the connection
    try:
        client.create(f"{chroot}{node.path}", data, makepath=True)
    except (KazooException, ValueError, UnicodeError):
        return False
    return True
