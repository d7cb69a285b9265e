"""The periodic checks of the watch: failed brokers, joined ones, empty ones, and the health of the cluster."""

from __future__ import annotations

import asyncio
import functools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from kafka_steward.triggers.base import ClusterWorker
from kafka_steward.triggers.reporting import WatchReporter, emit_health, event_payload, set_gauge

if TYPE_CHECKING:
    from kafka_steward.cluster.health import CopiedBytes
    from kafka_steward.execution.broker_joins import EmptyBrokers, JoinPollResult
    from kafka_steward.execution.failure_detector import DetectionResult, FailureDetector
    from kafka_steward.execution.upkeep import PlanUpkeep
    from kafka_steward.execution.watch_lease import CheckLease
    from kafka_steward.execution.watch_reports import CheckRecorder
    from kafka_steward.hooks.steward import ClusterSession, StewardHook
    from kafka_steward.journal.observed import CheckReport


Found = TypeVar("Found")

#: Seconds between two health checks that ask each broker for the bytes of its replicas: a large answer.
SIZED_EVERY_S = 600.0
#: Seconds after which a setting that disabled a check is read again.
OFF_S = 60.0
#: Kafka's settings for the time until an unresponsive broker counts as dead, in milliseconds: KRaft's, ZooKeeper's.
_SESSION_TIMEOUTS = ("broker.session.timeout.ms", "zookeeper.session.timeout.ms")


class EventQueues:
    """The queues of those that listen to a watch, by event. An event without a listener waits for the next one."""

    def __init__(self) -> None:
        self._queues: dict[str, list[asyncio.Queue[dict[str, Any]]]] = {}
        self._waiting: dict[str, dict[str, Any]] = {}

    @property
    def events(self) -> frozenset[str]:
        """The events that somebody listens to."""
        return frozenset(self._queues)

    def add(self, event: str) -> asyncio.Queue[dict[str, Any]]:
        """Return a new queue for the payloads of an event."""
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._queues.setdefault(event, []).append(queue)
        if event in self._waiting:
            queue.put_nowait(self._waiting.pop(event))
        return queue

    def remove(self, event: str, queue: asyncio.Queue[dict[str, Any]]) -> None:
        """Remove a queue that `add` returned; what was not taken from it waits if nobody else listens."""
        self._queues[event].remove(queue)
        if not self._queues[event]:
            del self._queues[event]
            while not queue.empty():
                self._waiting[event] = queue.get_nowait()

    def publish(self, event: str, payload: dict[str, Any]) -> None:
        """Put a payload into every queue of the event. The last one waits if there is none."""
        for queue in self._queues.get(event, ()):
            queue.put_nowait(payload)
        if event not in self._queues:
            self._waiting[event] = payload


@dataclass(frozen=True)
class StoodBy:
    """The result of a poll that was left to another watch; `is_made` is whether that watch has succeeded."""

    is_made: bool


