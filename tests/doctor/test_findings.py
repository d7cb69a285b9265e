"""Checks at the same time, each with its end; what the single findings say, and the command that helps."""

from __future__ import annotations

import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.cli.airflow_state import AirflowState, DagFacts, airflow_findings
from kafka_steward.cli.probe import ProbeDag, ProbeRun, run_findings, unusable_dag
from kafka_steward.cluster.state import BrokerLogDirs, Directory
from kafka_steward.doctor.findings import Check, Commands, Finding, Level, run_checks
from kafka_steward.doctor.journal import LeaseFacts, journal_finding, restart_findings, watch_finding
from kafka_steward.doctor.kafka import (
    BROKER_THROTTLE,
    MOVE,
    TOPIC_THROTTLE,
    capability_finding,
    cordon_findings,
    describe_cluster,
    find_service,
    hidden_finding,
    lagging_findings,
    migration_findings,
    right_finding,
    service_findings,
)
from kafka_steward.doctor.planning import (
    Probe,
    inspect_workspace,
    java_finding,
    probe_finding,
    remote_spark_finding,
    spark_finding,
)
from kafka_steward.errors import KafkaRefused, PlanError
from kafka_steward.planning.spark.installed import InstalledSpark, java_version
from tests.present import present
from tests.simulator import Simulator

ME = Commands("kafka_production", "broker1:9092", "me")
OK = Finding("one", Level.OK, "It works.")
REFUSED = KafkaRefused(31, "no", "Kafka refused it; grant our principal Alter on the cluster.")


def fail(error: Exception) -> NoReturn:
    raise error


def sleep() -> list[Finding]:
    time.sleep(3)
    return []


def test_one_check_that_hangs_or_fails_hides_no_other() -> None:
    checks = [
        Check("slow", sleep, "wait"),
        Check("wrong", lambda: fail(PlanError("It is wrong.")), "repair"),
        Check("broken", lambda: fail(ValueError("odd")), "look"),
        Check("one", lambda: [OK], "nothing"),
    ]
    began_s = time.monotonic()
    slow, wrong, broken, one = run_checks(checks, within_s=0.2)
    assert time.monotonic() - began_s < 2
    assert slow == Finding("slow", Level.FAULT, "There was no answer within 0.2 s.", "wait")
    assert wrong == Finding("wrong", Level.FAULT, "It is wrong.", "repair")
    assert broken == Finding("broken", Level.FAULT, "The check failed: ValueError: odd.", "look")
    assert one == OK


@pytest.mark.parametrize(
    ("cluster_id", "host", "name"),
    [
        ("x", "b-1.demo.a1b2c3.c4.kafka.eu-west-1.amazonaws.com", "Amazon MSK"),
        ("x", "boot-a1b2c3.c2.kafka-serverless.us-east-1.amazonaws.com", "Amazon MSK Serverless"),
        ("x", "b-1.demo.a1b2c3.c4.kafka.cn-north-1.amazonaws.com.cn", "Amazon MSK"),
        ("lkc-a1b2c3", "any", "Confluent Cloud"),
        ("x", "b3-pkc-a1b2.eu-central-1.aws.confluent.cloud", "Confluent Cloud"),
        ("x", "demo.servicebus.windows.net", "Azure Event Hubs"),
        ("x", "kafka-1.demo.aivencloud.com", "Aiven for Apache Kafka"),
        ("redpanda.5b1f", "10.0.0.1", "Redpanda"),
    ],
)
def test_a_managed_kafka_is_known_by_what_it_answers(cluster_id: str, host: str, name: str) -> None:
    assert present(find_service(cluster_id, ["10.0.0.1", host])).name == name


@pytest.mark.parametrize("host", ["kafka1.example.com", "notconfluent.cloud", "servicebus.windows.net.example.com"])
def test_a_kafka_of_ones_own_is_no_service(host: str) -> None:
    assert find_service("Z0Uh8DEbQ5GRxatlyUHCZA", [host]) is None


def test_a_service_that_lets_nobody_move_replicas_is_a_fault_and_so_is_a_second_balancer() -> None:
    snapshot = Simulator.of("1a 2b", "t: 12").snapshot()
    assert service_findings(snapshot, ME, balances_itself=False) == []
    (found,) = service_findings(snapshot, ME, balances_itself=True)
    assert (found.level, "confluent.balancer.enable" in found.sentence) == (Level.FAULT, True)


