"""A simulated cluster with its journal, on which requests are planned, published, executed and taken back."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from kafka_steward.assignment import Assignment
from kafka_steward.execution.demotions import read_demotions
from kafka_steward.execution.effects import elect_preferred_leaders
from kafka_steward.execution.plans.lifecycle import request_cancel
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.plans.requests import planner_options
from kafka_steward.execution.plans.rollback import publish_rollback
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.plans.snapshot import take_snapshot
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.planning.files.formats import PlanFolder, SnapshotFolder, read_snapshot
from kafka_steward.rebalance_request import RebalanceRequest
from kafka_steward.settings import Settings
from tests.local_plan import planned
from tests.simulated_plan import WHO, simulated


class Desk:
    """A simulated cluster with its journal, on which requests are planned, published and executed."""

    def __init__(self, folder: Path, brokers: str, *topics: str) -> None:
        self.folder = folder
        self.simulator, self.journal = simulated(brokers, *topics)

    @property
    def context(self) -> ClusterContext:
        return ClusterContext(self.simulator, self.journal, Settings(throttle=0), WHO)

    def snapshot(self, draining: Collection[int] = ()) -> SnapshotFolder:
        """The snapshot that a task would take now."""
        self.simulator.tick()
        uri = f"{self.folder}/{self.simulator.now_ms}"
        take_snapshot(
            self.simulator,
            uri,
            failed=(),
            now_ms=self.simulator.now_ms,
            demotions=read_demotions(self.journal),
            draining=draining,
        )
        return read_snapshot(uri)

    def plan(self, operation: str, *brokers: int) -> tuple[PlanFolder, SnapshotFolder]:
        """The plan of a request of the form."""
        snapshot = self.snapshot(brokers if operation == "drain" else ())
        request = RebalanceRequest.of({"operation": operation, "brokers": brokers})
        options = planner_options(request, snapshot, scheduled=False)
        return planned(snapshot, operation, options), snapshot

    def publish(self, operation: str, *brokers: int) -> PlanFolder:
        """Publish such a plan."""
        plan, snapshot = self.plan(operation, *brokers)
        publish_plan(self.context, plan, snapshot=snapshot)
        return plan

    def execute(self, operation: str, *brokers: int) -> PlanFolder:
        """Publish and execute such a plan, and elect the preferred leaders of its partitions."""
        plan = self.publish(operation, *brokers)
        self.run(plan.digest)
        names = [move.topic_partition for move in plan.moves]
        elect_preferred_leaders(self.simulator, self.journal, who=WHO, partitions=names, plan=plan.digest)
        return plan

    def run(self, digest: str) -> None:
        """Step a plan to its end."""
        runner = PlanRunner(self.context, digest)
        for _ in range(60):
            if runner.step().ended:
                return
            self.simulator.tick()
        raise AssertionError("not ended")

    def take_back(self, digest: str) -> None:
        """Cancel a plan that has ended, and roll it back."""
        request_cancel(self.journal, digest, who=WHO, reason="undo", scope="plan")
        published = publish_rollback(self.context, digest)
        if published is not None:
            self.run(published[0].digest)

    def orders(self) -> dict[str, Assignment]:
        return {str(name): topic.replicas for name, topic in sorted(self.simulator.topics.items())}

    def leaders(self) -> dict[str, int | None]:
        return {str(name): part.leader for name, part in sorted(self.simulator.snapshot().partitions.items())}