class PeriodicCheck(ABC, Generic[Found]):
    """A periodic check in a thread, as `KIND` in the journal. It never ends, and raises nothing.

    While `emits` is False it publishes no event, and records none as emitted: another watch may emit it. If `leased`,
    it is then made only if no other watch of the cluster makes it.
    """

    KIND: ClassVar[str]
    WHAT: ClassVar[str]
    #: The gauge of consecutive errors; by default it is named after `KIND`.
    FAILING: ClassVar[str] = ""
    #: The event that it emits, of the watch's; empty: none.
    EVENT: ClassVar[str] = ""
    #: Whether its events come from its own polls, and from no other watch's.
    POLLS_TO_EMIT: ClassVar[bool] = True
    #: Whether another check of the same watch needs its results.
    is_needed: bool = False

    def __init__(
        self,
        conn_id: str,
        worker: ClusterWorker,
        log: Callable[..., None],
        *,
        log_error: Callable[..., None] | None = None,
        log_warning: Callable[..., None] | None = None,
        emits: bool = True,
        leased: bool = False,
    ) -> None:
        self.conn_id = conn_id
        failing = self.FAILING or f"{self.KIND}_failing"
        self.reporter = WatchReporter(
            conn_id, log, failing=failing, what=self.WHAT, log_error=log_error, log_warning=log_warning
        )
        self._worker = worker
        self.emits = emits
        self._wake = asyncio.Event()
        self._lease: CheckLease | None = None
        self._leased = leased
        self._recorder: CheckRecorder | None = None
        if leased:
            worker.before_close.append(self._release_lease)

    async def run(self, events: EventQueues) -> None:
        """Check until cancelled; publish events to those who listen."""
        while True:
            emits = self.emits
            try:
                event, found, pause_s = await self._worker.submit(self._poll_and_record)
            except Exception as error:  # noqa: BLE001 - no error may end the watch: Airflow would restart it every 2 s
                pause_s = self.reporter.report_error(error)
                await self._worker.call_without_session(functools.partial(self._record_failure, error))
            else:
                self._report_result(found)
                # Who began or ceased to listen during the poll: what may have been recorded as emitted is published.
                if event is not None and (emits or self.emits):
                    self.publish(events, event)
            await self.wait(pause_s)

    def listen_for(self, events: Collection[str]) -> None:
        """Emit the event of this check if somebody listens to it: these are the events that are listened to."""
        self.emits = self.EVENT in events

    def publish(self, events: EventQueues, event: dict[str, Any]) -> None:
        """Publish the event of a poll."""
        events.publish(self.EVENT, event)

    def _report_result(self, found: Found | StoodBy) -> None:
        if not isinstance(found, StoodBy):
            self.reporter.record_success()
            self.report(found)
        elif found.is_made:
            self.reporter.record_success()

    def _poll_and_record(self, opened: ClusterSession) -> tuple[dict[str, Any] | None, Found | StoodBy, float]:
        with opened.journal.tree.one_read():
            lease = self._create_lease()
            needed = self.is_needed or (self.emits and self.POLLS_TO_EMIT)
            standby = None if lease is None else lease.stand_by(opened.journal, needed=needed)
            if standby is not None:
                event, pause_s = self.poll_standby(opened, standby.pause_s)
                return event, StoodBy(standby.is_made), pause_s
            result = self.poll(opened)
            if lease is not None:
                lease.renew(opened.journal, result[2])
        opened.journal.record_poll(self.KIND)
        self._record_state(opened, result[1])
        return result

    def _record_state(self, opened: ClusterSession, found: Found) -> None:
        if self._recorder is None:
            from kafka_steward.execution.watch_reports import CheckRecorder

            self._recorder = CheckRecorder()
        self._recorder.record(opened.journal, self.describe(found))

    def _record_failure(self, error: Exception, hook: StewardHook) -> None:
        """Record in the thread that a poll failed, in the journal's database alone: Kafka may not answer."""
        if self._recorder is not None:
            self._recorder.forget()
        with hook.watch_reports() as reports:
            if reports is not None:
                reports.put_failure(self.conn_id, self.KIND, str(error), failures=self.reporter.failures)

    def _create_lease(self) -> CheckLease | None:
        if self._leased and self._lease is None:
            from kafka_steward.execution.watch_lease import CheckLease
            from kafka_steward.journal.locks import new_holder_name

            self._lease = CheckLease(self.KIND, new_holder_name())
        return self._lease

    def _release_lease(self, opened: ClusterSession) -> None:
        if self._lease is not None:
            self._lease.release(opened.journal)

    def poll_standby(self, opened: ClusterSession, pause_s: float) -> tuple[dict[str, Any] | None, float]:
        """Return the event to emit while another watch makes the check, and the seconds until the next look."""
        del opened  # for those whose events do not come from their own polls
        return None, pause_s

    def describe(self, found: Found) -> CheckReport:
        """Return what the page shows of a successful poll; by default, that it was one."""
        from kafka_steward.journal.observed import CheckReport

        del found  # for those that have a state
        return CheckReport(self.conn_id, self.KIND)

    @abstractmethod
    def poll(self, opened: ClusterSession) -> tuple[dict[str, Any] | None, Found, float]:
        """Run one check, in the thread. Return the event to emit, the state, and the seconds until the next check."""

    def report(self, found: Found) -> None:
        """Log the state and set its gauges, in the event loop; by default, nothing."""

    async def wait(self, seconds: float) -> None:
        """Wait until the next check."""
        # Not `asyncio.wait_for`: before Python 3.12 it ignores a cancel that comes together with `wake`.
        woken = asyncio.create_task(self._wake.wait())
        try:
            await asyncio.wait({woken}, timeout=seconds)
        finally:
            woken.cancel()
        self._wake.clear()

    def wake(self) -> None:
        """End the current wait. Call it in the event loop."""
        self._wake.set()

    def close(self) -> None:
        """Close the connections, without waiting for them."""
        self._worker.close()


