"""The checks of the watch: failed brokers, joined ones, empty ones, and the health of the cluster.

Each decides by what one tick of the watch has observed: `loops` runs them.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

from kafka_steward.execution.load.look import LoadWatch, load_measures
from kafka_steward.execution.watch.broker_joins import poll_empty_brokers, poll_joined_brokers
from kafka_steward.execution.watch.failure_detector import FailureDetector
from kafka_steward.execution.watch.health import check_health
from kafka_steward.execution.watch.imbalance import ImbalanceWatch
from kafka_steward.execution.watch.observation import CheckRecorder, ObservedCluster, broker_reports
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.observed import CheckReport, CheckState
from kafka_steward.triggers.reporting import WatchReporter, emit_health, event_payload, set_gauge

if TYPE_CHECKING:
    from kafka_steward.cluster.client import KafkaCluster
    from kafka_steward.cluster.health import CopiedBytes
    from kafka_steward.execution.load.look import BytesIn
    from kafka_steward.execution.watch.broker_joins import EmptyBrokers, JoinPollResult
    from kafka_steward.execution.watch.failure_detector import DetectionResult
    from kafka_steward.execution.watch.imbalance import ImbalanceReport
    from kafka_steward.hooks.session import ClusterSession


Found = TypeVar("Found")

#: Seconds between two health checks that ask each broker for the bytes of its replicas: a large answer.
SIZED_EVERY_S = 600.0
#: Seconds after which a setting that disabled a check is read again.
OFF_S = 60.0
#: Kafka's settings for the time until an unresponsive broker counts as dead, in milliseconds: KRaft's, ZooKeeper's.
_SESSION_TIMEOUTS = ("broker.session.timeout.ms", "zookeeper.session.timeout.ms")


class Check(ABC, Generic[Found]):
    """A check of the watch, as `KIND` in the journal.

    While `emits` is False it returns no event, and records none as emitted: nobody listens to it.
    """

    KIND: ClassVar[str]
    WHAT: ClassVar[str]
    #: The gauge of consecutive errors; by default it is named after `KIND`.
    FAILING: ClassVar[str] = ""
    #: The event that it emits, of the watch's; empty: none.
    EVENT: ClassVar[str] = ""

    def __init__(
        self,
        conn_id: str,
        log: Callable[..., None],
        *,
        log_error: Callable[..., None] | None = None,
        log_warning: Callable[..., None] | None = None,
    ) -> None:
        self.conn_id = conn_id
        failing = self.FAILING or f"{self.KIND}_failing"
        self.reporter = WatchReporter(
            conn_id, log, failing=failing, what=self.WHAT, log_error=log_error, log_warning=log_warning
        )
        self.emits = True
        #: What writes the state for the page.
        self.recorder = CheckRecorder()

    def listen_for(self, events: Collection[str]) -> None:
        """Emit the event of this check if it is among `events`, to which somebody listens."""
        self.emits = self.EVENT in events

    def events_of(self, event: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Return the payloads of a poll by event."""
        return {self.EVENT: event}

    def describe(self, result: Found) -> CheckReport:
        """Return what the page shows of a successful poll; by default, that it was one."""
        del result  # for those that have a state
        return CheckReport(self.conn_id, self.KIND)

    @abstractmethod
    def poll(self, opened: ClusterSession) -> tuple[dict[str, Any] | None, Found, float]:
        """Run the check in a thread. Return the event to emit, the state, and the seconds until the next poll."""

    def report(self, result: Found) -> None:
        """Log the state and set its gauges, in the event loop; by default, nothing."""


class BrokerFailureCheck(Check["DetectionResult"]):
    """Emits an event while a broker failure is due, and maintains the entries of KIP-46 in the journal."""

    KIND = "failures"
    FAILING = "failing"
    WHAT = "check for failed brokers"
    EVENT = "broker-failed"

    #: The last result of its own polls.
    latest: DetectionResult | None = None
    #: The detector of one connection, and its interval: re-created after an error.
    _detector: tuple[ClusterSession, FailureDetector, float] | None = None

    def poll(self, opened: ClusterSession) -> tuple[dict[str, Any] | None, DetectionResult, float]:
        """Detect failed brokers."""
        if self._detector is None or self._detector[0] is not opened:
            detector = FailureDetector(opened.cluster, opened.journal, opened.settings, Actor(task_id="watch"))
            self._detector = opened, detector, _poll_interval_s(opened)
        _, detector, interval_s = self._detector
        verdict = detector.poll(announce=self.emits)
        return event_payload(opened, verdict.now_ms, verdict.due) if verdict.due else None, verdict, interval_s

    def describe(self, result: DetectionResult) -> CheckReport:
        """Return the failed brokers, and when the heal of the first one is due."""
        return replace(
            super().describe(result),
            state=result.state,
            sentence=result.stated,
            brokers=result.down,
            due_ms=result.due_ms,
        )

    def report(self, result: DetectionResult) -> None:
        """Log a changed state, and count the failed brokers and log directories."""
        self.latest = result
        # The message itself counts down the seconds of the grace period.
        self.reporter.log_once(result.sentence, about=result.stated)
        set_gauge("failed_brokers", self.conn_id, len(result.down))
        set_gauge("failed_log_dirs", self.conn_id, result.failed_log_dir_count)
        set_gauge("due_brokers", self.conn_id, len(result.failed))


