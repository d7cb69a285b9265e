"""KIP-236's `/admin/reassignments/<topic>/<partition>`: what is in flight, and its originals, for the undoing."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.errors import NodeMissing, VersionConflict
from kafka_steward.journal import paths
from kafka_steward.journal.documents import InFlight
from kafka_steward.journal.tree import Tree

__all__ = ["forget_in_flight", "note_in_flight", "noted_in_flight"]


def note_in_flight(tree: Tree, plan: str, moves: Iterable[Move]) -> None:
    """Write down what is about to fly. What a step that died wrote down is written again."""
    for move in moves:
        path = paths.reassignment(move.topic_partition)
        text = InFlight(move.before, move.after, top=len(move.before), plan=plan).to_json()
        node = tree.get(path)
        if node is None:
            tree.create(path, text)
        elif node.data != text:
            tree.set(path, text, version=node.version)


def forget_in_flight(tree: Tree, plan: str, partitions: Iterable[TopicPartition]) -> None:
    """Delete what flies no more, where it is this plan's. Harmless when it is gone already."""
    for partition in partitions:
        node = tree.get(paths.reassignment(partition))
        if node is None or InFlight.from_node(node).plan != plan:
            continue
        try:
            tree.delete(node.path, version=node.version)
        except (NodeMissing, VersionConflict):
            continue  # changed by someone else in between: theirs


def noted_in_flight(tree: Tree) -> dict[TopicPartition, str | None]:
    """Every partition that is written down as in flight, and the plan that wrote it; None for someone else."""
    found = {}
    for topic in tree.children(paths.REASSIGNMENTS):
        for number in tree.children(paths.reassignments_of(topic)):
            node = tree.get(f"{paths.reassignments_of(topic)}/{number}")
            if node is not None and number.isdigit():
                found[TopicPartition(topic, int(number))] = InFlight.from_node(node).plan
    return found
