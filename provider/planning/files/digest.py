"""Digests: SHA-256 over UTF-8 lines, of which the rows are JSON with sorted keys, exactly as `json.dumps` writes them.

The lines are made by Arrow, a column at a time, so that a million rows take a second and no Python object each.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Hasher", "json_lines", "plan_digest", "proven_digest", "proven_hasher", "snapshot_digest"]

_BATCH_ROWS = 100_000
#: Columns of a snapshot that came with 0.2.
_LATER = ("cordoned", "offline")


class Hasher:
    """A SHA-256 that takes lines. The same lines in the same order give the same digest, however they are batched."""

    def __init__(self, *header: str) -> None:
        self._sha = hashlib.sha256()
        for line in header:
            self._sha.update(f"{line}\n".encode())

    def rows(self, table: pa.Table) -> None:
        """Take each row as one line, in the table's order."""
        for lines in json_lines(table):
            for chunk in pc.binary_join_element_wise(lines, "", "\n").chunks:
                self._sha.update(memoryview(chunk.buffers()[2]) if len(chunk) else b"")

    def hexdigest(self) -> str:
        """The digest so far, in 64 hexadecimal digits."""
        return self._sha.hexdigest()


def snapshot_digest(cluster_id: str, taken_ms: int, brokers: pa.Table, partitions: pa.Table) -> str:
    """The digest of a snapshot: cluster id, time, brokers by id, partitions by topic and number."""
    hasher = Hasher(cluster_id, str(taken_ms))
    hasher.rows(_without_unsaid(brokers).sort_by("broker"))
    hasher.rows(_without_unsaid(partitions).sort_by([("topic", "ascending"), ("partition", "ascending")]))
    return hasher.hexdigest()


def _without_unsaid(table: pa.Table) -> pa.Table:
    """`table` without the columns of a later version that say nothing: the digest is then what it was before them."""
    unsaid = [name for name in _LATER if name in table.column_names and table[name].null_count == len(table)]
    return table.drop_columns(unsaid)


def proven_hasher(proof: Mapping[str, Any]) -> Hasher:
    """Return a hasher that has taken a plan's proof, without its digest; its rows by (chunk, position) come next.

    What a person reads of a plan before they approve it is in its digest.
    """
    # As it is read back: JSON has no numbers for keys, and would sort them in another order.
    read = json.loads(json.dumps({name: value for name, value in proof.items() if name != "digest"}))
    return Hasher(json.dumps(read, sort_keys=True))


def proven_digest(proof: Mapping[str, Any], rows: pa.Table) -> str:
    """Return the digest of a plan with a proof: of that, and of the rows by (chunk, position)."""
    return _digest(proven_hasher(proof), rows)


def plan_digest(cluster_id: str, snapshot: str, operation: str, options: Mapping[str, Any], rows: pa.Table) -> str:
    """Return the digest of a plan without a proof, such as a rollback.

    Of cluster id, snapshot digest, operation, options, then the rows by (chunk, position).
    """
    return _digest(Hasher(cluster_id, snapshot, operation, json.dumps(options, sort_keys=True)), rows)


def _digest(hasher: Hasher, rows: pa.Table) -> str:
    hasher.rows(rows.sort_by([("chunk", "ascending"), ("position", "ascending")]))
    return hasher.hexdigest()


def json_lines(table: pa.Table) -> Iterator[pa.ChunkedArray]:
    """The rows as `json.dumps(row, sort_keys=True, ensure_ascii=False)` writes them, some at a time."""
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
