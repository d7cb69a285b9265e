"""`python -m benchmarks.at_once`: a plan of a DAG and one of `apply`, at once and one after the other.

Both plans have as many partitions of the same size, of a topic each, led by brokers 1 and 2 by turns. They copy to a
broker each, or both to the same one, which then receives both within one window and at one rate. Each plan is stepped
by a thread of its own with its own connections, as by two processes. All run on one cluster, with default limits and
the same throttle. Seconds from the publication of the first plan to the end of the last.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from benchmarks.given import WHO, journal_of, publish_given
from benchmarks.report import merge_between, table
from benchmarks.ways import bounded
from kafka_steward.assignment import Move
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.execution.plans.drive import DrivePolicy, run_to_end
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.journal.records import PlanStatus
from kafka_steward.journal.store import Journal
from kafka_steward.sandbox import Sandbox, start
from kafka_steward.settings import Settings

_CHUNK = 50
_TURNS = ((1, 2), (2, 1))
_OPERATIONS = ("rebalance", "apply")
#: The receiving broker of each plan.
_RECEIVERS = {"a broker each": (3, 4), "the same broker": (4, 4)}

_HEAD = (
    "mode",
    "they copy to",
    "they run",
    "partitions of each",
    "rebalance s",
    "apply s",
    "both s",
    "most into a broker",
)


@dataclass(frozen=True)
class Paired:
    """How long two plans took, each and both, and the most replicas that one broker received at once."""

    mode: str
    to: str
    order: str
    partitions: int
    each_s: tuple[float, ...]
    seconds: float
    most_into: int


@dataclass(frozen=True)
class Place:
    """Where plans run: a cluster, and a folder for journals and plans."""

    sandbox: Sandbox
    folder: Path
    settings: Settings

    @property
    def cluster(self) -> KafkaCluster:
        """A new connection."""
        return KafkaCluster({"bootstrap_servers": self.sandbox.bootstrap.split(",")})


def main() -> None:
    options = _parser().parse_args()
    rows = [row for mode in options.modes for row in _of_mode(mode, options)]
    cells = [_cells(row) for row in rows]
    print(table(_HEAD, cells))
    if options.write:
        merge_between("at_once", _HEAD, cells, keys=3)


def _of_mode(mode: str, options: argparse.Namespace) -> list[Paired]:
    rows = []
    with tempfile.TemporaryDirectory() as name, start(mode=mode, brokers=4, racks=3) as sandbox:
        place = Place(sandbox, Path(name), Settings.of({"min_free": 0, "throttle": options.throttle}))
        for (to, receivers), order in product(_RECEIVERS.items(), ("one after the other", "at once")):
            plans = [_filled(sandbox, *each, options) for each in zip("ab", receivers, strict=True)]
            rows.append(_measured(place, plans, to=to, order=order))
            print(rows[-1], flush=True)
            for topic in "ab":
                sandbox.delete_topics(topic)
    return rows


def _filled(sandbox: Sandbox, topic: str, receiver: int, options: argparse.Namespace) -> list[Move]:
    turns = [_TURNS[number % len(_TURNS)] for number in range(options.partitions)]
    sandbox.create_topics(topic, assignments=dict(enumerate(turns)))
    sandbox.fill(topic, options.partitions * options.size)
    return [
        Move(topic, number, before, (receiver, before[1]), number // _CHUNK, number % _CHUNK, "given")
        for number, before in enumerate(turns)
    ]


def _measured(place: Place, plans: Sequence[Sequence[Move]], *, to: str, order: str) -> Paired:
    place = Place(place.sandbox, place.folder / f"{to}-{order}".replace(" ", "-"), place.settings)
    place.folder.mkdir()
    most = 0
    with ThreadPoolExecutor(len(plans)) as threads, place.cluster as cluster:
        with journal_of(place.sandbox, cluster) as journal:
            since_ms = journal.now_ms()
        began_s = time.monotonic()
        running: list[Future[float]] = []
        for operation, moves in zip(_OPERATIONS, plans, strict=True):
            running.append(threads.submit(_run, place, operation, moves, since_ms))
            while not running[-1].done() and order != "at once":
                most = max(most, _most_into(cluster))
        while not all(each.done() for each in running):
            most = max(most, _most_into(cluster))
        seconds = tuple(each.result() for each in running)
    return Paired(place.sandbox.mode, to, order, len(plans[0]), seconds, time.monotonic() - began_s, most)


def _run(place: Place, operation: str, moves: Sequence[Move], since_ms: int) -> float:
    """Carry one plan out; the seconds from its publication."""
    with place.cluster as cluster, journal_of(place.sandbox, cluster) as journal:
        if operation != _OPERATIONS[0]:
            # A rebalance starts beside nothing; the other starts beside it.
            while not _has_begun(journal, since_ms):
                time.sleep(0.05)
        began_s = time.monotonic()
        folder = place.folder / operation
        digest = publish_given(cluster, journal, folder, moves, place.settings, operation=operation)
        runner = PlanRunner(ClusterContext(cluster, journal, place.settings, WHO), digest)
        progress = run_to_end(runner.step, bounded(), DrivePolicy(interval_s=lambda: place.settings.step_interval))
    if progress.status is not PlanStatus.COMPLETED or progress.completed < len(moves):
        raise RuntimeError(progress.sentence)
    return time.monotonic() - began_s


def _has_begun(journal: Journal, since_ms: int) -> bool:
    """Whether the first plan that was published since then has the slot, or has had it."""
    latest = [record for record in journal.plans.latest(1) if record.published_ms >= since_ms]
    return any(record.status.finished or journal.slot.holders() for record in latest)


def _most_into(cluster: KafkaCluster) -> int:
    time.sleep(0.2)
    moving = cluster.snapshot().reassigning.values()
    return max(Counter(broker for each in moving for broker in each.adding).values(), default=0)


def _cells(row: Paired) -> list[str]:
    seconds = (f"{each:.1f}" for each in (*row.each_s, row.seconds))
    return [row.mode, row.to, row.order, str(row.partitions), *seconds, str(row.most_into)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.at_once", description=__doc__)
    parser.add_argument("--modes", nargs="+", default=["kraft"], choices=["kraft", "zookeeper"])
    parser.add_argument("--partitions", type=int, default=60, help="of each plan")
    parser.add_argument("--size", type=int, default=1_000_000, help="bytes in each partition")
    parser.add_argument("--throttle", type=int, default=2_000_000, help="bytes per second into a broker")
    parser.add_argument("--write", action="store_true", help="put the table into docs/benchmarks.md")
    return parser


if __name__ == "__main__":
    main()
