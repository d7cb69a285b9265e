"""SHA-256 digests over UTF-8 lines. Each row is one line of JSON with sorted keys, exactly as `json.dumps` writes it.

Arrow builds the lines one column at a time. A million rows then take a second, and no Python object is created per row.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_BATCH_ROWS = 100_000
#: Snapshot columns that were added in 0.2.
_LATER = ("cordoned", "offline")


class Hasher:
    """A SHA-256 over lines. The same lines in the same order give the same digest, however they are batched."""

    def __init__(self, *header: str) -> None:
        self._sha = hashlib.sha256()
        for line in header:
            self._sha.update(f"{line}\n".encode())

    def rows(self, table: pa.Table) -> None:
        """Hash each row as one line, in the table's order."""
        for lines in json_lines(table):
            for chunk in pc.binary_join_element_wise(lines, "", "\n").chunks:
                self._sha.update(memoryview(chunk.buffers()[2]) if len(chunk) else b"")

    def hexdigest(self) -> str:
        """Return the digest so far as 64 hexadecimal digits."""
        return self._sha.hexdigest()


def snapshot_digest(cluster_id: str, taken_ms: int, brokers: pa.Table, partitions: pa.Table) -> str:
    """Return the digest of a snapshot: cluster id, time, brokers by id, partitions by topic and number."""
    hasher = Hasher(cluster_id, str(taken_ms))
    hasher.rows(_without_empty_columns(brokers).sort_by("broker"))
    hasher.rows(_without_empty_columns(partitions).sort_by([("topic", "ascending"), ("partition", "ascending")]))
    return hasher.hexdigest()


def _without_empty_columns(table: pa.Table) -> pa.Table:
    """Return `table` without later columns that hold only nulls, so that its digest is the old one."""
    empty = [name for name in _LATER if name in table.column_names and table[name].null_count == len(table)]
    return table.drop_columns(empty)


def proven_hasher(proof: Mapping[str, Any]) -> Hasher:
    """Return a hasher that has consumed a plan's proof without its digest; the rows by (chunk, position) come next.

    The digest of a plan thus covers everything that a person reads before approving it.
    """
    # Hash the proof as it will be read back: JSON has no integer keys, and integer keys would be sorted in another
    # order.
    read = json.loads(json.dumps({name: value for name, value in proof.items() if name != "digest"}))
    return Hasher(json.dumps(read, sort_keys=True))


def proven_digest(proof: Mapping[str, Any], rows: pa.Table) -> str:
    """Return the digest of a plan with a proof. It covers the proof and the rows by (chunk, position)."""
    return _digest(proven_hasher(proof), rows)


def plan_digest(cluster_id: str, snapshot: str, operation: str, options: Mapping[str, Any], rows: pa.Table) -> str:
    """Return the digest of a plan without a proof, such as a rollback.

    It covers cluster id, snapshot digest, operation, options, and then the rows by (chunk, position).
    """
    return _digest(Hasher(cluster_id, snapshot, operation, json.dumps(options, sort_keys=True)), rows)


def _digest(hasher: Hasher, rows: pa.Table) -> str:
    hasher.rows(rows.sort_by([("chunk", "ascending"), ("position", "ascending")]))
    return hasher.hexdigest()


def json_lines(table: pa.Table) -> Iterator[pa.ChunkedArray]:
    """Yield the rows as `json.dumps(row, sort_keys=True, ensure_ascii=False)` writes them, in batches."""
    names = sorted(table.column_names)
    for start in range(0, table.num_rows, _BATCH_ROWS):
        batch = table.slice(start, _BATCH_ROWS)
        parts: list[Any] = []
        for index, name in enumerate(names):
            parts += ["{" if index == 0 else ", ", f"{json.dumps(name)}: ", _texts(batch.column(name))]
        joined = pc.binary_join_element_wise(*parts, "}", "")
        yield joined if isinstance(joined, pa.ChunkedArray) else pa.chunked_array([joined])


def _texts(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        return _list_texts(array)
    if pa.types.is_integer(array.type):
        return pc.fill_null(array.cast(pa.string()), "null")
    return _dictionary_texts(array)


def _list_texts(array: pa.Array) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array([0, *lengths.cumsum().tolist()], pa.int32())
    texts = pa.ListArray.from_arrays(offsets, array.flatten().cast(pa.string()))
    bracketed = pc.binary_join_element_wise("[", pc.binary_join(texts, ", "), "]", "")
    return pc.if_else(array.is_null(), "null", bracketed)


def _dictionary_texts(array: pa.Array) -> pa.Array:
    encoded = array.dictionary_encode()
    words = [json.dumps(value, ensure_ascii=False) for value in encoded.dictionary.to_pylist()]
    return pc.fill_null(pa.array(words, pa.string()).take(encoded.indices), "null")
