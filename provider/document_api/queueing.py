"""KIP-236's `/admin/reassign_partitions_queue`: further reassignments while some are in flight, in Kafka's own format.

There is one queue at a time: a second writer gets an error. Each partition is removed from the queue when its
reassignment starts, and the node is deleted with the last one. A partition that is removed from the queue before that
does not start.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import DocumentError, RequestError
from kafka_steward.execution.decisions.moves import OPEN
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Actor, AuditRecord
from kafka_steward.journal.changes import put_new, remove, replace_text
from kafka_steward.journal.documents import ChunkPartition
from kafka_steward.journal.moves import MoveRow
from kafka_steward.journal.open import Journal
from kafka_steward.journal.requests import Request
from kafka_steward.journal.tree import Node, Tree

__all__ = ["queue_add", "queue_list", "queue_remove", "remove_started", "no_longer_waiting", "removed_before_start"]


def queue_add(journal: Journal, text: str, *, who: Actor) -> int:
    """Queue a reassignment in the format of `kafka-reassign-partitions`; returns its number of partitions.

    Raises DocumentError for any other text, RequestError for one without partitions or when a queue exists already.
    """
    asked = Request.from_json(text, "The reassignment")
    if not asked.partitions:
        raise RequestError('The reassignment lists no partition; it should be {"version": 1, "partitions": [...]}.')
    if put_new(journal.tree, paths.REASSIGN_QUEUE, Request(asked.partitions).to_json()) is None:
        raise RequestError(
            f"{paths.REASSIGN_QUEUE} exists: what was queued before has not all started; wait until it is gone, or "
            "remove it."
        )
    reason = f"queued {len(asked.partitions)} partitions"
    journal.audit.record(AuditRecord(Action.REQUEST, reason, who=who))
    return len(asked.partitions)


def queue_list(journal: Journal) -> tuple[ChunkPartition, ...]:
    """Return the queued partitions that have not started. Raises DocumentError when the queue is unreadable."""
    node = journal.tree.get(paths.REASSIGN_QUEUE)
    return () if node is None else Request.from_node(node).partitions


def queue_remove(journal: Journal, *, who: Actor) -> bool:
    """Delete the queue; started reassignments continue. Returns False when there is no queue."""
    node = journal.tree.get(paths.REASSIGN_QUEUE)
    if node is None:
        return False
    remove(journal.tree, node)
    journal.audit.record(AuditRecord(Action.REQUEST, "took the queue away", before=node.data[:2000], who=who))
    return True


def no_longer_waiting(rows: Iterable[MoveRow]) -> set[TopicPartition]:
    """Return the partitions that have started, or never will: they no longer belong in the queue. Pure."""
    return {row.topic_partition for row in rows if row.state not in OPEN}


def removed_before_start(rows: Iterable[MoveRow], queue: Node | None) -> set[TopicPartition]:
    """Return the waiting partitions that the queue no longer names, or names with another target. Pure.

    Returns nothing for an unreadable queue.
    """
    try:
        asked = () if queue is None else Request.from_node(queue).partitions
    except DocumentError:
        return set()  # its writer may repair it
    named = {(each.topic_partition, each.replicas) for each in asked}
    return {
        row.topic_partition for row in rows if row.state in OPEN and (row.topic_partition, row.move.after) not in named
    }


def remove_started(tree: Tree, queue: Node, keep: set[TopicPartition]) -> None:
    """Remove all partitions but `keep` from the queue, and delete an empty queue.

    Left to the next poll when another client changes the queue concurrently.
    """
    asked = Request.from_node(queue)
    left = tuple(each for each in asked.partitions if each.topic_partition in keep)
    if not left:
        remove(tree, queue)
    elif len(left) < len(asked.partitions):
        replace_text(tree, queue, replace(asked, partitions=left).to_json())
