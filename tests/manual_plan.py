"""Plans that a person wrote by hand, of real clusters: snapshot, plan folder, publication."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kafka_steward.assignment import Move
from kafka_steward.execution.plans.snapshot import take_snapshot
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.journal.store import Journal
from kafka_steward.planning.files.formats import PlanFolder, plan_table, read_plan, read_snapshot, write_plan

__all__ = ["plan_by_hand"]


def plan_by_hand(
    cluster: ClusterPort,
    journal: Journal,
    folder: Path,
    moves: Sequence[Move],
    *,
    operation: str = "apply",
    failed: Sequence[int] = (),
    **options: Any,
) -> PlanFolder:
    """The plan of these moves, made now; plans with other `options` have other digests."""
    take_snapshot(cluster, str(folder / "snapshot"), failed=failed, now_ms=journal.now_ms())
    snapshot = read_snapshot(str(folder / "snapshot"))
    proof = {
        "cluster_id": snapshot.cluster_id,
        "snapshot_digest": snapshot.digest,
        "operation": operation,
        "options": options,
        "brokers_failed": list(failed),
    }
    write_plan(str(folder / "plan"), plan_table(moves), proof)
    return read_plan(str(folder / "plan"))
