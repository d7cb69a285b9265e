"""Rows for plots: one per interval, whoever looks, and for some days only."""

from __future__ import annotations

from pathlib import Path

from kafka_steward.journal.store import open_journal


def test_a_row_is_kept_once_per_interval_and_not_for_ever(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/journal.db"
    day_ms = 86_400_000
    with open_journal(url, "c", host="h") as journal, open_journal(url, "other", host="h") as other:
        assert journal.health is not None
        assert other.health is not None
        for _ in range(2):
            journal.health.add_measures({"offline_partitions": 1}, every_ms=7 * day_ms, retention_ms=30 * day_ms)
        ((at_ms, measures),) = journal.health.rows()
        assert (at_ms % (7 * day_ms), measures) == (0, {"offline_partitions": 1})
        assert journal.health.rows(since_ms=at_ms + 1) == []
        journal.health.add_measures({"offline_partitions": 2}, every_ms=1, retention_ms=0)
        assert [found["offline_partitions"] for _, found in journal.health.rows()] == [2]
        assert other.health.rows() == []
