"""Reasons to wait: announced restarts, disabled reassignments, and work under way.

`/admin/rolling_bounce/<id>` announces a shutdown (KIP-46): it is written before a broker is restarted deliberately.

Such a broker gets its grace period, or the stated time, and receives no replicas meanwhile. The entry is deleted when
the broker is back, or once the heal of the broker is persisted. If the broker was live all along, the entry is deleted
when its time is over.

While `/admin/reassign_cancel` exists, no reassignment starts, and those in flight complete (KIP-236).

Anyone may disable reassignments by creating that node, empty or not, with any tool. Our own node states by whom and
why.

A workflow asks whether work that can wait may begin on this cluster, before it plans anything. What is broken already
and no plan can repair does not keep it waiting: such partitions are left out, and named.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import accumulate

from kafka_steward.assignment import TopicPartition, name_brokers
from kafka_steward.cluster.state import Partition, Snapshot
from kafka_steward.errors import DocumentError, RequestError
from kafka_steward.escaping import utc_text
from kafka_steward.execution.failure_records import find_healed_brokers, read_failures, read_log_dir_failures
from kafka_steward.execution.failures import build_view
from kafka_steward.execution.plan_slot import current_plans
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Actor, AuditRecord
from kafka_steward.journal.kip_documents import AnnouncedRestartDocument, ReassignmentsDisabled
from kafka_steward.journal.records import RESTARTS, UnsettledPartitions
from kafka_steward.journal.store import Journal
from kafka_steward.journal.tree import Node, Tree, put, put_new, remove
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
    put(journal.tree, path, journal.tree.get(path), AnnouncedRestartDocument(now_ms, until_ms).to_json())
    message = "its grace period" if lasts_ms is None else f"{lasts_ms / 1000:.0f} s"
    sentence = (
        f"Broker {broker} announced a restart: it has {message} to come back, and receives no replicas until then."
    )
    journal.audit.record(AuditRecord(Action.REQUEST, sentence, broker=broker, after=until_ms, who=who))
    return sentence


def announced_restarts(tree: Tree) -> dict[int, AnnouncedRestart]:
    """Return every announcement, by broker.

    An unreadable announcement is dated by the time at which it was written, and states no time.
    """
    # A fast clock must not extend an announcement: it is dated by the time at which it was written at the latest.
    return {
        each.key[0]: AnnouncedRestart(
            each.node, min(each.document.timestamp_ms, each.node.modified_ms), each.document.expiry_ms
        )
        for each in RESTARTS.list_valid(tree)
    }


def expired_announcements(
    announced: Mapping[int, AnnouncedRestart], live: Collection[int], now_ms: int, settings: Settings
) -> dict[int, AnnouncedRestart]:
    """Return the expired announcements of live brokers. Pure.

    Such a restart was too quick to be detected, or never happened. The announcement of a broker that is down is kept,
    because the detection of its failure uses it.
    """
    grace_ms = _grace_ms(settings)
    over_ms = {
        broker: each.announced_ms + grace_ms if each.until_ms is None else each.until_ms
        for broker, each in announced.items()
    }
    return {broker: announced[broker] for broker, at_ms in over_ms.items() if broker in live and at_ms <= now_ms}


def _grace_ms(settings: Settings) -> int:
    return int(settings.heal_failure_interval * 1000) if settings.heal_failure_interval >= 0 else _USUAL_MS


def delete_expired_announcements(journal: Journal, live: Collection[int], settings: Settings, who: Actor) -> list[str]:
    """Delete the expired announcements; return a message for each."""
    messages, announced = [], announced_restarts(journal.tree)
    for broker, restart in expired_announcements(announced, live, journal.now_ms(), settings).items():
        remove(journal.tree, restart.node)
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


def read_disabled(tree: Tree) -> DisabledReassignments | None:
    """Return the state of disabled reassignments; None when they are enabled."""
    node = tree.get(paths.REASSIGN_CANCEL)
    return None if node is None else DisabledReassignments.from_node(node)


def disabled_reason(tree: Tree) -> str:
    """Return by whom, since when and why reassignments are disabled, as a clause; empty when they are enabled."""
    disabled = read_disabled(tree)
    return "" if disabled is None else disabled.clause


def disable_reassignment(journal: Journal, *, who: Actor, reason: str) -> str:
    """Disable new reassignments; return the message. If they are disabled already, the node is not changed.

    Reassignments in flight complete, and a cancel still works. Raises RequestError without a reason.
    """
    if not reason.strip():
        raise RequestError("Give a reason why reassignments are disabled: held moves and requests show it.")
    node = put_new(journal.tree, paths.REASSIGN_CANCEL, ReassignmentsDisabled(who.person, reason).to_json())
    if node is None:
        return f"Reassignments are already disabled, {disabled_reason(journal.tree)}."
    journal.audit.record(AuditRecord(Action.REQUEST, f"disabled: {reason}", after="disabled", who=who))
    return f"Reassignments are disabled {DisabledReassignments.from_node(node).clause}; moves in flight complete."


def enable_reassignment(journal: Journal, *, who: Actor, reason: str = "") -> str:
    """Enable reassignments again; return the message. Harmless when they are enabled already."""
    node = journal.tree.get(paths.REASSIGN_CANCEL)
    if node is None:
        return "Reassignments are already enabled."
    remove(journal.tree, node)
    words = f"enabled again: {reason}" if reason else "enabled again"
    journal.audit.record(
        AuditRecord(
            Action.REQUEST, words, before=DisabledReassignments.from_node(node).clause, after="enabled", who=who
        )
    )
    return f"Reassignments are enabled again; they were disabled {DisabledReassignments.from_node(node).clause}."


class LeftOut(str, Enum):
    """Why a partition that is not fully replicated, or is being reassigned, keeps no plan from starting.

    The value is a clause about such partitions, with what a person can do about them.
    """

    LOST = (
        "without a live replica: bring back a broker that has one, with its data, or delete or restore the topic, if "
        "that is not under way already"
    )
    IN_FLIGHT = (
        "that somebody else has been reassigning for longer than stuck_after: complete that, or cancel it "
        "(kafka-reassign-partitions.sh --cancel)"
    )
    STUCK = (
        "with a replica on a live broker that has been out of sync for longer than stuck_after: look for a throttle "
        "that somebody left (doctor), an observer, or a fault of that broker"
    )
    TOO_FEW_BROKERS = (
        "with more replicas than there are live brokers, all of which have one: add brokers, or lower the replication "
        "factor"
    )
    HEALED = (
        "that the last heal could not make fully replicated: the sentences of its plan say why; add brokers, or report "
        "the failure again"
    )


@dataclass(frozen=True, slots=True)
class Readiness:
    """The readiness of a cluster. It is open without `reasons`, which are clauses, the most severe first.

    `left_out` are the partitions that are broken already and that no plan can repair, with the reason.
    """

    reasons: Sequence[str]
    left_out: Mapping[TopicPartition, LeftOut] = field(default_factory=dict)

    @property
    def is_ready(self) -> bool:
        """Return True if work may begin."""
        return not self.reasons

    @property
    def sentence(self) -> str:
        """The message for a person."""
        if not self.is_ready:
            return f"The cluster is not ready: {'; '.join(self.reasons)}.{self.left_out_sentence}"
        if not self.left_out:
            return "The cluster is fully replicated, and nothing is in flight."
        return (
            f"All that a plan can repair is fully replicated, and nothing of ours is in flight.{self.left_out_sentence}"
        )

    @property
    def left_out_sentence(self) -> str:
        """The partitions that were left out, by reason: their number, the first one, and what a person can do."""
        clauses = []
        for why in LeftOut:
            names = sorted(name for name, reason in self.left_out.items() if reason is why)
            if names:
                count = f"{len(names)} partition{'s' * (len(names) > 1)}"
                clauses.append(f" Left out: {count} ({_name_first(names)}) {why.value}.")
        return "".join(clauses)


@dataclass(frozen=True, slots=True)
class KnownState:
    """What is known of a cluster beside its snapshot, for `evaluate_readiness`.

    `holders` are the digests of the plans that hold the plan slot. `disabled` states by whom reassignments are
    disabled, and is empty while they are not (KIP-236). `gone` are dead brokers whose grace period is over, `exhausted`
    dead ones, and live ones with offline replicas, whose last heal did what can be done. `unsettled` has the times
    since which partitions are out of sync or being reassigned.
    """

    now_ms: int = 0
    disabled: str = ""
    holders: Sequence[str] = ()
    gone: frozenset[int] = frozenset()
    exhausted: frozenset[int] = frozenset()
    unsettled: UnsettledPartitions = field(default_factory=UnsettledPartitions)
    stuck_after_ms: int = 0

    def is_stuck(self, partition: Partition) -> bool:
        """Return True if the partition has been in flight, or else out of sync, for too long to wait for it."""
        times = self.unsettled.reassigning_ms if partition.reassigning else self.unsettled.out_of_sync_ms
        since_ms = times.get(str(partition.topic_partition))
        return since_ms is not None and self.now_ms - since_ms >= self.stuck_after_ms


def evaluate_readiness(snapshot: Snapshot, known: KnownState) -> Readiness:
    """Return the readiness of a cluster. Pure.

    A broker that hosts replicas and is not live closes the gate, whether or not it counts as failed by KIP-46 yet,
    unless all its partitions are left out.
    """
    found = {name: _left_out_reason(each, snapshot, known) for name, each in snapshot.partitions.items()}
    left_out = {name: why for name, why in found.items() if why is not None}
    others = [each for name, each in snapshot.partitions.items() if name not in left_out]
    off = f"reassignments are disabled {known.disabled}" if known.disabled else ""
    reasons = (
        _dead_brokers_reason(others, snapshot),
        _under_replicated_reason(others, snapshot, known),
        _in_flight_reason(others, known.holders),
        off,
    )
    return Readiness(tuple(filter(None, reasons)), left_out)


def check_readiness(cluster: ClusterPort, journal: Journal, settings: Settings) -> Readiness:
    """Return the current readiness of the cluster. May raise ClusterError, JournalError.

    Records in the journal since when partitions are out of sync or being reassigned.
    """
    return readiness_of(cluster.snapshot(), journal, settings)


def readiness_of(snapshot: Snapshot, journal: Journal, settings: Settings) -> Readiness:
    """Return the readiness of a cluster that is in this state, as `check_readiness` does."""
    now_ms = journal.now_ms()
    unsettled = record_unsettled(journal, snapshot)
    down_ms = {int(broker): since_ms for broker, since_ms in unsettled.down_ms.items()}
    grace_ms = _grace_ms(settings)
    known = KnownState(
        now_ms,
        disabled=disabled_reason(journal.tree),
        holders=[plan.digest for plan in current_plans(journal)],
        gone=frozenset(broker for broker, since_ms in down_ms.items() if now_ms - since_ms >= grace_ms),
        exhausted=_exhausted_brokers(journal, snapshot, now_ms, settings),
        unsettled=unsettled,
        stuck_after_ms=int(settings.stuck_after * 1000),
    )
    return evaluate_readiness(snapshot, known)


def _exhausted_brokers(journal: Journal, snapshot: Snapshot, now_ms: int, settings: Settings) -> frozenset[int]:
    """Return the brokers that are dead, or have offline replicas, and whose last heal did what can be done."""
    view = build_view(snapshot, snapshot.dead_hosting_brokers, {})
    exhausted: frozenset[int] = frozenset()
    if view.failed:
        dead = find_healed_brokers(journal, view, read_failures(journal.tree, now_ms), now_ms=now_ms, settings=settings)
        exhausted |= dead.exhausted & view.failed
    if view.lost:
        disks = replace(view, replica_counts=view.lost)
        found = find_healed_brokers(
            journal, disks, read_log_dir_failures(journal.tree), now_ms=now_ms, settings=settings
        )
        exhausted |= found.exhausted & view.lost.keys()
    return exhausted


def _left_out_reason(partition: Partition, snapshot: Snapshot, known: KnownState) -> LeftOut | None:
    """Return why a partition closes nothing; None if it is settled, or if a plan can repair it, or time."""
    if not partition.live_replicas(snapshot):
        return LeftOut.LOST
    is_stuck = known.is_stuck(partition)
    if partition.reassigning:
        return LeftOut.IN_FLIGHT if is_stuck and not known.holders else None
    lagging = partition.lagging(snapshot)
    if not partition.under_replicated or (lagging and not is_stuck):
        return None
    return _beyond_repair_reason(partition, snapshot, known, LeftOut.STUCK if lagging else None)


def _beyond_repair_reason(
    partition: Partition, snapshot: Snapshot, known: KnownState, why: LeftOut | None
) -> LeftOut | None:
    """Return `why`, or why no plan can replace the replicas that are not live; None if one can."""
    missing = frozenset(partition.replicas) - partition.live_replicas(snapshot)
    if missing <= known.exhausted:
        return why or LeftOut.HEALED
    is_everywhere = snapshot.live <= frozenset(partition.replicas)
    return (why or LeftOut.TOO_FEW_BROKERS) if is_everywhere and missing <= known.gone else None


def _name_first(names: Sequence[TopicPartition]) -> str:
    return f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}"


def _dead_brokers_reason(partitions: Sequence[Partition], snapshot: Snapshot) -> str:
    hosting = {broker for each in partitions for broker in each.replicas}
    dead = sorted(hosting & snapshot.dead_hosting_brokers)
    one = len(dead) == 1
    return (
        f"{name_brokers(dead)} {'is' if one else 'are'} not live (heal or restart {'it' if one else 'them'})"
        if dead
        else ""
    )


def _under_replicated_reason(partitions: Sequence[Partition], snapshot: Snapshot, known: KnownState) -> str:
    behind = {each.topic_partition: each for each in partitions if each.under_replicated}
    if not behind:
        return ""
    since_ms = [
        known.unsettled.out_of_sync_ms.get(str(name), known.now_ms)
        for name, each in behind.items()
        if each.live_replicas(snapshot) >= frozenset(each.replicas)
    ]
    until = ""
    if len(since_ms) == len(behind):
        until = f", which counts until {utc_text(max(since_ms) + known.stuck_after_ms)} UTC at most (stuck_after)"
    return f"{_name_first(sorted(behind))} under-replicated{until}"


def _in_flight_reason(partitions: Sequence[Partition], holders: Sequence[str]) -> str:
    if holders:
        several = len(holders) > 1
        named = ", ".join(digest[:12] for digest in holders)
        return f"plan{'s' * several} {named} hold{'s' * (not several)} the plan slot"
    moving = sum(each.reassigning for each in partitions)
    return f"{moving} partition{' is' if moving == 1 else 's are'} being reassigned" if moving else ""


#: The most bytes for the partitions of which a time is kept, those that are unsettled the longest. ZooKeeper's nodes
#: hold 1 MB, and the document has three such lists.
_KEPT_BYTES = 250_000
#: The bytes of an entry beside its name, at most.
_ENTRY_BYTES = 24

#: The longest time between two polls that find the same, in milliseconds, for it to have lasted in between. Nobody
#: knows whether what was found days ago was repaired since. The watch polls every `health_interval`, a minute, but a
#: cluster may have no watch: what only a daily gate polls, and not to the minute, must be able to last `stuck_after`.
_GAP_MS = 172_800_000

#: How old the recorded time of the last poll becomes, in milliseconds: most polls that find the same write nothing.
_RECORDED_MS = 3_600_000


def record_unsettled(journal: Journal, snapshot: Snapshot) -> UnsettledPartitions:
    """Record since when partitions are unsettled and brokers are down; return the times, in ms.

    What is settled again is forgotten, and so is everything when nothing has polled for two days. The first process
    that finds it records the time: the watch's health check polls every `health_interval`, the gate when it asks, and a
    plan while a partition outside it is under its min ISR.
    """
    node, now_ms = journal.tree.get(paths.UNSETTLED), journal.now_ms()
    read = _parse_unsettled(node)
    before, partitions = _forget_after_gap(read, now_ms), snapshot.partitions
    lagging = [str(name) for name, each in partitions.items() if each.lagging(snapshot)]
    down = [str(broker) for broker in snapshot.dead_hosting_brokers]
    after = replace(
        before,
        out_of_sync_ms=_update_times(before.out_of_sync_ms, lagging, now_ms),
        reassigning_ms=_update_times(before.reassigning_ms, map(str, snapshot.reassigning), now_ms),
        down_ms=_update_times(before.down_ms, down, now_ms),
    )
    is_recent = 0 <= now_ms - before.polled_ms < _RECORDED_MS
    if not (after.out_of_sync_ms or after.reassigning_ms or after.down_ms):
        after = replace(after, polled_ms=0)
    elif not is_recent:
        after = replace(after, polled_ms=now_ms)
    if after != read:
        # If another process writes it at the same time, the next poll adds what is missing.
        put(journal.tree, paths.UNSETTLED, node, after.to_json())
    return after


def _update_times(before: Mapping[str, int], names: Iterable[str], now_ms: int) -> dict[str, int]:
    times = {name: min(before.get(name, now_ms), now_ms) for name in names}
    oldest = sorted(times.items(), key=lambda item: (item[1], item[0]))
    sizes = accumulate(len(name) + _ENTRY_BYTES for name, _ in oldest)
    return dict(item for item, size in zip(oldest, sizes, strict=True) if size <= _KEPT_BYTES)


def find_stuck(known: UnsettledPartitions, settings: Settings, now_ms: int) -> frozenset[str]:
    """Return the names of partitions out of sync for `stuck_after` and longer, as far as that is recorded. Pure.

    Of a partition all of whose old replicas are in sync, the time since which it is being reassigned counts.
    """
    times = {**known.reassigning_ms, **known.out_of_sync_ms}
    return frozenset(name for name, at_ms in times.items() if now_ms - at_ms >= settings.stuck_after * 1000)


def _forget_after_gap(known: UnsettledPartitions, now_ms: int) -> UnsettledPartitions:
    """Return `known`, without any time if the last poll was too long ago."""
    if now_ms - known.polled_ms <= _GAP_MS:
        return known
    return replace(known, out_of_sync_ms={}, reassigning_ms={}, down_ms={}, polled_ms=0)


def _parse_unsettled(node: Node | None) -> UnsettledPartitions:
    if node is not None:
        with suppress(DocumentError):  # an unreadable one is replaced
            return UnsettledPartitions.from_node(node)
    return UnsettledPartitions()
