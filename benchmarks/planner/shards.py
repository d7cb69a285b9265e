"""Plans with excluded brokers, of all partitions as one and in shards: seconds of processor, and memory at its peak."""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.clusters import OPERATIONS, make_snapshot
from benchmarks.planner.table import table
from kafka_steward.planning.files.formats import read_snapshot
from kafka_steward.planning.local import plan_locally
from kafka_steward.planning.shards import SHARD_ROWS

__all__ = ["excluded"]

#: One broker of each rack, as when a machine of each is about to be replaced.
_EXCLUDED = (1, 2, 3)
#: Partitions and brokers, and whether all partitions are planned as one, too: of the larger, that takes many minutes.
_SIZES = ((10_000, 60, True), (100_000, 300, False))
_HEAD = ("scenario", "partitions", "brokers", "planned", "s of processor", "MiB", "moved", "bound", "GiB", "leaders")


def excluded() -> str:
    """Each size and scenario, planned in each way in a process of its own."""
    return table(_HEAD, [row for size in _SIZES for row in _rows(*size)])


def _rows(partitions: int, brokers: int, as_one: bool) -> Iterator[list[object]]:
    for scenario in ("drift", "expand"):
        with tempfile.TemporaryDirectory() as folder:
            make_snapshot(folder, scenario, partitions, brokers)
            ways = {"as one": partitions} if as_one else {}
            for name, shard_rows in {**ways, "in shards": min(SHARD_ROWS, partitions // 4)}.items():
                took = _process(folder, scenario, shard_rows)
                yield [scenario, f"{partitions:,}", brokers, name, *took]


def _process(folder: str, scenario: str, shard_rows: int) -> list[object]:
    command = [sys.executable, "-m", "benchmarks.planner.shards", folder, scenario, str(shard_rows)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: list[object] = json.loads(done.stdout)
    return found


def _plan(folder: str, scenario: str, shard_rows: int) -> list[object]:
    snapshot = read_snapshot(folder)
    began = time.process_time()
    options = {"exclude_brokers": list(_EXCLUDED)}
    _, proof = plan_locally(snapshot, OPERATIONS[scenario], options, shard_rows=shard_rows)
    seconds = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    counts = [f"{proof[name]:,}" for name in ("replicas_moved", "lower_bound")]
    return [f"{seconds:.1f}", f"{peak:,}", *counts, f"{proof['bytes_moved'] >> 30:,}", f"{proof['leader_changes']:,}"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planner.shards", description=__doc__)
    parser.add_argument("folder", type=Path, help="the snapshot")
    parser.add_argument("scenario", choices=sorted(OPERATIONS))
    parser.add_argument("shard_rows", type=int, help="partitions in a shard, about")
    given = parser.parse_args()
    print(json.dumps(_plan(str(given.folder), given.scenario, given.shard_rows)))


if __name__ == "__main__":
    main()
