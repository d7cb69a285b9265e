"""What real clusters do to a plan, by verbs on them: a zone that is lost, a topic that is made anew, a rate too low."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cli import Exit
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.errors import SandboxFailed
from kafka_steward.execution.throttles.rates import ThrottleSide
from kafka_steward.execution.watch.health import DEFAULT_LIMITS, check_health, health_message, violated_limits
from kafka_steward.hooks.session import ClusterSession
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.journal.observed import BrokerReport
from kafka_steward.sandbox import Sandbox
from kafka_steward.sandbox.client import admin_client
from tests.airflow_home import Connect
from tests.cli.airflow_command import assignments, written
from tests.cli.calling import run
from tests.eventually import eventually
from tests.throttles import rates

pytestmark = pytest.mark.ci

FOLLOWER = ThrottleSide.FOLLOWER


@dataclass
class Desk:
    """A terminal, and one partition or more of a topic."""

    sandbox: Sandbox
    topic: str
    folder: Path
    conn_id: str
    capsys: pytest.CaptureFixture[str]

    def run(self, *words: str, code: Exit = Exit.DONE) -> str:
        """What the verb prints, on both streams."""
        self.capsys.readouterr()
        ended = run(*words, "--cluster", self.conn_id)
        printed = "".join(self.capsys.readouterr())
        assert ended == code, printed
        return printed

    def file(self, targets: Mapping[str, Mapping[int, Assignment]]) -> str:
        return written(self.folder / "wanted.json", targets)

    def opened(self) -> ClusterSession:
        return StewardHook(self.conn_id).open()


@pytest.fixture
def desk(
    sandbox: Sandbox, topic: str, tmp_path: Path, connect: Connect, capsys: pytest.CaptureFixture[str]
) -> Iterator[Desk]:
    extra = {"bootstrap_timeout_ms": 10_000, "step_interval": 0.3}
    desk = Desk(sandbox, topic, tmp_path, connect(host=sandbox.bootstrap, extra=extra), capsys)
    yield desk
    sandbox.restore()
    with desk.opened() as opened:
        clear = [ConfigChange(FOLLOWER.rate_key, ConfigOp.DELETE)]
        opened.cluster.change_broker_configs(dict.fromkeys(sandbox.brokers, clear))


# a zone


def test_a_zone_that_is_lost_is_named_and_once_it_is_back_only_what_breaks_the_rack_rule_moves(desk: Desk) -> None:
    """Broker 2 is all of rack b."""
    wide: dict[int, Assignment] = {0: (1, 2, 3), 1: (3, 2, 4), 2: (2, 3, 1)}
    narrow: dict[int, Assignment] = {0: (1, 3)}
    desk.sandbox.create_topics(desk.topic, assignments=wide)
    desk.sandbox.create_topics(f"{desk.topic}-narrow", assignments=narrow)
    desk.sandbox.kill(2)
    with desk.opened() as opened:
        cluster = opened.cluster
        eventually(lambda: is_dead(cluster, 2))

        def health() -> tuple[list[str], str]:
            found, _ = check_health(cluster, opened.journal)
            mine = sorted(str(name) for name in found.rack_violations if name.topic.startswith(desk.topic))
            assert ("rack_violations" in violated_limits(found, DEFAULT_LIMITS)) == bool(found.rack_violations)
            return mine, health_message(found)

        file = str(desk.folder / "plan.json")
        planned = desk.run("plan", "heal", "--brokers", "2", "--topics", desk.topic, "--file", file)
        lost = "All brokers of rack b are down: each of 3 partitions will have two copies in one rack."
        # With ZooKeeper, Kafka does not say in which rack a dead broker was, and no watch has observed it here.
        unknown = "The rack of broker 2 is not known: Kafka has forgotten it"
        assert (lost in planned, unknown in planned) == (not cluster.zookeeper_mode, cluster.zookeeper_mode)
        assert (unknown in desk.run("doctor", code=Exit.FAILED)) == cluster.zookeeper_mode
        assert opened.journal.watch_reports is not None
        opened.journal.watch_reports.replace_brokers([BrokerReport(2, rack="b")])
        assert unknown not in desk.run("doctor", code=Exit.FAILED)
        desk.run("apply", file)
        assert health()[0] == [], "no rack but two is there"
        desk.sandbox.restart(2)
        violated, message = eventually(lambda: broken(health))
        assert violated == [f"{desk.topic}-{number}" for number in wide]
        assert "not spread over the racks as well as can be; rebalance with balance=racks repairs only that" in message
        both = ("--topics", f"{desk.topic}.*")
        desk.run("plan", "rebalance", "--balance", "racks", *both, "--file", file)
        desk.run("apply", file)
        found = assignments(desk.sandbox, desk.topic)
        assert {2 in replicas for replicas in found[desk.topic].values()} == {True}
        assert found[f"{desk.topic}-narrow"] == narrow
        assert health()[0] == []


def is_dead(cluster: KafkaCluster, broker: int) -> None:
    assert broker not in cluster.live_brokers()


def broken(health: Callable[[], tuple[list[str], str]]) -> tuple[list[str], str]:
    violated, message = health()
    assert violated
    return violated, message


# a topic that is made anew


def test_a_plan_whose_topics_were_made_anew_is_taken_back_to_its_end_and_names_them(desk: Desk) -> None:
    arrived, moving = (TopicPartition(f"{desk.topic}-{each}", 0) for each in ("arrived", "moving"))
    desk.sandbox.create_topics([arrived.topic, moving.topic], assignments={0: (1, 2)})
    desk.sandbox.fill(moving.topic, 6_000_000)
    with desk.opened() as opened:
        cluster = opened.cluster

        def stop_in_the_middle(seconds: float) -> None:
            time.sleep(seconds)
            if set(cluster.reassignments()) == {moving}:
                raise KeyboardInterrupt

        wanted = desk.file({arrived.topic: {0: (4, 2)}, moving.topic: {0: (4, 2)}})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("kafka_steward.cli.foreground.sleep", stop_in_the_middle)
            desk.run("apply", wanted, "--throttle", "30k", code=Exit.INTERRUPTED)
        anew: Assignment = (3, 1)
        for name in (arrived, moving):
            make_anew(desk.sandbox, cluster, name, anew)
        printed = desk.run("cancel", "--scope", "plan", "--reason", "test", code=Exit.FAILED)
        for name in (arrived, moving):
            assert printed.count(f"{name} was left alone: its topic was deleted and re-created") == 1, printed
        assert "was not reverted: all 2 partitions were left alone" in printed
        assert opened.journal.slot.holders() == ()
        assert rates(cluster, FOLLOWER, [4]) == {4: None}
    assert assignments(desk.sandbox, desk.topic) == {arrived.topic: {0: anew}, moving.topic: {0: anew}}


def make_anew(sandbox: Sandbox, cluster: KafkaCluster, name: TopicPartition, replicas: Assignment) -> None:
    with admin_client(sandbox.bootstrap) as client:
        client.delete_topics([name.topic])

    def is_gone() -> None:
        assert name not in cluster.snapshot().partitions

    eventually(is_gone)
    # With ZooKeeper, the deletion goes on for a moment.
    eventually(lambda: sandbox.create_topics(name.topic, assignments={0: replicas}), errors=(SandboxFailed,))


# a rate


def test_a_rate_that_limits_nothing_is_said_to_and_the_rate_of_a_plan_is_that_of_its_rollback_until_it_is_changed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.sandbox.create_topics(desk.topic, assignments={0: (1, 2)})
    printed = desk.run("apply", desk.file({desk.topic: {0: (3, 2)}}), "--throttle", "20k")
    assert "20,000 bytes/s limit nothing: for each partition that moves into a broker, Kafka lets about 90" in printed
    desk.sandbox.fill(desk.topic, 4_000_000)
    seen: list[int | None] = []
    with desk.opened() as opened:
        digest = opened.journal.plans.latest(1)[0].digest

        def look(seconds: float) -> None:
            time.sleep(seconds)
            seen.append(rates(opened.cluster, FOLLOWER, [1])[1])
            if seen == [20_000]:
                run("throttle", digest[:12], "50M", "--reason", "it may hurry", "--cluster", desk.conn_id)

        monkeypatch.setattr("kafka_steward.cli.foreground.sleep", look)
        printed = desk.run("cancel", digest[:12], "--scope", "plan", "--reason", "test")
        assert f", which rolls back plan {digest[:12]}: 50,000,000 bytes/s into one broker" in printed
        assert [rate for rate in dict.fromkeys(seen) if rate] == [20_000, 50_000_000]
        assert rates(opened.cluster, FOLLOWER, [1]) == {1: None}
    assert assignments(desk.sandbox, desk.topic) == {desk.topic: {0: (1, 2)}}
