"""Rollback of a whole plan, completed moves included (KIP-236)."""

from __future__ import annotations

from typing import Any

from kafka_steward.operators.cancel import CancelReassignmentOperator

__all__ = ["RollbackReassignmentOperator"]


class RollbackReassignmentOperator(CancelReassignmentOperator):
    """Restores the original assignment, replica order included, of every partition of a running or ended plan.

    Pending reassignments are cancelled. Completed moves are reverted in chunks, the last first, throttled like any
    plan. Partitions that were changed externally since, were re-created, or would need a dead broker are left unchanged
    and listed. The operator is CancelReassignmentOperator with `scope="plan"`, and takes its other arguments.

    >>> RollbackReassignmentOperator(task_id="undo", plan="3f2a91c0").scope
    'plan'
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "scope": "plan"})
