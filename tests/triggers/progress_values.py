"""Progress values for tests, from the few numbers that matter."""

from __future__ import annotations

from typing import Any

from kafka_steward.execution.moves.progress import Progress
from kafka_steward.journal.records import PlanStatus

DIGEST = "3f2a91c0" * 8


def progress(settled: int, total: int = 4, status: PlanStatus = PlanStatus.RUNNING, **changes: Any) -> Progress:
    values: dict[str, Any] = {
        "digest": DIGEST,
        "status": status,
        "partitions_total": total,
        "partitions_settled": settled,
        "in_flight": 0,
        "waiting": total - settled,
        "completed": settled,
        "satisfied": 0,
        "dropped": 0,
        "failed": 0,
        "held": (),
        "bytes_total": 0,
        "bytes_done": 0,
        "bytes_per_s": None,
        "eta_s": None,
        "stalled": (),
        "chunk": None,
        "chunks": 1,
        "left": 0,
        "busy": False,
        "sentence": f"{settled} of {total}.",
    }
    return Progress(**{**values, **changes})
