"""Whether any watch reads this journal: what is owed is written there, and by itself nobody else comes for it."""

from __future__ import annotations

from kafka_steward.journal.open import Journal

__all__ = ["why_unwatched"]

#: The look that each watch takes, many times a minute.
_LOOK = "failures"
_LATELY_MS = 600_000


def why_unwatched(journal: Journal) -> str:
    """Return one sentence for a person when no watch has looked lately, else nothing. Raises JournalUnreachable.

    A watch that runs and keeps another journal, on another host, is not to be told from one that does not run.
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
