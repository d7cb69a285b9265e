"""Verify a cancel or a rollback against Kafka, not against journaled state: the partitions are as they were before.

For each partition that the plan had started to move: the assignment equals the original one, order included; the leader
is one of the original replicas; and no live broker keeps a log that the plan had put there. Furthermore, no throttle
that the plan set is left, except on a dead broker, whose configuration Kafka does not let anyone change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kafka_steward.assignment import Assignment, TopicPartition, counted, only_reorders
from kafka_steward.cluster.configs import parse_list
from kafka_steward.cluster.state import BrokerLogDirs, Snapshot
from kafka_steward.errors import PlanError
from kafka_steward.execution.cluster_queries import readable_topic_configs, with_hidden_topics
from kafka_steward.execution.moves.recovery import (
    INDIVIDUAL_CANCEL,
    describe_actor,
    find_changing_plan,
    gone_reason,
    lost_originals_reason,
)
from kafka_steward.execution.moves.skips import SkippedPartition, read_skips
from kafka_steward.execution.moves.staging import is_between_stages
from kafka_steward.execution.plans.rollback import find_left_alone
from kafka_steward.execution.ports import ClusterPort
from kafka_steward.execution.throttles.leases import list_leased_rates
from kafka_steward.execution.throttles.rates import RELEASED_LATER, ThrottleSide
from kafka_steward.journal.audit import Code
from kafka_steward.journal.records import (
    RELEASED_THROTTLES,
    THROTTLE_LEASES,
    Cause,
    LeaseKey,
    MoveRow,
    MoveState,
    PlanRecord,
)
from kafka_steward.journal.store import Journal

#: Partitions of each kind that are listed in full; the rest is counted.
_LISTED = 20

#: Seconds between two polls for the deletion of abandoned replicas, which Kafka deletes asynchronously.
_POLL_INTERVAL_S = 2.0


@dataclass(frozen=True, order=True)
class ReturnedPartition:
    """A partition that the plan was moving or had moved to `target`, and that is back at its `originals`."""

    topic: str
    partition: int
    target: Assignment
    originals: Assignment

    @property
    def sentence(self) -> str:
        """The message for the user."""
        return f"{self.topic}-{self.partition}: {list(self.target)} back to {list(self.originals)}"


@dataclass(frozen=True)
class UndoVerification:
    """The verification result. `partitions` is the number of partitions that must be as they were before.

    `returned` are the ones that are; `wrong` are the ones that are not, and why. `left_alone` need not be: they were
    changed externally, or cannot go back; `may_return` says whether any of these still can. `skipped` were not
    cancelled because of a rule of KIP-236, and are where the plan moved them. `changed_since` went back, and were
    changed externally or deleted after that. `throttles` are throttles of ours that are still set and should not be;
    `on_dead_brokers` are our throttles on dead brokers, which a later look releases (`RELEASED_LATER`).
    """

    plan: str
    rollback: str | None
    status: str
    partitions: int
    returned: tuple[ReturnedPartition, ...]
    wrong: tuple[SkippedPartition, ...]
    left_alone: tuple[SkippedPartition, ...]
    may_return: bool
    skipped: tuple[SkippedPartition, ...]
    changed_since: tuple[SkippedPartition, ...]
    throttles: tuple[str, ...]
    on_dead_brokers: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Return whether all partitions that must be as before are, and no throttle is left except on dead brokers."""
        return not self.wrong and not self.throttles

    @property
    def as_before(self) -> bool:
        """Return whether all that the plan had started to move is as before, and no throttle of ours is left."""
        return self.ok and not (self.left_alone or self.skipped or self.changed_since)

    @property
    def sentence(self) -> str:
        """The message for the user."""
        right, plan = len(self.returned), self.plan[:12]
        begun = {(entry.topic, entry.partition) for name in _LISTS for entry in getattr(self, name)}
        of, verb = counted(len(begun), "partition"), "is" if right == 1 else "are"
        messages = [f"{right} of {of} that plan {plan} had started to move {verb} exactly as before"]
        messages = messages if self.partitions else [f"Plan {plan} had started to move nothing that can go back"]
        if self.changed_since:
            changed = f"{counted(len(self.changed_since), 'partition')} that had gone back changed since"
            messages = [*messages, changed] if self.partitions else [f"Plan {plan}: {changed}"]
        messages += [f"{entry.topic}-{entry.partition}: {entry.why}" for entry in self.wrong[:1]]
        messages += [f"{len(self.left_alone)} left alone"] if self.left_alone else []
        messages += [f"{len(self.skipped)} not cancelled because of a rule of KIP-236"] if self.skipped else []
        messages += [f"throttles still set: {self.throttles[0]}"] if self.throttles else []
        if self.on_dead_brokers:
            messages.append(f"{RELEASED_LATER}: {', '.join(self.on_dead_brokers)}")
        return f"{'; '.join(messages)}."

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values, some KB at most."""
        lists = {name: [_plain(entry) for entry in getattr(self, name)[:_LISTED]] for name in _LISTS}
        counts = {f"{name}_count": len(getattr(self, name)) for name in _LISTS}
        plain = {name: getattr(self, name) for name in ("plan", "rollback", "status", "partitions", "sentence")}
        absent = list(self.on_dead_brokers[:_LISTED])
        return {**plain, "as_before": self.as_before, **lists, **counts, "on_dead_brokers": absent}


_LISTS = ("returned", "left_alone", "skipped", "changed_since", "wrong")


def _plain(entry: ReturnedPartition | SkippedPartition) -> dict[str, Any]:
    # Airflow stores a tuple as an object that names its class.
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(entry).items()}


def poll_until_undone(
    look: Callable[[], UndoVerification],
    wait: Callable[[float], None],
    *,
    say: Callable[[str], None],
    within_s: float = 300.0,
) -> UndoVerification:
    """Poll `look` until its result is `ok`, for at most `within_s` seconds; returns the last result.

    If the first result is not, `say` gets a message about what is waited for.
    """
    verification = look()
    if not verification.ok:
        say(waiting_message(verification, within_s))
    for _ in range(int(within_s / _POLL_INTERVAL_S)):
        if verification.ok:
            return verification
        wait(_POLL_INTERVAL_S)
        verification = look()
    return verification


def waiting_message(verification: UndoVerification, within_s: float) -> str:
    """Return the message about what a verification waits for, how long, and that the plan has ended. Pure."""
    first = [f"{entry.topic}-{entry.partition}: {entry.why}" for entry in verification.wrong[:1]]
    first += [f"throttles still set: {verification.throttles[0]}"] if verification.throttles and not first else []
    more = len(verification.wrong) + len(verification.throttles) - 1
    rest = f", and {more} more" if more > 0 else ""
    return (
        f"Plan {verification.plan[:12]} has ended. Waiting, for {within_s:g} s at most, until all is as it was before: "
        f"{first[0]}{rest}."
    )


def verify_undone(cluster: ClusterPort, journal: Journal, digest: str) -> UndoVerification:
    """Check whether the partitions of the cancelled or rolled-back plan `digest` are as they were before.

    Kafka deletes abandoned replicas some seconds after a cancel: check again while `ok` is False.
    Raises PlanError for an unknown plan, ClusterError.
    """
    record = journal.plans.get(digest)
    if record is None:
        raise PlanError(f"There is no plan {digest[:12]} in the journal of this cluster.")
    rows = journal.plans.rows(digest)
    snapshot = with_hidden_topics(cluster, cluster.snapshot(), {row.move.topic for row in rows})
    alone = find_left_alone(journal, record.rolled_back_by)
    later = journal.plans.submissions_by_others(digest, [row.topic_partition for row in rows if row.attempt])
    begun = [row for row in rows if row.may_have_started]
    expected, changed = _split_expected_moves(record, begun, alone, snapshot, later)
    log_dirs = cluster.log_dirs(sorted({broker for row in expected for broker in row.move.adding} & snapshot.live))
    wrong = find_unrestored_partitions(expected, snapshot, log_dirs)
    astray = {(entry.topic, entry.partition) for entry in wrong}
    returned = [
        ReturnedPartition(*row.topic_partition, row.move.after, row.move.before)
        for row in expected
        if row.topic_partition not in astray
    ]
    back = {(entry.topic, entry.partition) for entry in returned}
    # What a rollback leaves alone is decided when it is published: what was changed later was restored before.
    left_alone, changed_since = (alone, changed) if record.rolled_back else (sorted({*alone, *changed}), [])
    names = {(entry.topic, entry.partition) for entry in left_alone}
    left, on_dead_brokers = _find_remaining_throttles(
        cluster, journal, [digest, *filter(None, [record.rolled_back_by])], snapshot.live
    )
    return UndoVerification(
        digest,
        record.rolled_back_by,
        record.status.value,
        partitions=len(expected),
        returned=tuple(sorted(returned)),
        wrong=tuple(wrong),
        left_alone=tuple(left_alone),
        may_return=any(row.topic_partition in names and not _is_gone_for_good(row, snapshot) for row in rows),
        # A rule may have forbidden the cancel only temporarily.
        skipped=tuple(
            skip for skip in read_skips(journal, digest, Code.FORBIDDEN) if (skip.topic, skip.partition) not in back
        ),
        changed_since=tuple(sorted(changed_since)),
        throttles=tuple(left),
        on_dead_brokers=tuple(on_dead_brokers),
    )


def _is_gone_for_good(row: MoveRow, snapshot: Snapshot) -> bool:
    """Return whether the topic of a move was deleted: what is re-created by the same name is another topic."""
    partition = snapshot.partitions.get(row.topic_partition)
    if partition is None:
        return row.move.topic not in snapshot.hidden
    return partition.is_recreated(row.move.topic_id)


def find_unrestored_partitions(
    rows: Sequence[MoveRow], snapshot: Snapshot, log_dirs: Mapping[int, BrokerLogDirs]
) -> list[SkippedPartition]:
    """Return the partitions that are not as they were before these moves started, and why. Pure."""
    return [
        SkippedPartition(*row.topic_partition, why)
        for row in rows
        if (why := _unrestored_reason(row, snapshot, log_dirs)) is not None
    ]


def _unrestored_reason(row: MoveRow, snapshot: Snapshot, log_dirs: Mapping[int, BrokerLogDirs]) -> str | None:
    partition, move = snapshot.partitions[row.topic_partition], row.move
    if partition.reassigning:
        return "it is still being reassigned"
    if partition.replicas != move.before:
        return f"its replicas are {list(partition.replicas)} and were {list(move.before)}"
    # Of what is only reordered, nothing is lost that it had before.
    led = partition.leader in move.before or (partition.leader is None and only_reorders(move.before, move.after))
    if not led and frozenset(move.before) & snapshot.live:
        return f"its leader is {partition.leader}, which is none of its replicas {list(move.before)}"
    logs = {broker: log_dirs[broker].replica_bytes for broker in sorted(move.adding & log_dirs.keys())}
    keeps = [broker for broker, sizes in logs.items() if row.topic_partition in sizes]
    if keeps:
        return f"broker {keeps[0]} still has a log of it"
    silent = sorted((move.adding & snapshot.live) - log_dirs.keys())
    return f"broker {silent[0]} does not report whether it still has a log of it" if silent else None


def _split_expected_moves(
    record: PlanRecord,
    begun: Sequence[MoveRow],
    alone: Collection[SkippedPartition],
    snapshot: Snapshot,
    later: Mapping[TopicPartition, Sequence[tuple[str, MoveRow]]],
) -> tuple[list[MoveRow], list[SkippedPartition]]:
    """Return the moves that must be cancelled or rolled back, and what others changed, without `alone`."""
    names = {(entry.topic, entry.partition) for entry in alone}
    begun = [row for row in begun if row.topic_partition not in names]
    ended_alone = {Cause.ORDER_REFUSED, *INDIVIDUAL_CANCEL}
    refused = [
        row
        for row in begun
        if row.cause in ended_alone
        and (partition := snapshot.partitions.get(row.topic_partition)) is not None
        and partition.replicas != row.move.before
    ]
    if not record.rolled_back:
        begun = [row for row in begun if row.state is MoveState.DROPPED and row.cause is Cause.REQUESTED]
    changed = {row.topic_partition: row.detail for row in refused} | {
        row.topic_partition: why
        for row in begun
        if (why := _external_change_reason(row, snapshot, later.get(row.topic_partition, ()))) is not None
    }
    expected = [row for row in begun if row.topic_partition not in changed]
    return expected, [SkippedPartition(*name, why) for name, why in changed.items()]


def _external_change_reason(row: MoveRow, snapshot: Snapshot, later: Sequence[tuple[str, MoveRow]]) -> str | None:
    partition = snapshot.partitions.get(row.topic_partition)
    gone = gone_reason(row.move, snapshot)
    if gone is not None or partition is None:
        return gone
    known = {frozenset(row.move.before), frozenset(row.move.after)}
    if is_between_stages(row, partition.replicas):
        lost = lost_originals_reason(row.move, partition, snapshot.live)
        return lost and f"{lost}, so it keeps the replicas {list(partition.replicas)}"
    if not partition.reassigning and frozenset(partition.replicas) not in known:
        actor = describe_actor(find_changing_plan(partition.replicas, later))
        return f"{actor} changed its replicas to {list(partition.replicas)}"
    return None


def _find_remaining_throttles(
    cluster: ClusterPort, journal: Journal, plans: Sequence[str], live: frozenset[int]
) -> tuple[list[str], list[str]]:
    """Return the throttles that these plans set and that are still set, and their throttle leases on dead brokers."""
    keys = [side.replicas_key for side in ThrottleSide]
    leases = {row.key: row.value.entries for row in journal.rows(THROTTLE_LEASES).all() if row.key.setting in keys}
    leased = {
        (plan, key.name, entry) for key, of in leases.items() for plan, entries in of.items() for entry in entries
    }
    still_leased = {(topic, entry) for plan, topic, entry in leased if plan not in plans}
    set_by_us = {(topic, entry) for plan, topic, entry in leased if plan in plans}
    for row in (row for row in journal.rows(RELEASED_THROTTLES).all() if row.key.partition("/")[0] in plans):
        set_by_us |= {(topic, entry) for topic, entries in row.value.entries.items() for entry in entries}
    lists, unreadable = readable_topic_configs(cluster, sorted({topic for topic, _ in set_by_us}), keys, own_only=True)
    # As long as a lease is recorded, its entries count as set.
    lists |= {topic: _entries_of(leases, topic, plans) for topic in unreadable}
    left = [
        f"{key} of {topic} has {entry}"
        for topic, entry in set_by_us - still_leased
        for key in keys
        if entry in parse_list(lists.get(topic, {}).get(key))
    ]
    rates = [(broker, f"{side.rate_key} of broker {broker}") for broker, side in list_leased_rates(journal, plans)]
    return (
        sorted({*left, *(name for broker, name in rates if broker in live)}),
        sorted({name for broker, name in rates if broker not in live}),
    )


def _entries_of(
    leases: Mapping[LeaseKey, Mapping[str, tuple[str, ...]]], topic: str, plans: Sequence[str]
) -> dict[str, str]:
    """Return the entries of a topic that are recorded as leased by these plans, in the form of Kafka's settings."""
    by_key = {side.replicas_key: leases.get(LeaseKey(topic, side.replicas_key), {}) for side in ThrottleSide}
    return {key: ",".join(entry for plan in plans for entry in of.get(plan, ())) for key, of in by_key.items()}
