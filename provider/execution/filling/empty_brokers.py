"""Empty brokers: brokers that join without replicas, for which one expand is to start, after the fill.

Detection is level-triggered: the watch records which live brokers are empty, and re-emits the event every
`heal_retry_interval` until a run claims them. A broker is claimed by one run and not announced again, even if that
run's plan fails, unless it leaves the cluster and rejoins empty. A broker that held replicas and was drained is not
announced either. Pending replicas are filled first (KIP-409); a broker that received some of them stays unclaimed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kafka_steward.assignment import Operation
from kafka_steward.cluster.state import Snapshot
from kafka_steward.errors import VersionConflict
from kafka_steward.execution.cordons import cordoned_brokers
from kafka_steward.execution.decisions.pending import eligible_brokers
from kafka_steward.execution.filling.pending_replicas import list_pending
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.journal import paths
from kafka_steward.journal.changes import put
from kafka_steward.journal.document import parse_valid
from kafka_steward.journal.empty_brokers import EmptyBrokersDocument
from kafka_steward.journal.open import Journal
from kafka_steward.journal.tree import Node
from kafka_steward.settings import Settings

__all__ = ["EmptyBrokers", "poll_empty_brokers", "update_brokers", "claim"]


@dataclass(frozen=True)
class EmptyBrokers:
    """The result of one poll or claim. `due` are the brokers to emit an event for now.

    `brokers` are all unclaimed brokers, or the ones that the run claimed. `empty` is the part of `brokers` that still
    holds no replica. Times are the journal's.
    """

    brokers: tuple[int, ...]
    empty: tuple[int, ...]
    due: tuple[int, ...]
    sentence: str
    now_ms: int


def update_brokers(known: EmptyBrokersDocument, snapshot: Snapshot) -> EmptyBrokersDocument:
    """Return the updated record after a poll. Pure. If no broker holds replicas, no broker becomes unclaimed."""
    waited = frozenset(known.waiting) & snapshot.live
    # A broker that holds replicas is not new, and a drained broker is not new either: an expand would undo the drain.
    old = (frozenset(known.old) | snapshot.hosting) & snapshot.live - waited
    waiting = waited | (snapshot.live - old if snapshot.hosting else frozenset[int]())
    # A new broker is announced at once.
    announced_ms = known.announced_ms if waiting <= frozenset(known.waiting) else 0
    return replace(known, waiting=_ids(waiting), old=_ids(old), announced_ms=announced_ms)


def poll_empty_brokers(cluster: ClusterPort, journal: Journal, settings: Settings) -> EmptyBrokers:
    """Poll once, and record the changes; the brokers returned in `due` are recorded as announced.

    Raises ClusterError, JournalError.
    """
    snapshot, node = cluster.snapshot(), journal.tree.get(paths.EMPTY_BROKERS)
    known, now_ms = _known(node), journal.now_ms()
    found = update_brokers(known, snapshot)
    why = _fill_first(journal, snapshot)
    early = now_ms - found.announced_ms < settings.heal_retry_interval * 1000
    due = () if why or early else _ready(cluster, found)
    found = replace(found, announced_ms=now_ms) if due else found
    if found != known and put(journal.tree, paths.EMPTY_BROKERS, node, found.to_json()) is None:
        due = ()  # another watch polls concurrently
    return _empty_brokers(found.waiting, due, snapshot, why, now_ms)


def claim(cluster: ClusterPort, journal: Journal, run: str) -> EmptyBrokers:
    """Claim the unclaimed brokers for a run, once; a later attempt of the same run gets the same brokers again.

    Nothing is claimed while a fill must come first: the watch re-emits the event after it. Raises ClusterError,
    JournalError; VersionConflict when a watch polls concurrently: try again.
    """
    snapshot, node = cluster.snapshot(), journal.tree.get(paths.EMPTY_BROKERS)
    known, now_ms = _known(node), journal.now_ms()
    if run == known.run:
        return _empty_brokers(known.told, (), snapshot, "", now_ms)
    found = update_brokers(known, snapshot)
    why = _fill_first(journal, snapshot)
    ready = () if why else _ready(cluster, found)
    if ready:
        old, later = _ids(frozenset((*found.old, *ready))), _ids(frozenset(found.waiting) - frozenset(ready))
        taken = replace(found, waiting=later, old=old, run=run, told=ready)
        if put(journal.tree, paths.EMPTY_BROKERS, node, taken.to_json()) is None:
            raise VersionConflict(f"{paths.EMPTY_BROKERS} was changed by another process; it is tried again.")
    return _empty_brokers(ready, (), snapshot, why, now_ms)


def _ready(cluster: ClusterPort, found: EmptyBrokersDocument) -> tuple[int, ...]:
    """Return the unclaimed brokers that may receive replicas: a cordoned broker waits until it is not (KIP-1066)."""
    return _ids(frozenset(found.waiting) - cordoned_brokers(cluster, found.waiting))


def _fill_first(journal: Journal, snapshot: Snapshot) -> str:
    """Return why an expand waits for the fill; empty when it does not."""
    if any(record.operation == Operation.FILL.value for record in journal.plans.unfinished()):
        return "a fill is under way"
    return (
        "replicas are owed that a live broker can take"
        if eligible_brokers(list_pending(journal, snapshot), snapshot)
        else ""
    )


def _empty_brokers(
    brokers: tuple[int, ...], due: tuple[int, ...], snapshot: Snapshot, why: str, now_ms: int
) -> EmptyBrokers:
    empty = tuple(broker for broker in brokers if broker not in snapshot.hosting)
    told = f"Broker {', '.join(map(str, brokers))} has joined." if brokers else "No broker has joined that waits."
    told += f" The expand waits: {why}." if why else ""
    return EmptyBrokers(brokers, empty, due, told, now_ms)


def _ids(brokers: frozenset[int]) -> tuple[int, ...]:
    return tuple(sorted(brokers))


def _known(node: Node | None) -> EmptyBrokersDocument:
    found = [] if node is None else parse_valid([node], EmptyBrokersDocument.from_node)
    return found[0][1] if found else EmptyBrokersDocument()
