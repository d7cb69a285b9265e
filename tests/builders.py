"""Clusters from one line of text, and snapshot folders of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from kafka_steward.planning.files.formats import (
    SNAPSHOT_BROKERS,
    SNAPSHOT_PARTITIONS,
    SnapshotFolder,
    snapshot_digest,
    write_snapshot,
)
from tests.local_plan import plan_with, planned

__all__ = ["EVEN", "cluster", "plan_with", "planned", "snapshot_of", "written"]

#: The option that asks a drain, too, to even out.
EVEN = {"balance": "replicas"}
STATES = {"!": "failed", "-": "draining", "?": "down", "+": "new"}


def snapshot_of(
    brokers: list[dict[str, Any]], partitions: list[dict[str, Any]], cluster_id: str = "c"
) -> SnapshotFolder:
    """A snapshot in memory, from rows as the formats have them; what is not given is the usual."""
    full = [
        {"isr": row["replicas"], "leader": row["replicas"][0], "target_rf": len(row["replicas"]), **row}
        for row in partitions
    ]
    broker_table = pa.Table.from_pylist(brokers, SNAPSHOT_BROKERS)
    table = pa.Table.from_pylist(full, SNAPSHOT_PARTITIONS)
    digest = snapshot_digest(cluster_id, 1, broker_table, table)
    return SnapshotFolder(cluster_id, 1, digest, broker_table, table)


def cluster(brokers: str, *topics: str) -> SnapshotFolder:
    """`cluster("1a 2b! 3c", "t: 12 23/2")`: ids with rack and state, digits are ids.

    States are ! failed, - draining, ? down, + new. `12/1` is a partition of which only broker 1 is in sync.
    """
    rows = [
        {
            "broker": int(word.strip("!-?+abcdefgh")),
            "rack": word.strip("!-?+0123456789") or None,
            "state": STATES.get(word[-1], "live"),
        }
        for word in brokers.split()
    ]
    parts = []
    for line in topics:
        name, _, words = line.partition(":")
        for number, word in enumerate(words.split()):
            ids, _, isr = word.partition("/")
            replicas = [int(digit) for digit in ids]
            in_sync = [int(digit) for digit in isr] if isr else replicas
            parts.append({"topic": name, "partition": number, "replicas": replicas, "isr": in_sync, "bytes": 1000})
    return snapshot_of(rows, parts)


def written(snapshot: SnapshotFolder, folder: Path | str) -> str:
    """Write a snapshot to a folder; returns its address."""
    write_snapshot(
        str(folder),
        cluster_id=snapshot.cluster_id,
        taken_ms=snapshot.taken_ms,
        brokers=snapshot.brokers,
        partitions=snapshot.partitions,
    )
    return str(folder)
