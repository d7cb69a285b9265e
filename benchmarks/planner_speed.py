"""`python -m benchmarks.planner_speed`: the planner's Spark job beside one that only reads, shuffles and writes.

Each of the two runs in a process of its own, on the same snapshot. Seconds are those after the session has started;
memory is the peak of the process with all its children: Python, the JVM, and Spark's Python workers.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.clusters import OPERATIONS, SCENARIOS, make_snapshot
from kafka_steward.planning.job import run
from kafka_steward.planning.session import local_session
from kafka_steward.planning.slices import SLICE_ROWS
from kafka_steward.planning.stages import read_partitions

__all__ = ["main"]

_SIZES = ("1000x12", "10000x60", "100000x60", "100000x300", "200000x300", "1000000x300")
#: A heap that the largest size fits in; given more, the JVM would only collect less often.
_JAVA_HEAP = "1500m"
_DEADLINE_S = 3600
_HEAD = [
    "scenario",
    "partitions",
    "brokers",
    "floor, s",
    "plan, s",
    "plan / floor",
    "core s",
    "of floor",
    "peak, MiB",
    "moved",
    "bound",
]
#: The slope of seconds over partitions is taken from this size up: below it, Spark's own start is all there is.
_GROWS_FROM = 10_000


@dataclass(frozen=True)
class Run:
    """One process: seconds after the session's start, by the clock and on a core, its peak, and the proof if any.

    On a machine that others use too, the seconds on a core say more.
    """

    seconds: float
    core_seconds: float
    peak_mib: int
    proof: dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    scenario: str
    partitions: int
    brokers: int
    floor: Run
    plan: Run


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the snapshots, run both jobs on each, print the table and the growth."""
    given = _parser().parse_args(arguments)
    if given.child:
        print(json.dumps(_child(given.child, given.snapshot, given.out)))
        return
    rows = []
    for size in given.sizes:
        partitions, brokers = (int(number) for number in size.split("x"))
        for scenario in given.scenarios:
            rows.append(_measured(scenario, partitions, brokers, given.repeat))
            print(_line(_cells(rows[-1])), file=sys.stderr)
    print(_table(rows))
    for scenario, brokers, exponent in _growth(rows):
        print(f"\nGrowth of {scenario} with partitions at {brokers} brokers: exponent {exponent:.2f}.")


def _measured(scenario: str, partitions: int, brokers: int, repeat: int) -> Row:
    """The faster of `repeat` runs of each job."""
    with tempfile.TemporaryDirectory() as name:
        snapshot = str(Path(name) / "snapshot")
        make_snapshot(snapshot, scenario, partitions, brokers)
        runs: dict[str, list[Run]] = {"floor": [], OPERATIONS[scenario]: []}
        for number in range(repeat):
            for job, found in runs.items():
                found.append(_process(job, snapshot, str(Path(name) / f"{job}-{number}")))
        floor, plan = (min(found, key=lambda run: run.seconds) for found in runs.values())
        return Row(scenario, partitions, brokers, floor, plan)


def _process(job: str, snapshot: str, out: str) -> Run:
    command = [sys.executable, "-m", "benchmarks.planner_speed", "--child", job, "--snapshot", snapshot, "--out", out]
    environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": f"--driver-memory {_JAVA_HEAP} pyspark-shell"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
        watch = _Watch(child.pid)
        words, _ = child.communicate(timeout=_DEADLINE_S)
        peak = watch.stop()
    if child.returncode:
        raise SystemExit(f"The job {job} failed on {snapshot}; its last words are above.")
    answer = json.loads(words.strip().splitlines()[-1])
    return Run(answer["seconds"], answer["core_seconds"], peak, answer["proof"])


