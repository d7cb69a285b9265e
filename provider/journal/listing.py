"""Listing of the documents of one kind, one by one, and the quarantine of the unreadable ones.

Readers use `list_valid`: one corrupt node never prevents the others from being read.

A corrupt document would stop every process that needs it. The watch moves the unreadable nodes to quarantine
(`quarantine_unreadable`), so that each is reported once and not at each poll. Its text is kept in a row
with the reason, so that users can inspect it and find out which client wrote it. Then a readable
document replaces it, if there is one. A document of a newer release is not corrupt: it is left unchanged, and the
message says that an upgrade is needed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kafka_steward.errors import DocumentError, JournalError, JournalUnreachable
from kafka_steward.escaping import printable
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Actor, AuditRecord, event_number
from kafka_steward.journal.document import NewerDocument, sanitize_text, warn_once
from kafka_steward.journal.mailbox import MAX_BYTES, Mailbox, Node, delete_one, put_one, read_subtree
from kafka_steward.journal.paths import NodeName
from kafka_steward.journal.state import Noun, Rows, State

if TYPE_CHECKING:
    from kafka_steward.journal.store import Journal


#: The limits on documents of one kind, and on their bytes, per read. The others, in the order of their names, are read
#: only once these are deleted.
MAX_DOCUMENTS = 10_000
MAX_BYTES_AT_ONCE = 10_000_000
#: The interval between two sweeps of one process, in milliseconds.
SWEEP_MS = 30_000
#: Characters that are kept of a reason.
_REASON = 4_000
#: The limits per sweep on quarantined entries of one kind, and on the nodes below one invalid name.
_SWEPT, _SWEPT_BELOW = 100, 20
_NO_DOCUMENT = "has child nodes where a document is expected; delete them."
#: Paths at which there is a single document.
_SINGLE = (
    paths.REASSIGN_CANCEL,
    paths.CANCEL_IN_PROGRESS,
    paths.REASSIGN_QUEUE,
)
#: Nodes per request while sizes are counted: a document has at most 1 MB, so this bounds the excess over the limit.
_BATCH = 50

T = TypeVar("T")


def read_pending_deletions(journal: Journal) -> dict[str, frozenset[int]]:
    """Return the topics whose deletion Kafka has not ended, with the brokers of their replicas, from its ZooKeeper.

    Of a KRaft cluster, which deletes at once, and without its ZooKeeper, there are none. Raises JournalError.
    """
    topics = [name for name in journal.mailbox.children(paths.DELETE_TOPICS) if paths.is_topic(name)]
    nodes = journal.mailbox.read([f"{paths.TOPICS}/{name}" for name in topics]) if topics else []
    return {topic: _replica_brokers(node) for topic, node in zip(topics, nodes, strict=True)}


def _replica_brokers(node: Node | None) -> frozenset[int]:
    """Return the brokers in Kafka's own record of a topic; empty if there is none any more, or none that we know."""
    try:
        partitions = {} if node is None else json.loads(node.data)["partitions"]
        return frozenset(int(broker) for replicas in partitions.values() for broker in replicas)
    except (AttributeError, KeyError, TypeError, ValueError):
        return frozenset()


@dataclass(frozen=True, slots=True)
class ListedDocument(Generic[T]):
    """A document that was read: `key` contains the parsed names of its path, from the parent down."""

    key: tuple[Any, ...]
    node: Node
    document: T


@dataclass(frozen=True, slots=True)
class UnreadableNode:
    """A node whose name or value cannot be parsed; `reason` is the message. `node` is None if the name is invalid.

    `newer` is True if a later release wrote the document.
    """

    path: str
    reason: str
    node: Node | None = None
    newer: bool = False


@dataclass
class Listing(Generic[T]):
    """The documents that were read, in the order of their keys, and the unreadable nodes."""

    readable: list[ListedDocument[T]] = field(default_factory=list)
    unreadable: list[UnreadableNode] = field(default_factory=list)


def read_bounded(mailbox: Mailbox, wanted: Sequence[str]) -> Iterator[Node | None]:
    """Read the first MAX_DOCUMENTS of these documents, and about MAX_BYTES_AT_ONCE bytes of them; None if missing."""
    size = 0
    for start in range(0, min(len(wanted), MAX_DOCUMENTS), _BATCH):
        if size > MAX_BYTES_AT_ONCE:
            return
        nodes = mailbox.read(wanted[start : min(start + _BATCH, MAX_DOCUMENTS)])
        size += sum(len(node.data) for node in nodes if node is not None)
        yield from nodes


