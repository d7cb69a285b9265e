"""Legacy znode submissions (`/admin/reassign_partitions`) on ZooKeeper clusters: read, never changed.

Kafka executes them by itself; if anyone else changes that node, its controller loses the watch (KAFKA-9478). So they
are only recorded as in flight, marked `legacy`, where KIP-236 keeps such records. The record is deleted when the
reassignment has ended.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.state import Snapshot
from kafka_steward.document_api.request_rules import ActiveReassignment
from kafka_steward.errors import DocumentError, KafkaRefused
from kafka_steward.execution.in_flight_records import delete_in_flight, list_in_flight, record_external
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.journal import paths
from kafka_steward.journal.documents import ChunkPartition, InFlight
from kafka_steward.journal.open import Journal
from kafka_steward.journal.requests import Request

__all__ = ["track_legacy_reassignments"]


def track_legacy_reassignments(
    cluster: ClusterPort, journal: Journal, under_way: Mapping[TopicPartition, ActiveReassignment]
) -> list[str]:
    """Record reassignments submitted by the legacy znode, and delete the records of ended ones; returns messages.

    `under_way` are reassignments in flight or waiting by the other route. Such a partition is not recorded a second
    time (KIP-236); a message reports it if the two targets differ.
    """
    noted = [name for name, each in list_in_flight(journal.tree).items() if each.plan is None and each.legacy]
    node = journal.tree.get(paths.REASSIGN_PARTITIONS)
    if node is None and not noted:
        return []
    try:
        asked = () if node is None else Request.from_node(node).partitions
    except DocumentError as error:
        return [f"Left to Kafka: {error}"]
    try:
        snapshot = cluster.snapshot(sorted({each.topic for each in asked} | {name.topic for name in noted}))
    except KafkaRefused as error:
        return [f"{paths.REASSIGN_PARTITIONS} is left to Kafka, which lets us not read what it names: {error}"]
    for each in asked:
        if each.topic_partition not in under_way and each.topic_partition in snapshot.partitions:
            record_external(journal.tree, each.topic_partition, _noted(each, snapshot))
    named = {each.topic_partition: each.replicas for each in asked}
    delete_in_flight(
        journal.tree, None, [name for name in noted if name not in named and not _is_in_flight(name, snapshot)]
    )
    return [
        f"{name} is asked for by {paths.REASSIGN_PARTITIONS} too, and is being reassigned by a request already."
        for name, target in sorted(named.items())
        if name in under_way and not under_way[name].legacy and under_way[name].target != target
    ]


def _noted(asked: ChunkPartition, snapshot: Snapshot) -> InFlight:
    partition = snapshot.partitions.get(asked.topic_partition)
    before = () if partition is None else [each for each in partition.replicas if each not in partition.adding]
    return InFlight(asked.original_replicas, asked.replicas, legacy=True, top=len(before) or None)


def _is_in_flight(name: TopicPartition, snapshot: Snapshot) -> bool:
    partition = snapshot.partitions.get(name)
    return partition is not None and partition.reassigning
