"""KIP-46's announced shutdowns, `/admin/rolling_bounce/<id>`: written before a broker is restarted deliberately.

Such a broker gets its grace period, or the stated time, and receives no replicas meanwhile. The entry is deleted when
the broker is back, or once the heal of the broker is persisted. If the broker was live all along, the entry is deleted
when its time is over.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kafka_steward.errors import RequestError
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Actor, AuditRecord
from kafka_steward.journal.changes import put, remove
from kafka_steward.journal.documents import AnnouncedRestartDocument
from kafka_steward.journal.listing import RESTARTS
from kafka_steward.journal.open import Journal
from kafka_steward.journal.tree import Node, Tree
from kafka_steward.settings import Settings

__all__ = ["AnnouncedRestart", "announce_restart", "announced_restarts", "delete_expired", "is_expired"]

#: Validity of an announcement without a stated time while healing is disabled, in milliseconds: KIP-46's 30 min.
_USUAL_MS = 1_800_000


@dataclass(frozen=True)
class AnnouncedRestart:
    """One announcement. Times are the journal's, in ms; without `until_ms`, the grace period of the cluster applies."""

    node: Node
    announced_ms: int
    until_ms: int | None = None

    def holds(self, now_ms: int) -> bool:
        """Return True while the broker may still be restarting.

        An announcement without a stated time applies until it is deleted.
        """
        return self.until_ms is None or self.until_ms > now_ms


def announce_restart(journal: Journal, broker: int, *, who: Actor, lasts_ms: int | None = None) -> str:
    """Record that `broker` is about to be restarted, for `lasts_ms` if that is known; return the message.

    A repeated announcement replaces the earlier one. Raises RequestError for an invalid broker id or duration.
    """
    if lasts_ms is not None and lasts_ms <= 0:
        raise RequestError(f"A bounce cannot last {lasts_ms} ms; say how long the broker may be away.")
    path, now_ms = paths.rolling_bounce(broker), journal.now_ms()
    until_ms = None if lasts_ms is None else now_ms + lasts_ms
    put(journal.tree, path, journal.tree.get(path), AnnouncedRestartDocument(now_ms, until_ms).to_json())
    told = "its grace period" if lasts_ms is None else f"{lasts_ms / 1000:.0f} s"
    sentence = f"Broker {broker} announced a restart: it has {told} to come back, and receives nothing until then."
    journal.audit.record(AuditRecord(Action.REQUEST, sentence, broker=broker, after=until_ms, who=who))
    return sentence


def announced_restarts(tree: Tree) -> dict[int, AnnouncedRestart]:
    """Return every announcement, by broker.

    An unreadable announcement is dated by the time at which it was written, and states no time.
    """
    return {each.key[0]: _read(each.node, each.document) for each in RESTARTS.found(tree)}


def is_expired(
    announced: Mapping[int, AnnouncedRestart], live: Collection[int], now_ms: int, settings: Settings
) -> dict[int, AnnouncedRestart]:
    """Return the expired announcements of live brokers. Pure.

    Such a restart was too quick to be detected, or never happened. The announcement of a broker that is down is kept,
    because the detection of its failure uses it.
    """
    grace_ms = int(settings.heal_failure_interval * 1000) if settings.heal_failure_interval >= 0 else _USUAL_MS
    over_ms = {
        broker: each.announced_ms + grace_ms if each.until_ms is None else each.until_ms
        for broker, each in announced.items()
    }
    return {broker: announced[broker] for broker, at_ms in over_ms.items() if broker in live and at_ms <= now_ms}


def delete_expired(journal: Journal, live: Collection[int], settings: Settings, who: Actor) -> list[str]:
    """Delete the expired announcements; return a message for each."""
    told = []
    for broker, bounce in is_expired(announced_restarts(journal.tree), live, journal.now_ms(), settings).items():
        remove(journal.tree, bounce.node)
        sentence = f"broker {broker} is live, and the time that it announced for its restart is over"
        journal.audit.record(AuditRecord(Action.CLEAR, sentence, broker=broker, who=who))
        told.append(sentence)
    return told


def _read(node: Node, written: AnnouncedRestartDocument) -> AnnouncedRestart:
    # A fast clock must not extend an announcement: it is dated by the time at which it was written at the latest.
    return AnnouncedRestart(node, min(written.timestamp_ms, node.modified_ms), written.expiry_ms)