def test_what_is_refused_is_named_with_the_right_that_is_missing() -> None:
    assert right_finding({MOVE: None}, ME) == Finding("rights", Level.OK, "Kafka lets us move replicas.")
    found = right_finding({MOVE: REFUSED, BROKER_THROTTLE: None}, ME)
    assert (found.level, found.sentence) == (Level.FAULT, f"We may not move replicas: {REFUSED}")
    assert found.command == (
        "kafka-acls.sh --bootstrap-server broker1:9092 --add --allow-principal User:me --operation Alter --cluster"
    )


def test_without_the_right_to_throttle_the_setting_that_needs_none_is_named() -> None:
    found = right_finding({MOVE: None, BROKER_THROTTLE: REFUSED, TOPIC_THROTTLE: None}, ME)
    assert found.sentence.endswith("set throttle to 0: moves then run at full speed.")
    assert found.command.splitlines()[-1] == "export AIRFLOW__KAFKA_STEWARD__THROTTLE=0"
    assert "throttle to 0" not in right_finding({MOVE: REFUSED, TOPIC_THROTTLE: REFUSED}, ME).sentence


def test_the_cluster_is_described_with_what_is_down() -> None:
    simulator = Simulator.of("1a 2b 3c", "t: 123 231")
    told = describe_cluster(simulator.snapshot(), "4.3", ME, mode="KRaft mode")
    assert told.sentence.startswith(f"Cluster {simulator.cluster_id} in KRaft mode, with the requests of Kafka 4.3, ")
    assert migration_findings(in_migration=False) == []
    assert "in migration from ZooKeeper to KRaft" in migration_findings(in_migration=True)[0].sentence
    assert (told.level, told.sentence.endswith("2 partitions, 0 under-replicated.")) == (Level.OK, True)
    simulator.kill(2)
    told = describe_cluster(simulator.snapshot(), "4.3", ME, mode="KRaft mode")
    assert (told.level, "Brokers that are down and host replicas: 2." in told.sentence) == (Level.NOTE, True)


@pytest.mark.parametrize("mode", ["kraft", "zookeeper"])
def test_a_rack_whose_brokers_are_all_down_is_named_or_said_to_be_unknown(mode: str) -> None:
    simulator = Simulator.of("1a 2a 3b 4b 5c 6c", "t: 135 246", mode=mode)
    simulator.kill(1)
    simulator.kill(2)

    def told(racks: dict[int, str]) -> str:
        return describe_cluster(simulator.snapshot(), "4.3", ME, mode="any mode", racks=racks).sentence

    forgotten = " The racks of brokers 1 and 2 are not known: Kafka has forgotten them, and no watch has observed them."
    lost = "down and host replicas: 1, 2 (no broker of rack a is live)."
    assert told({1: "a", 2: "a", 3: "b"}).endswith(lost)
    assert (lost in told({}), forgotten in told({})) == ((True, False) if mode == "kraft" else (False, True))


def test_replicas_that_lag_are_named_with_the_topics_that_may_have_observers() -> None:
    simulator = Simulator.of("1a 2b 3c", "t: 123 231")
    assert lagging_findings(simulator.snapshot(), [], ME) == []
    simulator.topics[TopicPartition("t", 1)].isr.discard(3)
    (found,) = lagging_findings(simulator.snapshot(), ["t"], ME)
    assert found.sentence.startswith(
        "Replicas of live brokers that are not in sync: t-1 on 3. Topics with confluent.placement.constraints, whose "
        "observers never join the ISR: t. If they do not catch up, look for a throttle"
    )
    simulator.kill(3)
    assert lagging_findings(simulator.snapshot(), [], ME) == [], "that is for a heal"


@pytest.mark.parametrize(
    ("version", "missing"),
    [("4.3", []), ("4.1", ["KIP-1066"]), ("3.9", ["KIP-860", "KIP-1066"]), ("2.8", ["disk space", "KIP-860"])],
)
def test_what_a_version_of_kafka_does_not_offer_is_named(version: str, missing: list[str]) -> None:
    found = capability_finding(version)
    assert found.level is (Level.NOTE if missing else Level.OK)
    assert [words for words in missing if words not in found.sentence] == []


@pytest.mark.parametrize(
    ("client", "principal", "secured"),
    [
        ({}, "ANONYMOUS", False),
        ({"security_protocol": "SASL_PLAINTEXT", "sasl_plain_username": "ann"}, "ann", True),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}, "PRINCIPAL", True),
        ({"security_protocol": "SSL"}, "PRINCIPAL", True),
    ],
)
def test_acls_are_for_the_user_whom_kafka_sees(client: dict[str, str], principal: str, secured: bool) -> None:
    granting = Commands.of("x", client, "b:9092").grant("--cluster", "Alter")
    assert f"--allow-principal User:{principal} " in granting
    assert ("--command-config" in granting) == secured


