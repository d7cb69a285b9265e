"""Announced restarts of brokers (KIP-46), and disabled reassignments (KIP-236).

`/admin/rolling_bounce/<id>` announces a shutdown: it is written before a broker is restarted deliberately. Such a
broker gets its grace period, or the stated time, and receives no replicas meanwhile. The entry is deleted when the
broker is back, or once the heal of the broker is persisted. If the broker was live all along, the entry is deleted when
its time is over.

While `/admin/reassign_cancel` exists, no reassignment starts, and those in flight complete. Anyone may create that
node, empty or not, with any tool. Our own node states by whom and why.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kafka_steward.commands import command_line
from kafka_steward.errors import DocumentError, RequestError
from kafka_steward.escaping import utc_text
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Actor, AuditRecord
from kafka_steward.journal.kip_documents import AnnouncedRestartDocument, ReassignmentsDisabled
from kafka_steward.journal.mailbox import Mailbox, Node, delete_one, put_one, read_one
from kafka_steward.journal.records import RESTARTS
from kafka_steward.journal.store import Journal
from kafka_steward.settings import Settings

#: Validity of an announcement without a stated time while healing is disabled, in milliseconds: KIP-46's 30 min.
_USUAL_MS = 1_800_000


@dataclass(frozen=True)
class AnnouncedRestart:
    """One announcement. Times are the journal's, in ms; without `until_ms`, the grace period of the cluster applies."""

    node: Node
    announced_ms: int
    until_ms: int | None = None

    def is_in_effect(self, now_ms: int) -> bool:
        """Return True while the broker may still be restarting.

        An announcement without a stated time applies until it is deleted.
        """
        return self.until_ms is None or self.until_ms > now_ms


def announce_restart(journal: Journal, broker: int, *, who: Actor, lasts_ms: int | None = None) -> str:
    """Record that `broker` is about to be restarted, for `lasts_ms` if that is known; return the message.

    A repeated announcement replaces the earlier one. Raises RequestError for an invalid broker id or duration.
    """
    if lasts_ms is not None and lasts_ms <= 0:
        raise RequestError(f"A restart cannot last {lasts_ms} ms; give the time for which the broker may be down.")
    path, now_ms = paths.rolling_bounce(broker), journal.now_ms()
    until_ms = None if lasts_ms is None else now_ms + lasts_ms
    put_one(
        journal.mailbox, path, AnnouncedRestartDocument(now_ms, until_ms).to_json(), read_one(journal.mailbox, path)
    )
    message = "its grace period" if lasts_ms is None else f"{lasts_ms / 1000:.0f} s"
    sentence = (
        f"Broker {broker} announced a restart: it has {message} to come back, and receives no replicas until then."
    )
    journal.audit.record(AuditRecord(Action.REQUEST, sentence, broker=broker, after=until_ms, who=who))
    return sentence


def withdraw_restart(journal: Journal, broker: int, *, who: Actor) -> str:
    """Delete the announcement of a broker's restart; return the message. Raises RequestError if there is none."""
    path = paths.rolling_bounce(broker)
    node = read_one(journal.mailbox, path)
    if node is None or not delete_one(journal.mailbox, node):
        raise RequestError(f"There is no entry {path} to withdraw: no restart of the broker is announced.")
    sentence = f"The announced restart of broker {broker} is withdrawn: no move waits for it any more."
    journal.audit.record(AuditRecord(Action.CLEAR, sentence, broker=broker, who=who))
    return sentence


def announced_restarts(mailbox: Mailbox) -> dict[int, AnnouncedRestart]:
    """Return every announcement, by broker.

    An unreadable announcement is dated by the time at which it was written, and states no time.
    """
    # A fast clock must not extend an announcement: it is dated by the time at which it was written at the latest.
    return {
        entry.key[0]: AnnouncedRestart(
            entry.node, min(entry.document.timestamp_ms, entry.node.modified_ms), entry.document.expiry_ms
        )
        for entry in RESTARTS.list_valid(mailbox)
    }


def restarting_brokers(mailbox: Mailbox, now_ms: int) -> dict[int, int | None]:
    """Return the brokers that announced a shutdown (KIP-46), as long as that applies, and until when, if stated."""
    announced = announced_restarts(mailbox).items()
    return {broker: bounce.until_ms for broker, bounce in announced if bounce.is_in_effect(now_ms)}


def restart_clause(until_ms: int | None) -> str:
    """Return that a broker announced a restart, and until when, if it stated that, as the predicate of a sentence."""
    return "announced a restart" + ("" if until_ms is None else f" until {utc_text(until_ms)} UTC")


