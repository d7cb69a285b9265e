"""A broker that keeps a replica dies in the middle of a rebalance: cancelled, healed, and the rest of it dropped."""

from __future__ import annotations

from collections import Counter

import pytest

from kafka_steward.assignment import Move
from kafka_steward.execution.moves import HoldReason
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.publishing import publish_plan
from kafka_steward.execution.runner import PlanRunner
from kafka_steward.journal.audit import Action
from kafka_steward.journal.records import PlanStatus
from kafka_steward.sandbox import Sandbox
from kafka_steward.settings import Settings
from tests.kafka.test_heal_by_script import SLOW, WHO, Script, script
from tests.manual_plan import plan_by_hand
from tests.stepping import step_until, to_the_end

__all__ = ["script"]

BEFORE = {0: (1, 2, 3), 1: (2, 1, 3)}
AFTER = {0: (4, 2, 3), 1: (2, 4, 3)}


def rebalance(script: Script, topic: str) -> PlanRunner:
    rules = Settings(min_free=0, throttle=SLOW)
    moves = [Move(topic, number, BEFORE[number], AFTER[number], 0, number, "given") for number in BEFORE]
    plan = plan_by_hand(script.cluster, script.journal, script.folder / "rebalance", moves, operation="rebalance")
    publish_plan(ClusterContext(script.cluster, script.journal, rules, WHO), plan)
    return PlanRunner(ClusterContext(script.cluster, script.journal, rules, WHO), plan.digest)


@pytest.mark.in_ci("zookeeper")
@pytest.mark.ci
def test_a_kept_replica_dies_in_the_middle_of_a_rebalance_and_the_heal_is_whole(
    script: Script, sandbox: Sandbox, topic: str
) -> None:
    sandbox.create_topics(topic, assignments=BEFORE)
    sandbox.fill(topic, 8_000_000)
    moving = rebalance(script, topic)
    step_until(moving, lambda each: each.in_flight == 2)
    sandbox.kill(2)
    progress = step_until(moving, lambda each: len(each.held) == 2, within=60)
    assert {held.code for held in progress.held} == {HoldReason.KEPT_REPLICA_DEAD}
    assert script.replicas(topic) == BEFORE, "in their order"
    assert script.cluster.reassignments() == {}
    actions = Counter(row.entry.action for row in script.journal.audit.rows(plan=progress.digest))
    assert actions[Action.CANCEL] == 2

    healing = script.plan(script.until_due(2).failed)
    assert moving.step().status is PlanStatus.PREEMPTED, "the heal goes first"
    healed = to_the_end(healing)
    assert (healed.status, healed.completed, healed.left) == (PlanStatus.COMPLETED, 2, 0)
    assert script.under_replicated() == ""
    sandbox.restart(2)
    ended = to_the_end(moving)
    assert (ended.status, ended.dropped, ended.left) == (PlanStatus.FAILED, 2, 0)
    details = [row.detail for row in script.journal.plans.rows(ended.digest)]
    assert all("changed its replicas" in detail for detail in details), details
    assert all(2 not in replicas for replicas in script.replicas(topic).values())
    assert script.cluster.reassignments() == {}
    assert script.throttles() == []
