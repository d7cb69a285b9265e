"""`python -m benchmarks.window`: a plan with one slow partition, by the sliding window and in chunks one by one.

One partition is much larger than all the others, and the only one that goes to broker 4; the others go to brokers 1, 2
and 3, as much to each. It is in the first chunk. With `window="chunk"` (KIP-46) the next chunk begins when that one has
ended, so that three brokers wait for it; the sliding window begins the next move whenever one ends. Both run on one
cluster, with topics of the same sizes, at the same throttle.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.given import WHO, journal_of, publish_given
from benchmarks.report import table
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
#: (before, after) by turns: as many into each of brokers 1, 2 and 3.
_TURNS = (((1, 2), (3, 2)), ((2, 3), (1, 3)), ((3, 1), (2, 1)))
_SLOW = ((1, 2), (4, 2))
_HEAD = ("mode", "window", "partitions", "the slow one s", "the last of the others s", "all s")


@dataclass(frozen=True)
class Windowed:
    """Seconds from the publication of the plan to the arrival of the slow partition, of the last other, and of all."""

    mode: str
    window: str
    partitions: int
    slow_s: float
    others_s: float

    @property
    def seconds(self) -> float:
        return max(self.slow_s, self.others_s)


@dataclass(frozen=True)
class Sizes:
    """Partitions in all, bytes of each small one and of the slow one; bytes per second into a broker."""

    partitions: int
    small: int
    slow: int
    throttle: int


def main() -> None:
    options = _parser().parse_args()
    sizes = Sizes(options.partitions, options.small, options.slow, options.throttle)
    rows = [row for mode in options.modes for row in _of_mode(mode, sizes)]
    cells = [_cells(row) for row in rows]
    print(table(_HEAD, cells))


def _of_mode(mode: str, sizes: Sizes) -> list[Windowed]:
    rows = []
    with (
        tempfile.TemporaryDirectory() as name,
        start(mode=mode, brokers=4, racks=3) as sandbox,
        KafkaCluster({"bootstrap_servers": sandbox.bootstrap.split(",")}) as cluster,
        journal_of(sandbox, cluster) as journal,
    ):
        for window in ("sliding", "chunk"):
            moves = _filled(sandbox, window, sizes)
            rows.append(_windowed(mode, cluster, journal, Path(name) / window, moves=moves, throttle=sizes.throttle))
            print(rows[-1], flush=True)
            sandbox.delete_topics(window)
    return rows


def _filled(sandbox: Sandbox, window: str, sizes: Sizes) -> list[Move]:
    """Two topics, of the small partitions and of the slow one, which comes first in the plan."""
    small, slow = f"{window}-small", f"{window}-slow"
    count = sizes.partitions - 1
    turns = [_TURNS[number % len(_TURNS)] for number in range(count)]
    sandbox.create_topics(small, assignments={number: turns[number][0] for number in range(count)})
    sandbox.create_topics(slow, assignments={0: _SLOW[0]})
    sandbox.fill(small, count * sizes.small)
    sandbox.fill(slow, sizes.slow)
    names = [(slow, 0, _SLOW), *((small, number, turn) for number, turn in enumerate(turns))]
    return [
        Move(topic, number, *turn, place // _CHUNK, place % _CHUNK, "given")
        for place, (topic, number, turn) in enumerate(names)
    ]


def _windowed(
    mode: str, cluster: KafkaCluster, journal: Journal, folder: Path, *, moves: Sequence[Move], throttle: int
) -> Windowed:
    settings = Settings.of({"min_free": 0, "window": folder.name, "throttle": throttle})
    began_ms = journal.now_ms()
    digest = publish_given(cluster, journal, folder, moves, settings)
    runner = PlanRunner(ClusterContext(cluster, journal, settings, WHO), digest)
    progress = run_to_end(runner.step, bounded(), DrivePolicy(interval_s=lambda: settings.step_interval))
    if progress.status is not PlanStatus.COMPLETED or progress.completed < len(moves):
        raise RuntimeError(progress.sentence)
    settled = [(row.topic_partition, (row.settled_ms or 0) - began_ms) for row in journal.plans.rows(digest)]
    slow = moves[0].topic_partition
    return Windowed(
        mode,
        folder.name,
        len(moves),
        slow_s=max(after_ms for name, after_ms in settled if name == slow) / 1000,
        others_s=max(after_ms for name, after_ms in settled if name != slow) / 1000,
    )


def _cells(row: Windowed) -> list[str]:
    seconds = (f"{each:.1f}" for each in (row.slow_s, row.others_s, row.seconds))
    return [row.mode, row.window, str(row.partitions), *seconds]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.window", description=__doc__)
    parser.add_argument("--modes", nargs="+", default=["kraft"], choices=["kraft", "zookeeper"])
    parser.add_argument("--partitions", type=int, default=200)
    parser.add_argument("--small", type=int, default=1_000_000, help="bytes in each small partition")
    parser.add_argument("--slow", type=int, default=60_000_000, help="bytes in the slow one")
    parser.add_argument("--throttle", type=int, default=1_000_000, help="bytes per second into a broker")
    return parser


if __name__ == "__main__":
    main()
