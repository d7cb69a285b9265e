"""One step of a plan: poll, settle, cancel moves that cannot complete, release throttles, submit moves that may start.

Each part reads the state that the part before it left in the journal. If a step crashes anywhere, the next step resumes
it, in any process. Pure functions elsewhere make the decisions. This module executes them, each in the order that makes
a crash harmless: journal, fence, Kafka, journal.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial

from kafka_steward.assignment import URGENT_OPERATIONS, Move, TopicPartition
from kafka_steward.cluster.state import BrokerLogDirs, Snapshot
from kafka_steward.errors import ClusterError
from kafka_steward.execution.announcements import restarting_brokers
from kafka_steward.execution.cluster_queries import with_hidden_topics
from kafka_steward.execution.effects import AuditedCalls, alter_keeping_factor
from kafka_steward.execution.failures.records import read_failures
from kafka_steward.execution.moves.concurrency import (
    ActiveTransfer,
    Admission,
    ConcurrencyLimits,
    LearnedWindow,
    Pressure,
    active_transfers,
    admit_moves,
    chunk_pause_left_ms,
    directories_by_partition,
    find_pressure,
    foreign_wait_message,
    pressure_message,
    select_chunk_moves,
)
from kafka_steward.execution.moves.in_flight import read_owners
from kafka_steward.execution.moves.memory import KnownMoves, KnownVerdicts, SettledMoves
from kafka_steward.execution.moves.observe import ObservedState, find_recoverable, observe_moves, recover_moves
from kafka_steward.execution.moves.preflight import PreflightInputs
from kafka_steward.execution.moves.preflight_inputs import (
    ClusterStrain,
    KnownFacts,
    assess_strain,
    load_preflight_inputs,
)
from kafka_steward.execution.moves.progress import arrived_bytes
from kafka_steward.execution.moves.recovery import (
    INDIVIDUAL_CANCEL,
    Deaths,
    dead_target_brokers,
    dead_target_reason,
    describe_actor,
    find_changing_plan,
    find_individually_cancelled,
    find_unfinishable_moves,
    is_unregistered_refusal,
    unfinishable_message,
    waits_for_kept_message,
)
from kafka_steward.execution.moves.reversal import NextAction
from kafka_steward.execution.moves.reversal_execution import LateRetraction, MoveReversals, ReversalExecutor
from kafka_steward.execution.moves.rows import MoveRows
from kafka_steward.execution.moves.skips import record_skips
from kafka_steward.execution.moves.staging import (
    as_completed_stage,
    is_rolling_back,
    next_stage,
    part_in_flight,
    rests_between_stages,
)
from kafka_steward.execution.moves.states import (
    Event,
    Held,
    HoldReason,
    bytes_to_copy,
    no_progress_possible,
    phase_of,
)
from kafka_steward.execution.moves.store import Decision, MoveStore
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.throttles.leases import ThrottleLeases
from kafka_steward.execution.throttles.rates import (
    NO_DEMAND,
    Copy,
    ExternalRate,
    copies_of,
    find_catching_up,
    throttle_demand,
)
from kafka_steward.journal.audit import Action, Code
from kafka_steward.journal.locks import Fence
from kafka_steward.journal.records import Cause, LeaseKey, MoveRow, MoveState, Phase, PlanRecord, ThrottleLease
from kafka_steward.journal.state import Row

#: While moves are in flight, the lists of throttled replicas are shortened this seldom: each change is one more request
#: to the controller, which is busy with the moves. The entry of a replica that is in sync throttles nothing (KIP-73).
_LISTS_EVERY_MS = 5_000

#: The cause that is recorded for a move that preflight ends.
_CAUSES = {HoldReason.SATISFIED: Cause.BROKERS_RETURNED}


@dataclass(frozen=True)
class StepResult:
    """The result of a step.

    `rows` are the moves that had not settled before the step, and `settled` the totals of the others. `pressure` is
    the reason for which moves start more slowly, None without one, and `pressure_note` its message. `unfinishable` is a
    message about moves that can neither complete nor be cancelled. `ended` counts the moves whose end was observed, and
    `remained` those seen in flight. `slowest_call_ms` is the longest time that Kafka took for a change.
    """

    snapshot: Snapshot
    rows: MoveRows
    settled: SettledMoves
    held: Sequence[Held]
    arrived: Mapping[TopicPartition, int]
    progressed: bool
    #: True if every move that could begin is held, and not by people's choice.
    no_progress_possible: bool
    #: The held moves that wait as one in flight does: their stages are in flight, or complete and a replica lags.
    waiting: frozenset[TopicPartition] = frozenset()
    pressure: Pressure | None = None
    pressure_note: str = ""
    unfinishable: str = ""
    ended: int = 0
    remained: int = 0
    slowest_call_ms: int = 0
    #: The rates of others that limit moves of the plan more than its own, and the followers whose rate limits nothing.
    external_rates: Sequence[ExternalRate] = ()
    outdone_rates: Sequence[int] = ()
    #: Which reassignment of somebody else keeps moves waiting; empty without one.
    foreign_note: str = ""

    @property
    def in_flight_rows(self) -> Sequence[MoveRow]:
        """The submitted moves."""
        return self.rows.submitted

    @property
    def parts_in_flight(self) -> list[Move]:
        """The part of each submitted move that is in flight: the whole move, or one stage."""
        return _parts_in_flight(self.rows, self.snapshot)

    @property
    def cancels_waiting(self) -> list[Move]:
        """What Kafka removes after a cancel, as moves to the originals, where one of these is live and out of sync."""
        partitions = self.snapshot.partitions
        back = [
            replace(row.move, before=partitions[row.topic_partition].replicas, after=row.move.before)
            for row in self.in_flight_rows
            if row.topic_partition in partitions
            and phase_of(row) is Phase.CANCELLING
            and is_rolling_back(row.move, partitions[row.topic_partition])
        ]
        return [move for move in back if find_catching_up(move, self.snapshot)]

    @property
    def copies_left(self) -> dict[Copy, int]:
        """What is being copied, with the bytes that are left of it, as far as they are known."""
        moves = [move for move in self.parts_in_flight if move.adding]
        left = {
            move.topic_partition: max(0, bytes_to_copy(move) - self.arrived.get(move.topic_partition, 0))
            // len(move.adding)
            for move in moves
        }
        return {copy: left[copy.partition] for copy in copies_of(moves, self.snapshot)}


@dataclass
class StepMemory:
    """The memory of a process between the steps of a plan; a new process begins with an empty one, which is safe."""

    learned: LearnedWindow = field(default_factory=LearnedWindow)
    known: KnownMoves = field(default_factory=KnownMoves)
    facts: KnownFacts = field(default_factory=KnownFacts)
    verdicts: KnownVerdicts = field(default_factory=KnownVerdicts)
    #: Whether submissions were looked for that an older copy of the journal, which was restored, does not know.
    has_recovered: bool = False
    #: When the lists of throttled replicas were shortened last.
    lists_released_ms: int | None = None
    #: Which brokers that moves in flight need were dead at the last looks.
    deaths: Deaths = field(default_factory=Deaths)
    #: The partitions whose next stage Kafka refused while the one before was in flight: that one is waited for.
    refused: set[TopicPartition] = field(default_factory=set)

    def are_lists_due(self, now_ms: int) -> bool:
        """Return True if the lists of throttled replicas are to be shortened again."""
        return self.lists_released_ms is None or not 0 <= now_ms - self.lists_released_ms < _LISTS_EVERY_MS


@dataclass
class Step:
    """One step, executed by the holder of the step lock.

    With `starting` False, nothing new is submitted. `cancelling` is the message of a cancel: moves that have not
    started are dropped, and moves in flight are cancelled (KIP-236). Each of the `stalled` partitions is cancelled
    individually, and dropped; so is each `without_log`, of which a broker creates no log. `throttle` is the rate of the
    plan's moves, in bytes per second into one broker, 0 for none; None leaves each broker the rate that the plan gave
    it. `memory` is what earlier steps of this process found, `leases` the recorded throttle leases, as they were read
    with the lock.
    """

    context: ClusterContext
    record: PlanRecord
    _: KW_ONLY
    fence: Fence
    starting: bool
    throttle: int | None
    cancelling: str = ""
    stalled: frozenset[TopicPartition] = frozenset()
    without_log: frozenset[TopicPartition] = frozenset()
    memory: StepMemory = field(default_factory=StepMemory)
    leases: Sequence[Row[LeaseKey, ThrottleLease]] | None = None

    def __post_init__(self) -> None:
        cluster, journal, who = self.context.cluster, self.context.journal, self.context.actor
        self._cluster, self._journal, self._settings = cluster, journal, self.context.settings
        self._pressure: Pressure | None = None
        self._pressure_note = ""
        self._foreign_note = ""
        self._unfinishable = ""
        self._sees_all = False
        self._may_start = self.starting and not self.cancelling
        #: The partitions whose stage in flight counts as complete.
        self._in_flight: set[TopicPartition] = set()
        plan = self.record.digest
        self._moves = MoveStore(journal, plan, who, self.fence, record=self.record, known=self.memory.known)
        self._calls = AuditedCalls(journal.audit, self.fence)
        self._retraction = LateRetraction(cluster, journal, plan, who)
        self._leases = ThrottleLeases(
            cluster, journal, self._calls, plan, attempts=self._moves.attempts, who=who, read=self.leases
        )
        self._reversals = MoveReversals(
            plan, self._moves, ReversalExecutor(cluster, self._calls, who, self._retraction)
        )

    def run(self) -> StepResult:
        """Execute the step. Raises ClusterError, JournalError; LockLost when another process took over."""
        snapshot = self._take_snapshot()
        self._recover_moves(snapshot)
        findings = observe_moves(self._moves.rows().started, snapshot)
        # Before these moves are dropped: a process that ends in between is followed by one that finds them again.
        self._reversals.cancel_on_new_topics(findings, snapshot)
        # First: all that follows decides by the states that the poll has found.
        self._moves.record_observations(findings)
        # So far only the poll has counted: what ended since the last step, and not what this one is about to do.
        ended = self._moves.steps_ahead
        cancelled = find_individually_cancelled(findings, self._moves.rows())
        drops = [Decision(row, Event.DROP, sentence, cause) for row, sentence, cause in cancelled]
        self._reversals.end_moves(drops, snapshot)
        # Somebody cancelled one stage: what the stages before it have added goes back, too.
        self._reversals.extend_external_cancels(findings)
        if self.cancelling:
            self._reversals.begin_between_stages(self._moves.rows(), snapshot, self.cancelling, Cause.REQUESTED)
            self.drop_open_moves(snapshot, self.cancelling, Cause.REQUESTED)
        # A step that crashed between recording a cancel and submitting it left the submission to this step.
        self._reversals.execute_next(self._select_cancels(snapshot), findings, snapshot)
        rows = self._moves.rows()
        # Released first: what is leased still is set again by the next line.
        self._release_unneeded_throttles(rows, snapshot)
        self._maintain_throttles(rows, snapshot)
        starts = self._may_start and bool(rows.open)
        log_dirs = self._fetch_log_dirs(rows, snapshot) if starts else self._fetch_arrived(rows, snapshot)
        held = self._give_up_lagging(self._start_moves(rows, snapshot, log_dirs) if starts else [], snapshot)
        rows = self._moves.rows()
        arrived = arrived_bytes((row.move for row in rows.started if row.attempt and not row.state.settled), log_dirs)
        progressed = self._moves.steps_ahead > 0
        waiting = self._find_waiting(held, snapshot)
        external_rates, outdone_rates = self._leases.external_rates() if self.throttle != 0 else ([], [])
        return StepResult(
            snapshot,
            rows,
            self._moves.settled,
            held,
            arrived,
            progressed,
            not progressed and no_progress_possible(rows, held, waiting),
            waiting,
            self._pressure,
            self._pressure_note,
            self._unfinishable,
            ended,
            sum(finding.state is ObservedState.IN_FLIGHT for finding in findings),
            self._calls.slowest_call_ms,
            external_rates,
            outdone_rates,
            self._foreign_note,
        )

    def _take_snapshot(self) -> Snapshot:
        """Return what Kafka shows; a stage that waits for replicas that lag counts as complete."""
        snapshot = self._poll()
        staged = [row for row in self._moves.rows().started if row.stage and row.topic_partition in snapshot.partitions]
        staged = [row for row in staged if row.topic_partition not in self.memory.refused]
        if not (staged and self._may_start):
            return snapshot
        completed = {
            row.topic_partition: as_completed_stage(row, snapshot.partitions[row.topic_partition], snapshot.live)
            for row in staged
        }
        self._in_flight = {name for name, partition in completed.items() if partition != snapshot.partitions[name]}
        return replace(snapshot, partitions={**snapshot.partitions, **completed})

    def _recover_moves(self, snapshot: Snapshot) -> None:
        """Take over what this plan has submitted although the journal, restored from a backup, does not know it.

        Once in a process: none that saw the journal before the restore goes on.
        """
        if self.memory.has_recovered:
            return
        rows = find_recoverable(self._moves.rows().open, snapshot)
        if rows:
            owners = read_owners(self._journal.mailbox, [row.topic_partition for row in rows])
            newer, plan = self._cluster.zookeeper_mode, self.record.digest
            found = recover_moves(rows, snapshot, owners, plan, documents_are_newer=newer)
            moves = [finding.in_flight for finding in found if finding.in_flight is not None]
            # First: after a crash, what no move needs is released, or recovered again.
            if moves and self.throttle != 0:
                self._leases.recover(throttle_demand(moves, leaders=self._settings.throttle_leaders))
            self._moves.record_recovered(found)
        self.memory.has_recovered = True

    def _poll(self) -> Snapshot:
        """Return the topics of the moves in flight, of those that may start, and of all reassignments in flight.

        Before moves start, it is the whole cluster, unless that was looked at just before (`ClusterStrain`). A move
        whose submission Kafka may not have received counts as in flight.
        """
        rows = self._moves.rows()
        self.memory.facts.expire(self.fence.now_ms)
        starts = self._may_start and bool(rows.open)
        topics = {row.move.topic for row in rows.started} | {move.topic for move in rows.open_kinds if starts}
        self._sees_all = starts and self.memory.facts.needs_look(self.fence.now_ms)
        if self._sees_all:
            return with_hidden_topics(self._cluster, self._cluster.snapshot(), topics)
        return self._cluster.snapshot(sorted(topics | {name.topic for name in self._cluster.reassignments()}))

    def _assess_strain(self, snapshot: Snapshot, rows: MoveRows) -> None:
        facts = self.memory.facts
        # The state of the whole cluster is a large answer: one of the last second serves, too.
        if facts.strain is not None and facts.strain.is_current(self.fence.now_ms) and not self._sees_all:
            return
        whole = snapshot if self._sees_all else self._cluster.snapshot()
        plan = self._moves.settled.names | rows.places.keys()
        foreign = self._find_foreign(whole, rows)
        assess_strain(self.context, whole, plan, facts, foreign=foreign, fence=self.fence)

    def _find_foreign(self, whole: Snapshot, rows: MoveRows) -> set[TopicPartition]:
        """Return the partitions that are being reassigned, and by no unfinished plan of ours."""
        # Between its stages, a move that we have submitted counts as waiting.
        moved = {row.topic_partition for row in rows.started if row.attempt and not row.state.settled}
        candidates = whole.reassigning.keys() - moved
        if not candidates:
            return set()
        plans = self._journal.plans
        # What an abandoned plan left in flight counts as somebody else's: nobody steps it.
        stepped = {record.digest for record in plans.unfinished()}
        submitted = plans.submissions_by_others(self.record.digest, candidates)
        return {
            name
            for name in candidates
            if not any(plan in stepped and not row.state.settled for plan, row in submitted.get(name, ()))
        }

    @property
    def slowest_call_ms(self) -> int:
        """The longest time that Kafka took for a change, also if the step failed."""
        return self._calls.slowest_call_ms

    def ending_snapshot(self, stepped: StepResult, topics: Collection[str]) -> Snapshot:
        """Return a snapshot with these topics at the end of a plan: that of the step if it has them."""
        return stepped.snapshot if stepped.snapshot.topics >= set(topics) else self._cluster.snapshot(sorted(topics))

    def release_throttles(self, stepped: StepResult) -> list[int]:
        """Release every throttle of a plan that ends; return the brokers that cannot be reached for it."""
        return self._leases.release(NO_DEMAND, stepped.snapshot.live)

    @property
    def refused_releases(self) -> list[ClusterError]:
        """Kafka's refusals of topics whose throttles could not be released; the watch tries again."""
        return self._leases.refusals

    def drop_open_moves(self, snapshot: Snapshot, sentence: str, cause: Cause | None = None) -> None:
        """Drop the moves that are not in flight. Raises ClusterError (`drop_moves`)."""
        names = [row.topic_partition for row in self._moves.rows().open]
        self.drop_moves(snapshot, dict.fromkeys(names, sentence), cause)

    def drop_moves(
        self, snapshot: Snapshot, sentences: Mapping[TopicPartition, str], cause: Cause | None = None
    ) -> None:
        """Drop the moves of these partitions that are not in flight, each with its message.

        One that rests between its stages keeps its replicas there. Raises ClusterError: submissions that may still
        begin are cancelled first.
        """
        rows = [row for row in self._moves.rows().open if row.topic_partition in sentences]
        whys = dict(sentences)
        for row in (row for row in rows if row.stage):
            partition = snapshot.partitions.get(name := row.topic_partition)
            if partition is not None and rests_between_stages(row, partition):
                kept = f"; it keeps {list(partition.replicas)}, which it has between its stages"
                whys[name] = whys[name].removesuffix(".") + kept
        decisions = [Decision(row, Event.DROP, whys[row.topic_partition], cause) for row in rows]
        self._reversals.end_moves(decisions, snapshot)

    def _find_waiting(self, held: Sequence[Held], snapshot: Snapshot) -> frozenset[TopicPartition]:
        """Return the held moves that have started and wait as one in flight does, and by nobody's choice."""
        rows = {row.topic_partition: row for row in self._moves.rows().started if row.stage}
        return frozenset(
            name
            for hold in (held if rows else ())
            if (name := hold.topic_partition) in rows
            and not hold.code.is_operator_choice
            and (name in self._in_flight or (hold.code is HoldReason.OUT_OF_SYNC and _lags(rows[name], snapshot)))
        )

    def _give_up_lagging(self, held: Sequence[Held], snapshot: Snapshot) -> Sequence[Held]:
        """Drop the stalled moves that wait for a replica that lags, as a cancel would; return the other held ones."""
        lagging = {hold.topic_partition for hold in held if hold.code is HoldReason.OUT_OF_SYNC} & self.stalled
        if not lagging:
            return held
        self.drop_moves(snapshot, dict.fromkeys(lagging, INDIVIDUAL_CANCEL[Cause.STALLED]), Cause.STALLED)
        return [hold for hold in held if hold.topic_partition not in lagging]

    def _select_cancels(self, snapshot: Snapshot) -> list[tuple[MoveRow, str, Cause]]:
        """Return the moves in flight that are to be cancelled now, each with the reason."""
        in_flight = [row for row in self._moves.rows().submitted if phase_of(row) is not Phase.CANCELLING]
        verdicts = self._reversals.judge(in_flight, snapshot)
        able = [row for row in in_flight if verdicts[row.topic_partition].action is NextAction.CANCEL]
        unable = [row for row in in_flight if verdicts[row.topic_partition].action is NextAction.FORBIDDEN]
        if self.cancelling:
            skips = [
                self._moves.build_audit_record(Action.SKIP, row, verdicts[row.topic_partition].why, code=Code.FORBIDDEN)
                for row in unable
            ]
            record_skips(self._journal, self.record.digest, Code.FORBIDDEN, skips)
            return [(row, self.cancelling, Cause.REQUESTED) for row in able]
        deaths = self.memory.deaths = self._look_for_deaths([*able, *unable], snapshot)
        # What a rollback waits for is lost to it: it ends with the rest, and names what it left.
        kept_after_s = 0.0 if self.record.rolls_back else self._settings.heal_failure_interval
        lost = find_unfinishable_moves(able, snapshot, deaths, kept_after_s=kept_after_s)
        hopeless = find_unfinishable_moves(unable, snapshot, deaths, kept_after_s=0)
        waiting = (row for row in able if row not in lost)
        self._unfinishable = unfinishable_message(hopeless, snapshot) or waits_for_kept_message(
            waiting, snapshot, deaths, kept_after_s=kept_after_s
        )
        died = [(row, dead_target_reason(row, snapshot), Cause.BROKER_DIED) for row in lost]
        hung = f"no progress for {self._settings.stall_after:.0f} s", Cause.STALLED
        no_log = INDIVIDUAL_CANCEL[Cause.NO_LOG], Cause.NO_LOG
        whys = dict.fromkeys(self.stalled, hung) | dict.fromkeys(self.without_log, no_log)
        rest = (row for row in able if row.topic_partition in whys and row not in lost)
        return [*died, *((row, *whys[row.topic_partition]) for row in rest)]

    def _look_for_deaths(self, in_flight: Sequence[MoveRow], snapshot: Snapshot) -> Deaths:
        """Return what this look, and those before it, show of the brokers that these moves wait for."""
        needed = frozenset[int]().union(*(dead_target_brokers(row, snapshot) for row in in_flight))
        if not needed:
            return Deaths()
        # An announced restart ends by itself: its moves are not cancelled (KIP-46).
        restarting = frozenset(restarting_brokers(self._journal.mailbox, self.fence.now_ms))
        # The metadata may call a replica offline whose broker has just been started: the broker itself knows. Where it
        # does not say, or may not be asked, what the metadata says has to last, as for a broker that is dead.
        suspected, dirs = needed & snapshot.live, dict[int, BrokerLogDirs]()
        with suppress(ClusterError):
            dirs = self._cluster.directories(sorted(suspected)) if suspected else {}
        failures = read_failures(self._journal)
        return self.memory.deaths.after_look(
            needed - dirs.keys(),
            self.fence.now_ms,
            # One that a person reported as failed is not waited for, nor is it by a heal.
            recorded_ms=failures.first_seen_ms | dict.fromkeys(failures.reported, 0),
            restarting=restarting,
            failed_dirs=frozenset(broker for broker, found in dirs.items() if found.failed_paths),
        )

    def _release_unneeded_throttles(self, rows: MoveRows, snapshot: Snapshot) -> None:
        to_come = [*rows.open_kinds, *(row.move for row in rows.submitted)] if self._may_start else []
        in_flight = _parts_in_flight(rows, snapshot)
        need = throttle_demand(in_flight, to_come, leaders=self._settings.throttle_leaders)
        # No throttle is wanted any more, not even for what is in flight.
        if self.throttle == 0:
            self._leases.release(NO_DEMAND, snapshot.live)
            return
        # Each change of a list is one more request to a controller that is busy with the moves.
        lists = not in_flight or self.memory.are_lists_due(self.fence.now_ms)
        if lists:
            self.memory.lists_released_ms = self.fence.now_ms
        self._leases.release(need, snapshot.live, lists=lists)

    def _maintain_throttles(self, rows: MoveRows, snapshot: Snapshot) -> None:
        """Set throttles again that were cleared externally while needed, and apply a changed rate to the brokers."""
        if self.throttle == 0 or not rows.unsettled:
            return
        # The settings of a topic that we may not describe are refused as well: its throttles are left as they are.
        moves = [move for move in _parts_in_flight(rows, snapshot) if move.topic not in snapshot.hidden]
        need = throttle_demand(moves, leaders=self._settings.throttle_leaders)
        self._leases.ensure(need, self.throttle, snapshot.live, copies_of(moves, snapshot))

    def _fetch_log_dirs(self, rows: MoveRows, snapshot: Snapshot) -> Mapping[int, BrokerLogDirs]:
        to_come = (*rows.open_kinds, *(row.move for row in rows.submitted))
        brokers = {broker for move in to_come for broker in move.adding} & snapshot.live
        answers = self._cluster.log_dirs(sorted(brokers)) if brokers else {}
        self.fence.check_after_wait()  # brokers may take most of the lock's lifetime to answer
        return self.memory.facts.keep_log_dirs(answers, brokers, rows, self.fence.now_ms)

    def _fetch_arrived(self, rows: MoveRows, snapshot: Snapshot) -> Mapping[int, BrokerLogDirs]:
        """Return the bytes of the moves in flight on the brokers that receive them, and nothing else of the brokers."""
        held: dict[int, list[TopicPartition]] = {}
        for row in rows.started:
            for broker in row.move.adding & snapshot.live if row.attempt and not row.state.settled else ():
                held.setdefault(broker, []).append(row.topic_partition)
        by_broker: dict[int, dict[TopicPartition, int]] = {}
        for (name, broker), size in (self._cluster.log_sizes(held) if held else {}).items():
            by_broker.setdefault(broker, {})[name] = size
        return {broker: BrokerLogDirs(sizes) for broker, sizes in by_broker.items()}

    def _start_moves(self, rows: MoveRows, snapshot: Snapshot, log_dirs: Mapping[int, BrokerLogDirs]) -> list[Held]:
        self._assess_strain(snapshot, rows)
        inputs = load_preflight_inputs(
            self.context,
            self.record,
            rows,
            snapshot,
            log_dirs,
            facts=self.memory.facts,
            fence=self.fence,
        )
        verdicts = self.memory.verdicts.judge(rows.open, inputs)
        held = self._name_changing_plans(verdicts.held, snapshot)
        released = [row for row in verdicts.ready if row.state is not MoveState.WAITING]
        decisions = [Decision(row, Event.RELEASE) for row in released]
        self._reversals.end_moves(
            [*decisions, *(Decision(row, why.code.event, why.sentence, _CAUSES.get(why.code)) for row, why in held)],
            snapshot,
        )
        ready = [self._next_part(move, inputs) for move in verdicts.remains]
        chosen = self._admit_ready_moves(ready, rows, inputs)
        refused = self._submit_moves(chosen, snapshot) if chosen.moves else []
        return [why for _, why in held if why.code.event is Event.HOLD] + refused

    def _name_changing_plans(
        self, held: Sequence[tuple[MoveRow, Held]], snapshot: Snapshot
    ) -> Sequence[tuple[MoveRow, Held]]:
        """Name the plans of ours that changed partitions since they were planned, unless the change was external."""
        changed = [row for row, why in held if why.code is HoldReason.CHANGED_ELSEWHERE]
        if not changed:
            return held
        submissions = self._journal.plans.submissions_by_others(
            self.record.digest, [row.topic_partition for row in changed]
        )
        named = {}
        for name, moves in submissions.items():
            replicas = snapshot.partitions[name].replicas
            plan = find_changing_plan(replicas, moves)
            if plan is not None:
                named[name] = Held.of(name, HoldReason.CHANGED_ELSEWHERE, str(list(replicas)), by=describe_actor(plan))
        return [(row, named.get(row.topic_partition, why)) for row, why in held]

    def _next_part(self, move: Move, inputs: PreflightInputs) -> Move:
        """Return the part of a move that is submitted now: all of it, or its next stage."""
        snapshot = inputs.snapshot
        return next_stage(
            move,
            snapshot.partitions[move.topic_partition],
            snapshot.live,
            one_at_a_time=self._settings.one_replica_at_a_time,
            unclean=move.topic in inputs.unclean,
        )

    def _admit_ready_moves(self, ready: Sequence[Move], rows: MoveRows, inputs: PreflightInputs) -> Admission:
        settings, snapshot = self._settings, inputs.snapshot
        barrier = settings.window == "chunk"
        pause_ms = int(settings.chunk_pause * 1000)
        if barrier and chunk_pause_left_ms(rows, self._moves.settled, pause_ms=pause_ms, now_ms=self.fence.now_ms):
            return Admission([], {})
        leaders = {move.topic_partition: snapshot.partitions[move.topic_partition].leader for move in ready}
        strained = self._assess_pressure(ready, leaders)
        limits = self._current_limits()
        # Where chunks are the window, the next one waits for the whole of the one before (KIP-46).
        may = {row.topic_partition for row in select_chunk_moves(rows, barrier=barrier)} if barrier else None
        chosen = [move for move in ready if may is None or move.topic_partition in may]
        transfers = partial(
            active_transfers,
            snapshot,
            inputs.left_bytes,
            self.memory.learned.stalled,
            sizes={name for name, size in inputs.sizes.items() if size or limits.zero_counts},
            unknown_bytes=limits.unknown_bytes,
        )
        admit = partial(
            admit_moves, caps=limits, leaders=leaders, rooms=inputs.rooms, sizes=inputs.sizes, strained=strained
        )
        uncounted, until_ms = self._judge_foreign()
        in_flight = transfers(without=uncounted)
        admitted = admit(chosen, in_flight)
        foreign = {name: partition for name, partition in snapshot.reassigning.items() if name in until_ms}
        if not foreign or len(admitted.moves) == len(chosen):
            return admitted
        starts = {move.topic_partition for move in admitted.moves}
        # A reassignment of others is named only if a move would start without it.
        freed = admit(chosen, transfers(without=uncounted | foreign.keys())).moves
        kept = next((move for move in freed if move.topic_partition not in starts), None)
        if kept is not None:
            leader = leaders[kept.topic_partition]
            under = limits if strained.isdisjoint({leader, *kept.adding}) else limits.under(Pressure.OUT_OF_SYNC)
            new = [ActiveTransfer(move.adding, leaders[move.topic_partition]) for move in admitted.moves]
            # It is the reason for which they wait: what only slows moves is not named beside it.
            self._pressure_note = ""
            self._foreign_note = foreign_wait_message(
                kept, leader, foreign, [*in_flight, *new], caps=under, until_ms=until_ms
            )
        return admitted

    def _judge_foreign(self) -> tuple[frozenset[TopicPartition], dict[TopicPartition, int]]:
        """Return the reassignments of others that take nothing of the limits, and until when each other one does.

        What is urgent must not wait for one that may take days. Another plan waits for `stuck_after`.
        """
        foreign = {} if self.memory.facts.strain is None else self.memory.facts.strain.foreign
        if self.record.operation in URGENT_OPERATIONS:
            return frozenset(foreign), {}
        stuck_ms = int(self._settings.stuck_after * 1000)
        until_ms = {name: since_ms + stuck_ms for name, since_ms in foreign.items()}
        over = frozenset(name for name, at_ms in until_ms.items() if at_ms <= self.fence.now_ms)
        return over, {name: at_ms for name, at_ms in until_ms.items() if name not in over}

    def _assess_pressure(self, ready: Sequence[Move], leaders: Mapping[TopicPartition, int | None]) -> frozenset[int]:
        """Find the pressure that the moves are under; return their brokers that have a partition out of sync."""
        strain, slowest_ms = self.memory.facts.strain or ClusterStrain(0), self.memory.learned.slowest_call_ms
        ways = {(leaders[move.topic_partition], move.adding) for move in ready if move.adding}
        copying = {broker for leader, adding in ways for broker in (leader, *adding)}
        loaded = frozenset[int]().union(*strain.under_min_isr.values(), *strain.out_of_sync.values())
        strained = loaded & {broker for broker in copying if broker is not None}
        self._pressure = find_pressure(strained, slowest_ms)
        self._pressure_note = pressure_message(
            self._pressure,
            strained,
            slowest_ms,
            under_min_isr=strain.under_min_isr,
            out_of_sync=strain.out_of_sync,
        )
        return strained

    def _current_limits(self) -> ConcurrencyLimits:
        settings = self._settings
        # Pressure on single brokers reduces the limits of their moves alone: see `admit_moves`.
        slow = self._pressure is Pressure.CONTROLLER_SLOW
        caps = ConcurrencyLimits(settings.max_in_per_broker, settings.max_out_per_broker, settings.max_in_flight)
        return caps.with_window(
            self.memory.learned,
            throttle=self.throttle or 0,
            interval_s=settings.step_interval,
            since_last_ms=self.fence.now_ms - self.record.stepped_ms,
            leaders_throttled=settings.throttle_leaders,
            starts_in_turn=self._cluster.zookeeper_mode,
        ).under(self._pressure if slow else None)

    def _name_directories(
        self, admitted: Admission, rows: Mapping[TopicPartition, MoveRow]
    ) -> dict[TopicPartition, ClusterError]:
        """Name the log directories of `admitted` to the brokers; return the partitions for which one did not take it.

        A move that is not submitted afterwards leaves a name behind, which its broker forgets when it restarts.
        """
        entries = {
            (name, broker): [self._moves.build_place_record(rows[name], broker, path)]
            for (name, broker), path in admitted.directories.items()
        }
        answers = self._calls.execute(
            entries, lambda keys: self._cluster.name_directories({key: admitted.directories[key] for key in keys})
        )
        return {name: error for (name, _), error in answers.items() if error is not None}

    def _submit_moves(self, admitted: Admission, snapshot: Snapshot) -> list[Held]:
        stages = {move.topic_partition: move for move in admitted.moves}
        # Before the request: after a crash, the next step compares the row in phase INTENDED with what Kafka shows.
        rows = self._moves.record_submission(
            [row for row in self._moves.rows() if row.topic_partition in stages], stages
        )
        by_name = {row.topic_partition: row for row in rows}
        try:
            # Before the submission: Kafka copies as soon as it has accepted one.
            if self.throttle:
                need = throttle_demand(admitted.moves, leaders=self._settings.throttle_leaders)
                self._leases.acquire(need, self.throttle, copies_of(admitted.moves, snapshot))
            unplaced = self._name_directories(admitted, by_name) if admitted.directories else {}
        except ClusterError:
            # Nothing was sent: the next step need not find out what became of it.
            self._moves.record_unsent(rows)
            raise
        entries = {
            name: [self._moves.build_submit_record(row, stages[name])]
            for name, row in by_name.items()
            if name not in unplaced
        }
        answers = self._calls.execute(
            entries,
            lambda batch: alter_keeping_factor(
                self._cluster,
                {name: stages[name].after for name in batch},
                {name: stages[name].before for name in batch},
            ),
            # For a lock that was lost during the call: no other process knows of this submission.
            late=lambda batch: self._retraction.retract_submissions({name: stages[name].after for name in batch}),
        )
        refusals = unplaced | {name: error for name, error in answers.items() if error is not None}
        self._moves.record_accepted(
            [row for name, row in by_name.items() if name not in refusals], directories_by_partition(admitted)
        )
        # Their stages had counted as complete, and are not: from now on they are waited for.
        self.memory.refused |= refusals.keys() & self._in_flight
        held = [
            Held.of(name, self._refusal_reason(stages[name], error), getattr(error, "message", "") or str(error))
            for name, error in refusals.items()
        ]
        self._moves.record_refused([by_name[name] for name in refusals], held, unsent=unplaced.keys())
        ends = {why.topic_partition: why.sentence for why in held if why.code.event is Event.DROP}
        self.drop_moves(snapshot, ends)
        return [why for why in held if why.code.event is Event.HOLD]

    def _refusal_reason(self, move: Move, error: ClusterError) -> HoldReason:
        refused = is_unregistered_refusal(error, zookeeper_mode=self._cluster.zookeeper_mode)
        # A replica that is to be added may go to another broker, which the next plan chooses. And what is in flight
        # does not end here: the next step sees that the broker is dead.
        ends = refused and not move.adding and move.topic_partition not in self._in_flight
        return HoldReason.BROKER_UNREGISTERED if ends else HoldReason.KAFKA_REFUSED


def _lags(row: MoveRow, snapshot: Snapshot) -> bool:
    """Return True if the replicas of the target that are out of sync may catch up."""
    partition = snapshot.partitions[row.topic_partition]
    return frozenset(row.move.after) - partition.isr <= snapshot.live - partition.offline


def _parts_in_flight(rows: MoveRows, snapshot: Snapshot) -> list[Move]:
    partitions = snapshot.partitions
    return [part_in_flight(row, partitions.get(row.topic_partition)) for row in rows.submitted]
