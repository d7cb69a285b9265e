"""`python -m benchmarks.ended_plans`: what a poll of the watch takes, by the number of plans that have ended.

A simulated cluster where nothing happens, and a journal in SQLite with so many ended plans of one move, each approved:
the poll for failed brokers and the poll of the documents, as the watch runs them, in CPU time. Twice a minute a poll
also sweeps: it looks for unreadable documents.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import table, write_between
from kafka_steward.document_api.controller import DocumentController
from kafka_steward.execution.watch.failures import FailureDetector
from kafka_steward.journal.store import Journal, open_journal
from kafka_steward.settings import Settings
from tests.ended_plans import add_ended_plans, cost_of
from tests.simulated_plan import WHO
from tests.simulator import Simulator

_POLLS = 200
_SWEEPS = 10
_SETTINGS = Settings()


@dataclass(frozen=True)
class Took:
    """One kind of poll: the SQL statements of one, and the median milliseconds of one without and one with a sweep."""

    plans: int
    kind: str
    statements: int
    poll_ms: float
    sweep_ms: float


def main() -> None:
    options = _parser().parse_args()
    text = _table([took for plans in options.plans for took in _measured(plans)])
    print(text)
    if options.write:
        write_between("ended plans", text)


def _measured(plans: int) -> Iterator[Took]:
    simulator = Simulator.of("1a 2b 3c 4a", "t: 123 231 312 132")
    with (
        tempfile.TemporaryDirectory() as name,
        open_journal(f"sqlite:///{Path(name)}/journal.db", simulator.cluster_id) as journal,
    ):
        add_ended_plans(journal, plans, approved=True)
        yield _took(plans, "failed brokers", journal, lambda: FailureDetector(simulator, journal, _SETTINGS, WHO).poll)
        yield _took(plans, "documents", journal, lambda: DocumentController(simulator, journal, _SETTINGS, WHO).poll)


def _took(plans: int, kind: str, journal: Journal, begin: Callable[[], Callable[[], object]]) -> Took:
    sweeps_ms = [_ms(begin()) for _ in range(_SWEEPS)]  # the first poll of each object sweeps
    poll = begin()
    poll()
    polls_ms = [_ms(poll) for _ in range(_POLLS)]
    with cost_of(journal) as cost:
        poll()
    return Took(plans, kind, cost.statements, statistics.median(polls_ms), statistics.median(sweeps_ms))


def _ms(poll: Callable[[], object]) -> float:
    began_s = time.process_time()  # whatever else runs on the machine
    poll()
    return (time.process_time() - began_s) * 1000


def _table(rows: list[Took]) -> str:
    head = ("ended plans", "poll", "SQL statements", "ms", "ms, with a sweep")
    return table(
        head,
        [
            (f"{row.plans:,}", row.kind, str(row.statements), f"{row.poll_ms:.1f}", f"{row.sweep_ms:.1f}")
            for row in sorted(rows, key=lambda row: row.kind, reverse=True)
        ],
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plans", nargs="+", type=int, default=[10, 1000, 10_000], help="plans that have ended")
    parser.add_argument("--write", action="store_true", help="write the table into docs/benchmarks.md")
    return parser


if __name__ == "__main__":
    main()
