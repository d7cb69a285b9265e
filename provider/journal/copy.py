"""Taking a journal along to another backend: a cluster that leaves ZooKeeper keeps its plans and its history.

Whatever the other journal has already is left as it is there, so that a copy that broke off can be done again.
Documents whose names are numbered get new numbers: the other journal counts for itself. The original stays as it was;
from then on only the copy may be used, whose halves get a new id: an original that shares its tree or its database with
the copy is refused where it is opened next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kafka_steward.errors import RequestError
from kafka_steward.journal import paths
from kafka_steward.journal.changes import put_new
from kafka_steward.journal.document import readable
from kafka_steward.journal.documents import Chunk
from kafka_steward.journal.locks import Fence
from kafka_steward.journal.open import Journal
from kafka_steward.journal.tree import Node, Tree

__all__ = ["Copied", "copy_journal"]

#: What a journal is made of; beside it, ZooKeeper's `/admin` holds what is Kafka's own.
_ROOTS = (
    paths.FAILED_BROKERS,
    paths.ROLLING_BOUNCE,
    paths.REASSIGN_CANCEL,
    paths.CANCEL_IN_PROGRESS,
    paths.REASSIGN_QUEUE,
    paths.REASSIGNMENTS,
    "/steward",
)
#: These mean something by being there, whatever they hold.
_MAY_BE_EMPTY = (paths.REASSIGN_CANCEL, paths.CANCEL_IN_PROGRESS)
#: A process' own, and what `Plans` takes over.
_LEFT_OUT = (paths.STEP_LOCK, "/steward/clock", paths.JOURNAL, paths.PLANS)


@dataclass(frozen=True, slots=True)
class Copied:
    """How much was new to the other journal."""

    plans: int
    documents: int
    audit_rows: int


def copy_journal(source: Journal, target: Journal, *, owner: str) -> Copied:
    """Copy plans, documents and audit trail, and give the copy an id of its own.

    `owner` names this process in the step lock, which is held so that nothing moves.
    Raises RequestError for two clusters' journals, LockLost while a process steps, JournalUnreachable.
    """
    if source.cluster_id != target.cluster_id:
        raise RequestError(
            f"The journals are of two clusters, {source.cluster_id} and {target.cluster_id}; a copy stays with its own."
        )
    with source.step_lock(owner) as fence:
        audit_rows = target.audit.adopt(source.audit.pages())
        plans = sum(_copy_plan(source, target, digest, fence) for digest in source.plans.digests())
        numbered = _copy_numbered(source.tree, target.tree)
        named = sum(_copy_node(target.tree, node) for root in _ROOTS for node in _documents(source.tree, root))
        fence.check()
        target.reunite()
    return Copied(plans, numbered + named, audit_rows)


def _copy_plan(source: Journal, target: Journal, digest: str, fence: Fence) -> bool:
    fence.check()
    record = source.plans.get(digest)
    return record is not None and target.plans.adopt(record, source.plans.rows(digest))


def _documents(tree: Tree, path: str) -> Iterator[Node]:
    """The documents at and below a path: nodes with nothing below them."""
    if path in _LEFT_OUT:
        return
    names = tree.children(path)
    # What has a name that no document can have is left behind: the watch of the old journal has it in quarantine.
    for below in filter(paths.is_path, (f"{path}/{name}" for name in names)):
        yield from _documents(tree, below)
    node = None if names else tree.get(path)
    if node is not None and (node.data or path in _MAY_BE_EMPTY):
        yield node


def _copy_node(target: Tree, node: Node) -> bool:
    return put_new(target, node.path, node.data) is not None


def _copy_numbered(source: Tree, target: Tree) -> int:
    """Requests, and chunks that belong to no plan. What the target holds word for word was copied before."""
    copied = 0
    for prefix in (paths.REQUEST_PREFIX, paths.CHUNK_PREFIX):
        parent = prefix.rpartition("/")[0]
        known = {node.data for node in target.below(parent)}
        for node in source.below(parent):
            if node.data not in known and not _of_a_plan(node, prefix):
                target.create_sequential(prefix, node.data)
                copied += 1
    return copied


def _of_a_plan(node: Node, prefix: str) -> bool:
    if prefix != paths.CHUNK_PREFIX:
        return False
    return any(chunk.plan is not None for _, chunk in readable([node], Chunk.from_node))
