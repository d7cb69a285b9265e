"""`plan` on a simulated cluster and on real ones: a proof and files, and nothing is changed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_steward.assignment import Assignment, TopicPartition
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.execution.throttles.leftovers import survey_throttles
from kafka_steward.execution.watch.failure_detector import FailureDetector
from kafka_steward.execution.watch.health import check_health, health_message
from kafka_steward.execution.watch.observation import broker_reports
from kafka_steward.journal.records import PlanStatus
from kafka_steward.journal.sql.database import open_database
from kafka_steward.journal.sql.watch_reports import WatchReports
from kafka_steward.sandbox import Sandbox
from kafka_steward.settings import Settings
from tests.airflow_home import Connect
from tests.cli.airflow_command import assignments, throttles, written
from tests.cli.calling import run
from tests.cli.scene import CLUSTER, Scene
from tests.eventually import eventually
from tests.simulated_plan import FOLLOWERS, RATE, WHO, World, move

CONFIGS = "kafka.admin.ConfigCommand"


def planned(scene: Scene, capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    capsys.readouterr()
    assert scene.call("plan", *words, "--output", "json") == code, capsys.readouterr()
    return json.loads(capsys.readouterr().out)


def test_a_drain_is_planned_and_nothing_is_submitted(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    before = scene.replicas()
    found = planned(scene, capsys, "drain", "--brokers", "1")
    after = {each["partition"]: each["replicas"] for each in found["reassignment"]["partitions"]}
    assert after
    assert not [replicas for replicas in after.values() if 1 in replicas]
    assert found["replicas_moved"] >= found["lower_bound"] > 0
    assert scene.replicas() == before
    assert scene.journal.plans.latest(1) == []


def test_a_relief_needs_a_full_disk_and_moves_what_is_above_the_threshold(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = planned(scene, capsys, "relieve")
    assert nothing["sentence"].startswith("No volume is used above 85%: the fullest one, of broker ")
    scene.simulator.disks[1] = {"/disk-1": 240}
    found = planned(scene, capsys, "relieve", "--max-used", "0.9")
    assert [each["before"] for each in found["moves"]] != []
    assert all(1 in each["before"] and 1 not in each["replicas"] for each in found["moves"])
    assert found["options"]["max_used"] == 0.9


def test_the_proof_is_printed_as_tables(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert scene.call("plan", "drain", "--brokers", "1", "--throttle", "100") == 0
    out, err = capsys.readouterr()
    assert "(no plan can move fewer than " in out
    assert "predicted duration" in out
    for settings in scene.simulator.broker_settings.values():
        settings["follower.replication.throttled.rate"] = "1"
    words = ("plan", "drain", "--brokers", "1", "--throttle")
    for throttle, named in (("0", False), ("1", False), ("3M", True)):
        capsys.readouterr()
        assert scene.call(*words, throttle) == 0
        assert ("1 byte/s, set by someone else: this plan's 3,000,000 bytes/s do" in capsys.readouterr().err) == named
    assert "not predicted: 100 bytes/s limit nothing" in out
    assert "broker  replicas" in out
    assert "a replica is on a broker that is down or being drained" in out
    assert "Nothing was submitted." in err


def test_a_forecast_is_printed_with_the_proof(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    before = scene.replicas()
    words = ("drain", "--brokers", "1", "--throttle", "3M")
    assert "forecast" not in planned(scene, capsys, *words)
    found = planned(scene, capsys, *words, "--forecast")["forecast"]
    assert (found["seconds"] > 0, found["partial"], found["reason"]) == (True, False, "")
    assert scene.call("plan", *words, "--forecast") == 0
    out, err = capsys.readouterr()
    assert re.search(r"^  forecast +about \d+ s$", out, re.MULTILINE)
    assert "Simulating the plan." in err
    assert (scene.replicas(), scene.journal.plans.latest(1)) == (before, [])


def test_a_rate_of_others_at_a_replica_that_stays_out_of_sync_counts_from_the_plan_to_its_end(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    simulator = scene.simulator
    simulator.create("lags", [(4, 1, 2, 3)])
    partition = simulator.topics[TopicPartition("lags", 0)]
    partition.isr, partition.leader, partition.held = {1, 2}, 1, {1: 100, 2: 100, 3: 0, 4: 0}
    simulator.topic_settings["lags"][FOLLOWERS] = "0:3,0:4"
    for broker in (3, 4):
        simulator.broker_settings[broker][RATE] = "1"
    file = scene.folder / "plan.json"
    lowered = ("plan", "set-replication-factor", "--topics", "lags", "--factor", "3", "--file", str(file))
    assert scene.call(*lowered) == 0
    out, err = capsys.readouterr()
    assert "not predicted: 1 B/s into broker 4, set by someone else" in out
    assert re.search("bytes copied +0 B, and up to 100 B into replicas that stay and are out of sync .lags-0.\n", out)
    assert f"Broker 4 has {RATE} 1 byte/s, set by someone else" in err, "and not 3, which leaves"
    simulator.topic_settings["lags"][FOLLOWERS] = "0:3"
    assert scene.call(*lowered) == 0
    assert "set by someone else" not in "".join(capsys.readouterr()), "a rate limits only what a list names"
    simulator.topic_settings["lags"][FOLLOWERS] = "*"
    settings = Settings(stall_after=5, min_free=0)
    world = World(simulator, scene.journal, [move("lags-0", "4123", "412")], settings=settings, auto_generated=False)
    for _ in range(9):
        progress = world.step()
        simulator.tick()
    assert "lags-0 made no progress for 5 s." in progress.sentence
    assert f"Broker 4 has {RATE} 1 byte/s, set by someone else: it slows" in progress.sentence
    assert ([each.broker for each in progress.external_rates], progress.eta_s) == ([4], None)
    survey = survey_throttles(simulator, scene.journal)
    assert [each.entity for each in survey.leftovers] == ["3"]
    assert sorted(each.entity for each in survey.in_use) == ["4", "lags"]


def test_the_files_lead_there_and_back(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    before = scene.replicas()
    file = scene.folder / "drain.json"
    assert scene.call("plan", "drain", "--brokers", "1", "--file", str(file)) == 0
    assert f"airflow kafka-steward apply {file} --cluster" in capsys.readouterr().err
    assert scene.call("apply", str(file)) == 0
    assert not [replicas for replicas in scene.replicas() if 1 in replicas]
    assert scene.call("apply", str(file.with_suffix(".rollback.json"))) == 0
    assert scene.replicas() == before


def test_that_apply_has_to_wait_for_a_plan_is_said_with_the_command(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World(scene.simulator, scene.journal, [move("t-0", "123", "423")], auto_generated=False)
    scene.journal.slot.acquire(world.digest)
    scene.simulator.kill(1)
    file = scene.folder / "heal.json"
    assert scene.call("plan", "heal", "--file", str(file)) == 0
    wait = f"because plan {world.digest[:12]} (apply) holds the plan slot and moves t-0, too:"
    assert (
        f"To execute it once it may start, {wait}\n  airflow kafka-steward apply {file} --wait"
        in capsys.readouterr().err
    )


def test_a_way_back_that_apply_would_refuse_is_named_with_what_to_do(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.simulator.create("one", [(1,), (2,)])
    scene.simulator.topic_settings["one"]["min.insync.replicas"] = "2"
    file = scene.folder / "plan.json"
    raised = ("plan", "set-replication-factor", "--topics", "one", "--factor", "2", "--file", str(file))
    assert scene.call(*raised) == 0
    refused = (
        f"{file.with_suffix('.rollback.json')} would be refused. The reassignment of one-0 is refused: it would go"
    )
    assert refused in capsys.readouterr().err
    assert scene.call("apply", str(file)) == 0
    assert scene.call("apply", str(file.with_suffix(".rollback.json"))) == 1
    drained = ("plan", "drain", "--brokers", "1", "--file", str(file))
    assert scene.call(*drained) == 0
    assert "would be refused" not in capsys.readouterr().err
    scene.simulator.cordoned.add(1)
    assert scene.call(*drained) == 0
    assert "is refused: broker 1 is cordoned and receives no replicas" in capsys.readouterr().err
    scene.simulator.cordoned.clear()
    scene.simulator.kill(2)
    assert scene.call("plan", "heal", "--file", str(file)) == 0
    assert "is refused: broker 2 is not live" in capsys.readouterr().err
    assert scene.call("apply", str(file)) == 0
    assert scene.call("apply", str(file.with_suffix(".rollback.json"))) == 1
    assert "broker 2" in capsys.readouterr().err


def test_the_plan_of_a_drain_is_applied_where_replicas_are_fewer_than_min_insync_replicas(scene: Scene) -> None:
    scene.simulator.create("scratch", [(1,), (2,), (1,)])
    for settings in scene.simulator.topic_settings.values():
        settings["min.insync.replicas"] = "2"
    file = scene.folder / "drain.json"
    assert scene.call("plan", "drain", "--brokers", "1", "--file", str(file)) == 0
    assert scene.call("apply", str(file)) == 0
    assert not [replicas for replicas in (*scene.replicas(), *scene.replicas("scratch")) if 1 in replicas]
    assert [len(replicas) for replicas in scene.replicas("scratch")] == [1, 1, 1]


def test_the_folder_keeps_snapshot_plan_and_proof(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    folder = scene.folder / "kept"
    found = planned(scene, capsys, "drain", "--brokers", "1", "--folder", str(folder))
    assert json.loads((folder / "plan" / "proof.json").read_text())["digest"] == found["plan"]
    assert (folder / "snapshot" / "partitions.parquet").exists()


def test_a_heal_in_an_outage_says_what_the_dag_would_do(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.simulator.create("u", [(3, 4)])
    for broker in (3, 4):
        scene.simulator.kill(broker)
    for brokers, would in (
        ((), "would not start now"), (("--brokers", "3"), "would heal only broker 3"), (("--brokers", "3,4"), ""),
    ):  # fmt: skip
        scene.call("plan", "heal", *brokers)
        said = f"The DAG {would}; this plan does not wait. Brokers 3 and 4 are down: 2 of 4 brokers, more than"
        assert (said in capsys.readouterr().err) == bool(would)


def test_a_heal_is_of_the_brokers_that_are_down(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is nothing to heal" in planned(scene, capsys, "heal")["sentence"]
    scene.simulator.kill(2)
    found = planned(scene, capsys, "heal")
    assert {reason["reason"] for reason in found["moves"]} == {"broker_failed"}
    assert not [each for each in found["moves"] if 2 in each["replicas"]]


@pytest.mark.parametrize("observed", [True, False])
def test_a_heal_with_zookeeper_names_a_rack_that_is_down_if_a_watch_has_observed_its_brokers(
    scene: Scene, capsys: pytest.CaptureFixture[str], tmp_path: Path, observed: bool
) -> None:
    """Of a dead broker, ZooKeeper keeps no rack."""
    scene.simulator.mode = "zookeeper"
    database = open_database(f"sqlite:///{tmp_path}/journal.db", scene.simulator.cluster_id, "here")
    reports = scene.journal.watch_reports = WatchReports(database)
    for killed in ((), (2,)) if observed else ((2,),):
        for broker in killed:
            scene.simulator.kill(broker)
        health, _ = check_health(scene.simulator, scene.journal)
        reports.replace_brokers(broker_reports(health))
    assert scene.call("plan", "heal") == 0
    out, err = capsys.readouterr()
    lost = "note: All brokers of rack b are down: each of 4 partitions will have two copies in one rack.\n"
    unknown = "The rack of broker 2 is not known: Kafka has forgotten it, and no watch has observed it. Whether all "
    assert (lost in out, unknown in err) == (observed, not observed)


def test_a_heal_is_also_of_the_failed_disks_that_were_reported(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.simulator.create("reported", [(2, 1)])
    scene.simulator.create("unreported", [(1, 2)])
    scene.simulator.create("dead", [(3, 4)])
    for broker, topic in ((2, "reported"), (1, "unreported")):
        scene.simulator.fail_disk(broker, TopicPartition(topic, 0))
    for words in (("rebalance",), ("expand",), ("drain", "--brokers", "4")):
        assert scene.call("plan", *words) == 0
        named = (
            "Log directory /disk-2 of broker 1 has failed: partitions with a replica in it are left as they are until"
        )
        assert f"{named} it is healed:\n  airflow kafka-steward plan heal --brokers 1" in capsys.readouterr().err
    left = [
        f"Log directory /disk-2 of broker {broker} has failed, and is left out: heal_failed_disks is off. To have it "
        f"healed, set that, or report it:\n  airflow kafka-steward failed {broker} --disk /disk-2 --cluster {CLUSTER}\n"
        for broker in (1, 2)
    ]
    assert scene.call("plan", "heal") == 0
    told = capsys.readouterr()
    assert "No broker that hosts replicas is down: there is nothing else to heal." in told.out
    assert "".join(left) in told.err
    assert scene.call("failed", "2", "--disk", "/disk-2") == 0
    assert scene.call("plan", "heal") == 0
    err = capsys.readouterr().err
    assert (left[0] in err, left[1] in err) == (True, False)
    (moved,) = planned(scene, capsys, "heal")["moves"]
    assert (moved["topic"], 2 in moved["replicas"]) == ("reported", False)
    assert scene.call("plan", "heal", "--brokers", "1") == 0
    assert "left out" not in capsys.readouterr().err
    scene.simulator.mute = {1}
    assert scene.call("plan", "heal") == 0
    of_unknown_path = f"or name its broker:\n  airflow kafka-steward plan heal --brokers 1 --cluster {CLUSTER}\n"
    assert of_unknown_path in capsys.readouterr().err
    scene.simulator.mute.clear()
    scene.simulator.kill(4)
    assert {each["topic"] for each in planned(scene, capsys, "heal")["moves"]} == {"reported", "dead"}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("heal", "--brokers", "1"),
            (
                "Broker 1 has nothing to heal: it is live; to empty it: airflow kafka-steward plan drain --brokers 1 "
                f"--cluster {CLUSTER}."
            ),
        ),
        (("heal", "--brokers", "9"), "Broker 9 has nothing to heal: no partition has a replica on it."),
        (
            ("drain", "--brokers", "9"),
            "Broker 9 cannot be drained: the cluster has no broker 9; the live",
        ),
        (("drain", "--brokers", "1,2,3,4"), "All live brokers would be drained"),
        (("rebalance", "--topics", "("), "'(' is not a regular expression"),
        (("set-replication-factor", "--topics", "nope", "--factor", "2"), "No topic has a full name that matches nope"),
        *(
            ((verb, "--topics", "nope"), "No topic has a full name that matches nope")
            for verb in ("rebalance", "expand")
        ),
    ],
)
def test_what_cannot_be_planned_is_one_sentence(
    scene: Scene, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], sentence: str
) -> None:
    assert scene.call("plan", *words) == 1
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("drain", "--brokers", "4"), "Broker 4 already holds no replica."),
        (("fill",), "No partition has a pending replica."),
    ],
)
def test_nothing_to_do_is_said_and_is_no_failure(
    scene: Scene, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], sentence: str
) -> None:
    found = planned(scene, capsys, *words)
    assert (found["plan"], sentence in found["sentence"]) == (None, True)


def test_every_verb_takes_the_flag_and_topics_that_do_not_take_part_are_no_success(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.simulator.create("__consumer_offsets", [(1, 2)] * 4)
    scene.simulator.create("__strimzi_canary", [(2, 1)])
    factor = ("set-replication-factor", "--factor", "3", "--topics")
    for words in (("rebalance", "--topics"), ("expand", "--topics"), factor):
        assert scene.call("plan", *words, "__cons.*") == 1
        assert "__consumer_offsets is one of Kafka's own topics; switch internal_topics on." in capsys.readouterr().err
        for more in (("__consumer_offsets",), ("__cons.*", "--internal-topics")):
            assert {each["topic"] for each in planned(scene, capsys, *words, *more)["moves"]} == {"__consumer_offsets"}
    moved = planned(scene, capsys, "drain", "--brokers", "1", "--internal-topics")["moves"]
    assert {each["topic"] for each in moved} >= {"__consumer_offsets", "__strimzi_canary"}
    scene.simulator.kill(1)
    assert scene.call("plan", "heal", "--internal-topics", "--topics", "nope") == 1
    assert "No topic has a full name that matches nope; correct topics." in capsys.readouterr().err


def test_another_replication_factor_and_a_budget(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(scene, capsys, "set-replication-factor", "--topics", "t", "--factor", "2")
    assert {len(each["replicas"]) for each in found["moves"]} == {2}
    whole = planned(scene, capsys, "drain", "--brokers", "1")["replicas_moved"]
    assert planned(scene, capsys, "drain", "--brokers", "1", "--max-moves", "1")["replicas_moved"] == 1 < whole


def test_a_drain_says_that_its_budget_leaves_partitions_on_the_broker(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.simulator.create("kept", [(1, 2)])
    assert scene.call("plan", "drain", "--brokers", "1", "--max-moves", "1", "--exclude", "kept") == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "Broker 1 will not be empty" in line]
    assert "kept-0 (the plan leaves it out), t-" in line
    assert " (max_moves or max_bytes leaves it to a later plan)" in line


def test_that_the_dag_would_wait_is_reported(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.simulator.kill(2)
    assert scene.call("plan", "rebalance") in (0, 1)
    assert "The DAG would not start now. The cluster is not ready:" in capsys.readouterr().err


@pytest.fixture
def two_in_sync(sandbox: Sandbox) -> Iterator[None]:
    """min.insync.replicas is 2 by default in the whole cluster."""
    words = ("--bootstrap-server", sandbox.bootstrap, "--alter", "--entity-type", "brokers", "--entity-default")
    sandbox.kafka_tool(CONFIGS, *words, "--add-config", "min.insync.replicas=2")
    yield
    # With eligible leader replicas (KIP-966), Kafka does not let it be deleted.
    sandbox.kafka_tool(CONFIGS, *words, "--add-config", "min.insync.replicas=1")


@pytest.mark.in_ci("zookeeper")
@pytest.mark.ci
@pytest.mark.usefixtures("two_in_sync")
def test_a_broker_is_drained_of_topics_with_fewer_replicas_than_the_clusters_min_insync_replicas(
    connect: Connect, sandbox: Sandbox, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sandbox.create_topics(topic, assignments={0: [1, 2, 3]})
    sandbox.create_topics(f"{topic}-one", assignments={0: [3], 1: [4], 2: [3]})
    sandbox.fill(f"{topic}-one", 300_000)
    conn_id = connect(host=sandbox.bootstrap, extra={"bootstrap_timeout_ms": 8000, "min_free": 0})
    file = tmp_path / "drain.json"
    words = ("drain", "--brokers", "3", "--topics", f"{topic}.*", "--file", str(file))
    assert run("plan", *words, "--cluster", conn_id) == 0
    assert run("apply", str(file), "--cluster", conn_id) == 0, capsys.readouterr()
    after = assignments(sandbox, topic)
    assert not [replicas for numbered in after.values() for replicas in numbered.values() if 3 in replicas]
    assert {len(replicas) for replicas in after[f"{topic}-one"].values()} == {1}

    one = written(tmp_path / "one.json", {f"{topic}-one": {1: (3,)}})
    assert run("apply", one, "--cluster", conn_id) == 0, capsys.readouterr()
    assert assignments(sandbox, topic)[f"{topic}-one"][1] == (3,)


@pytest.mark.parametrize("isr", [set(), {4}], ids=["eligible leader replicas", "the last in sync"])
def test_a_live_broker_is_not_said_to_have_to_come_back(
    scene: Scene, capsys: pytest.CaptureFixture[str], isr: set[int]
) -> None:
    scene.simulator.create("old", [(2, 4)])
    scene.simulator.kill(4)
    partition = scene.simulator.topics[TopicPartition("old", 0)]
    partition.isr, partition.leader = isr, None
    assert scene.call("plan", "drain", "--brokers", "2") == 1
    assert (
        "old-0: it has no leader, and so nothing to copy from; bring back its broker 4 with" in capsys.readouterr().out
    )
    scene.call("apply", scene.file("old-0: 34"))
    assert "bring back its broker 4" in "".join(capsys.readouterr())


GONE = "no replica of it is live, and moving it would lose its data; bring back its broker {} with its data"


@pytest.mark.parametrize(
    "words",
    [
        ("rebalance",),
        ("rebalance", "--balance", "racks"),
        ("drain", "--brokers", "1", "--balance", "replicas"),
        ("set-replication-factor", "--topics", "t", "--topics", "old", "--factor", "3"),
        ("heal",),
    ],
    ids=lambda words: words[0],
)
def test_a_partition_without_a_live_replica_is_left_named_and_in_nobodys_way(
    scene: Scene, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    scene.simulator.delete("t")
    scene.simulator.create("t", [(1, 2)] * 3)
    scene.simulator.create("old", [(4,)])
    scene.simulator.kill(4)
    file = scene.folder / "plan.json"
    in_need = words[0] in {"set-replication-factor", "heal"}
    assert scene.call("plan", *words, "--file", str(file)) == in_need
    out, err = capsys.readouterr()
    assert f"left as it is: old-0: {GONE.format(4)}, or delete the topic" in out
    assert ("partition  from" in out) == file.exists(), "of a plan without moves, no table of them"
    needs = "old-0 needs a change and stays as before. The plan has the reason of each, and is of the others.\n"
    assert (needs in err) == in_need
    if words[0] == "heal" or "racks" in words:
        assert not file.exists()
        return
    asked = json.loads(file.read_text())["partitions"]
    assert {each["topic"] for each in asked} == {"t"}
    assert scene.call("apply", str(file)) == 0
    assert scene.plan.status is PlanStatus.COMPLETED
    assert scene.replicas("old") == [(4,)]


def test_a_plan_that_moves_nothing_names_what_it_only_leaves_for_now(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.simulator.delete("t")
    scene.simulator.create("t", [(1, 2), (3, 4)], size=1000)
    scene.simulator.topics[TopicPartition("t", 0)].isr = {1}
    scene.simulator.alter({TopicPartition("t", 1): (3, 1)})
    found = planned(scene, capsys, "rebalance")
    assert found["sentence"] == (
        "Nothing else has to move. Left as it is for now: t-0 (a live replica of it is out of sync), t-1 (it is being "
        "reassigned)."
    )


def test_the_repair_of_racks_counts_as_health_does_and_names_what_it_leaves_and_why(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    """Brokers 1 and 4 are all of rack a."""
    simulator = scene.simulator
    of = {
        "mend": (1, 4),
        "__strimzi_canary": (1, 4),
        "chosen": (1, 4),
        "late": (1, 4),
        "foreign": (1, 2),
        "lost": (1, 4),
    }
    for topic, replicas in of.items():
        simulator.create(topic, [replicas] * (5 if topic == "chosen" else 1))
    simulator.topics[TopicPartition("late", 0)].isr = {1}
    lost = simulator.topics[TopicPartition("lost", 0)]
    lost.isr, lost.leader = set(), None
    simulator.alter({TopicPartition("foreign", 0): (1, 4)})

    def counted() -> tuple[int, str]:
        health, _ = check_health(simulator, scene.journal)
        return len(health.rack_violations), health_message(health)

    every = (
        "foreign-0 (is being reassigned; look again when that has ended); __strimzi_canary-0 (service topic, which a "
        "rebalance moves with internal_topics or by its full name); lost-0 (has no leader; bring back a broker or "
        "log directory that was in sync last, or delete the topic)"
    )
    begin, racks = "Not spread over the racks as well as can be, and left: ", ("rebalance", "--balance", "racks")
    assert counted()[0] == 7
    assert counted()[1].endswith(f" {begin}{every}.")
    left = (
        f"{begin}chosen-0, chosen-1, chosen-2 and 2 more (its topic is left out by include, exclude or internal_topics)"
        "; late-0 (a live replica is out of sync; make another plan when it is in sync); not counted, because no "
        f"rebalance moves such: {every}."
    )
    assert scene.call("plan", *racks, "--exclude", "chosen") == 1
    out, err = capsys.readouterr()
    assert "late-0 needs a change and stays as before; 2 more are pinned, left out or left for now. The plan" in err
    assert "partitions not spread over the racks  7 before, 6 after" in out
    assert left in out.splitlines()
    found = planned(scene, capsys, *racks, "--exclude", "chosen", code=1)
    assert (found["rack_violations"], found["rack_left"]["counts"]["excluded"]) == ({"before": 7, "after": 6}, 5)
    simulator.delete("mend")
    simulator.delete("lost")
    told = planned(scene, capsys, *racks, "--exclude", "chosen", code=1)["sentence"]
    assert told.endswith(left.replace(every, every.rpartition("; lost-0")[0]))
    scene.call("plan", *racks, "--exclude-brokers", "2,3", "--exclude", "t|late")
    assert "5 partitions need a change and stay as before" in capsys.readouterr().err
    fewer = planned(scene, capsys, "set-replication-factor", "--topics", "t", "--factor", "2")
    assert fewer["rack_violations"] == {"before": counted()[0], "after": counted()[0]}
    assert fewer["rack_left"]["counts"]["other_goal"] == counted()[0]


def test_the_counts_of_what_a_plan_leaves_add_up_to_the_lines_that_name_it(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.simulator.create("old", [(4,)])
    scene.simulator.create("foreign", [(2, 4)])
    scene.simulator.kill(4)
    scene.simulator.alter({TopicPartition("foreign", 0): (2, 3)})
    assert scene.call("plan", "heal") == 1
    out, err = capsys.readouterr()
    assert sorted(re.findall("left as it is: (.*?):", out)) == ["foreign-0", "old-0"]
    assert "old-0 needs a change and stays as before; 1 more is pinned, left out or left for now. The plan has" in err


def test_what_a_rebalance_does_not_need_to_change_is_named_and_is_no_failure(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    of = {"lost": (4,), "foreign": (2, 3), "late": (1, 2), "chosen": (1, 2), "uneven": (1,)}
    for topic, replicas in of.items():
        scene.simulator.create(topic, [replicas] * (6 if topic == "uneven" else 1))
    scene.simulator.kill(4)
    scene.simulator.topics[TopicPartition("late", 0)].isr = {1}
    scene.simulator.alter({TopicPartition("foreign", 0): (2, 1)})
    assert scene.call("plan", "rebalance", "--exclude", "t|chosen") == 0, "a rebalance needs nothing of what is lost"
    out, err = capsys.readouterr()
    assert {"lost-0", "foreign-0", "late-0"} <= set(re.findall("left as it is: (.*?):", out))
    assert "needs a change" not in err


def test_a_broker_that_a_drain_does_not_empty_and_the_rates_of_others_are_in_what_is_predicted(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "will not be empty" not in printed(scene, capsys)
    scene.simulator.create("dead", [(1, 4), (2, 4)])
    scene.simulator.kill(4)
    assert "1 replica is on broker 1, 2 on dead brokers\n" in printed(
        scene, capsys, "--topics", "dead", "--balance", "replicas"
    )
    scene.simulator.restart(4)
    scene.simulator.delete("dead")
    scene.simulator.create("wide", [(1, 2, 3, 4), (2, 3, 4, 1)], size=500)
    scene.simulator.create("service", [(1, 2)])
    output = printed(scene, capsys, "--exclude", "service")
    why = "(too few brokers may hold its replicas)"
    assert (
        "Broker 1 will not be empty: 3 partitions stay on it: service-0 (the plan leaves it out), "
        f"wide-0 {why}, wide-1 {why}."
    ) in output
    none = printed(scene, capsys, "--exclude", ".*")
    assert none.startswith("Nothing else has to move. Broker 1 will not be empty: 7 partitions stay on it: service-0 (")
    for rate, duration in (
        (None, "less than a second at 50.0 MB/s into each broker"),
        ("1", "not predicted: 1 B/s into broker 4, set by someone else"),
        ("1000000", "at least 40 s, with 1.0 MB/s into broker 4, set by someone else"),
    ):
        if rate == "1000000":
            scene.simulator.create("big", [(1, 2, 3)] * 4, size=10_000_000)
        scene.simulator.broker_settings[4] = {} if rate is None else {RATE: rate}
        assert duration in next(line for line in printed(scene, capsys).splitlines() if "duration" in line)
    of_leader = "leader.replication.throttled.{}"
    for listed, rate, duration in (
        ("0:3", "1", "at least 40 s, with 1.0 MB/s into broker 4"),  # another broker leads
        ("0:1", "2000000", "at least 40 s, with 1.0 MB/s into broker 4"),
        ("*", "500000", "at least 80 s, with 500.0 kB/s out of broker 1"),
        ("0:1", "1", "not predicted: 1 B/s out of broker 1"),
    ):
        scene.simulator.topic_settings["big"][of_leader.format("replicas")] = listed
        scene.simulator.broker_settings[1] = {of_leader.format("rate"): rate}
        assert duration in next(line for line in printed(scene, capsys).splitlines() if "duration" in line)


def printed(scene: Scene, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What the plan of a drain of broker 1 says."""
    capsys.readouterr()
    scene.call("plan", "drain", "--brokers", "1", "--throttle", "50M", *words)
    return capsys.readouterr().out


