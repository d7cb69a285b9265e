"""The files of a snapshot and of a plan: their columns, and how they are written, read and verified.

::

    a snapshot                                  a plan
    ├── brokers.parquet                         ├── plan.parquet    one row per move, in order
    ├── partitions.parquet                      ├── proof.json      movement, bound, balance, digest
    └── snapshot.json    cluster id, time, digest   └── review.md   the page for people, if a task made the plan
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kafka_steward.assignment import Move
from kafka_steward.errors import PlanError
from kafka_steward.planning.files.digest import plan_digest, proven_digest, snapshot_digest
from kafka_steward.planning.files.storage import Folder

_INTS = pa.list_(pa.int32())

#: `state` is one of live, failed, draining, new. A `cordoned` broker keeps its replicas and receives none (KIP-1066). A
#: nullable column may be absent, which means unknown.
SNAPSHOT_BROKERS = pa.schema(
    [
        pa.field("broker", pa.int32(), nullable=False),
        pa.field("rack", pa.string()),
        pa.field("state", pa.string(), nullable=False),
        pa.field("capacity", pa.float64()),
        pa.field("usable_bytes", pa.int64()),
        pa.field("cordoned", pa.bool_()),
    ]
)

#: `replicas` is in Kafka's order: the first is the preferred leader. `bytes` is the size on the leader. `offline` lists
#: the replicas on live brokers that a heal must replace, because their log directories have failed.
SNAPSHOT_PARTITIONS = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("topic_id", pa.string()),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("replicas", _INTS, nullable=False),
        pa.field("isr", _INTS, nullable=False),
        pa.field("leader", pa.int32(), nullable=False),
        pa.field("adding", _INTS),
        pa.field("removing", _INTS),
        pa.field("target_rf", pa.int32(), nullable=False),
        pa.field("min_isr", pa.int32()),
        pa.field("bytes", pa.int64()),
        pa.field("offline", _INTS),
    ]
)

PLAN = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("topic_id", pa.string()),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("before", _INTS, nullable=False),
        pa.field("after", _INTS, nullable=False),
        pa.field("adding", _INTS, nullable=False),
        pa.field("removing", _INTS, nullable=False),
        pa.field("bytes", pa.int64()),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("chunk", pa.int32(), nullable=False),
        pa.field("position", pa.int32(), nullable=False),
    ]
)


@dataclass(frozen=True)
class SnapshotFolder:
    """A snapshot as read. `taken_ms` is in milliseconds since 1970; the tables have the schemas above.

    `uri` and `written`, the schema of `partitions.parquet` as stored, are for callers that read the file by other
    means; `uri` is empty for a snapshot that was not read.
    """

    cluster_id: str
    taken_ms: int
    digest: str
    brokers: pa.Table
    partitions: pa.Table
    written: pa.Schema = SNAPSHOT_PARTITIONS
    uri: str = ""


@dataclass(frozen=True)
class PlanFolder:
    """A plan as read: its proof, and its rows by (chunk, position)."""

    digest: str
    proof: dict[str, Any]
    rows: pa.Table

    @cached_property
    def moves(self) -> list[Move]:
        """The rows as moves."""
        return moves_of(self.rows)


def write_snapshot(uri: str, *, cluster_id: str, taken_ms: int, brokers: pa.Table, partitions: pa.Table) -> str:
    """Write a snapshot folder and return its digest. `uri` is a path or any address that fsspec opens.

    Optional columns may be left out. Raises PlanError when a required column is missing or the workspace cannot be
    written.
    """
    brokers = conformed(brokers, SNAPSHOT_BROKERS, "The brokers of the snapshot")
    partitions = conformed(partitions, SNAPSHOT_PARTITIONS, "The partitions of the snapshot")
    digest = snapshot_digest(cluster_id, taken_ms, brokers, partitions)
    folder = Folder(uri, "snapshot")
    folder.write_table("brokers.parquet", brokers)
    folder.write_table("partitions.parquet", partitions)
    # Written last: a folder that contains this file is complete.
    folder.write_json("snapshot.json", {"cluster_id": cluster_id, "taken_ms": taken_ms, "digest": digest})
    return digest


def read_snapshot(uri: str) -> SnapshotFolder:
    """Read a snapshot. Raises PlanError when it is missing, unreadable, of another shape, or was edited."""
    folder = Folder(uri, "snapshot")
    head = folder.read_json("snapshot.json")
    cluster_id, taken_ms = _field(head, "cluster_id", str, uri), _field(head, "taken_ms", int, uri)
    brokers = conformed(folder.read_table("brokers.parquet"), SNAPSHOT_BROKERS, f"brokers.parquet of {uri}")
    raw = folder.read_table("partitions.parquet")
    partitions = conformed(raw, SNAPSHOT_PARTITIONS, f"partitions.parquet of {uri}")
    digest = snapshot_digest(cluster_id, taken_ms, brokers, partitions)
    if head.get("digest") not in (None, digest):
        raise PlanError(f"The snapshot at {uri} was edited after it was taken: its digest differs; take a new one.")
    return SnapshotFolder(cluster_id, taken_ms, digest, brokers, partitions, raw.schema, uri)


def read_plan_table(uri: str) -> tuple[pa.Table, dict[str, Any]]:
    """Return a plan's rows by (chunk, position) and its proof, verified against the digest, which covers both.

    Raises PlanError, also for a plan of an earlier version, whose digest covers its rows alone.
    """
    folder = Folder(uri, "plan")
    proof = folder.read_json("proof.json")
    rows = conformed(folder.read_table("plan.parquet"), PLAN, f"plan.parquet of {uri}")
    rows = rows.sort_by([("chunk", "ascending"), ("position", "ascending")])
    cluster_id, snapshot = _field(proof, "cluster_id", str, uri), _field(proof, "snapshot_digest", str, uri)
    operation, options = _field(proof, "operation", str, uri), _field(proof, "options", dict, uri)
    digest = _field(proof, "digest", str, uri)
    if proven_digest(proof, rows) == digest:
        return rows, proof
    if plan_digest(cluster_id, snapshot, operation, options, rows) == digest:
        raise PlanError(
            f"The plan at {uri} is of an earlier version: its digest leaves out its proof; make a new plan."
        )
    raise PlanError(f"The plan at {uri} was edited after it was made: its digest differs; make a new plan.")


def read_plan(uri: str) -> PlanFolder:
    """Read a plan. Raises PlanError when it is missing, unreadable, of another shape, or was edited."""
    rows, proof = read_plan_table(uri)
    return PlanFolder(proof["digest"], proof, rows)


def write_plan(uri: str, rows: pa.Table, proof: dict[str, Any]) -> str:
    """Write a plan that was not made by Spark, and return its digest. `proof` needs all fields but the digest.

    Raises PlanError when the workspace cannot be written.
    """
    rows = conformed(rows, PLAN, "The plan")
    proof = {**proof, "digest": proven_digest(proof, rows)}
    folder = Folder(uri, "plan")
    folder.write_table("plan.parquet", rows)
    folder.write_json("proof.json", proof)
    return str(proof["digest"])


def plan_table(moves: Sequence[Move]) -> pa.Table:
    """Return moves as the rows of a plan."""
    rows = [
        {
            "topic": move.topic,
            "topic_id": move.topic_id,
            "partition": move.partition,
            "before": list(move.before),
            "after": list(move.after),
            "adding": sorted(move.adding),
            "removing": sorted(move.removing),
            "bytes": move.size_bytes,
            "reason": move.purpose,
            "chunk": move.chunk,
            "position": move.position,
        }
        for move in moves
    ]
    return pa.Table.from_pylist(rows, PLAN)


def conformed(table: pa.Table, schema: pa.Schema, where: str) -> pa.Table:
    """Return `table` with the columns of `schema`, in its order and types. Absent optional columns become null.

    Raises PlanError when a required column is missing or has nulls, or when a column has an incompatible type.
    """
    columns = []
    for field in schema:
        if field.name not in table.column_names:
            if not field.nullable:
                raise PlanError(f"{where} cannot be used: the column {field.name} is missing.")
            columns.append(pa.nulls(table.num_rows, field.type))
            continue
        columns.append(_column(table.column(field.name), field, where))
    return pa.Table.from_arrays(columns, schema=schema)


def cordoned_in(brokers: pa.Table) -> list[int]:
    """Return the ids of a snapshot's cordoned brokers, sorted."""
    return sorted(row["broker"] for row in brokers.select(["broker", "cordoned"]).to_pylist() if row["cordoned"])


