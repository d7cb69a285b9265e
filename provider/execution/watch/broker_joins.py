"""Brokers that join: those that can take pending replicas (KIP-409), and empty ones, for which one expand is to start.

Detection is level-triggered, by state and not by the moment at which a broker joined: the event is re-emitted every
`heal_retry_interval`, and at once for a broker that was not announced before. While a fill plan is unfinished, no event
is emitted.

The watch records which live brokers are empty, and re-emits that event every `heal_retry_interval` until a run claims
them. A broker is claimed by one run and not announced again, even if that run's plan fails, unless it leaves the
cluster and rejoins empty. A broker that held replicas and was drained is not announced either. Pending replicas are
filled first (KIP-409); a broker that received some of them stays unclaimed. A broker is empty if it holds nothing but
replicas of service topics, such as a canary's.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from kafka_steward.assignment import Operation, begin_with_brokers, counted, name_brokers
from kafka_steward.cluster.state import Snapshot
from kafka_steward.errors import VersionConflict
from kafka_steward.execution.cluster_queries import cordoned_brokers
from kafka_steward.execution.failures.rules import brokers_to_announce
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.execution.topics.creation import find_due_deferred_partitions
from kafka_steward.execution.topics.pending import (
    PendingReplica,
    PendingState,
    count_missing,
    eligible_brokers,
    list_pending,
    reconcile_pending,
)
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.records import (
    DEFERRED_PARTITIONS,
    EMPTY_BROKERS,
    FILL_EVENT,
    PENDING_REPLICAS,
    BrokerClaims,
    FillEvent,
)
from kafka_steward.journal.state import ONLY, Row
from kafka_steward.journal.store import Journal
from kafka_steward.settings import Settings

_NONE_JOINED = "No broker that joined is waiting."


@dataclass(frozen=True)
class JoinPollResult:
    """The result of one poll. `due` are the brokers to emit an event for now.

    `able` are all brokers that can take a pending replica or let a deferred partition request execute. `empty` are live
    brokers that hold no replica, or of service topics only. `pending` is the number of pending replicas. Times are the
    journal's.
    """

    due: tuple[int, ...]
    eligible: tuple[int, ...]
    empty: tuple[int, ...]
    live: tuple[int, ...]
    pending: int
    sentence: str
    now_ms: int


def poll_joined_brokers(
    cluster: ClusterPort,
    journal: Journal,
    settings: Settings,
    who: Actor,
    *,
    announce: bool = True,
    always: bool = False,
) -> JoinPollResult | None:
    """Poll once, and update the pending-replica store.

    With `announce`, the brokers in `due` are recorded as announced; without it, none is due. Unless `always` is True,
    the result is None, without a request to Kafka, while there are no pending replicas and no deferred partition
    requests.

    Raises ClusterError, JournalError.
    """
    with journal.one_read():
        return _poll_joined_brokers(cluster, journal, settings, who, announce=announce, always=always)


def _poll_joined_brokers(
    cluster: ClusterPort, journal: Journal, settings: Settings, who: Actor, *, announce: bool, always: bool
) -> JoinPollResult | None:
    if not always and not (journal.rows(PENDING_REPLICAS).all() or journal.rows(DEFERRED_PARTITIONS).all()):
        return None
    snapshot = cluster.snapshot()
    pending = reconcile_pending(cluster, journal, snapshot, who)
    cordoned = cordoned_brokers(cluster, snapshot.live if pending else ())
    able = eligible_brokers(pending, snapshot, cordoned) | (
        snapshot.live if find_due_deferred_partitions(cluster, journal, snapshot) else frozenset()
    )
    now_ms = journal.now_ms()
    due = _announce_due_brokers(journal, able, settings, now_ms) if announce else ()
    missing = count_missing(pending)
    return JoinPollResult(
        due=due,
        eligible=_sorted_ids(able),
        empty=_sorted_ids(snapshot.live - _hosting(snapshot, settings)),
        live=_sorted_ids(snapshot.live),
        pending=missing,
        sentence=_pending_message(pending, missing, able),
        now_ms=now_ms,
    )


def _announce_due_brokers(journal: Journal, able: frozenset[int], settings: Settings, now_ms: int) -> tuple[int, ...]:
    rows = journal.rows(FILL_EVENT)
    row = rows.get(ONLY)
    if not able:
        if row is not None:
            rows.delete(row)
        return ()
    if _is_fill_in_progress(journal):
        return ()
    last = FillEvent(0) if row is None else row.value
    if not brokers_to_announce(able, dict.fromkeys(last.brokers, last.announced_ms), now_ms, settings):
        return ()
    event = FillEvent(now_ms, _sorted_ids(able))
    return event.brokers if rows.put(ONLY, event, row) is not None else ()


def _is_fill_in_progress(journal: Journal) -> bool:
    return any(record.operation == Operation.FILL.value for record in journal.plans.unfinished())


def _pending_message(pending: list[PendingReplica], missing: int, able: frozenset[int]) -> str:
    if not missing:
        return "No replica is pending."
    partitions = sum(not replica.is_obsolete for replica in pending)
    verb = "is" if missing == 1 else "are"
    message = f"{counted(missing, 'replica')} of {counted(partitions, 'partition')} {verb} pending"
    if able:
        return f"{message}; {name_brokers(sorted(able))} can host some."
    if any(replica.state is PendingState.MOVING for replica in pending):
        return f"{message}, and some are in flight."
    return f"{message}; no live broker can host one."


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


def update_empty_brokers(before: BrokerClaims, snapshot: Snapshot, hosting: frozenset[int]) -> BrokerClaims:
    """Return the updated record after a poll. Pure.

    `hosting` are the brokers that hold replicas of other topics than service topics. If no broker holds replicas, no
    broker becomes unclaimed.
    """
    # Of a broker that has left nothing is remembered: when it comes back empty, it is new again.
    still_unclaimed = frozenset(before.unclaimed) & snapshot.live
    # A broker that holds replicas is not new, and a drained broker is not new either: an expand would undo the drain.
    known = (frozenset(before.known) | hosting) & snapshot.live - still_unclaimed
    # In a cluster without any replica every broker is empty, and none has joined.
    unclaimed = still_unclaimed | (snapshot.live - known if hosting else frozenset[int]())
    # A new broker is announced at once.
    announced_ms = before.announced_ms if unclaimed <= frozenset(before.unclaimed) else 0
    return replace(before, unclaimed=_sorted_ids(unclaimed), known=_sorted_ids(known), announced_ms=announced_ms)


def is_unchanged(before: BrokerClaims, live: Collection[int]) -> bool:
    """Return whether a poll would find what the record says, whatever replicas the live brokers have. Pure.

    It would if no broker is unclaimed and the known brokers are those that are live: none of them can become new.
    """
    return not before.unclaimed and frozenset(before.known) == frozenset(live)


def poll_empty_brokers(
    cluster: ClusterPort, journal: Journal, settings: Settings, *, announce: bool = True
) -> EmptyBrokers:
    """Poll once, and record the changes; the brokers returned in `due` are recorded as announced.

    Without `announce`, none is due. While the brokers are the known ones, Kafka gets one request.

    Raises ClusterError, JournalError.
    """
    with journal.one_read():
        row = journal.rows(EMPTY_BROKERS).get(ONLY)
        if is_unchanged(_claims(row), cluster.live_brokers().keys()):
            return EmptyBrokers((), (), (), _NONE_JOINED, journal.now_ms())
        return _poll_empty_brokers(cluster, journal, settings, row, announce=announce)


def _hosting(snapshot: Snapshot, settings: Settings) -> frozenset[int]:
    """Return the brokers that hold replicas of other topics than service topics."""
    return snapshot.hosting_besides(settings.service_topic_patterns)


def _poll_empty_brokers(
    cluster: ClusterPort, journal: Journal, settings: Settings, row: Row[str, BrokerClaims] | None, *, announce: bool
) -> EmptyBrokers:
    snapshot = cluster.snapshot()
    hosting = _hosting(snapshot, settings)
    before, now_ms = _claims(row), journal.now_ms()
    claims = update_empty_brokers(before, snapshot, hosting)
    why = _fill_first_reason(cluster, journal, snapshot)
    announced_ms = dict.fromkeys(claims.unclaimed, claims.announced_ms)
    again = brokers_to_announce(claims.unclaimed, announced_ms, now_ms, settings)
    due = _find_claimable_brokers(cluster, claims) if announce and again and not why else ()
    claims = replace(claims, announced_ms=now_ms) if due else claims
    if claims != before and journal.rows(EMPTY_BROKERS).put(ONLY, claims, row) is None:
        due = ()  # another watch polls concurrently
    # What an earlier look has found has not joined now. The first look cannot tell which brokers are older.
    joined = frozenset(claims.unclaimed) - frozenset(before.unclaimed) if before.known or before.unclaimed else ()
    return _build_empty_brokers(claims.unclaimed, due, hosting, why, now_ms, joined=joined)


def claim_empty_brokers(cluster: ClusterPort, journal: Journal, settings: Settings, run: str) -> EmptyBrokers:
    """Claim the unclaimed brokers for a run, once; a later attempt of the same run gets the same brokers again.

    Nothing is claimed while a fill must come first: the watch re-emits the event after it. Raises ClusterError,
    JournalError; VersionConflict when a watch polls concurrently: try again.
    """
    rows = journal.rows(EMPTY_BROKERS)
    snapshot, row = cluster.snapshot(), rows.get(ONLY)
    before, now_ms, hosting = _claims(row), journal.now_ms(), _hosting(snapshot, settings)
    if run == before.run:
        return _build_empty_brokers(before.claimed, (), hosting, "", now_ms)
    claims = update_empty_brokers(before, snapshot, hosting)
    why = _fill_first_reason(cluster, journal, snapshot)
    ready = () if why else _find_claimable_brokers(cluster, claims)
    if ready:
        unclaimed = _sorted_ids(frozenset(claims.unclaimed) - frozenset(ready))
        known = _sorted_ids(frozenset((*claims.known, *ready)))
        taken = replace(claims, unclaimed=unclaimed, known=known, run=run, claimed=ready)
        if rows.put(ONLY, taken, row) is None:
            raise VersionConflict("The record of empty brokers was changed by another process; it is retried.")
    return _build_empty_brokers(ready, (), hosting, why, now_ms)


def _find_claimable_brokers(cluster: ClusterPort, claims: BrokerClaims) -> tuple[int, ...]:
    """Return the unclaimed brokers that may receive replicas: a cordoned broker waits until it is not (KIP-1066)."""
    return _sorted_ids(frozenset(claims.unclaimed) - cordoned_brokers(cluster, claims.unclaimed))


def _fill_first_reason(cluster: ClusterPort, journal: Journal, snapshot: Snapshot) -> str:
    """Return why an expand waits for the fill; empty when it does not."""
    if _is_fill_in_progress(journal):
        return "a fill is in progress"
    pending = list_pending(journal, snapshot)
    able = eligible_brokers(pending, snapshot, cordoned_brokers(cluster, snapshot.live if pending else ()))
    return "a live broker can host pending replicas" if able else ""


def _build_empty_brokers(
    brokers: tuple[int, ...],
    due: tuple[int, ...],
    hosting: frozenset[int],
    why: str,
    now_ms: int,
    *,
    joined: Collection[int] | None = None,
) -> EmptyBrokers:
    """Return the result; `joined` are those of the brokers that have joined since the last look, by default all."""
    empty = tuple(broker for broker in brokers if broker not in hosting)
    new = tuple(broker for broker in brokers if joined is None or broker in joined)
    old = tuple(broker for broker in brokers if broker not in new)
    parts = [f"{begin_with_brokers(new, 'has', 'have')} joined."] if new else []
    parts += [f"{begin_with_brokers(old, 'waits', 'wait')} for an expand."] if old else []
    parts += [f"The expand waits: {why}."] if why else []
    return EmptyBrokers(brokers, empty, due, " ".join(parts if brokers else [_NONE_JOINED, *parts]), now_ms)


def _sorted_ids(brokers: frozenset[int]) -> tuple[int, ...]:
    return tuple(sorted(brokers))


def _claims(row: Row[str, BrokerClaims] | None) -> BrokerClaims:
    return BrokerClaims() if row is None else row.value
