"""KIP-236's reassignment kill switch, used from a DAG: no reassignment may start during maintenance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import Context

from kafka_steward.escaping import printable
from kafka_steward.hooks.context import actor_of
from kafka_steward.operators.base import StewardOperator

__all__ = ["DisableReassignmentOperator", "EnableReassignmentOperator"]


class DisableReassignmentOperator(StewardOperator):
    """Creates `/admin/reassign_cancel` (KIP-236): no reassignment starts until it is deleted; running ones complete.

    `reason` is shown wherever work is blocked. Returns the message. Does no harm when the node exists already.

    >>> DisableReassignmentOperator(task_id="off", reason="the racks are being rewired")
    <Task(DisableReassignmentOperator): off>
    """

    template_fields: Sequence[str] = (*StewardOperator.template_fields, "reason")

    def __init__(self, *, reason: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.reason = reason

    def execute(self, context: Context) -> str:
        """Disable reassignments."""
        from kafka_steward.execution.announcements import disable_reassignment

        with self.open_journal(context) as journal:
            sentence = disable_reassignment(journal, who=actor_of(context), reason=self.reason)
        self.log.info("%s", printable(sentence))
        return sentence


class EnableReassignmentOperator(StewardOperator):
    """Deletes `/admin/reassign_cancel` (KIP-236). Returns the message. Does no harm when the node does not exist.

    >>> EnableReassignmentOperator(task_id="on")
    <Task(EnableReassignmentOperator): on>
    """

    template_fields: Sequence[str] = (*StewardOperator.template_fields, "reason")

    def __init__(self, *, reason: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.reason = reason

    def execute(self, context: Context) -> str:
        """Enable reassignments."""
        from kafka_steward.execution.announcements import enable_reassignment

        with self.open_journal(context) as journal:
            sentence = enable_reassignment(journal, who=actor_of(context), reason=self.reason)
        self.log.info("%s", printable(sentence))
        return sentence
