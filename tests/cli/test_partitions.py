"""The verbs partitions and pending: what needs attention or is missing, for people and for programs."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cli import declare_commands
from kafka_steward.cli.declarations import ActionCommand
from kafka_steward.cluster.health import PartitionCondition
from kafka_steward.execution.topics.creation import TopicSpec, create_topic
from kafka_steward.sandbox import Sandbox
from tests.airflow_home import Connect
from tests.cli.calling import run
from tests.cli.scene import Scene, new_scene
from tests.eventually import eventually
from tests.simulated_plan import WHO, lose

CONDITIONS = [condition.value for condition in PartitionCondition]
FILTERS = {
    "--under-replicated-partitions": ["t-0", "t-1"],
    "--under-min-isr-partitions": ["t-0"],
    "--at-min-isr-partitions": ["s-0", "t-1", "t-3"],
    "--unavailable-partitions": ["u-0"],
    "--reassigning-partitions": ["t-2"],
}


@pytest.fixture
def hurt(scene: Scene) -> Scene:
    """Brokers 3 and 4 are dead: t-0 is under min ISR, t-1 and t-3 at it, t-2 moves, u-0 has no leader."""
    simulator = scene.simulator
    simulator.topics = {}
    simulator.create("s", [(1,)])
    simulator.create("t", [(1, 3, 4), (1, 2, 3), (1, 2, 4), (2, 1)])
    simulator.create("u", [(3,)])
    simulator.topic_settings["t"]["min.insync.replicas"] = "2"
    simulator.alter({TopicPartition("t", 2): (1, 2, 3)})
    simulator.kill(3)
    simulator.kill(4)
    simulator.topics[TopicPartition("t", 2)].isr = {1, 2, 4}
    return scene


def listed(scene: Scene, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[list[str], str]:
    """The partitions that are listed, and the message."""
    capsys.readouterr()
    assert scene.call("partitions", *words, "--output", "json") == 0
    out, err = capsys.readouterr()
    return [f"{row['topic']}-{row['partition']}" for row in json.loads(out)], err


@pytest.mark.parametrize(("flag", "names"), FILTERS.items())
def test_a_filter_of_kafka_topics_lists_the_partitions_that_it_selects(
    hurt: Scene, capsys: pytest.CaptureFixture[str], flag: str, names: list[str]
) -> None:
    found, message = listed(hurt, capsys, flag)
    assert found == names
    assert message.startswith(f"{len(names)} of 6 partitions {'is' if len(names) == 1 else 'are'} ")
    assert listed(hurt, capsys, flag.removesuffix("-partitions")) == (found, message), "its beginning is enough"


def test_several_filters_list_what_any_of_them_selects_none_lists_all_and_a_topic_is_counted_alone(
    hurt: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    found, message = listed(hurt, capsys, "--unavailable-partitions", "--under-min-isr-partitions")
    assert (found, message) == (["t-0", "u-0"], "2 of 6 partitions are under min ISR or offline.\n")
    assert listed(hurt, capsys) == (["s-0", "t-0", "t-1", "t-2", "t-3", "u-0"], "")
    found, message = listed(hurt, capsys, "--topic", "t", "--under-replicated-partitions")
    assert (found, message) == (["t-0", "t-1"], "2 of 4 partitions are under-replicated.\n")


def test_a_person_reads_the_columns_of_kafka_topics_and_why_a_partition_is_listed(
    hurt: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hurt.call("partitions") == 0
    lines = [line.split(maxsplit=5) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["topic", "partition", "leader", "replicas", "isr", "adding  removing  conditions"]
    assert lines[2][:5] == ["t", "0", "1", "1,3,4", "1"]
    assert lines[2][5] == "under-replicated, under min ISR"
    assert lines[4][:6] == ["t", "2", "1", "1,2,3,4", "1,2,4", "3       4         being reassigned"]
    assert lines[6][:3] == ["u", "0", "none"]


def test_programs_get_the_whole_partition(hurt: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert hurt.call("partitions", "--reassigning-partitions", "--output", "json") == 0
    row = {
        "topic": "t",
        "topic_id": hurt.simulator.topics[TopicPartition("t", 2)].topic_id,
        "partition": 2,
        "leader": 1,
        "replicas": [1, 2, 3, 4],
        "isr": [1, 2, 4],
        "adding": [3],
        "removing": [4],
        "min_isr": 2,
        "conditions": ["reassigning"],
    }
    assert json.loads(capsys.readouterr().out) == [row]
    assert hurt.call("partitions", "--unavailable-partitions", "--output", "csv") == 0
    (read,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (list(read), read["leader"], read["replicas"]) == (list(row), "", "[3]")


def test_where_nothing_is_selected_it_says_so_and_that_is_no_failure(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    assert listed(scene, capsys, "--under-replicated") == ([], "0 of 4 partitions are under-replicated.\n")


def test_a_topic_that_is_not_there_is_one_sentence(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert scene.call("partitions", "--topic", "orders") == 1
    out, err = capsys.readouterr()
    sentence = "Cluster simulated has no topic orders; leave out --topic to list those of all topics.\n"
    assert (out, err) == ("", sentence)


def test_a_topic_that_kafka_hides_from_us_is_a_refusal_and_not_an_empty_list(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.simulator.hidden.add("t")
    assert scene.call("partitions", "--topic", "t") == 1
    assert "describing topic t" in capsys.readouterr().err


def test_a_topic_whose_settings_kafka_refuses_is_named_and_holds_up_no_other(
    hurt: Scene, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = hurt.simulator.snapshot()
    monkeypatch.setattr(hurt.simulator, "snapshot", lambda: snapshot)
    hurt.simulator.hidden.add("s")
    assert hurt.call("partitions", "--at-min-isr-partitions", "--output", "json") == 1
    out, err = capsys.readouterr()
    assert [(row["topic"], row["partition"]) for row in json.loads(out)] == [("t", 1), ("t", 3)]
    assert err.splitlines()[-1] == (
        "Kafka does not let us read min.insync.replicas of 1 topics (s), whose partitions may be under or at min ISR: "
        "grant our principal DESCRIBE_CONFIGS on every topic, as docs/permissions.md says."
    )


@pytest.mark.in_ci("kraft")
def test_on_real_brokers_the_filters_list_what_kafka_topics_lists(
    connect: Connect, sandbox: Sandbox, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    three, two, one = (f"{topic}-{number}" for number in (3, 2, 1))
    for name, replicas in ((three, {0: (1, 2, 3)}), (two, {0: (1, 2), 1: (1, 3)}), (one, {0: (3,)})):
        sandbox.create_topics(name, assignments=replicas, configs={"min.insync.replicas": "2"})
    sandbox.kill(3)
    conn_id = connect(host=sandbox.bootstrap)

    def ours(flag: str) -> set[tuple[str, int]]:
        capsys.readouterr()
        assert run("partitions", flag, "--output", "json", "--cluster", conn_id) == 0
        rows = json.loads(capsys.readouterr().out)
        return {(row["topic"], row["partition"]) for row in rows if row["topic"] in {three, two, one}}

    def kafkas(flag: str) -> set[tuple[str, int]]:
        server = ("--bootstrap-server", sandbox.bootstrap)
        printed = sandbox.kafka_tool("org.apache.kafka.tools.TopicCommand", *server, "--describe", flag)
        found = re.findall(r"Topic: (\S+)\s+Partition: (\d+)", printed)
        return {(name, int(number)) for name, number in found if name in {three, two, one}}

    def assert_same() -> None:
        assert (
            {(three, 0), (two, 1)} <= ours("--under-replicated-partitions") == kafkas("--under-replicated-partitions")
        )
        assert {(three, 0), (two, 0)} == ours("--at-min-isr-partitions") == kafkas("--at-min-isr-partitions")
        assert {(one, 0)} == ours("--unavailable-partitions") == kafkas("--unavailable-partitions")
        assert (two, 1) in ours("--under-min-isr-partitions")
        assert ours("--under-min-isr-partitions") | {(one, 0)} == kafkas("--under-min-isr-partitions"), "no leader"

    eventually(assert_same, within=60)


def test_there_is_a_filter_for_each_condition_and_its_help_says_how_kafka_counts() -> None:
    (verb,) = (verb for verb in declare_commands().subcommands if verb.name == "partitions")
    assert isinstance(verb, ActionCommand)
    filters = {argument.options.get("dest"): argument.flags for argument in verb.args}
    assert [(flag,) for flag in FILTERS] == [filters[condition] for condition in CONDITIONS]
    assert all(word in str(verb.description) for word in ("KIP-352", "acks=all", "Exit code 0"))
    assert "airflow kafka-steward partitions --topic orders" in str(verb.epilog)


@pytest.fixture
def pending(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Scene:
    """Broker 4 is away; topic `orders` shall have four replicas, and has three."""
    pending = new_scene(monkeypatch, tmp_path)
    pending.simulator.mode = "zookeeper"
    lose(pending.simulator, pending.journal, 4)
    create_topic(pending.simulator, pending.journal, TopicSpec("orders", 2, 4, {}), allowed=True, who=WHO)
    return pending


def test_what_is_pending_is_listed_by_partition(pending: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert pending.call("pending") == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0].split() == ["partition", "has", "pending", "state", "why"]
    assert "orders-0   1, 2, 3  1        open   orders-0 has 3 of 4 replicas." in out
    assert err == "2 replicas are pending, and no live broker can host one; they are added when brokers join.\n"
    assert pending.call("pending", "--topic", "t", "--output", "json") == 0
    out, err = capsys.readouterr()
    assert (json.loads(out), err) == ([], "No replica is pending.\n")


@pytest.mark.parametrize(
    ("flaw", "why"),
    [
        ("cordoned", "no other live broker may host one"),
        ("dead", "broker 2 of its replicas is not live; heal first"),
        ("disk", "its replica on broker 2 is in a failed log directory; heal first"),
        ("lagging", "its replica on broker 2 is out of sync"),
        ("moving", "a reassignment of it is in flight"),
    ],
)
def test_a_fill_leaves_and_names_what_it_could_not_complete(
    pending: Scene, capsys: pytest.CaptureFixture[str], flaw: str, why: str
) -> None:
    simulator, name = pending.simulator, TopicPartition("orders", 0)
    simulator.restart(4)
    if flaw == "cordoned":
        simulator.cordoned.add(4)
    elif flaw == "dead":
        simulator.kill(2)
    elif flaw == "disk":
        simulator.fail_disk(2, name)
    elif flaw == "lagging":
        simulator.topics[name].isr.discard(2)
        simulator.topics[name].wedged = True
    else:
        simulator.alter({name: (1, 2, 4)})
    assert pending.call("plan", "fill", "--output", "json") == 0
    out, err = capsys.readouterr()
    assert f"left as it is: orders-0: {why}" in err.splitlines()
    moved = [each["partition"] for each in json.loads(out).get("moves", ())]
    assert moved == ([] if flaw in {"cordoned", "dead"} else [1]), "orders-1 has the same flaw, or none"


def test_a_fill_adds_what_fits_beside_a_cordoned_broker(pending: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    simulator = pending.simulator
    for broker in (2, 3):
        simulator.kill(broker)
    create_topic(simulator, pending.journal, TopicSpec("wide", 1, 4, {}), allowed=True, who=WHO)
    for broker in (2, 3, 4):
        simulator.restart(broker)
    simulator.cordoned.add(4)
    assert pending.call("plan", "fill", "--output", "json") == 0
    moves = json.loads(capsys.readouterr().out)["moves"]
    assert [(each["topic"], sorted(each["replicas"])) for each in moves] == [("wide", [1, 2, 3])]
    assert pending.call("pending", "--topic", "wide") == 0
    assert "; brokers 2 and 3 can host some: run the DAG fill." in capsys.readouterr().err


def test_programs_get_the_kips_placeholders(pending: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    pending.simulator.restart(4)
    assert pending.call("pending", "--topic", "orders", "--output", "json") == 0
    out, err = capsys.readouterr()
    assert json.loads(out)[1] == {
        "topic": "orders",
        "partition": 1,
        "placeholders": [2, 3, 1, -1],
        "replication_factor": 4,
        "pending": 1,
        "state": "open",
        "sentence": "orders-1 has 3 of 4 replicas.",
    }
    assert err == "2 replicas are pending; broker 4 can host some: run the DAG fill.\n"
