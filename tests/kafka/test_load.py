"""The load of real brokers as looks reckon it, beside what they count themselves (BytesInPerSec, by JMX)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from kafka import KafkaProducer

from kafka_steward.assignment import TopicPartition
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.execution.effects import elect_preferred_leaders
from kafka_steward.execution.load import look
from kafka_steward.execution.load.look import LoadWatch, known_rates
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.plans.snapshot import take_snapshot
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.records import PlanStatus
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.planning.files.formats import read_snapshot
from kafka_steward.sandbox import Sandbox, start
from kafka_steward.sandbox.cluster_layout import pick_ports
from kafka_steward.sandbox.jvm import Jvm
from kafka_steward.settings import Settings
from tests.local_plan import planned
from tests.stepping import to_the_end

pytestmark = [pytest.mark.kraft, pytest.mark.slow]

BROKERS = 3
LOOK_S, LOOKS, SIZED_EVERY = 4.0, 25, 5
COUNTED = "kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec"
#: Topics, with the bytes of a record and the records a second; of those with keys, the log is compacted.
SMALL, MIDDLE, LARGE, KEYED, SKEWED = "small", "middle", "large", "keyed", "skewed"
RECORDS = {SMALL: (80, 400), MIDDLE: (1_000, 150), LARGE: (10_000, 20), KEYED: (1_000, 100), SKEWED: (500, 200)}


class Producing:
    """A thread that produces into all topics."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = KafkaProducer(bootstrap_servers=bootstrap.split(","), linger_ms=200)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        began_s, rounds = time.monotonic(), 0
        while not self._ended.is_set():
            for topic, (size, per_s) in RECORDS.items():
                for number in range(per_s // 10):
                    # Half of the skewed records are in one partition, a quarter in another one, and so on.
                    at = min(5, (number + 1 & -(number + 1)).bit_length() - 1) if topic == SKEWED else number % 6
                    key = f"key-{number % 20}".encode() if topic == KEYED else None
                    self._producer.send(topic, bytes(size), key, partition=at)
            rounds += 1
            self._ended.wait(max(0.0, began_s + rounds / 10 - time.monotonic()))

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        self._producer.close(timeout=10)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Sandbox, dict[int, int]]]:
    """A cluster whose brokers show their metrics, and the port of each for that."""
    ports = {f"broker-{number}": port for number, port in enumerate(pick_ports(BROKERS), 1)}
    begin = Jvm.start

    def with_metrics(self: Jvm, name: str, *command: str, **how: Any) -> Any:
        shown = [
            f"-Dcom.sun.management.jmxremote.{key}"
            for key in (f"port={ports.get(name)}", "authenticate=false", "ssl=false", "host=127.0.0.1")
        ]
        options = [*shown, "-Djava.rmi.server.hostname=127.0.0.1"] if name in ports else []
        return begin(self, name, *command, options=options, **how)

    monkeypatch.setattr(Jvm, "start", with_metrics)
    with start("kraft", brokers=BROKERS, properties={"log.cleaner.backoff.ms": "1000"}, heap_mb=384) as sandbox:
        for topic in RECORDS:
            replicas = 2 if topic in {SMALL, KEYED} else 3
            placed = {number: [(number + shift) % BROKERS + 1 for shift in range(replicas)] for number in range(6)}
            compact = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.1"}
            sandbox.create_topics(topic, assignments=placed, configs=compact if topic == KEYED else {})
        yield sandbox, {number: ports[f"broker-{number}"] for number in sandbox.brokers}


def count(sandbox: Sandbox, port: int) -> tuple[float, int]:
    """The bytes that a broker has counted, and when."""
    url = f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{port}/jmxrmi"
    tool = ["org.apache.kafka.tools.JmxTool", "--jmx-url", url, "--object-name", COUNTED]
    answer = sandbox.kafka_tool(*tool, "--attributes", "Count", "--one-time")
    at_ms, value = answer.split()[-1].split(",")
    return int(at_ms) / 1000, int(value)


def test_the_bytes_into_each_broker_are_those_that_it_counts_itself(
    counted: tuple[Sandbox, dict[int, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a plan of the operation `leaders` by these evens out what they count."""
    sandbox, ports = counted
    monkeypatch.setattr(look, "WRITTEN_EVERY_S", 0.0)
    producing = Producing(sandbox.bootstrap)
    try:
        with (
            KafkaCluster({"bootstrap_servers": sandbox.bootstrap}) as cluster,
            open_journal(f"sqlite:///{tmp_path}/journal.db", cluster.cluster_id) as journal,
        ):
            time.sleep(5)
            watch, sizes = LoadWatch(journal), list[int]()
            before = {broker: count(sandbox, port) for broker, port in ports.items()}
            for number in range(LOOKS):
                snapshot = cluster.snapshot()
                sized = number % SIZED_EVERY == 0
                watch.look(cluster, journal, snapshot, cluster.log_dirs([1, 2, 3]) if sized else None)
                keyed = TopicPartition(KEYED, 0)
                sizes.append(cluster.log_sizes({1: [keyed]})[keyed, 1])
                time.sleep(LOOK_S)
            own = counted_rates(sandbox, ports, before)
            found = {broker: bytes_in.as_leader for broker, bytes_in in watch.brokers.items()}
            led_evenly = even_out_leaders(cluster, journal, tmp_path)
            time.sleep(5)  # producers hear of the new leaders
            before = {broker: count(sandbox, port) for broker, port in ports.items()}
            time.sleep(20)
            evened = counted_rates(sandbox, ports, before)
    finally:
        producing.end()
    assert any(later < earlier for earlier, later in pairwise(sizes)), "nothing was compacted"
    assert found == pytest.approx(own, rel=0.1)
    followed = sum(bytes_in.as_follower for bytes_in in watch.brokers.values())
    assert sum(found.values()) < followed < 2 * sum(found.values()), "two or three replicas"
    assert max(own.values()) > 1.15 * fmean(own.values())
    assert led_evenly
    assert max(evened.values()) < 1.1 * 1.05 * fmean(evened.values()), "as the brokers count it themselves"


def even_out_leaders(cluster: KafkaCluster, journal: Journal, folder: Path) -> bool:
    """Carry out a plan of the operation `leaders` by the measured rates: nothing is copied."""
    who, settings = Actor(person="ada"), Settings(min_free=0, throttle=0)
    uri = str(folder / "snapshot")
    take_snapshot(cluster, uri, failed=(), now_ms=journal.now_ms(), rates=known_rates(journal))
    snapshot = read_snapshot(uri)
    plan = planned(snapshot, "leaders")
    assert (plan.proof["replicas_moved"], plan.proof["leader_evenness"]) == (0, "bytes-in")
    context = ClusterContext(cluster, journal, settings, who)
    publish_plan(context, plan, snapshot=snapshot)
    assert to_the_end(PlanRunner(context, plan.digest)).status is PlanStatus.COMPLETED
    names = [move.topic_partition for move in plan.moves]
    elect_preferred_leaders(cluster, journal, who=who, partitions=names)
    return len(names) > 0


def counted_rates(
    sandbox: Sandbox, ports: Mapping[int, int], before: Mapping[int, tuple[float, int]]
) -> dict[int, float]:
    """The bytes per second that each broker has counted since."""
    after = {broker: count(sandbox, port) for broker, port in ports.items()}
    return {
        broker: (after[broker][1] - before[broker][1]) / (after[broker][0] - before[broker][0]) for broker in before
    }