def expired_announcements(
    announced: Mapping[int, AnnouncedRestart], live: Collection[int], now_ms: int, settings: Settings
) -> dict[int, AnnouncedRestart]:
    """Return the expired announcements of live brokers. Pure.

    Such a restart was too quick to be detected, or never happened. The announcement of a broker that is down is kept,
    because the detection of its failure uses it.
    """
    grace_ms = usual_grace_ms(settings)
    over_ms = {
        broker: restart.announced_ms + grace_ms if restart.until_ms is None else restart.until_ms
        for broker, restart in announced.items()
    }
    return {broker: announced[broker] for broker, at_ms in over_ms.items() if broker in live and at_ms <= now_ms}


def usual_grace_ms(settings: Settings) -> int:
    """Return the time that a broker gets to come back unless it states one. Pure."""
    return int(settings.heal_failure_interval * 1000) if settings.heal_failure_interval >= 0 else _USUAL_MS


def delete_expired_announcements(journal: Journal, live: Collection[int], settings: Settings, who: Actor) -> list[str]:
    """Delete the expired announcements; return a message for each."""
    messages, announced = [], announced_restarts(journal.mailbox)
    for broker, restart in expired_announcements(announced, live, journal.now_ms(), settings).items():
        delete_one(journal.mailbox, restart.node)
        sentence = f"broker {broker} is live, and the time announced for its restart has expired"
        journal.audit.record(AuditRecord(Action.CLEAR, sentence, broker=broker, who=who))
        messages.append(sentence)
    return messages


@dataclass(frozen=True)
class DisabledReassignments:
    """The state of disabled reassignments: since when, in milliseconds since 1970, by whom and why; None if unknown."""

    since_ms: int
    person: str | None = None
    reason: str | None = None

    @classmethod
    def from_node(cls, node: Node) -> DisabledReassignments:
        """Return the state that the node describes; its content need not be readable."""
        try:
            written = ReassignmentsDisabled.from_node(node)
        except DocumentError:
            written = ReassignmentsDisabled()  # its author wants them disabled: the KIP's own node is empty
        return cls(node.created_ms, written.person or None, written.reason or None)

    @property
    def clause(self) -> str:
        """By whom, since when and why, as a clause that follows `disabled`."""
        why = f" ({self.reason})" if self.reason else ""
        return f"by {self.person or 'an unnamed user'} since {utc_text(self.since_ms)} UTC{why}"


def read_disabled(mailbox: Mailbox) -> DisabledReassignments | None:
    """Return the state of disabled reassignments; None when they are enabled."""
    node = read_one(mailbox, paths.REASSIGN_CANCEL)
    return None if node is None else DisabledReassignments.from_node(node)


def disabled_reason(mailbox: Mailbox) -> str:
    """Return by whom, since when and why reassignments are disabled, as a clause; empty when they are enabled."""
    disabled = read_disabled(mailbox)
    return "" if disabled is None else disabled.clause


def disabled_advice(journal: Journal) -> str:
    """Return the same, and how a person enables them."""
    why = disabled_reason(journal.mailbox)
    enable = command_line("enable", journal.conn_id)
    return why and f"{why}; to enable them, run {enable}, or delete {paths.REASSIGN_CANCEL}"


def disable_reassignment(journal: Journal, *, who: Actor, reason: str) -> str:
    """Disable new reassignments; return the message. If they are disabled already, the node is not changed.

    Reassignments in flight complete, and a cancel still works. Raises RequestError without a reason.
    """
    if not reason.strip():
        raise RequestError("Give a reason why reassignments are disabled: held moves and requests show it.")
    node = put_one(journal.mailbox, paths.REASSIGN_CANCEL, ReassignmentsDisabled(who.person, reason).to_json())
    if node is None:
        return f"Reassignments are already disabled, {disabled_reason(journal.mailbox)}."
    journal.audit.record(AuditRecord(Action.REQUEST, f"disabled: {reason}", after="disabled", who=who))
    return f"Reassignments are disabled {DisabledReassignments.from_node(node).clause}; moves in flight complete."


def enable_reassignment(journal: Journal, *, who: Actor, reason: str = "") -> str:
    """Enable reassignments again; return the message. Harmless when they are enabled already."""
    node = read_one(journal.mailbox, paths.REASSIGN_CANCEL)
    if node is None:
        return "Reassignments are already enabled."
    delete_one(journal.mailbox, node)
    words = f"enabled again: {reason}" if reason else "enabled again"
    journal.audit.record(
        AuditRecord(
            Action.REQUEST, words, before=DisabledReassignments.from_node(node).clause, after="enabled", who=who
        )
    )
    return f"Reassignments are enabled again; they were disabled {DisabledReassignments.from_node(node).clause}."
