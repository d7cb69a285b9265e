"""Failure detection (KIP-46): one poll of the cluster, persisted so that any later poll continues from it.

Two documents are written for each failed broker, KIP-46's entry and our own record: see `failures.records`. The record
also has the time of the last announcement.

An operator may report a failure: its heal is due at once, without the grace period. A report states that a broker will
not return, never that it is down: Kafka has to see that too. Likewise only a log directory that Kafka reports as failed
can be reported, because replicas in another one are in service; it is then healed even if `heal_failed_disks` is off.
Kafka does not say which of several failed directories a replica was in, so the report of one covers all failed
directories of its broker. A report is withdrawn by deleting the broker's entry, which calls the heal off.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from kafka_steward.assignment import begin_with_brokers, counted, name_brokers
from kafka_steward.cluster.health import count_failed_log_dirs, failed_brokers, failed_paths_text
from kafka_steward.cluster.state import Snapshot
from kafka_steward.commands import command_line
from kafka_steward.errors import RequestError
from kafka_steward.escaping import printable
from kafka_steward.execution.announcements import announced_restarts, delete_expired_announcements
from kafka_steward.execution.failures.records import (
    FAILED_LOG_DIRS,
    FAILURES,
    RecordedFailures,
    delete_entry,
    enter_failure,
    find_healed_brokers,
    find_new_ended_heals,
    keep_ended_heals,
    last_racks,
    read_failures,
    read_log_dir_failures,
    record_call_off,
)
from kafka_steward.execution.failures.rules import (
    Failure,
    FailureDecision,
    HealedBrokers,
    LivenessView,
    NotCounted,
    build_view,
    check_state,
    decide_broker_failures,
    decide_log_dir_failures,
    first_due_ms,
    grace_end_text,
    log_dir_message,
    lost_racks_clause,
    not_counted_text,
    outage_text,
)
from kafka_steward.execution.ports import ClusterContext, ClusterPort
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Actor, AuditRecord
from kafka_steward.journal.document import sanitize_text
from kafka_steward.journal.kip_documents import FailedBroker
from kafka_steward.journal.listing import QuarantineSweep
from kafka_steward.journal.mailbox import delete_one, put_one, read_one
from kafka_steward.journal.observed import CheckState
from kafka_steward.journal.records import WRITTEN
from kafka_steward.journal.state import Noun
from kafka_steward.journal.store import Journal
from kafka_steward.settings import Settings

#: How long the last result is reused while the set of live brokers is unchanged, in milliseconds.
CALM_MS = 60_000

#: The same while a broker is down, in milliseconds: shorter, because its replicas are being moved to other brokers.
LOST_MS = 10_000


class LivenessProbe:
    """Detects failed brokers. Keep one for a loop.

    `racks` reads those that brokers had last, which is done while one is down.

    Reading every partition accounts for nearly all the cost of a watch on a large cluster. So while the set of live
    brokers is unchanged, the last result is reused: for up to `CALM_MS` if all brokers are up, `LOST_MS` if one is
    down. While a broker is missing that not enough live brokers report as down, the result is not reused.

    The reuse delays the detection of three changes. Replicas that someone assigns to a broker that was already dead,
    and failed log directories, are detected up to `CALM_MS` late. A decrease of the replicas on a failed broker is
    detected up to `LOST_MS` late. Callers that act on a failure pass `fresh=True`.
    """

    def __init__(self, cluster: ClusterPort, racks: Callable[[], Mapping[int, str]] = dict) -> None:
        self._cluster = cluster
        self._racks = racks
        self._last: tuple[LivenessView, int] | None = None

    def probe(self, now_ms: int, *, fresh: bool = False) -> LivenessView:
        """Return the current state of the brokers. Raises ClusterError.

        `now_ms` may be of any clock that advances. With `fresh`, only a result of the same `now_ms` is reused.
        """
        if self._last is not None:
            view, since_ms = self._last
            lasts_ms = 1 if fresh else _view_lifetime_ms(view)
            if now_ms - since_ms < lasts_ms and self._cluster.live_brokers().keys() == view.live:
                return view
        snapshot = self._cluster.snapshot()
        views = self._cluster.live_views(sorted(snapshot.live))
        disks = self._cluster.directories(sorted(snapshot.live))
        failed = failed_brokers(snapshot, views)
        view = build_view(snapshot, failed, disks, self._racks() if failed else None)
        # Of a broker that answers nothing, offline replicas say nothing of its disks: it may have just died.
        view = replace(view, disks={broker: dirs for broker, dirs in view.disks.items() if broker in views})
        self._last = (view, now_ms)
        return view


def _view_lifetime_ms(view: LivenessView) -> int:
    missing = view.known - view.live
    if missing != view.failed:
        return 0  # not enough live brokers report the missing broker as down yet
    return LOST_MS if missing else CALM_MS


_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DetectionResult:
    """The result of one poll. Times are the journal's, in milliseconds since 1970.

    `due` are the brokers to announce now. `failed` are all brokers whose grace period is over and that no heal handles,
    announced or not. `waiting` maps the brokers within their grace period to its end. `handled` are down and handled by
    a heal; the heal of `called_off` was called off; `cleared` came back; `down` are all that are down. `disks` are the
    failed log directories, by live broker: with `heal_failed_disks`, such a broker is due and failed like one that is
    down, as long as it has replicas there. In an outage only brokers that a person reported or named are due. `state`
    sums all of it up, `stated` is the sentence with the time at which a grace period ends in place of the seconds that
    are left, and `due_ms` is the end of the first one.
    """

    due: tuple[int, ...]
    failed: tuple[int, ...]
    waiting: Mapping[int, int]
    handled: tuple[int, ...]
    cleared: tuple[int, ...]
    down: tuple[int, ...]
    outage: bool
    sentence: str
    now_ms: int
    disks: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    called_off: tuple[int, ...] = ()
    state: CheckState = CheckState.FINE
    stated: str = ""
    due_ms: int | None = None
    not_counted: Mapping[int, NotCounted] = field(default_factory=dict)
    known: tuple[int, ...] = ()

    @property
    def failed_log_dir_count(self) -> int:
        """Return the number of failed log directories."""
        return count_failed_log_dirs(self.disks)


def decide_failures(
    journal: Journal,
    view: LivenessView,
    read: RecordedFailures,
    *,
    now_ms: int,
    settings: Settings,
    named: frozenset[int] = frozenset(),
) -> FailureDecision:
    """Return the decision about failed brokers by `view` and the journal. Changes nothing. Raises JournalError."""
    restarts = announced_restarts(journal.mailbox)
    healed = find_healed_brokers(
        journal, view, read, now_ms=now_ms, settings=settings, newly_reported_ms=dict.fromkeys(named, now_ms)
    )
    decision = decide_broker_failures(
        view,
        first_seen_ms=read.first_seen_ms,
        entries=read.entries.keys(),
        noted=read.noted,
        announced_ms=_announced_ms(read.failures),
        handled=healed.handled,
        bouncing=frozenset(broker for broker, restart in restarts.items() if restart.is_in_effect(now_ms)),
        now_ms=now_ms,
        settings=settings,
        stated_ms={broker: restart.until_ms for broker, restart in restarts.items() if restart.until_ms is not None},
        called_off=read.called_off,
        reported=read.reported,
        named=named,
        finished=healed.finished,
    )
    return replace(decision, ended=find_new_ended_heals(healed, read))


@dataclass(frozen=True)
class Outage:
    """What is decided about the brokers of `view` that are down, and about the failed log directories of live ones.

    `brokers_why` and `disks_why` say why these are an outage; empty if they are none.
    """

    view: LivenessView
    brokers: FailureDecision
    disks: FailureDecision
    brokers_why: str
    disks_why: str


def decide_outage(journal: Journal, snapshot: Snapshot, read: RecordedFailures, settings: Settings) -> Outage:
    """Return the decisions about what is down in `snapshot`. Changes nothing. Raises JournalError."""
    dead = snapshot.dead_hosting_brokers
    return _decide_outage(
        journal, build_view(snapshot, dead, {}, last_racks(journal) if dead else None), read, settings
    )


def _decide_outage(journal: Journal, view: LivenessView, read: RecordedFailures, settings: Settings) -> Outage:
    now_ms, of_disks = journal.now_ms(), read_log_dir_failures(journal)
    brokers = decide_failures(journal, view, read, now_ms=now_ms, settings=settings)
    _, disks = _decide_log_dirs(journal, view, brokers, of_disks, now_ms=now_ms, settings=settings)
    brokers_why, disks_why = (
        outage_text(
            down,
            view.known,
            decision.not_counted,
            settings,
            healing=brokers.healing | disks.healing,
            disks=view.lost,
            conn_id=journal.conn_id,
        )
        if decision.outage
        else ""
        for decision, down in ((brokers, view.failed), (disks, view.failed | view.lost.keys()))
    )
    return Outage(view, brokers, disks, brokers_why, disks_why)


def _decide_log_dirs(
    journal: Journal,
    view: LivenessView,
    brokers: FailureDecision,
    read: RecordedFailures,
    *,
    now_ms: int,
    settings: Settings,
    named: frozenset[int] = frozenset(),
) -> tuple[HealedBrokers, FailureDecision]:
    disks, newly = replace(view, replica_counts=view.lost), dict.fromkeys(named, now_ms)
    healed = find_healed_brokers(journal, disks, read, now_ms=now_ms, settings=settings, newly_reported_ms=newly)
    return healed, decide_log_dir_failures(
        view,
        first_seen_ms=read.first_seen_ms,
        announced_ms=_announced_ms(read.failures),
        handled=healed.handled,
        finished=healed.finished,
        not_counted=brokers.not_counted,
        named=named,
        reported=read.reported,
        now_ms=now_ms,
        settings=settings,
    )


class FailureDetector:
    """Detects failed brokers. Any number of detectors may poll concurrently, in any process: they share the journal.

    A detector that is kept for a loop reads less from the cluster while nothing changes: see `LivenessProbe`.
    """

    def __init__(self, cluster: ClusterPort, journal: Journal, settings: Settings, who: Actor) -> None:
        self._cluster = cluster
        self._journal = journal
        self._settings = settings
        self._who = who
        self._liveness = LivenessProbe(cluster, partial(last_racks, journal))
        self._quarantine = QuarantineSweep(journal, WRITTEN, who)

    def poll(self, *, announce: bool = True, named: Collection[int] = ()) -> DetectionResult:
        """Poll once. With `announce`, the brokers returned in `due` are recorded as announced.

        A person `named` these brokers for a heal: they are due although so many are down that it is an outage, and
        although another plan would do no more for them.

        Raises ClusterError, and then no failure was written: an unreachable cluster is never a broker's failure.
        Raises JournalError.
        """
        with self._journal.one_read():
            return self._poll(announce=announce, named=frozenset(named))

    def _poll(self, *, announce: bool, named: frozenset[int]) -> DetectionResult:
        now_ms = self._journal.now_ms()
        for sentence in self._quarantine.run(now_ms):
            _log.warning("%s", printable(sentence))
        read = read_failures(self._journal)
        for fresh in (False, True):
            view = self._liveness.probe(now_ms, fresh=fresh)
            with self._journal.one_read(again=fresh):
                decision = decide_failures(
                    self._journal, view, read, now_ms=now_ms, settings=self._settings, named=named
                )
            if not (decision.write or decision.announce):
                break
            # The decision leads to an action: decide once more by the current state of the cluster and the journal.
        cleared = self._write_failures(view, decision, read, now_ms=now_ms)
        self._record_called_off(decision, read, now_ms)
        keep_ended_heals(self._journal.rows(FAILURES), read, decision.ended)
        for broker in self._record_announcements(FAILURES, decision, now_ms) if announce else ():
            self._record_audit(
                Action.ANNOUNCE, broker, f"broker {broker} has been down for longer than the grace period"
            )
        disks = self._poll_log_dirs(view, decision, now_ms=now_ms, announce=announce, named=named)
        delete_expired_announcements(self._journal, view.live, self._settings, self._who)
        conn_id, healing = self._journal.conn_id, decision.healing | disks.healing
        sentence, stated = (
            " ".join(
                filter(
                    None,
                    (
                        _failure_message(view, decision, self._settings, at_ms, conn_id, healing=healing),
                        _called_off_message(decision.called_off, conn_id),
                        not_counted_text(
                            {**decision.not_counted, **disks.not_counted},
                            but={*decision.called_off, *decision.due, *disks.due},
                            disks=view.disks,
                            conn_id=conn_id,
                        ),
                        log_dir_message(view, disks, self._settings, at_ms, conn_id, healing=healing),
                    ),
                )
            )
            for at_ms in (now_ms, None)
        )
        return DetectionResult(
            due=tuple(sorted({*decision.announce, *disks.announce})),
            failed=tuple(sorted({*decision.due, *disks.due})),
            waiting=decision.waiting,
            handled=decision.handled,
            cleared=cleared,
            down=tuple(sorted(view.failed)),
            outage=decision.outage,
            sentence=sentence,
            now_ms=now_ms,
            disks=view.disks,
            called_off=decision.called_off,
            state=check_state(view, decision, disks),
            stated=stated,
            due_ms=first_due_ms((decision, disks)),
            not_counted=decision.not_counted,
            known=tuple(sorted(view.known)),
        )

    def _poll_log_dirs(
        self,
        view: LivenessView,
        brokers: FailureDecision,
        *,
        now_ms: int,
        announce: bool,
        named: frozenset[int],
    ) -> FailureDecision:
        """Decide about the log directories of live brokers, and record the decision."""
        read = read_log_dir_failures(self._journal)
        healed, decision = _decide_log_dirs(
            self._journal, view, brokers, read, now_ms=now_ms, settings=self._settings, named=named
        )
        keep_ended_heals(self._journal.rows(FAILED_LOG_DIRS), read, find_new_ended_heals(healed, read))
        for broker in decision.write:
            if self._journal.rows(FAILED_LOG_DIRS).put(broker, Failure(now_ms), None) is not None:
                name = f"{', '.join(view.disks.get(broker, ())) or 'a log directory'} of broker {broker}"
                self._record_audit(
                    Action.DETECT, broker, f"{name} has failed with {counted(view.lost[broker], 'replica')}"
                )
        for broker in decision.clear:
            if self._delete_record(FAILED_LOG_DIRS, broker):
                self._record_audit(
                    Action.CLEAR, broker, f"broker {broker} no longer has a replica in a failed log directory"
                )
        for broker in self._record_announcements(FAILED_LOG_DIRS, decision, now_ms) if announce else ():
            sentence = f"a log directory of broker {broker} has been failed for longer than the grace period"
            self._record_audit(Action.ANNOUNCE, broker, sentence)
        return decision

    def _write_failures(
        self, view: LivenessView, decision: FailureDecision, read: RecordedFailures, *, now_ms: int
    ) -> tuple[int, ...]:
        """Write new failures and delete those that are over; returns the brokers that came back."""
        for broker in decision.write:
            if enter_failure(self._journal, broker, read, now_ms):
                since_ms = read.first_seen_ms.get(broker, now_ms)
                self._record_audit(Action.DETECT, broker, f"broker {broker} hosts replicas and is down", after=since_ms)
        if decision.write and decision.outage:
            message = _failure_message(
                view, decision, self._settings, now_ms, self._journal.conn_id, healing=decision.healing
            )
            self._record_audit(Action.OUTAGE, None, message)
        for broker in decision.clear:
            delete_entry(self._journal, broker)
        known = {*read.first_seen_ms, *decision.clear}
        back = tuple(broker for broker in sorted(known) if view.is_recovered(broker))
        for broker in back:
            self._delete_record(FAILURES, broker)
            # It is back: the restart that it announced is over.
            node = read_one(self._journal.mailbox, paths.rolling_bounce(broker)) if broker in view.live else None
            if node is not None:
                delete_one(self._journal.mailbox, node)  # unless a concurrent poll deletes it
            self._record_audit(Action.CLEAR, broker, _clear_reason(broker, view, read))
        return tuple(broker for broker in back if broker in view.live and broker not in _refused_reports(read))

    def _record_called_off(self, decision: FailureDecision, read: RecordedFailures, now_ms: int) -> None:
        for broker in decision.called_off:
            known = read.records[broker]
            if known.value.called_off_ms is None and record_call_off(self._journal, known, now_ms):
                why = f"{paths.failed_broker(broker)} was deleted"
                self._record_audit(
                    Action.REQUEST, broker, f"called off the heal of broker {broker} until it is live again: {why}"
                )

    def _record_announcements(self, kind: Noun[int, Failure], decision: FailureDecision, now_ms: int) -> list[int]:
        """Record the announcements; returns the brokers that no concurrent poll announces."""
        rows = self._journal.rows(kind)
        known = [row for row in rows.all() if row.key in decision.announce] if decision.announce else []
        return [row.key for row in known if rows.put(row.key, replace(row.value, announced_ms=now_ms), row) is not None]

    def _delete_record(self, kind: Noun[int, Failure], broker: int) -> bool:
        rows = self._journal.rows(kind)
        row = rows.get(broker)
        return row is not None and rows.delete(row)  # unless a concurrent poll deletes it

    def _record_audit(self, action: Action, broker: int | None, reason: str, *, after: object = None) -> None:
        self._journal.audit.record(AuditRecord(action, reason, broker=broker, after=after, who=self._who))


def _refused_reports(read: RecordedFailures) -> frozenset[int]:
    """Return the brokers that other tools reported by an entry, and that no poll has seen down."""
    return read.reported - read.records.keys()


def _clear_reason(broker: int, view: LivenessView, read: RecordedFailures) -> str:
    if broker not in _refused_reports(read):
        return f"broker {broker} {'is back' if broker in view.live else 'no longer has replicas'}"
    refusal = _refuse_broker(broker, view) or "no poll has seen it down"
    return f"broker {broker} was not reported as failed by {paths.failed_broker(broker)}: {refusal}"


def _announced_ms(recorded: Mapping[int, Failure]) -> dict[int, int]:
    return {broker: failure.announced_ms for broker, failure in recorded.items() if failure.announced_ms is not None}


def _failure_message(
    view: LivenessView,
    decision: FailureDecision,
    settings: Settings,
    now_ms: int | None,
    conn_id: str | None,
    *,
    healing: Collection[int],
) -> str:
    if not view.failed:
        return "Every broker that has replicas is live."
    brokers = f"{begin_with_brokers(sorted(view.failed), 'is', 'are')} down{lost_racks_clause(view.lost_racks)}"
    if settings.heal_failure_interval < 0:
        return f"{brokers}; healing is disabled (heal_failure_interval is -1)."
    if decision.outage:
        uncounted = decision.not_counted
        why = outage_text(view.failed, view.known, uncounted, settings, healing=healing, conn_id=conn_id)
        reported = f" {begin_with_brokers(decision.due, 'is', 'are')} healed all the same." if decision.due else ""
        return f"{brokers}: {why}{reported}"
    left = grace_end_text(min(decision.waiting.values()), now_ms) if decision.waiting else ""
    if decision.due:
        due = _due_clause(view, decision.due)
        waits = f"; of {name_brokers(sorted(decision.waiting))} {left}" if left else ""
        return f"{brokers}{'' if left else ' longer than the grace period'}: {due}{waits}."
    return f"{brokers}; {left}." if left else f"{brokers}{_handled_clause(view, decision)}."


def _due_clause(view: LivenessView, due: Collection[int]) -> str:
    able, hopeless = ([broker for broker in due if (broker in view.hopeless) is of] for of in (False, True))
    clauses = list[str]()
    if able:
        whom = "it" if len(view.failed) == 1 else name_brokers(able)
        clauses.append(f"{'they' if set(able) == view.failed != {*able[:1]} else whom} will be healed")
    if hopeless:
        clauses.append(f"no heal can move what {name_brokers(hopeless)} hosted: no replica of it is live")
    return ", and ".join(clauses)


def _handled_clause(view: LivenessView, decision: FailureDecision) -> str:
    healing = sorted(set(decision.handled).difference(decision.not_counted))
    if not healing:
        return ""
    whom = name_brokers(healing) if len(healing) < len(view.failed) else "it" if len(healing) == 1 else "them"
    return f", and a plan handles {whom}"


def _called_off_message(brokers: Sequence[int], conn_id: str | None) -> str:
    return " ".join(
        f"The heal of broker {broker} is called off until the broker is live again, because "
        f"{paths.failed_broker(broker)} was deleted; to heal it, report it: "
        f"{command_line(f'failed {broker}', conn_id)}."
        for broker in brokers
    )


def report_broker(context: ClusterContext, broker: int, *, reason: str = "") -> str:
    """Report that `broker` has failed and will not return, so that its heal is due at once; return the message.

    A repeated report replaces the earlier one, and a heal that was called off is resumed. Raises RequestError for a
    broker that is live, that not enough live brokers see as down yet, or that the cluster does not have, for one that a
    plan heals already, and while healing is disabled. Raises ClusterError, JournalError.
    """
    journal, now_ms = context.journal, context.journal.now_ms()
    view = _probe(context, now_ms)
    refusal = _refuse_broker(broker, view)
    if refusal:
        raise RequestError(f"Broker {broker} was not reported as failed: {refusal}.")
    read = read_failures(journal)
    # A millisecond later: a heal that was stepped just now must count as older than the report.
    newly = {broker: now_ms + 1}
    healed = find_healed_brokers(journal, view, read, now_ms=now_ms, settings=context.settings, newly_reported_ms=newly)
    if broker in healed.handled:
        raise RequestError(f"Broker {broker} was not reported as failed: a plan heals it already.")
    since_ms = read.first_seen_ms.get(broker, now_ms)
    entry = FailedBroker(since_ms, reported=True, person=context.actor.person, reason=sanitize_text(reason) or None)
    known = read.failures.get(broker)
    failure = Failure(
        since_ms, entered=True, reported=True, reported_ms=now_ms, healed=None if known is None else known.healed
    )
    path = paths.failed_broker(broker)
    written = put_one(journal.mailbox, path, entry.to_json(), read_one(journal.mailbox, path)) is not None
    # The entry first: `failures.records` says why. Without a time of announcement, the next poll announces the failure.
    if not (written and journal.rows(FAILURES).put(broker, failure, read.records.get(broker))):
        raise RequestError(f"Broker {broker} was not reported: {path} was changed concurrently; report it again.")
    due = "its heal is due at once, without the grace period"
    if broker in view.hopeless:
        due = (
            "no heal can move what it hosts, of which no replica is live; bring it back with its data, or delete the "
            "topics"
        )
    sentence = f"Broker {broker} is reported as failed: {due}."
    _record_request(journal, broker, sentence, reason, context.actor)
    return f"{sentence}{_outage_clause(view, context)}"


def report_log_dirs(context: ClusterContext, broker: int, log_dirs: Collection[str], *, reason: str = "") -> str:
    """Report the failed log directories of a live broker, so that their heal is due at once; return the message.

    Raises RequestError if Kafka does not report one of `log_dirs` as failed, if no replica is left in it, if the broker
    is not live, and while healing is disabled. Raises ClusterError, JournalError.
    """
    journal, now_ms = context.journal, context.journal.now_ms()
    view = _probe(context, now_ms)
    refusal = _refuse_log_dirs(broker, log_dirs, view)
    if refusal:
        raise RequestError(f"{', '.join(log_dirs)} of broker {broker} was not reported as failed: {refusal}.")
    known = read_log_dir_failures(journal).records.get(broker)
    before = Failure(now_ms) if known is None else known.value
    failure = Failure(before.first_seen_ms, reported=True, reported_ms=now_ms, healed=before.healed)
    if journal.rows(FAILED_LOG_DIRS).put(broker, failure, known) is None:
        raise RequestError(f"The report of broker {broker} was changed concurrently; report it again.")
    sentence = (
        f"The log directory {failed_paths_text(view.disks[broker])} of broker {broker} is reported as failed: the heal "
        f"of its {counted(view.lost[broker], 'replica')} is due at once, without the grace period."
    )
    _record_request(journal, broker, sentence, reason, context.actor)
    return f"{sentence}{_outage_clause(view, context)}"


def withdraw_report(journal: Journal, broker: int, *, who: Actor, reason: str = "") -> str:
    """Delete the entry of a failed broker: its heal is called off until it is live again. Return the message.

    The cluster is not needed. Raises RequestError if there is no entry.
    """
    now_ms = journal.now_ms()
    read = read_failures(journal)
    path = paths.failed_broker(broker)
    node = read_one(journal.mailbox, path)
    if node is None or not delete_one(journal.mailbox, node):
        raise RequestError(
            f"There is no entry {path} to withdraw: the broker is not down, its heal was called off, or a plan heals "
            f"it, which is cancelled with `{command_line('cancel', journal.conn_id)}`."
        )
    failure = Failure(read.first_seen_ms.get(broker, now_ms), called_off_ms=now_ms)
    # If another process changes the record meanwhile, the next poll finds the entry deleted, and records that.
    journal.rows(FAILURES).put(broker, failure, read.records.get(broker))
    sentence = f"The heal of broker {broker} is called off until the broker is live again."
    _record_request(journal, broker, sentence, reason, who)
    return sentence


def withdraw_log_dirs(journal: Journal, broker: int, *, who: Actor, reason: str = "") -> str:
    """Withdraw the report of a broker's log directories: the settings decide about their heal. Return the message.

    The cluster is not needed. Raises RequestError if none is reported.
    """
    rows = journal.rows(FAILED_LOG_DIRS)
    row = rows.get(broker)
    if row is None or not row.value.reported:
        raise RequestError(
            f"No log directory of broker {broker} is reported as failed, so there is nothing to withdraw."
        )
    if rows.put(broker, replace(row.value, reported=False), row) is None:
        raise RequestError(f"The report of broker {broker} was changed concurrently; withdraw it again.")
    sentence = (
        f"The report of broker {broker}'s log directories is withdrawn: heal_failed_disks decides about their heal."
    )
    _record_request(journal, broker, sentence, reason, who)
    return sentence


def _probe(context: ClusterContext, now_ms: int) -> LivenessView:
    if context.settings.heal_failure_interval < 0:
        raise RequestError(
            "Nothing was reported: healing is disabled (heal_failure_interval is -1); set that to 0 or more first."
        )
    return LivenessProbe(context.cluster).probe(now_ms)


def _refuse_broker(broker: int, view: LivenessView) -> str:
    """Return why a broker is not reported, as a clause; empty if it may be."""
    if broker in view.live:
        return "it is live; to move its replicas to other brokers, drain it (operation drain of the DAG rebalance)"
    if broker not in view.known:
        return "the cluster has no live broker and no replica of that id"
    if broker not in view.failed:
        return "too few live brokers see it as down yet; report it again in some seconds"
    return ""


def _refuse_log_dirs(broker: int, log_dirs: Collection[str], view: LivenessView) -> str:
    """Return why log directories are not reported, as a clause; empty if they may be."""
    if broker not in view.live:
        return "the broker is not live; report the broker, without a log directory"
    failed = view.disks.get(broker, ())
    sound = sorted(set(log_dirs) - set(failed))
    if sound:
        return f"Kafka reports {failed_paths_text(failed) if failed else 'no log directory'} of it as failed"
    return "" if view.lost.get(broker) else "no replica is left in it"


def _outage_clause(view: LivenessView, context: ClusterContext) -> str:
    """Return what holds for the brokers that were not reported if so many are down that it is an outage."""
    outage = _decide_outage(context.journal, view, read_failures(context.journal), context.settings)
    why = outage.brokers_why or outage.disks_why
    return why and f" It is healed all the same, although others are down: {why}"


def _record_request(journal: Journal, broker: int, sentence: str, reason: str, who: Actor) -> None:
    why = f"{sentence[:-1]}: {reason}" if reason else sentence
    journal.audit.record(AuditRecord(Action.REQUEST, why, broker=broker, who=who))
