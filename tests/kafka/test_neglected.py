"""Every workflow on a cluster as years leave it: what can be repaired is repaired, the rest is named, nothing hangs.

The tests build on one another, in this order, on one cluster. What others have set or begun is compared after each of
them with what it was before.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from kafka_steward.assignment import Assignment, Move, TopicPartition
from kafka_steward.cli import Exit
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.errors import ClusterError
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.plans.readiness import check_readiness
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.plans.snapshot import take_snapshot
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.throttles.rates import ThrottleSide
from kafka_steward.execution.topics.pending import record_pending
from kafka_steward.execution.watch.failure_detector import DetectionResult
from kafka_steward.execution.watch.health import check_health, health_message
from kafka_steward.hooks.session import ClusterSession
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.journal.audit import Action, Actor, Outcome
from kafka_steward.journal.records import PendingReplicas, PlanStatus
from kafka_steward.planning.files.formats import read_snapshot
from kafka_steward.planning.files.reassignment import Replica
from kafka_steward.sandbox.neglected import CORDONED, FULL_DISK, GHOSTS, JOINED, STUCK, TOPICS, Neglected
from tests.airflow_home import Connect, connect
from tests.cli.airflow_command import throttles, written
from tests.cli.calling import run
from tests.eventually import eventually
from tests.local_plan import plan_folder
from tests.manual_plan import plan_by_hand
from tests.neglected import (
    CANARY,
    LEFT,
    SETTINGS,
    Seen,
    assert_as_others_left_it,
    assert_foreign_in_flight,
    tool,
)
from tests.pace import Deadline
from tests.stepping import step_until, to_the_end
from tests.watching import tick_of

__all__ = ["connect"]

pytestmark = [pytest.mark.apart, pytest.mark.ci, pytest.mark.in_ci("kraft")]

_TOPICS = "org.apache.kafka.tools.TopicCommand"
_CONFIGS = "kafka.admin.ConfigCommand"
WHO = Actor(person="ada")
#: No command waits longer, on a quiet machine.
BOUND_S = 30.0


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, neglected: Neglected) -> Path:
    return tmp_path_factory.mktemp(f"neglected-{neglected.sandbox.mode}")


class Bound:
    """Ends a test that waits too long: nothing hangs."""

    def __init__(self) -> None:
        self._deadline = Deadline(BOUND_S)

    def wait(self, seconds: float) -> None:
        if self._deadline.passed():
            raise TimeoutError("it waits too long")
        time.sleep(seconds)


class Desk(Seen):
    """A terminal, and what Kafka says."""

    def __init__(self, opened: ClusterSession, conn_id: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__(opened.cluster)
        self.opened, self.place = opened, place
        self.context = ClusterContext(opened.cluster, opened.journal, opened.settings, WHO)
        self._conn_id, self._capsys = conn_id, capsys
        self.asked_to_remove = False

    def look(self) -> DetectionResult:
        return tick_of(self.cluster, self.opened.journal, self.opened.settings)[0]

    def run(self, *words: str, code: Exit = Exit.DONE) -> str:
        """What the verb prints, on both streams."""
        self._capsys.readouterr()
        ended: int | str
        try:
            ended = run(*words, "--cluster", self._conn_id)
        except TimeoutError as error:
            ended = str(error)
        printed = "".join(self._capsys.readouterr())
        assert ended == code, printed
        return printed

    def execute(self, *words: str, code: Exit = Exit.FAILED) -> str:
        """Plan and apply; returns what both verbs print. Most plans leave partitions, and name them."""
        file = str(self.place / f"plan-{time.monotonic_ns()}.json")
        planned = self.run("plan", *words, "--file", file, code=code)
        return planned + self.run("apply", file)

    def left_by_others(self) -> Any:
        """Rates, lists and cordons that are set, and what is in flight."""
        keys = [key for side in ThrottleSide for key in (side.rate_key, side.replicas_key)]
        brokers = self.cluster.broker_configs(
            sorted(self.cluster.live_brokers()), [*keys, "cordoned.log.dirs"], own_only=True
        )
        lists = self.cluster.topic_configs(list(TOPICS), keys, own_only=True)
        moving = {str(name): (each.adding, each.removing) for name, each in self.cluster.reassignments().items()}
        return {key: of for key, of in brokers.items() if of}, {key: of for key, of in lists.items() if of}, moving


@pytest.fixture
def desk(
    neglected: Neglected,
    place: Path,
    connect: Connect,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Desk]:
    extra = {
        "journal": f"sqlite:///{place}/journal.db",
        "workspace": f"{place}/workspace",
        **SETTINGS,
    }
    monkeypatch.setattr("kafka_steward.cli.foreground.sleep", Bound().wait)
    if neglected.sandbox.zookeeper:
        extra["zookeeper"] = neglected.sandbox.zookeeper
    conn_id = connect(host=neglected.sandbox.bootstrap, extra=extra)
    with StewardHook(conn_id).open() as opened:
        desk = Desk(opened, conn_id, place, capsys)
        before = desk.left_by_others()
        yield desk
        if not desk.asked_to_remove:
            eventually(lambda: _same(desk.left_by_others(), before))


def _same(found: Any, expected: Any) -> None:
    brokers, lists, moving = found
    # A broker that this test killed says nothing any more.
    assert (brokers, lists, moving) == ({key: of for key, of in expected[0].items() if key in brokers}, *expected[1:])


def test_it_is_what_it_is_said_to_be(neglected: Neglected) -> None:
    """By Kafka's own tools."""
    sandbox, kraft = neglected.sandbox, neglected.sandbox.mode == "kraft"
    lines = tool(neglected, _TOPICS, "--describe", "--under-replicated-partitions").splitlines()
    described = [dict(word.split(": ", 1) for word in line.strip().split("\t") if ": " in word) for line in lines]
    behind = {f"{each['Topic']}-{each['Partition']}": each for each in described}
    ghosts = ["__amazon_msk_canary-7", "__amazon_msk_canary-8", *(f"orders-{number}" for number in (4, 5, 6, 7))]
    # With ZooKeeper, the last replica in sync stays in the ISR when its broker dies.
    assert sorted(behind) == sorted([*ghosts, *(["lost-0"] if kraft else []), "stuck-0", "wide-0"])
    assert (behind["orders-7"]["Isr"], behind["stuck-0"]["Isr"]) == ("2", "1")
    assert behind["orders-7"]["Elr"] in ({"8", "9"} if kraft else {"N/A"})
    assert "Topic: lost\t" in tool(neglected, _TOPICS, "--describe", "--unavailable-partitions")
    assert_as_others_left_it(neglected)
    of_broker = ("--describe", "--all", "--entity-type", "brokers", "--entity-name")
    configs = tool(neglected, _CONFIGS, *of_broker, str(FULL_DISK))
    of_file = "{STATIC_BROKER_CONFIG:leader.replication.throttled.rate=10000000}"
    assert (of_file in configs, "min.insync.replicas=2 " in configs) == (True, True)
    assert ("cordoned.log.dirs=*" in tool(neglected, _CONFIGS, *of_broker, str(CORDONED))) == kraft
    with KafkaCluster({"bootstrap_servers": sandbox.live_bootstrap}) as cluster:
        disks = [disk for each in cluster.log_dirs([FULL_DISK]).values() for disk in each.directories]
        full = min(disks, key=lambda disk: disk.usable_bytes or 0)
        assert len(full.replica_bytes) == 1 < len(next(each for each in disks if each is not full).replica_bytes)
        assert ("No disk is full" in " ".join(neglected.lacks)) == ((full.usable_bytes or 0) > 3_000_000)
    if not kraft:
        zookeeper = KazooClient(hosts=sandbox.zookeeper)
        zookeeper.start(timeout=30)
        assert zookeeper.get_children("/admin/delete_topics") == ["doomed"]
        zookeeper.stop()
        zookeeper.close()


