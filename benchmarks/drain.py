"""`python -m benchmarks.drain`: a broker is emptied under a live producer and consumer, by us and by Kafka's own tool.

For each way there is a new topic, with so much data on the broker that is to be emptied, which leads a third of it. The
producer's 99th percentile is taken before, while and after the broker is emptied. Then all of it is moved back, with a
throttle of twice what the producer writes, and while that is in flight another broker with replicas of it is
restarted: seconds from when it is live again to when it is in every ISR. What then still moves is cancelled. Messages
are counted over it all.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import merge_between, table
from benchmarks.stages import ask_until
from benchmarks.traffic import BYTES_PER_S, Traffic
from benchmarks.ways import KafkasTool, Steward, Way
from kafka_steward.assignment import Assignment, Move
from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.execution.plans.report import drain_status
from kafka_steward.sandbox import Sandbox, start

#: Of 4 brokers in 3 racks these two are in one rack: there is only one way to empty one of them.
_DRAINED, _TAKER = 4, 1
#: The others, of which the first is restarted.
_RESTARTED, _OTHER = 2, 3
_PARTITIONS = 12
#: Seconds before and after, in which nothing moves.
_AROUND_S = 10.0
_EMPTY_WITHIN_S, _BACK_WITHIN_S = 30.0, 150.0
_HEAD = (
    *("mode", "by", "throttle MB/s", "s", "p99 before ms", "during", "after", "left", "messages"),
    *("no answer", "lost", "duplicated", "back in ISR s"),
)


@dataclass(frozen=True)
class Drained:
    """One drain. `left` counts replicas that are still there after it; `back_s` is None where it was not measured."""

    mode: str
    by: str
    throttle: int
    seconds: float
    p99_ms: tuple[float, float, float]
    left: int
    messages: int
    unacknowledged: int
    lost: int
    duplicated: int
    back_s: float | None


def main() -> None:
    options = _parser().parse_args()
    rows = [row for mode in options.modes for row in _of_mode(mode, options.megabytes, options.throttle)]
    cells = [_cells(row) for row in rows]
    print(table(_HEAD, cells))
    if options.write:
        merge_between("drain", _HEAD, cells, keys=3)


def _of_mode(mode: str, megabytes: int, throttle: int) -> list[Drained]:
    rows = []
    kinds: Sequence[tuple[type[Steward | KafkasTool], int]] = (
        (Steward, throttle),
        (Steward, 0),
        (KafkasTool, throttle),
    )
    with (
        tempfile.TemporaryDirectory() as name,
        start(mode=mode, brokers=4, racks=3) as sandbox,
        KafkaCluster({"bootstrap_servers": sandbox.bootstrap.split(",")}) as cluster,
    ):
        for number, (kind, rate) in enumerate(kinds):
            folder = Path(name) / f"orders-{number}"
            folder.mkdir()
            moves = _filled(sandbox, folder.name, megabytes)
            rows.append(_drained(sandbox, cluster, kind(sandbox, cluster, folder), moves, rate))
            print(rows[-1], flush=True)
            sandbox.delete_topics(folder.name)
    return rows


def _filled(sandbox: Sandbox, topic: str, megabytes: int) -> list[Move]:
    """A topic with so much on the broker that is to be emptied; the moves that empty it."""
    others = (_RESTARTED, _OTHER)
    before, after = ({n: _turned((at, *others), n) for n in range(_PARTITIONS)} for at in (_DRAINED, _TAKER))
    sandbox.create_topics(topic, assignments=before, configs={"min.insync.replicas": "2"})
    sandbox.fill(topic, megabytes * 1_000_000)
    return [Move(topic, n, before[n], after[n], 0, n, "broker_draining") for n in range(_PARTITIONS)]


def _turned(replicas: Assignment, number: int) -> Assignment:
    first = number % len(replicas)
    return (*replicas[first:], *replicas[:first])


def _drained(sandbox: Sandbox, cluster: KafkaCluster, way: Way, moves: Sequence[Move], throttle: int) -> Drained:
    back_s = None
    with Traffic(sandbox.bootstrap, moves[0].topic, _PARTITIONS) as traffic:
        time.sleep(_AROUND_S / 2)  # clients and JVMs warm up
        at_s = [time.monotonic()]
        time.sleep(_AROUND_S)
        at_s.append(time.monotonic())
        way.move(moves, throttle)
        at_s.append(time.monotonic())
        time.sleep(_AROUND_S)
        at_s.append(time.monotonic())
        left = _left(cluster)
        if throttle:
            back_s = _back_s(sandbox, cluster, way, [_reversed(move) for move in moves])
        delivered = traffic.end()
    before, during, after = (delivered.p99_ms((at_s[part], at_s[part + 1])) for part in range(3))
    return Drained(
        sandbox.mode,
        way.name,
        throttle,
        at_s[2] - at_s[1],
        (before, during, after),
        left=left,
        messages=len(delivered.due_s),
        unacknowledged=delivered.unacknowledged,
        lost=delivered.lost,
        duplicated=delivered.duplicated,
        back_s=back_s,
    )


def _left(cluster: KafkaCluster) -> int:
    """Replicas on the emptied broker, assigned to it or lying there, once Kafka has had time to delete them."""
    deadline_s = time.monotonic() + _EMPTY_WITHIN_S
    while True:
        found = drain_status(cluster.snapshot(), cluster.log_dirs([_DRAINED]), [_DRAINED])
        if found.is_empty or time.monotonic() > deadline_s:
            return len(found.assigned) + len(found.undeleted_logs)
        time.sleep(0.5)


def _reversed(move: Move) -> Move:
    return Move(move.topic, move.partition, move.after, move.before, move.chunk, move.position, "given")


def _back_s(sandbox: Sandbox, cluster: KafkaCluster, way: Way, moves: Sequence[Move]) -> float | None:
    """Seconds until a restarted member of each ISR is back in it; None if nothing moved any more when it was live."""
    topic = moves[0].topic

    def returned() -> bool | None:
        return all(_RESTARTED in each.isr for each in cluster.snapshot([topic]).partitions.values()) or None

    with way.holding(moves, 2 * BYTES_PER_S, restarting=_RESTARTED):
        sandbox.restart(_RESTARTED)
        began_s, moving = time.monotonic(), bool(cluster.reassignments())
        try:
            ask_until(returned, within_s=_BACK_WITHIN_S, every_s=0.1)
        except TimeoutError:
            return math.inf
        return time.monotonic() - began_s if moving else None


def _cells(row: Drained) -> list[str]:
    throttle = f"{row.throttle / 1e6:g}" if row.throttle else "none"
    back = "-" if row.back_s is None else f"{row.back_s:.1f}" if row.back_s < math.inf else f"> {_BACK_WITHIN_S:.0f}"
    counts = [row.left, row.messages, row.unacknowledged, row.lost, row.duplicated]
    latencies = [f"{each:.0f}" for each in row.p99_ms]
    return [row.mode, row.by, throttle, f"{row.seconds:.1f}", *latencies, *map(str, counts), back]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.drain", description=__doc__)
    parser.add_argument("--modes", nargs="+", default=["kraft"], choices=["kraft", "zookeeper"])
    parser.add_argument("--megabytes", type=int, default=1000, help="on the broker that is to be emptied")
    parser.add_argument("--throttle", type=int, default=20_000_000, help="bytes per second into a broker")
    parser.add_argument("--write", action="store_true", help="put the table into docs/benchmarks.md")
    return parser


if __name__ == "__main__":
    main()
