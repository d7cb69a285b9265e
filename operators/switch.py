"""KIP-236's switch from a DAG: around maintenance, no reassignment of the cluster may start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kafka_steward.hooks.context import hook_of, who_of
from kafka_steward.operators.base import StewardOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["DisableReassignmentOperator", "EnableReassignmentOperator"]


class DisableReassignmentOperator(StewardOperator):
    """Creates `/admin/reassign_cancel` (KIP-236): nothing starts until it is gone, and what runs is let finish.

    `reason` is told to everyone whom it holds up. Returns the sentence. Harmless when it is there already.

    >>> DisableReassignmentOperator(task_id="off", reason="the racks are being rewired")
    <Task(DisableReassignmentOperator): off>
    """

    template_fields: Sequence[str] = (*StewardOperator.template_fields, "reason")

    def __init__(self, *, reason: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.reason = reason

    def execute(self, context: Context) -> str:
        """Switch them off."""
        from kafka_steward.execution.switch import switch_off

        hook = hook_of(self, context)
        with hook.journal(hook.cluster_id()) as journal:  # a cluster that is down can be switched off too
            sentence = switch_off(journal, who=who_of(context), reason=self.reason)
        self.log.info("%s", sentence)
        return sentence


class EnableReassignmentOperator(StewardOperator):
    """Deletes `/admin/reassign_cancel` (KIP-236). Returns the sentence. Harmless when it is gone already.

    >>> EnableReassignmentOperator(task_id="on")
    <Task(EnableReassignmentOperator): on>
    """

    template_fields: Sequence[str] = (*StewardOperator.template_fields, "reason")

    def __init__(self, *, reason: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.reason = reason

    def execute(self, context: Context) -> str:
        """Switch them on."""
        from kafka_steward.execution.switch import switch_on

        hook = hook_of(self, context)
        with hook.journal(hook.cluster_id()) as journal:  # a cluster that is down can be switched off too
            sentence = switch_on(journal, who=who_of(context), reason=self.reason)
        self.log.info("%s", sentence)
        return sentence
