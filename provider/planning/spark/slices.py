"""Sharding: whole topics in order of their names, packed up to a size that depends on nothing but the data."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["SLICE_ROWS", "boundaries"]

#: Approximate partitions per shard: enough to make one solve worth its start, few enough to fit every executor.
SLICE_ROWS = 30_000


def boundaries(topics: pa.ChunkedArray, rows: int = SLICE_ROWS) -> list[str]:
    """Return the first topic of each shard but the first, given the topic of every partition."""
    if len(topics) == 0:
        return []
    counts = pc.value_counts(topics)
    order = pc.sort_indices(counts.field("values"))
    names, count = counts.field("values").take(order), counts.field("counts").take(order).to_numpy()
    # As many shards as needed, all of about equal size, so that they end together however many run at once.
    part = -(-len(topics) // -(-len(topics) // rows))
    slices = (2 * np.cumsum(count) - count) // (2 * part)
    return [names[at + 1].as_py() for at in np.flatnonzero(np.diff(slices)).tolist()]
