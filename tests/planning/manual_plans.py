"""Plans written by hand, to be judged: what is not given is as a planner would have it."""

from __future__ import annotations

from typing import Any

from kafka_steward.assignment import Move
from kafka_steward.planning.checker.rules import CheckContext, build_context
from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder
from tests.builders import plan_with

__all__ = ["context", "move", "plan_of"]


def context(snapshot: SnapshotFolder, operation: str, options: dict[str, Any]) -> CheckContext:
    """The snapshot as the checker reads it, for a plan of that operation."""
    return build_context(snapshot.brokers, snapshot.partitions, {"operation": operation, "options": options})


def move(snapshot: SnapshotFolder, text: str, number: int = 0, **changes: Any) -> Move:
    """`move(snapshot, "t-0 23")`: the partition gets replicas on brokers 2 and 3; `number` is its place in the plan."""
    name, _, ids = text.partition(" ")
    topic, _, partition = name.rpartition("-")
    rows = snapshot.partitions.to_pylist()
    (row,) = (row for row in rows if (row["topic"], row["partition"]) == (topic, int(partition)))
    wanted = {
        "topic": topic,
        "partition": int(partition),
        "before": tuple(row["replicas"]),
        "after": tuple(int(digit) for digit in ids),
        "chunk": 0,
        "position": number,
        "purpose": "given",
        "topic_id": row["topic_id"],
        "size_bytes": row["bytes"],
    }
    return Move(**{**wanted, **changes})


def plan_of(
    snapshot: SnapshotFolder, operation: str, options: dict[str, Any], *moves: str | Move, **proof: Any
) -> PlanFolder:
    """A plan whose proof fits its rows, so that only the rows themselves can be wrong."""
    rows = [move(snapshot, one, at) if isinstance(one, str) else one for at, one in enumerate(moves)]
    added = [(len(one.adding), one.size_bytes or 0) for one in rows]
    head = {
        "cluster_id": snapshot.cluster_id,
        "snapshot_digest": snapshot.digest,
        "operation": operation,
        "options": options,
        "replicas_moved": sum(count for count, _ in added),
        "bytes_moved": sum(count * size for count, size in added),
        "leader_changes": sum(one.before[:1] != one.after[:1] for one in rows),
        "lower_bound": sum(count for count, _ in added),
        "unplaced": [],
        "pinned": [],
        **{f"brokers_{state}": _in_state(snapshot, state) for state in ("failed", "draining")},
    }
    return plan_with("d", {**head, **proof}, rows)


def _in_state(snapshot: SnapshotFolder, state: str) -> list[int]:
    return sorted(row["broker"] for row in snapshot.brokers.to_pylist() if row["state"] == state)
