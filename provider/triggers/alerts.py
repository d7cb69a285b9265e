"""The check of the watch that finds what people should be told of, and starts the DAG `alert`.

Airflow runs no callbacks in the triggerer. The check needs the journal only, so it works while Kafka does not answer.
It uses what the other checks of its watch have found. While the journal does not answer either, its events are kept in
memory, and name what has failed themselves.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from kafka_steward.assignment import name_brokers
from kafka_steward.execution.watch.alerts import (
    OVERDUE_MS,
    Condition,
    read_plan_conditions,
    record_unrecorded_outage,
    update_alerts,
)
from kafka_steward.execution.watch.upkeep import ended_plans_with_leases
from kafka_steward.triggers.base import ClusterWorker, FreshConnections
from kafka_steward.triggers.checks import BrokerFailureCheck, Check
from kafka_steward.triggers.loops import CheckLoop
from kafka_steward.triggers.reporting import event_payload, set_gauge

if TYPE_CHECKING:
    from kafka_steward.execution.watch.failure_detector import DetectionResult
    from kafka_steward.hooks.cluster_config import ClusterConfig
    from kafka_steward.hooks.session import ClusterSession
    from kafka_steward.hooks.steward import StewardHook
    from kafka_steward.journal.store import Journal
    from kafka_steward.settings import Settings

#: Seconds between two looks.
_POLL_S = 10.0
#: Seconds for which a check may fail, or a check for failed brokers stall, before people are told.
FAILING_S, STALLED_S = 120.0, 300.0
#: Seconds between two looks at the check itself, and between two of its events while the journal does not answer.
_OWN_POLL_S, _REPEATED_S = 15.0, 3600.0
#: Milliseconds within which the hosts that opened a local journal are counted.
_HOSTS_WITHIN_MS = 86_400_000


@dataclass(frozen=True)
class _ClusterName:
    cluster_id: str


@dataclass(frozen=True)
class JournalSession:
    """An open journal without its cluster: the part of a ClusterSession that the check uses."""

    access: ClusterConfig
    cluster: _ClusterName
    journal: Journal

    @property
    def settings(self) -> Settings:
        """The cluster's settings."""
        return self.access.settings

    @property
    def origin(self) -> dict[str, str] | None:
        """The identity of the journal, as of a ClusterSession."""
        return None if self.journal.identity is None else self.journal.identity.to_json()

    def close(self) -> None:
        """Close the journal's connections."""
        self.journal.close()


class JournalWorker(ClusterWorker):
    """A ClusterWorker that opens the journal only."""

    def _create_connections(self) -> FreshConnections:
        return FreshConnections(self._create_hook, _open_journal_only, reread_s=self._reread_s, clock=self._clock)


def _open_journal_only(hook: StewardHook) -> AbstractContextManager[ClusterSession]:
    cluster_id = hook.cluster_id()
    session = JournalSession(hook.access, _ClusterName(cluster_id), hook.journal(cluster_id))
    return closing(cast("ClusterSession", session))


@dataclass(frozen=True)
class CheckState:
    """Another check of the watch: whether its last poll failed, and the seconds since it last succeeded."""

    kind: str
    is_failing: bool
    age_s: float
    message: str


