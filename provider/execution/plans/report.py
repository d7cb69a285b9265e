"""What a plan did and what it left, in words; what a drain and a fill achieved, read from snapshots. Pure.

The outcome has every partition, in one message and a list. Nothing here needs the files of the planner, or Arrow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_steward.assignment import (
    TopicPartition,
    begin_with_brokers,
    bring_back,
    counted,
    name_brokers,
    name_some,
)
from kafka_steward.cluster.state import BrokerLogDirs, Snapshot
from kafka_steward.errors import RequestError
from kafka_steward.execution.moves.states import DONE
from kafka_steward.journal.observed import ProofSummary
from kafka_steward.journal.records import MoveRow, MoveState
from kafka_steward.rack_rule import RackRule, rack_left_sentence

_UNITS = ("B", "kB", "MB", "GB", "TB")


def format_bytes(count: float) -> str:
    """Return a number of bytes in readable form, in powers of 1000: `1.2 GB`."""
    for unit in _UNITS[:-1]:
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} {_UNITS[-1]}"


def format_duration(seconds: float) -> str:
    """Return a duration in readable form: `40 s`, `12 min`, `3 h 5 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


#: Why a partition was left as it is, and what a person can do, by the reasons of a proof.
REASONS_TO_LEAVE = {
    "all_replicas_lost": (
        "no replica of it is live, and moving it would lose its data; {bring_back}, or delete the topic, if that "
        "is not under way already"
    ),
    "no_leader": (
        "it has no leader, and so nothing to copy from; {bring_back}, let a replica lead that is out of sync, which "
        "loses data (kafka-leader-election.sh --election-type unclean), or delete the topic, "
        "if that is not under way already"
    ),
    "too_few_brokers": ("too few brokers may hold its replicas; start or add brokers, or lower its replication factor"),
    "no_room": (
        "no broker that may hold it has room for it within min_free, with what else the plan brings there; free disk "
        "space, add a broker, shorten the retention of a topic, or lower min_free"
    ),
    "below_min_isr": (
        "it would have fewer replicas than min.insync.replicas; ask for more replicas, or lower min.insync.replicas of "
        "its topic"
    ),
    "in_flight": (
        "a reassignment of it is in flight; make another plan when that has ended, or cancel one that does not end "
        "(kafka-reassign-partitions.sh --cancel)"
    ),
    "out_of_sync": (
        "a live replica of it is out of sync, and a move would wait for it; look for a throttle that somebody left "
        "(doctor), a failed log directory or another fault of its broker, and make another plan when it is in sync"
    ),
    "no_candidate": (
        "none of its replicas on a usable broker is in sync, and so none may lead it; make another plan when one is"
    ),
    "pinned": "the option pin keeps it as it is",
    "excluded": "the plan leaves out its topic, by include, exclude, internal_topics or service_topics",
}

#: Partitions that a sentence names; the others are only counted.
_NAMED = 3

#: The reasons of a proof's `pinned` partitions; those of all others are in `unplaced`.
_PINNED = frozenset({"in_flight", "out_of_sync", "pinned", "excluded"})

#: Why a partition stays for now that may need a change, by the reason in the proof.
_HELD = {
    "in_flight": "it is being reassigned",
    "out_of_sync": "a live replica of it is out of sync",
    "all_replicas_lost": "no replica of it is live",
    "no_leader": "it has no leader",
    "no_candidate": "no replica of it may lead",
}


def held_sentence(proof: Mapping[str, Any]) -> str:
    """Return which partitions a plan leaves for now although they may need a change; empty without any."""
    held = [
        f"{TopicPartition(one['topic'], one['partition'])} ({_HELD[one['reason']]})"
        for one in [*(proof.get("unplaced") or ()), *(proof.get("pinned") or ())]
        if one["reason"] in _HELD
    ]
    return f"Left as it is for now: {name_some(held, _NAMED)}." if held else ""


def racks_sentence(proof: Mapping[str, Any]) -> str:
    """Return which partitions break the rack rule after the plan, and why it leaves them; empty without any."""
    left = proof.get("rack_left") or {}
    first = [(one["topic"], one["partition"], one["reason"]) for one in left.get("first") or ()]
    return rack_left_sentence(first, left.get("counts") or {})


#: The reasons why a repair of the racks leaves what it had to change, unless a person left it out or a budget did.
_RACKS_IN_NEED = frozenset({RackRule.OUT_OF_SYNC.word, RackRule.EXCLUDED_BROKERS.word})


def racks_in_need(proof: Mapping[str, Any]) -> tuple[Counter[str], list[TopicPartition]]:
    """Return how many partitions a repair of the racks had to change and leaves, by reason, and the first of them."""
    racks_only = (proof.get("options") or {}).get("balance") == "racks"
    left = (proof.get("rack_left") or {}) if racks_only else {}
    first = [one for one in left.get("first") or () if one["reason"] in _RACKS_IN_NEED]
    counts = {word: count for word, count in (left.get("counts") or {}).items() if word in _RACKS_IN_NEED}
    return Counter(counts), [TopicPartition(one["topic"], one["partition"]) for one in first]


def reason_to_leave(reason: str, brokers: Sequence[int] = (), disks: Collection[int] = ()) -> str:
    """Return why a partition was left as it was and what a person can do; one of `brokers` would lead it again.

    Those of `disks` are live, and have its replica in a failed log directory.
    """
    words = REASONS_TO_LEAVE.get(reason)
    return reason.replace("_", " ") if words is None else words.format(bring_back=bring_back(brokers, disks))


def left_sentence(proof: ProofSummary, unplaced: int | None = None) -> str:
    """Return how many partitions a plan left, why, and the first few of each reason; empty without any.

    `unplaced` of those that it could not place are partitions that it had to change; None if that is not known.
    """
    total, clauses = sum(proof.left_counts.values()), []
    for reason, count in proof.left_counts.items():
        names = [TopicPartition(*partition[:2]) for partition in proof.left if partition.reason == reason]
        clauses.append(f"{name_some(names, _NAMED, count)} ({reason_to_leave(reason).partition(';')[0]})")
    listed = sum(count for reason, count in proof.left_counts.items() if reason not in _PINNED)
    spared = 0 if unplaced is None else max(listed - unplaced, 0)
    of = f"{spared} of " if spared < total else ""
    which = f", {of}which it had no need to change" if spared else ""
    return f"Its plan left {counted(total, 'partition')}{which}: {'; '.join(clauses)}." if total else ""


#: What a plan without moves says.
NOTHING_TO_MOVE = "there was nothing to move."


@dataclass(frozen=True, slots=True)
class PlanOutcome:
    """What a plan did, by its rows: the counts of partitions by result, and of the replicas that it placed.

    `not_done` lists the planned partitions that were not moved, with reasons.
    """

    moved: int
    satisfied: int
    not_done: Sequence[tuple[str, str]]
    replicas_placed: int = 0

    @property
    def sentence(self) -> str:
        """Return a message: the moves that were done, and those that were not, with the reason."""
        if not (self.moved or self.satisfied or self.not_done):
            return NOTHING_TO_MOVE
        message = f"{counted(self.moved, 'partition', 'was', 'were')} moved"
        message += f", {self.satisfied} no longer needed to move." if self.satisfied else "."
        if not self.not_done:
            return message
        name, why = self.not_done[0]
        left = len(self.not_done)
        more = f" {counted(left - 1, 'more move', 'is', 'are')} held." if left > 1 else ""
        return (
            f"{message} {counted(left, 'partition', 'was', 'were')} not moved as approved, and no other moves "
            f"were made: {name}, {why.rstrip('.')}.{more}"
        )

    def account(self, done: str, *, left: int = 0, again: int = 0) -> str:
        """Return a clause that counts each partition that was due once, by what became of it; it ends a message.

        `done` is what was done with those that were moved, such as `repaired`; `again` of them are under-replicated
        again. The plan did not plan `left` more. `of 3 partitions due, 1 was repaired and 2 were not moved: t-1, ...`
        """
        undone = len(self.not_done)
        total = self.moved + self.satisfied + undone + left
        if not total:
            return NOTHING_TO_MOVE
        ends = {
            f"were {done}": self.moved - again,
            "were moved and are under-replicated again": again,
            "no longer needed to move": self.satisfied,
            "were left by the plan": left,
            "were not moved": undone,
        }
        done_any = self.moved or self.satisfied
        counts = {end: number for end, number in ends.items() if number or (end == f"were {done}" and not done_any)}
        *parts, last = [
            f"{number} {end.replace('were ', 'was ').replace(' are ', ' is ') if number == 1 else end}"
            for end, number in counts.items()
        ]
        message = f"of {counted(total, 'partition')} due, {', '.join(parts)}{' and ' if parts else ''}{last}"
        if not undone:
            return f"{message}."
        (name, why), more = self.not_done[0], undone - 1
        return f"{message}: {name}, {why.rstrip('.')}{f'; and {more} more' if more else ''}."


def summarize_outcome(rows: Sequence[MoveRow]) -> PlanOutcome:
    """Return the outcome of a finished plan from its rows."""
    counts = Counter(row.state for row in rows)
    return PlanOutcome(
        counts[MoveState.COMPLETED],
        counts[MoveState.SATISFIED],
        [(str(row.topic_partition), _reason(row)) for row in rows if row.state not in DONE],
        sum(len(row.move.adding) for row in rows if row.state is MoveState.COMPLETED),
    )


def _reason(row: MoveRow) -> str:
    """Return why a move was not made, without the name of its partition, which messages put before it."""
    return row.detail.removeprefix(f"{row.topic_partition} was not moved: ") or row.state.value


def refuse_invalid_drain(snapshot: Snapshot, brokers: Collection[int]) -> None:
    """Raise RequestError for brokers that are not live, or if no live broker would be left."""
    unknown = sorted(set(brokers) - snapshot.live)
    if unknown:
        broker, live = unknown[0], ", ".join(map(str, sorted(snapshot.live)))
        hosts = broker in snapshot.hosting_brokers
        why = "it is not live" if hosts or broker in snapshot.brokers else f"the cluster has no broker {broker}"
        heal = " A dead broker is emptied by heal." if hosts else ""
        raise RequestError(f"Broker {broker} cannot be drained: {why}; the live brokers are {live}.{heal}")
    if brokers and snapshot.live <= set(brokers):
        raise RequestError("All live brokers would be drained, and none would be left to host their replicas.")


@dataclass(frozen=True, slots=True)
class DrainStatus:
    """The replicas that remain on the drained brokers.

    `assigned` are partitions that are still assigned to one of them. `undeleted_logs` are partitions that are not
    assigned there any more, and whose logs Kafka has yet to delete. `unresponsive` are drained brokers that are live
    and did not report their log directories. `cordoned` if no live one of them receives a replica (KIP-1066).
    """

    brokers: Sequence[int]
    assigned: Sequence[TopicPartition]
    undeleted_logs: Sequence[TopicPartition]
    unresponsive: Sequence[int] = ()
    cordoned: bool = False

    @property
    def is_empty(self) -> bool:
        """Return True if no replica is left in the metadata or on the disks, and every live broker reported."""
        return not self.assigned and not self.undeleted_logs and not self.unresponsive

    @property
    def sentence(self) -> str:
        """Return a message: the remaining replicas, and the next action of the operator."""
        it, they_are = "it" if len(self.brokers) == 1 else "them", begin_with_brokers(self.brokers, "is", "are")
        if self.assigned:
            are, them = ("is", "it") if len(self.assigned) == 1 else ("are", "them")
            return (
                f"{they_are} not empty yet: {name_some(self.assigned, _NAMED)} {are} still assigned there; "
                f"drain again once nothing keeps {them} there, and do not stop {it} before."
            )
        unassigned = f"{begin_with_brokers(self.brokers, 'no longer has', 'no longer have')} an assigned replica"
        if self.undeleted_logs:
            return f"{unassigned}; Kafka has not yet deleted {len(self.undeleted_logs)} from disk."
        if self.unresponsive:
            return f"{unassigned}; {name_brokers(self.unresponsive)} did not report which logs are still on disk."
        before = "" if self.cordoned else f" before new topics are placed on {it}"
        also = " and cordoned" if self.cordoned else ""
        return (
            f"{they_are} empty in Kafka{also}. Next: stop {it}{before}, and on KRaft unregister {it} "
            "(kafka-cluster.sh unregister)."
        )


def drain_status(snapshot: Snapshot, log_dirs: Mapping[int, BrokerLogDirs], brokers: Collection[int]) -> DrainStatus:
    """Return the replicas on `brokers` according to the metadata and to their own log directories."""
    wanted = frozenset(brokers)
    assigned = sorted(name for name, partition in snapshot.partitions.items() if wanted & frozenset(partition.replicas))
    held = {name for broker in wanted & log_dirs.keys() for name in log_dirs[broker].replica_bytes}
    silent = (wanted & snapshot.live) - log_dirs.keys()
    return DrainStatus(
        tuple(sorted(wanted)),
        tuple(assigned),
        tuple(sorted(held - set(assigned))),
        tuple(sorted(silent)),
        cordoned=not silent and all(log_dirs[broker].cordoned for broker in wanted & log_dirs.keys()),
    )


@dataclass(frozen=True, slots=True)
class OutOfSyncPartition:
    """A partition that is not fully replicated: its replicas that are not in sync, and the reassignment flag."""

    topic: str
    partition: int
    missing: tuple[int, ...]
    reassigning: bool

    @property
    def sentence(self) -> str:
        """Return a message that names the brokers that are not in sync, or the reassignment in flight."""
        name = TopicPartition(self.topic, self.partition)
        if not self.missing:
            return f"{name} is being moved."
        moved = " and is being moved" if self.reassigning else ""
        return f"{name} waits for {name_brokers(self.missing)} to be in sync{moved}."


def find_out_of_sync(
    snapshot: Snapshot, partitions: Collection[TopicPartition] | None = None
) -> tuple[OutOfSyncPartition, ...]:
    """Return the partitions with a replica out of the ISR or a reassignment in flight, sorted.

    Only `partitions` are checked, or all if it is None. Partitions that do not exist are left out.
    """
    names = snapshot.partitions.keys() if partitions is None else set(partitions) & snapshot.partitions.keys()
    lagging = []
    for partition in (snapshot.partitions[name] for name in sorted(names)):
        missing = tuple(broker for broker in partition.replicas if broker not in partition.isr)
        if missing or partition.reassigning:
            lagging.append(OutOfSyncPartition(*partition.topic_partition, missing, partition.reassigning))
    return tuple(lagging)
