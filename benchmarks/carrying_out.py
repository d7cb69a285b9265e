"""`python -m benchmarks.carrying_out`: plans carried out by us, by Kafka's own tool, by bare requests.

One cluster for each mode, and a topic for each work. The three ways take turns, each as often the first of a turn: each
moves the topic to the other pair of brokers, at the same throttle. Every partition has a replica that moves, by turns
into one and the other of two brokers. The **bound** is what the throttle needs for the bytes that the busier of the two
receives. The bare requests, which are only the floor, are left out of every second turn.

Kafka's tool is timed from the start of `--execute`, JVM included, until nothing is listed as in flight and every target
is in sync, asked every 0.1 s; that it takes its throttle away again, with `--verify`, is not part of its time. After
`--tool-limit` seconds it is ended: what it left is carried out without its throttle and without a clock, and it has no
further turn in that row. We are timed from the publication of the plan to its end: journal and throttles are included.
**Arrived** is when the last move of ours was recorded as complete, which is the point at which the tool's clock stops.
The floor sends the same requests without a journal: throttles, new assignments in batches, lists until nothing is in
flight, throttles again.

With `--traffic`, there is a second pass after the first: as many turns again, none of which counts for the seconds,
while a producer writes 100 messages a second (acks=all) to a topic of its own on all four brokers, which nobody moves.
That is what a user of the cluster feels who has nothing to do with the plan; producers to what is moved are measured by
`benchmarks.drain`. The 99th percentile is of all messages that were due within the time of a way, in all its turns, and
**at rest** in the 10 s before the first.

The table in docs/benchmarks.md keeps the rows of other runs, and gets each row as soon as it is measured.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import NamedTuple, Protocol

from benchmarks.given import WHO, journal_of, write_given
from benchmarks.report import merge_between, table
from benchmarks.stages import ask_until
from benchmarks.traffic import Producing, Sent
from benchmarks.ways import bounded, run_tool
from kafka_steward.assignment import Assignment, Move
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.errors import SandboxFailed
from kafka_steward.execution.plans.drive import DrivePolicy, run_to_end
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.execution.throttles.rates import ThrottleDemand, ThrottleSide, throttle_demand
from kafka_steward.journal.records import PlanStatus
from kafka_steward.sandbox import Sandbox, start
from kafka_steward.settings import Settings

_LONGEST_S = 600.0
_ASKED_EVERY_S = 0.1
_TOPIC = "orders"
#: What the producer writes to, and how long before the first way it does.
_BESIDE, _BESIDE_PARTITIONS = "beside", 12
_WARM_S, _REST_S = 5.0, 10.0
#: Seconds between two turns: a broker of a ZooKeeper cluster learns late of what the last one did, and a move is held
#: while a broker shows its partition as it was.
_APART_S = 3.0
_CHUNK = 50
_THROTTLE_MB = 50
_WARM_UP = "40:4"
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


class Span(NamedTuple):
    """From when to when a way was timed, by time.monotonic; `arrived_s` is when all had arrived."""

    from_s: float
    to_s: float
    arrived_s: float

    @property
    def seconds(self) -> float:
        return self.to_s - self.from_s


@dataclass(frozen=True)
class CarriedOut:
    """Each time that a work was carried out, by way; and with a producer beside it, its 99th percentile in ms."""

    mode: str
    work: Work
    tool_limit_s: float
    spans: Mapping[str, list[Span]] = field(default_factory=dict)
    p99_ms: Mapping[str, float] = field(default_factory=dict)

    def of(self, way: str) -> float:
        return median(span.seconds for span in self.spans[way])

    @property
    def arrived_s(self) -> float:
        return median(span.arrived_s - span.from_s for span in self.spans[_OURS])


class Way(Protocol):
    """How moves are carried out; `timed` returns from when to when, when all have arrived."""

    def timed(self, work: Work, moves: Sequence[Move]) -> Span: ...


class Steward:
    """Kafka Steward's `PlanRunner` in a loop, its journal in SQLite, and in ZooKeeper if there is one."""

    def __init__(self, sandbox: Sandbox, cluster: KafkaCluster, folder: Path) -> None:
        self._sandbox = sandbox
        self._cluster = cluster
        self._folder = folder
        self._number = 0

    def timed(self, work: Work, moves: Sequence[Move]) -> Span:
        settings = Settings.of({"min_free": 0, "throttle": work.throttle})
        self._number += 1
        with journal_of(self._sandbox, self._cluster) as journal:
            context = ClusterContext(self._cluster, journal, settings, WHO)
            folder = self._folder / f"plan-{self._number}"
            plan = write_given(self._cluster, folder, moves, now_ms=journal.now_ms())
            began_s, began_ms = time.monotonic(), journal.now_ms()
            publish_plan(context, plan)
            runner = PlanRunner(context, plan.digest)
            progress = run_to_end(runner.step, bounded(), DrivePolicy(interval_s=lambda: settings.step_interval))
            ended_s = time.monotonic()
            settled_ms = max(row.settled_ms or 0 for row in journal.plans.rows(plan.digest))
        if progress.status is not PlanStatus.COMPLETED or progress.completed < len(moves):
            raise RuntimeError(progress.sentence)
        return Span(began_s, ended_s, began_s + (settled_ms - began_ms) / 1000)


