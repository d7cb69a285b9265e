"""KIP-409 on real clusters: a topic made while a broker is away, the debt, and its settlement when one joins."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from kafka_steward.errors import KafkaRefused, RequestError
from kafka_steward.execution.broker_joins import JoinPollResult, poll_joined_brokers
from kafka_steward.execution.pending_replicas import list_pending, reconcile_pending
from kafka_steward.execution.pending_state import target_replication_factors
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.publishing import publish_plan
from kafka_steward.execution.runner import PlanRunner
from kafka_steward.execution.snapshot import take_snapshot
from kafka_steward.execution.topics import TopicSpec, add_deferred_partitions, add_partitions, create_topic
from kafka_steward.journal.audit import Action, Outcome
from kafka_steward.planning.files.formats import read_snapshot
from kafka_steward.sandbox import Sandbox
from tests.builders import planned
from tests.eventually import eventually
from tests.kafka.test_heal_by_script import SLOW, WHO, Script, script
from tests.lost_brokers import lose
from tests.stepping import to_the_end

__all__ = ["script"]


@pytest.mark.in_ci("kraft")
@pytest.mark.ci
def test_a_topic_made_while_a_broker_is_away_gets_its_replica_when_one_joins(
    script: Script, sandbox: Sandbox, topic: str
) -> None:
    wanted = TopicSpec(topic, 3, 4, {"min.insync.replicas": "2"})
    sandbox.create_topics(f"{topic}-before", assignments={0: (1, 2, 3, 4)})
    lose(sandbox, 4)
    eventually(lambda: assert_live(script, 1, 2, 3), within=60)
    with pytest.raises(RequestError, match="5 replicas were requested, and 4 brokers are known"):
        create_topic(script.cluster, script.journal, replace(wanted, replication_factor=5), allowed=True, who=WHO)
    made = create_topic(script.cluster, script.journal, wanted, allowed=True, who=WHO)
    assert (made.existed, made.pending) == (False, 3)
    sandbox.wait_replicated([topic])
    assert [row.outcome for row in script.journal.audit.rows(action=Action.CREATE, topic=topic)] == (
        [Outcome.DONE] if sandbox.mode == "zookeeper" else [Outcome.REFUSED, Outcome.REFUSED, Outcome.DONE]
    )
    assert script.replicas(topic) == {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)}
    sandbox.fill(topic, 300_000)  # acks=all works
    with pytest.raises(RequestError, match="exists with replication factor 4, and 2 was requested"):
        create_topic(script.cluster, script.journal, replace(wanted, replication_factor=2), allowed=True, who=WHO)
    add_partitions(script.cluster, script.journal, topic, 4, later=False, who=WHO)
    assert (looked := look(script)) is not None
    assert (looked.due, looked.pending) == ((), 4)

    sandbox.restart(4)
    began_s = time.monotonic()
    joined = eventually(lambda: due(script), within=60)
    assert joined.due == (4,)
    progress = to_the_end(filling(script))
    filled_s = time.monotonic() - began_s
    assert [
        debt.state.value for debt in reconcile_pending(script.cluster, script.journal, script.cluster.snapshot(), WHO)
    ] == ["settled"] * 4
    assert {frozenset(replicas) for replicas in script.replicas(topic).values()} == {frozenset({1, 2, 3, 4})}
    sandbox.wait_replicated()
    assert script.under_replicated() == ""
    assert script.throttles() == []
    assert look(script) is None
    print(f"{sandbox.mode}: {progress.completed} partitions whole {filled_s:.1f} s after the broker was ready")


@pytest.mark.ci
def test_partitions_that_find_too_few_brokers_wait_for_one(
    script: Script, zookeeper_sandbox: Sandbox, topic: str
) -> None:
    # On KRaft, a broker that is away takes its place all the same: the next test.
    zookeeper_sandbox.create_topics(topic, assignments={0: (1, 2, 3, 4)})
    zookeeper_sandbox.kill(4)
    eventually(lambda: assert_live(script, 1, 2, 3), within=60)
    with pytest.raises(RequestError, match="pass later=True"):
        add_partitions(script.cluster, script.journal, topic, 2, later=False, who=WHO)
    with pytest.raises(KafkaRefused, match="enable_under_replicated_topic_creation"):
        create_topic(script.cluster, script.journal, TopicSpec(f"{topic}-4", 1, 4), allowed=False, who=WHO)
    assert add_partitions(script.cluster, script.journal, topic, 2, later=True, who=WHO).waits
    zookeeper_sandbox.restart(4)
    eventually(lambda: due(script), within=60)
    assert add_deferred_partitions(script.cluster, script.journal, WHO) == [
        f"Topic {topic} has 2 partitions, 1 of them new."
    ]
    zookeeper_sandbox.wait_replicated([topic])
    assert [len(replicas) for replicas in script.replicas(topic).values()] == [4, 4]


@pytest.mark.ci
def test_on_kraft_a_broker_that_is_away_takes_its_place_in_what_is_new_and_kafka_fills_it(
    script: Script, kraft_sandbox: Sandbox, topic: str
) -> None:
    kraft_sandbox.create_topics(topic, assignments={0: (1, 2, 3, 4)}, configs={"min.insync.replicas": "3"})
    kraft_sandbox.kill(4)
    eventually(lambda: assert_live(script, 1, 2, 3), within=60)
    assert add_partitions(script.cluster, script.journal, topic, 2, later=False, who=WHO).done
    wanted = TopicSpec(f"{topic}-off", 2, 4, {"min.insync.replicas": "3"})
    assert create_topic(script.cluster, script.journal, wanted, allowed=False, who=WHO).pending == 0
    wanted = replace(wanted, topic=f"{topic}-on")
    assert create_topic(script.cluster, script.journal, wanted, allowed=True, who=WHO).pending == 0
    kraft_sandbox.fill(wanted.topic, 30_000)  # acks=all works
    assert look(script) is None, "nothing is owed"

    kraft_sandbox.kill(3)
    eventually(lambda: assert_live(script, 1, 2), within=60)
    with pytest.raises(RequestError, match=r"it needs 3 brokers, .* and 2 are live"):
        create_topic(script.cluster, script.journal, replace(wanted, topic="none"), allowed=False, who=WHO)
    with pytest.raises(RequestError, match=r"needs 3 live brokers for new partitions, .* and 2 are live"):
        add_partitions(script.cluster, script.journal, topic, 3, later=False, who=WHO)
    assert add_partitions(script.cluster, script.journal, topic, 3, later=True, who=WHO).waits

    kraft_sandbox.restart(3)
    eventually(lambda: due(script), within=60)
    assert add_deferred_partitions(script.cluster, script.journal, WHO) == [
        f"Topic {topic} has 3 partitions, 1 of them new."
    ]
    kraft_sandbox.restart(4)
    names = [topic, f"{topic}-off", f"{topic}-on"]
    kraft_sandbox.wait_replicated(names)
    assert [len(each) for name in names for each in script.replicas(name).values()] == [4] * 7


def look(script: Script) -> JoinPollResult | None:
    return poll_joined_brokers(script.cluster, script.journal, script.settings, WHO)


def due(script: Script) -> JoinPollResult:
    looked = look(script)
    assert looked is not None
    assert looked.due
    return looked


def filling(script: Script) -> PlanRunner:
    settings = replace(script.settings, throttle=SLOW)
    snapshot = script.cluster.snapshot()
    wanted = target_replication_factors(list_pending(script.journal, snapshot), snapshot)
    where = str(script.folder / "fill")
    take_snapshot(script.cluster, where, failed=(), now_ms=script.journal.now_ms(), targets=wanted)
    plan = planned(read_snapshot(where), "fill")
    record = publish_plan(ClusterContext(script.cluster, script.journal, settings, WHO), plan)
    return PlanRunner(ClusterContext(script.cluster, script.journal, settings, WHO), record.digest)


def assert_live(script: Script, *brokers: int) -> None:
    assert set(script.cluster.live_brokers()) == set(brokers)
