"""Copying a journal to another backend: a cluster that migrates from ZooKeeper keeps its plans and its history.

Everything that exists in the target journal is left unchanged, so that an interrupted copy can be repeated. Documents
with numbered names get new numbers, because the target journal has its own counters. After the copy, only the copy may
be used. Both halves of the copy get a new id, and the original documents get a mark with the location of the copy:
the original is refused the next time it is opened. Nothing else in the original is changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kafka_steward.errors import RequestError
from kafka_steward.journal import paths
from kafka_steward.journal.document import parse_valid_nodes
from kafka_steward.journal.hosts import OPENINGS, POLLS
from kafka_steward.journal.identity import mark_copied
from kafka_steward.journal.kip_documents import Chunk
from kafka_steward.journal.locks import STEP_LOCK, Fence
from kafka_steward.journal.mailbox import Mailbox, Node, put_one, read_below, read_one
from kafka_steward.journal.store import Journal

#: The roots of a journal's documents. ZooKeeper's `/admin` also contains Kafka's own nodes, which are not copied.
_ROOTS = (
    paths.FAILED_BROKERS,
    paths.ROLLING_BOUNCE,
    paths.REASSIGN_CANCEL,
    paths.CANCEL_IN_PROGRESS,
    paths.REASSIGN_QUEUE,
    paths.REASSIGNMENTS,
)
#: The nouns whose rows are about the use of a journal.
_OWN = {STEP_LOCK.name, OPENINGS.name, POLLS.name}
#: The existence of these nodes is the signal, even if they are empty.
_MAY_BE_EMPTY = (paths.REASSIGN_CANCEL, paths.CANCEL_IN_PROGRESS)


@dataclass(frozen=True, slots=True)
class CopyCounts:
    """The numbers of plans, documents and audit rows that were new to the target journal."""

    plans: int
    documents: int
    audit_rows: int


def copy_journal(source: Journal, target: Journal) -> CopyCounts:
    """Copy plans, documents and audit trail, give the copy an id of its own, and mark the source as copied.

    The step lock is held so that no plan is stepped during the copy.
    Raises RequestError if the journals belong to different clusters, LockLost while another process holds the step
    lock, and JournalUnreachable.
    """
    if source.cluster_id != target.cluster_id:
        raise RequestError(
            f"The journals are of two clusters, {source.cluster_id} and {target.cluster_id}; a copy stays with its own."
        )
    with source.step_lock() as fence:
        audit_rows = target.audit.import_rows(source.audit.pages())
        plans = _copy_plans(source, target, fence)
        numbered = _copy_sequential_nodes(source.mailbox, target.mailbox)
        rows = (row for row in source.state.everything() if row.noun not in _OWN)
        nodes = (node for root in _ROOTS for node in _walk_documents(source.mailbox, root))
        written = sum(target.state.write(row.noun, {row.key: row.text}, {}) is not None for row in rows)
        named = sum(put_one(target.mailbox, node.path, node.data) is not None for node in nodes)
        fence.check()
        identity = target.bind_rows_to_mailbox()
        if identity is not None:
            mark_copied(source.mailbox, identity)
    return CopyCounts(plans, numbered + named + written, audit_rows)


def _copy_plans(source: Journal, target: Journal, fence: Fence) -> int:
    """Copy the plans, published or proposed; return the number of published ones that were new."""
    copied = 0
    for digest in source.plans.digests():
        fence.check()
        copied += target.plans.import_plan(source.plans, digest)
    return copied


def _walk_documents(mailbox: Mailbox, path: str) -> Iterator[Node]:
    """Yield the documents at and below a path: nodes without children."""
    names = mailbox.children(path)
    # Nodes with an invalid name are not copied: the watch of the old journal has moved them to quarantine.
    for below in filter(paths.is_path, (f"{path}/{name}" for name in names)):
        yield from _walk_documents(mailbox, below)
    node = None if names else read_one(mailbox, path)
    if node is not None and (node.data or path in _MAY_BE_EMPTY):
        yield node


def _copy_sequential_nodes(source: Mailbox, target: Mailbox) -> int:
    """Copy requests, and chunks that belong to no plan. A node whose exact text is in the target was copied before."""
    copied = 0
    for prefix in (paths.REQUEST_PREFIX, paths.CHUNK_PREFIX):
        parent = prefix.rpartition("/")[0]
        known = {node.data for node in read_below(target, parent)}
        for node in read_below(source, parent):
            if node.data not in known and not _is_plan_chunk(node, prefix):
                target.append(prefix, node.data)
                copied += 1
    return copied


def _is_plan_chunk(node: Node, prefix: str) -> bool:
    if prefix != paths.CHUNK_PREFIX:
        return False
    return any(chunk.plan is not None for _, chunk in parse_valid_nodes([node], Chunk.from_node))