class KafkasTool:
    """`kafka-reassign-partitions --execute`, and `--verify` after the clock has stopped; a throttle of 0 is none."""

    def __init__(self, sandbox: Sandbox, cluster: KafkaCluster, folder: Path, limit_s: float) -> None:
        self._sandbox = sandbox
        self._cluster = cluster
        self._folder = folder
        self._limit_s = limit_s

    def timed(self, work: Work, moves: Sequence[Move]) -> Span:
        began_s = time.monotonic()
        try:
            self._execute(work, moves)
        except TimeoutError:
            self._finish(moves)
            return Span(began_s, math.inf, math.inf)
        ended_s = time.monotonic()
        run_tool(self._sandbox, self._folder, moves, "--verify")
        return Span(began_s, ended_s, ended_s)

    def _execute(self, work: Work, moves: Sequence[Move]) -> None:
        """Raises TimeoutError when not all have arrived at the limit; the tool is ended then."""
        deadline_s = time.monotonic() + self._limit_s
        rate = ("--throttle", str(work.throttle)) if work.throttle else ()
        try:
            run_tool(self._sandbox, self._folder, moves, "--execute", *rate, within_s=self._limit_s)
        except SandboxFailed as error:
            if isinstance(error.__cause__, subprocess.TimeoutExpired):
                raise TimeoutError from error
            raise
        wait_until_arrived(self._cluster, moves, within_s=deadline_s - time.monotonic())

    def _finish(self, moves: Sequence[Move]) -> None:
        """Remove what the tool throttled, and carry out what it left."""
        throttles = {
            move.topic: [ConfigChange(each.replicas_key, ConfigOp.DELETE) for each in ThrottleSide] for move in moves
        }
        rates = [ConfigChange(each.rate_key, ConfigOp.DELETE) for each in ThrottleSide]
        self._cluster.change_topic_configs(throttles)
        self._cluster.change_broker_configs(dict.fromkeys(self._cluster.live_brokers(), rates))
        submit(self._cluster, moves)
        wait_until_arrived(self._cluster, moves)


