"""Failed log directories of live brokers, persisted so that any later poll continues from them.

`/steward/failed_log_dirs/<id>` has the time since which a live broker has offline replicas, and the time of the last
announcement.
"""

from __future__ import annotations

from dataclasses import replace

from kafka_steward.execution.decisions.disks import DiskDecision, decide_disks
from kafka_steward.execution.decisions.failures import Failure, LivenessView, handled_brokers, is_outage
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Actor, AuditRecord
from kafka_steward.journal.changes import put_new, remove, replace_text
from kafka_steward.journal.codec import BROKER
from kafka_steward.journal.listing import Collection, Found
from kafka_steward.journal.open import Journal
from kafka_steward.journal.tree import Node
from kafka_steward.settings import Settings

__all__ = ["FAILED_LOG_DIRS", "poll_disks"]

FAILED_LOG_DIRS = Collection(paths.FAILED_LOG_DIRS, (BROKER,), Failure.from_node, Failure.since_written)

#: The number of latest plans that are searched for the newest heal of a broker.
_PLANS = 200


def poll_disks(
    journal: Journal, sight: LivenessView, settings: Settings, who: Actor, *, now_ms: int, announce: bool
) -> DiskDecision:
    """Evaluate the log directories of live brokers in `sight`, and persist the decision. Raises JournalError."""
    known = _known(journal)
    if not known and not sight.lost:
        return DiskDecision()
    failures = {broker: each.document for broker, each in known.items()}
    first_seen_ms = {broker: failure.first_seen_ms for broker, failure in failures.items()}
    judgement = decide_disks(
        sight,
        first_seen_ms=first_seen_ms,
        announced_ms={broker: each.announced_ms for broker, each in failures.items() if each.announced_ms is not None},
        handled=handled_brokers(
            journal.plans.latest(_PLANS),
            replace(sight, replica_counts=sight.lost),
            now_ms,
            settings,
            first_seen_ms=first_seen_ms,
        ),
        outage=is_outage(len(sight.failed | sight.lost.keys()), len(sight.known), settings),
        now_ms=now_ms,
        settings=settings,
    )
    for broker in judgement.write:
        _create(journal, sight, broker, now_ms, who)
    for broker in judgement.clear:
        _delete(journal, known[broker].node, broker, who)
    for broker in judgement.announce if announce else ():
        _announce(journal, broker, now_ms, who)
    return judgement


def _known(journal: Journal) -> dict[int, Found[Failure]]:
    return {each.key[0]: each for each in FAILED_LOG_DIRS.found(journal.tree)}


def _create(journal: Journal, sight: LivenessView, broker: int, now_ms: int, who: Actor) -> None:
    if put_new(journal.tree, f"{paths.FAILED_LOG_DIRS}/{broker}", Failure(now_ms).to_json()) is None:
        return  # written by a concurrent poll: its time stays
    named = ", ".join(sight.disks.get(broker, ())) or "a log directory"
    _note(
        journal, Action.DETECT, broker, f"{named} of broker {broker} has failed with {sight.lost[broker]} replicas", who
    )


def _delete(journal: Journal, node: Node, broker: int, who: Actor) -> None:
    if not remove(journal.tree, node):
        return  # changed or deleted by a concurrent poll
    _note(journal, Action.CLEAR, broker, f"broker {broker} has no replica in a failed log directory any more", who)


def _announce(journal: Journal, broker: int, now_ms: int, who: Actor) -> None:
    found = _known(journal).get(broker)
    if found is None:
        return
    text = replace(found.document, announced_ms=now_ms).to_json()
    if replace_text(journal.tree, found.node, text) is None:
        return  # a concurrent poll announces it
    _note(
        journal,
        Action.ANNOUNCE,
        broker,
        f"a log directory of broker {broker} has failed longer ago than the grace",
        who,
    )


def _note(journal: Journal, action: Action, broker: int, reason: str, who: Actor) -> None:
    journal.audit.record(AuditRecord(action, reason, broker=broker, who=who))