@dataclass(frozen=True)
class DocumentCollection(Generic[T]):
    """All documents of one kind: those below `parent`, as many levels deep as there are `names`, parsed by `read`.

    `rebuilt` makes the value that an unreadable document counts as, and that replaces it. Without `rebuilt`, an
    unreadable document is not listed and is not replaced. With `names_only`, a sweep does not read the values: they are
    read, quarantined or re-created where they are needed. A sweep checks the first `looked_below` of them for nodes
    below where the document is missing.
    """

    parent: str
    names: tuple[NodeName[Any], ...]
    read: Callable[[Node], T]
    rebuilt: Callable[[Node], str] | None = None
    names_only: bool = False
    looked_below: int = 0

    def list_valid(self, mailbox: Mailbox) -> list[ListedDocument[T]]:
        """Return the readable documents."""
        return self.list_with_unreadable(mailbox).readable

    def list_with_unreadable(self, mailbox: Mailbox) -> Listing[T]:
        """Read at most MAX_DOCUMENTS, and about MAX_BYTES_AT_ONCE bytes of them, in the order of their keys."""
        listing: Listing[T] = Listing()
        named = sorted(self.list_paths(mailbox, listing.unreadable), key=lambda pair: pair[0])
        nodes = read_bounded(mailbox, [path for _, path in named])
        for (key, path), node in zip(named, nodes, strict=False):
            self._add_to_listing(mailbox, key, path, node, listing)
        return listing

    def list_paths(self, mailbox: Mailbox, unreadable: list[UnreadableNode]) -> list[tuple[tuple[Any, ...], str]]:
        """Return key and path of each node whose name is valid; add the others to `unreadable`."""
        below: list[tuple[tuple[Any, ...], str]] = [((), self.parent)]
        for name in self.names:
            parents, below = below, []
            for key, parent in parents:
                for child in mailbox.children(parent):
                    part, path = name.parse(child), f"{parent}/{child}"
                    if part is None:
                        reason = f"{printable(path[:300])} does not name a {name.what}; correct or delete it."
                        unreadable.append(UnreadableNode(path, reason))
                    else:
                        below.append(((*key, part), path))
        return below

    def _add_to_listing(
        self, mailbox: Mailbox, key: tuple[Any, ...], path: str, node: Node | None, listing: Listing[T]
    ) -> None:
        if node is None:
            if mailbox.children(path):
                listing.unreadable.append(UnreadableNode(path, f"{path} {_NO_DOCUMENT}"))
            return
        try:
            listing.readable.append(ListedDocument(key, node, self.read(node)))
        except DocumentError as error:
            listing.unreadable.append(UnreadableNode(path, str(error), node, isinstance(error, NewerDocument)))
            if self.rebuilt is not None:
                listing.readable.append(ListedDocument(key, node, self.read(replace(node, data=self.rebuilt(node)))))


def list_unreadable(mailbox: Mailbox, collections: Sequence[DocumentCollection[Any]]) -> list[UnreadableNode]:
    """Return the nodes that the next sweep of these collections would quarantine."""
    return [
        *_find_paths_without_document(mailbox, _SINGLE),
        *(node for of in collections for node in _find_unreadable(mailbox, of)),
    ]


def quarantine_unreadable(journal: Journal, collections: Sequence[DocumentCollection[Any]], who: Actor) -> list[str]:
    """Move the unreadable nodes of these collections to quarantine, with an audit row for each; return the messages.

    At most 100 of each kind are moved per call. A document of a later release is left unchanged. A node that the
    backend does not allow us to move is logged once. Raises JournalUnreachable.
    """
    strays = [(node, None) for node in _find_paths_without_document(journal.mailbox, _SINGLE)]
    listed = [(node, of.rebuilt) for of in collections for node in _find_unreadable(journal.mailbox, of)[:_SWEPT]]
    messages = [_quarantine_with_audit(journal, node, rebuilt, who) for node, rebuilt in (*strays, *listed)]
    return [sentence for sentence in messages if sentence]


class QuarantineSweep:
    """Quarantines what others wrote and nobody can read, once per `SWEEP_MS`; until then all readers skip it."""

    def __init__(self, journal: Journal, collections: Sequence[DocumentCollection[Any]], who: Actor) -> None:
        self._journal, self._collections, self._who = journal, collections, who
        self._swept_ms: int | None = None

    def run(self, now_ms: int) -> list[str]:
        """Quarantine the unreadable documents if that is due; return the messages."""
        # Also after the clock was set back.
        if self._swept_ms is not None and 0 <= now_ms - self._swept_ms < SWEEP_MS:
            return []
        messages = quarantine_unreadable(self._journal, self._collections, self._who)
        self._swept_ms = now_ms
        return messages