class BareRequests:
    """The requests that both of the others send, without a record of any."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster

    def timed(self, work: Work, moves: Sequence[Move]) -> Span:
        began_s = time.monotonic()
        with self._throttled(throttle_demand(moves), work.throttle):
            submit(self._cluster, moves)
            wait_until_arrived(self._cluster, moves)
            arrived_s = time.monotonic()
        return Span(began_s, time.monotonic(), arrived_s)

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


_OURS, _TOOLS, _FLOOR, _REST = "Kafka Steward", "kafka-reassign-partitions", "bare requests", "at rest"
_WAYS = (_TOOLS, _OURS, _FLOOR)
_HEAD = (
    *("mode", "partitions", "MB", "MB/s into a broker", "bound s", *_WAYS),
    *("ours, arrived", "ours / the tool's", "ours / the bare requests", "ours / the bound", "turns"),
    *("p99 ms at rest", "the tool's", "ours", "the bare requests'"),
)
#: What the table in the docs leaves out.
_PRINTED_ONLY = {
    *("bare requests", "ours, arrived", "ours / the bare requests", "ours / the bound", "turns", "the bare requests'"),
}
_SHOWN = tuple(each for each in _HEAD if each not in _PRINTED_ONLY)


def submit(cluster: KafkaCluster, moves: Sequence[Move]) -> None:
    """Submit all of them. Raises the first refusal."""
    answers = cluster.alter({move.topic_partition: move.after for move in moves}, keep_factor=True)
    for refusal in filter(None, answers.values()):
        raise refusal


def wait_until_arrived(cluster: KafkaCluster, moves: Sequence[Move], *, within_s: float = _LONGEST_S) -> None:
    """Ask until nothing is in flight and every target is in sync. Raises TimeoutError."""
    targets = {move.topic_partition: move.after for move in moves}

    def arrived() -> bool:
        if cluster.reassignments():
            return False
        found = cluster.snapshot({name.topic for name in targets}).partitions
        return all(
            found[name].replicas == after and found[name].isr >= frozenset(after) for name, after in targets.items()
        )

    ask_until(lambda: arrived() or None, within_s=within_s, every_s=_ASKED_EVERY_S)


def main() -> None:
    options = _parser().parse_args()
    cells = []
    for row in (row for mode in options.modes for row in _of_mode(mode, options)):
        cells.append(_cells(row))
        if options.write:
            named = zip(_HEAD, cells[-1], strict=True)
            shown = [cell for name, cell in named if name in _SHOWN]
            merge_between("carrying out", _SHOWN, [shown], keys=4)
    print(table(_HEAD, cells))


def _of_mode(mode: str, options: argparse.Namespace) -> Iterator[CarriedOut]:
    with (
        tempfile.TemporaryDirectory() as name,
        start(mode=mode, brokers=4, racks=2, heap_mb=options.heap) as sandbox,
        # A ZooKeeper-mode controller that is asked for a thousand partitions at once answers nobody meanwhile.
        KafkaCluster({"bootstrap_servers": sandbox.bootstrap.split(","), "request_timeout_ms": 180_000}) as cluster,
    ):
        ways: dict[str, Way] = {
            _TOOLS: KafkasTool(sandbox, cluster, Path(name), options.tool_limit),
            _OURS: Steward(sandbox, cluster, Path(name)),
            _FLOOR: BareRequests(cluster),
        }
        turned = {number: _turned(number) for number in range(_BESIDE_PARTITIONS)}
        sandbox.create_topics(_BESIDE, assignments=turned, configs={"min.insync.replicas": "2"})
        # No way pays for what the brokers compile when they move something for the first time.
        _Row(mode, sandbox, ways, parse_work(_WARM_UP), options.tool_limit).measure(1)
        for work in options.works:
            row = _Row(mode, sandbox, ways, work, options.tool_limit, nice=options.nice)
            yield row.measure(options.times, options.traffic)


def _turned(number: int) -> Assignment:
    """Three of the four brokers, each as often the first."""
    return tuple((number + place) % 4 + 1 for place in range(3))


class _Row:
    """One work on one cluster, carried out by each way in turns, back and forth between two pairs of brokers."""

    def __init__(
        self, mode: str, sandbox: Sandbox, ways: Mapping[str, Way], work: Work, tool_limit_s: float, *, nice: int = 0
    ) -> None:
        self._mode, self._sandbox, self._ways, self._work = mode, sandbox, dict(ways), work
        self._tool_limit_s, self._nice = tool_limit_s, nice
        self._home = False

    def measure(self, times: int, with_traffic: int = 0) -> CarriedOut:
        """Measure the seconds in so many turns, then the producer in so many further ones; the topics are deleted."""
        _fill(self._sandbox, self._work)
        spans = self._take_turns(times)
        p99_ms = self._latencies(with_traffic) if with_traffic else {}
        self._sandbox.delete_topics(_TOPIC)
        return CarriedOut(self._mode, self._work, self._tool_limit_s, spans, p99_ms)

    def _take_turns(self, times: int, words: str = "") -> dict[str, list[Span]]:
        spans: dict[str, list[Span]] = {way: [] for way in _WAYS}
        for turn in range(times):
            first = turn % len(_WAYS)
            for name in (*_WAYS[first:], *_WAYS[:first]):
                if name in self._ways and not (name == _FLOOR and turn % 2):
                    spans[name].append(self._carry_out(name))
                    print(self._mode, self._work.name, name, f"{spans[name][-1].seconds:.1f}{words}", flush=True)
        return spans

    def _carry_out(self, name: str) -> Span:
        time.sleep(_APART_S)
        moves = self._work.moves(home=self._home)
        # A thread may lower its own priority, and that of what it starts, but not raise it again.
        with (
            _session_priority(self._nice),
            ThreadPoolExecutor(1, initializer=_lower_priority, initargs=(self._nice,)) as thread,
        ):
            span = thread.submit(self._ways[name].timed, self._work, moves).result()
        self._home = not self._home
        if span.to_s == math.inf:
            del self._ways[name]
        return span

    def _latencies(self, times: int) -> dict[str, float]:
        """Return the 99th percentile of a producer, in ms, by way; and at rest."""
        with Producing(self._sandbox.bootstrap, _BESIDE, _BESIDE_PARTITIONS) as producing:
            time.sleep(_WARM_S)
            rest_s = time.monotonic()
            time.sleep(_REST_S)
            spans = self._take_turns(times, " with a producer")
            sent = producing.end()
        for way, p99_ms in _p99_in_the_tools_time(sent, spans).items():
            print(self._mode, self._work.name, way, f"p99 {p99_ms:.0f} ms in the time that the tool takes", flush=True)
        return {_REST: sent.p99_ms((rest_s, rest_s + _REST_S))} | {way: _p99_ms(sent, spans[way]) for way in _WAYS}


@contextmanager
def _session_priority(nice: int) -> Iterator[None]:
    """Lower the priority of this session meanwhile, where Linux shares the cores out among sessions."""
    group = Path("/proc/self/autogroup")
    if not (nice and group.exists()):
        yield
        return
    group.write_text(str(nice))
    try:
        yield
    finally:
        group.write_text("0")


def _lower_priority(nice: int) -> None:
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)


def _p99_ms(sent: Sent, spans: Sequence[Span]) -> float:
    return sent.p99_ms(*((span.from_s, span.to_s) for span in spans if span.to_s < math.inf))


def _p99_in_the_tools_time(sent: Sent, spans: Mapping[str, Sequence[Span]]) -> dict[str, float]:
    """Return the 99th percentiles of messages due from the start of a way for as long as the tool takes, or the way.

    In a way that ends sooner, messages that wait equally long are more than one in a hundred.
    """
    tools = [span.seconds for span in spans[_TOOLS]]
    if not tools or math.inf in tools:
        return {}
    usual_s = median(tools)
    return {
        way: sent.p99_ms(*((span.from_s, max(span.to_s, span.from_s + usual_s)) for span in several))
        for way, several in spans.items()
    }


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


def _cells(row: CarriedOut) -> list[str]:
    work = row.work
    partitions = " + ".join(f"{topic.partitions:,}" for topic in work.topics)
    facts = [row.mode, partitions, f"{work.bytes / 1e6:,.0f}", f"{work.throttle / 1e6:g}", f"{work.bound_s:.1f}"]
    ours, tools = row.of(_OURS), row.of(_TOOLS)
    limit_s = row.tool_limit_s
    beside = f"< {ours / limit_s:.2f}" if tools == math.inf else f"{ours / tools:.2f}"
    seconds = [f"more than {limit_s:.0f}" if each == math.inf else f"{each:.1f}" for each in map(row.of, _WAYS)]
    ratios = [beside, f"{ours / row.of(_FLOOR):.2f}", f"{ours / work.bound_s:.2f}"]
    latencies = [_latency(row.p99_ms.get(name, math.nan)) for name in (_REST, *_WAYS)]
    return [*facts, *seconds, f"{row.arrived_s:.1f}", *ratios, str(len(row.spans[_OURS])), *latencies]


def _latency(ms: float) -> str:
    return "-" if math.isnan(ms) else "no answer" if ms == math.inf else f"{ms:.0f}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.carrying_out", description=__doc__)
    parser.add_argument("--modes", nargs="+", default=["kraft"], choices=["kraft", "zookeeper"])
    parser.add_argument(
        "--works", nargs="+", type=parse_work, default=[parse_work(each) for each in _WORKS], help=parse_work.__doc__
    )
    parser.add_argument("--times", type=int, default=3, help="turns, of which the median counts")
    parser.add_argument(
        "--nice",
        type=int,
        default=0,
        help="lower the priority of all ways: the brokers' cores are then almost their own",
    )
    parser.add_argument("--traffic", type=int, default=0, help="turns of the second pass, with a producer")
    parser.add_argument("--tool-limit", type=float, default=180, help="seconds after which Kafka's tool is ended")
    parser.add_argument("--heap", type=int, default=768, help="MB of each broker's JVM")
    parser.add_argument("--write", action="store_true", help="put the table into docs/benchmarks.md")
    return parser


if __name__ == "__main__":
    main()
