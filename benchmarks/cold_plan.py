"""`python -m benchmarks.cold_plan`: the parts of a small plan's cold start, beside a Spark that does nothing.

Each run is a process of its own, as a task of a DAG starts it. It plans the heal of 60 partitions, or passes one row
through a Python worker, which is the least that a Spark job in Python can do, or has the JVM alone make one row: what
the former takes longer is the start of a Python worker. All are run with Java's own classes only, with those that
`airflow kafka-steward prepare-spark` records, and as clients of a Spark Connect server that has done the same before.
Medians of `--times` runs, by turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.report import table, write_between
from benchmarks.watched import spent

__all__ = ["main"]

_PARTITIONS, _BROKERS = 60, 4
#: When each of these has ended, in order. What is left until the process has ended is the end of the session.
_PARTS = ("Python", "JVM", "session", "job")
_HEAD = ("job", "classes of Spark", *(f"{part}, s" for part in _PARTS), "end, s", "sum, s", "on a core, s")
_JOBS = ("one row in the JVM", "one row through Python", "plan")
_CLASSES = ("loaded", "recorded")
_SERVER = "of a Connect server"
_TIMEOUT_S = 300


@dataclass(frozen=True)
class Run:
    """One process: the seconds of each part, the seconds until it had ended, and those on a core."""

    parts: Mapping[str, float]
    sum_s: float
    core_s: float


def main() -> None:
    options = _parser().parse_args()
    if options.child:
        print(json.dumps(_child(options.child, options.snapshot, options.out)))
        return
    with tempfile.TemporaryDirectory() as name:
        cells = _measure(Path(name), options.times)
    print(table(_HEAD, cells))
    if options.write:
        write_between("cold plan", table(_HEAD[1:], [row[1:] for row in cells if row[0] == _JOBS[-1]]))


def _measure(folder: Path, times: int) -> list[list[str]]:
    from benchmarks.clusters import make_snapshot  # noqa: PLC0415 - a child that does nothing needs no planner
    from kafka_steward.planning.spark.installed import find_spark, record_class_archive  # noqa: PLC0415
    from tests.own_spark import running_connect_server  # noqa: PLC0415

    snapshot = str(folder / "snapshot")
    make_snapshot(snapshot, "heal", _PARTITIONS, _BROKERS)
    caches = {classes: {**os.environ, "KAFKA_STEWARD_CACHE": str(folder / classes)} for classes in _CLASSES}
    Path(folder, _CLASSES[1]).mkdir()
    os.environ["KAFKA_STEWARD_CACHE"] = str(folder / _CLASSES[1])
    record_class_archive(find_spark())
    runs: dict[tuple[str, str], list[Run]] = {each: [] for each in product(_JOBS, (*_CLASSES, _SERVER))}
    with running_connect_server(folder, Path(sys.executable)) as port:
        caches[_SERVER] = {**os.environ, "SPARK_REMOTE": f"sc://127.0.0.1:{port}"}
        # The first turn fills the page cache with Spark's jars, and warms the server up: it does not count.
        for turn in range(times + 1):
            for (job, classes), found in runs.items():
                run = _process(job, snapshot, str(folder / "out"), caches[classes])
                print(job, classes, f"{run.sum_s:.1f}", flush=True)
                if turn:
                    found.append(run)
    return [_cells(job, classes, found) for (job, classes), found in runs.items()]


def _process(job: str, snapshot: str, out: str, environment: Mapping[str, str]) -> Run:
    command = [sys.executable, "-m", "benchmarks.cold_plan", "--child", job, "--snapshot", snapshot, "--out", out]
    began = time.time()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    sum_s = time.time() - began
    if done.returncode:
        raise SystemExit(f"The job {job} failed: {done.stderr[-2000:]}")
    ended = json.loads(done.stdout.splitlines()[-1])
    starts = [began, *(ended[part] for part in _PARTS)]
    parts = {part: ended[part] - start for part, start in zip(_PARTS, starts, strict=False)}
    return Run({**parts, "end": began + sum_s - ended[_PARTS[-1]]}, sum_s, ended["on a core"])


def _child(job: str, snapshot: str, out: str) -> dict[str, float]:
    """Return when each part had ended, and the seconds on a core until then."""
    from pyspark import SparkContext  # noqa: PLC0415 - the import is a part of what is measured

    from kafka_steward.planning.spark import pipeline, session  # noqa: PLC0415

    ended = {"Python": time.time()}
    start = SparkContext._ensure_initialized  # noqa: SLF001 - PySpark has no public way to start the JVM alone

    def start_and_note(*given: Any, **named: Any) -> None:
        start(*given, **named)
        ended.setdefault("JVM", time.time())

    SparkContext._ensure_initialized = start_and_note  # type: ignore[method-assign]  # noqa: SLF001
    with session.planning_session() as spark:
        ended["session"] = time.time()
        one_row = spark.range(1, numPartitions=1)
        if job == "plan":
            pipeline.run(spark, snapshot, out, "heal")
        else:
            (one_row if job == _JOBS[0] else one_row.mapInArrow(_as_it_is, "id long")).collect()
        ended.setdefault("JVM", ended["Python"])  # the server's
        ended |= {"job": time.time(), "on a core": spent(os.getpid())}
    return ended


def _as_it_is(batches: Iterable[Any]) -> Iterator[Any]:
    yield from batches


def _cells(job: str, classes: str, runs: Sequence[Run]) -> list[str]:
    parts = [statistics.median(run.parts[part] for run in runs) for part in (*_PARTS, "end")]
    rest = [statistics.median(run.sum_s for run in runs), statistics.median(run.core_s for run in runs)]
    return [job, classes, *(f"{seconds:.1f}" for seconds in (*parts, *rest))]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cold_plan", description=__doc__)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="put the rows of the plan into docs/benchmarks.md")
    parser.add_argument("--child", choices=_JOBS, help=argparse.SUPPRESS)
    parser.add_argument("--snapshot", help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    main()
