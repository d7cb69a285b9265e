"""Snapshots, plans and their pages as earlier tasks wrote them, verified against the results of those tasks."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from kafka_steward.errors import PlanError

if TYPE_CHECKING:
    from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder

__all__ = ["PAGE", "parse_uri_and_digest", "read_plan_page", "read_task_plan", "read_task_snapshot", "write_plan_page"]

#: The page about a plan, in its folder: what moves, at what cost, and which constraints get worse.
PAGE = "review.md"


def parse_uri_and_digest(made: Any, what: str = "plan") -> tuple[str, str | None]:
    """Return the URI and digest in a task's result; for a URI alone, no digest. Raises PlanError for anything else."""
    if isinstance(made, str):
        return made, None
    if not isinstance(made, Mapping) or not isinstance(made.get("uri"), str):
        raise PlanError(f"There is no {what}: expected its URI, or what the task that makes it returns, got {made!r}.")
    return made["uri"], made.get("digest")


def read_task_plan(made: Any) -> PlanFolder:
    """Read the plan that a task returned. Raises PlanError if it is missing, edited, or another plan than that one."""
    from kafka_steward.planning.files.formats import read_plan

    uri, digest = parse_uri_and_digest(made)
    plan = read_plan(uri)
    if digest not in (None, plan.digest):
        raise PlanError(f"The plan at {uri} is not the one that was made: its digest differs; make a new plan.")
    return plan


def read_task_snapshot(made: Any) -> SnapshotFolder:
    """Read the snapshot that a task returned. Raises PlanError if it is missing or edited."""
    from kafka_steward.planning.files.formats import read_snapshot

    return read_snapshot(parse_uri_and_digest(made, "snapshot")[0])


def write_plan_page(uri: str, plan: PlanFolder, snapshot: SnapshotFolder, **of_rates: Any) -> str:
    """Write the page about a plan beside it. Returns the page's digest, which covers the plan's digest too.

    `of_rates` is what `plan_summary` is to say of the rates of others.
    """
    from kafka_steward.execution.plans.summary import plan_summary
    from kafka_steward.planning.files.storage import Folder

    page = plan_summary(plan, snapshot, **of_rates)
    Folder(uri, "plan").write_text(PAGE, page)
    return _page_digest(plan.digest, page)


def read_plan_page(made: Any) -> str | None:
    """Return the page that a task wrote beside its plan; None for a plan that is given by its URI alone.

    Raises PlanError if it is not the page that the task wrote about exactly this plan.
    """
    from kafka_steward.planning.files.storage import Folder

    uri, digest = parse_uri_and_digest(made)
    expected = made.get("page_digest") if isinstance(made, Mapping) else None
    page = Folder(uri, "plan").read_text(PAGE) if digest and expected else None
    if page is not None and _page_digest(str(digest), page) != expected:
        raise PlanError(f"The page {PAGE} of the plan at {uri} was edited after it was made; make a new plan.")
    return page


def _page_digest(plan_digest: str, page: str) -> str:
    """Return the SHA-256 of both: the page of another plan has another one."""
    return sha256(f"{plan_digest}\n{page}".encode()).hexdigest()
