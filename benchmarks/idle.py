"""`python -m benchmarks.idle`: what a watch costs that has nothing to do.

For one and for ten DAGs that listen to a cluster with many partitions: requests per second to Kafka, SQL statements,
polls, packets to ZooKeeper, CPU, memory, and how late a coroutine beside them is at worst, also while a broker hangs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="kafka-steward-benchmark-"))

os.environ.setdefault("AIRFLOW__LOGGING__LOGGING_LEVEL", "WARNING")

import sqlalchemy as sa
from kafka.net.manager import KafkaConnectionManager
from kazoo.client import KazooClient

from benchmarks.report import merge_between, table
from kafka_steward.sandbox import Sandbox, start
from kafka_steward.triggers.reporting import WatchReporter
from kafka_steward.triggers.watch import EVENTS, WatchTrigger

#: A watch goes through everything once a minute, and ten that began together do so together.
_SETTLE_S, _IDLE_S, _HANG_S, _OWN_S = 15.0, 70.0, 15.0, 20.0
#: Until the brokers have recovered from one that hung.
_RECOVER_S = 30.0
_BEAT_S = 0.02


def main() -> None:
    options = _parser().parse_args()
    rows: list[dict[str, Any]] = []
    for mode in options.modes:
        with tempfile.TemporaryDirectory() as name, start(mode=mode, brokers=4, racks=3) as sandbox:
            _create(sandbox, options.partitions)
            brokers_own = _brokers_own(sandbox)
            for dags in options.dags:
                size = {"mode": mode, "partitions": options.partitions, "DAGs": dags}
                rows.append(size | asyncio.run(_idle(sandbox, Path(name), dags, brokers_own)))
                print(rows[-1], flush=True)
                time.sleep(_RECOVER_S if dags != options.dags[-1] else 0)
    head, cells = list(rows[0]), [[_cell(value) for value in row.values()] for row in rows]
    print(table(head, cells))
    if options.write:
        merge_between("watches", head, cells, keys=3)


def _create(sandbox: Sandbox, partitions: int) -> None:
    topics = [f"t{number}" for number in range(partitions // 20)]
    for first in range(0, len(topics), 25):
        sandbox.create_topics(topics[first : first + 25], partitions=20, replication_factor=2)


def _cell(value: Any) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def _connection(sandbox: Sandbox, folder: Path, name: str) -> str:
    extra = {"journal": f"sqlite:///{folder}/{name}.db", "workspace": str(folder), "throttle": 0, "min_free": 0}
    if sandbox.zookeeper:
        extra["zookeeper"] = sandbox.zookeeper
    described = {"conn_type": "kafka_steward", "host": sandbox.bootstrap, "extra": extra}
    os.environ[f"AIRFLOW_CONN_{name.upper()}"] = json.dumps(described)
    return name


@asynccontextmanager
async def _watching(conn_id: str, dags: int = 1) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Let so many DAGs listen: for failed brokers, for brokers that joined, for empty ones, for documents, in turns."""
    triggers = [WatchTrigger(conn_id, event=EVENTS[number % len(EVENTS)]) for number in range(dags)]
    tasks = [asyncio.create_task(_listen(trigger)) for trigger in triggers]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        # A second cancellation, by the end of the loop, would interrupt what closes the connections.
        await asyncio.gather(*tasks, return_exceptions=True)


async def _listen(trigger: WatchTrigger) -> None:
    try:
        async for _ in trigger.run():
            pass
    finally:
        await trigger.cleanup()


async def _idle(sandbox: Sandbox, folder: Path, dags: int, brokers_own: float) -> dict[str, Any]:
    conn_id = _connection(sandbox, folder, "idle")
    counts = Counter[str]()
    async with _watching(conn_id, dags):
        await asyncio.sleep(_SETTLE_S)
        received, cpu_s = _zookeeper_received(sandbox), time.process_time()
        with _counting(counts):
            late_s = await _latest_beat(_IDLE_S)
        cpu_s, after = time.process_time() - cpu_s, _zookeeper_received(sandbox)
        memory_mb = _memory_mb()
        sandbox.pause(4)
        try:
            hanging_s = await _latest_beat(_HANG_S)
        finally:
            sandbox.resume(4)
    return {
        "Kafka/s": counts["kafka"] / _IDLE_S,
        "SQL/s": counts["sql"] / _IDLE_S,
        "polls/s": counts["polls"] / _IDLE_S,
        "ZooKeeper/s": (after - received) / _IDLE_S - brokers_own,
        "CPU %": 100 * cpu_s / _IDLE_S,
        "MB in all": memory_mb,
        "late ms": 1000 * late_s,
        "late ms, a broker hanging": 1000 * hanging_s,
    }


def _brokers_own(sandbox: Sandbox) -> float:
    """Packets per second that ZooKeeper receives from the brokers alone."""
    if not sandbox.zookeeper:
        return 0.0
    before = _zookeeper_received(sandbox)
    time.sleep(_OWN_S)
    return (_zookeeper_received(sandbox) - before) / _OWN_S


async def _latest_beat(seconds: float) -> float:
    worst_s, end_s = 0.0, time.monotonic() + seconds
    while time.monotonic() < end_s:
        began_s = time.monotonic()
        await asyncio.sleep(_BEAT_S)
        worst_s = max(worst_s, time.monotonic() - began_s - _BEAT_S)
    return worst_s


@contextmanager
def _counting(counts: Counter[str]) -> Iterator[None]:
    sent = KafkaConnectionManager.send

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        counts["kafka"] += 1
        return sent(self, *args, **kwargs)

    def statement(*_: Any) -> None:
        counts["sql"] += 1

    def polled(self: WatchReporter) -> None:
        counts["polls"] += 1
        succeed(self)

    succeed = WatchReporter.record_success
    KafkaConnectionManager.send = counted
    sa.event.listen(sa.Engine, "before_cursor_execute", statement)
    try:
        with patch.object(WatchReporter, "record_success", polled):
            yield
    finally:
        KafkaConnectionManager.send = sent
        sa.event.remove(sa.Engine, "before_cursor_execute", statement)


def _zookeeper_received(sandbox: Sandbox) -> int:
    """Packets that ZooKeeper has received from all its clients, the brokers among them."""
    if not sandbox.zookeeper:
        return 0
    client = KazooClient(sandbox.zookeeper)
    client.start()
    try:
        lines = client.command(b"srvr").splitlines()
    finally:
        client.stop()
        client.close()
    with suppress(StopIteration):
        return int(next(line for line in lines if line.startswith("Received")).split()[-1])
    return 0


def _memory_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.idle", description=__doc__)
    parser.add_argument("--modes", nargs="+", default=["kraft", "zookeeper"], choices=["kraft", "zookeeper"])
    parser.add_argument("--partitions", type=int, default=5000)
    parser.add_argument("--dags", nargs="+", type=int, default=[1, 10], help="DAGs that listen")
    parser.add_argument("--write", action="store_true", help="put the rows into docs/benchmarks.md")
    return parser


if __name__ == "__main__":
    main()
