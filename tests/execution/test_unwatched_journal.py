"""Who writes down what is owed is told when no watch reads it there."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from kafka_steward.execution.topics import unwatched_reason
from kafka_steward.journal.store import open_journal
from tests.simulated_plan import memory_journal
from tests.simulator import Simulator


def test_a_journal_that_no_watch_reads_is_told_and_one_that_is_read_is_not(tmp_path: Path) -> None:
    with open_journal(f"sqlite:///{tmp_path}/journal.db", "one") as journal:
        journal.record_poll("health")
        assert unwatched_reason(journal).startswith("No watch has polled this journal ever, so no fill starts")
        journal.record_poll("failures")
        assert unwatched_reason(journal) == ""


@pytest.mark.parametrize(("minutes", "told"), [(9, ""), (11, "in the last 11 minutes")])
def test_a_watch_that_ended_is_told_after_ten_minutes(tmp_path: Path, minutes: int, told: str) -> None:
    with open_journal(f"sqlite:///{tmp_path}/journal.db", "one") as journal:
        journal.record_poll("failures")
        with sa.create_engine(f"sqlite:///{tmp_path}/journal.db").begin() as connection:
            connection.execute(sa.text("UPDATE steward_look SET at_ms = at_ms - :ms"), {"ms": minutes * 60_000})
        assert told in unwatched_reason(journal)
        assert bool(unwatched_reason(journal)) is bool(told)


def test_a_journal_without_a_database_says_nothing() -> None:
    assert unwatched_reason(memory_journal(Simulator.of("1a", "t: 1"))) == ""
