"""`python -m benchmarks.planner`: the planner's tables; `--write` puts that of others into docs/planning.md."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks.planner.exactness import exactness
from benchmarks.planner.failover import failover
from benchmarks.planner.makespan import makespans
from benchmarks.planner.peers import peers
from benchmarks.planner.shards import excluded
from benchmarks.report import write_between

_REPORT = Path(__file__).parents[2] / "docs" / "planning.md"
_TABLES = ("failover", "exactness", "peers", "excluded", "makespan")


def main() -> None:
    asked = _parser().parse_args()
    for name in asked.tables or _TABLES:
        started = time.perf_counter()
        made = {
            "failover": failover,
            "exactness": lambda: exactness(asked.cases),
            "peers": peers,
            "excluded": excluded,
            "makespan": makespans,
        }
        found = made[name]()
        print(f"{name} ({time.perf_counter() - started:.0f} s)\n\n{found}\n", flush=True)
        if asked.write and name == "peers":
            write_between(name, found, _REPORT)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planner", description=__doc__)
    parser.add_argument("tables", nargs="*", help=f"some of {', '.join(_TABLES)}; all if none is named")
    parser.add_argument("--cases", type=int, default=2_000, help="random small clusters of the first table")
    parser.add_argument("--write", action="store_true", help="put peers into docs/planning.md")
    return parser


if __name__ == "__main__":
    main()
