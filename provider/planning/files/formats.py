"""Write, read and verify the files of a snapshot and of a plan; this module defines their columns and digests.

::

    a snapshot                                  a plan
    ├── brokers.parquet                         ├── plan.parquet    one row per move, in order
    ├── partitions.parquet                      ├── proof.json      movement, bound, balance, digest
    └── snapshot.json    cluster id, time, digest   └── review.md   the page for people, if a task made the plan

A digest is SHA-256 over UTF-8 lines. Each row is one line of JSON with sorted keys, exactly as `json.dumps` writes it.
Arrow builds the lines one column at a time. A million rows then take a second, and no Python object is created per row.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kafka_steward.assignment import Move
from kafka_steward.errors import PlanError
from kafka_steward.planning.files.storage import Folder

_INTS = pa.list_(pa.int32())
_BYTES = pa.list_(pa.int64())
_BATCH_ROWS = 100_000

#: `state` is one of live, failed, draining, down, new. A dead broker is failed if a heal is to replace it, else down. A
#: broker that is down receives nothing, and a partition that gets a replica elsewhere gives up its replica there. A
#: `cordoned` broker keeps its replicas and receives none (KIP-1066). A live one of which a log directory has failed is
#: `disk_failed`: see `spared_brokers`. A `demoted` one is to lead nothing. `room` has the bytes that each of its log
#: directories may still receive before less than `min_free` of its volume is free, `disk_total` the size of that volume
#: and `disk_used` what is used of it. A nullable column may be absent, which means unknown.
SNAPSHOT_BROKERS = pa.schema(
    [
        pa.field("broker", pa.int32(), nullable=False),
        pa.field("rack", pa.string()),
        pa.field("state", pa.string(), nullable=False),
        pa.field("capacity", pa.float64()),
        pa.field("room", _BYTES),
        pa.field("disk_total", _BYTES),
        pa.field("disk_used", _BYTES),
        pa.field("cordoned", pa.bool_()),
        pa.field("disk_failed", pa.bool_()),
        pa.field("demoted", pa.bool_()),
    ]
)

#: `replicas` is in Kafka's order: the first is the preferred leader. `leader` is -1 without one. `bytes` is the size
#: on the leader. `offline` lists the replicas on live brokers that a heal must replace, because their log directories
#: have failed. `all_offline` is true if no replica is live: all of them are on dead brokers, to be healed or not, or in
#: failed log directories. `bytes_per_s` is what producers bring into it, as a mean of the last hour. `log_dirs` has for
#: each replica the number of its log directory among those of `disk_total` of its broker, -1 if it is in none of them;
#: null if each of its brokers has only one. `order_before` has the replicas in their order before the demotions in
#: effect: null if none of them changed it, empty if something else has changed it since.
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
        pa.field("all_offline", pa.bool_()),
        pa.field("order_before", _INTS),
        pa.field("bytes_per_s", pa.float64()),
        pa.field("log_dirs", _INTS),
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

    Spark reads `partitions.parquet` again by itself: `uri` is the folder, empty for a snapshot that was not read, and
    `written` the schema of the file as stored.
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
        return moves_from_rows(self.rows)


def write_snapshot(uri: str, *, cluster_id: str, taken_ms: int, brokers: pa.Table, partitions: pa.Table) -> str:
    """Write a snapshot folder and return its digest. `uri` is a path or any address that fsspec opens.

    Optional columns may be left out. Raises PlanError when a required column is missing or the workspace cannot be
    written.
    """
    brokers = conform_to_schema(brokers, SNAPSHOT_BROKERS, "The brokers of the snapshot")
    partitions = conform_to_schema(partitions, SNAPSHOT_PARTITIONS, "The partitions of the snapshot")
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
    cluster_id, taken_ms = _require_field(head, "cluster_id", str, uri), _require_field(head, "taken_ms", int, uri)
    brokers = conform_to_schema(folder.read_table("brokers.parquet"), SNAPSHOT_BROKERS, f"brokers.parquet of {uri}")
    raw = folder.read_table("partitions.parquet")
    partitions = conform_to_schema(raw, SNAPSHOT_PARTITIONS, f"partitions.parquet of {uri}")
    digest = snapshot_digest(cluster_id, taken_ms, brokers, partitions)
    if head.get("digest") not in (None, digest):
        raise PlanError(f"The snapshot at {uri} was edited after it was taken: its digest differs; take a new one.")
    return SnapshotFolder(cluster_id, taken_ms, digest, brokers, partitions, raw.schema, uri)


def read_plan(uri: str) -> PlanFolder:
    """Read a plan, verified against the digest, which covers rows and proof.

    Raises PlanError when it is missing, unreadable, of another shape, or was edited.
    """
    folder = Folder(uri, "plan")
    proof = folder.read_json("proof.json")
    rows = conform_to_schema(folder.read_table("plan.parquet"), PLAN, f"plan.parquet of {uri}")
    rows = rows.sort_by([("chunk", "ascending"), ("position", "ascending")])
    for name, kind in {"cluster_id": str, "snapshot_digest": str, "operation": str, "options": dict}.items():
        _require_field(proof, name, kind, uri)
    if digest_with_proof(proof, rows) != _require_field(proof, "digest", str, uri):
        raise PlanError(f"The plan at {uri} was edited after it was made: its digest differs; make a new plan.")
    return PlanFolder(proof["digest"], proof, rows)


def write_plan(uri: str, rows: pa.Table, proof: dict[str, Any]) -> str:
    """Write a plan whose rows are in this process, and return its digest. `proof` needs all fields but the digest.

    Raises PlanError when the workspace cannot be written.
    """
    rows = conform_to_schema(rows, PLAN, "The plan")
    proof = {**proof, "digest": digest_with_proof(proof, rows)}
    folder = Folder(uri, "plan")
    folder.write_table("plan.parquet", rows)
    folder.write_json("proof.json", proof)
    return str(proof["digest"])


def plan_table(moves: Sequence[Move]) -> pa.Table:
    """Return moves as the rows of a plan."""
    same = ("topic", "topic_id", "partition", "before", "after", "chunk", "position")
    rows = [
        {name: getattr(move, name) for name in same}
        | {"adding": sorted(move.adding), "removing": sorted(move.removing)}
        | {"bytes": move.size_bytes, "reason": move.purpose}
        for move in moves
    ]
    return pa.Table.from_pylist(rows, PLAN)


def conform_to_schema(table: pa.Table, schema: pa.Schema, where: str) -> pa.Table:
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
        columns.append(_cast_column(table.column(field.name), field, where))
    return pa.Table.from_arrays(columns, schema=schema)


def min_isr_by_topic(partitions: pa.Table) -> dict[str, int | None]:
    """Return min.insync.replicas of each topic of a snapshot's partitions, None where it is not known."""
    topics = partitions.group_by("topic").aggregate([("min_isr", "max")])
    return {row["topic"]: row["min_isr_max"] for row in topics.to_pylist()}


