"""The loops of the watch: each runs its checks in a thread of its own, and publishes their events.

The tick of the watch is that of `DetectionLoop`: it has the lease, asks for the live brokers each time, and runs its
checks on one observation when they are due or the live brokers have changed. What may take long has a loop of its own,
so that it does not keep the watch from detecting a failure: the documents, the health of a stalled broker, the alerts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from kafka_steward.errors import ClusterError, KafkaRefused
from kafka_steward.execution.watch.lease import (
    ClusterLease,
    list_listened_events,
    listen_to_event,
    pass_event_on,
    take_event,
)
from kafka_steward.execution.watch.observation import ObservedCluster
from kafka_steward.execution.watch.upkeep import run_chores
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.locks import new_holder_name
from kafka_steward.triggers.base import ClusterWorker
from kafka_steward.triggers.checks import Check
from kafka_steward.triggers.reporting import event_payload

if TYPE_CHECKING:
    from kafka_steward.cluster.client import KafkaCluster
    from kafka_steward.execution.watch.failure_detector import DetectionResult
    from kafka_steward.execution.watch.lease import Standby
    from kafka_steward.hooks.session import ClusterSession
    from kafka_steward.hooks.steward import StewardHook
    from kafka_steward.triggers.checks import BrokerFailureCheck

#: Seconds until a loop that is not needed looks again whether it is; it is also woken.
_UNNEEDED_S = 60.0
#: Seconds between two looks of a watch that stands by for the events that are passed on to it.
_PASSED_ON_S = 5.0
#: The most seconds between two decisions of the watch while the live brokers do not change.
_DECIDED_EVERY_S = 2.0

#: What a poll of a check returns, or its error.
Result: TypeAlias = tuple[dict[str, Any] | None, Any, float] | Exception
Outcome: TypeAlias = tuple[Check[Any], Result]


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


@dataclass
class WatchRole:
    """The part of this watch among those of its cluster: whether it `leads`, as all do that see no other watch.

    `passed_on` are the events to which watches listen that stand by.
    """

    leads: bool = True
    passed_on: frozenset[str] = frozenset()


class ChecksFailed(Exception):
    """At least one check of a poll has failed."""

    def __init__(self, outcomes: Sequence[Outcome]) -> None:
        super().__init__()
        self.outcomes = outcomes


class CheckLoop:
    """Runs checks in the thread of `worker`, one after another. It never ends, and raises nothing.

    It polls only while this watch leads. The first check says when the next poll is, also after an error.
    """

    def __init__(
        self, worker: ClusterWorker, checks: Sequence[Check[Any]], events: EventQueues, role: WatchRole
    ) -> None:
        self.checks = checks
        self._worker, self._events, self._role = worker, events, role
        self._wake, self._woken, self._rests = asyncio.Event(), False, False
        self._listened: frozenset[str] = frozenset()
        #: The seconds until the next poll, if none was made.
        self._pause_s = _UNNEEDED_S

    @property
    def is_needed(self) -> bool:
        """Whether its checks are to be polled now."""
        return self._role.leads

    async def run(self) -> None:
        """Poll until cancelled; publish events to those who listen."""
        while True:
            self._rests = not self.is_needed
            await self.wait(_UNNEEDED_S if self._rests else await self.tick())

    async def tick(self) -> float:
        """Poll once, report and publish; return the seconds until the next poll."""
        self._listened = self._events.events
        try:
            outcomes: Sequence[Outcome] = await self._worker.submit(self.poll)
        except ChecksFailed as failed:
            outcomes = failed.outcomes
        except Exception as error:  # noqa: BLE001 - no error may end the watch: Airflow would restart it every 2 s
            outcomes = [(check, error) for check in self.checks]
        pauses_s = [self._report(*outcome) for outcome in outcomes]
        errors = {check: result for check, result in outcomes if isinstance(result, Exception)}
        if errors:
            await self._worker.call_without_session(partial(_record_failures, errors))
        return pauses_s[0] if pauses_s else self._pause_s

    def poll(self, opened: ClusterSession) -> Sequence[Outcome]:
        """Poll the checks in the thread, and record that; pass events on to watches that stand by."""
        with opened.journal.one_read():
            outcomes = self.poll_checks(opened)
        return self.record(opened, outcomes)

    def poll_checks(self, opened: ClusterSession) -> list[Outcome]:
        """Poll each check, also if another one has failed."""
        self._woken = False
        listened = self._listened | self._role.passed_on
        return [(check, _poll(check, opened, listened)) for check in self.checks]

    def record(self, opened: ClusterSession, outcomes: Sequence[Outcome]) -> Sequence[Outcome]:
        """Record what succeeded. Raises ChecksFailed, so that all is opened again, after an error but Kafka's no."""
        polled = [(check, result) for check, result in outcomes if not isinstance(result, Exception)]
        opened.journal.record_poll(*(check.KIND for check, _ in polled))
        for check, (event, observed, _) in polled:
            check.recorder.record(opened.journal, check.describe(observed))
            if event is not None and self._role.passed_on:
                payloads = check.events_of(event)
                for name in payloads.keys() & self._role.passed_on:
                    pass_event_on(opened.journal, name, payloads[name])
        if any(isinstance(result, Exception) and not isinstance(result, KafkaRefused) for _, result in outcomes):
            raise ChecksFailed(outcomes)
        return outcomes

    def _report(self, check: Check[Any], result: Result) -> float:
        """Report the outcome of a poll in the event loop; return the seconds until the next one."""
        if isinstance(result, Exception):
            return check.reporter.report_error(result)
        event, observed, pause_s = result
        check.reporter.record_success()
        check.report(observed)
        for name, payload in check.events_of(event).items() if event is not None else ():
            # Who ceased to listen during the poll may come again: what was recorded as emitted is kept for them.
            if name in self._events.events or name not in self._role.passed_on:
                self._events.publish(name, payload)
        return pause_s

    async def wait(self, seconds: float) -> None:
        """Wait until the next poll."""
        # Not `asyncio.wait_for`: before Python 3.12 it ignores a cancel that comes together with `wake`.
        woken = asyncio.create_task(self._wake.wait())
        try:
            await asyncio.wait({woken}, timeout=seconds)
        finally:
            woken.cancel()
        self._wake.clear()

    def wake(self) -> None:
        """End the current wait, and poll all checks. Call it in the event loop."""
        self._woken = True
        self._wake.set()

    def reconsider(self) -> None:
        """Find out at once whether it is needed now, if it was not. Call it in the event loop."""
        if self._rests:
            self._wake.set()

    def close(self) -> None:
        """Close the connections, without waiting for them."""
        self._worker.close()


