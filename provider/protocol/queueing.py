"""KIP-236's `/admin/reassign_partitions_queue`: more work while some is in flight, in Kafka's own format.

One queue at a time: who comes second is told. Each partition leaves it when its reassignment starts, and the last one
takes the node with it. Whatever someone takes out of it before that does not start.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import DocumentError, RequestError
from kafka_steward.execution.decisions.moves import OPEN
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Entry, Who
from kafka_steward.journal.changes import put_new, remove, replace_text
from kafka_steward.journal.documents import ChunkPartition
from kafka_steward.journal.moves import MoveRow
from kafka_steward.journal.open import Journal
from kafka_steward.journal.requests import Request
from kafka_steward.journal.tree import Node, Tree

__all__ = ["queue_add", "queue_list", "queue_remove", "shorten", "started", "taken_out"]


def queue_add(journal: Journal, text: str, *, who: Who) -> int:
    """Put a reassignment, as `kafka-reassign-partitions` writes it, into the queue; returns its partitions' number.

    Raises DocumentError for what is no such thing, RequestError when there is a queue already.
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
    journal.audit.note(Entry(Action.REQUEST, reason, who=who))
    return len(asked.partitions)


def queue_list(journal: Journal) -> tuple[ChunkPartition, ...]:
    """What is queued and has not started. Raises DocumentError when someone garbled it."""
    node = journal.tree.get(paths.REASSIGN_QUEUE)
    return () if node is None else Request.from_node(node).partitions


def queue_remove(journal: Journal, *, who: Who) -> bool:
    """Take the queue away; what has started goes on. False when there is none."""
    node = journal.tree.get(paths.REASSIGN_QUEUE)
    if node is None:
        return False
    remove(journal.tree, node)
    journal.audit.note(Entry(Action.REQUEST, "took the queue away", before=node.data[:2000], who=who))
    return True


def started(rows: Iterable[MoveRow]) -> set[TopicPartition]:
    """The partitions that have begun, or will not: they have no place in the queue any more. Pure."""
    return {row.topic_partition for row in rows if row.state not in OPEN}


def taken_out(rows: Iterable[MoveRow], queue: Node | None) -> set[TopicPartition]:
    """The partitions that wait though the queue does not name them any more, or names another target. Pure."""
    try:
        asked = () if queue is None else Request.from_node(queue).partitions
    except DocumentError:
        return set()  # whoever garbled it may mend it
    named = {(each.topic_partition, each.replicas) for each in asked}
    return {
        row.topic_partition for row in rows if row.state in OPEN and (row.topic_partition, row.move.after) not in named
    }


def shorten(tree: Tree, queue: Node, keep: set[TopicPartition]) -> None:
    """Leave only `keep` in the queue; an empty one is deleted. Left to the next look when someone changes it now."""
    asked = Request.from_node(queue)
    left = tuple(each for each in asked.partitions if each.topic_partition in keep)
    if not left:
        remove(tree, queue)
    elif len(left) < len(asked.partitions):
        replace_text(tree, queue, replace(asked, partitions=left).to_json())