def offline_in(partitions: pa.Table) -> list[int]:
    """Return the ids of the live brokers with replicas that a heal must replace, sorted."""
    return sorted(pc.unique(pc.list_flatten(partitions.column("offline"))).to_pylist())


def _column(column: pa.ChunkedArray, field: pa.Field, where: str) -> pa.ChunkedArray:
    try:
        cast = column.cast(field.type)
    except pa.ArrowException as error:
        raise PlanError(
            f"{where} cannot be used: the column {field.name} holds {column.type}, not {field.type}."
        ) from error
    empty = cast.null_count
    if pa.types.is_list(field.type):
        empty += pc.any(pc.is_null(pc.list_flatten(cast))).as_py() or 0
    if empty and not field.nullable:
        raise PlanError(f"{where} cannot be used: the column {field.name} has empty values.")
    return cast


def _field(head: dict[str, Any], name: str, kind: type, uri: str) -> Any:
    value = head.get(name)
    if not isinstance(value, kind):
        raise PlanError(f"The description at {uri} cannot be used: its field {name} is missing or no {kind.__name__}.")
    return value


def moves_of(rows: pa.Table) -> list[Move]:
    """Return the rows of a plan as moves."""
    return [
        Move(
            topic=row["topic"],
            partition=row["partition"],
            before=tuple(row["before"]),
            after=tuple(row["after"]),
            chunk=row["chunk"],
            position=row["position"],
            purpose=row["reason"],
            topic_id=row["topic_id"],
            size_bytes=row["bytes"],
        )
        for row in rows.to_pylist()
    ]
