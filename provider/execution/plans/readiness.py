"""Whether work that can wait may begin on this cluster: a workflow asks before it plans anything.

What is broken already and no plan can repair does not keep it waiting: such partitions are left out, and named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from kafka_steward.assignment import TopicPartition, name_brokers
from kafka_steward.cluster.state import Partition, Snapshot
from kafka_steward.escaping import utc_text
from kafka_steward.execution.announcements import disabled_reason, usual_grace_ms
from kafka_steward.execution.failures.records import find_healed_brokers, read_failures, read_log_dir_failures
from kafka_steward.execution.failures.rules import build_view
from kafka_steward.execution.plans.slot import current_plans
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.execution.unsettled import record_unsettled
from kafka_steward.journal.records import UnsettledPartitions
from kafka_steward.journal.store import Journal
from kafka_steward.settings import Settings


class LeftOut(StrEnum):
    """Why a partition that is not fully replicated, or is being reassigned, keeps no plan from starting.

    The value is a clause about such partitions, with what a person can do about them.
    """

    LOST = (
        "without a live replica: bring back a broker or a failed log directory that has one, with its data, or delete "
        "or restore the topic, if that is not under way already"
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

    `holders` are the digests of the plans that hold the plan slot, `ours` the partitions that our plans have in flight.
    `disabled` states by whom reassignments are disabled, and is empty while they are not (KIP-236). `gone` are dead
    brokers whose grace period is over, `exhausted` dead ones, and live ones with offline replicas, whose last heal did
    what can be done. `unsettled` has the times since which partitions are out of sync or being reassigned.
    """

    now_ms: int = 0
    disabled: str = ""
    holders: Sequence[str] = ()
    ours: frozenset[TopicPartition] = frozenset()
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
    whys = {name: _left_out_reason(partition, snapshot, known) for name, partition in snapshot.partitions.items()}
    left_out = {name: why for name, why in whys.items() if why is not None}
    partitions = [partition for name, partition in snapshot.partitions.items() if name not in left_out]
    off = f"reassignments are disabled {known.disabled}" if known.disabled else ""
    reasons = (
        _dead_brokers_reason(partitions, snapshot),
        _under_replicated_reason(partitions, snapshot, known),
        _in_flight_reason(partitions, known.holders),
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
    grace_ms = usual_grace_ms(settings)
    known = KnownState(
        now_ms,
        disabled=disabled_reason(journal.mailbox),
        holders=[plan.digest for plan in current_plans(journal)],
        ours=_find_ours(journal, snapshot),
        gone=frozenset(broker for broker, since_ms in down_ms.items() if now_ms - since_ms >= grace_ms),
        exhausted=_exhausted_brokers(journal, snapshot, now_ms, settings),
        unsettled=unsettled,
        stuck_after_ms=int(settings.stuck_after * 1000),
    )
    return evaluate_readiness(snapshot, known)


def _find_ours(journal: Journal, snapshot: Snapshot) -> frozenset[TopicPartition]:
    """Return the partitions that are being reassigned by a plan of ours that has not ended."""
    unfinished = {plan.digest for plan in journal.plans.unfinished()} if snapshot.reassigning else set()
    submitted = journal.plans.submissions_by_others("", snapshot.reassigning) if unfinished else {}
    return frozenset(
        name
        for name, moves in submitted.items()
        if any(plan in unfinished and not row.state.settled for plan, row in moves)
    )


def _exhausted_brokers(journal: Journal, snapshot: Snapshot, now_ms: int, settings: Settings) -> frozenset[int]:
    """Return the brokers that are dead, or have offline replicas, and whose last heal did what can be done."""
    view = build_view(snapshot, snapshot.dead_hosting_brokers, {})
    exhausted: frozenset[int] = frozenset()
    if view.failed:
        dead = find_healed_brokers(journal, view, read_failures(journal), now_ms=now_ms, settings=settings)
        exhausted |= dead.exhausted & view.failed
    if view.lost:
        disks = replace(view, replica_counts=view.lost)
        healed = find_healed_brokers(journal, disks, read_log_dir_failures(journal), now_ms=now_ms, settings=settings)
        exhausted |= healed.exhausted & view.lost.keys()
    return exhausted


def _left_out_reason(partition: Partition, snapshot: Snapshot, known: KnownState) -> LeftOut | None:
    """Return why a partition closes nothing; None if it is settled, or if a plan can repair it, or time."""
    if not partition.live_replicas(snapshot):
        return LeftOut.LOST
    is_stuck = known.is_stuck(partition)
    if partition.reassigning:
        return LeftOut.IN_FLIGHT if is_stuck and partition.topic_partition not in known.ours else None
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
    hosting = {broker for partition in partitions for broker in partition.replicas}
    dead = sorted(hosting & snapshot.dead_hosting_brokers)
    one = len(dead) == 1
    return (
        f"{name_brokers(dead)} {'is' if one else 'are'} not live (heal or restart {'it' if one else 'them'})"
        if dead
        else ""
    )


def _under_replicated_reason(partitions: Sequence[Partition], snapshot: Snapshot, known: KnownState) -> str:
    behind = {partition.topic_partition: partition for partition in partitions if partition.under_replicated}
    if not behind:
        return ""
    since_ms = [
        known.unsettled.out_of_sync_ms.get(str(name), known.now_ms)
        for name, partition in behind.items()
        if partition.live_replicas(snapshot) >= frozenset(partition.replicas)
    ]
    until = ""
    if len(since_ms) == len(behind):
        until = f", which counts until {utc_text(max(since_ms) + known.stuck_after_ms)} UTC at most (stuck_after)"
    return f"{_name_first(sorted(behind))} under-replicated{until}"


def _in_flight_reason(partitions: Sequence[Partition], holders: Sequence[str]) -> str:
    if holders:
        plural = len(holders) > 1
        named = ", ".join(digest[:12] for digest in holders)
        return f"plan{'s' * plural} {named} hold{'s' * (not plural)} the plan slot"
    moving = sum(partition.reassigning for partition in partitions)
    return f"{moving} partition{' is' if moving == 1 else 's are'} being reassigned" if moving else ""
