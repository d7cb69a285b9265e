"""The request for an approval: its subject and its page. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kafka_steward.escaping import escape_markdown
from kafka_steward.execution.plans.report import drained_brokers, format_bytes, plan_summary
from kafka_steward.execution.throttles.rates import ExternalRate
from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder

#: Moves that the page lists. Airflow places the buttons below the page, and its Markdown folds nothing.
_MOVES = 8

_DURATION = re.compile(r"^\| predicted duration \|.*$", re.MULTILINE)

#: The state of the brokers that an operation is about, but for a drain.
_SUBJECT_STATES = {"heal": "failed", "expand": "new"}


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """The texts of a request for approval: `subject` is plain text, `body` Markdown."""

    subject: str
    body: str


def make_approval_request(
    plan: PlanFolder,
    snapshot: SnapshotFolder,
    *,
    connection: str,
    requested_by: str,
    rates: Sequence[ExternalRate] = (),
) -> ApprovalRequest:
    """Return the request: the cluster by its connection, the operation and its brokers, its cost, and who asked.

    The duration is predicted with the `rates` of others.
    """
    proof = plan.proof
    operation, replicas = str(proof.get("operation")), proof.get("replicas_moved")
    size = format_bytes(proof.get("bytes_moved") or 0)
    what = " ".join(filter(None, (operation, _subject_brokers(operation, plan, snapshot))))
    cost = f"move {replicas} {'replica' if replicas == 1 else 'replicas'}, {size}"
    head = f"Cluster: connection **{escape_markdown(connection)}**. Requested by {escape_markdown(requested_by)}."
    body = f"{head}\n\n{plan_summary(plan, snapshot, moves_shown=_MOVES, rates=rates)}"
    return ApprovalRequest(f"{connection}: {what}: {cost}?", body)


def is_same_page(shown: str, body: str) -> bool:
    """Return whether two pages differ in the predicted duration at most: others may change their rates meanwhile."""
    return _DURATION.sub("", shown) == _DURATION.sub("", body)


def _subject_brokers(operation: str, plan: PlanFolder, snapshot: SnapshotFolder) -> str:
    """Return the brokers that are drained, healed or filled with the first replicas: `broker 4`, `brokers 4, 5`."""
    state = _SUBJECT_STATES.get(operation)
    found = sorted(row["broker"] for row in snapshot.brokers.to_pylist() if row["state"] == state)
    brokers = found or drained_brokers(plan)
    if not brokers:
        return ""
    return f"{'broker' if len(brokers) == 1 else 'brokers'} {', '.join(map(str, brokers))}"
