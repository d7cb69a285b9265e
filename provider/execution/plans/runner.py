"""Execution of a plan to its end, one `step()` at a time, in any process: a worker, a script, the command line."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from kafka_steward.assignment import Move, Operation, TopicPartition, counted, name_brokers
from kafka_steward.cluster.state import Snapshot
from kafka_steward.errors import (
    AuthenticationFailed,
    ClusterError,
    LockLost,
    PlanError,
    SlotTaken,
    StewardError,
    VersionConflict,
    WrongCluster,
)
from kafka_steward.execution.cordons import Cordons
from kafka_steward.execution.moves.concurrency import LONGEST_GAP_S, outside_window_reason
from kafka_steward.execution.moves.memory import SettledMoves
from kafka_steward.execution.moves.progress import (
    Progress,
    TransferRate,
    count_progress_bytes,
    find_stalled,
    next_step_s,
    progress_of,
)
from kafka_steward.execution.moves.recovery import (
    EVERY_S,
    LagSample,
    cancels_waiting_message,
    find_falling_behind,
    find_without_log,
    next_sample_s,
    retain_lag_samples,
    sample_lag,
    stall_message,
)
from kafka_steward.execution.moves.rows import MoveRows
from kafka_steward.execution.moves.states import OPEN, HoldReason, was_cancelled
from kafka_steward.execution.moves.step import Step, StepMemory, StepResult
from kafka_steward.execution.plans.cancel import consume_cancel_signal
from kafka_steward.execution.plans.lifecycle import completion_of, end_plan, purge_old_plans, resume_plan
from kafka_steward.execution.plans.progress_rows import ProgressRecorder
from kafka_steward.execution.plans.rollback import (
    describe_cancel_outcome,
    is_rollback_unfinished,
    mark_rolled_back,
    preview_rollback,
    publish_rollback,
)
from kafka_steward.execution.plans.slot import release_slot, waiting_reason
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.throttles.leases import find_stalling_rates, list_leased_rates, release_leases_of_plans
from kafka_steward.execution.throttles.rates import (
    ExternalRate,
    ThrottleSide,
    external_rates_message,
    find_catching_up,
    is_slower_than,
    live_connection,
)
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, AuditRecord, event_number
from kafka_steward.journal.kip_documents import CancelRequest
from kafka_steward.journal.locks import SLOT, Fence, StepLock
from kafka_steward.journal.mailbox import read_one
from kafka_steward.journal.records import (
    THROTTLE_LEASES,
    LeaderRate,
    LeaseKey,
    MoveState,
    PlanRecord,
    PlanStatus,
    ThrottleLease,
)
from kafka_steward.journal.state import Row


class _StepReads(NamedTuple):
    """What a step reads with the step lock: the holders of the slot, the cancel signal, and all throttle leases."""

    holders: tuple[str, ...]
    is_cancelled: bool
    leases: Sequence[Row[LeaseKey, ThrottleLease]]


#: The beginning of the `detail` of a move that its plan deferred to the next plan.
HANDED_BACK = "deferred to the next plan"


def _busy_sentence(digest: str, error: StewardError) -> str:
    """Return why a step did nothing, or not all: another process stepped or changed the plan."""
    if isinstance(error, VersionConflict):
        return f"Plan {digest[:12]} was changed by another process during this step; the next step goes on from there."
    return str(error)


def _rates_at_work(
    rates: Sequence[ExternalRate], moves: Sequence[Move], without_log: Collection[TopicPartition]
) -> Sequence[ExternalRate]:
    """Return the rates without those of followers whose only copies in flight are of partitions `without_log`."""
    copying = {broker for move in moves if move.topic_partition not in without_log for broker in move.adding}
    broken = {broker for move in moves if move.topic_partition in without_log for broker in move.adding} - copying
    return [rate for rate in rates if rate.side is ThrottleSide.LEADER or rate.broker not in broken]


class PlanRunner:
    """Steps one plan towards the goal in its record: execute it, cancel it, or cancel it and roll it back.

    All relevant state is in the journal and in Kafka: any process may resume where another stopped. A rollback is a
    plan of its own. While it runs, the progress is the rollback's; the last progress is that of the plan itself, and
    its message reports the final outcome.

    Only what the last polls showed is in memory, for rate, ETA, stalls and the window; so keep one Runner for a loop.
    Not thread-safe. The watch steps with `consume_signal=False`: it consumes the cancel signal itself, and reports what
    became of the reassignments of other clients too. With `settle_only` a step starts no moves, leaves each broker its
    rate, does not count as a step of the plan, and raises the errors of Kafka: for plans that no other process steps.
    """

    def __init__(
        self,
        context: ClusterContext,
        digest: str,
        *,
        consume_signal: bool = True,
        settle_only: bool = False,
    ) -> None:
        self._context = context
        self._cluster = context.cluster
        self._journal = context.journal
        self._settings = context.settings
        self._who = context.actor
        self._digest = digest
        self._consumes_signal = consume_signal and not settle_only
        self._settle_only = settle_only
        self._track: TransferRate | None = None
        self._stalled: tuple[TopicPartition, ...] = ()
        self._samples: list[LagSample] = []
        self._stalling_rates: tuple[ExternalRate, ...] = ()
        self._stalling_ms: int | None = None
        self._memory = StepMemory()
        self._progressed_ms = 0
        self._began_ms = 0
        self._rollback: PlanRunner | None = None
        self._failures = 0
        self._recorder = ProgressRecorder(context.journal)
        #: Why Kafka refused to cordon drained brokers; None until it was asked.
        self._not_cordoned: tuple[str, ...] | None = None

    def step(self) -> Progress:
        """Poll cluster and journal, settle moves that have ended, submit moves that may start, and return the progress.

        Never sleeps. May be killed anywhere, and called by several processes at once: all but one do nothing and return
        `busy`. Errors and refusals of Kafka count as an attempt and are part of the message; after `max_attempts` of
        them in a row the plan is stuck. A rollback that must wait, for the plan slot, the cluster or another process,
        is reported as running, and its message gives the reason.

        Raises PlanError for an unknown plan, WrongCluster and AuthenticationFailed, JournalError when the journal
        cannot be read or written, and ClusterError after `max_attempts` failures to publish a rollback.
        """
        lock = self._journal.step_lock()
        # Read before the lock is acquired: its acquisition fails if anybody has stepped since.
        slot, leases = lock.read_with_lock(SLOT, THROTTLE_LEASES)
        signal = read_one(self._journal.mailbox, paths.CANCEL_IN_PROGRESS)
        read = _StepReads(slot[0].value.holders if slot else (), signal is not None, leases)
        record = self._read_record()
        if record.status.finished:
            self._finish_ended_plan(record)
        else:
            progress = self._step_locked(record, lock, read)
            if not progress.ended:
                return progress
        record = self._read_record()
        if is_rollback_unfinished(self._journal, record) and not self._settle_only:
            return self._roll_back(record)
        self._release_leases(record)
        return self._outcome_progress(record)

    def _step_locked(self, record: PlanRecord, lock: StepLock, read: _StepReads) -> Progress:
        try:
            with lock as fence:
                progress = self._step_plan(record, fence, read)
                if not self._settle_only:
                    self._recorder.record(progress, fence, throttle=self._requested_throttle(record, cancelling=False))
                return progress
        except (LockLost, VersionConflict) as error:
            return self._unobserved_progress(record, _busy_sentence(self._digest, error), busy=True)

    def _unobserved_progress(self, record: PlanRecord, sentence: str, *, busy: bool = False) -> Progress:
        """Return the progress of a step without a look at the cluster: what the last one saw arrived still counts.

        A process that has not looked yet, beside the one that steps the plan, does not know them, and says none.
        """
        track = None if self._track is None else replace(self._track, bytes_per_s=None)
        rows = self._journal.plans.rows(self._digest)
        progress = progress_of(record, rows, track=track, busy=busy, sentence=sentence)
        unknown = busy and track is None and progress.in_flight
        return replace(progress, bytes_total=0, bytes_done=0) if unknown else progress

    def _read_record(self) -> PlanRecord:
        record = self._journal.plans.get(self._digest)
        self._journal.require_cluster(self._cluster.cluster_id)
        if record is None:
            raise PlanError(f"There is no plan {self._digest[:12]} in the journal of this cluster; publish it first.")
        return record

    def _finish_ended_plan(self, record: PlanRecord) -> None:
        """Finish the work of a process that crashed right after the end of the plan."""
        release_slot(self._journal, self._digest, self._who)
        mark_rolled_back(self._journal, record)
        with suppress(LockLost):
            self._consume_cancel_signal()

    def _outcome_progress(self, record: PlanRecord) -> Progress:
        rows = self._journal.plans.rows(self._digest)
        progress = progress_of(record, rows, sentence=describe_cancel_outcome(self._journal, record, rows))
        if not record.not_rolled_back:
            return progress
        # What the plan had moved was to go back: of that, it is what did.
        moved = max(progress.completed, record.not_rolled_back)
        return replace(
            progress,
            partitions_total=moved,
            partitions_settled=moved,
            completed=moved - record.not_rolled_back,
            satisfied=0,
            bytes_total=0,
            bytes_done=0,
        )

    def _release_leases(self, record: PlanRecord) -> None:
        """Release throttle leases of brokers that were dead before. The watch releases those that still cannot be."""
        plans = [self._digest, *filter(None, [record.rolled_back_by])]
        if not list_leased_rates(self._journal, plans):
            return
        with suppress(ClusterError, LockLost, VersionConflict):
            live = frozenset(self._cluster.live_brokers())
            release_leases_of_plans(self._cluster, self._journal, plans, live, self._who)

    def _roll_back(self, record: PlanRecord) -> Progress:
        """Publish the rollback, or step it; return its progress, and at its end that of the plan itself."""
        if self._rollback is None:
            try:
                if waiting := self._lift_cordons(record):
                    known = f"{name_brokers(waiting)} may receive replicas again"
                    return self._waiting_progress(record, f"The rollback begins once {known}: the cordon is lifted.")
                digest = self._publish_rollback()
            except (WrongCluster, AuthenticationFailed):
                raise
            except (SlotTaken, LockLost, VersionConflict, ClusterError) as error:
                self._failures += isinstance(error, ClusterError)
                if self._failures >= self._settings.max_attempts:
                    raise
                return self._waiting_progress(record, _busy_sentence(self._digest, error))
            self._failures = 0
            if digest is None:
                return self._rolled_back_progress()
            self._rollback = PlanRunner(self._context, digest, consume_signal=self._consumes_signal)
        progress = self._rollback.step()
        if not progress.ended:
            return progress
        self._rollback = None
        mark_rolled_back(self._journal, self._journal.plans.get(progress.digest) or record)
        return self._rolled_back_progress()

    def _lift_cordons(self, record: PlanRecord) -> list[int]:
        """Lift the cordons of a drain, so that replicas may go back; return the brokers that do not know it yet."""
        if record.operation != Operation.DRAIN.value:
            return []
        with self._journal.step_lock() as fence:
            return Cordons(self._cluster, self._journal, self._digest, self._who, fence).lift()

    def _rolled_back_progress(self) -> Progress:
        record = self._read_record()
        self._release_leases(record)
        return self._outcome_progress(record)

    def _publish_rollback(self) -> str | None:
        """Return the digest of the rollback; publish it if necessary. Return None if there is nothing to revert.

        Runs under the step lock, so that two processes never publish two rollbacks.
        """
        with self._journal.step_lock():
            record = self._read_record()
            known = None if record.rolled_back_by is None else self._journal.plans.get(record.rolled_back_by)
            if known is not None and known.status.ended_by_itself and not self._can_roll_back_more(record):
                if record.earlier_rollback is not None:
                    self._journal.plans.update(record, earlier_rollback=None)
                return known.digest
            request = record.cancel or CancelRequest()
            outcome = publish_rollback(self._context, self._digest, even_if_disabled=request.even_if_disabled)
            if outcome is None:
                return None
            published, _ = outcome
            if request.even_if_disabled and not published.even_if_disabled:
                published = self._journal.plans.update(published, even_if_disabled=True)
            resume_plan(self._journal, published.digest, self._who, f"its rollback was requested: {request.reason}")
        return published.digest

    def _can_roll_back_more(self, record: PlanRecord) -> bool:
        """Return whether moves that a rollback skipped can go back now, because their broker has returned."""
        return record.rolled_back and bool(preview_rollback(self._context, self._digest).moves)

    def _waiting_progress(self, record: PlanRecord, sentence: str) -> Progress:
        progress = progress_of(record, self._journal.plans.rows(self._digest), busy=True, sentence=sentence)
        # Of the rollback nothing is done yet, and what the plan had copied is what it takes back.
        return replace(
            progress,
            status=PlanStatus.RUNNING,
            partitions_total=progress.completed,
            partitions_settled=0,
            waiting=progress.completed,
            completed=0,
            satisfied=0,
            bytes_total=progress.bytes_done,
            bytes_done=0,
            eta_s=None,
        )

    def _consume_cancel_signal(self, fence: Fence | None = None) -> None:
        if not self._consumes_signal:
            return
        # On an error of Kafka, the plans have the request all the same, and the signal stays for the next step.
        with suppress(ClusterError):
            consume_cancel_signal(self._cluster, self._journal, self._who, fence=fence)

    def _step_plan(self, record: PlanRecord, fence: Fence, read: _StepReads) -> Progress:
        if read.is_cancelled and self._consumes_signal:
            self._consume_cancel_signal(fence)
            record = self._read_record()
        request = None if record.status.finished else record.cancel
        cancelling = "" if request is None else f"cancelled: {request.reason or 'a user requested it'}"
        starting, why_not = (False, f"Plan {self._digest[:12]} is being {cancelling}.")
        if not cancelling:
            starting, why_not = self._may_start(record, read.holders)
        resting = outside_window_reason(record, self._settings, fence.now_ms) if starting else ""
        step = Step(
            self._context,
            record,
            fence=fence,
            starting=starting and not resting,
            throttle=self._requested_throttle(record, cancelling=bool(cancelling)),
            cancelling=cancelling,
            stalled=frozenset(self._stalled if self._settings.when_stalled == "cancel" else ()),
            # Nobody waits for what a rollback cannot restore: it ends with the rest.
            without_log=frozenset(name for name, _ in find_without_log(self._samples) if record.rolls_back),
            memory=self._memory,
            leases=read.leases,
        )
        try:
            self._keep_cordons(record, fence, starting=starting and not resting, cancelling=bool(cancelling))
            stepped = step.run()
            ended = not record.status.finished and not stepped.rows.unsettled
            leased_brokers = step.release_throttles(stepped) if ended else ()
            rows = self._journal.plans.rows(self._digest) if ended else ()
            snapshot = step.ending_snapshot(stepped, {row.move.topic for row in rows})
        except (WrongCluster, AuthenticationFailed):
            raise  # no failed attempt: another one would fail likewise until a person acts
        except ClusterError as error:
            self._memory.learned = self._memory.learned.after_failure(step.slowest_call_ms)
            return self._record_failure(record, fence, error)
        if ended:
            unreleased = step.refused_releases
            ending = replace(stepped, rows=MoveRows(rows), settled=SettledMoves(), snapshot=snapshot)
            return self._end_plan(record, fence, ending, leased_brokers, unreleased, cancelling=bool(cancelling))
        # What the last heal has tried as often as it may is held again: one attempt suffices.
        attempts = 1 if record.repeats else self._settings.max_attempts
        if starting and stepped.no_progress_possible and record.attempts + 1 >= attempts:
            return self._defer_or_mark_stuck(record, fence, step, stepped)
        return self._record_progress(
            record, fence, stepped, why_not=why_not, resting=resting, cancelling=bool(cancelling)
        )

    def _keep_cordons(self, record: PlanRecord, fence: Fence, *, starting: bool, cancelling: bool) -> None:
        """Cordon the brokers that a drain empties before its first move; lift that while the drain is cancelled."""
        if record.operation != Operation.DRAIN.value:
            return
        cordons = Cordons(self._cluster, self._journal, self._digest, self._who, fence)
        if cancelling:
            cordons.lift()
        elif starting and self._not_cordoned is None:
            self._not_cordoned = cordons.set()

    def _end_plan(
        self,
        record: PlanRecord,
        fence: Fence,
        stepped: StepResult,
        leased_brokers: Sequence[int],
        unreleased: Sequence[ClusterError],
        *,
        cancelling: bool,
    ) -> Progress:
        # A cancel that came after all moves had ended, however they did, has cancelled nothing.
        cancelled = cancelling and was_cancelled(stepped.rows)
        conn_id = self._journal.conn_id
        ending = completion_of(
            record, stepped.rows, stepped.snapshot, leased_brokers, cancelled=cancelled, conn_id=conn_id
        )
        for refusal in unreleased[:1]:
            ending = replace(ending, sentence=f"{ending.sentence} A throttle stays set for now: {refusal}")
        record = end_plan(self._journal, record, ending, who=self._who, fence=fence)
        mark_rolled_back(self._journal, record)
        purge_old_plans(self._journal, self._settings)
        # This plan need not be stepped again. A signal left by an error above must not depend on the next plan's steps.
        self._consume_cancel_signal(fence)
        return progress_of(record, stepped.rows)

    def _requested_throttle(self, record: PlanRecord, *, cancelling: bool) -> int | None:
        """Return the rate for the plan's moves: the one requested for this plan, otherwise the one in the settings.

        A process that cancels a plan steps it only for a short time, and leaves each broker its current rate.
        """
        if record.throttle is not None or cancelling or self._settle_only:
            return record.throttle
        return self._settings.throttle

    def _may_start(self, record: PlanRecord, holders: Sequence[str]) -> tuple[bool, str]:
        """Return a flag that allows new submissions, and the reason when it is False."""
        if record.status.finished or record.status is PlanStatus.STUCK or self._settle_only:
            return False, record.reason
        why_not = waiting_reason(self._journal, record, holders, self._who)
        return not why_not, why_not

    def _record_progress(
        self, record: PlanRecord, fence: Fence, stepped: StepResult, *, why_not: str, resting: str, cancelling: bool
    ) -> Progress:
        # Waiting for a person, or for what is in flight, is no failed attempt.
        attempts = 0 if stepped.progressed else record.attempts + stepped.no_progress_possible
        status = self._status_after_step(record, starting=not why_not or cancelling)
        now_ms = fence.now_ms
        since_ms = now_ms - (self._track.at_ms if self._track else now_ms)
        self._began_ms = self._began_ms or now_ms
        track, stuck = self._measure_transfer(stepped, now_ms)
        self._stalled = stuck
        self._memory.learned = self._memory.learned.update(
            ended=stepped.ended,
            remained=stepped.remained,
            slowest_call_ms=stepped.slowest_call_ms,
            stalled=stuck,
        )
        if cancelling:
            warning, rates = self._find_what_holds_cancels(stepped, now_ms)
        else:
            warning, rates = self._find_what_slows(stepped, record, now_ms)
        progress = progress_of(
            replace(record, status=status),
            stepped.rows,
            settled=stepped.settled,
            held=stepped.held,
            track=track,
            stalled=stuck,
            sentence=why_not,
            note=resting or stepped.pressure_note,
        )
        if warning and (cancelling or not why_not):
            progress = replace(progress, sentence=f"{progress.sentence} {warning}")
        if progress.eta_s is not None and not self._is_end_known(progress.eta_s, stepped, rates):
            progress = replace(progress, eta_s=None)
        reason = progress.sentence if cancelling or not why_not else record.reason
        leading = [rate for rate in stepped.external_rates if rate.side is ThrottleSide.LEADER]
        record = self._update_record(
            record,
            fence,
            status=status,
            attempts=attempts,
            reason=reason,
            leader_rates=tuple(LeaderRate(rate.broker, rate.bytes_per_s, rate.for_all) for rate in leading),
            outdone_rates=tuple(stepped.outdone_rates),
        )
        soon_s = self._next_step_s(stepped, since_ms, now_ms)
        self._memory.known.keep(stepped.rows, fence)
        stops = bool(stuck) and self._settings.when_stalled == "fail"
        return replace(
            progress,
            status=record.status,
            pressure=stepped.pressure,
            soon_s=soon_s,
            stops=stops,
            external_rates=rates,
            throttle=self._requested_throttle(record, cancelling=cancelling) or 0,
        )

    @staticmethod
    def _is_end_known(eta_s: float, stepped: StepResult, rates: Sequence[ExternalRate]) -> bool:
        """Return False where a rate of others applies, or all is copied and a kept replica that lags is waited for."""
        if eta_s > 0:
            return not is_slower_than(eta_s, rates, stepped.copies_left)
        return not any(find_catching_up(move, stepped.snapshot) for move in stepped.parts_in_flight)

    def _find_what_slows(
        self, stepped: StepResult, record: PlanRecord, now_ms: int
    ) -> tuple[str, tuple[ExternalRate, ...]]:
        """Return the messages about what slows the moves, and the rates of others that do."""
        throttle = self._requested_throttle(record, cancelling=False) or 0
        stalls = self._stall_warning(stepped, throttle, now_ms)
        connection = live_connection(stepped.snapshot, secured=self._cluster.secured)
        moves = stepped.parts_in_flight
        without_log = {name for name, _ in self._without_log(moves)}
        applying = _rates_at_work(stepped.external_rates, moves, without_log)
        external = external_rates_message(applying, throttle, connection=connection)
        # A step reads the rates of others only where it sets one of its own.
        unread = [
            move
            for move in moves
            if move.topic_partition not in without_log
            and (not throttle or move.topic_partition in self._stalled or find_catching_up(move, stepped.snapshot))
        ]
        self._read_rates_at(stepped.snapshot, unread, now_ms, throttled=throttle > 0)
        self._stalling_rates = tuple(rate for rate in self._stalling_rates if rate not in stepped.external_rates)
        slowing = external_rates_message(self._stalling_rates, 0, connection=connection)
        parts = (self._cordon_note, stepped.foreign_note, stepped.unfinishable, stalls, external, slowing)
        return " ".join(filter(None, parts)), (*applying, *self._stalling_rates)

    @property
    def _cordon_note(self) -> str:
        """The message about drained brokers that could not be cordoned; empty if all were, or Kafka has no cordons."""
        because = (self._not_cordoned or ("",))[0]
        return because and f"Until it is stopped, a drained broker may receive new replicas: {because}"

    def _find_what_holds_cancels(self, stepped: StepResult, now_ms: int) -> tuple[str, tuple[ExternalRate, ...]]:
        """Return the message about original replicas that are out of sync, and the rates of others that slow them."""
        waiting = stepped.cancels_waiting
        self._read_rates_at(stepped.snapshot, waiting, now_ms, throttled=True)
        connection = live_connection(stepped.snapshot, secured=self._cluster.secured)
        slowing = external_rates_message(self._stalling_rates, 0, connection=connection)
        parts = (cancels_waiting_message(waiting, stepped.snapshot), slowing)
        return " ".join(filter(None, parts)), self._stalling_rates

    def _next_step_s(self, stepped: StepResult, since_ms: int, now_ms: int) -> float | None:
        """Return the seconds until the next step may find more; None if nothing says when."""
        if stepped.progressed or not self._progressed_ms:
            self._progressed_ms = now_ms
        if not (stepped.in_flight_rows or stepped.progressed):
            return None
        quiet_s = (now_ms - self._progressed_ms) / 1000
        return next_step_s(ended=stepped.ended, left=stepped.remained, since_s=since_ms / 1000, quiet_s=quiet_s)

    def _status_after_step(self, record: PlanRecord, *, starting: bool) -> PlanStatus:
        if self._settle_only:
            return record.status
        if starting:
            return PlanStatus.RUNNING
        # An idle plan that is stepped again is not idle, but another plan has the slot.
        return PlanStatus.PREEMPTED if record.status is PlanStatus.IDLE else record.status

    def _defer_or_mark_stuck(self, record: PlanRecord, fence: Fence, step: Step, stepped: StepResult) -> Progress:
        """Defer the open moves of a heal to the next plan; any other plan becomes stuck and needs a person.

        Of the moves that have not started, those of partitions without a leader are dropped: no plan can copy them, and
        this one must not wait for them. So are those that wait for a replica that lags.
        """
        why = stepped.held[0].final_sentence if stepped.held else "no move could be started"
        tries = record.attempts + 1
        begun = {row.topic_partition for row in stepped.rows if row.stage}
        waiting = {
            held.topic_partition: held.final_sentence
            for held in stepped.held
            if (partition := stepped.snapshot.partitions.get(held.topic_partition)) is not None
            and (partition.leader is None or held.code is HoldReason.OUT_OF_SYNC)
            and held.topic_partition not in begun
        }
        if not (record.auto_generated or waiting):
            return self._mark_stuck(record, fence, tries, why)
        try:
            if record.auto_generated:
                given_up = {row.topic_partition: why for row in stepped.rows if row.state in OPEN}
                given_up |= {held.topic_partition: held.final_sentence for held in stepped.held}
                after = f"{HANDED_BACK} after {counted(tries, 'attempt')}"
                step.drop_moves(stepped.snapshot, {name: f"{after}: {sentence}" for name, sentence in given_up.items()})
            else:
                step.drop_moves(stepped.snapshot, waiting)
        except ClusterError as error:
            return self._record_failure(record, fence, error)
        record = self._update_record(record, fence, attempts=0, reason=why)
        rows = self._journal.plans.rows(self._digest)
        still_open = {row.topic_partition for row in rows if row.state in OPEN}
        return progress_of(record, rows, held=[hold for hold in stepped.held if hold.topic_partition in still_open])

    def _record_failure(self, record: PlanRecord, fence: Fence, error: ClusterError) -> Progress:
        if self._settle_only:
            raise error
        tries = record.attempts + 1
        if tries >= self._settings.max_attempts and not record.status.finished:
            return self._mark_stuck(record, fence, tries, str(error))
        record = self._update_record(record, fence, attempts=tries, reason=str(error))
        return self._unobserved_progress(record, str(error))

    def _mark_stuck(self, record: PlanRecord, fence: Fence, tries: int, why: str) -> Progress:
        reason = f"Plan {self._digest[:12]} is stuck after {tries} attempts and needs operator action: {why}"
        self._journal.audit.record(
            AuditRecord(Action.STUCK, reason, plan=self._digest, attempt=event_number(), who=self._who)
        )
        record = self._update_record(record, fence, status=PlanStatus.STUCK, attempts=tries, reason=reason)
        return progress_of(record, self._journal.plans.rows(self._digest))

    def _update_record(self, record: PlanRecord, fence: Fence, **changes: Any) -> PlanRecord:
        if not self._settle_only:
            changes["stepped_ms"] = fence.now_ms
        return self._journal.plans.update(record, fence=fence, **changes)

    def _stall_warning(self, stepped: StepResult, throttle: int, now_ms: int) -> str:
        """Return the messages about moves that make no progress, or less than producers make."""
        settings, moves = self._settings, stepped.parts_in_flight
        # The first moves may end at once, and need no sample then.
        last_ms, every_s = self._began_ms, settings.step_interval
        if self._samples:
            last_ms, every_s = self._samples[-1].at_ms, next_sample_s(self._samples)
        if moves and now_ms >= last_ms + every_s * 1000:
            partitions = stepped.snapshot.partitions
            leaders = (partitions[move.topic_partition].leader for move in moves if move.topic_partition in partitions)
            asked = {broker for move in moves for broker in move.adding} | {
                leader for leader in leaders if leader is not None
            }
            with suppress(ClusterError):  # the next step polls again
                log_dirs = self._cluster.log_dirs(sorted(asked & stepped.snapshot.live))
                sample = sample_lag(stepped.snapshot, moves, log_dirs, now_ms)
                self._samples = retain_lag_samples(self._samples, sample, for_s=settings.stall_after)
        behind = find_falling_behind(self._samples, moves, after_s=settings.stall_after)
        external = {
            rate.broker: rate.bytes_per_s for rate in stepped.external_rates if rate.side is ThrottleSide.FOLLOWER
        }
        return stall_message(
            self._stalled,
            behind,
            after_s=settings.stall_after,
            throttle=throttle,
            external=external,
            without_log=self._without_log(moves),
        )

    def _without_log(self, moves: Sequence[Move]) -> dict[tuple[TopicPartition, int], tuple[str, ...]]:
        """Return the new replicas of these moves of which a live broker creates no log: see `find_without_log`."""
        adding = {(move.topic_partition, broker) for move in moves for broker in move.adding}
        return {replica: paths for replica, paths in find_without_log(self._samples).items() if replica in adding}

    def _read_rates_at(self, snapshot: Snapshot, moves: Sequence[Move], now_ms: int, *, throttled: bool) -> None:
        """Read the rates of others that may slow these moves: at once, and then as often as the lag."""
        if not moves:
            self._stalling_rates, self._stalling_ms = (), None
        elif self._stalling_ms is None or now_ms >= self._stalling_ms + EVERY_S * 1000:
            self._stalling_ms = now_ms
            with suppress(ClusterError):  # a later step reads them
                self._stalling_rates = find_stalling_rates(
                    self._cluster, self._journal, snapshot, moves, throttled=throttled
                )

    def _measure_transfer(self, stepped: StepResult, now_ms: int) -> tuple[TransferRate, tuple[TopicPartition, ...]]:
        done = stepped.settled.bytes_copied
        done += stepped.rows.bytes_to_copy[MoveState.COMPLETED]
        done += count_progress_bytes((row.move for row in stepped.in_flight_rows), stepped.arrived)
        self._track = (self._track or TransferRate(now_ms, done)).update(
            now_ms,
            done,
            stepped.arrived,
            longest_gap_ms=int((self._settings.step_interval + LONGEST_GAP_S) * 1000),
        )
        moving = [row.topic_partition for row in stepped.in_flight_rows] + sorted(stepped.waiting)
        return self._track, find_stalled(self._track, moving, after_s=self._settings.stall_after)