def _poll(check: Check[Any], opened: ClusterSession, listened: Collection[str]) -> Result:
    check.listen_for(listened)
    try:
        return check.poll(opened)
    except Exception as error:  # noqa: BLE001 - the other checks are polled all the same
        return error


def _record_failures(errors: Mapping[Check[Any], Exception], hook: StewardHook) -> None:
    """Record that polls failed, in the journal's database alone: Kafka may not answer."""
    for check in errors:
        check.recorder.forget()
    with hook.watch_reports() as reports:
        if reports is not None:
            for check, error in errors.items():
                reports.put_failure(check.conn_id, check.KIND, str(error), failures=check.reporter.failures)


class Tick:
    """What the ticks on one connection keep: the observation, the chores, and when the next decision is due."""

    def __init__(self, opened: ClusterSession) -> None:
        self.opened = opened
        self.cluster: ObservedCluster = ObservedCluster(opened.cluster)
        #: The connection as the checks see it. The chores change the cluster, and do not use the observation.
        self.seen = replace(opened, cluster=cast("KafkaCluster", self.cluster))
        self.context = opened.context(Actor(task_id="watch"))
        self._live: frozenset[int] | None = None
        self._due_s = 0.0

    @property
    def decided_every_s(self) -> float:
        """The seconds between two decisions while nothing changes, as far as ticks are as frequent."""
        return min(self.opened.settings.watch_interval, _DECIDED_EVERY_S)

    def is_quiet(self) -> bool:
        """Return whether the live brokers are those of the last decision, and no decision is due. Raises ClusterError.

        While some brokers do not see yet that another one is down, a decision is due at each tick.
        """
        return (
            self._live is not None
            and time.monotonic() < self._due_s
            and self.cluster.live_brokers().keys() == self._live
        )

    def decided(self, result: DetectionResult) -> None:
        """Keep what was decided, and when the next decision is due."""
        self._live = None
        with suppress(ClusterError):
            live = frozenset(self.cluster.live_brokers())
            self._live = live if frozenset(result.known) - live == frozenset(result.down) else None
        left_s = [] if result.due_ms is None else [(result.due_ms - result.now_ms) / 1000]
        self._due_s = time.monotonic() + min([self.decided_every_s, *left_s])

    def reset(self) -> None:
        """Decide at the next tick."""
        self._live = None