def _quarantine_with_audit(
    journal: Journal, unreadable: UnreadableNode, rebuilt: Callable[[Node], str] | None, who: Actor
) -> str:
    kept = _move_to_quarantine(journal, unreadable, rebuilt)
    if kept is None:
        return ""
    sentence = f"{unreadable.reason} Its content was copied to {kept}."
    journal.audit.record(
        AuditRecord(Action.REPAIR, sentence, before=printable(unreadable.path[:300]), after=kept, who=who)
    )
    return sentence


def _find_unreadable(mailbox: Mailbox, collection: DocumentCollection[Any]) -> list[UnreadableNode]:
    if not collection.names_only:
        return [node for node in collection.list_with_unreadable(mailbox).unreadable if not node.newer]
    unreadable: list[UnreadableNode] = []
    named = collection.list_paths(mailbox, unreadable)
    looked_below = [path for _, path in named[: collection.looked_below]]
    return unreadable + _find_paths_without_document(mailbox, looked_below)


def _find_paths_without_document(mailbox: Mailbox, documents: Sequence[str]) -> list[UnreadableNode]:
    """Return the paths that have children instead of a document: ZooKeeper would let us create no document there."""
    empty = [path for path, node in zip(documents, mailbox.read(documents), strict=True) if node is None]
    return [UnreadableNode(path, f"{path} {_NO_DOCUMENT}") for path in empty if mailbox.children(path)]


def _move_to_quarantine(
    journal: Journal, unreadable: UnreadableNode, rebuilt: Callable[[Node], str] | None
) -> str | None:
    """Move a node, or what is below its path, to quarantine; return the first path there, or None if none was moved.

    Of a large subtree a part is moved; the next sweeps move the rest.
    """
    mailbox, why = journal.mailbox, ""
    kept: list[str | None] = []
    try:
        nodes = read_subtree(mailbox, unreadable.path, _SWEPT_BELOW) if unreadable.node is None else [unreadable.node]
        for node in nodes:
            replacement = None if unreadable.node is None or rebuilt is None else rebuilt(node)
            kept.append(quarantine_document(mailbox, journal.state, node, unreadable.reason, replacement))
    except JournalUnreachable:
        raise
    except JournalError as error:
        why = f": {error}"
    if why or None in kept or not kept:
        place = f"{journal.cluster_id} {unreadable.path}"
        warn_once(place, f"{unreadable.reason} It cannot be quarantined{why or '.'}")
    return next(filter(None, kept), None)


@dataclass(frozen=True)
class QuarantinedDocument:
    """A document of others that could not be read: its path, the reason, and its text."""

    path: str
    reason: str
    text: str


QUARANTINE: Noun[int, QuarantinedDocument] = Noun("quarantine", QuarantinedDocument, int)


def quarantine_document(mailbox: Mailbox, state: State, node: Node, reason: str, replacement: str | None) -> str | None:
    """Keep the text of `node` in a row, then replace the node by `replacement`, or delete it if that is None.

    Returns the place of the row. Returns None if the node was changed in between, so that it has to be read again, or
    if it cannot be deleted; the row is then deleted. If the process is killed in between, the text is later kept a
    second time.
    """
    rows, number = Rows(state, QUARANTINE), event_number()
    document = QuarantinedDocument(printable(node.path), sanitize_text(reason, _REASON), node.data[:MAX_BYTES])
    # Kept before the node is replaced: a crash in between keeps the text twice, and loses nothing.
    row = rows.put(number, document, None)
    if replacement is None:
        replaced = delete_one(mailbox, node)
    else:
        replaced = put_one(mailbox, node.path, replacement, node) is not None
    if replaced:
        return f"row {number} of {QUARANTINE.name} in the journal's table steward_state"
    if row is not None:
        rows.delete(row)
    return None


def delete_or_quarantine(journal: Journal, node: Node, read: Callable[[Node], object]) -> None:
    """Delete a node whose request was processed; if `read` fails to parse its text, move it to quarantine."""
    try:
        read(node)
    except DocumentError as error:
        quarantine_document(journal.mailbox, journal.state, node, str(error), None)
    else:
        delete_one(journal.mailbox, node)
