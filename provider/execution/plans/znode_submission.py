"""Submission through `/admin/reassign_partitions`, for ZooKeeper-mode brokers that lack the calls of the Admin API.

This legacy znode is fragile and is used only if a connection requests it (`submission` "legacy"). The node is created
and never changed, because an external change makes Kafka's controller lose its watch. Only one batch is therefore in
flight at a time, and the other moves wait. Kafka does not check there that a target is live; this module does.
KIP-236's `original_replicas` is omitted, because Kafka 3.9 ignores a node that contains it. The originals are in
`/admin/reassignments`, where they were recorded before.

During a migration to KRaft nothing is submitted here: a KRaft controller does not read the node, which would stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.requests import INVALID_ASSIGNMENT
from kafka_steward.errors import KafkaRefused
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.journal import paths
from kafka_steward.journal.kip_documents import ChunkPartition, Request
from kafka_steward.journal.mailbox import Mailbox, put_one

#: The size limit of the node in bytes: below ZooKeeper's limit of 1 MB.
MAX_ZNODE_BYTES = 900_000
#: Kafka's error codes: a reassignment is in progress; the request is not valid.
_IN_PROGRESS, _INVALID_REQUEST = 60, 42


_IN_MIGRATION = (
    "the cluster is in migration to KRaft (zookeeper.metadata.migration.enable), whose controller does not read "
    f"{paths.REASSIGN_PARTITIONS}; set submission to admin"
)


class ZnodeReassignmentClient:
    """A `ClusterPort` that submits reassignments through ZooKeeper and delegates every other call to `cluster`."""

    def __init__(self, cluster: ClusterPort, mailbox: Mailbox) -> None:
        self._cluster, self._mailbox = cluster, mailbox

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def alter(
        self, targets: Mapping[TopicPartition, Assignment], *, keep_factor: bool = False
    ) -> dict[TopicPartition, KafkaRefused | None]:
        """Submit new assignments, as many as fit into one node; refuse those that must wait, to be retried.

        The node has no field for `keep_factor`, which is ignored.
        """
        del keep_factor
        # A KRaft controller does not read the node, which would stay there.
        if self._cluster.in_migration:
            return dict.fromkeys(targets, _build_refusal(_INVALID_REQUEST, _IN_MIGRATION))
        live = self._cluster.live_brokers()
        dead = {name: [broker for broker in target if broker not in live] for name, target in targets.items()}
        refused = {
            name: _build_refusal(INVALID_ASSIGNMENT, f"broker {brokers[0]} is not live")
            for name, brokers in dead.items()
            if brokers
        }
        batch = _take_first_batch({name: target for name, target in targets.items() if name not in refused})
        waiting = {name: _must_wait_refusal() for name in targets if name not in refused and name not in batch}
        answers: dict[TopicPartition, KafkaRefused | None] = {**refused, **waiting}
        if batch:
            answers |= dict.fromkeys(batch, None if self._create_node(batch) else _must_wait_refusal())
        return answers

    def _create_node(self, batch: Mapping[TopicPartition, Assignment]) -> bool:
        if self._cluster.reassignments():
            return False  # of any origin: Kafka would ignore a second node while the first is in progress
        return put_one(self._mailbox, paths.REASSIGN_PARTITIONS, _to_request_json(batch)) is not None


def _take_first_batch(targets: Mapping[TopicPartition, Assignment]) -> dict[TopicPartition, Assignment]:
    """Return the first targets, as many as fit into one node. Pure."""
    chosen: dict[TopicPartition, Assignment] = {}
    left = MAX_ZNODE_BYTES - len(_to_request_json({}))
    for name, target in targets.items():
        left -= len(_to_request_json({name: target})) - len(_to_request_json({})) + 1
        if left < 0:
            break
        chosen[name] = target
    return chosen


def _to_request_json(targets: Mapping[TopicPartition, Assignment]) -> str:
    return Request(tuple(ChunkPartition(*name, target) for name, target in targets.items())).to_json()


def _must_wait_refusal() -> KafkaRefused:
    return _build_refusal(
        _IN_PROGRESS, f"{paths.REASSIGN_PARTITIONS} takes one batch at a time, and another is under way"
    )


def _build_refusal(code: int, words: str) -> KafkaRefused:
    return KafkaRefused(code, words, f"It was not submitted: {words}.")
