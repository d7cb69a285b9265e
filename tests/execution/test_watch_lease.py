"""Of several watches of a cluster one makes each check, and another takes over when it dies, fails or stops."""

from __future__ import annotations

import os

import pytest

from kafka_steward.execution.watch_lease import RENEWED_MS, TTL_MS, CheckLease, Standby, decide_standby
from kafka_steward.journal import paths
from kafka_steward.journal.locks import new_holder_name
from kafka_steward.journal.records import WatchLease
from kafka_steward.journal.store import Journal
from kafka_steward.journal.tree import Node
from tests.memory_tree import MemoryTree
from tests.simulated_plan import memory_journal
from tests.simulator import Simulator

PATH = f"{paths.WATCH_LEASES}/failures"
NOBODY = 2**22 + 1  # no process has this id: Linux counts to 2**22


def lease_of(owner: str) -> CheckLease:
    return CheckLease("failures", owner)


def node(journal: Journal) -> Node:
    found = journal.tree.get(PATH)
    assert found is not None
    return found


def owner(journal: Journal) -> str:
    return WatchLease.from_node(node(journal)).owner


@pytest.mark.parametrize(
    ("name", "age_ms", "died", "standby"),
    [
        ("other", 0, False, Standby(is_made=True, pause_s=10.1)),
        ("other", 9_999, False, Standby(is_made=True, pause_s=0.101)),
        ("other", 10_000, False, None),
        ("other", 0, True, None),
        ("mine", 0, False, None),
        ("other", -10_000, False, Standby(is_made=True, pause_s=10.1)),  # a clock that was set back a little
        ("other", -10_001, False, None),
    ],
)
def test_a_watch_stands_by_while_a_lease_lasts(name: str, age_ms: int, died: bool, standby: Standby | None) -> None:
    lease = WatchLease(name, 10_000, polled=True)
    assert decide_standby(lease, 1_000_000, 1_000_000 + age_ms, owner="mine", owner_died=died) == standby


def test_the_second_stands_by_until_the_first_renews_no_more(simulator: Simulator, journal: Journal) -> None:
    one, two = lease_of("one"), lease_of("two")
    assert one.stand_by(journal, needed=False) is None
    assert two.stand_by(journal, needed=False) == Standby(is_made=False, pause_s=TTL_MS / 1000 + 0.1)
    one.renew(journal, 2.0)
    assert two.stand_by(journal, needed=False) == Standby(is_made=True, pause_s=2 + TTL_MS / 1000 + 0.1)
    simulator.now_ms += 2_000 + TTL_MS - 1
    assert two.stand_by(journal, needed=False) is not None
    simulator.now_ms += 1
    assert two.stand_by(journal, needed=False) is None
    assert one.stand_by(journal, needed=False) == Standby(is_made=False, pause_s=TTL_MS / 1000 + 0.1)


def test_a_lease_is_written_anew_only_when_old_or_too_short(simulator: Simulator, journal: Journal) -> None:
    lease = lease_of("one")
    versions = []
    for later_ms, pause_s in ((0, 2.0), (0, 2.0), (RENEWED_MS - 1, 1.0), (1, 2.0), (0, 3.0)):
        simulator.now_ms += later_ms
        assert lease.stand_by(journal, needed=False) is None
        lease.renew(journal, pause_s)
        versions.append(node(journal).version)
    assert versions == [1, 1, 1, 2, 3]


def test_a_check_whose_event_is_listened_to_polls_in_any_case_and_takes_the_lease(journal: Journal) -> None:
    spare, needed = lease_of("spare"), lease_of("needed")
    assert spare.stand_by(journal, needed=False) is None
    spare.renew(journal, 2.0)
    assert needed.stand_by(journal, needed=True) is None
    assert owner(journal) == "spare", "it has not polled yet"
    needed.renew(journal, 2.0)
    assert owner(journal) == "needed"
    assert spare.stand_by(journal, needed=False) is not None


def test_a_released_lease_is_free_at_once_and_that_of_another_watch_is_not_released(journal: Journal) -> None:
    one, two = lease_of("one"), lease_of("two")
    assert one.stand_by(journal, needed=False) is None
    two.release(journal)
    assert owner(journal) == "one"
    one.release(journal)
    assert journal.tree.get(PATH) is None
    one.release(journal)
    assert two.stand_by(journal, needed=False) is None


def test_the_lease_of_a_process_of_this_machine_that_has_ended_is_free_at_once(journal: Journal) -> None:
    dead = lease_of(new_holder_name().replace(f":{os.getpid()}:", f":{NOBODY}:"))
    assert dead.stand_by(journal, needed=False) is None
    dead.renew(journal, 60.0)
    assert lease_of(new_holder_name()).stand_by(journal, needed=False) is None


def test_of_two_that_take_it_at_the_same_time_one_polls(simulator: Simulator, journal: Journal) -> None:
    class Both(MemoryTree):
        """Lets the other one take the lease between the read and the write."""

        def get(self, path: str) -> Node | None:
            found = journal.tree.get(path)
            if not taken:
                taken.append(path)
                assert lease_of("other").stand_by(journal, needed=False) is None
            return found

        def create(self, path: str, data: str) -> Node:
            return journal.tree.create(path, data)

    taken: list[str] = []
    racing = memory_journal(simulator)
    racing.tree = Both(lambda: simulator.now_ms)
    assert lease_of("mine").stand_by(racing, needed=False) == Standby(is_made=False, pause_s=1.0)
    assert owner(journal) == "other"


@pytest.mark.parametrize("text", ["", "{", '{"version": 99, "owner": "x", "ttl_ms": 1, "polled": true}'])
def test_a_lease_that_cannot_be_read_stops_no_poll_and_is_left_as_it_is(journal: Journal, text: str) -> None:
    journal.tree.create(PATH, text)
    lease = lease_of("one")
    for needed in (False, True):
        assert lease.stand_by(journal, needed=needed) is None
        lease.renew(journal, 2.0)
    lease.release(journal)
    assert node(journal).data == text
