"""`python -m benchmarks.planner_variants`: what an option adds to a plan of 100,000 partitions on 300 brokers.

In one session of Spark, on one snapshot, the same plan is made by turns without any option, with a budget, with
excluded brokers, and by bytes. The first turn warms the session up and does not count.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.clusters import OPERATIONS, make_snapshot
from benchmarks.report import merge_between, table
from benchmarks.watched import spent
from kafka_steward.planning.spark.pipeline import run
from kafka_steward.planning.spark.session import planning_session

__all__ = ["main"]

_PARTITIONS, _BROKERS = 100_000, 300
_SCENARIOS = ("drift", "expand")
_PLAIN = "no option"
#: Each option as a person gives it: a budget of a tenth of what would move, and one broker of each rack excluded.
_VARIANTS: Mapping[str, Mapping[str, Any]] = {
    _PLAIN: {},
    "max_moves=3000": {"max_moves": 3000},
    "exclude_brokers=[1, 2, 3]": {"exclude_brokers": [1, 2, 3]},
    "balance=bytes": {"balance": "bytes"},
}
_HEAD = ("scenario", "options", "s", "of no option", "on a core, s", "of no option", "moved")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure each scenario, and print its rows."""
    given = _parser().parse_args(arguments)
    for scenario in given.scenarios:
        rows = _measured(scenario, given.times)
        print(table(_HEAD, rows))
        if given.write:
            merge_between("variants", _HEAD, rows, keys=2)


def _measured(scenario: str, times: int) -> list[list[str]]:
    seconds: dict[str, list[float]] = defaultdict(list)
    core: dict[str, list[float]] = defaultdict(list)
    moved: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as name, planning_session() as spark:
        snapshot, out = str(Path(name) / "snapshot"), str(Path(name) / "plan")
        make_snapshot(snapshot, scenario, _PARTITIONS, _BROKERS)
        for turn in range(times + 1):
            for variant, options in _VARIANTS.items():
                began, before = time.monotonic(), spent(os.getpid())
                proof = run(spark, snapshot, out, OPERATIONS[scenario], options)
                took, on_a_core = time.monotonic() - began, spent(os.getpid()) - before
                print(scenario, variant, turn, f"{took:.2f} {on_a_core:.2f}", file=sys.stderr, flush=True)
                moved[variant] = proof["replicas_moved"]
                if turn:
                    seconds[variant].append(took)
                    core[variant].append(on_a_core)
    return [
        [scenario, variant, *_beside_plain(seconds, variant), *_beside_plain(core, variant), f"{moved[variant]:,}"]
        for variant in _VARIANTS
    ]


def _beside_plain(times: Mapping[str, Sequence[float]], variant: str) -> tuple[str, str]:
    median, plain = statistics.median(times[variant]), statistics.median(times[_PLAIN])
    return f"{median:.2f}", f"{median / plain:.2f}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planner_variants", description=__doc__)
    parser.add_argument("--scenarios", nargs="+", choices=_SCENARIOS, default=list(_SCENARIOS))
    parser.add_argument("--times", type=int, default=5, help="turns that count")
    parser.add_argument("--write", action="store_true", help="put the rows into docs/benchmarks.md")
    return parser


if __name__ == "__main__":
    main()
