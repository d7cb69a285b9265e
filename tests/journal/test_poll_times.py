"""When each watch last looked stands in the journal, for whoever looks at no metrics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kafka_steward.journal.sql.history import PollTimes
from kafka_steward.journal.store import Journal, open_journal


def looks_of(journal: Journal) -> PollTimes:
    assert journal.poll_times is not None
    return journal.poll_times


def kinds_and_hosts(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return sorted((row["kind"], row["host"]) for row in rows)


def test_each_kind_of_look_and_each_host_has_a_row(fresh_url: str, cluster_id: str) -> None:
    hosts = ["here"] if fresh_url.startswith("sqlite") else ["here", "there"]
    for host in hosts:
        with open_journal(fresh_url, cluster_id, host=host) as journal:
            before_ms = journal.now_ms()
            journal.record_poll("failures")
            journal.record_poll("documents")
            rows = looks_of(journal).rows()
            after_ms = journal.now_ms()
    assert kinds_and_hosts(rows) == sorted((kind, host) for kind in ("documents", "failures") for host in hosts)
    newest = [row for row in rows if row["host"] == hosts[-1]]
    assert all(before_ms <= row["at_ms"] <= after_ms for row in newest)
    assert all(0 <= row["age_ms"] <= after_ms - before_ms for row in newest)
    with open_journal(fresh_url, f"{cluster_id}-b", host=hosts[0]) as another:
        assert looks_of(another).rows() == []


def test_the_newest_look_is_the_first_row(sqlite_url: str, cluster_id: str) -> None:
    with open_journal(sqlite_url, cluster_id) as journal:
        for kind in ("failures", "documents"):
            last_ms = journal.now_ms()
            while journal.now_ms() <= last_ms:
                pass
            journal.record_poll(kind)
        assert [row["kind"] for row in looks_of(journal).rows()] == ["documents", "failures"]
        assert [row["kind"] for row in looks_of(journal).rows()] == ["documents", "failures"]


def test_a_row_moves_on_though_not_with_every_look(sqlite_url: str, cluster_id: str) -> None:
    seconds = 100.0
    with open_journal(sqlite_url, cluster_id) as journal:
        looks = replace(looks_of(journal), clock=lambda: seconds)
        looks.record("failures")
        (first,) = looks.rows()
        while journal.now_ms() <= first["at_ms"]:
            pass
        seconds += 4.9
        looks.record("failures")
        assert [row["at_ms"] for row in looks.rows()] == [first["at_ms"]]
        seconds += 0.2
        looks.record("failures")
        (later,) = looks.rows()
    assert later["at_ms"] > first["at_ms"]