class BrokerFailureCheck(PeriodicCheck["DetectionResult"]):
    """Emits an event while a broker failure is due, and maintains the entries of KIP-46 in the journal."""

    KIND = "failures"
    FAILING = "failing"
    WHAT = "check for failed brokers"
    EVENT = "broker-failed"

    #: The last result of its own polls.
    latest: DetectionResult | None = None
    #: The detector and the upkeep of one connection, and its interval: re-created after an error.
    _detector: tuple[ClusterSession, FailureDetector, PlanUpkeep, float] | None = None
    #: The messages about plans that became idle, since the last report.
    _idle: Sequence[str] = ()

    def listen_for(self, events: Collection[str]) -> None:
        """Emit the event if somebody listens to it; poll in any case for the alerts."""
        super().listen_for(events)
        self.is_needed = "alert" in events

    def poll(self, opened: ClusterSession) -> tuple[dict[str, Any] | None, DetectionResult, float]:
        """Detect failed brokers, and do the chores."""
        from kafka_steward.execution.failure_detector import FailureDetector
        from kafka_steward.execution.ports import ClusterContext
        from kafka_steward.execution.upkeep import PlanUpkeep
        from kafka_steward.journal.audit import Actor

        if self._detector is None or self._detector[0] is not opened:
            who = Actor(task_id="watch")
            detector = FailureDetector(opened.cluster, opened.journal, opened.settings, who)
            upkeep = PlanUpkeep(ClusterContext(opened.cluster, opened.journal, opened.settings, who))
            self._detector = opened, detector, upkeep, _poll_interval_s(opened)
        _, detector, upkeep, interval_s = self._detector
        verdict = detector.poll(announce=self.emits)
        self._idle = upkeep.run()
        return event_payload(opened, verdict.now_ms, verdict.due) if verdict.due else None, verdict, interval_s

    def describe(self, found: DetectionResult) -> CheckReport:
        """Return the failed brokers, and when the heal of the first one is due."""
        return replace(
            super().describe(found),
            state=found.state,
            sentence=found.stated,
            brokers=found.down,
            due_ms=found.due_ms,
        )

    def report(self, found: DetectionResult) -> None:
        """Log a changed state and newly idle plans, and count the failed brokers and log directories."""
        self.latest = found
        self.reporter.log_new(self._idle)
        # Without the message, which counts down the seconds of the grace period.
        self.reporter.log_once(found.sentence, about=replace(found, due=(), sentence="", now_ms=0))
        set_gauge("failed_brokers", self.conn_id, len(found.down))
        set_gauge("failed_log_dirs", self.conn_id, found.failed_log_dir_count)
        set_gauge("due_brokers", self.conn_id, len(found.failed))


def _poll_interval_s(opened: ClusterSession) -> float:
    # Two restarts within one grace period must be detected as two: four polls per session timeout (KIP-46).
    brokers = opened.cluster.broker_configs(sorted(opened.cluster.live_brokers())[:1], _SESSION_TIMEOUTS)
    sessions_s = [
        int(configs[name]) / 1000 for configs in brokers.values() for name in _SESSION_TIMEOUTS if name in configs
    ]
    return min([opened.settings.watch_interval, *(session_s / 4 for session_s in sessions_s)])


