"""Brokers die and the cluster is made whole by a plain script: detector, snapshot, plan, Runner, election.

No Airflow and no Spark: this is what they are put around. Kafka's own tools say whether it came out right.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.state import Snapshot
from kafka_steward.errors import ClusterError, KafkaRefused, RequestError
from kafka_steward.execution.effects import elect_preferred_leaders, find_not_led_by_preferred
from kafka_steward.execution.moves.states import HoldReason
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.plans.report import find_out_of_sync
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.plans.snapshot import take_snapshot
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.topics.creation import TopicSpec, add_deferred_partitions, add_partitions, create_topic
from kafka_steward.execution.topics.pending import list_pending, reconcile_pending, target_replication_factors
from kafka_steward.execution.watch.broker_joins import JoinPollResult, poll_joined_brokers
from kafka_steward.execution.watch.failure_detector import DetectionResult
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Action, Actor, Outcome
from kafka_steward.journal.kip_documents import Chunk
from kafka_steward.journal.mailbox import read_below
from kafka_steward.journal.records import PlanStatus
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.planning.files.formats import read_snapshot
from kafka_steward.sandbox import Sandbox
from kafka_steward.settings import Settings
from tests.builders import planned
from tests.eventually import eventually
from tests.local_plan import plan_folder
from tests.lost_brokers import lose
from tests.manual_plan import plan_by_hand
from tests.present import present
from tests.stepping import step_until, to_the_end
from tests.watching import tick_of

WHO = Actor(person="ada")
GRACE_S = 2.0
SLOW = 150_000
TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"


@dataclass
class Script:
    """What a person would write."""

    sandbox: Sandbox
    cluster: KafkaCluster
    journal: Journal
    folder: Path
    settings: Settings

    def look(self) -> DetectionResult:
        return tick_of(self.cluster, self.journal, self.settings)[0]

    def until_due(self, broker: int) -> DetectionResult:
        def due() -> DetectionResult:
            verdict = self.look()
            assert broker in verdict.failed
            return verdict

        return eventually(due, within=60, errors=(ClusterError,))

    def plan(self, failed: tuple[int, ...], *, settings: Settings | None = None) -> PlanRunner:
        """Snapshot, plan, publish; the Runner that carries it out."""
        settings = settings or self.settings
        where = self.folder / f"plan-{time.monotonic_ns()}"
        take_snapshot(self.cluster, f"{where}/snapshot", failed=failed, now_ms=self.journal.now_ms())
        plan = plan_folder(where / "snapshot", where / "plan")
        record = publish_plan(
            ClusterContext(self.cluster, self.journal, settings, WHO), plan, snapshot=read_snapshot(f"{where}/snapshot")
        )
        return PlanRunner(ClusterContext(self.cluster, self.journal, settings, WHO), record.digest)

    def under_replicated(self) -> str:
        """By Kafka's own word."""
        arguments = ("--bootstrap-server", self.sandbox.bootstrap, "--describe", "--under-replicated-partitions")
        return self.sandbox.kafka_tool(TOPICS, *arguments).strip()

    def throttles(self) -> list[str]:
        """Every throttle that Kafka's own tool shows."""
        told = [
            self.sandbox.kafka_tool(
                CONFIGS, "--bootstrap-server", self.sandbox.bootstrap, "--describe", "--entity-type", kind
            )
            for kind in ("topics", "brokers")
        ]
        return [line for text in told for line in text.splitlines() if re.search(r"throttled\.\w+=\S", line)]

    def replicas(self, topic: str) -> dict[int, tuple[int, ...]]:
        """By partition, once nothing is in flight: one broker hears of an end later than another."""

        def at_rest() -> dict[int, tuple[int, ...]]:
            snapshot = self.cluster.snapshot([topic])
            assert snapshot.reassigning == {}
            return {name.partition: each.replicas for name, each in snapshot.partitions.items()}

        return eventually(at_rest)


