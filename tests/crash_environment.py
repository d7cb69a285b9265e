"""A cluster, a journal's contents, and processes that come and go: what the tests of crashes live in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.errors import ClusterError, JournalError
from kafka_steward.execution.moves.progress import Progress
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.journal.audit import Action
from kafka_steward.journal.store import Journal
from kafka_steward.planning.files.formats import PlanFolder
from kafka_steward.settings import Settings
from tests.crash import Faults
from tests.memory_mailbox import MemoryMailbox
from tests.memory_state import MemoryState
from tests.memory_tables import MemoryAudit, MemoryMoves, MemoryPlans
from tests.simulated_plan import WHO, journal_over
from tests.simulator import Simulator

#: After so many ticks a step lock that a dead process left behind has run out.
LOCK_TICKS = 61
#: More steps than any scenario needs, faults and a lock that has to run out included.
BOUND = 150


@dataclass
class Place:
    """A cluster and the journal's contents: what outlives every process."""

    simulator: Simulator
    moves: list[Move]
    settings: Settings
    plan: PlanFolder
    happenings: dict[int, Callable[[Simulator], object]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        clock = lambda: self.simulator.now_ms  # noqa: E731
        audit = MemoryAudit(self.simulator.cluster_id, clock)
        self.stores = (MemoryMailbox(clock), MemoryMoves(clock, audit), audit)
        self.state, self.plans = MemoryState(clock), MemoryPlans(clock)
        self.ticks = 0

    def process(self, faults: Any) -> tuple[Any, Journal]:
        """A process's own hands on the cluster and the journal."""
        mailbox, moves, audit = self.stores
        cluster = faults.around("cluster", Guarded(self.simulator, audit))
        stores = {"mailbox": mailbox, "state": self.state, "moves": moves, "audit": audit, "plans": self.plans}
        wrapped = (faults.around(name, store) for name, store in stores.items())
        return cluster, journal_over(self.simulator.cluster_id, *wrapped)

    def context(self, faults: Any) -> ClusterContext:
        return ClusterContext(*self.process(faults), self.settings, WHO)

    def runner(self, faults: Any) -> PlanRunner:
        """Return the runner of a process for the plan."""
        return PlanRunner(self.context(faults), self.plan.digest)

    def published(self) -> Place:
        """Publish the plan, by a process of its own."""
        publish_plan(self.context(Faults()), self.plan)
        return self

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            if happening := self.happenings.get(self.ticks):
                happening(self.simulator)
            self.simulator.tick()
            self.ticks += 1


def persist(place: Place, step: Callable[[], Progress]) -> Progress:
    """Step to the end. What fails is tried again, as every caller does; a lock that a lost reply left runs out."""
    for _ in range(BOUND):
        wait = 1
        try:
            progress = step()
            if progress.ended:
                return progress
            wait = LOCK_TICKS if progress.busy else 1
        except (ClusterError, JournalError):
            pass  # the next round tries again
        place.tick(wait)
    raise AssertionError(f"not ended after {BOUND} steps")


class Guarded:
    """The cluster, which takes no change that was not written down before."""

    def __init__(self, simulator: Simulator, audit: MemoryAudit) -> None:
        self._simulator, self._audit = simulator, audit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._simulator, name)

    def alter(self, targets: Any, **more: Any) -> Any:
        for partition in targets:
            assert self._intended({Action.SUBMIT, Action.REORDER, Action.ROLL_BACK}, partition), (
                f"{partition} was not written down"
            )
        return self._simulator.alter(targets, **more)

    def cancel(self, partitions: Any) -> Any:
        for partition in partitions:
            assert self._intended({Action.CANCEL}, partition), f"the cancel of {partition} was not written down"
        return self._simulator.cancel(partitions)

    def change_topic_configs(self, changes: Any) -> Any:
        for topic in changes:
            assert self._intended({Action.THROTTLE, Action.UNTHROTTLE}, TopicPartition(topic, -1))
        return self._simulator.change_topic_configs(changes)

    def change_broker_configs(self, changes: Any) -> Any:
        rows = [row.entry for row in self._audit._rows]
        for broker in changes:
            assert any(entry.broker == broker and entry.topic is None for entry in rows)
        return self._simulator.change_broker_configs(changes)

    def change_default_broker_configs(self, changes: Any) -> Any:
        assert any(row.entry.action is Action.UNTHROTTLE and row.entry.broker is None for row in self._audit._rows)
        return self._simulator.change_default_broker_configs(changes)

    def _intended(self, actions: set[Action], partition: TopicPartition) -> bool:
        return any(
            row.entry.action in actions
            and row.entry.topic == partition.topic
            and partition.partition in {-1, row.entry.partition}
            for row in self._audit._rows
        )