class DetectionLoop(CheckLoop):
    """The tick of the watch: the lease, one observation, the checks of brokers, and the chores of plans.

    Of several watches of a cluster one has the lease and polls. `on_change` is called in the event loop when this watch
    begins or ceases to be that one.
    """

    def __init__(
        self,
        worker: ClusterWorker,
        failures: BrokerFailureCheck,
        others: Sequence[Check[Any]],
        events: EventQueues,
        *,
        role: WatchRole,
        on_change: Callable[[], None],
    ) -> None:
        super().__init__(worker, [failures, *others], events, role)
        self._failures, self._on_change = failures, on_change
        worker.before_close.append(self._give_back)
        self._lease: ClusterLease | None = None
        self._tick: Tick | None = None
        #: What the last tick found in the thread: the watch that has the lease; the events that were passed on to this
        #: one, and those for which it keeps a document; the messages of the chores.
        self._standby: Standby | None = None
        self._passed: list[tuple[str, dict[str, Any]]] = []
        self._kept: frozenset[str] = frozenset()
        self._idle: Sequence[str] = ()

    @property
    def is_needed(self) -> bool:
        """It always is: it finds out whether this watch leads."""
        return True

    async def tick(self) -> float:
        """Tick once. Return the seconds until the next tick."""
        self._forget()
        pause_s = await super().tick()
        reporter = self._failures.reporter
        if self._standby is not None:
            pause_s = self._standby.pause_s
            reporter.log_once(self._standby.sentence(self._failures.conn_id), about=self._standby.owner)
        reporter.log_new(self._idle)
        for event, payload in self._passed:
            self._events.publish(event, payload)
        if self._role.leads is not (self._standby is None):
            self._role.leads = self._standby is None
            self._on_change()
        return pause_s

    def _forget(self) -> None:
        # Not in `tick`: mypy would take them to stay so, and the thread sets them meanwhile.
        self._standby, self._passed, self._idle = None, [], ()

    def poll(self, opened: ClusterSession) -> Sequence[Outcome]:
        """Tick in the thread."""
        if self._tick is None or self._tick.opened is not opened:
            self._tick = Tick(opened)
        tick = self._tick
        tick.cluster.begin_tick()
        if not self._woken and self._role.leads and tick.is_quiet():
            return []
        with opened.journal.one_read():
            self._standby = self._find_standby(opened)
            if self._standby is not None:
                tick.reset()
                return []
            outcomes = self.poll_checks(tick.seen)
            self._finish(tick, dict(outcomes).get(self._failures))
        return self.record(opened, outcomes)

    def _finish(self, tick: Tick, verdict: Result | None) -> None:
        """After a successful check for failed brokers do the chores, and renew the lease."""
        if verdict is None or isinstance(verdict, Exception):
            tick.reset()
            return
        _, observed, self._pause_s = verdict
        tick.decided(observed)
        self._idle = run_chores(tick.context)
        # Last, because no read after a change is answered from the one that the tick has begun with.
        if self._lease is not None:
            self._lease.renew(tick.opened.journal, max(self._pause_s, tick.decided_every_s))

    def _find_standby(self, opened: ClusterSession) -> Standby | None:
        """Take the lease, or return who has it; take the events that were passed on to this watch."""
        self._lease = self._lease or ClusterLease(new_holder_name())
        standby = self._lease.stand_by(opened.journal)
        known, mine = list_listened_events(opened.journal), self._listened
        for event in sorted(known & (mine | self._kept)):
            self._take(opened, event, goes_on=standby is not None and event in mine)
        if standby is None:
            self._kept, self._role.passed_on = frozenset(), known - mine
            return None
        for event in sorted(mine - known):
            listen_to_event(opened.journal, event)
        self._kept, self._role.passed_on = mine, frozenset()
        return replace(standby, pause_s=min(standby.pause_s, _PASSED_ON_S)) if mine else standby

    def _take(self, opened: ClusterSession, event: str, *, goes_on: bool) -> None:
        passed = take_event(opened.journal, event, goes_on=goes_on)
        if passed is not None:
            alerts = {"alerts": list(passed.alerts)} if passed.alerts else {}
            self._passed.append((event, event_payload(opened, passed.at_ms, passed.brokers or None) | alerts))

    def _give_back(self, opened: ClusterSession) -> None:
        """Release the lease, and the documents of the events to which this watch listened."""
        for event in self._kept:
            self._take(opened, event, goes_on=False)
        if self._lease is not None:
            self._lease.release(opened.journal)
