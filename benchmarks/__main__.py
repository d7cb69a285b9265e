"""`python -m benchmarks`: heals at 60 and 600 partitions, by Runner and in Airflow, in both modes; writes the table.

With `--ways bare tool`, the plan is carried out by bare requests without a journal, and by Kafka's own tool.
"""

from __future__ import annotations

import argparse
import tempfile
from itertools import product
from pathlib import Path

from benchmarks import in_airflow, plain
from benchmarks.report import merge_between, table
from benchmarks.stages import STAGES, Stages
from kafka_steward.sandbox import start
from kafka_steward.settings import Settings

_BYTES = 60_000_000
_THROTTLE = 50_000_000
_AIRFLOW = "airflow"
_WAYS = (*plain.WAYS, _AIRFLOW)
#: Of the sandbox's brokers, in seconds: after that long Kafka itself counts a broker as dead.
_SESSIONS = {"kraft": 3, "zookeeper": 6}
_HEAD = ("mode (session)", "partitions", "by", "moved", *STAGES, "sum", "plan, warm")


def main() -> None:
    options = _parser().parse_args()
    runs = product(options.modes, options.partitions, options.ways)
    rows = [_heal(mode, partitions, way) for mode, partitions, way in runs]
    cells = [_cells(row) for row in rows]
    print(table(_HEAD, cells))
    if options.write:
        # The page has what a person waits for; the other ways show where the seconds go.
        merge_between("heal", _HEAD, [each for each in cells if each[2] == in_airflow.WAY], keys=3)


def _heal(mode: str, partitions: int, way: str) -> Stages:
    with tempfile.TemporaryDirectory() as name, start(mode=mode, brokers=4, racks=3) as sandbox:
        sandbox.create_topics("orders", partitions=partitions, replication_factor=3)
        sandbox.fill("orders", _BYTES)
        if way == _AIRFLOW:
            return in_airflow.heal(sandbox, Path(name), partitions, _THROTTLE)
        settings = Settings.of(
            {"min_free": 0, "heal_failure_interval": 0, "watch_interval": 0.5, "throttle": _THROTTLE}
        )
        return plain.heal(sandbox, Path(name), partitions, settings, way)


def _cells(row: Stages) -> list[str]:
    seconds = [f"{row.seconds[name]:.1f}" if name in row.seconds else "-" for name in STAGES]
    mode = f"{row.mode} ({_SESSIONS[row.mode]} s)"
    warm = "-" if row.plan_warm_s is None else f"{row.plan_warm_s:.1f}"
    return [mode, str(row.partitions), row.way, str(row.replicas_moved), *seconds, f"{row.total:.1f}", warm]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--modes", nargs="+", choices=("kraft", "zookeeper"), default=("kraft", "zookeeper"))
    parser.add_argument("--partitions", nargs="+", type=int, default=(60, 600))
    parser.add_argument("--ways", nargs="+", choices=_WAYS, default=("plain", _AIRFLOW))
    parser.add_argument("--write", action="store_true", help="put the table into docs/benchmarks.md")
    return parser


if __name__ == "__main__":
    main()