def test_what_is_left_is_named_beside_many_regressions(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.simulator.create("u", [(1, 2, 3)] * 30 + [(4,)])
    scene.simulator.kill(4)
    assert scene.call("plan", "set-replication-factor", "--topics", "u", "--factor", "2") == 1
    out = capsys.readouterr().out
    assert "u-0 will have 2 replicas instead of 3." in out
    assert "... and 10 more\n" in out
    assert f"left as it is: u-30: {GONE.format(4)}" in out


@pytest.mark.parametrize(("target", "code"), [((1, 2), 1), ((2, 3), 0)])
def test_a_drain_that_leaves_on_the_broker_what_others_move_is_not_whole(
    scene: Scene, capsys: pytest.CaptureFixture[str], target: Assignment, code: int
) -> None:
    scene.simulator.create("foreign", [(1, 4)])
    scene.simulator.alter({TopicPartition("foreign", 0): target})
    for words in ((), ("--topics", "foreign")):
        assert scene.call("plan", "drain", "--brokers", "1", *words) == code
        assert ("foreign-0 needs a change and stays as before" in capsys.readouterr().err) == bool(code)


@pytest.mark.in_ci("zookeeper")
def test_a_plan_of_a_real_cluster_can_be_applied(
    connect: Connect, sandbox: Sandbox, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sandbox.create_topics(topic, partitions=3, assignments={number: [1, 2, 3] for number in range(3)})
    conn_id = connect(host=sandbox.bootstrap, extra={"bootstrap_timeout_ms": 8000})
    before = assignments(sandbox, topic)
    file = tmp_path / "drain.json"
    words = ("drain", "--brokers", "3", "--topics", topic, "--file", str(file), "--output", "json")
    assert run("plan", *words, "--cluster", conn_id) == 0
    found = json.loads(capsys.readouterr().out)
    assert {each["topic"] for each in found["moves"]} == {topic}
    assert (assignments(sandbox, topic), throttles(sandbox)) == (before, {})
    assert run("apply", str(file), "--cluster", conn_id) == 0
    after = assignments(sandbox, topic)[topic]
    assert after == {each["partition"]: tuple(each["replicas"]) for each in found["moves"]}
    assert not [replicas for replicas in after.values() if 3 in replicas]


def test_the_log_directory_of_a_live_broker_is_to_be_restored_and_no_live_broker_to_be_brought_back(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.simulator.create("old", [(4, 2)])
    old = scene.simulator.topics[TopicPartition("old", 0)]
    scene.simulator.fail_disk(4, TopicPartition("old", 0))
    old.isr, old.leader = set(), None
    restore = "restore the failed log directory of its broker 4, "
    for words in (("heal", "--brokers", "4"), ("set-replication-factor", "--topics", "old", "--factor", "3")):
        assert scene.call("plan", *words) == 1
        assert f"nothing to copy from; {restore}let" in capsys.readouterr().out
    scene.call("apply", scene.file("old-0: 34"))
    assert restore in "".join(capsys.readouterr())
    scene.simulator.kill(2)
    assert scene.call("plan", "heal", "--brokers", "4") == 1
    assert f"bring back its broker 2 with its data, or {restore}or" in capsys.readouterr().out


@pytest.mark.in_ci("kraft")
@pytest.mark.ci
def test_what_lived_on_a_dead_broker_alone_keeps_no_plan_of_a_real_cluster_from_its_end(
    connect: Connect, sandbox: Sandbox, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = f"{topic}-old"
    sandbox.create_topics(topic, assignments={0: [3, 1], 1: [1, 3]})
    sandbox.create_topics(old, assignments={0: [4]})
    conn_id = connect(host=sandbox.bootstrap, extra={"bootstrap_timeout_ms": 8000, "min_free": 0, "step_interval": 1})
    sandbox.kill(4)
    with KafkaCluster({"bootstrap_servers": sandbox.bootstrap}) as cluster:
        eventually(lambda: _assert_no_leader(cluster, old), within=60)
    file = tmp_path / "drain.json"
    chosen = ("--topics", topic, "--topics", old, "--balance", "replicas")
    assert run("plan", "drain", "--brokers", "3", *chosen, "--file", str(file), "--cluster", conn_id) == 0
    assert f"left as it is: {old}-0: {GONE.format(4)}, or delete the topic" in capsys.readouterr().out
    assert run("apply", str(file), "--cluster", conn_id) == 0
    assert "is complete: 2 of 2 partitions moved." in capsys.readouterr().out
    drained = assignments(sandbox, topic)[topic]
    assert {tuple(sorted(replicas)) for replicas in drained.values()} == {(1, 2)}

    both: dict[str, dict[int, Assignment]] = {topic: {0: drained[0][::-1]}, old: {0: (2,)}}
    assert run("apply", written(file, both), "--cluster", conn_id) == 1
    said = capsys.readouterr().err
    assert f"Left as it is: {old}-0: {GONE.format(4)}, or delete the topic," in said
    assert "is complete: 1 of 1 partition moved, 1 more partition left by the plan." in said
    assert assignments(sandbox, topic) == {topic: drained | {0: drained[0][::-1]}, old: {0: (4,)}}


def _assert_no_leader(cluster: KafkaCluster, topic: str) -> None:
    snapshot = cluster.snapshot([topic])
    assert 4 not in snapshot.live
    assert [each.leader for each in snapshot.partitions.values()] == [None]


def test_a_plan_says_what_a_person_has_set_against_it(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.simulator.kill(1)
    FailureDetector(scene.simulator, scene.journal, Settings(), WHO).poll()
    assert scene.call("failed", "1", "--withdraw") == 0
    assert scene.call("bounce", "4", "--for", "2h") == 0
    capsys.readouterr()
    assert scene.call("plan", "heal") == 0
    told = capsys.readouterr().err
    off = "The heal of broker 1 was called off: /admin/failed_brokers/1 was deleted."
    assert f"{off} The DAG does not heal it; this plan does." in told
    assert re.search(
        r"Broker 4 announced a restart until 1970-01-01 02:\d\d:\d\d UTC: meanwhile, 4 moves are held that would add a "
        r"replica there. To end that:\n  airflow kafka-steward bounce 4 --withdraw --cluster kafka_simulated\n",
        told,
    )
    assert scene.call("bounce", "1") == 0
    assert scene.call("failed", "1", "--reason", "gone") == 0
    assert scene.call("plan", "heal") == 0
    told = capsys.readouterr().err
    assert "Broker 1 announced a restart. The DAG waits; this plan does not." in told
    assert "called off" not in told
    assert scene.call("status") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" until")[0] for line in lines if "announced a restart" in line] == [
        "Broker 1 announced a restart.", "Broker 4 announced a restart",
    ]  # fmt: skip
