"""`python -m benchmarks.carrying_out`: plans carried out by us, by Kafka's own tool, by bare requests.

One cluster for each mode, and a topic for each work. The three ways take turns: each moves the topic to the other pair
of brokers, at the same throttle. Every partition has a replica that moves, by turns into one and the other of two
brokers. The **bound** is what the throttle needs for the bytes that the busier of the two receives.

Kafka's tool is timed from the start of `--execute`, JVM included, until nothing is listed as in flight and every target
is in sync, asked every 0.1 s; that it takes its throttle away again, with `--verify`, is not part of its time. We are
timed from the publication of the plan to its end: journal and throttles are included. The floor sends the same requests
without a journal: throttles, new assignments in batches, lists until nothing is in flight, throttles again.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Protocol

from benchmarks.given import WHO, reassignment_of, write_given
from benchmarks.report import table, write_between
from benchmarks.stages import ask_until
from benchmarks.ways import bounded
from kafka_steward.assignment import Assignment, Move
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.publishing import publish_plan
from kafka_steward.execution.runner import PlanRunner, run_to_end
from kafka_steward.execution.throttle_rates import ThrottleDemand, ThrottleSide, throttle_demand
from kafka_steward.journal.records import PlanStatus
from kafka_steward.journal.store import open_journal
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from kafka_steward.sandbox import Sandbox, start
from kafka_steward.settings import Settings

_TOOL = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
_LONGEST_S = 600.0
_ASKED_EVERY_S = 0.1
_TOPIC = "orders"
_CHUNK = 50
_THROTTLE_MB = 50
#: The last: one huge partition, large ones, and small ones.
_WORKS = ("600:60", "300:30", "3000:300", "80:800@20", "1:200+5:100+500:50@20")
#: (at home, away) by turns: half of the partitions go into each of two brokers.
_TURNS = (((1, 2), (3, 2)), ((2, 1), (4, 1)))


@dataclass(frozen=True)
class Topic:
    """A topic of the work, with as many bytes in each of its partitions."""

    name: str
    partitions: int
    size: int


@dataclass(frozen=True)
class Work:
    """What is to be moved, the largest partitions first, and at how many bytes per second into a broker."""

    name: str
    topics: Sequence[Topic]
    throttle: int

    def moves(self, *, home: bool) -> list[Move]:
        names = [(topic, number) for topic in self.topics for number in range(topic.partitions)]
        return [_move(topic, number, place, home=home) for place, (topic, number) in enumerate(names)]

    @property
    def bytes(self) -> int:
        return sum(topic.partitions * topic.size for topic in self.topics)

    @property
    def bound_s(self) -> float:
        """The seconds that the throttle needs for the bytes into the busier broker."""
        into: Counter[int] = Counter()
        for move in self.moves(home=False):
            into.update(dict.fromkeys(move.adding, move.size_bytes or 0))
        return max(into.values()) / self.throttle


@dataclass(frozen=True)
class CarriedOut:
    """The seconds of each time that a work was carried out, by way."""

    mode: str
    work: Work
    seconds: Mapping[str, list[float]] = field(default_factory=dict)

    def of(self, way: str) -> float:
        return median(self.seconds[way])


class Way(Protocol):
    """How moves are carried out; `timed` returns the seconds that it took, when all have arrived."""

    def timed(self, work: Work, moves: Sequence[Move]) -> float: ...


class Steward:
    """Kafka Steward's `PlanRunner` in a loop, its journal in SQLite, and in ZooKeeper if there is one."""

    def __init__(self, sandbox: Sandbox, cluster: KafkaCluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._zookeeper = None if sandbox.zookeeper is None else ZooKeeperOptions(sandbox.zookeeper)
        self._number = 0

    def timed(self, work: Work, moves: Sequence[Move]) -> float:
        settings = Settings.of({"throttle": work.throttle})
        self._number += 1
        url = f"sqlite:///{self._folder}/journal.db"
        with open_journal(url, self._cluster.cluster_id, zookeeper=self._zookeeper) as journal:
            context = ClusterContext(self._cluster, journal, settings, WHO)
            folder = self._folder / f"plan-{self._number}"
            plan = write_given(self._cluster, folder, moves, now_ms=journal.now_ms())
            began_s = time.monotonic()
            publish_plan(context, plan)
            runner = PlanRunner(context, plan.digest)
            progress = run_to_end(runner, bounded(), interval_s=lambda: settings.step_interval)
            took_s = time.monotonic() - began_s
        if progress.status is not PlanStatus.COMPLETED or progress.completed < len(moves):
            raise RuntimeError(progress.sentence)
        return took_s


class KafkasTool:
    """`kafka-reassign-partitions --execute`, and `--verify` after the clock has stopped."""

    def __init__(self, sandbox: Sandbox, cluster: KafkaCluster, folder: Path) -> None:
        self._sandbox = sandbox
        self._cluster = cluster
        self._file = folder / "reassignment.json"

    def timed(self, work: Work, moves: Sequence[Move]) -> float:
        self._file.write_text(reassignment_of(moves))
        common = ["--bootstrap-server", self._sandbox.bootstrap, "--reassignment-json-file", str(self._file)]
        began_s = time.monotonic()
        self._sandbox.kafka_tool(_TOOL, *common, "--execute", "--throttle", str(work.throttle))
        wait_until_arrived(self._cluster, moves)
        took_s = time.monotonic() - began_s
        self._sandbox.kafka_tool(_TOOL, *common, "--verify")
        return took_s


class BareRequests:
    """The requests that both of the others send, without a record of any."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster

    def timed(self, work: Work, moves: Sequence[Move]) -> float:
        began_s = time.monotonic()
        with self._throttled(throttle_demand(moves), work.throttle):
            answers = self._cluster.alter({move.topic_partition: move.after for move in moves}, keep_factor=True)
            refused = [error for error in answers.values() if error is not None]
            if refused:
                raise refused[0]
            wait_until_arrived(self._cluster, moves)
        return time.monotonic() - began_s

    @contextmanager
    def _throttled(self, need: ThrottleDemand, rate: int) -> Iterator[None]:
        lists = {topic: ",".join(sorted(entries)) for (topic, _), entries in need.entries.items()}
        brokers = [broker for broker, _ in need.brokers]
        listed, rated = ThrottleSide.FOLLOWER.replicas_key, ThrottleSide.FOLLOWER.rate_key
        rate_set, rate_gone = ConfigChange(rated, ConfigOp.SET, str(rate)), ConfigChange(rated, ConfigOp.DELETE)
        append = {topic: [ConfigChange(listed, ConfigOp.APPEND, entries)] for topic, entries in lists.items()}
        self._cluster.change_topic_configs(append)
        self._cluster.change_broker_configs(dict.fromkeys(brokers, (rate_set,)))
        yield
        self._cluster.change_topic_configs(dict.fromkeys(lists, (ConfigChange(listed, ConfigOp.DELETE),)))
        self._cluster.change_broker_configs(dict.fromkeys(brokers, (rate_gone,)))


_OURS, _TOOLS, _FLOOR = "Kafka Steward", "kafka-reassign-partitions", "bare requests"
_WAYS = (_TOOLS, _OURS, _FLOOR)


def wait_until_arrived(cluster: KafkaCluster, moves: Sequence[Move]) -> None:
    """Ask until nothing is in flight and every target is in sync."""
    targets = {move.topic_partition: move.after for move in moves}

    def arrived() -> bool:
        if cluster.reassignments():
            return False
        found = cluster.snapshot({name.topic for name in targets}).partitions
        return all(
            found[name].replicas == after and found[name].isr >= frozenset(after) for name, after in targets.items()
        )

    ask_until(lambda: arrived() or None, within_s=_LONGEST_S, every_s=_ASKED_EVERY_S)


def main() -> None:
    options = _parser().parse_args()
    rows = [row for mode in options.modes for row in _of_mode(mode, options.works, options.times, options.heap)]
    text = _table(rows)
    print(text)
    if options.write:
        write_between("carrying out", text)


def _of_mode(mode: str, works: Sequence[Work], times: int, heap_mb: int) -> list[CarriedOut]:
    with (
        tempfile.TemporaryDirectory() as name,
        start(mode=mode, brokers=4, racks=2, heap_mb=heap_mb) as sandbox,
        # A ZooKeeper-mode controller that is asked for a thousand partitions at once answers nobody meanwhile.
        KafkaCluster({"bootstrap_servers": sandbox.bootstrap.split(","), "request_timeout_ms": 180_000}) as cluster,
    ):
        ways: dict[str, Way] = {
            _TOOLS: KafkasTool(sandbox, cluster, Path(name)),
            _OURS: Steward(sandbox, cluster, Path(name)),
            _FLOOR: BareRequests(cluster),
        }
        rows = []
        for work in works:
            rows.append(_carried_out(mode, sandbox, ways, work, times))
            sandbox.delete_topics(_TOPIC)
        return rows


def _carried_out(mode: str, sandbox: Sandbox, ways: Mapping[str, Way], work: Work, times: int) -> CarriedOut:
    _fill(sandbox, work)
    row, home = CarriedOut(mode, work, {way: [] for way in ways}), False
    for _ in range(times):
        for name, way in ways.items():
            row.seconds[name].append(way.timed(work, work.moves(home=home)))
            print(mode, work.name, name, f"{row.seconds[name][-1]:.1f}", flush=True)
            home = not home
    return row


def _fill(sandbox: Sandbox, work: Work) -> None:
    for topic in work.topics:
        sandbox.create_topics(topic.name, assignments={n: _turn(n)[0] for n in range(topic.partitions)})
        sandbox.fill(topic.name, topic.partitions * topic.size)


def _turn(number: int) -> tuple[Assignment, Assignment]:
    return _TURNS[number % len(_TURNS)]


def _move(topic: Topic, number: int, place: int, *, home: bool) -> Move:
    at_home, away = _turn(number)
    before, after = (away, at_home) if home else (at_home, away)
    return Move(topic.name, number, before, after, place // _CHUNK, place % _CHUNK, "given", None, topic.size)


def parse_work(text: str) -> Work:
    """Parse a work: `PARTITIONS:MEGABYTES` for each topic, joined by `+`, and `@MB/s` for another throttle."""
    sizes, _, rate = text.partition("@")
    topics = []
    for number, each in enumerate(sizes.split("+")):
        partitions, megabytes = map(int, each.split(":"))
        name = f"{_TOPIC}-{partitions}-{megabytes}-{rate}-{number}"
        topics.append(Topic(name, partitions, megabytes * 1_000_000 // partitions))
    return Work(text, topics, int(rate or _THROTTLE_MB) * 1_000_000)


def _table(rows: Sequence[CarriedOut]) -> str:
    head = ["mode", "partitions", "MB", "MB/s into a broker", "bound s", *_WAYS]
    head += ["ours / the tool's", "ours / the bare requests", "ours / the bound"]
    return table(head, [_cells(row) for row in rows])


def _cells(row: CarriedOut) -> list[str]:
    work, seconds = row.work, [row.of(way) for way in _WAYS]
    partitions = " + ".join(f"{topic.partitions:,}" for topic in work.topics)
    ratios = [row.of(_OURS) / other for other in (row.of(_TOOLS), row.of(_FLOOR), work.bound_s)]
    facts = [row.mode, partitions, f"{work.bytes / 1e6:,.0f}", f"{work.throttle / 1e6:g}", f"{work.bound_s:.1f}"]
    return [*facts, *(f"{each:.1f}" for each in seconds), *(f"{each:.2f}" for each in ratios)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.carrying_out", description=__doc__)
    parser.add_argument("--modes", nargs="+", default=["kraft"], choices=["kraft", "zookeeper"])
    parser.add_argument(
        "--works", nargs="+", type=parse_work, default=[parse_work(each) for each in _WORKS], help=parse_work.__doc__
    )
    parser.add_argument("--times", type=int, default=3, help="each way, of which the median counts")
    parser.add_argument("--heap", type=int, default=768, help="MB of each broker's JVM")
    parser.add_argument("--write", action="store_true", help="put the table into docs/benchmarks.md")
    return parser


if __name__ == "__main__":
    main()
