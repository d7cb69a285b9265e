"""What the cluster looks like now, as a folder of files."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from kafka_steward.operators.base import StewardOperator, folder_of

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["SnapshotClusterOperator"]


class SnapshotClusterOperator(StewardOperator):
    """Writes a snapshot of the cluster into the workspace; changes nothing on the cluster.

    `failed_brokers` are the ids that the snapshot marks as failed, whatever else is dead. Returns
    `{"uri", "digest"}`. Raises PlanError when the workspace cannot be written, and the cluster's own errors.
    """

    template_fields: Sequence[str] = (*StewardOperator.template_fields, "failed_brokers")

    def __init__(self, *, failed_brokers: Collection[int] | Any = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.failed_brokers = failed_brokers

    def execute(self, context: Context) -> dict[str, str]:
        """Take the snapshot."""
        from kafka_steward.execution.snapshot import take_snapshot  # noqa: PLC0415 - DAG files are parsed without Kafka

        failed = [int(broker) for broker in self.failed_brokers]
        with self.open(context) as opened:
            uri = folder_of(opened, context, "snapshot")
            digest = take_snapshot(opened.cluster, uri, failed=failed, now_ms=opened.journal.now_ms())
            self.log.info("Snapshot %s of cluster %s is at %s.", digest[:12], opened.cluster.cluster_id, uri)
        return {"uri": uri, "digest": digest}
