"""`python -m benchmarks.cancel`: seconds from a cancel to the last partition seen at its original, beside Kafka's tool.

On one cluster of each mode, for each size: a topic with that many partitions, all on brokers 1, 2 and 3 in that order,
of which 1 is to be replaced by 4, held up by a throttle. Once all are in flight, they are cancelled: by Kafka Steward,
whose verification ends the clock; then, with a second topic, by `kafka-reassign-partitions --cancel`, where the clock
ends when Kafka lists nothing any more, every partition has its original set, and broker 4 has deleted its logs. What is
then not as it was before is counted 5 s later. The start of the tool's JVM belongs to its time: a person waits for it.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from benchmarks.given import WHO, publish_given, reassignment_of
from benchmarks.report import table, write_between
from benchmarks.stages import ask_until
from kafka_steward.assignment import Move, TopicPartition
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.errors import SandboxFailed
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.plans.undo_verification import verify_undone
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.throttles.rates import ThrottleSide
from kafka_steward.journal.store import open_journal
from kafka_steward.sandbox import Sandbox, start
from kafka_steward.settings import Settings
from tests.cancelling import CancelRunner

_BEFORE, _AFTER = (1, 2, 3), (4, 2, 3)
_TOOL = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
#: Bytes per second into broker 4, and bytes to copy: before the quota holds, one response of up to 10 MB gets through.
_THROTTLE, _BYTES = 50_000, 80_000_000
_LONGEST_S = 600.0
#: What the throttle lets through between two steps may be in transfer: all.
_SELDOM = {"step_interval": 1800, "stall_after": 3600, "abandoned_after": 3600}


class _StartsInTurn:
    """A cluster that passes for one whose controller starts moves in turn: any number may be in transfer at once."""

    zookeeper_mode = True

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)


@dataclass(frozen=True)
class Cancelled:
    """One cancel: how long it took, how many went back (the others arrived meanwhile), and what was not as before."""

    mode: str
    by: str
    in_flight: int
    seconds: float
    back: int
    disordered: int
    other_leaders: int
    throttles: int
    logs: int


def main() -> None:
    options = _parser().parse_args()
    rows = [row for mode in options.modes for row in _of_mode(mode, options.partitions)]
    print(_table(rows))
    if options.write:
        write_between("cancel", _table(rows))


def _of_mode(mode: str, sizes: Sequence[int]) -> list[Cancelled]:
    rows = []
    with (
        tempfile.TemporaryDirectory() as name,
        start(mode=mode, brokers=4, racks=3, heap_mb=768) as sandbox,
        # A ZooKeeper-mode controller that is asked for a thousand partitions at once answers nobody meanwhile.
        KafkaCluster({"bootstrap_servers": sandbox.bootstrap.split(","), "request_timeout_ms": 180_000}) as cluster,
    ):
        for size in sizes:
            for way in (_ours, _theirs):
                rows.append(way(sandbox, cluster, Path(name), size))
                sandbox.delete_topics("by-")
                print(rows[-1], flush=True)
    return rows


def _ours(sandbox: Sandbox, cluster: KafkaCluster, folder: Path, size: int) -> Cancelled:
    topic = _topic(sandbox, f"by-us-{size}", size)
    with open_journal(f"sqlite:///{folder}/journal.db", cluster.cluster_id) as journal:
        caps = dict.fromkeys(("max_in_flight", "max_in_per_broker", "max_out_per_broker"), size)
        settings = Settings.of({"min_free": 0, "throttle": _THROTTLE, **_SELDOM, **caps})
        digest = publish_given(cluster, journal, folder / topic, _moves(topic, size), settings)
        runner = PlanRunner(
            ClusterContext(cast("KafkaCluster", _StartsInTurn(cluster)), journal, settings, WHO), digest
        )
        ask_until(lambda: runner.step().waiting == 0 or None, within_s=_LONGEST_S)
        flying = _flying(cluster, topic)
        began = time.monotonic()
        undo = CancelRunner(cluster, journal, digest, settings, WHO, reason="a benchmark")
        ask_until(lambda: undo.step().ended or None, within_s=_LONGEST_S)
        ask_until(lambda: verify_undone(cluster, journal, digest).ok or None, within_s=_LONGEST_S)
        seconds = time.monotonic() - began
    return _left(cluster, topic, sandbox.mode, "Kafka Steward", (flying, seconds))


def _theirs(sandbox: Sandbox, cluster: KafkaCluster, folder: Path, size: int) -> Cancelled:
    topic = _topic(sandbox, f"by-the-tool-{size}", size)
    file = folder / f"{topic}.json"
    file.write_text(reassignment_of(_moves(topic, size)))
    common = ["--bootstrap-server", sandbox.bootstrap, "--reassignment-json-file", str(file)]
    sandbox.kafka_tool(_TOOL, *common, "--execute", "--throttle", str(_THROTTLE))
    flying = _flying(cluster, topic)
    began = time.monotonic()
    with suppress(SandboxFailed):  # it fails over those that arrive meanwhile; what it left is what counts
        sandbox.kafka_tool(_TOOL, *common, "--cancel")
    ask_until(lambda: _is_back(cluster, topic) or None, within_s=_LONGEST_S)
    return _left(cluster, topic, sandbox.mode, "kafka-reassign-partitions", (flying, time.monotonic() - began))


def _topic(sandbox: Sandbox, topic: str, size: int) -> str:
    sandbox.create_topics(topic, assignments=dict.fromkeys(range(size), _BEFORE))
    sandbox.fill(topic, _BYTES)
    return topic


def _moves(topic: str, size: int) -> list[Move]:
    return [Move(topic, number, _BEFORE, _AFTER, number // 50, number % 50, "given") for number in range(size)]


def _flying(cluster: KafkaCluster, topic: str) -> int:
    return sum(name.topic == topic for name in cluster.reassignments())


def _is_back(cluster: KafkaCluster, topic: str) -> bool:
    """Nothing is in flight, and what was abandoned is gone; what had arrived before the cancel stays where it is."""
    partitions = cluster.snapshot([topic]).partitions
    kept = {name for name in _held(cluster) if name.topic == topic}
    arrived = {name for name, each in partitions.items() if 4 in each.replicas}
    return not any(each.reassigning for each in partitions.values()) and kept <= arrived


def _left(cluster: KafkaCluster, topic: str, mode: str, by: str, measured: tuple[int, float]) -> Cancelled:
    time.sleep(5)
    snapshot = cluster.snapshot([topic])
    back = {name: each for name, each in snapshot.partitions.items() if 4 not in each.replicas}
    lists = cluster.topic_configs([topic], [side.replicas_key for side in ThrottleSide], own_only=True)
    rates = cluster.broker_configs(sorted(snapshot.live), [side.rate_key for side in ThrottleSide], own_only=True)
    held = _held(cluster) & back.keys()
    return Cancelled(
        mode,
        by,
        *measured,
        back=len(back),
        disordered=sum(each.replicas != _BEFORE for each in back.values()),
        other_leaders=sum(each.replicas[0] != _BEFORE[0] for each in back.values()),
        throttles=sum(map(len, lists.values())) + sum(map(len, rates.values())),
        logs=len(held),
    )


def _held(cluster: KafkaCluster) -> frozenset[TopicPartition]:
    """What lies on broker 4, which may be too busy to say so at once."""
    told = ask_until(lambda: cluster.log_dirs([4]).get(4), within_s=_LONGEST_S)
    return frozenset(told.replica_bytes)


def _table(rows: Sequence[Cancelled]) -> str:
    head = [
        "mode",
        "in flight",
        "cancelled by",
        "s",
        "went back",
        "order lost",
        "preferred leader lost",
        "throttles left",
        "logs left",
    ]
    lines = []
    for row in rows:
        counts = [row.back, row.disordered, row.other_leaders, row.throttles, row.logs]
        lines.append([row.mode, str(row.in_flight), row.by, f"{row.seconds:.1f}", *map(str, counts)])
    return table(head, lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cancel", description=__doc__)
    parser.add_argument("--partitions", type=int, nargs="+", default=[1, 100, 1000])
    parser.add_argument("--modes", nargs="+", default=["kraft", "zookeeper"], choices=["kraft", "zookeeper"])
    parser.add_argument("--write", action="store_true", help="put the table into docs/benchmarks.md")
    return parser


if __name__ == "__main__":
    main()
