"""`python -m benchmarks.airflow_tasks`: what a task costs that does nothing, and what a deferral costs; no Kafka.

A DAG of tasks in a row, in a real Airflow with LocalExecutor and SQLite: some return at once, some defer to a trigger
that fires after `_FIRES_AFTER_S` seconds. The times are those that Airflow records, and the lines of its logs.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import tempfile
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.report import table, write_between
from kafka_steward.sandbox.airflow import AirflowDag, LocalAirflow

_FIRES_AFTER_S = 12.0
_DAG_FILE = """\
# An Airflow DAG of tasks in a row.
from datetime import timedelta
from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger
from airflow.sdk import DAG, BaseOperator
from airflow.sdk.bases.operator import chain

class Empty(BaseOperator):
    def execute(self, context):
        return None

class Deferring(BaseOperator):
    def execute(self, context):
        self.defer(trigger=TimeDeltaTrigger(timedelta(seconds={fires_after})), method_name="resume")

    def resume(self, context, event=None):
        return None

with DAG("tasks", schedule=None, is_paused_upon_creation=False):
    empty = [Empty(task_id=f"empty_{{n}}") for n in range({empty})]
    chain(*empty, *[Deferring(task_id=f"deferring_{{n}}") for n in range({deferring})])
"""
#: The executor's report that a worker has ended, in the log of the scheduler.
_REPORT = re.compile(r"^(\S+Z) .*Received executor event with state success .*task_id='(\w+)'")


def main() -> None:
    options = _parser().parse_args()
    with tempfile.TemporaryDirectory() as name:
        text = _measure(Path(name), options.empty, options.deferring)
    print(text)
    if options.write:
        write_between("airflow tasks", text)


def _measure(home: Path, empty: int, deferring: int) -> str:
    airflow = LocalAirflow(home)
    airflow.dags.mkdir(parents=True)
    file = _DAG_FILE.format(fires_after=_FIRES_AFTER_S, empty=empty, deferring=deferring)
    (airflow.dags / "tasks.py").write_text(file)
    with airflow:
        dag = AirflowDag(airflow, "tasks")
        dag.unpause()
        run_id = dag.trigger()
        dag.wait_for_run(run_id, within_s=600)
        tasks = sorted(dag.list_tasks(run_id), key=lambda task: str(task["start_date"]))
    return table(["", "measured", "median, s", "longest, s"], list(_rows(home, tasks)))


def _rows(home: Path, tasks: Sequence[dict[str, Any]]) -> Iterable[list[str]]:
    empty = [task for task in tasks if task["task_id"].startswith("empty")]
    deferring = [task for task in tasks if task["task_id"].startswith("deferring")]
    queued = [_between(task["queued_when"], task["start_date"]) for task in empty]
    ran = [_between(task["start_date"], task["end_date"]) for task in empty]
    scheduled = [_between(one["end_date"], following["queued_when"]) for one, following in pairwise(empty)]
    whole = [_between(one["end_date"], following["end_date"]) for one, following in pairwise(empty)]
    deferred = [_between(task["start_date"], task["end_date"]) - _FIRES_AFTER_S for task in deferring]
    yield _row("a task: from the end of the one before to queued, a loop of the scheduler", scheduled)
    yield _row("a task: from queued to running", queued)
    yield _row("a task that does nothing: from running to success", ran)
    yield _row("one more empty task in a row, in all", whole)
    yield _row("a task that does nothing but defer, without the time of its trigger", deferred)
    yield _row("from a deferral to the executor's report that the worker has ended", list(_report_delays(home)))


def _report_delays(home: Path) -> Iterable[float]:
    """Seconds from each deferral to the executor's report; a trigger's event before it may cost the task a try."""
    reported: dict[str, str] = {}
    for line in (home / "scheduler.log").read_text(errors="replace").splitlines():
        if found := _REPORT.match(line):
            reported.setdefault(found[2], found[1])
    for log in sorted(home.glob("logs/**/task_id=deferring_*/attempt=1.log")):
        task = log.parent.name.partition("=")[2]
        lines = map(json.loads, log.read_text().splitlines())
        paused = next(line["timestamp"] for line in lines if "DEFERRED" in str(line.get("event")))
        yield _between(paused, reported[task])


def _row(what: str, seconds: Sequence[float]) -> list[str]:
    return [what, str(len(seconds)), f"{statistics.median(seconds):.1f}", f"{max(seconds):.1f}"]


def _between(one: str, other: str) -> float:
    begin, end = (datetime.fromisoformat(text.replace("Z", "+00:00")) for text in (one, other))
    return (end - begin).total_seconds()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.airflow_tasks", description=__doc__)
    parser.add_argument("--empty", type=int, default=10)
    parser.add_argument("--deferring", type=int, default=4)
    parser.add_argument("--write", action="store_true", help="put the table into docs/benchmarks.md")
    return parser


if __name__ == "__main__":
    main()
