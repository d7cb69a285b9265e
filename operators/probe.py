"""A probe of the workspace from a worker and from the triggerer, for `airflow kafka-steward doctor --probe`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kafka_steward.hooks.context import hook_of
from kafka_steward.operators.base import StewardOperator
from kafka_steward.triggers.probe import ProbeWorkspaceTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["ProbeWorkspaceOperator"]


class ProbeWorkspaceOperator(StewardOperator):
    """Writes, reads and deletes a file in the workspace from a worker, then from the triggerer.

    `marker` is the name of a file that the process which asks wrote there; empty for none. Returns `{"worker": ...,
    "triggerer": ...}`, each with the `uri` of the workspace, the `host`, the `problem`, and whether it is `marked`. A
    workspace that cannot be used fails no task: it is what was asked. Neither Kafka nor the journal is used.

    >>> ProbeWorkspaceOperator(task_id="probe")
    <Task(ProbeWorkspaceOperator): probe>
    """

    template_fields: Sequence[str] = (*StewardOperator.template_fields, "marker")

    def __init__(self, *, marker: str | Any = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.marker = marker

    def execute(self, context: Context) -> None:
        """Probe from this worker, and go on in the triggerer."""
        from kafka_steward.doctor.workspace import probe_workspace

        hook = hook_of(self, context)
        found = probe_workspace(lambda: hook.workspace, self.marker).to_json()
        self.defer(
            trigger=ProbeWorkspaceTrigger(self.conn_id, self.marker, hook.overrides),
            method_name="finish",
            kwargs={"worker": found},
        )

    def finish(
        self,
        context: Context,  # noqa: ARG002 - Airflow's
        event: Mapping[str, Any],
        worker: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Return what both found."""
        return {"worker": dict(worker), "triggerer": dict(event)}
