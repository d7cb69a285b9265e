"""KIP-236's `/admin/reassignments/<topic>/<partition>`: what is in flight, and its originals, for the undoing.

A node's created id names the reassignment for as long as it lasts; when its target changes, the node is changed and not
made anew, so that a differing modified id says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kafka_steward.assignment import Assignment, Move, TopicPartition
from kafka_steward.errors import DocumentError
from kafka_steward.journal import paths
from kafka_steward.journal.changes import put, remove
from kafka_steward.journal.documents import InFlight
from kafka_steward.journal.listing import IN_FLIGHT
from kafka_steward.journal.tree import Node, Tree

__all__ = [
    "flights",
    "forget_in_flight",
    "mark_legacy",
    "note_foreign",
    "note_in_flight",
    "noted_in_flight",
    "retarget",
]


def note_in_flight(tree: Tree, plan: str, moves: Iterable[Move]) -> None:
    """Write down what is about to fly. What a step that died wrote down is written again."""
    for move in moves:
        wanted = InFlight(move.before, move.after, top=len(move.before), plan=plan)
        node = tree.get(paths.reassignment(move.topic_partition))
        known = None if node is None else _read(node)
        if known is not None and known.plan == plan:
            wanted = replace(wanted, legacy=known.legacy)
        _write(tree, move.topic_partition, node, wanted.to_json())


def retarget(tree: Tree, source: str, partition: TopicPartition, target: Assignment) -> None:
    """The document at `source` asks for another target of what flies: it is that document's until a plan takes it."""
    node = tree.get(paths.reassignment(partition))
    known = None if node is None else _read(node)
    if node is not None and known is not None and known.plan != source:
        _write(tree, partition, node, replace(known, replicas=target, plan=source).to_json())


def mark_legacy(tree: Tree, plan: str) -> None:
    """Say of all that flies for a plan that it came by the old route."""
    for partition, noted in flights(tree).items():
        if noted.plan == plan and not noted.legacy:
            node = tree.get(paths.reassignment(partition))
            if node is not None:
                _write(tree, partition, node, replace(noted, legacy=True).to_json())


def note_foreign(tree: Tree, partition: TopicPartition, noted: InFlight) -> None:
    """Write down what someone else has in flight, unless something is noted of that partition."""
    if tree.get(paths.reassignment(partition)) is None:
        _write(tree, partition, None, noted.to_json())


def forget_in_flight(tree: Tree, plan: str | None, partitions: Iterable[TopicPartition]) -> None:
    """Delete what flies no more, where it is this plan's; with None, where it is nobody's plan. Harmless when gone."""
    for partition in partitions:
        node = tree.get(paths.reassignment(partition))
        known = None if node is None else _read(node)
        if node is None or known is None or known.plan != plan:
            continue
        remove(tree, node)  # changed by someone else in between, it is theirs


def flights(tree: Tree) -> dict[TopicPartition, InFlight]:
    """Everything that is written down as in flight; what cannot be read is left out."""
    return {TopicPartition(*each.key): each.document for each in IN_FLIGHT.found(tree)}


def noted_in_flight(tree: Tree) -> dict[TopicPartition, str | None]:
    """Every partition that is written down as in flight, and the plan that wrote it; None for someone else."""
    return {partition: noted.plan for partition, noted in flights(tree).items()}


def _read(node: Node) -> InFlight | None:
    try:
        return InFlight.from_node(node)
    except DocumentError:
        return None  # the watch moves it aside


def _write(tree: Tree, partition: TopicPartition, node: Node | None, text: str) -> None:
    if node is None or node.data != text:
        # What someone else writes this very moment is left to the next step.
        put(tree, paths.reassignment(partition), node, text)
