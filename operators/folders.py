"""Readers for the plan and the snapshot of earlier tasks, which verify them against the results of those tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kafka_steward.errors import PlanError

if TYPE_CHECKING:
    from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder

__all__ = ["address_of", "plan_at", "snapshot_at"]


def address_of(made: Any, what: str = "plan") -> tuple[str, str | None]:
    """Return the URI and digest in a task's result; for a URI alone, no digest. Raises PlanError for anything else."""
    if isinstance(made, str):
        return made, None
    if not isinstance(made, Mapping) or not isinstance(made.get("uri"), str):
        raise PlanError(f"There is no {what} to submit: expected a URI or what the {what} task returns, got {made!r}.")
    return made["uri"], made.get("digest")


def plan_at(made: Any) -> PlanFolder:
    """Read the plan that a task returned. Raises PlanError if it is missing, edited, or another plan than that one."""
    from kafka_steward.planning.files.formats import read_plan

    uri, digest = address_of(made)
    plan = read_plan(uri)
    if digest not in (None, plan.digest):
        raise PlanError(f"The plan at {uri} is not the one that was made: its digest differs; make a new plan.")
    return plan


def snapshot_at(made: Any) -> SnapshotFolder:
    """Read the snapshot that a task returned. Raises PlanError if it is missing or edited."""
    from kafka_steward.planning.files.formats import read_snapshot

    return read_snapshot(address_of(made, "snapshot")[0])