class _Watch(threading.Thread):
    """Looks ten times a second how much memory a process and its descendants hold."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid, self._peak, self._done = pid, 0, threading.Event()
        self.start()

    def run(self) -> None:
        while not self._done.wait(0.1):
            self._peak = max(self._peak, sum(_resident(pid) for pid in _family(self._pid)))

    def stop(self) -> int:
        """The peak, in mebibytes."""
        self._done.set()
        self.join()
        return self._peak >> 20


def _family(pid: int) -> Iterator[int]:
    yield pid
    try:
        found = [(task / "children").read_text().split() for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        # It ended while we looked.
        return
    for child in (int(word) for words in found for word in words):
        yield from _family(child)


def _resident(pid: int) -> int:
    """Bytes that are this process' own: forked workers share what they never wrote."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def _spent(pid: int) -> float:
    """Seconds on a core of a process and its descendants, those included that have ended."""
    return sum(_ticks(one) for one in _family(pid)) / os.sysconf("SC_CLK_TCK")


def _ticks(pid: int) -> int:
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        # It ended while we looked.
        return 0
    # Fields 14 to 17: user and system time, its own and that of children it has waited for.
    return sum(int(word) for word in words[11:15])


def _child(job: str, snapshot: str, out: str) -> dict[str, Any]:
    with local_session() as spark:
        # The first job of a session starts the Python workers; that is the session's start, not the job's.
        spark.range(2, numPartitions=2).mapInArrow(_as_they_are, "id long").collect()
        began, spent = time.monotonic(), _spent(os.getpid())
        proof = _floor(spark, snapshot, out) if job == "floor" else run(spark, snapshot, out, job)
        seconds, core = time.monotonic() - began, _spent(os.getpid()) - spent
    kept = ("replicas_moved", "lower_bound", "gap", "bytes_moved", "leader_changes", "partitions")
    return {"seconds": seconds, "core_seconds": core, "proof": {name: proof[name] for name in kept if name in proof}}


def _floor(spark: Any, snapshot: str, out: str) -> dict[str, Any]:
    """Read the snapshot, shuffle it into as many slices, pass it through Python, and write it."""
    rows = read_partitions(spark, snapshot)
    slices = math.ceil(_count(snapshot) / SLICE_ROWS)
    shuffled = rows.repartition(slices, "topic")
    shuffled.mapInArrow(_as_they_are, shuffled.schema).write.mode("overwrite").parquet(out)
    return {}


def _count(snapshot: str) -> int:
    return int(pq.read_metadata(Path(snapshot, "partitions.parquet")).num_rows)


def _as_they_are(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _table(rows: Sequence[Row]) -> str:
    return "\n".join([_line(_HEAD), _line(["---"] * len(_HEAD)), *(_line(_cells(row)) for row in rows)])


def _cells(row: Row) -> list[str]:
    return [
        row.scenario,
        f"{row.partitions:,}",
        str(row.brokers),
        f"{row.floor.seconds:.2f}",
        f"{row.plan.seconds:.2f}",
        f"{row.plan.seconds / row.floor.seconds:.1f}",
        f"{row.plan.core_seconds:.1f}",
        f"{row.plan.core_seconds / max(row.floor.core_seconds, 0.01):.1f}",
        f"{row.plan.peak_mib:,}",
        f"{row.plan.proof['replicas_moved']:,}",
        f"{row.plan.proof['lower_bound']:,}",
    ]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _growth(rows: Sequence[Row]) -> Iterator[tuple[str, int, float]]:
    """Per scenario and number of brokers: the slope of log seconds over log partitions, from the ends."""
    for scenario, brokers in sorted({(row.scenario, row.brokers) for row in rows}):
        mine = [row for row in rows if (row.scenario, row.brokers) == (scenario, brokers)]
        mine = sorted((row for row in mine if row.partitions >= _GROWS_FROM), key=lambda row: row.partitions)
        if len(mine) > 1:
            first, last = mine[0], mine[-1]
            grown = math.log(last.plan.seconds / first.plan.seconds)
            yield scenario, brokers, grown / math.log(last.partitions / first.partitions)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planner_speed", description=__doc__)
    parser.add_argument("--sizes", nargs="+", default=_SIZES, metavar="PARTITIONSxBROKERS")
    parser.add_argument("--scenarios", nargs="+", default=SCENARIOS, choices=SCENARIOS)
    parser.add_argument("--repeat", type=int, default=1, help="runs of each job, of which the faster counts")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--snapshot", help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    main()
