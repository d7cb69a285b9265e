"""Moves that cannot go on: what is cancelled for that, what is rolled back, dead targets, stalls. Pure (KIP-236).

A broker may fail during a plan. A reassignment completes when the ISR contains the whole target. A target with a dead
broker, whether that broker receives a replica or keeps one, therefore stalls until the broker returns, and the
partition's old replicas are never released. Such a move is cancelled, its replica order is restored, and it returns to
the queue: it is submitted again when the broker is back, or the next heal plans it again. One look cancels nothing: a
receiving broker must have been dead for some seconds, one that keeps its replica for as long as its heal waits. A move
is not cancelled while the broker is away for an announced restart. Nor is it cancelled if none of its original replicas
is in sync and a new one is live: a cancel would discard the only copy that can lead (KIP-236).

Two faults of a copy have similar symptoms. A *stalled* move copies nothing: something is broken. An *outpaced* move
copies, but its leader's log grows faster than the throttle lets it copy. It never completes, however long it runs, and
a higher throttle repairs it. It is detected by the replica's missing bytes, which grow over the whole observed time.
When a stage of a move completes, the next replica misses all bytes: only polls of the same added replicas are compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kafka_steward.assignment import Assignment, Move, MoveReason, TopicPartition, counted, name_brokers, name_some
from kafka_steward.cluster.health import failed_paths_text
from kafka_steward.cluster.requests import INVALID_ASSIGNMENT
from kafka_steward.cluster.state import BrokerLogDirs, Partition, Snapshot, bytes_missing
from kafka_steward.errors import ClusterError, KafkaRefused
from kafka_steward.execution.cluster_queries import HIDDEN
from kafka_steward.execution.moves.observe import TRANSITION_OF, Observation, ObservedState
from kafka_steward.execution.moves.staging import is_between_stages, part_in_flight
from kafka_steward.execution.moves.states import DELETION_PENDING, OPEN, TOPIC_DELETED, TOPIC_RECREATED, phase_of
from kafka_steward.execution.throttles.rates import find_catching_up, rate_text
from kafka_steward.journal.records import Cause, MoveRow, MoveState, Phase


def is_unregistered_refusal(error: ClusterError | None, *, zookeeper_mode: bool) -> bool:
    """Return True if Kafka refused an assignment of existing replicas because one of their brokers is unregistered.

    A KRaft controller accepts no assignment that names such a broker, until the broker registers again. In ZooKeeper
    mode no broker is ever unregistered, only dead.
    """
    return isinstance(error, KafkaRefused) and error.code == INVALID_ASSIGNMENT and not zookeeper_mode


def unregistered_clause(assignment: Assignment, snapshot: Snapshot) -> str:
    """Return the brokers of an assignment that the cluster does not list, as a clause; empty if it lists all."""
    gone = [broker for broker in assignment if broker not in snapshot.brokers]
    return f", because {name_brokers(gone)} {'is' if len(gone) == 1 else 'are'} not registered" if gone else ""


@dataclass(frozen=True)
class RollbackMoves:
    """The moves that roll back a plan, and the rows that are skipped, each with the reason."""

    moves: tuple[Move, ...]
    skipped: tuple[tuple[MoveRow, str], ...]


def find_changing_plan(replicas: Assignment, submissions: Iterable[tuple[str, MoveRow]]) -> str | None:
    """Return the plan that gave a partition its `replicas`, or is moving it there; None if no plan did.

    `submissions` are the moves of that partition in other plans, with their digests, the latest last.
    """
    return next((digest for digest, row in reversed(list(submissions)) if _explains_replicas(row, replicas)), None)


def describe_actor(plan: str | None) -> str:
    """Return the actor that changed a partition, as the subject of a message: one of our plans, or an external one."""
    return "someone else" if plan is None else f"plan {plan[:12]}"


def _explains_replicas(row: MoveRow, replicas: Assignment) -> bool:
    """Return True if the move completed, is in flight to, or rests between stages at these replicas.

    While it is in flight, Kafka lists the replicas to remove behind the target.
    """
    target = row.move.after
    there = row.state in {MoveState.COMPLETED, MoveState.SUBMITTED} and replicas[: len(target)] == target
    return there or is_between_stages(row, replicas)


def plan_rollback_moves(
    rows: Iterable[MoveRow],
    snapshot: Snapshot,
    *,
    chunk_size: int,
    others: Mapping[TopicPartition, Sequence[tuple[str, MoveRow]]] | None = None,
    failed_dirs: Mapping[int, Sequence[str]] | None = None,
) -> RollbackMoves:
    """Return the moves that restore the original replicas of a plan, in their order; the last move first.

    They cover every completed move, and every other move that changed its partition. `skipped` are partitions that
    an external actor or one of the `others` (`find_changing_plan`) changed since, deleted or re-created ones, and those
    whose rollback needs a dead broker, or one that had a replica of it in one of its `failed_dirs`. Partitions that
    already are at their original replicas are in neither.
    """
    later, failed = others or {}, failed_dirs or {}
    touched = [row for row in rows if _has_changed_partition(row, snapshot) and not _is_at_originals(row, snapshot)]
    judged = [
        (
            row,
            _rollback_skip_reason(row, snapshot, later.get(row.topic_partition, ()))
            or _former_log_reason(row.move, snapshot, failed),
        )
        for row in reversed(touched)
    ]
    back = [
        replace(
            row.move,
            before=snapshot.partitions[row.topic_partition].replicas,
            after=row.move.before,
            purpose=MoveReason.GIVEN.value,
        )
        for row, why in judged
        if why is None
    ]
    return RollbackMoves(
        tuple(replace(move, chunk=n // chunk_size, position=n % chunk_size) for n, move in enumerate(back)),
        tuple((row, why) for row, why in judged if why is not None),
    )


def _has_changed_partition(row: MoveRow, snapshot: Snapshot) -> bool:
    """Return True if the plan took the partition to its target, or left it between stages or in another replica order.

    Kafka may have executed a move that was dropped after its answer was lost. And an external cancel of a move in
    flight, with Kafka's own tool, loses the replica order. A FAILED move counts if its partition exists, and so does
    any move that was submitted if its topic is deleted or hidden: what it did to its partition is not known then.
    """
    partition = snapshot.partitions.get(row.topic_partition)
    if row.state is MoveState.COMPLETED:
        return True
    given_up = row.state in {MoveState.SATISFIED, MoveState.DROPPED, MoveState.FAILED} and row.attempt > 0
    if partition is None:
        return given_up
    in_disorder = frozenset(partition.replicas) == frozenset(row.move.before)
    at_target = partition.replicas == row.move.after
    as_left = in_disorder or at_target or is_between_stages(row, partition.replicas)
    return given_up and (row.state is MoveState.FAILED or partition.is_recreated(row.move.topic_id) or as_left)


def _is_at_originals(row: MoveRow, snapshot: Snapshot) -> bool:
    partition = snapshot.partitions.get(row.topic_partition)
    if partition is None or partition.reassigning or partition.is_recreated(row.move.topic_id):
        return False
    return partition.replicas == row.move.before


def _rollback_skip_reason(row: MoveRow, snapshot: Snapshot, submissions: Sequence[tuple[str, MoveRow]]) -> str | None:
    partition, move = snapshot.partitions.get(row.topic_partition), row.move
    gone = gone_reason(move, snapshot)
    if gone is not None or partition is None:
        return gone
    expected = partition.replicas == move.after or row.state is not MoveState.COMPLETED
    if partition.reassigning or not expected or row.state is MoveState.FAILED:
        actor = describe_actor(find_changing_plan(partition.replicas, submissions))
        return f"{actor} changed its replicas to {list(partition.replicas)}"
    # Only their order is restored: nothing is copied, and no broker has to be live.
    if frozenset(partition.replicas) == frozenset(move.before):
        return None
    return lost_originals_reason(move, partition, snapshot.live)


def left_failed_dirs(rows: Iterable[MoveRow]) -> frozenset[int]:
    """Return the brokers off whose failed log directories these moves took replicas."""
    moves = (row.move for row in rows if row.move.purpose == MoveReason.LOG_DIR_FAILED)
    return frozenset(broker for move in moves for broker in move.removing)


def _former_log_reason(move: Move, snapshot: Snapshot, failed_dirs: Mapping[int, Sequence[str]]) -> str | None:
    if move.purpose != MoveReason.LOG_DIR_FAILED:
        return None
    missing = frozenset(move.before).difference(snapshot.partitions[move.topic_partition].replicas)
    broker = min(missing & failed_dirs.keys(), default=None)
    if broker is None:
        return None
    return (
        f"a former replica of it may be in the failed log directory {failed_paths_text(failed_dirs[broker])} of its "
        f"original broker {broker}, {_NO_OTHER_LOG}"
    )


def gone_reason(move: Move, snapshot: Snapshot) -> str | None:
    """Return why the partition of a move is not there or not known, as a clause; None if it is.

    A partition of the same name whose topic has another id is not the one.
    """
    partition = snapshot.partitions.get(move.topic_partition)
    if partition is not None:
        return TOPIC_RECREATED if partition.is_recreated(move.topic_id) else None
    if move.topic in snapshot.deleting:
        return DELETION_PENDING
    # Kafka deletes no partition of a topic: the topic has fewer only if it was created again.
    deleted = TOPIC_RECREATED if move.topic in snapshot.topics else TOPIC_DELETED
    return HIDDEN if move.topic in snapshot.hidden else deleted


def lost_originals_reason(move: Move, partition: Partition, live: frozenset[int]) -> str | None:
    """Return which original brokers are dead, or else whose log directories failed, as a clause; None without any."""
    dead = sorted(frozenset(move.before) - live)
    if dead:
        return f"its original {name_brokers(dead)} {'is' if len(dead) == 1 else 'are'} not live"
    failed = sorted(frozenset(move.before) & partition.offline)
    return f"a log directory of its original {name_brokers(failed)} failed" if failed else None


#: Seconds for which a broker must have been seen dead, at two looks at least, before moves to it are cancelled: after
#: a pause of its own, or of ZooKeeper, it registers again within seconds.
_CONFIRMED_S = 10.0


@dataclass(frozen=True)
class Deaths:
    """Since when brokers have been seen dead or with failed log directories, in milliseconds of the journal's clock.

    `since_ms` is kept between the looks of a process. Brokers in `restarting` count as dead at no time (KIP-46).
    `failed_dirs` are live brokers that themselves report a failed log directory.
    """

    since_ms: Mapping[int, int] = field(default_factory=dict)
    now_ms: int = 0
    restarting: frozenset[int] = frozenset()
    failed_dirs: frozenset[int] = frozenset()

    def after_look(
        self,
        dead: Collection[int],
        now_ms: int,
        *,
        recorded_ms: Mapping[int, int],
        restarting: frozenset[int],
        failed_dirs: frozenset[int],
    ) -> Deaths:
        """Return what is known after a look that showed these brokers `dead`.

        `recorded_ms` has the times since which the journal has brokers as failed.
        """
        lost = {*dead, *failed_dirs}
        since_ms = {broker: self.since_ms.get(broker, recorded_ms.get(broker, now_ms)) for broker in lost}
        return Deaths(since_ms, now_ms, restarting, failed_dirs)

    def last(self, broker: int, seconds: float) -> bool:
        """Return True if a broker has been dead for so many seconds, and for longer than one look."""
        if broker in self.restarting:
            return False
        since_ms = self.since_ms.get(broker, self.now_ms)
        return since_ms < self.now_ms and self.now_ms - since_ms >= seconds * 1000

    def is_confirmed(self, broker: int) -> bool:
        """Return True if a copy to this broker is lost: the broker is dead, or it reports a failed log directory."""
        return self.last(broker, _CONFIRMED_S) or (broker in self.failed_dirs and broker not in self.restarting)


def find_unfinishable_moves(
    in_flight: Iterable[MoveRow], snapshot: Snapshot, deaths: Deaths, *, kept_after_s: float
) -> list[MoveRow]:
    """Return the moves in flight to cancel because a broker of their target failed; in the given order.

    A cancel discards what the brokers have copied. A broker that the whole move keeps is therefore waited for as long
    as for its heal, `kept_after_s` seconds, -1 for ever: it may be restarting, and the move goes on when it is back.
    """
    return [row for row in in_flight if _is_unfinishable(row, snapshot, deaths, kept_after_s)]


def _is_unfinishable(row: MoveRow, snapshot: Snapshot, deaths: Deaths, kept_after_s: float) -> bool:
    dead = frozenset(filter(deaths.is_confirmed, dead_target_brokers(row, snapshot)))
    kept = dead & _kept_brokers(row.move)
    return bool(dead - kept) or (kept_after_s >= 0 and any(deaths.last(broker, kept_after_s) for broker in kept))


def _kept_brokers(move: Move) -> frozenset[int]:
    return frozenset(move.before).intersection(move.after)


def waits_for_kept_message(rows: Iterable[MoveRow], snapshot: Snapshot, deaths: Deaths, *, kept_after_s: float) -> str:
    """Return which moves wait for a dead broker whose replica they keep; empty without any."""
    waiting = [
        (row, dead)
        for row in rows
        if (dead := sorted(filter(deaths.is_confirmed, dead_target_brokers(row, snapshot) & _kept_brokers(row.move))))
    ]
    if not waiting:
        return ""
    row, dead = waiting[0]
    are = "is" if len(dead) == 1 else "are"
    more = f" {counted(len(waiting) - 1, 'more move', 'does', 'do')} so too." if len(waiting) > 1 else ""
    until = f"; after {kept_after_s:.0f} s without it, the move is cancelled" if kept_after_s >= 0 else ""
    return (
        f"{row.topic_partition} stays in flight until its {name_brokers(dead)}, which {are} not live, "
        f"{are} back and in sync{until}.{more}"
    )


def dead_target_brokers(row: MoveRow, snapshot: Snapshot) -> frozenset[int]:
    """Return the brokers of the target in flight that are neither live nor in the ISR that the leader last reported.

    A broker whose log directory with the replica has failed counts as dead: its copy never completes.
    """
    partition = snapshot.partitions[row.move.topic_partition]
    return frozenset(part_in_flight(row, partition).after) - (snapshot.live - partition.offline) - partition.isr


def dead_target_reason(row: MoveRow, snapshot: Snapshot) -> str:
    """Return the reason of the cancel, as a clause."""
    dead = dead_target_brokers(row, snapshot)
    if not dead:
        return "a target broker failed"
    brokers = f"target {name_brokers(sorted(dead))}"
    return f"a log directory of {brokers} failed" if dead <= snapshot.live else f"{brokers} failed"


def unfinishable_message(rows: Sequence[MoveRow], snapshot: Snapshot) -> str:
    """Return the message about moves that can neither complete nor be cancelled; empty without any."""
    if not rows:
        return ""
    more = f" {counted(len(rows) - 1, 'more move', 'does', 'do')} so too." if len(rows) > 1 else ""
    why = dead_target_reason(rows[0], snapshot)
    return f"{rows[0].topic_partition} stays in flight: {why}, and a cancel would take it offline (KIP-236).{more}"


def cancels_waiting_message(moves: Sequence[Move], snapshot: Snapshot) -> str:
    """Return what keeps cancelled moves in flight whose originals are live and out of sync; empty without any."""
    if not moves:
        return ""
    more = f" {counted(len(moves) - 1, 'more move', 'does', 'do')} so too." if len(moves) > 1 else ""
    lagging = sorted(find_catching_up(moves[0], snapshot))
    are = "is" if len(lagging) == 1 else "are"
    return (
        f"{moves[0].topic_partition} stays in flight until its original {name_brokers(lagging)}, which {are} out of "
        f"sync, {are} in sync: only then does Kafka remove the new replicas.{more}"
    )


#: The reason why it is not submitted again.
GIVEN_UP = (
    "it made no progress, and this move alone was cancelled (when_stalled is cancel); fix the cause, then plan again"
)

#: The reason for our cancel of the completed stages after an external cancel of a later stage.
EXTERNAL_CANCEL = TRANSITION_OF[ObservedState.CANCELLED_EXTERNALLY][1]

#: What a broker does until it runs without the failed log directory of a former replica, and what helps.
_NO_OTHER_LOG = (
    "which then creates no other; restart the broker without that directory (log.dirs), and run the same command again"
)

#: The causes for which one move is cancelled and not submitted again, with the reason for an operator.
INDIVIDUAL_CANCEL: dict[Cause, str] = {
    Cause.STALLED: GIVEN_UP,
    Cause.CANCELLED_ELSEWHERE: EXTERNAL_CANCEL,
    Cause.NO_LOG: f"a former replica of it may be in a failed log directory of its original broker, {_NO_OTHER_LOG}",
}

_KEEPS = "an original broker is dead or its log directory failed, so it keeps"

#: Seconds between two polls of the replica lag: each costs a request to each broker.
EVERY_S = 30

#: Seconds for which a live broker has no log of a partition before that is its failed log directory's fault, and not
#: the moment between the request and the creation of the log.
_NO_LOG_S = 10

#: The factor over the producers' write rate that a throttle must allow, so that a replica catches up.
_AMPLE = 1.25

#: The number of partitions that a message names.
_NAMED = 3


@dataclass(frozen=True)
class LagSample:
    """One poll: by partition, the largest number of missing bytes of a new replica, and the size of the leader's log.

    `adding` are the brokers that were receiving replicas. `no_log` has, by partition and new replica, the failed log
    directories of a live broker that has no log of the partition in any other.
    """

    at_ms: int
    missing: Mapping[TopicPartition, int] = field(default_factory=dict)
    size: Mapping[TopicPartition, int] = field(default_factory=dict)
    adding: Mapping[TopicPartition, frozenset[int]] = field(default_factory=dict)
    no_log: Mapping[tuple[TopicPartition, int], tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class FallingBehind:
    """A partition that falls behind: the growth of its lag in bytes, and a sufficient rate in bytes/s into `broker`."""

    partition: TopicPartition
    fell_behind: int
    broker: int
    sufficient_rate: int


def sample_lag(
    snapshot: Snapshot, moves: Iterable[Move], log_dirs: Mapping[int, BrokerLogDirs], at_ms: int
) -> LagSample:
    """Return the lag of the moves in flight; partitions of unknown lag are left out."""
    missing, size, adding, no_log = {}, {}, {}, {}
    for move in moves:
        name, partition = move.topic_partition, snapshot.partitions.get(move.topic_partition)
        if partition is None or partition.leader is None:
            continue
        for broker in move.adding - partition.isr:
            dirs = log_dirs.get(broker)
            if dirs is not None and dirs.failed_paths and name not in dirs.replica_bytes:
                no_log[name, broker] = dirs.failed_paths
        lags = [bytes_missing(log_dirs, partition, broker) for broker in move.adding - partition.isr]
        known = [lag for lag in lags if lag is not None]
        if known:
            missing[name] = max(known)
            size[name] = log_dirs[partition.leader].replica_bytes[name]
            adding[name] = move.adding
    return LagSample(at_ms, missing, size, adding, no_log)


def next_sample_s(samples: Sequence[LagSample]) -> float:
    """Return the seconds from the last poll to the next: fewer while that decides on a failed log directory."""
    undecided = samples[-1].no_log.keys() - find_without_log(samples).keys()
    return _NO_LOG_S if undecided else EVERY_S


def find_without_log(samples: Sequence[LagSample]) -> dict[tuple[TopicPartition, int], tuple[str, ...]]:
    """Return the new replicas of which a live broker creates no log, with its failed log directories.

    A broker that finds a former replica in a failed directory creates no other until it runs without that directory.
    """
    last_ms, since_ms = samples[-1].at_ms if samples else 0, dict[tuple[TopicPartition, int], int]()
    for sample in samples:
        since_ms = {replica: since_ms.get(replica, sample.at_ms) for replica in sample.no_log}
    lasting = [replica for replica, at_ms in since_ms.items() if last_ms - at_ms >= _NO_LOG_S * 1000]
    return {replica: samples[-1].no_log[replica] for replica in lasting}


def retain_lag_samples(samples: Sequence[LagSample], newest: LagSample, *, for_s: float) -> list[LagSample]:
    """Return the polls with `newest` added, without those not needed: all but one are younger than `for_s` seconds."""
    young = [sample for sample in samples if sample.at_ms > newest.at_ms - for_s * 1000]
    old = [sample for sample in samples if sample.at_ms <= newest.at_ms - for_s * 1000]
    return [*old[-1:], *young, newest]


def find_falling_behind(
    samples: Sequence[LagSample], in_flight: Collection[Move], *, after_s: float
) -> list[FallingBehind]:
    """Return the moves whose lag grew over the whole last `after_s` seconds, sorted.

    Empty until the polls cover that time.
    """
    if not samples or samples[-1].at_ms - samples[0].at_ms < after_s * 1000:
        return []
    first, last = samples[0], samples[-1]
    behind = []
    # A move that only removes replicas has nothing left to copy.
    for move in sorted((move for move in in_flight if move.adding), key=lambda move: move.topic_partition):
        name = move.topic_partition
        alike = [sample for sample in samples if sample.adding.get(name, move.adding) == move.adding]
        lags = [sample.missing[name] for sample in alike if name in sample.missing]
        # A replica that was ever closer to its leader than at first may still catch up.
        if len(lags) == len(samples) and lags[-1] > lags[0] == min(lags):
            broker = min(move.adding)
            together = {copy.topic_partition for copy in in_flight if broker in copy.adding}
            measured = together & first.size.keys() & last.size.keys()
            grown = sum(last.size[partition] - first.size[partition] for partition in measured)
            # Of all partitions that the broker receives: they share its throttle.
            rate = max(0, grown) * 1000 / (last.at_ms - first.at_ms) * _AMPLE
            behind.append(FallingBehind(name, lags[-1] - lags[0], broker, int(rate) + 1))
    return behind


def stall_message(
    stalled: Sequence[TopicPartition],
    behind: Sequence[FallingBehind],
    *,
    after_s: float,
    throttle: int,
    external: Mapping[int, int] | None = None,
    without_log: Mapping[tuple[TopicPartition, int], Sequence[str]] | None = None,
) -> str:
    """Return the message for an operator; empty if no move is stalled or outpaced, or has a replica `without_log`.

    `external` are the rates of others that apply instead of `throttle`, by broker. What has no log is the fault of no
    rate, and needs no time to be sure of.
    """
    without = without_log or {}
    broken = {name for name, _ in without}
    slow = [lagging for lagging in behind if lagging.partition not in broken]
    parts = (
        _without_log_message(without),
        _stalled_message([name for name in stalled if name not in broken], after_s),
        _falling_behind_message(slow, after_s, throttle, external or {}),
    )
    return " ".join(filter(None, parts))


def _without_log_message(without: Mapping[tuple[TopicPartition, int], Sequence[str]]) -> str:
    """Return which brokers create no log of their new replicas, and what helps; one sentence for each broker."""
    by_broker: dict[int, list[TopicPartition]] = {}
    for name, broker in sorted(without):
        by_broker.setdefault(broker, []).append(name)
    sentences = []
    for broker, names in sorted(by_broker.items()):
        paths = failed_paths_text(without[names[0], broker])
        are, them = ("is", "it") if len(names) == 1 else ("are", "them")
        sentences.append(
            f"{name_some(names, _NAMED)} {are} not copied to broker {broker}, which creates no log of {them} while its "
            f"log directory {paths} has failed: a former replica may be there. Restart the broker without that "
            "directory (log.dirs), or cancel the plan."
        )
    return " ".join(sentences)


def _stalled_message(stalled: Sequence[TopicPartition], after_s: float) -> str:
    if not stalled:
        return ""
    some = ", ".join(map(str, stalled[:_NAMED])) + (", …" if len(stalled) > _NAMED else "")
    return f"{some} made no progress for {after_s:.0f} s."


def _falling_behind_message(
    behind: Sequence[FallingBehind], after_s: float, throttle: int, external: Mapping[int, int]
) -> str:
    # A rate that the throttle already allows is not the problem.
    behind = [
        lagging
        for lagging in behind
        if not (applies := external.get(lagging.broker, throttle)) or lagging.sufficient_rate > applies
    ]
    if not behind:
        return ""
    worst = max(behind, key=lambda lagging: (lagging.sufficient_rate, lagging.partition))
    throttle = external.get(worst.broker, throttle)
    at = f"at a throttle of {rate_text(throttle)}" if throttle else "without a throttle"
    more = f" {len(behind) - 1} more fell behind too." if len(behind) > 1 else ""
    advice = f"; {rate_text(worst.sufficient_rate)} into broker {worst.broker} would be enough" if throttle else ""
    return (
        f"{worst.partition} will not catch up {at}: it fell {worst.fell_behind:,} bytes further behind in the last "
        f"{after_s:.0f} s{advice}.{more}"
    )


def find_individually_cancelled(
    findings: Iterable[Observation], rows: Iterable[MoveRow]
) -> list[tuple[MoveRow, str, Cause]]:
    """Return the open moves of `rows` that were cancelled individually, and why they are not submitted again.

    One that could not be rolled back is named with the replicas that it keeps.
    """
    ended = {
        finding.row.topic_partition: finding
        for finding in findings
        if finding.state in {ObservedState.RESTORED, ObservedState.CANNOT_ROLL_BACK}
        and phase_of(finding.row) is Phase.CANCELLING
        and finding.row.cause in INDIVIDUAL_CANCEL
    }
    cancelled = []
    for row in rows if ended else ():
        finding = ended.get(row.topic_partition)
        if finding is not None and finding.row.cause is not None and row.state in OPEN:
            sentence = INDIVIDUAL_CANCEL[finding.row.cause]
            if finding.state is ObservedState.CANNOT_ROLL_BACK:
                sentence += f"; {_KEEPS} {list(finding.found or ())}"
            cancelled.append((row, sentence, finding.row.cause))
    return cancelled
