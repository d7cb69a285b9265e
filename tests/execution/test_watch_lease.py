"""Of several watches of a cluster one makes each check, and another takes over when it dies, fails or stops."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from kafka_steward.execution.watch.lease import (
    RENEWED_MS,
    TTL_MS,
    ClusterLease,
    PassedEvent,
    Standby,
    decide_standby,
    list_listened_events,
    listen_to_event,
    pass_event_on,
    take_event,
)
from kafka_steward.journal.locks import new_holder_name
from kafka_steward.journal.records import WATCH_LEASE, WatchLease
from kafka_steward.journal.state import ONLY, Row, StoredRow
from kafka_steward.journal.store import Journal
from tests.present import present
from tests.simulator import Simulator

NOBODY = 2**22 + 1  # no process has this id: Linux counts to 2**22


def lease_of(owner: str) -> ClusterLease:
    return ClusterLease(owner)


def until(simulator: Simulator, ms: int, pause_s: float | None = None) -> Standby:
    """Another watch, "one", has the lease for so long."""
    return Standby("one", simulator.now_ms + ms, ms / 1000 + 0.1 if pause_s is None else pause_s)


def row(journal: Journal) -> Row[str, WatchLease]:
    return present(journal.rows(WATCH_LEASE).get(ONLY))


def owner(journal: Journal) -> str:
    return row(journal).value.owner


@pytest.mark.parametrize(
    ("name", "age_ms", "died", "standby"),
    [
        ("other", 0, False, Standby("other", 1_010_000, 10.1)),
        ("other", 9_999, False, Standby("other", 1_010_000, 0.101)),
        ("other", 10_000, False, None),
        ("other", 0, True, None),
        ("mine", 0, False, None),
        ("other", -10_000, False, Standby("other", 1_000_000, 10.1)),  # a clock that was set back a little
        ("other", -10_001, False, None),
    ],
)
def test_a_watch_stands_by_while_a_lease_lasts(name: str, age_ms: int, died: bool, standby: Standby | None) -> None:
    lease = WatchLease(name, 10_000, polled=True)
    assert decide_standby(lease, 1_000_000, 1_000_000 + age_ms, owner="mine", owner_died=died) == standby


def test_the_second_stands_by_until_the_first_renews_no_more(simulator: Simulator, journal: Journal) -> None:
    one, two = lease_of("one"), lease_of("two")
    assert one.stand_by(journal) is None
    assert two.stand_by(journal) == until(simulator, TTL_MS)
    one.renew(journal, 2.0)
    assert two.stand_by(journal) == until(simulator, 2_000 + TTL_MS)
    simulator.now_ms += 2_000 + TTL_MS - 1
    assert two.stand_by(journal) is not None
    simulator.now_ms += 1
    assert two.stand_by(journal) is None
    assert one.stand_by(journal) == replace(until(simulator, TTL_MS), owner="two")


def test_a_lease_is_written_anew_only_when_old_or_too_short(simulator: Simulator, journal: Journal) -> None:
    lease = lease_of("one")
    versions = []
    for later_ms, pause_s in ((0, 2.0), (0, 2.0), (RENEWED_MS - 1, 1.0), (1, 2.0), (0, 3.0)):
        simulator.now_ms += later_ms
        assert lease.stand_by(journal) is None
        lease.renew(journal, pause_s)
        versions.append(row(journal).stored.revision)
    assert versions == [1, 1, 1, 2, 3]


def test_who_stands_by_says_which_process_has_the_watch_and_until_when() -> None:
    standby = Standby("db-7:4711:0a1b2c3d4e5f6a7b", 1_750_000_000_000, 2.1)
    assert standby.sentence("kafka_east") == (
        "Another watch of kafka_east, process 4711 on host db-7, has the watch until 2025-06-15 15:06:40 UTC, and "
        "longer if it goes on; this one stands by, and takes over after that."
    )


def test_an_event_is_passed_on_once_to_the_watch_that_listens_and_stands_by(journal: Journal) -> None:
    pass_event_on(journal, "alert", {"at_ms": 5, "alerts": ["outage"]})
    assert list_listened_events(journal) == frozenset(), "nobody listens"
    lease_of("one").stand_by(journal)
    for event in ("alert", "broker-failed", "broker-failed"):
        listen_to_event(journal, event)
    assert list_listened_events(journal) == {"alert", "broker-failed"}
    assert take_event(journal, "broker-failed", goes_on=True) is None
    pass_event_on(journal, "broker-failed", {"at_ms": 7, "brokers": [3]})
    assert take_event(journal, "broker-failed", goes_on=True) == PassedEvent(7, (3,))
    assert take_event(journal, "broker-failed", goes_on=True) is None
    pass_event_on(journal, "alert", {"at_ms": 8, "alerts": ["outage"]})
    assert take_event(journal, "alert", goes_on=False) == PassedEvent(8, (), ("outage",))
    assert list_listened_events(journal) == {"broker-failed"}


def test_a_released_lease_is_free_at_once_and_that_of_another_watch_is_not_released(journal: Journal) -> None:
    one, two = lease_of("one"), lease_of("two")
    assert one.stand_by(journal) is None
    two.release(journal)
    assert owner(journal) == "one"
    one.release(journal)
    assert journal.rows(WATCH_LEASE).get(ONLY) is None
    one.release(journal)
    assert two.stand_by(journal) is None


def test_the_lease_of_a_process_of_this_machine_that_has_ended_is_free_at_once(journal: Journal) -> None:
    dead = lease_of(new_holder_name().replace(f":{os.getpid()}:", f":{NOBODY}:"))
    assert dead.stand_by(journal) is None
    dead.renew(journal, 60.0)
    assert lease_of(new_holder_name()).stand_by(journal) is None


def test_of_two_that_take_it_at_the_same_time_one_polls(
    simulator: Simulator, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    select, taken = journal.state.select, list[object]()

    def let_the_other_take_it_before_the_write(wanted: Any) -> list[StoredRow]:
        found = select(wanted)
        if not taken:
            taken.append(wanted)
            assert lease_of("other").stand_by(journal) is None
        return found

    monkeypatch.setattr(journal.state, "select", let_the_other_take_it_before_the_write)
    assert lease_of("mine").stand_by(journal) == Standby("other", simulator.now_ms + TTL_MS, 1.0)
    assert owner(journal) == "other"
