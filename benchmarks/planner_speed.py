"""`python -m benchmarks.planner_speed`: the planner's Spark job beside one that only reads, shuffles and writes.

Each of the two runs in a process of its own, on the same snapshot, once in a new session and once again in the same.
Seconds are those after the session has started; memory is the peak of the process with all its children: Python, the
JVM, and Spark's Python workers. `--write` puts the plan's part of each row into docs/benchmarks.md as soon as it is
measured; rows of other runs stay.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark

from benchmarks.clusters import OPERATIONS, SCENARIOS, make_snapshot
from benchmarks.report import merge_between, table
from benchmarks.watched import Watch, spent
from kafka_steward.planning.shards import SHARD_ROWS
from kafka_steward.planning.spark.installed import QUICK_JAVA
from kafka_steward.planning.spark.pipeline import run
from kafka_steward.planning.spark.session import planning_session

__all__ = ["main"]

#: What is measured where nothing is asked for: about 20 minutes on 2 cores.
_USUAL = {
    "1000x12": ("drift",),
    "10000x60": ("drift", "expand"),
    "10000x300": SCENARIOS,
    "100000x60": SCENARIOS,
    "100000x300": SCENARIOS,
    "200000x300": ("drift", "expand", "huge"),
    "1000000x300": ("drift", "expand", "heal"),
}
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
    "again: floor, s",
    "plan, s",
    "plan / floor",
    "on a core",
    "peak, MiB",
    "moved",
    "bound",
]
#: What the table in the docs has, by its place in a row.
_SHOWN = {0: "scenario", 1: "partitions", 2: "brokers", 4: "first, s", 7: "again, s", 10: "peak, MiB"}
#: The slope of seconds over partitions is taken from this size up: below it, Spark's own start is all there is.
_GROWS_FROM = 10_000


@dataclass(frozen=True)
class Run:
    """One process: what it took the first time and again in the same session, its peak, and the proof if any.

    Seconds are by the clock, and on a core: on a machine that others use too, the latter say more.
    """

    seconds: tuple[float, float]
    core_seconds: tuple[float, float]
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
        print(json.dumps(_child(given.child, given.snapshot, given.out, given.times)))
        return
    began, rows = time.monotonic(), []
    for size in given.sizes:
        partitions, brokers = (int(number) for number in size.split("x"))
        for scenario in given.scenarios or _USUAL.get(size, SCENARIOS):
            rows.append(_measured(scenario, partitions, brokers))
            print(" | ".join(_cells(rows[-1])), file=sys.stderr, flush=True)
            if given.write:
                shown = [_cells(rows[-1])[at] for at in _SHOWN]
                merge_between("planner", list(_SHOWN.values()), [shown], keys=3)
    print("\n\n".join([table(_HEAD, [_cells(row) for row in rows]), *_sentences(rows, time.monotonic() - began)]))


def _measured(scenario: str, partitions: int, brokers: int) -> Row:
    with tempfile.TemporaryDirectory() as name:
        snapshot = str(Path(name) / "snapshot")
        make_snapshot(snapshot, scenario, partitions, brokers)
        floor, plan = (_process(job, snapshot, str(Path(name) / job)) for job in ("floor", OPERATIONS[scenario]))
        return Row(scenario, partitions, brokers, floor, plan)


def _process(job: str, snapshot: str, out: str) -> Run:
    command = [sys.executable, "-m", "benchmarks.planner_speed", "--child", job, "--snapshot", snapshot, "--out", out]
    options = f"--driver-memory {_JAVA_HEAP} --driver-java-options '{QUICK_JAVA}' pyspark-shell"
    environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": options}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
        watch = Watch(child.pid)
        words, _ = child.communicate(timeout=_DEADLINE_S)
        peak = watch.stop()
    if child.returncode:
        raise SystemExit(f"The job {job} failed on {snapshot}; its last words are above.")
    answer = json.loads(words.strip().splitlines()[-1])
    return Run(tuple(answer["seconds"]), tuple(answer["core_seconds"]), peak, answer["proof"])


def _child(job: str, snapshot: str, out: str, times: int) -> dict[str, Any]:
    seconds, core = [], []
    with planning_session() as spark:
        # The first job of a session starts the Python workers; that is the session's start, not the job's.
        spark.range(2, numPartitions=2).mapInArrow(_as_they_are, "id long").collect()
        for _ in range(times):
            began, before = time.monotonic(), spent(os.getpid())
            proof = _floor(spark, snapshot, out) if job == "floor" else run(spark, snapshot, out, job)
            seconds.append(time.monotonic() - began)
            core.append(spent(os.getpid()) - before)
    kept = ("replicas_moved", "lower_bound", "gap", "bytes_moved", "leader_changes", "partitions")
    return {"seconds": seconds, "core_seconds": core, "proof": {name: proof[name] for name in kept if name in proof}}


def _floor(spark: Any, snapshot: str, out: str) -> dict[str, Any]:
    """Read the snapshot, shuffle it into as many slices, pass it through Python, and write it."""
    rows = spark.read.parquet(f"{snapshot}/partitions.parquet")
    slices = math.ceil(_count(snapshot) / SHARD_ROWS)
    shuffled = rows.repartition(slices, "topic")
    shuffled.mapInArrow(_as_they_are, shuffled.schema).write.mode("overwrite").parquet(out)
    return {}


def _count(snapshot: str) -> int:
    return int(pq.read_metadata(Path(snapshot, "partitions.parquet")).num_rows)


def _as_they_are(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _cells(row: Row) -> list[str]:
    timed = []
    for least, taken in zip(row.floor.seconds, row.plan.seconds, strict=True):
        timed += [f"{least:.2f}", f"{taken:.2f}", f"{taken / least:.1f}"]
    plan, floor = row.plan.core_seconds[1], row.floor.core_seconds[1]
    proof = row.plan.proof
    return [
        row.scenario,
        f"{row.partitions:,}",
        str(row.brokers),
        *timed,
        # A worker that ends while it is counted is missing from the count.
        f"{plan / floor:.1f}" if min(plan, floor) > 0 else "-",
        f"{row.plan.peak_mib:,}",
        f"{proof['replicas_moved']:,}",
        f"{proof['lower_bound']:,}",
    ]


def _sentences(rows: Sequence[Row], seconds: float) -> Iterator[str]:
    """What the table is worth: the growth, and where it was measured."""
    grown = [f"{scenario} at {brokers} brokers {exponent:.2f}" for scenario, brokers, exponent in _growth(rows)]
    if grown:
        yield f"Growth of the plan's seconds with partitions, as an exponent: {', '.join(grown)}."
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    yield (
        f"{os.cpu_count()} cores, {memory} GiB; Python {platform.python_version()}, PySpark {pyspark.__version__}, "
        f"pylmcf {metadata.version('pylmcf')}; {seconds / 60:.0f} minutes in all."
    )


def _growth(rows: Sequence[Row]) -> Iterator[tuple[str, int, float]]:
    """Per scenario and number of brokers: the slope of log seconds over log partitions, from the ends."""
    for scenario, brokers in dict.fromkeys((row.scenario, row.brokers) for row in rows):
        mine = [row for row in rows if (row.scenario, row.brokers) == (scenario, brokers)]
        mine = sorted((row for row in mine if row.partitions >= _GROWS_FROM), key=lambda row: row.partitions)
        if len(mine) > 1:
            first, last = mine[0], mine[-1]
            grown = math.log(last.plan.seconds[1] / first.plan.seconds[1])
            yield scenario, brokers, grown / math.log(last.partitions / first.partitions)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planner_speed", description=__doc__)
    parser.add_argument("--sizes", nargs="+", default=list(_USUAL), metavar="PARTITIONSxBROKERS")
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS)
    parser.add_argument("--write", action="store_true", help="put each row into docs/benchmarks.md")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--times", type=int, default=2, help=argparse.SUPPRESS)
    parser.add_argument("--snapshot", help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    main()
