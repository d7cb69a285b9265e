"""`python -m benchmarks.idle`: the statements and requests of a watch that has nothing to do, for one and for ten DAGs.

A simulated cluster, a journal in SQLite, and triggers in one process, as a triggerer runs them: what is counted does
not depend on other work of the machine, but for polls that are late. Brokers' sessions of 3 s make the interval of the
check for failed brokers 0.75 s, as in the sandbox.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="kafka-steward-benchmark-"))
os.environ.setdefault("AIRFLOW__LOGGING__LOGGING_LEVEL", "WARNING")

import sqlalchemy as sa

from benchmarks.report import table, write_between
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.triggers.reporting import WatchReporter
from kafka_steward.triggers.watch import EVENTS, WatchTrigger
from tests.crash import Faults
from tests.simulator import Simulator

#: Seconds until the first polls, which sweep, are over, and seconds that are counted.
_SETTLE_S, _COUNTED_S = 10.0, 60.0
_SESSION = {"broker.session.timeout.ms": "3000"}


class IdleCluster(Simulator):
    """A cluster where nothing happens, with short sessions."""

    def broker_configs(self, brokers: Collection[int], *_: Any, **__: Any) -> dict[int, dict[str, str]]:
        return dict.fromkeys(brokers, _SESSION)

    def close(self) -> None:
        """Nothing is open."""


def main() -> None:
    options = _parser().parse_args()
    rows = [asyncio.run(_measure(dags, options.seconds)) for dags in options.dags]
    text = table(list(rows[0]), [[str(value) for value in row.values()] for row in rows])
    print(text)
    if options.write:
        write_between("idle", text)


async def _measure(dags: int, seconds: float) -> dict[str, Any]:
    counts, calls = Counter[str](), Faults()
    simulator = IdleCluster.of("1a 2b 3c 4a", "t: 123 234 314 421")
    with tempfile.TemporaryDirectory() as folder:
        extra = {"journal": f"sqlite:///{Path(folder)}/journal.db", "workspace": folder}
        described = {"conn_type": "kafka_steward", "host": "127.0.0.1:1", "extra": extra}
        os.environ["AIRFLOW_CONN_IDLE"] = json.dumps(described)
        with (
            patch.object(StewardHook, "cluster", lambda _: calls.around("cluster", simulator)),
            patch.object(StewardHook, "cluster_id", lambda _: simulator.cluster_id),
            patch.object(WatchReporter, "record_success", _counting(counts)),
        ):
            listeners = [_listen(WatchTrigger("idle", event=EVENTS[number % len(EVENTS)])) for number in range(dags)]
            tasks = [asyncio.create_task(each) for each in listeners]
            await asyncio.sleep(_SETTLE_S)
            counts.clear()
            calls.calls.clear()
            sa.event.listen(sa.Engine, "before_cursor_execute", lambda *_: counts.update(["statements"]))
            await asyncio.sleep(seconds)
            polls, statements, requests = counts["polls"], counts["statements"], len(calls.calls)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return {
        "DAGs that listen": dags,
        "polls/s": f"{polls / seconds:.1f}",
        "SQL statements/s": f"{statements / seconds:.1f}",
        "requests to Kafka/s": f"{requests / seconds:.1f}",
        "of these per poll": f"{requests / max(polls, 1):.2f}",
    }


def _counting(counts: Counter[str]) -> Callable[[WatchReporter], None]:
    succeed = WatchReporter.record_success

    def polled(self: WatchReporter) -> None:
        counts["polls"] += 1
        succeed(self)

    return polled


async def _listen(trigger: WatchTrigger) -> None:
    async for _ in trigger.run():
        pass


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.idle", description=__doc__)
    parser.add_argument("--dags", nargs="+", type=int, default=[1, 10], help="DAGs that listen")
    parser.add_argument("--seconds", type=float, default=_COUNTED_S, help="how long is counted")
    parser.add_argument("--write", action="store_true", help="write the table into docs/benchmarks.md")
    return parser


if __name__ == "__main__":
    main()
