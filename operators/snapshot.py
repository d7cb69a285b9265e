"""Snapshot of the cluster's current state, as a folder of files."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import structlog

from kafka_steward.arrow import leave_out_pandas
from kafka_steward.errors import PlanError
from kafka_steward.escaping import printable
from kafka_steward.operators.base import StewardOperator, attempt_folder, fail_without_retry
from kafka_steward.value_parsing import parse_broker_ids

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_steward.assignment import TopicPartition
    from kafka_steward.hooks.session import ClusterSession

__all__ = ["SnapshotClusterOperator", "take_pending_snapshot", "take_task_snapshot"]

log = structlog.get_logger(__name__)


class SnapshotClusterOperator(StewardOperator):
    """Writes a snapshot of the cluster into the workspace; changes nothing on the cluster.

    Only the brokers in `failed_brokers` are marked as failed, even if others are dead too. If such a broker is live,
    only its replicas in failed log directories are marked, with `heal_failed_disks` or after a report of that failure
    (ReportFailureOperator). `draining_brokers` are live brokers that a drain is to empty, and count only if that is the
    `operation`; the task fails without a retry when one of them is not live, or when no other live broker would remain.
    With `pending_replicas`, each partition's target is its wanted number of replicas, pending ones included (KIP-409):
    the snapshot is for PlanReassignmentOperator with `operation="fill"`, and partitions with a replica on a dead broker
    keep their current replicas, which are left to a heal. Returns `{"uri", "digest"}`. Raises ClusterError.

    >>> SnapshotClusterOperator(task_id="snapshot", conn_id="kafka_production", draining_brokers=[4])
    <Task(SnapshotClusterOperator): snapshot>
    """

    template_fields: Sequence[str] = (
        *StewardOperator.template_fields,
        "failed_brokers",
        "draining_brokers",
        "operation",
    )

    def __init__(
        self,
        *,
        failed_brokers: Collection[int] | Any = (),
        draining_brokers: Collection[int] | Any | None = (),
        operation: str | Any = "drain",
        pending_replicas: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.pending_replicas = pending_replicas
        self.failed_brokers = failed_brokers
        self.draining_brokers = draining_brokers
        self.operation = operation

    def execute(self, context: Context) -> dict[str, str]:
        """Take the snapshot."""
        with fail_without_retry():
            failed, draining = (parse_broker_ids(of) for of in (self.failed_brokers, self.draining_brokers))
            draining = draining if self.operation == "drain" else []
        with self.open(context) as opened:
            if self.pending_replicas:
                return take_pending_snapshot(opened, context, failed=failed, draining=draining)
            return take_task_snapshot(opened, context, failed=failed, draining=draining)


def take_pending_snapshot(
    opened: ClusterSession, context: Context, *, failed: Collection[int] = (), draining: Collection[int] = ()
) -> dict[str, str]:
    """Write the snapshot of a fill, in which each partition is to have its pending replicas too (KIP-409).

    Else as `take_task_snapshot`.
    """
    with fail_without_retry():
        targets = _target_replication_factors(opened)
    log.info("%d partitions have pending replicas.", len(targets))
    return take_task_snapshot(opened, context, failed=failed, draining=draining, targets=targets)


def take_task_snapshot(
    opened: ClusterSession,
    context: Context,
    *,
    failed: Collection[int],
    draining: Collection[int] = (),
    targets: Mapping[TopicPartition, int] | None = None,
) -> dict[str, str]:
    """Write a snapshot into the folder of this try, and its address into the task's log.

    `targets` are the wanted replication factors of a fill. Returns `{"uri", "digest"}`. Raises ClusterError, and
    AirflowFailException for what no retry would change.
    """
    from kafka_steward.execution.demotions import read_demotions
    from kafka_steward.execution.failures.records import last_racks, read_log_dir_failures
    from kafka_steward.execution.load.look import known_rates
    from kafka_steward.execution.plans.snapshot import started_moves, take_snapshot
    from kafka_steward.settings import parse_capacities

    leave_out_pandas()
    uri, now_ms = attempt_folder(opened, context, "snapshot"), opened.journal.now_ms()
    with fail_without_retry(but=(PlanError,)):  # the storage may be reachable again on a retry
        reported = read_log_dir_failures(opened.journal).reported
        digest = take_snapshot(
            opened.cluster,
            uri,
            failed=failed,
            now_ms=now_ms,
            draining=draining,
            targets=targets,
            begun=started_moves(opened.journal),
            rates=known_rates(opened.journal),
            demotions=read_demotions(opened.journal),
            failed_disks_of=failed if opened.settings.heal_failed_disks else reported.intersection(failed),
            capacities=parse_capacities(opened.settings.capacity),
            service_topics=opened.settings.service_topic_patterns,
            racks=last_racks(opened.journal),
            min_free=opened.settings.min_free,
        )
    log.info("Snapshot %s of cluster %s is at %s.", digest[:12], printable(opened.cluster.cluster_id), printable(uri))
    return {"uri": uri, "digest": digest}


def _target_replication_factors(opened: ClusterSession) -> Mapping[TopicPartition, int]:
    """Return the replication factors that partitions with pending replicas are to have."""
    from kafka_steward.execution.cluster_queries import cordoned_brokers
    from kafka_steward.execution.topics.pending import list_pending, target_replication_factors

    snapshot = opened.cluster.snapshot()
    cordoned = cordoned_brokers(opened.cluster, snapshot.live)
    return target_replication_factors(list_pending(opened.journal, snapshot), snapshot, cordoned)
