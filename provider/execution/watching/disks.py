"""Failed log directories of live brokers, persisted so that any later poll continues from them.

`/steward/failed_log_dirs/<id>` has the time since which a live broker has offline replicas, and the time of the last
announcement.
"""

from __future__ import annotations

from dataclasses import replace

from kafka_steward.errors import DocumentError
from kafka_steward.execution.decisions.disks import DiskJudgement, judge_disks
from kafka_steward.execution.decisions.failures import Failure, Sight, handled_brokers, is_outage
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Entry, Who
from kafka_steward.journal.changes import put_new, remove, replace_text
from kafka_steward.journal.open import Journal
from kafka_steward.journal.tree import Node
from kafka_steward.settings import Settings

__all__ = ["look_at_disks"]

#: The number of latest plans that are searched for the newest heal of a broker.
_PLANS = 200


def look_at_disks(
    journal: Journal, sight: Sight, settings: Settings, who: Who, *, now_ms: int, announce: bool
) -> DiskJudgement:
    """Evaluate the log directories of live brokers in `sight`, and persist the decision. Raises JournalError."""
    nodes = _nodes(journal)
    if not nodes and not sight.lost:
        return DiskJudgement()
    known = {broker: _readable(node) for broker, node in nodes.items()}
    first_seen_ms = {broker: failure.first_seen_ms for broker, failure in known.items()}
    judgement = judge_disks(
        sight,
        first_seen_ms=first_seen_ms,
        announced_ms={broker: each.announced_ms for broker, each in known.items() if each.announced_ms is not None},
        handled=handled_brokers(
            journal.plans.latest(_PLANS),
            replace(sight, holding=sight.lost),
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
        _delete(journal, nodes[broker], broker, who)
    for broker in judgement.announce if announce else ():
        _announce(journal, broker, now_ms, who)
    return judgement


def _nodes(journal: Journal) -> dict[int, Node]:
    found = {}
    for name in journal.tree.children(paths.FAILED_LOG_DIRS):
        broker, node = paths.broker_of(name), journal.tree.get(f"{paths.FAILED_LOG_DIRS}/{name}")
        if broker is not None and node is not None:
            found[broker] = node
    return found


def _readable(node: Node) -> Failure:
    """Return the failure record; an unreadable record counts from the creation time of its node."""
    try:
        return Failure.from_node(node)
    except DocumentError:
        return Failure(node.created_ms)


def _create(journal: Journal, sight: Sight, broker: int, now_ms: int, who: Who) -> None:
    if put_new(journal.tree, f"{paths.FAILED_LOG_DIRS}/{broker}", Failure(now_ms).to_json()) is None:
        return  # written by a concurrent poll: its time stays
    named = ", ".join(sight.disks.get(broker, ())) or "a log directory"
    _note(
        journal, Action.DETECT, broker, f"{named} of broker {broker} has failed with {sight.lost[broker]} replicas", who
    )


def _delete(journal: Journal, node: Node, broker: int, who: Who) -> None:
    if not remove(journal.tree, node):
        return  # changed or deleted by a concurrent poll
    _note(journal, Action.CLEAR, broker, f"broker {broker} has no replica in a failed log directory any more", who)


def _announce(journal: Journal, broker: int, now_ms: int, who: Who) -> None:
    node = journal.tree.get(f"{paths.FAILED_LOG_DIRS}/{broker}")
    if node is None:
        return
    text = replace(_readable(node), announced_ms=now_ms).to_json()
    if replace_text(journal.tree, node, text) is None:
        return  # a concurrent poll announces it
    _note(
        journal,
        Action.ANNOUNCE,
        broker,
        f"a log directory of broker {broker} has failed longer ago than the grace",
        who,
    )


def _note(journal: Journal, action: Action, broker: int, reason: str, who: Who) -> None:
    journal.audit.note(Entry(action, reason, broker=broker, who=who))