@pytest.fixture
def script(sandbox: Sandbox, tmp_path: Path) -> Iterator[Script]:
    settings = Settings(min_free=0, heal_failure_interval=GRACE_S, throttle=20_000_000, max_failed_fraction=0.5)
    with (
        KafkaCluster({"bootstrap_servers": sandbox.bootstrap}) as cluster,
        open_journal(f"sqlite:///{tmp_path}/journal.db", cluster.cluster_id) as journal,
    ):
        yield Script(sandbox, cluster, journal, tmp_path, settings)


def test_a_killed_broker_is_healed(script: Script, sandbox: Sandbox, topic: str) -> None:
    sandbox.create_topics(topic, partitions=12)
    sandbox.fill(topic, 6_000_000)
    assert script.look().sentence == "Every broker that has replicas is live."

    lost = sum(1 in replicas for replicas in script.replicas(topic).values())
    sandbox.kill(1)
    verdict = script.until_due(1)
    assert verdict.failed == (1,)
    runner = script.plan(verdict.failed)
    assert script.journal.mailbox.children("/admin/failed_brokers") == [], "the plan stands in for the entry (KIP-46)"
    chunks = read_below(script.journal.mailbox, paths.REASSIGN_CHUNKS)
    assert {Chunk.from_node(node).is_auto_generated for node in chunks} == {True}
    progress = to_the_end(runner)
    elected = elect_preferred_leaders(script.cluster, script.journal, who=WHO, plan=progress.digest)

    assert (progress.status, progress.completed, progress.left) == (PlanStatus.COMPLETED, lost, 0)
    assert elected.refused == {}
    assert script.journal.mailbox.children(paths.REASSIGN_CHUNKS) == []
    assert script.under_replicated() == ""
    assert script.throttles() == []
    eventually(lambda: verify_moved_away(script.cluster.snapshot([topic]), 1))
    verify_audit(script, progress.digest, moved=lost)
    rows = script.journal.audit.rows()
    assert runner.step().sentence == progress.sentence
    assert script.journal.audit.rows() == rows
    assert script.look().sentence == "Every broker that has replicas is live."


def verify_moved_away(snapshot: Snapshot, broker: int) -> None:
    assert (find_out_of_sync(snapshot), find_not_led_by_preferred(snapshot)) == ((), [])
    assert broker not in snapshot.hosting_brokers


def verify_audit(script: Script, digest: str, *, moved: int) -> None:
    """Every change has its row, every row its outcome."""
    rows = script.journal.audit.rows(plan=digest)
    assert {row.outcome for row in rows} == {Outcome.DONE}
    counts = Counter(row.entry.action for row in rows)
    assert counts[Action.SUBMIT] == counts[Action.SETTLE] == moved
    assert counts[Action.THROTTLE] == counts[Action.UNTHROTTLE] > moved
    assert counts[Action.FINISH] == 1
    assert {row.entry.action for row in script.journal.audit.rows()} >= {Action.DETECT, Action.ANNOUNCE, Action.CLEAR}


@pytest.mark.in_ci("zookeeper")
@pytest.mark.ci
def test_a_broker_that_returns_within_the_grace_period_is_not_healed(
    script: Script, sandbox: Sandbox, topic: str
) -> None:
    script.settings = Settings(min_free=0, heal_failure_interval=600, max_failed_fraction=0.5)
    sandbox.create_topics(topic, partitions=4)
    sandbox.kill(2)

    def seen() -> DetectionResult:
        verdict = script.look()
        assert 2 in verdict.waiting
        return verdict

    first = eventually(seen, within=60)
    assert script.look().waiting == first.waiting, "a later look keeps the time"
    sandbox.restart(2)
    verdict = eventually(lambda: _cleared(script.look()), within=60)
    assert verdict.cleared == (2,)
    assert script.journal.mailbox.children("/admin/failed_brokers") == []


def _cleared(verdict: DetectionResult) -> DetectionResult:
    assert not verdict.down
    return verdict