class BrokerJoinCheck(PeriodicCheck["JoinPollResult | None"]):
    """Emits an event when a live broker can take pending replicas (KIP-409).

    Kafka is not polled while neither a pending replica nor a deferred partition request exists.
    """

    KIND = "joined_brokers"
    WHAT = "check for brokers that joined"
    EVENT = "broker-joined"

    def poll(self, opened: ClusterSession) -> tuple[dict[str, Any] | None, JoinPollResult | None, float]:
        """Check, and reconcile the pending replicas."""
        from kafka_steward.execution.broker_joins import poll_joined_brokers
        from kafka_steward.journal.audit import Actor

        joined = poll_joined_brokers(
            opened.cluster, opened.journal, opened.settings, Actor(task_id="watch"), announce=self.emits
        )
        event = event_payload(opened, joined.now_ms, joined.due) if joined is not None and joined.due else None
        return event, joined, opened.settings.watch_interval

    def describe(self, found: JoinPollResult | None) -> CheckReport:
        """Return that replicas are pending, and what they wait for."""
        from kafka_steward.journal.observed import CheckState

        said = super().describe(found)
        return said if found is None else replace(said, state=CheckState.PENDING, sentence=found.sentence)

    def report(self, found: JoinPollResult | None) -> None:
        """Log a changed state, and count the pending replicas."""
        set_gauge("pending_replicas", self.conn_id, 0 if found is None else found.pending)
        if found is not None:
            self.reporter.log_once(found.sentence, about=found.sentence)


class EmptyBrokerCheck(PeriodicCheck["EmptyBrokers"]):
    """Emits an event while a live broker is empty, until a run has claimed it; after the fill (KIP-409)."""

    KIND = "empty_brokers"
    WHAT = "check for empty brokers"
    EVENT = "broker-new"

    def poll(self, opened: ClusterSession) -> tuple[dict[str, Any] | None, EmptyBrokers, float]:
        """Check, and record the empty brokers."""
        from kafka_steward.execution.broker_joins import poll_empty_brokers

        found = poll_empty_brokers(opened.cluster, opened.journal, opened.settings, announce=self.emits)
        event = event_payload(opened, found.now_ms, found.due) if found.due else None
        return event, found, opened.settings.watch_interval

    def report(self, found: EmptyBrokers) -> None:
        """Log a changed state."""
        self.reporter.log_once(found.sentence, about=found.sentence)


class ClusterHealthCheck(PeriodicCheck[None]):
    """Measures the cluster's health (KIP-352), as metrics and as rows for plots. Emits no event.

    Runs in a thread of its own: a stalled broker must not keep the watch from detecting the failure of another one.
    """

    KIND = "health"
    WHAT = "measure the cluster's health"

    _before: CopiedBytes | None = None
    _sized_s: float | None = None

    def poll(self, opened: ClusterSession) -> tuple[None, None, float]:
        """Measure, emit the metrics, and store the rows."""
        from kafka_steward.execution.health import check_health
        from kafka_steward.execution.watch_reports import broker_reports

        every_s = opened.settings.health_interval
        if not every_s:
            return None, None, OFF_S
        now_s = time.monotonic()
        sized = self._sized_s is None or now_s - self._sized_s >= SIZED_EVERY_S
        health, self._before = check_health(
            opened.cluster,
            opened.journal,
            self._before,
            sized=sized,
            service_topics=opened.settings.service_topic_patterns,
        )
        self._sized_s = now_s if sized else self._sized_s
        emit_health(self.conn_id, health.measures)
        if opened.journal.health is not None:
            days_ms = int(opened.settings.health_retention * 86_400_000)
            opened.journal.health.add_measures(health.measures, every_ms=int(every_s * 1000), retention_ms=days_ms)
        if opened.journal.watch_reports is not None:
            opened.journal.watch_reports.replace_brokers(broker_reports(health))
        return None, None, every_s
