"""A whole plan is taken back, what it has completed included (KIP-236)."""

from __future__ import annotations

from typing import Any

from kafka_steward.operators.cancel import CancelReassignmentOperator

__all__ = ["RollbackReassignmentOperator"]


class RollbackReassignmentOperator(CancelReassignmentOperator):
    """Takes every partition of a plan back to its original assignment, order included; running or ended alike.

    What is pending is cancelled; what is complete goes back in chunks, throttled as any plan, the last first. What
    someone else changed since, what was created anew, and what would need a dead broker is left alone and listed. It is
    CancelReassignmentOperator with `scope="plan"`, and takes its other arguments.

    >>> RollbackReassignmentOperator(task_id="undo", plan="3f2a91c0").scope
    'plan'
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "scope": "plan"})