@pytest.mark.in_ci("kraft")
def test_the_broker_comes_back_in_the_middle_and_the_rest_is_dropped(
    script: Script, sandbox: Sandbox, topic: str
) -> None:
    sandbox.create_topics(topic, assignments={number: [1, 2, 3] for number in range(6)})
    sandbox.fill(topic, 1_200_000)
    sandbox.kill(1)
    verdict = script.until_due(1)
    runner = script.plan(verdict.failed, settings=Settings(min_free=0, throttle=SLOW, max_in_per_broker=2))
    assert runner.step().in_flight == 2
    sandbox.restart(1)
    step_until(runner, lambda each: each.satisfied == 4)
    progress = to_the_end(runner)
    assert (progress.completed, progress.satisfied, progress.left) == (2, 4, 0)
    assert sorted(1 in replicas for replicas in script.replicas(topic).values()) == [False] * 2 + [True] * 4
    assert script.throttles() == []
    eventually(lambda: _none(script.under_replicated()), within=30)


def _none(text: str) -> None:
    assert text == ""


@pytest.mark.in_ci("kraft")
@pytest.mark.ci
def test_a_target_that_dies_in_the_middle_is_waited_for_with_everything_as_it_was(
    script: Script, sandbox: Sandbox, topic: str
) -> None:
    sandbox.create_topics(topic, assignments={0: [1, 2, 3], 1: [2, 1, 3]})
    # Kafka's quota lets a burst of some 11 s through before it holds.
    sandbox.fill(topic, 4_000_000)
    sandbox.kill(1)
    runner = script.plan(script.until_due(1).failed, settings=Settings(min_free=0, throttle=SLOW))
    assert runner.step().in_flight == 2
    sandbox.kill(4)
    progress = step_until(runner, lambda each: len(each.held) == 2)
    assert {held.code for held in progress.held} == {HoldReason.TARGET_DEAD}
    assert "was not moved: target broker 4 is not live" in progress.sentence
    assert script.replicas(topic) == {0: (1, 2, 3), 1: (2, 1, 3)}, "in their order"
    assert script.cluster.reassignments() == {}
    actions = Counter(row.entry.action for row in script.journal.audit.rows(plan=progress.digest))
    assert actions[Action.CANCEL] == 2
    assert actions[Action.REORDER] >= 1
    sandbox.restart(4)
    # Another process goes on, with the throttle that is configured by then.
    progress = to_the_end(
        PlanRunner(ClusterContext(script.cluster, script.journal, script.settings, WHO), progress.digest), within_s=120
    )
    assert progress.completed == 2
    assert script.throttles() == []


@pytest.mark.in_ci("zookeeper")
def test_a_topic_deleted_in_the_middle_is_dropped(script: Script, sandbox: Sandbox, topic: str) -> None:
    doomed = f"{topic}-doomed"
    sandbox.create_topics([topic, doomed], assignments={0: [1, 2, 3]})
    sandbox.fill(doomed, 3_000_000)
    sandbox.kill(1)
    runner = script.plan(script.until_due(1).failed, settings=Settings(min_free=0, throttle=SLOW))
    assert runner.step().in_flight == 2
    sandbox.delete_topics(doomed)
    progress = to_the_end(runner)
    assert (progress.completed, progress.dropped, progress.left) == (1, 1, 0)
    rows = {row.topic_partition: row.detail for row in script.journal.plans.rows(progress.digest)}
    # The sandbox cancels what is in flight before it deletes, and a step may see the moment in between.
    assert rows[TopicPartition(doomed, 0)] in {"its topic was deleted", "someone else cancelled it"}
    assert script.throttles() == []


# A broker that keeps a replica dies in the middle of a rebalance: cancelled, healed, and the rest of it dropped

BEFORE = {0: (1, 2, 3), 1: (2, 1, 3)}
AFTER = {0: (4, 2, 3), 1: (2, 4, 3)}


def rebalance(script: Script, topic: str) -> PlanRunner:
    rules = Settings(min_free=0, throttle=SLOW, heal_failure_interval=GRACE_S)
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