class AlertCheck(Check["Sequence[Condition]"]):
    """Emits an event while people are to be notified of something: see kafka_steward.execution.watch.alerts."""

    KIND = "alerts"
    WHAT = "look for what people should be told of"
    EVENT = "alert"

    #: The checks of its watch, itself included.
    watched: Callable[[], Collection[Check[Any]]] = tuple
    #: The alert of the journal's outage, if it was emitted; and when.
    _unrecorded: tuple[Condition, float] | None = None
    #: Plans that have ended and still have throttle leases.
    _leases = 0
    #: Milliseconds for which the oldest request for an approval has waited; and the hosts that opened a local journal.
    _approval_ms, _hosts = 0, 0

    def poll(self, opened: ClusterSession) -> tuple[dict[str, Any] | None, Sequence[Condition], float]:
        """Find the conditions, and record the alerts."""
        journal = opened.journal
        now_ms = journal.now_ms()
        if self._unrecorded is not None:
            record_unrecorded_outage(journal, self._unrecorded[0], now_ms)
            self._unrecorded = None
        latest = next((check.latest for check in self.watched() if isinstance(check, BrokerFailureCheck)), None)
        states = [_state_of(check) for check in self.watched() if check is not self]
        conditions = [
            *read_plan_conditions(journal),
            *failure_conditions(latest),
            *watch_conditions(self.conn_id, states),
        ]
        self._leases = len(ended_plans_with_leases(journal))
        if journal.plan_reports is not None and journal.hosts is not None:
            self._approval_ms = journal.plan_reports.longest_wait_ms()
            self._hosts = journal.hosts.count_hosts_of_local_database(_HOSTS_WITHIN_MS)
        due = update_alerts(journal, conditions, now_ms)
        event = None if not due else {**event_payload(opened, now_ms), "alerts": sorted(due)}
        return event, conditions, _POLL_S

    def report(self, conditions: Sequence[Condition]) -> None:
        """Log a changed set of conditions, and count those that a plan has."""
        keys = tuple(sorted(condition.key for condition in conditions))
        sentence = " ".join(condition.sentence for condition in conditions) or "Nothing needs a person."
        self.reporter.log_once(sentence, about=keys)
        for gauge, kind in (("plans_stuck", "stuck"), ("plans_stalled", "stalled"), ("plans_idle", "no_process")):
            set_gauge(gauge, self.conn_id, sum(condition.kind == kind for condition in conditions))
        set_gauge("orphaned_throttles", self.conn_id, self._leases)
        set_gauge("approval_age", self.conn_id, self._approval_ms // 1000)
        set_gauge("journal_hosts", self.conn_id, self._hosts)

    def own_event(self, state: CheckState, now_s: float) -> dict[str, Any] | None:
        """Return the event about this check itself, if it has failed for long and no event said so recently."""
        conditions = watch_conditions(self.conn_id, [state])
        last_s = None if self._unrecorded is None else self._unrecorded[1]
        if not conditions or (last_s is not None and now_s - last_s < _REPEATED_S):
            return None
        self._unrecorded = conditions[0], now_s
        alert = {"kind": conditions[0].kind, "subject": conditions[0].subject, "sentence": conditions[0].sentence}
        return {"conn_id": self.conn_id, "at_ms": int(time.time() * 1000), "unrecorded": [alert]}


class AlertLoop(CheckLoop):
    """The loop of the alerts, while somebody listens to them, wherever."""

    @property
    def is_needed(self) -> bool:
        """Whether this watch leads, and somebody listens."""
        return self._role.leads and AlertCheck.EVENT in self._events.events | self._role.passed_on

    async def run(self) -> None:
        """Poll until cancelled; publish events to those who listen."""
        await asyncio.gather(super().run(), self._watch_the_journal())

    async def _watch_the_journal(self) -> None:
        """Publish an event while the check itself fails, which means that the journal does not answer."""
        while True:
            await asyncio.sleep(_OWN_POLL_S)
            for check in self.checks:
                event = check.own_event(_state_of(check), time.monotonic()) if isinstance(check, AlertCheck) else None
                if event is not None and AlertCheck.EVENT in self._events.events:
                    self._events.publish(AlertCheck.EVENT, event)


def _state_of(check: Check[Any]) -> CheckState:
    reporter = check.reporter
    return CheckState(check.KIND, reporter.failures > 0, reporter.age_s, reporter.last_message)


def watch_conditions(conn_id: str, states: Collection[CheckState]) -> list[Condition]:
    """Return a condition for each check that has failed or stalled for long. Pure."""
    conditions = []
    for state in states:
        if state.is_failing and state.age_s >= FAILING_S:
            conditions.append(Condition("watch_failing", state.message, state.kind))
        elif state.kind == BrokerFailureCheck.KIND and state.age_s >= STALLED_S:
            sentence = f"The watch of {conn_id} has not checked for failed brokers for {state.age_s:.0f} s: it stalls."
            conditions.append(Condition("watch_failing", sentence, state.kind))
    return conditions


def failure_conditions(detected: DetectionResult | None) -> list[Condition]:
    """Return the conditions of failed brokers; none while it is unknown which brokers have failed. Pure."""
    if detected is None:
        return []
    if detected.outage:
        return [Condition("outage", detected.sentence)]
    if detected.failed:
        sentence = f"No plan heals {name_brokers(detected.failed)}, whose heal is due: see the runs of the DAG heal."
        return [Condition("heal_overdue", f"{sentence} {detected.sentence}", delay_ms=OVERDUE_MS)]
    return []