def test_names_are_quoted_for_the_shell() -> None:
    odd = Commands("a b; ls", "b:9092", "a b")
    assert odd.steward("status").endswith(" --cluster 'a b; ls'")
    assert " --allow-principal 'User:a b' " in odd.grant("--cluster", "Alter")


def test_disks_and_hidden_topics() -> None:
    simulator = Simulator.of("1a 2b", "t: 12")
    snapshot = simulator.snapshot()
    dirs = simulator.log_dirs([1, 2])
    assert cordon_findings(snapshot, dirs, ME) == []
    (found,) = cordon_findings(snapshot, {1: dirs[1]}, ME)
    assert found.sentence == "Brokers that did not report their disks in time: 2."
    (found,) = cordon_findings(snapshot, {1: dirs[1]}, ME, {2: "Broker 2 is named x."})
    assert found.sentence == "Brokers that did not report their disks in time: 2. Broker 2 is named x."
    assert hidden_finding({}, ME).level is Level.OK
    assert "describe secret, and nothing is planned" in hidden_finding({"secret": (1,)}, ME).sentence


def opened_by(host: str) -> dict[str, object]:
    return {"host": host, "first_ms": 0, "last_ms": 0}


def test_a_file_is_no_journal_for_tasks_on_other_hosts() -> None:
    place = "sqlite:////a/journal.db on the host a"
    found = journal_finding(place, [opened_by("a")], executor="LocalExecutor", shared_needed=False)
    assert (found.level, "opened by a (last 1970-01-01" in found.sentence) == (Level.OK, True)
    found = journal_finding(place, [], executor="CeleryExecutor", shared_needed=True)
    assert (found.level, "the executor CeleryExecutor runs tasks on other hosts" in found.sentence) == (
        Level.FAULT,
        True,
    )
    found = journal_finding("postgresql://db/x", [], executor="CeleryExecutor", shared_needed=True)
    assert found.level is Level.OK


def test_a_watch_is_alive_as_long_as_its_lease() -> None:
    poll = {"kind": "failures", "host": "triggerer-1", "age_ms": 3_000}
    alive = LeaseFacts(ttl_ms=17_000, age_ms=16_000, polled=True)
    assert watch_finding([poll], [alive], ME) == Finding(
        "watch", Level.OK, "A watch is alive: failures 3 s ago on triggerer-1."
    )
    late = LeaseFacts(ttl_ms=17_000, age_ms=30_000, polled=True)
    taken = LeaseFacts(ttl_ms=17_000, age_ms=1_000, polled=False)
    for lease in (late, taken):
        assert watch_finding([poll | {"age_ms": 7_200_000}], [lease], ME).sentence.startswith(
            "No watch is alive: the last polls were failures 2 h ago on triggerer-1; unpause the DAG heal"
        )
    assert watch_finding([], [], ME).sentence.startswith("No watch has ever polled this journal")


def test_announced_restarts_are_named_with_the_time_until_which_they_apply() -> None:
    (found,) = restart_findings({7: 60_000, 8: None})
    until = "broker 7 announced a restart until 1970-01-01 00:01:00 UTC; broker 8 announced a restart"
    assert found == Finding("restarts", Level.NOTE, f"Brokers that receive no replicas for now: {until}.")
    assert restart_findings({}) == []


def test_the_workspace_is_left_as_it_was(tmp_path: Path) -> None:
    (found,) = inspect_workspace(str(tmp_path))
    assert (found.level, list(tmp_path.iterdir())) == (Level.OK, [])
    (tmp_path / "id/dag/run/plan-1").mkdir(parents=True)
    (tmp_path / "id/dag/run/plan-1/proof.json").write_text("{}")
    (found,) = inspect_workspace(str(tmp_path))
    assert "last written, 0 min ago: id/dag/run/plan-1/proof.json" in found.sentence