@pytest.mark.ci
def test_what_can_be_is_healed_and_the_rest_when_a_broker_joins(
    script: Script, kraft_sandbox: Sandbox, topic: str
) -> None:
    heal_in_two_parts(script, kraft_sandbox, topic)


@pytest.mark.slow
def test_the_same_with_zookeeper(script: Script, zookeeper_sandbox: Sandbox, topic: str) -> None:
    heal_in_two_parts(script, zookeeper_sandbox, topic)


def heal_in_two_parts(script: Script, sandbox: Sandbox, topic: str) -> None:
    script.settings = Settings(min_free=0, heal_failure_interval=2, heal_retry_interval=1, max_failed_fraction=0.5)
    pairs, threes = f"{topic}-pairs", f"{topic}-threes"
    # Broker 4 has nothing and is gone: as if it were not there yet.
    sandbox.kill(4)
    eventually(lambda: _assert_live(script, 1, 2, 3), within=60)
    sandbox.create_topics(pairs, assignments={0: [3, 1], 1: [2, 3]})
    sandbox.create_topics(threes, assignments={0: [1, 2, 3], 1: [3, 1, 2]})
    sandbox.kill(3)

    runner = script.plan(script.until_due(3).failed)
    progress = to_the_end(runner)
    assert (progress.status, progress.completed, progress.left) == (PlanStatus.COMPLETED, 2, 2)
    assert progress.sentence.endswith("2 of 2 partitions moved, 2 more partitions left by the plan.")
    assert {frozenset(replicas) for replicas in script.replicas(pairs).values()} == {frozenset({1, 2})}
    assert script.replicas(threes) == {0: (1, 2, 3), 1: (3, 1, 2)}
    _assert_said_once(script)

    sandbox.restart(4)
    verdict = eventually(lambda: _due(script.look()), within=60)
    assert verdict.due == (3,), "without a second grace period: it has been gone all the time"
    progress = to_the_end(script.plan(verdict.failed))
    assert (progress.status, progress.completed, progress.left) == (PlanStatus.COMPLETED, 2, 0)
    assert {frozenset(replicas) for replicas in script.replicas(threes).values()} == {frozenset({1, 2, 4})}
    assert script.under_replicated() == ""
    assert script.look().sentence == "Every broker that has replicas is live."


def _assert_live(script: Script, *brokers: int) -> None:
    assert set(script.cluster.live_brokers()) == set(brokers)


def _assert_said_once(script: Script) -> None:
    """Longer than heal_retry_interval, nothing more is announced, and broker 3 counts as seen to."""
    until_ms = script.journal.now_ms() + 3_000
    while script.journal.now_ms() < until_ms:
        verdict = script.look()
        assert (verdict.due, verdict.failed, verdict.handled) == ((), (), (3,)), verdict
        assert verdict.sentence.startswith(
            "Broker 3 is down. Not counted towards an outage: broker 3 (the last heal left only partitions that no "
            "further one would repair)."
        )


def _due(verdict: DetectionResult) -> DetectionResult:
    assert verdict.due
    return verdict


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
        pending.state.value
        for pending in reconcile_pending(script.cluster, script.journal, script.cluster.snapshot(), WHO)
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
    assert look(script) is None, "nothing is pending"

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
    looked = present(look(script))
    assert looked.due
    return looked


def filling(script: Script) -> PlanRunner:
    settings = replace(script.settings, throttle=SLOW)
    snapshot = script.cluster.snapshot()
    wanted = target_replication_factors(list_pending(script.journal, snapshot), snapshot, ())
    where = str(script.folder / "fill")
    take_snapshot(script.cluster, where, failed=(), now_ms=script.journal.now_ms(), targets=wanted)
    plan = planned(read_snapshot(where), "fill")
    record = publish_plan(ClusterContext(script.cluster, script.journal, settings, WHO), plan)
    return PlanRunner(ClusterContext(script.cluster, script.journal, settings, WHO), record.digest)


def assert_live(script: Script, *brokers: int) -> None:
    assert set(script.cluster.live_brokers()) == set(brokers)
