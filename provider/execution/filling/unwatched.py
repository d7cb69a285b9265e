"""Check that a watch reads this journal: no other process detects its pending replicas without being called."""

from __future__ import annotations

from kafka_steward.journal.open import Journal

__all__ = ["unwatched_reason"]

#: The kind of poll that each watch runs, many times a minute.
_LOOK = "failures"
_LATELY_MS = 600_000


def unwatched_reason(journal: Journal) -> str:
    """Return a message for the user when no watch has polled within `_LATELY_MS`, else "". Raises JournalUnreachable.

    A running watch that uses another journal, on another host, cannot be distinguished from one that does not run.
    """
    if journal.looks is None:
        return ""
    ages_ms = [row["age_ms"] for row in journal.looks.rows() if row["kind"] == _LOOK]
    if ages_ms and min(ages_ms) < _LATELY_MS:
        return ""
    since = f"in the last {min(ages_ms) // 60_000} minutes" if ages_ms else "ever"
    return (
        f"No watch has looked into this journal {since}, so nothing is filled by itself: unpause the DAG fill, and see "
        "that the setting journal names the one database that all hosts of this Airflow share."
    )