def test_doctor_and_health_name_what_is_broken(desk: Desk) -> None:
    printed = desk.run("doctor", code=Exit.FAILED)
    lagging = f"Replicas of live brokers that are not in sync: stuck-0 on {STUCK}."
    zookeeper = desk.cluster.zookeeper_mode
    pending = ["its deletion is pending; it ends when broker 9 is back."] if zookeeper else []
    for words in (*pending, "are down and host replicas: 8, 9.", "lists of throttled replicas are left over", lagging):
        assert words in printed
    health, _ = check_health(desk.cluster, desk.opened.journal)
    assert health_message(health).count("its deletion is pending") == len(pending)
    found = [health.measures[f"{name}_partitions"] for name in ("under_replicated", "offline", "reassigning")]
    # With ZooKeeper, the last replica in sync stays in the ISR when its broker dies.
    assert found == [8 if desk.cluster.zookeeper_mode else 9, 1, 1]
    assert (health.cordoned == (CORDONED,)) == (not desk.cluster.zookeeper_mode)
    for operation in ("heal", "rebalance"):
        printed = desk.run("plan", operation, code=Exit.FAILED)
        assert f"spread over the racks  {len(health.rack_violations)} before, " in printed
        assert "and left: " in printed


def test_the_cluster_expands_to_the_broker_that_has_nothing_but_a_canary(desk: Desk) -> None:
    canary = desk.at(CANARY)
    desk.execute("expand")
    assert len(desk.holds(JOINED)) > 2
    assert desk.at(CANARY) == canary


