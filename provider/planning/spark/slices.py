"""Cutting the work: whole topics in order of their names, packed up to a size that depends on nothing but the data."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["SLICE_ROWS", "boundaries"]

#: Partitions in a slice: enough to make one solve worth its start, few enough to fit every executor.
SLICE_ROWS = 30_000


def boundaries(topics: pa.ChunkedArray, rows: int = SLICE_ROWS) -> list[str]:
    """The first topic of each slice but the first one, given the topic of every partition."""
    counts = pc.value_counts(topics)
    order = pc.sort_indices(counts.field("values"))
    first, held = [], 0
    for name, count in zip(
        counts.field("values").take(order).to_pylist(), counts.field("counts").take(order).to_pylist(), strict=True
    ):
        if held and held + count > rows:
            first.append(name)
            held = 0
        held += count
    return first
