"""Detect brokers that can take pending replicas or let deferred partition requests execute (KIP-409).

Detection is level-triggered, by state and not by the moment at which a broker joined: the event is re-emitted every
`heal_retry_interval`, and at once for a broker that was not announced before. While a fill plan is unfinished, no event
is emitted.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafka_steward.assignment import Operation
from kafka_steward.execution.cordons import cordoned_brokers
from kafka_steward.execution.decisions.pending import PendingReplica, PendingState, eligible_brokers
from kafka_steward.execution.filling.partitions import deferred_partitions
from kafka_steward.execution.filling.pending_replicas import reconcile_pending
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.changes import put, remove
from kafka_steward.journal.document import parse_valid
from kafka_steward.journal.open import Journal
from kafka_steward.journal.pending import FillEvent
from kafka_steward.journal.tree import Node
from kafka_steward.settings import Settings

__all__ = ["Joined", "poll_joined"]


@dataclass(frozen=True)
class Joined:
    """The result of one poll. `due` are the brokers to emit an event for now.

    `able` are all brokers that can take a pending replica or let a deferred partition request execute. `empty` are live
    brokers that hold no replica at all. `owed` is the number of pending replicas. Times are the journal's.
    """

    due: tuple[int, ...]
    eligible: tuple[int, ...]
    empty: tuple[int, ...]
    live: tuple[int, ...]
    owed: int
    sentence: str
    now_ms: int


def poll_joined(
    cluster: ClusterPort, journal: Journal, settings: Settings, who: Actor, *, announce: bool = True
) -> Joined | None:
    """Poll once, and update the pending-replica store.

    With `announce`, the brokers in `due` are recorded as announced. With `announce`, the result is also None, without a
    request to Kafka, while there are no pending replicas and no deferred partition requests.

    Raises ClusterError, JournalError.
    """
    if announce and not (
        journal.tree.children(paths.PENDING_REPLICAS) or journal.tree.children(paths.DEFERRED_PARTITIONS)
    ):
        return None
    snapshot = cluster.snapshot()
    owing = reconcile_pending(cluster, journal, snapshot, who)
    able = eligible_brokers(owing, snapshot) | (
        snapshot.live if deferred_partitions(journal, snapshot) else frozenset()
    )
    able -= cordoned_brokers(cluster, able)
    now_ms = journal.now_ms()
    due = _due(journal, able, settings, now_ms) if announce else ()
    missing = sum(debt.missing for debt in owing if not debt.over)
    return Joined(
        due=due,
        eligible=tuple(sorted(able)),
        empty=tuple(sorted(snapshot.live - snapshot.hosting)),
        live=tuple(sorted(snapshot.live)),
        owed=missing,
        sentence=_sentence(owing, missing, able),
        now_ms=now_ms,
    )


def _due(journal: Journal, able: frozenset[int], settings: Settings, now_ms: int) -> tuple[int, ...]:
    node = journal.tree.get(paths.FILL_EVENT)
    told = _announced(node)
    if not able:
        if node is not None:
            remove(journal.tree, node)
        return ()
    if _is_being_filled(journal):
        return ()
    waited = told is None or now_ms - told.announced_ms >= settings.heal_retry_interval * 1000
    if told is not None and not waited and able <= set(told.brokers):
        return ()
    announced = FillEvent(now_ms, tuple(sorted(able)))
    written = put(journal.tree, paths.FILL_EVENT, node, announced.to_json())
    return tuple(sorted(able)) if written is not None else ()


def _is_being_filled(journal: Journal) -> bool:
    return any(record.operation == Operation.FILL.value for record in journal.plans.unfinished())


def _announced(node: Node | None) -> FillEvent | None:
    found = [] if node is None else parse_valid([node], FillEvent.from_node)
    return found[0][1] if found else None


def _sentence(owing: list[PendingReplica], missing: int, able: frozenset[int]) -> str:
    if not missing:
        return "No replica is owed."
    partitions = sum(not debt.over for debt in owing)
    told = f"{missing} replicas of {partitions} partitions are owed"
    if able:
        return f"{told}; broker {', '.join(map(str, sorted(able)))} can take some."
    if any(debt.state is PendingState.MOVING for debt in owing):
        return f"{told}, and some are on their way."
    return f"{told}; no live broker can take one."