def test_the_ghosts_are_healed_and_what_is_lost_is_named_once(desk: Desk) -> None:
    heal(desk, *GHOSTS)
    assert desk.behind() == LEFT
    assert {name for ghost in GHOSTS for name in desk.holds(ghost)} == {"lost-0", "wide-0"}
    verdict = desk.look()
    assert (verdict.due, verdict.failed, verdict.outage) == ((), (), False), verdict.sentence

    def ready() -> None:
        readiness = check_readiness(desk.cluster, desk.opened.journal, desk.opened.settings)
        assert readiness.is_ready, readiness.sentence
        assert {str(name) for name in readiness.left_out} == {*LEFT, "foreign-0"}

    eventually(ready)


def test_an_assignment_is_applied_where_there_is_room_and_a_lost_partition_of_it_is_left(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the broker first refuses the log directory that it is asked for."""
    asked: list[object] = []
    name_directories = KafkaCluster.name_directories

    def name_elsewhere_first(cluster: KafkaCluster, wanted: Mapping[Replica, str]) -> Any:
        asked.append(wanted)
        return name_directories(cluster, wanted if asked[1:] else dict.fromkeys(wanted, "/nowhere"))

    monkeypatch.setattr(KafkaCluster, "name_directories", name_elsewhere_first)
    large: Assignment = (1, FULL_DISK)
    wanted: dict[str, dict[int, Assignment]] = {"large": {0: large}, "scratch": {0: (2,)}, "lost": {0: (1,)}}
    printed = desk.run("apply", written(desk.place / "apply.json", wanted), code=Exit.FAILED)
    assert printed.count("lost-0: ") == 1, printed
    assert (desk.at("large"), desk.at("scratch")[0]) == ({0: large}, (2,))
    disks = desk.cluster.log_dirs([FULL_DISK])[FULL_DISK].directories
    roomy = max(disks, key=lambda disk: disk.usable_bytes or 0)
    assert "large-0" in map(str, roomy.replica_bytes)
    outcomes = [row.outcome for row in desk.opened.journal.audit.rows(action=Action.PLACE)]
    assert outcomes == [Outcome.REFUSED, Outcome.DONE][: len(asked)], "none without a full disk"


def test_the_cluster_is_balanced_without_what_is_not_to_move(desk: Desk) -> None:
    still = {topic: desk.at(topic) for topic in (CANARY, "stuck", "wide", "lost")}
    printed = desk.execute("rebalance")
    assert {topic: desk.at(topic) for topic in still} == still
    for name in ("lost-0", "wide-0", "stuck-0", "foreign-0"):
        assert printed.count(f"left as it is: {name}: ") == 1
    assert desk.behind() == LEFT


def test_a_broker_is_drained_of_all_that_can_be_moved(desk: Desk) -> None:
    printed = desk.execute("drain", "--brokers", "6")
    assert desk.holds(6) == {"wide-0"}
    assert "left as it is: wide-0: " in printed


def test_pending_replicas_are_added(desk: Desk) -> None:
    pending = PendingReplicas.from_brokers(desk.at("scratch")[5], 2)
    record_pending(desk.opened.journal, {TopicPartition("scratch", 5): pending}, "asked for", WHO)
    desk.execute("fill", code=Exit.DONE)
    assert len(desk.at("scratch")[5]) == 2


def test_replication_factors_are_raised_and_lowered(desk: Desk) -> None:
    desk.execute("set-replication-factor", "--topics", "scratch|lost", "--factor", "2")
    assert {len(replicas) for replicas in desk.at("scratch").values()} == {2}
    desk.execute("set-replication-factor", "--topics", "orders|lost", "--factor", "2")
    assert {len(replicas) for replicas in desk.at("orders").values()} == {2}
    assert desk.behind() == LEFT


def test_a_plan_is_cancelled_and_rolled_back_in_the_middle(desk: Desk) -> None:
    before = {topic: desk.at(topic) for topic in ("large", "scratch")}
    after = {topic: {0: (*several[0][:-1], 7)} for topic, several in before.items()}
    moves = [
        Move(topic, 0, before[topic][0], after[topic][0], 0, number, "given") for number, topic in enumerate(before)
    ]
    context = replace(desk.context, settings=replace(desk.opened.settings, throttle=20_000))
    plan = plan_by_hand(desk.cluster, desk.opened.journal, desk.place / "cancelled", moves)
    runner = PlanRunner(context, publish_plan(context, plan).digest)
    step_until(runner, lambda progress: progress.in_flight > 0, within=20)
    printed = desk.run("cancel", plan.digest[:12], "--scope", "plan", "--reason", "too slow")
    assert {topic: desk.at(topic) for topic in before} == before, printed


def test_one_more_death_is_healed_and_is_no_outage(desk: Desk, neglected: Neglected) -> None:
    neglected.sandbox.kill(2)
    heal(desk, 2)
    # Somebody else's reassignment is about to take `foreign-0` off it.
    assert desk.holds(2) == {"wide-0", "foreign-0"}
    assert desk.behind() == {*LEFT, "foreign-0"}


def test_nothing_that_others_left_was_touched_and_what_nobody_needs_is_removed_on_request(
    desk: Desk, neglected: Neglected
) -> None:
    assert_as_others_left_it(neglected)
    assert "throttled-once" in desk.run("throttles")
    desk.run("throttles", "--remove", "--yes", "--reason", "of May")
    desk.asked_to_remove = True
    # What may be in use stays as long as the reassignment of somebody else is in flight.
    assert throttles(neglected.sandbox).keys() == {
        "topic foreign", "broker 1", f"broker {STUCK}", "brokers in the cluster",
    }  # fmt: skip
    assert_foreign_in_flight(neglected)


def heal(desk: Desk, *brokers: int) -> None:
    """As the DAG does, from the detection to the end."""

    def due() -> DetectionResult:
        verdict = desk.look()
        assert (verdict.failed, verdict.outage) == (brokers, False), verdict.sentence
        return verdict

    verdict = eventually(due, within=60, errors=(ClusterError,))
    where = desk.place / f"heal-{brokers}"
    take_snapshot(desk.cluster, f"{where}/snapshot", failed=verdict.failed, now_ms=verdict.now_ms)
    plan = plan_folder(where / "snapshot", where / "plan")
    unplaced = {f"{each['topic']}-{each['partition']}" for each in plan.proof["unplaced"]}
    assert sorted(unplaced) == (["lost-0", "wide-0"] if brokers == GHOSTS else ["wide-0"])
    record = publish_plan(desk.context, plan, snapshot=read_snapshot(f"{where}/snapshot"))
    progress = to_the_end(PlanRunner(desk.context, record.digest), within_s=BOUND_S)
    assert progress.status == PlanStatus.COMPLETED, progress.sentence