def cordoned_brokers(brokers: pa.Table) -> list[int]:
    """Return the ids of a snapshot's cordoned brokers, sorted."""
    return sorted(row["broker"] for row in brokers.select(["broker", "cordoned"]).to_pylist() if row["cordoned"])


def spared_brokers(brokers: pa.Table, partitions: pa.Table) -> list[int]:
    """Return the live brokers with a failed log directory that a plan need not give a replica, sorted.

    Kafka creates no replica on a broker of which it had one in a log directory that has failed since, until the broker
    has restarted without that directory; and it does not say which those are. So such brokers receive nothing, unless
    the others are too few for the largest replication factor, or lack a rack.
    """
    rows = [row for row in brokers.to_pylist() if row["state"] in ("live", "new") and not row["cordoned"]]
    whole = [row for row in rows if not row["disk_failed"]]
    enough = len(whole) >= (pc.max(partitions.column("target_rf")).as_py() or 0)
    racks = {row["rack"] for row in whole}
    return sorted(row["broker"] for row in rows if row["disk_failed"] and row["rack"] in racks) if enough else []


def brokers_with_lost_replicas(partitions: pa.Table) -> list[int]:
    """Return the ids of the live brokers with replicas that a heal must replace, sorted."""
    return sorted(pc.unique(pc.list_flatten(partitions.column("offline"))).to_pylist())


def _cast_column(column: pa.ChunkedArray, field: pa.Field, where: str) -> pa.ChunkedArray:
    try:
        cast = column.cast(field.type)
    except pa.ArrowException as error:
        raise PlanError(
            f"{where} cannot be used: the column {field.name} holds {column.type}, not {field.type}."
        ) from error
    # A list may itself be there and hold empty values, which its own null count does not see.
    empty = cast.null_count
    if pa.types.is_list(field.type):
        empty += pc.any(pc.is_null(pc.list_flatten(cast))).as_py() or 0
    if empty and not field.nullable:
        raise PlanError(f"{where} cannot be used: the column {field.name} has empty values.")
    return cast


