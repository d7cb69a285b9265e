"""Snapshot of the cluster's current state, as a folder of files."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from kafka_steward.errors import PlanError
from kafka_steward.escaping import printable
from kafka_steward.operators.base import StewardOperator, attempt_folder, fail_without_retry

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["SnapshotClusterOperator"]


class SnapshotClusterOperator(StewardOperator):
    """Writes a snapshot of the cluster into the workspace; changes nothing on the cluster.

    Only the brokers in `failed_brokers` are marked as failed, even if others are dead too. If such a broker is live and
    `heal_failed_disks` is set, only its replicas in failed log directories are marked. `draining_brokers` are live
    brokers that a drain is to empty; the task fails without a retry when one of them is not live, or when no other live
    broker would remain. Returns `{"uri", "digest"}`. Raises ClusterError.

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
            uri, now_ms = attempt_folder(opened, context, "snapshot"), opened.journal.now_ms()
            with fail_without_retry(but=(PlanError,)):  # the storage may be reachable again on a retry
                digest = take_snapshot(
                    opened.cluster,
                    uri,
                    failed=failed,
                    now_ms=now_ms,
                    draining=draining,
                    begun=begun_moves(opened.journal),
                    heal_failed_disks=opened.settings.heal_failed_disks,
                )
            self.log.info(
                "Snapshot %s of cluster %s is at %s.", digest[:12], printable(opened.cluster.cluster_id), printable(uri)
            )
        return {"uri": uri, "digest": digest}
