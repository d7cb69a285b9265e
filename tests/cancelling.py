"""A stepper that asks for a cancel or rollback at its first step, as one that may die between the two does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafka_steward.execution.moves.progress import Progress
from kafka_steward.execution.moves.reversal_execution import find_externally_reordered
from kafka_steward.execution.moves.skips import SkippedPartition
from kafka_steward.execution.plans.lifecycle import Scope, request_cancel
from kafka_steward.execution.plans.rollback import find_left_alone
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.throttles.leases import list_leased_rates
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.store import Journal
from kafka_steward.settings import Settings
from tests.simulated_plan import WHO, World


class CancelRunner:
    """Asks, then steps the plan."""

    def __init__(
        self,
        cluster: Any,
        journal: Journal,
        digest: str,
        settings: Settings,
        who: Actor,
        *,
        scope: Scope = "pending",
        reason: str,
        even_if_disabled: bool = False,
    ) -> None:
        self._cluster, self._journal, self._digest, self._scope = cluster, journal, digest, scope
        self._request: dict[str, Any] | None = {
            "who": who,
            "reason": reason,
            "scope": scope,
            "even_if_disabled": even_if_disabled,
        }
        self._runner = PlanRunner(ClusterContext(cluster, journal, settings, who), digest)

    def step(self) -> Progress:
        if self._request is not None:
            request_cancel(self._journal, self._digest, **self._request)
            self._request = None
        return self._runner.step()

    @property
    def rollback(self) -> str | None:
        record = self._journal.plans.get(self._digest)
        return None if record is None else record.rolled_back_by

    @property
    def left_alone(self) -> Sequence[SkippedPartition]:
        if self._scope == "plan":
            return find_left_alone(self._journal, self.rollback)
        rows = find_externally_reordered(self._cluster, self._journal, self._digest)
        return tuple(SkippedPartition(row.move.topic, row.move.partition, row.detail) for row in rows)

    @property
    def leased_brokers(self) -> list[int]:
        plans = [self._digest, *filter(None, [self.rollback])]
        return sorted({broker for broker, _ in list_leased_rates(self._journal, plans)})


def undo_of(
    world: World, *, scope: Scope = "plan", settings: Settings | None = None, reason: str = "enough", **more: bool
) -> CancelRunner:
    """Return a stepper that asks for a cancel of the world's plan, or for its rollback."""
    rules = settings or world.settings
    return CancelRunner(world.simulator, world.journal, world.digest, rules, WHO, scope=scope, reason=reason, **more)