def test_the_version_of_java_is_read_and_java_is_not_started(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("not a program")
    assert java_version(java) is None
    assert java_finding(java, None).level is Level.NOTE
    (tmp_path / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="17.0.9"\n')
    assert java_version(java) == "17.0.9"
    assert java_finding(java, "17.0.9").level is Level.OK
    for old in ("11.0.2", "1.8.0_392"):
        assert java_finding(java, old).level is Level.FAULT
    assert java_finding(java, "21-ea").level is Level.OK
    assert java_finding(None, None).command.startswith("apt-get install openjdk-17")


def test_code_of_pyspark_client_over_pyspark_is_a_note() -> None:
    home = Path("/spark")
    assert spark_finding(InstalledSpark(home, "4.3.0", "4.3.0")).level is Level.OK
    assert spark_finding(InstalledSpark(home, "4.3.0", None)).level is Level.OK
    found = spark_finding(InstalledSpark(home, "4.3.0", "4.2.0"))
    assert (found.level, "finds 4.2.0" in found.sentence) == (Level.NOTE, True)


def test_a_remote_spark_is_not_started_and_the_command_that_shows_its_version_is_named() -> None:
    found = remote_spark_finding("spark_production", "spark://master:7077", submit="spark3-submit")
    assert (found.level, found.command) == (Level.OK, "spark3-submit --version")
    assert "the Spark of spark_production, spark://master:7077. Its version was not asked, because" in found.sentence
    found = remote_spark_finding("spark_production", "sc://server:15002", submit=None)
    assert "Its version was not asked, because that opens a session; each plan checks" in found.sentence
    script = shlex.split(found.command)[-1]
    assert "remote('sc://server:15002')" in script
    compile(script, "command", "exec")


HERE = Probe("/w", "a", marked=True)


def faults() -> list[Finding]:
    simulator = Simulator.of("1a 2b", "t: 1")
    whole = simulator.snapshot()
    simulator.fail_disk(1, *simulator.topics)
    failed = BrokerLogDirs({}, directories=(Directory("/data/1"), Directory("/data/2", error=56)))
    balanced = service_findings(whole, ME, balances_itself=True)
    disks = cordon_findings(simulator.snapshot(), {1: failed, 2: BrokerLogDirs({})}, ME)
    managed = service_findings(replace(whole, cluster_id="lkc-1"), ME, balances_itself=False)
    simulator.kill(1)
    return [
        describe_cluster(simulator.snapshot(), "4.3", ME, mode="KRaft mode"),
        *balanced,
        *managed,
        *disks,
        right_finding({MOVE: KafkaRefused(31, "no", "No.")}, ME),
        hidden_finding({"secret": (1,)}, ME),
        journal_finding("sqlite:////a", [], executor="CeleryExecutor", shared_needed=True),
        watch_finding([], [], ME),
        watch_finding([{"kind": "failures", "host": "a", "age_ms": 1}], [], ME),
        java_finding(None, None),
        java_finding(Path("/java"), "11.0.2"),
        *airflow_findings(AirflowState(alive={"TriggererJob": False, "SchedulerJob": False}), "x"),
        *airflow_findings(AirflowState((DagFacts("heal", paused=True, heals=True),), {"a.py": "No."}), "x")[1:],
        *run_findings("probe", "r", ProbeRun("running", "deferred"), "/w"),
        *run_findings("probe", "r", ProbeRun("failed", "failed"), "/w"),
        probe_finding("worker", replace(HERE, problem="No."), "/w"),
        probe_finding("worker", HERE, "/elsewhere"),
        probe_finding("worker", replace(HERE, marked=False), "/w"),
        *filter(None, (unusable_dag(None, "x"), unusable_dag(ProbeDag("probe", paused=True), "x"))),
    ]


@pytest.mark.parametrize("finding", faults(), ids=lambda each: each.subject)
def test_a_fault_has_a_command_that_helps(finding: Finding) -> None:
    assert finding.level is Level.FAULT
    assert finding.sentence.endswith(".")
    assert finding.command.strip()


def test_each_process_that_is_not_alive_is_started_by_a_line_of_its_own() -> None:
    state = AirflowState(alive={"TriggererJob": False, "SchedulerJob": True, "DagProcessorJob": False})
    assert airflow_findings(state, "x")[0].command.splitlines() == ["airflow triggerer", "airflow dag-processor"]


def test_a_disk_that_failed_is_healed_by_the_command() -> None:
    failed = BrokerLogDirs({}, directories=(Directory("/data/1"), Directory("/data/my disk", error=56)))
    simulator = Simulator.of("1a", "t: 1")
    (found,) = cordon_findings(simulator.snapshot(), {1: failed}, ME)
    assert (found.level, found.command) == (Level.NOTE, ""), "its replicas were healed"
    assert found.sentence.endswith("broker 1: /data/my disk; no replica is left there: replace them.")
    simulator.fail_disk(1, *simulator.topics)
    (found,) = cordon_findings(simulator.snapshot(), {1: failed}, ME)
    assert found.command == "airflow kafka-steward failed 1 --disk '/data/my disk' --cluster kafka_production"
