"""The message about the final result of a cancelled plan. Pure."""

from __future__ import annotations

from kafka_steward.journal.records import PlanRecord, PlanStatus

__all__ = ["what_became"]


def what_became(record: PlanRecord) -> str:
    """Return one message; empty for a plan that nobody cancelled, or that completed before its cancel."""
    if record.status not in {PlanStatus.CANCELLED, PlanStatus.ROLLED_BACK} and record.not_taken_back is None:
        return ""
    asked, rollback = record.cancel, str(record.rolled_back_by)[:12]
    by = f" by {asked.person}" if asked is not None and asked.person else ""
    why = f" ({asked.reason})" if asked is not None and asked.reason else ""
    told = f"Plan {record.digest[:12]} was cancelled{by}{why}"
    if record.status is PlanStatus.ROLLED_BACK:
        return f"{told}, and rolled back by plan {rollback}: everything is as it was before."
    if record.not_taken_back is not None:
        return f"{told}, and taken back by plan {rollback}, but for {record.not_taken_back} partitions."
    if asked is not None and asked.scope == "plan":
        return f"{told}; what had arrived is still to be taken back."
    return f"{told}; what had arrived stays."
