"""Brokers that join and hold nothing: for whom an expand is to begin, once, after the fill.

By the state, not by the moment: the watch writes down which live brokers are empty, and rings again every
`heal_retry_interval` until a run takes them up. What a run has taken up is its own matter from then on, whatever comes
of its plan: nobody is asked for the same broker twice, unless it goes and comes back empty. Nor for one that was seen
to hold something, and was drained. Replicas that are owed go first (KIP-409); a broker that got some of them waits all
the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kafka_steward.assignment import Operation
from kafka_steward.cluster.state import Snapshot
from kafka_steward.errors import VersionConflict
from kafka_steward.execution.cordons import cordoned_brokers
from kafka_steward.execution.decisions.owed import takers
from kafka_steward.execution.filling.debtbook import debts
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.journal import paths
from kafka_steward.journal.changes import put
from kafka_steward.journal.document import readable
from kafka_steward.journal.joined import JoinedBrokers
from kafka_steward.journal.open import Journal
from kafka_steward.journal.tree import Node
from kafka_steward.settings import Settings

__all__ = ["Newcomers", "look_for_newcomers", "seen", "take_up"]


@dataclass(frozen=True)
class Newcomers:
    """What a look found. `due` are brokers to ring for now; `brokers` all that wait, or that a run has taken up.

    `empty` are those of them that still hold nothing. Times are the journal's.
    """

    brokers: tuple[int, ...]
    empty: tuple[int, ...]
    due: tuple[int, ...]
    sentence: str
    now_ms: int


def seen(known: JoinedBrokers, snapshot: Snapshot) -> JoinedBrokers:
    """What is known after a look. Pure. Where no broker holds anything, there is nothing to expand."""
    waited = frozenset(known.waiting) & snapshot.live
    # Who holds something is not new, and is not when it is drained either: a drain would be undone.
    old = (frozenset(known.old) | snapshot.hosting) & snapshot.live - waited
    waiting = waited | (snapshot.live - old if snapshot.hosting else frozenset[int]())
    # One that is new is rung for at once.
    announced_ms = known.announced_ms if waiting <= frozenset(known.waiting) else 0
    return replace(known, waiting=_ids(waiting), old=_ids(old), announced_ms=announced_ms)


def look_for_newcomers(cluster: ClusterPort, journal: Journal, settings: Settings) -> Newcomers:
    """Look once, and write down what has changed; what is returned in `due` counts as rung for.

    Raises ClusterError, JournalError.
    """
    snapshot, node = cluster.snapshot(), journal.tree.get(paths.JOINED_BROKERS)
    known, now_ms = _known(node), journal.now_ms()
    found = seen(known, snapshot)
    why = _fill_first(journal, snapshot)
    early = now_ms - found.announced_ms < settings.heal_retry_interval * 1000
    due = () if why or early else _ready(cluster, found)
    found = replace(found, announced_ms=now_ms) if due else found
    if found != known and put(journal.tree, paths.JOINED_BROKERS, node, found.to_json()) is None:
        due = ()  # another watch looks
    return _newcomers(found.waiting, due, snapshot, why, now_ms)


def take_up(cluster: ClusterPort, journal: Journal, run: str) -> Newcomers:
    """Take up for a run what waits, once; a later try of the same run gets the same brokers again.

    Nothing is taken up while a fill is to come first: the watch rings again after it. Raises ClusterError,
    JournalError; VersionConflict when a watch looks at this very moment: try again.
    """
    snapshot, node = cluster.snapshot(), journal.tree.get(paths.JOINED_BROKERS)
    known, now_ms = _known(node), journal.now_ms()
    if run == known.run:
        return _newcomers(known.told, (), snapshot, "", now_ms)
    found = seen(known, snapshot)
    why = _fill_first(journal, snapshot)
    ready = () if why else _ready(cluster, found)
    if ready:
        old, later = _ids(frozenset((*found.old, *ready))), _ids(frozenset(found.waiting) - frozenset(ready))
        taken = replace(found, waiting=later, old=old, run=run, told=ready)
        if put(journal.tree, paths.JOINED_BROKERS, node, taken.to_json()) is None:
            raise VersionConflict(f"{paths.JOINED_BROKERS} was changed by another process; it is tried again.")
    return _newcomers(ready, (), snapshot, why, now_ms)


def _ready(cluster: ClusterPort, found: JoinedBrokers) -> tuple[int, ...]:
    """Those who wait and may be given something: one that is cordoned waits until it is not any more (KIP-1066)."""
    return _ids(frozenset(found.waiting) - cordoned_brokers(cluster, found.waiting))


def _fill_first(journal: Journal, snapshot: Snapshot) -> str:
    """Why an expand waits for the fill; empty when it does not."""
    if any(record.operation == Operation.FILL.value for record in journal.plans.unfinished()):
        return "a fill is under way"
    return "replicas are owed that a live broker can take" if takers(debts(journal, snapshot), snapshot) else ""


def _newcomers(brokers: tuple[int, ...], due: tuple[int, ...], snapshot: Snapshot, why: str, now_ms: int) -> Newcomers:
    empty = tuple(broker for broker in brokers if broker not in snapshot.hosting)
    told = f"Broker {', '.join(map(str, brokers))} has joined." if brokers else "No broker has joined that waits."
    told += f" The expand waits: {why}." if why else ""
    return Newcomers(brokers, empty, due, told, now_ms)


def _ids(brokers: frozenset[int]) -> tuple[int, ...]:
    return tuple(sorted(brokers))


def _known(node: Node | None) -> JoinedBrokers:
    found = [] if node is None else readable([node], JoinedBrokers.from_node)
    return found[0][1] if found else JoinedBrokers()