def _require_field(head: dict[str, Any], name: str, kind: type, uri: str) -> Any:
    value = head.get(name)
    if not isinstance(value, kind):
        raise PlanError(f"The description at {uri} cannot be used: its field {name} is missing or no {kind.__name__}.")
    return value


def moves_from_rows(rows: pa.Table) -> list[Move]:
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


class RowHasher:
    """A SHA-256 over lines. The same lines in the same order give the same digest, however they are batched."""

    def __init__(self, *header: str) -> None:
        self._sha = hashlib.sha256()
        for line in header:
            self._sha.update(f"{line}\n".encode())

    def hash_rows(self, table: pa.Table) -> None:
        """Hash each row as one line, in the table's order."""
        for lines in json_lines(table):
            for chunk in pc.binary_join_element_wise(lines, "", "\n").chunks:
                # The third buffer of an array of texts has the bytes of all of them: no text is copied.
                self._sha.update(memoryview(chunk.buffers()[2]) if len(chunk) else b"")

    def hexdigest(self) -> str:
        """Return the digest so far as 64 hexadecimal digits."""
        return self._sha.hexdigest()


def snapshot_digest(cluster_id: str, taken_ms: int, brokers: pa.Table, partitions: pa.Table) -> str:
    """Return the digest of a snapshot: cluster id, time, brokers by id, partitions by topic and number."""
    hasher = RowHasher(cluster_id, str(taken_ms))
    hasher.hash_rows(brokers.sort_by("broker"))
    hasher.hash_rows(partitions.sort_by([("topic", "ascending"), ("partition", "ascending")]))
    return hasher.hexdigest()


def digest_with_proof(proof: Mapping[str, Any], rows: pa.Table) -> str:
    """Return the digest of a plan with a proof. It covers the proof, and the rows by (chunk, position).

    The digest of a plan thus covers everything that a person reads before approving it.
    """
    # Hash the proof as it will be read back: JSON has no integer keys, and integer keys would be sorted in another
    # order.
    read = json.loads(json.dumps({name: value for name, value in proof.items() if name != "digest"}))
    return _finish_digest(RowHasher(json.dumps(read, sort_keys=True)), rows)


def plan_digest(cluster_id: str, snapshot: str, operation: str, options: Mapping[str, Any], rows: pa.Table) -> str:
    """Return the digest of a plan without a proof, such as a rollback.

    It covers cluster id, snapshot digest, operation, options, and then the rows by (chunk, position).
    """
    return _finish_digest(RowHasher(cluster_id, snapshot, operation, json.dumps(options, sort_keys=True)), rows)


def _finish_digest(hasher: RowHasher, rows: pa.Table) -> str:
    hasher.hash_rows(rows.sort_by([("chunk", "ascending"), ("position", "ascending")]))
    return hasher.hexdigest()


def json_lines(table: pa.Table) -> Iterator[pa.ChunkedArray]:
    """Yield the rows as `json.dumps(row, sort_keys=True, ensure_ascii=False)` writes them, in batches."""
    names = sorted(table.column_names)
    for start in range(0, table.num_rows, _BATCH_ROWS):
        batch = table.slice(start, _BATCH_ROWS)
        parts: list[Any] = []
        for index, name in enumerate(names):
            parts += ["{" if index == 0 else ", ", f"{json.dumps(name)}: ", _json_texts(batch.column(name))]
        joined = pc.binary_join_element_wise(*parts, "}", "")
        yield joined if isinstance(joined, pa.ChunkedArray) else pa.chunked_array([joined])


def _json_texts(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
        offsets = pa.array([0, *lengths.cumsum().tolist()], pa.int32())
        texts = pa.ListArray.from_arrays(offsets, array.flatten().cast(pa.string()))
        bracketed = pc.binary_join_element_wise("[", pc.binary_join(texts, ", "), "]", "")
        return pc.if_else(array.is_null(), "null", bracketed)
    if pa.types.is_integer(array.type):
        return pc.fill_null(array.cast(pa.string()), "null")
    # Texts, floats and booleans repeat: Python writes each distinct value once.
    encoded = array.dictionary_encode()
    words = [json.dumps(value, ensure_ascii=False) for value in encoded.dictionary.to_pylist()]
    return pc.fill_null(pa.array(words, pa.string()).take(encoded.indices), "null")