def _poll_interval_s(opened: ClusterSession) -> float:
    # Two restarts within one grace period must be detected as two: four polls per session timeout (KIP-46).
    brokers = opened.cluster.broker_configs(sorted(opened.cluster.live_brokers())[:1], _SESSION_TIMEOUTS)
    sessions_s = [
        int(configs[name]) / 1000 for configs in brokers.values() for name in _SESSION_TIMEOUTS if name in configs
    ]
    return min([opened.settings.watch_interval, *(session_s / 4 for session_s in sessions_s)])


class BrokerJoinCheck(Check["JoinPollResult | None"]):
    """Emits an event when a live broker can take pending replicas (KIP-409).

    Kafka is not polled while neither a pending replica nor a deferred partition request exists.
    """

    KIND = "joined_brokers"
    WHAT = "check for brokers that joined"
    EVENT = "broker-joined"

    def poll(self, opened: ClusterSession) -> tuple[dict[str, Any] | None, JoinPollResult | None, float]:
        """Check, and reconcile the pending replicas."""
        joined = poll_joined_brokers(
            opened.cluster, opened.journal, opened.settings, Actor(task_id="watch"), announce=self.emits
        )
        event = event_payload(opened, joined.now_ms, joined.due) if joined is not None and joined.due else None
        return event, joined, opened.settings.watch_interval

    def describe(self, result: JoinPollResult | None) -> CheckReport:
        """Return that replicas are pending, and what they wait for."""
        description = super().describe(result)
        return (
            description if result is None else replace(description, state=CheckState.PENDING, sentence=result.sentence)
        )

    def report(self, result: JoinPollResult | None) -> None:
        """Log a changed state, and count the pending replicas."""
        set_gauge("pending_replicas", self.conn_id, 0 if result is None else result.pending)
        if result is not None:
            self.reporter.log_once(result.sentence, about=result.sentence)


class EmptyBrokerCheck(Check["EmptyBrokers"]):
    """Emits an event while a live broker is empty, until a run has claimed it; after the fill (KIP-409)."""

    KIND = "empty_brokers"
    WHAT = "check for empty brokers"
    EVENT = "broker-new"

    def poll(self, opened: ClusterSession) -> tuple[dict[str, Any] | None, EmptyBrokers, float]:
        """Check, and record the empty brokers."""
        empty = poll_empty_brokers(opened.cluster, opened.journal, opened.settings, announce=self.emits)
        event = event_payload(opened, empty.now_ms, empty.due) if empty.due else None
        return event, empty, opened.settings.watch_interval

    def report(self, result: EmptyBrokers) -> None:
        """Log a changed state."""
        self.reporter.log_once(result.sentence, about=result.sentence)


class ClusterHealthCheck(Check["ImbalanceReport | None"]):
    """Measures the cluster's health (KIP-352), as metrics and as rows for plots; emits events of what stands out.

    Runs in a thread of its own: a stalled broker must not keep the watch from detecting the failure of another one.
    """

    KIND = "health"
    WHAT = "measure the cluster's health"

    _before: CopiedBytes | None = None
    _sized_s: float | None = None
    _load: LoadWatch | None = None
    _listened: frozenset[str] = frozenset()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._imbalance = ImbalanceWatch()

    def listen_for(self, events: Collection[str]) -> None:
        """Emit those of `events` that are about brokers that stand out."""
        self._listened = frozenset(events)

    def events_of(self, event: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Return the payloads by event, as `poll` has them."""
        return event

    def poll(self, opened: ClusterSession) -> tuple[dict[str, Any] | None, ImbalanceReport | None, float]:
        """Measure, emit the metrics, and store the rows."""
        every_s = opened.settings.health_interval
        if not every_s:
            return None, None, OFF_S
        now_s = time.monotonic()
        sized = self._sized_s is None or now_s - self._sized_s >= SIZED_EVERY_S
        cluster = cast("KafkaCluster", ObservedCluster(opened.cluster))
        health, self._before = check_health(
            cluster,
            opened.journal,
            self._before,
            sized=sized,
            service_topics=opened.settings.service_topic_patterns,
        )
        self._sized_s = now_s if sized else self._sized_s
        load = self._look_at_load(opened, cluster, sized=sized)
        measures = health.measures | load_measures(load)
        emit_health(self.conn_id, measures)
        if opened.journal.health is not None:
            days_ms = int(opened.settings.health_retention * 86_400_000)
            opened.journal.health.add_measures(measures, every_ms=int(every_s * 1000), retention_ms=days_ms)
        if opened.journal.watch_reports is not None:
            opened.journal.watch_reports.replace_brokers(broker_reports(health, load))
        led = {broker: found.as_leader for broker, found in load.items()}
        disks = cluster.directories(sorted(cluster.snapshot().live))
        report = self._imbalance.look(
            opened.journal, led, disks, opened.settings, demoted=health.demoted, listened=self._listened
        )
        events = {event: event_payload(opened, report.now_ms, brokers) for event, brokers in report.due.items()}
        return events or None, report, every_s

    def report(self, result: ImbalanceReport | None) -> None:
        """Log which brokers stand out, if that has changed."""
        if result is not None:
            self.reporter.log_once(result.sentence, about=result.sentence)

    def _look_at_load(self, opened: ClusterSession, cluster: KafkaCluster, *, sized: bool) -> Mapping[int, BytesIn]:
        """Look at what producers bring into partitions; `cluster` has been read in this poll."""
        if self._load is None or not self._load.is_of(opened.journal):
            self._load = LoadWatch(opened.journal)
        snapshot = cluster.snapshot()
        self._load.look(cluster, opened.journal, snapshot, cluster.log_dirs(sorted(snapshot.live)) if sized else None)
        return self._load.brokers
