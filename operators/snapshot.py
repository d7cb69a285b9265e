"""What the cluster looks like now, as a folder of files."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from kafka_steward.errors import PlanError
from kafka_steward.operators.base import StewardOperator, folder_of, told_at_once

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["SnapshotClusterOperator"]


class SnapshotClusterOperator(StewardOperator):
    """Writes a snapshot of the cluster into the workspace; changes nothing on the cluster.

    `failed_brokers` are the ids that the snapshot marks as failed, whatever else is dead; of one that lives, with the
    setting `heal_failed_disks`, only its replicas in log directories that have failed are. `draining_brokers` are those
    of live brokers that a drain is to empty, which fails for good when one is not live, or none would be left. Returns
    `{"uri", "digest"}`. Raises the cluster's own errors.

    >>> SnapshotClusterOperator(task_id="snapshot", conn_id="kafka_production", draining_brokers=[4])
    <Task(SnapshotClusterOperator): snapshot>
    """

    template_fields: Sequence[str] = (*StewardOperator.template_fields, "failed_brokers", "draining_brokers")

    def __init__(
        self,
        *,
        failed_brokers: Collection[int] | Any = (),
        draining_brokers: Collection[int] | Any | None = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.failed_brokers = failed_brokers
        self.draining_brokers = draining_brokers

    def execute(self, context: Context) -> dict[str, str]:
        """Take the snapshot."""
        from kafka_steward.execution.snapshot import begun_moves, take_snapshot

        failed, draining = ([int(broker) for broker in of or ()] for of in (self.failed_brokers, self.draining_brokers))
        with self.open(context) as opened:
            uri, now_ms = folder_of(opened, context, "snapshot"), opened.journal.now_ms()
            with told_at_once(but=(PlanError,)):  # storage that was away may be back
                digest = take_snapshot(
                    opened.cluster,
                    uri,
                    failed=failed,
                    now_ms=now_ms,
                    draining=draining,
                    begun=begun_moves(opened.journal),
                    heal_failed_disks=opened.settings.heal_failed_disks,
                )
            self.log.info("Snapshot %s of cluster %s is at %s.", digest[:12], opened.cluster.cluster_id, uri)
        return {"uri": uri, "digest": digest}
