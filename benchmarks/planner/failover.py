"""Leader changes and failover load of a rebalance by both rankings, with two and with three replicas."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.clusters import OPERATIONS, make_snapshot
from benchmarks.planner.table import table
from kafka_steward.planning.files.formats import SnapshotFolder, read_snapshot
from kafka_steward.planning.local import plan_locally

__all__ = ["failover"]

SIZES = (("expand", 10_000, 60),)
RANKINGS = ("leader-stability", "isr-order")
_HEAD = [
    "input",
    "`prefer`",
    "leader changes",
    "pairs in use",
    "most frequent pair",
    "sum of squares",
    "heaviest takeover",
]


def failover(sizes: Sequence[tuple[str, int, int]] = SIZES) -> str:
    """The table: what the pairs (preferred leader, next in line) are before, and after a plan of each ranking."""
    return table(_HEAD, [line for size in sizes for factor in (2, 3) for line in _lines(*size, factor)])


def _lines(scenario: str, partitions: int, brokers: int, factor: int) -> list[list[object]]:
    snapshot = _snapshot(scenario, partitions, brokers, factor)
    proofs = [plan_locally(snapshot, OPERATIONS[scenario], {"prefer": ranking})[1] for ranking in RANKINGS]
    name = f"{partitions:,} x {brokers} {scenario}, {factor} replicas".replace(",", " ", 1)
    lines = [[name, "before", "", *_pairs(proofs[0], "before")]]
    for ranking, proof in zip(RANKINGS, proofs, strict=True):
        lines.append(["", f"`{ranking}`", proof["leader_changes"], *_pairs(proof, "after")])
    return lines


def _pairs(proof: dict[str, Any], when: str) -> list[object]:
    found = proof["spread"]["next_in_line"][when]
    heaviest = found["heaviest"]
    return [found["pairs"], found["most"], found["squares"], f"{heaviest['partitions']} (leads {heaviest['leads']})"]


def _snapshot(scenario: str, partitions: int, brokers: int, factor: int) -> SnapshotFolder:
    """The made-up cluster, each partition with its first `factor` replicas."""
    with tempfile.TemporaryDirectory() as folder:
        make_snapshot(folder, scenario, partitions, brokers)
        snapshot = read_snapshot(folder)
    table = snapshot.partitions
    for name in ("replicas", "isr"):
        column = table.column(name)
        cut = pc.list_slice(column.combine_chunks(), 0, factor)
        table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), cut.cast(column.type))
    factors = pa.array(np.full(len(table), factor), table.schema.field("target_rf").type)
    return replace(
        snapshot, partitions=table.set_column(table.schema.get_field_index("target_rf"), "target_rf", factors)
    )
